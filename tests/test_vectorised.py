"""The vectorised backend against the reference: values, gradients, orders, banks."""

import numpy as np
import pytest
import torch
from torch import Generator

from rnade.backends import reference, vectorised
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec
from rnade.batch import Batch
from tests.conftest import FAMILIES


def draw(family, M, D, H, B, seed=0, floor=False, dtype=torch.float64):
    generator = Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    P = family.n_outputs
    parameters = Parameters(
        W=normal(M, D, H),
        c=normal(M, H),
        rho=1 + 0.3 * normal(M, D),
        V=0.5 * normal(M, D, H, P),
        b=normal(M, D, P),
        log_floor=-1 + 0.1 * normal(M, D) if floor else None,
    )
    x = normal(M, B, D)
    return (x > 0).to(dtype) if family.discrete else x, parameters


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("activation", ["relu", "sigmoid", "identity"])
@pytest.mark.parametrize("floor", [False, True])
@pytest.mark.parametrize(
    ("M", "D", "H", "B"), [(1, 1, 1, 1), (1, 7, 5, 3), (3, 5, 11, 2), (2, 13, 1, 1)]
)
@pytest.mark.parametrize("ordered", [False, True])
def test_values_and_gradients_agree_with_the_reference(
    name, activation, floor, M, D, H, B, ordered
):
    family = FAMILIES[name]
    x, parameters = draw(family, M, D, H, B, floor=floor)
    generator = Generator().manual_seed(5)
    order = torch.stack([torch.randperm(D, generator=generator) for _ in range(M)])
    leaves = [t.requires_grad_() for t in (*parameters.trained, x)]
    given = Batch(x, order=order if ordered else None), parameters, Spec(family, activation)
    terms = vectorised.log_conditionals(*given)
    gradients = torch.autograd.grad(terms.sum(), leaves)
    right = reference.log_conditionals(*given)
    np.testing.assert_allclose(terms.detach(), right, rtol=1e-10, atol=1e-10)
    for g, expected in zip(gradients, reference.gradients(*given), strict=False):
        np.testing.assert_allclose(g, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("ordered", [False, True])
def test_a_bank_is_its_members(name, ordered):
    """Draws too: with one uniform for all, member m draws from its own conditionals."""
    family = FAMILIES[name]
    M, D, B = 3, 4, 6
    x, parameters = draw(family, M, D, 5, B)
    order = torch.stack([torch.arange(D).roll(m) for m in range(M)]) if ordered else None
    together = vectorised.log_conditionals(Batch(x, order=order), parameters, Spec(family, "relu"))
    for m in range(M):
        member = Parameters(*[None if t is None else t[m : m + 1] for t in parameters])
        alone = vectorised.log_conditionals(
            Batch(x[m : m + 1], order=None if order is None else order[m : m + 1]),
            member,
            Spec(family, "relu"),
        )
        torch.testing.assert_close(alone[0], together[m])


def test_extreme_rows_agree_with_the_reference():
    """Rows 50 standard deviations out, and components of width 1e-6."""
    for name in ("gaussian-4", "laplace-4"):
        family = FAMILIES[name]
        x, parameters = draw(family, 1, 5, 4, 6)
        x = 50 * x
        K = family.n_components
        parameters.b[..., 2 * K :] = np.log(1e-6)
        parameters.V[..., 2 * K :] = 0
        given = Batch(x), parameters, Spec(family)
        terms = vectorised.log_conditionals(*given)
        expected = reference.log_conditionals(*given)
        assert torch.isfinite(terms).all()
        np.testing.assert_allclose(terms, expected, rtol=1e-10)


def test_gradient_is_exact_by_gradcheck():
    family = FAMILIES["gaussian-4"]
    x, parameters = draw(family, 1, 3, 2, 2, floor=True)
    leaves = [t.requires_grad_() for t in (x, *parameters.trained)]

    def function(x, *tensors):
        return vectorised.log_conditionals(
            Batch(x), Parameters(*tensors, parameters.log_floor), Spec(family, "sigmoid")
        )

    assert torch.autograd.gradcheck(function, leaves)
