"""The measure of accuracy itself: it is IEEE's float32, and less accurate results do not pass."""

import numpy as np
import pytest
import torch

from tests.rounding import TextbookFloat32, assert_accurate, textbook_and_truth

rng = np.random.default_rng(0)


def doubles(*shape):
    return torch.from_numpy(rng.normal(size=shape).astype(np.float32)).double()


def test_the_textbook_is_float32_one_term_after_the_other():
    x, a, b = doubles(7, 50), doubles(3, 40), doubles(40, 5)
    with TextbookFloat32():
        found = [x * x / 3, x.cumsum(1), x.sum(1), x.sum(), a @ b, x.clone().add_(x[0])]
    y, a, b = (t.numpy().astype(np.float32) for t in (x, a, b))
    rows = np.add.accumulate(y, 1)[:, -1]
    columns = np.add.accumulate(y, 0)[-1]
    products = a[:, :, None] * b[None]
    right = [
        y * y / np.float32(3),
        np.add.accumulate(y, 1),
        rows,
        np.add.accumulate(columns)[-1],
        np.add.accumulate(products, 1)[:, -1],
        y + y[0],
    ]
    for t, expected in zip(found, right, strict=True):
        np.testing.assert_array_equal(t.numpy(), expected)


def test_backward_passes_are_rounded_too():
    x = doubles(20, 9).requires_grad_()
    W = doubles(9, 4).requires_grad_()

    def gradients():
        return torch.autograd.grad((x @ W).tanh().sum(), (x, W))

    for t, truth in zip(*textbook_and_truth(gradients), strict=True):
        assert torch.equal(t, t.float().double())
        assert not torch.equal(t, truth.float().double())


def summed_in_bfloat16(a, b):
    total = torch.zeros(len(a), b.shape[1])
    for column, row in zip(a.unbind(1), b, strict=True):
        total = (total + column[:, None] * row).bfloat16().float()
    return total


SPOILT = {
    "inputs in bfloat16": lambda a, b: a.bfloat16().float() @ b.bfloat16().float(),
    "inputs in TF32": lambda a, b: (a.view(torch.int32) & -(2**13)).view(torch.float32) @ b,
    "sums in bfloat16": summed_in_bfloat16,
    "sums through larger numbers": lambda a, b: (a @ b + 5000) - 5000,
    "a term slightly wrong": lambda a, b: a @ b + 1e-4 * a[:, :1] * b[:1],
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_less_accurate_results_are_told(spoilt):
    a, b = doubles(64, 500), doubles(500, 8)
    measure = *textbook_and_truth(lambda: [a @ b]), ["product"]
    assert_accurate([a.float() @ b.float()], *measure)
    with pytest.raises(AssertionError, match="product"):
        assert_accurate([SPOILT[spoilt](a.float(), b.float())], *measure)
