"""The GPU kernel for the heads of mixed tables, against plain torch.

As in `test_gpu`, without a GPU these run under Triton's interpreter in a process of their own.
"""

import math

import numpy as np
import pytest
import torch

from rnade.backends import heads as plain
from rnade.backends.heads import Layout
from rnade.columns.partition import CODE, LOG_WIDTH, POSITION, WITHIN, ColumnCells
from tests.interpreter import assert_passes_under_the_interpreter
from tests.rounding import assert_accurate, textbook_and_truth
from tests.test_gpu import DEVICE, HAS_TRITON, INTERPRETING, needs_kernels

K = 3
UNITS = 16  # of float32's rounding: among few numbers the textbook may be lucky


@pytest.mark.skipif(INTERPRETING, reason="this is the inner run")
@pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")
def test_heads_under_the_interpreter():
    # The test of graphs is for devices only.
    assert_passes_under_the_interpreter(__file__, "-k", "not captured", more_than=15)


def kernels():
    """The module, imported here because it needs Triton."""
    from rnade.backends.gpu import heads

    return heads


def drawn_columns(rng):
    """Columns of every kind by name, with values to look up: some not seen, or outside."""
    normal, counts = rng.normal(size=300), rng.poisson(3.0, 300).astype(float)
    wide = np.round(np.exp(rng.normal(9, 2, 300)))
    spiked = np.where(rng.random(300) < 0.4, 0.0, np.exp(normal))
    few = rng.choice([1.0, 2.5], 300)
    share = rng.beta(0.7, 2.0, 300)
    given = {
        "integers": (counts, {"whole": True}),
        "wide integers": (wide, {"whole": True}),
        "reals": (normal, {"whole": False}),
        "atoms": (spiked, {"whole": False, "atoms": [0.0]}),
        "only atoms": (few, {"whole": False, "atoms": [1.0, 2.5]}),
        "bounded": (share, {"whole": False, "low": 0.0, "high": 1.0}),
        "constant": (np.full(20, 7.0), {"whole": False}),
    }
    columns = {name: ColumnCells.of_numbers(x, **how) for name, (x, how) in given.items()}
    values = {name: x for name, (x, _) in given.items()}
    # Outside the range, on both sides where values may be.
    for name, x in values.items():
        further = 1.0 if name == "bounded" else np.round(x.max() + 3)
        values[name] = np.append(x, [further, x.min() if name == "bounded" else x.min() - 3])
    # One level; a chunk of the kernel and one more; more than have cells of their own.
    for n_levels in (1, 33, 250):
        levels = rng.integers(0, n_levels, 400).astype(float)
        columns[f"{n_levels} levels"] = ColumnCells.of_levels(levels, n_levels)
        values[f"{n_levels} levels"] = np.append(levels, [n_levels, -1])
    return columns, values


# Members, rows, and columns (all where none are named).
LEVELS = ("33 levels", "1 levels")
SIZES = {
    "one": (1, 1, ("reals",)),
    "one row": (1, 1, ()),
    "few": (2, 7, ()),
    "blocks": (2, 37, ()),
    "no component": (1, 7, (*LEVELS, "only atoms")),
    "integers": (1, 37, ("integers", "wide integers", "constant")),
}


def drawn(size, seed=0):
    """Layouts for both precisions, and outputs, cells and weights in float64."""
    M, B, names = SIZES[size]
    rng = np.random.default_rng(seed)
    columns, values = drawn_columns(rng)
    names = names or tuple(columns)
    some = [columns[name] for name in names]
    cells = np.stack([columns[n].encode(rng.choice(values[n], M * B)) for n in names], 1)
    cells = torch.tensor(cells.reshape(M, B, len(names), 4)).float().double()
    layout = Layout(some, K)
    z = rng.normal(size=(M, B, layout.n_outputs))
    # Some scales beyond what they are clamped to.
    z[..., rng.random(layout.n_outputs) < 0.1] *= 6
    weights = rng.random((M, B, len(names))) * (rng.random((M, B, len(names))) < 0.8)
    z, weights = torch.tensor(z).float().double(), torch.tensor(weights).float().double()
    return layout, Layout(some, K, DEVICE), z, cells, weights


def single(*tensors):
    """The tensors on the device, in float32."""
    return [t.to(DEVICE, torch.float32) for t in tensors]


UPSTREAM = torch.tensor([2.0, -3.0], dtype=torch.float64)


def value_and_gradient(function, z, cells, weights, layout):
    """Weighted sums (M,) and their gradient to z, with an upstream factor for each member."""
    z = z.detach().clone().requires_grad_()
    total = function(z, cells, weights, layout)
    (dz,) = torch.autograd.grad(total, z, UPSTREAM[: len(z)].to(z))
    return [total.detach(), dz]


def plain_sum(weights, terms):
    return torch.where(weights != 0, weights * terms, 0.0).sum((1, 2))


def plain_weighted(z, cells, weights, layout):
    return plain_sum(weights, plain.log_prob(z, cells, layout))


@needs_kernels
@pytest.mark.parametrize("size", SIZES)
def test_value_and_gradient(size):
    layout, layout_32, *double = drawn(size)
    got = value_and_gradient(kernels().weighted_log_likelihood, *single(*double), layout_32)
    measure = textbook_and_truth(value_and_gradient, plain_weighted, *double, layout)
    assert_accurate(got, *measure, ("value", "dz"), UNITS)
    # Each number too: the sums above would hide a small part of the outputs.
    torch.testing.assert_close(got[1].cpu().double(), measure[1][1], rtol=1e-4, atol=2e-5)


@needs_kernels
@pytest.mark.parametrize("size", SIZES)
def test_log_prob_of_every_cell(size):
    layout, layout_32, z, cells, _ = drawn(size, seed=1)
    got = kernels().log_prob(*single(z, cells), layout_32)
    assert not got.requires_grad
    measure = textbook_and_truth(lambda: [plain.log_prob(z, cells, layout)])
    assert_accurate([got], *measure, ("log p",), UNITS)
    torch.testing.assert_close(got.cpu().double(), measure[1][0], rtol=1e-5, atol=2e-5)


@needs_kernels
def test_cells_of_every_kind_are_among_those_compared():
    layout, _, _, cells, weights = drawn("blocks")
    outside, smooth = cells[..., CODE] < 0, cells[..., LOG_WIDTH] > -math.inf
    assert outside.any()
    assert (smooth.any((0, 1)) & ~smooth.all((0, 1)) & (layout.n_components > 0)).any()
    assert (weights == 0).any()
    assert (cells[..., CODE] > kernels().CHUNK).any()


@needs_kernels
def test_without_a_gradient_the_values_are_the_same():
    _, layout, *double = drawn("few")
    z, cells, weights = single(*double)
    terms = kernels().log_prob(z, cells, layout)
    alone = kernels().weighted_log_likelihood(z, cells, weights, layout)
    with_gradient, _ = value_and_gradient(
        kernels().weighted_log_likelihood, z, cells, weights, layout
    )
    torch.testing.assert_close(alone, with_gradient, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(alone, plain_sum(weights, terms), rtol=1e-5, atol=1e-5)


@needs_kernels
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy on NaN, in the interpreter
def test_a_cell_that_does_not_count_has_no_gradient():
    """Nor does it matter what stands in it: not even infinite values and no numbers."""
    _, layout, *double = drawn("few")
    z, cells, weights = single(*double)
    weights[:, :, 2] = 0.0
    weights[:, 3] = 0.0
    before = value_and_gradient(kernels().weighted_log_likelihood, z, cells, weights, layout)
    assert (before[1][..., layout.outputs_of(2)] == 0).all()
    assert (before[1][:, 3] == 0).all()
    cells[:, 3, 0, WITHIN] = -math.inf
    cells[:, 3, 1] = math.nan
    cells[:, 3, 2, CODE] = -1
    cells[:, 3, 3, POSITION] = math.nan
    assert (cells[:, 3, 3, LOG_WIDTH] > -math.inf).any()
    after = value_and_gradient(kernels().weighted_log_likelihood, z, cells, weights, layout)
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one, other)


@needs_kernels
def test_rows_shared_by_all_members_need_no_copies():
    """Strides of 0, and columns that lie apart."""
    _, layout, *double = drawn("few")
    z, cells, weights = single(*double)
    cells, weights = cells[:1].expand_as(cells), weights[:1].expand_as(weights)
    apart = cells.transpose(1, 2).contiguous().transpose(1, 2), weights.mT.contiguous().mT
    function = kernels().weighted_log_likelihood
    shared = value_and_gradient(function, z, cells, weights, layout)
    copied = value_and_gradient(function, z, *apart, layout)
    for one, other in zip(shared, copied, strict=True):
        assert torch.equal(one, other)


@needs_kernels
def test_a_row_does_not_depend_on_those_beside_it():
    """Bit for bit."""
    _, layout, *double = drawn("blocks")
    z, cells, weights = single(*double)
    _, dz = value_and_gradient(kernels().weighted_log_likelihood, z, cells, weights, layout)
    alone = (t[:1, 20:25].clone() for t in (z, cells, weights))
    _, dz_alone = value_and_gradient(kernels().weighted_log_likelihood, *alone, layout)
    assert torch.equal(dz[:1, 20:25], dz_alone)


def extreme(z, layout, how):
    """Outputs far out: of every column with components one kind of them, or all logits."""
    z = z.clone()
    for d, (start, C) in enumerate(
        zip(layout.starts.tolist(), layout.n_cells.tolist(), strict=True)
    ):
        end = layout.outputs_of(d).stop
        if how == "logits":
            last = C if end == start + C else C + K
            z[..., start : start + last] = torch.sign(z[..., start : start + last]) * 1e4
        elif end > start + C:
            first = start + C + (K if "mean" in how else 2 * K)
            to = {"means": 1e6, "far means": -1e6, "small scales": -50.0, "large scales": 50.0}
            z[..., first : first + K] = to[how]
    return z


@needs_kernels
@pytest.mark.parametrize("how", ["logits", "means", "far means", "small scales", "large scales"])
def test_extreme_outputs(how):
    layout, layout_32, z, cells, weights = drawn("few")
    # Values outside the bounds have a density of 0, whatever the outputs.
    weights = torch.where(cells[..., WITHIN] == -math.inf, 0.0, weights)
    z = extreme(z, layout, how)
    got = value_and_gradient(
        kernels().weighted_log_likelihood, *single(z, cells, weights), layout_32
    )
    value, dz = value_and_gradient(plain_weighted, z, cells, weights, layout)
    assert torch.isfinite(got[0]).all()
    assert torch.isfinite(got[1]).all()
    torch.testing.assert_close(got[0].cpu().double(), value, rtol=1e-5, atol=1e-3)
    # Plain torch in float32 is off by more than 1 here.
    torch.testing.assert_close(got[1].cpu().double(), dz, rtol=1e-4, atol=1e-4)


@needs_kernels
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy on NaN, in the interpreter
def test_a_diverged_member_has_no_number_and_the_others_do():
    _, layout, *double = drawn("no component")
    z, cells, weights = (t.repeat(2, *[1] * (t.ndim - 1)) for t in single(*double))
    z[1, 0, 0] = math.nan
    weights[:] = 1.0
    value, dz = value_and_gradient(kernels().weighted_log_likelihood, z, cells, weights, layout)
    assert torch.isnan(value).tolist() == [False, True]
    assert torch.isnan(dz[1]).any()
    assert torch.isfinite(dz[0]).all()


@needs_kernels
def test_no_rows():
    _, layout, *double = drawn("few")
    none = [t[:, :0] for t in single(*double)]
    value, dz = value_and_gradient(kernels().weighted_log_likelihood, *none, layout)
    assert value.tolist() == [0.0, 0.0]
    assert dz.shape == (2, 0, layout.n_outputs)


@needs_kernels
def test_what_is_taken():
    _, layout, z, cells, weights = drawn("few")
    (z_32,) = single(z)
    assert kernels().supports(z_32)
    assert not kernels().supports(z_32.double())
    with pytest.raises(
        ValueError, match=r"Expected weights of shape \(2, 7, 10\); got \(2, 6, 10\)"
    ):
        kernels().weighted_log_likelihood(*single(z, cells, weights[:, 1:]), layout)
    z_32.requires_grad_()
    total = kernels().weighted_log_likelihood(z_32, *single(cells, weights), layout)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(total.sum(), z_32, create_graph=True)


@needs_kernels
@pytest.mark.skipif(INTERPRETING, reason="graphs need a device")
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
def test_captured_in_a_graph():
    """Replayed with other outputs, cells, weights and upstream factors."""
    _, layout, *double = drawn("blocks")
    z, cells, weights = single(*double)
    upstream = UPSTREAM.to(z)
    z.requires_grad_()

    def step():
        total = kernels().weighted_log_likelihood(z, cells, weights, layout)
        return total, torch.autograd.grad(total, z, upstream)[0]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    _, _, *other = drawn("blocks", seed=2)
    with torch.no_grad():
        z.add_(0.5)
        weights.copy_(single(other[2])[0])
        cells.copy_(cells.flip(1))
        upstream.mul_(-0.5)
    graph.replay()
    for one, again in zip(captured, step(), strict=True):
        assert torch.equal(one, again)
