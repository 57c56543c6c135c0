"""The fused CPU kernel of mixed tables' heads, against the plain form in torch."""

import ctypes
import math
from functools import cache, partial

import numpy as np
import pytest
import torch

from rnade.backends import heads as plain
from rnade.backends.cpu import heads as cpu
from rnade.backends.cpu import lanes
from rnade.backends.cpu import threads as workers
from rnade.backends.cpu.calls import address_of
from rnade.columns.partition import CODE, LOG_WIDTH, WITHIN, ColumnCells
from tests.rounding import assert_accurate

N = 700


@pytest.fixture(autouse=True)
def exact_softplus(monkeypatch):
    """Torch takes x for softplus(x) from 20 on, which is wrong by 2e-9: too much for an oracle."""
    exact = partial(torch.nn.functional.softplus, threshold=80)
    monkeypatch.setattr(torch.nn.functional, "softplus", exact)


def numbers(x, rows, **how):
    """A column cut by x, and values to encode: of x, and some that lie outside."""
    outside = [x.min() - 3, x.max() + 2]
    return ColumnCells.of_numbers(x, **{"whole": False} | how), np.append(x[: rows - 2], outside)


def levels(g, n, rows):
    """A column of levels, and codes of which some are not known."""
    codes = g.integers(0, n, N).astype(float)
    return ColumnCells.of_levels(codes, n), g.integers(-1, n + 1, rows).astype(float)


KINDS = {
    "levels": lambda g, n: levels(g, 5, n),
    "two": lambda g, n: levels(g, 2, n),
    "rare": lambda g, n: levels(g, 300, n),
    "integers": lambda g, n: numbers(g.poisson(40, N) * 1.0, n, whole=True),
    "counts": lambda g, n: numbers(g.poisson(0.7, N) * 1.0, n, whole=True),
    "reals": lambda g, n: numbers(g.normal(3, 20, N), n),
    "heavy": lambda g, n: numbers(g.standard_t(1.5, N), n),
    "atoms": lambda g, n: numbers(
        np.where(g.random(N) < 0.4, g.choice([0.0, 1.0], N), g.gamma(2, size=N)),
        n,
        atoms=[0.0, 1.0],
    ),
    "only-atoms": lambda g, n: numbers(g.choice([0.0, 2.5], N), n, atoms=[0.0, 2.5]),
    "bounded": lambda g, n: numbers(g.beta(0.5, 0.5, N), n, low=0.0, high=1.0),
    "many": lambda g, n: numbers(np.tile(g.normal(size=N), 20), n),
}


@cache
def table(kinds, K, M, B, seed):
    """A layout, and outputs, cells and weights of B rows, in float64."""
    g = np.random.default_rng(seed)
    rows = max(40, B)
    columns, values = zip(*[KINDS[kind](g, rows) for kind in kinds], strict=True)
    layout = plain.Layout(columns, K)
    encoded = [c.encode(g.permutation(x)) for c, x in zip(columns, values, strict=True)]
    at = g.integers(0, len(encoded[0]), (M, B))
    cells = torch.from_numpy(np.stack(encoded, 1)[at])
    z = plain.starting_biases(columns, K) + torch.from_numpy(
        g.normal(0, 1, (M, B, layout.n_outputs))
    )
    weights = torch.from_numpy(g.normal(1, 1, (M, B, len(columns))))
    weights[torch.from_numpy(g.random(weights.shape)) < 0.4] = 0
    weights[cells[..., WITHIN] == -math.inf] = 0  # what bounds forbid
    return layout, z, cells, weights


def by_torch(z, cells, weights, layout, upstream=None):
    """Weighted sums and their gradient by the plain form."""
    z = z.detach().clone().requires_grad_()
    log_p = plain.log_prob(z, cells, layout)
    value = torch.where(weights != 0, weights * log_p, 0.0).sum((1, 2))
    (value if upstream is None else upstream * value).sum().backward()
    return value.detach(), z.grad


def by_kernel(z, cells, weights, layout, upstream=None):
    z = z.detach().clone().requires_grad_()
    value = cpu.weighted_log_likelihood(z, cells, weights, layout)
    (value if upstream is None else upstream * value).sum().backward()
    return value.detach(), z.grad


def assert_equal(got, wanted, size=1.0):
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10 * size)


ALL = tuple(KINDS)
KINDS["constant"] = lambda g, n: numbers(np.full(N, 7.0), n)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("M", "B"), [(1, 1), (3, 7), (1, 513), (3, 100)])
def test_value_and_gradient_of_all_kinds_of_columns(M, B, seed):
    layout, z, cells, weights = table(ALL, 8, M, B, seed)
    wanted = by_torch(z, cells, weights, layout)
    assert_equal(by_kernel(z, cells, weights, layout), wanted)
    assert_equal([cpu.weighted_log_likelihood(z, cells, weights, layout)], wanted[:1])


@pytest.mark.parametrize("K", [1, 3, 16])
@pytest.mark.parametrize("kind", ALL)
def test_one_column_alone(kind, K):
    layout, z, cells, weights = table((kind,), K, 2, 37, 0)
    wanted = by_torch(z, cells, weights, layout)
    assert_equal(by_kernel(z, cells, weights, layout), wanted)


@pytest.mark.parametrize("kind", ALL)
def test_terms(kind):
    layout, z, cells, _ = table((kind, "reals"), 8, 3, 41, 1)
    found = cpu.log_prob(z.requires_grad_(), cells, layout)
    wanted = plain.log_prob(z.detach(), cells, layout)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    assert not found.requires_grad


def test_a_range_of_next_to_nothing():
    """One value alone: the plain form loses digits to A - B, the kernel does not."""
    layout, z, cells, weights = table(("constant",), 8, 1, 50, 0)
    got, wanted = by_kernel(z, cells, weights, layout), by_torch(z, cells, weights, layout)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-7)
    single = by_kernel(z.float(), cells, weights, layout)
    for a, b in zip(single, wanted, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-3, atol=1e-3)


def test_the_tables_have_what_they_should():
    """Values outside, atoms beside smooth values, columns with and without components."""
    layout, _, cells, weights = table(ALL, 8, 3, 600, 0)
    outside = ((cells[..., CODE] < 0) & (weights != 0)).flatten(0, 1)
    assert outside.any(0).sum() >= 6
    atoms = cells[0, :, ALL.index("atoms"), LOG_WIDTH] == -math.inf
    assert atoms.any()
    assert not atoms.all()
    assert 0 in layout.n_components.tolist()
    assert layout.most_cells == 200
    assert (weights == 0).any()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kinds", [ALL, ("reals", "integers"), ("levels", "rare")])
def test_float32_is_as_accurate_as_the_plain_form(kinds, seed):
    layout, *tensors = table(kinds, 8, 2, 200, seed)
    single = [t.float() for t in tensors]
    z, cells, weights = (t.double() for t in single)
    truth = by_torch(z, cells, weights, layout)
    names = ["value", "gradient"]
    assert_accurate(by_kernel(*single, layout), by_torch(*single, layout), truth, names, units=2)
    terms, wanted = cpu.log_prob(*single[:2], layout), plain.log_prob(z, cells, layout)
    inside = cells[..., CODE] >= 0
    assert_accurate(
        [terms[inside]], [plain.log_prob(*single[:2], layout)[inside]], [wanted[inside]], ["terms"]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [100.0, 1e4])
def test_extreme_outputs_have_finite_densities_and_gradients(size, dtype):
    layout, z, cells, weights = table(ALL, 8, 1, 100, 0)
    g = torch.Generator().manual_seed(0)
    sign = torch.randint(-1, 2, z.shape, generator=g)
    z = z + sign * size
    for d in range(layout.n_columns):
        here = layout.outputs_of(d)
        K = int(layout.n_components[d])
        z[..., here.stop - 2 * K : here.stop - K] *= 100  # means 1e6 away
        z[..., here.stop - K : here.stop].clamp_(-50, 50)
    z, cells, weights = (t.to(dtype) for t in (z, cells, weights))
    value, gradient = by_kernel(z, cells, weights, layout)
    assert value.isfinite().all()
    assert gradient.isfinite().all()
    wanted, wanted_gradient = by_torch(*(t.double() for t in (z, cells, weights)), layout)
    rtol = 1e-10 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(value.double(), wanted, rtol=rtol, atol=0)
    logits = layout.padded[:, : layout.most_cells]
    logits = logits[logits < layout.n_outputs]
    got = gradient[..., logits].double()
    # So far away the plain form subtracts numbers of 1e9; in float32 the logits, too, are coarse.
    atol = 1e-6 if dtype == torch.float64 else 2e-3
    torch.testing.assert_close(got, wanted_gradient[..., logits], rtol=0.0, atol=atol)


@pytest.mark.parametrize("kinds", [("reals", "two"), ("integers", "levels"), ("atoms", "bounded")])
def test_gradcheck(kinds):
    layout, z, cells, weights = table(kinds, 2, 2, 4, 0)
    assert torch.autograd.gradcheck(
        lambda z: cpu.weighted_log_likelihood(z, cells, weights, layout),
        [z.detach().clone().requires_grad_()],
        fast_mode=False,
    )


def test_scales_beyond_the_clamp_have_no_gradient():
    layout, z, cells, _ = table(("reals",), 4, 1, 30, 0)
    weights = torch.ones(cells.shape[:-1], dtype=z.dtype)
    z = z.clone()
    z[..., -4:] = torch.tensor([-8.0, -6.9, 3.9, 4.1])
    gradient = by_kernel(z, cells, weights, layout)[1]
    found = gradient[..., -4:].abs().amax((0, 1)) > 0
    assert found.tolist() == [False, True, True, False]
    assert_equal([gradient], [by_torch(z, cells, weights, layout)[1]])


def test_what_does_not_count_is_not_read():
    layout, z, cells, weights = table(ALL, 8, 1, 60, 0)
    spoilt, lost = z.clone(), cells.clone()
    for d in range(layout.n_columns):
        rows = weights[0, :, d] == 0
        spoilt[0, rows, layout.outputs_of(d)] = math.nan
        lost[0, rows, d] = math.nan
    wanted = by_kernel(z, cells, weights, layout)
    got = by_kernel(spoilt, lost, weights, layout)
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
    for d in range(layout.n_columns):
        assert (got[1][0, weights[0, :, d] == 0, layout.outputs_of(d)] == 0).all()


def test_nothing_hides_a_nan():
    layout, z, cells, _ = table(("integers", "levels"), 8, 1, 20, 0)
    weights = torch.ones(cells.shape[:-1], dtype=z.dtype)
    row = int((cells[0, :, 0, CODE] >= 0).nonzero()[0])
    for output in (0, -1, int(layout.n_cells[0]), int(layout.n_cells[0]) + 9):
        spoilt = z.clone()
        place = layout.outputs_of(0).stop - 1 if output == -1 else output
        spoilt[0, row, place] = math.nan
        value, gradient = by_kernel(spoilt, cells, weights, layout)
        assert value.isnan().all()
        assert gradient[0, row].isnan().any()
        terms = cpu.log_prob(spoilt, cells, layout)
        assert terms.isnan().nonzero().tolist() == [[0, row, 0]]


def test_threads_change_nothing(monkeypatch):
    layout, z, cells, weights = table(ALL, 8, 3, 100, 0)
    monkeypatch.setattr(cpu, "SMALL", 0)
    monkeypatch.setattr(cpu, "FEWEST_ROWS", 16)  # three blocks of rows for each model
    asked, run = [], workers.run
    monkeypatch.setattr(
        workers, "run", lambda tasks, n: (asked.append((len(tasks), n)), run(tasks, n))
    )
    found, before = [], torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            terms = cpu.log_prob(z, cells, layout)
            found.append((*by_kernel(z, cells, weights, layout), terms))
        finally:
            torch.set_num_threads(before)
    assert asked == [(1, 1)] * 2 + [(8, 2)] * 2
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_factors_from_above():
    layout, z, cells, weights = table(ALL, 8, 3, 7, 0)
    upstream = torch.tensor([1.0, -0.5, 3.0], dtype=z.dtype)
    wanted = by_torch(z, cells, weights, layout, upstream)
    assert_equal(by_kernel(z, cells, weights, layout, upstream), wanted)


def test_a_second_backward_pass_and_a_second_derivative():
    # Columns of as many outputs: of padding the plain form has no second derivative.
    layout, z, cells, weights = table(("reals", "heavy"), 2, 2, 5, 0)
    z = z.detach().clone().requires_grad_()
    value = cpu.weighted_log_likelihood(z, cells, weights, layout)
    factors = torch.tensor([2.0, 1.0], dtype=z.dtype)
    for _ in range(2):
        (first,) = torch.autograd.grad(value, z, factors, retain_graph=True)
        assert_equal([first], [by_torch(z, cells, weights, layout, factors)[1]])
    (first,) = torch.autograd.grad(value.sum(), z, create_graph=True)
    (got,) = torch.autograd.grad(first.square().sum(), z)
    log_p = plain.log_prob(z, cells, layout)
    total = torch.where(weights != 0, weights * log_p, 0.0).sum()
    (first,) = torch.autograd.grad(total, z, create_graph=True)
    assert_equal([got], torch.autograd.grad(first.square().sum(), z))


def test_tensors_of_other_shapes_and_precisions():
    """One set of rows for all models, outputs with other strides, cells in float64, no rows."""
    layout, z, cells, weights = table(ALL, 8, 3, 7, 0)
    turned = z.transpose(0, 1).contiguous().transpose(0, 1)
    one = (cells[:1].expand_as(cells), weights[:1].expand_as(weights))
    assert_equal(by_kernel(turned, *one, layout), by_torch(z, *one, layout))
    same = z[:1].expand_as(z)
    assert_equal(
        [cpu.weighted_log_likelihood(same, cells, weights, layout)],
        by_torch(same, cells, weights, layout)[:1],
    )
    mixed = by_kernel(z.float(), cells, weights, layout)
    single = by_kernel(z.float(), cells.float(), weights.float(), layout)
    assert all(torch.equal(a, b) for a, b in zip(mixed, single, strict=True))
    none = [t[:, :0] for t in (z, cells, weights)]
    value, gradient = by_kernel(*none, layout)
    assert value.tolist() == [0, 0, 0]
    assert gradient.shape == (3, 0, layout.n_outputs)
    assert cpu.log_prob(*none[:2], layout).shape == (3, 0, len(ALL))


def test_tensors_that_do_not_fit_the_layout_are_refused():
    layout, z, cells, weights = table(("reals",), 2, 1, 5, 0)
    with pytest.raises(ValueError, match=r"shape \(M, B, 23\).*got \(1, 5, 22\)"):
        cpu.weighted_log_likelihood(z[..., :-1], cells, weights, layout)
    with pytest.raises(ValueError, match="cells of shape"):
        cpu.log_prob(z, cells[:, :, :, :3], layout)


def test_what_is_supported():
    assert cpu.supports(torch.zeros(1))
    assert cpu.supports(torch.zeros(1, dtype=torch.float64))
    assert not cpu.supports(torch.zeros(1, dtype=torch.bfloat16))
    assert not cpu.supports(torch.zeros(1, device="meta"))


def _small_differences(x, y, n):
    for i in range(0, n, lanes.LANES):
        lanes.store(y, i, lanes.expm1(lanes.load(x, i)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_expm1_of_negative_numbers(dtype):
    x = -np.concatenate([np.geomspace(1e-30, 1e4, 3999), [0.0, np.inf]])
    x = np.append(x, np.full(-len(x) % lanes.LANES, np.nan)).astype(dtype)
    y = np.empty_like(x)
    address = address_of(_small_differences, "ppi", np.dtype(dtype))
    kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    ctypes.CFUNCTYPE(None, *kinds)(address)(x.ctypes.data, y.ctypes.data, len(x))
    wanted = np.expm1(x.astype(np.longdouble))
    np.testing.assert_allclose(y, wanted, rtol=2 * np.finfo(dtype).eps)
