"""The GPU kernels for banks of small models and for their updates, against plain torch.

As in `test_gpu`, without a GPU these run under Triton's interpreter in a process of their own.
"""

import pytest
import torch
from torch import Generator

from rnade.backends import vectorised
from rnade.backends.gpu import api as gpu
from rnade.backends.gpu import bank_launch as bank
from rnade.backends.gpu import tiling
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec
from rnade.batch import Batch
from rnade.families import GaussianMixture, LaplaceMixture
from rnade.training.optim import Optimiser, plain
from rnade.training.optim import gpu as gpu_update
from rnade.training.optim.forms import Counts, Rule, Step, kernels_for
from tests.conftest import FAMILIES
from tests.interpreter import assert_passes_under_the_interpreter
from tests.rounding import assert_accurate, textbook_and_truth
from tests.test_gpu import (
    CASES,
    DEVICE,
    HAS_TRITON,
    INTERPRETING,
    NAMES,
    SIZES,
    UNITS,
    draw,
    drawn,
    moved,
    needs_kernels,
)


@pytest.mark.skipif(INTERPRETING, reason="this is the inner run")
@pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")
def test_bank_kernels_under_the_interpreter():
    assert_passes_under_the_interpreter(__file__, more_than=20)


@pytest.fixture
def launches(monkeypatch):
    """Send banks of any size to the kernel for banks, and count its launches."""
    counted = []
    original = bank._launch

    def launch(*arguments):
        counted.append(arguments)
        original(*arguments)

    monkeypatch.setattr(tiling, "BANK_MODELS", 1)
    monkeypatch.setattr(bank, "_launch", launch)
    return counted


def weighted(by, weights, family, activation, order, **more):
    def function(x, p):
        if by is gpu:
            return gpu.weighted_log_likelihood(
                Batch(x, weights, order=order), p, Spec(family, activation, **more)
            )
        terms = vectorised.log_conditionals(
            Batch(x, order=order), p, Spec(family, activation, **more)
        )
        return (weights * terms.sum(-1)).sum(-1)

    return function


def value_and_gradients(function, x, parameters, upstream):
    """What `function` gives, and gradients of W, c, rho, V and b; in x's place a 0."""
    leaves = [t.detach().clone().requires_grad_() for t in parameters.trained]
    value = function(x, Parameters(*leaves, parameters.log_floor))
    return [value.detach(), x.new_zeros(1), *torch.autograd.grad(value, leaves, upstream)]


def prepared(family, size, seed=0):
    """Rows, weights, upstream gradient, parameters and order, in both precisions."""
    x, parameters, order = draw(family, size, seed)
    weights = drawn(torch.rand, x.shape[:2])
    upstream = torch.tensor([2.0, -3.0], dtype=torch.float64)[: x.shape[0]]
    order_32, *single = moved(order, x, weights, upstream, *parameters)
    return (
        (x, weights, upstream, parameters, order),
        (*single[:3], Parameters(*single[3:]), order_32),
    )


def assert_as_by_the_textbook(compute, double, single):
    """Hold what `compute` gives with the kernels in float32 to plain torch; returns it."""
    got = compute(gpu, *single)
    measure = textbook_and_truth(compute, vectorised, *double)
    assert_accurate(got, *measure, ("value", *NAMES)[: len(got)], UNITS)
    return got


@needs_kernels
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("name", "activation", "size"), CASES)
def test_bank_gradient(name, activation, size, scaled, launches):
    family, double_and_single = FAMILIES[name], prepared(FAMILIES[name], size)

    def compute(backend, x, weights, upstream, parameters, order):
        function = weighted(
            backend, weights, family, activation, order, scale_mean_gradient=scaled
        )
        return value_and_gradients(function, x, parameters, upstream)

    assert_as_by_the_textbook(compute, *double_and_single)
    assert len(launches) == 1


@needs_kernels
@pytest.mark.parametrize(("name", "activation", "size"), CASES)
def test_bank_terms(name, activation, size, launches):
    family = FAMILIES[name]
    double, single = prepared(family, size)

    def compute(backend, x, weights, upstream, p, order):
        return [backend.log_conditionals(Batch(x, order=order), p, Spec(family, activation))]

    got = assert_as_by_the_textbook(compute, double, single)
    x, _, _, p, order = single
    summed = gpu.log_prob(Batch(x, order=order), p, Spec(family, activation))
    torch.testing.assert_close(summed, got[0].sum(-1), rtol=1e-6, atol=1e-6)
    assert len(launches) == 2


@needs_kernels
def test_bank_of_awkward_sizes(launches, monkeypatch):
    """Primes, a unit past a tile, and K of 1 and 17."""
    monkeypatch.setitem(SIZES, "awkward", (3, 37, 17, 65, True, True))
    for family in (LaplaceMixture(1), GaussianMixture(17)):

        def compute(backend, x, weights, upstream, p, order, family=family):
            function = weighted(backend, weights, family, "relu", order)
            return value_and_gradients(function, x, p, torch.ones_like(x[:, 0, 0]))

        assert_as_by_the_textbook(compute, *prepared(family, "awkward"))
    assert len(launches) == 2


@needs_kernels
@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 2e-2), ("bf16", 0.15)])
def test_bank_in_lower_precision(precision, tolerance, launches):
    family = FAMILIES["gaussian-4"]
    _, (x, weights, upstream, p, order) = prepared(family, "tiles")
    exact, coarse = (
        value_and_gradients(
            weighted(gpu, weights, family, "relu", order, backend=f"gpu-{name}"), x, p, upstream
        )
        for name in ("exact", precision)
    )
    for a, b in zip(exact, coarse, strict=True):
        error = ((a - b).abs().max() / a.abs().max().clamp_min(1)).item()
        assert error < tolerance
    assert launches


@needs_kernels
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy on NaN, in the interpreter
def test_a_member_does_not_depend_on_who_is_beside_it(launches):
    """Bit for bit, though a member next to it has NaN weights."""
    family = FAMILIES["gaussian-4"]
    _, (x, weights, _, p, order) = prepared(family, "bank")
    p.W[1] = torch.nan

    def result(members):
        mine = Parameters(*(None if t is None else t[members] for t in p))
        function = weighted(gpu, weights[members], family, "relu", order[members])
        return value_and_gradients(function, x[members], mine, x.new_ones(len(members)))

    together, alone = result([0, 1, 0, 1, 0]), result([0])
    for many, one in zip(together, alone, strict=True):
        if len(many) > 1:
            assert torch.equal(many[0], one[0])
            assert torch.equal(many[4], one[0])
    assert torch.isnan(together[0][1])
    assert len(launches) == 2


@needs_kernels
def test_bank_where_a_gradient_of_rows_is_wanted_or_sizes_are_too_large(launches):
    """Left to the other kernels."""
    family = FAMILIES["gaussian-4"]
    _, (x, weights, _, p, order) = prepared(family, "bank")
    (dx,) = torch.autograd.grad(
        gpu.weighted_log_likelihood(
            Batch(x.requires_grad_(), weights, order=order), p, Spec(family, "relu")
        ).sum(),
        [x],
    )
    assert torch.isfinite(dx).all()
    given = Batch(x), p, Spec(family)
    assert bank.fits(*given)
    for name, limit in (("BANK_MODELS", 3), ("BANK_DIMENSIONS", 2), ("BANK_HIDDEN", 4)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tiling, name, limit)
            assert not bank.fits(*given)
    assert not launches


@needs_kernels
def test_bank_gradient_of_a_gradient_is_refused(launches):
    family = FAMILIES["gaussian-4"]
    _, (x, weights, _, p, _) = prepared(family, "ones")
    p.W.requires_grad_()
    value = gpu.weighted_log_likelihood(Batch(x, weights), p, Spec(family, "relu")).sum()
    with pytest.raises(RuntimeError, match="first derivatives only; use backend='vectorised'"):
        torch.autograd.grad(value, [p.W], create_graph=True)
    assert launches


# ------------------------------------------------------------------------------- updates


def assert_kernels_agree(function):
    """Hold what the kernels give against what plain torch gives."""
    torch.testing.assert_close(
        function(gpu_update), function(plain), rtol=1e-5, atol=1e-6, equal_nan=True
    )


@needs_kernels
@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("name", ["adam", "sgd", "momentum"])
def test_update_of_a_bank_is_the_plain_one(name, averaged):
    """Sizes past a block; gradients whose models are apart; two updates, the second partly bad."""
    shapes = [(2, 3, 700), (2, 5), (2, 2)]

    def updated(kernels):
        generator = Generator().manual_seed(0)
        p = [torch.randn(s, generator=generator).to(DEVICE) for s in shapes]
        state = [
            [torch.zeros_like(t) for t in p] for _ in range({"sgd": 0, "adam": 2}.get(name, 1))
        ]
        decay, momentum, rate, scale = torch.tensor(
            [[0.01, 0.5], [0.9, 0.5], [0.1, 0.2], [0.5, 2.0]], device=DEVICE
        )
        means = [t.clone() for t in p] if averaged else []
        rule = Rule(name, p, [decay, None, decay], means, *state)
        if name == "momentum":
            rule = rule._replace(momentum=momentum)
        moved = [*p, *rule.first, *rule.second]
        for number in (1, 2):
            flat = torch.randn(2, 2107, generator=generator).to(DEVICE)
            cut = flat.split([2100, 5, 2], 1)
            gradients = [g.view(s) for g, s in zip(cut, shapes, strict=True)]
            usable = torch.tensor([True, number == 1], device=DEVICE)
            if number == 2:
                flat[1, 7] = torch.nan
                bad = [t[1].clone() for t in moved]
            unbias = torch.tensor(Optimiser.unbias(number), device=DEVICE)
            forget = torch.tensor(0.3, device=DEVICE)
            kernels.update(rule, gradients, Step(rate, scale, usable, unbias, forget))
        for t, before in zip(moved, bad, strict=True):
            assert torch.equal(t[1], before)
        return [*moved, *means]

    assert_kernels_agree(updated)


@needs_kernels
@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_update_is_judged_as_by_plain_torch(clip_norm):
    generator = Generator().manual_seed(0)

    def judged(kernels):
        counts = Counts.start(torch.zeros(5, 3000, device=DEVICE))
        counts.active[4] = False
        told = []
        for _ in range(2):
            generator.manual_seed(1)
            g = [torch.randn(s, generator=generator).to(DEVICE) for s in ((5, 3000), (5, 2, 2))]
            g[0] *= torch.tensor([1e-6, 1, 1, 1, 1], device=DEVICE)[:, None]
            g[1] *= torch.tensor([1e-6, 1, 1, 1, 1], device=DEVICE)[:, None, None]
            g[0][2, 2999] = torch.inf
            loss = torch.tensor([1.0, 2.0, 3.0, torch.nan, 5.0], device=DEVICE)
            scale, usable = kernels.judge(g, loss, counts, clip_norm)
            told += [torch.where(usable, scale, 0.0), usable]
        return [*told, *counts]

    assert judged(gpu_update)[1].tolist() == [True, True, False, False, False]
    assert_kernels_agree(judged)


def test_update_kernels_serve_no_doubles_and_few_parameters():
    assert not gpu_update.serves([torch.zeros(2, 2, dtype=torch.float64)])
    assert not gpu_update.serves([torch.zeros(2, 2)] * 8)
    assert gpu_update.serves([torch.zeros(2, 2)]) == (HAS_TRITON and INTERPRETING)


@needs_kernels
def test_training_is_given_the_kernels():
    assert kernels_for([torch.zeros(2, 2, device=DEVICE)]) is gpu_update
