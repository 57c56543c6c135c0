"""Cells that are not observed, and orders given with the rows: every backend and every module.

The reference is itself held to closed forms and finite differences in `test_reference`. Kernels of
the GPU run as in `test_gpu`.
"""

import numpy as np
import pytest
import torch
from torch import Generator

from rnade.backends import dispatch, networks, reference
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec
from rnade.batch import Batch
from rnade.families import Bernoulli, GaussianMixture, LaplaceMixture
from rnade.nn import FVBNModule, RNADEModule
from tests.conftest import CHAINS, MODULES, TIED_MODULES, make_module, make_rows
from tests.interpreter import assert_passes_under_the_interpreter
from tests.test_gpu import DEVICE, HAS_TRITON, INTERPRETING, needs_kernels

M, B, D, H = 2, 9, 5, 6
FAMILIES = {f.name: f for f in (GaussianMixture(3), LaplaceMixture(2), Bernoulli())}
NAMES = ("x", "W", "c", "rho", "V", "b", "U", "u")


def problem(family, *, layers=0, weighted=True, seed=0):
    """Float64 rows with gaps that hold anything, weights and orders; and parameters."""
    generator = Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator).double()

    P = family.n_outputs
    parameters = Parameters(
        W=0.5 * normal(M, D, H),
        c=0.5 * normal(M, H),
        rho=1 + 0.25 * normal(M, D),
        V=0.5 * normal(M, D, H, P),
        b=0.5 * normal(M, D, P),
        log_floor=normal(M, D) - 1,
        U=0.3 * normal(M, layers, H, H) if layers else None,
        u=0.3 * normal(M, layers, D, H) if layers else None,
    )
    x = normal(M, B, D)
    x = (x > 0).double() if family.discrete else x
    seen = torch.rand(M, B, D, generator=generator) < 0.6
    junk = torch.where(torch.rand(x.shape, generator=generator) < 0.5, torch.nan, 7.0)
    x = torch.where(seen, x, junk.double())
    weights = torch.rand(M, B, generator=generator).double() if weighted else None
    order = torch.stack([torch.randperm(D, generator=generator) for _ in range(M)])
    return Batch(x, weights, seen, order), parameters


def with_gradients(function, batch, parameters, spec, upstream=None):
    """What a function of `dispatch` gives, and the gradients of what is trained and of x."""
    leaves = [t.detach().clone().requires_grad_() for t in (batch.x, *parameters.trained)]
    names = [name for name in NAMES if name == "x" or getattr(parameters, name) is not None]
    given = dict(zip(names, leaves, strict=True))
    batch = batch._replace(x=given.pop("x"))
    value = function(batch, parameters._replace(**given), spec)
    found = torch.autograd.grad(
        value, leaves, torch.ones_like(value) if upstream is None else upstream
    )
    return value.detach(), dict(zip(names, found, strict=True))


def assert_close(got, right, tolerance, what):
    right = torch.as_tensor(right)
    scale = right.abs().max().clamp_min(1)
    error = (got.detach().cpu().double() - right).abs().max() / scale
    assert error <= tolerance, (what, error.item())


def assert_follows_the_reference(batch, parameters, spec, moved, tolerance):
    """Terms, densities, weighted sums and all gradients; `moved` takes tensors to the backend."""
    terms = reference.log_conditionals(batch, parameters, spec)
    exact = reference.gradients(batch, parameters, spec)
    weights = np.ones((M, B)) if batch.weights is None else batch.weights.numpy()
    batch, parameters = Batch(*map(moved, batch)), Parameters(*map(moved, parameters))
    with torch.no_grad():
        assert_close(dispatch.log_conditionals(batch, parameters, spec), terms, tolerance, "terms")
        assert_close(dispatch.log_prob(batch, parameters, spec), terms.sum(-1), tolerance, "sums")
    cells = torch.from_numpy(weights)[:, :, None].expand(terms.shape)
    for name, value, upstream in (
        ("log_conditionals", terms, moved(cells)),
        ("log_prob", terms.sum(-1), moved(cells[..., 0])),
        ("weighted_log_likelihood", (weights[..., None] * terms).sum((1, 2)), None),
    ):
        function = getattr(dispatch, name)
        got, gradients = with_gradients(function, batch, parameters, spec, upstream)
        assert_close(got, value, tolerance, name)
        for field, g in gradients.items():
            assert_close(g, getattr(exact, field), tolerance, f"{field} of {name}")


def in_double(t):
    return t


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("backend", ["vectorised", "cpu"])
def test_backends_follow_the_reference(backend, name, activation, weighted):
    batch, parameters = problem(FAMILIES[name], weighted=weighted)
    spec = Spec(FAMILIES[name], activation, backend=backend)
    assert_follows_the_reference(batch, parameters, spec, in_double, 1e-10)


def test_deeper_networks_follow_the_reference():
    batch, parameters = problem(GaussianMixture(2), layers=2)
    spec = Spec(GaussianMixture(2), backend="vectorised")
    assert_follows_the_reference(batch, parameters, spec, in_double, 1e-10)


@pytest.mark.skipif(INTERPRETING, reason="this is the inner run")
@pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")
def test_kernels_under_the_interpreter():
    assert_passes_under_the_interpreter(__file__, "-k", "kernel", more_than=4)


def in_single(t):
    if t is None or not t.is_floating_point():
        return None if t is None else t.to(DEVICE)
    return t.to(DEVICE, torch.float32)


@needs_kernels
@pytest.mark.parametrize("bank", [False, True])
@pytest.mark.parametrize(
    ("name", "layers"), [("gaussian", 0), ("laplace", 0), ("bernoulli", 0), ("gaussian", 2)]
)
def test_kernels_follow_the_reference(name, layers, bank, monkeypatch):
    monkeypatch.setattr("rnade.backends.gpu.tiling.BANK_MODELS", 1 if bank else 100)
    batch, parameters = problem(FAMILIES[name], layers=layers)
    spec = Spec(FAMILIES[name], backend="gpu")
    assert_follows_the_reference(batch, parameters, spec, in_single, 2e-5)


@needs_kernels
def test_kernel_of_networks_leaves_out_what_is_not_seen():
    """The same as plain torch in float64, value and gradients."""
    results = []
    for move in (lambda t: t.cpu().double() if t.is_floating_point() else t.cpu(), in_single):
        module = FVBNModule(D, H, GaussianMixture(2), generator=Generator().manual_seed(0))
        made = networks.Networks(
            *(None if t is None else move(t) for t in module.networks.tensors())
        )
        leaves = [t.detach().requires_grad_() for t in made.trained]
        made = made._replace(**dict(zip("WcVb", leaves, strict=True)))
        generator = Generator().manual_seed(1)
        seen = torch.rand(D, B, D, generator=generator) < 0.6
        x = torch.randn(D, B, D, generator=generator)
        x[~seen] = torch.nan
        batch = Batch(move(x), move(torch.rand(D, B, generator=generator)), move(seen))
        spec = Spec(GaussianMixture(2))
        value = networks.weighted_log_likelihood(batch, made, spec)
        with torch.no_grad():
            terms = networks.log_prob(batch, made, spec)
        results.append([value, terms, *torch.autograd.grad(value.sum(), leaves)])
    for right, got in zip(*results, strict=True):
        torch.testing.assert_close(got.cpu().double(), right, rtol=2e-5, atol=2e-5)


# ---------------------------------------------------------------- modules


@pytest.mark.parametrize("name", MODULES)
def test_all_seen_is_the_same_as_nothing_said(name):
    module = make_module(name, 4)
    x = make_rows(module, 5)
    seen = torch.ones_like(x, dtype=torch.bool)
    torch.testing.assert_close(module.log_prob(x, seen=seen), module.log_prob(x))
    torch.testing.assert_close(module.log_conditionals(x, seen=seen), module.log_conditionals(x))


@pytest.mark.parametrize("name", MODULES)
def test_terms_of_what_is_seen_sum_to_its_density(name):
    module = make_module(name, 4)
    x = make_rows(module, 6)
    seen = torch.rand(x.shape, generator=Generator().manual_seed(0)) < 0.6
    seen[0] = False
    x = torch.where(seen, x, torch.nan)
    terms = module.log_conditionals(x, seen=seen)
    assert (terms[~seen] == 0).all()
    assert torch.isfinite(terms).all()
    density = module.log_prob(x, seen=seen)
    torch.testing.assert_close(terms.sum(1), density)
    torch.testing.assert_close(density[0], torch.zeros_like(density[0]), atol=1e-7, rtol=0)


@pytest.mark.parametrize("name", CHAINS)
def test_the_last_columns_missing_leave_the_marginal(name):
    """The density integrates to the same over them: here it is the product of the terms before."""
    module = make_module(name, 4)
    x = make_rows(module, 5)
    whole = module.log_conditionals(x)
    seen = torch.ones_like(x, dtype=torch.bool)
    seen[:, module.order[0, 2:]] = False
    density = module.log_prob(torch.where(seen, x, torch.nan), seen=seen)
    torch.testing.assert_close(density, (whole * seen).sum(1))


@pytest.mark.parametrize("name", ["rnade-mog", "fvbn", "ensemble-one-order"])
def test_the_last_column_missing_leaves_the_integral_over_it(name):
    module = make_module(name, 2)
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(0.5)  # keeps the mass inside the grid
        axis = torch.linspace(-30, 30, 6001, dtype=torch.float64)
        first = torch.full_like(axis, 0.3)
        whole = module.log_prob(torch.stack([first, axis], 1))
        x, seen = torch.tensor([[0.3, torch.nan]]).double(), torch.tensor([[True, False]])
        left = module.log_prob(x, seen=seen).exp().item()
    assert left == pytest.approx(torch.trapezoid(whole.exp(), axis).item(), rel=1e-6)


@pytest.mark.parametrize("name", TIED_MODULES)
def test_an_order_given_takes_the_place_of_the_models_own(name):
    module = make_module(name, 4)
    x = make_rows(module, 5)
    other = [2, 0, 3, 1]
    given = module.log_conditionals(x, order=other)
    density = module.log_prob(x, order=np.array(other))
    module.order.copy_(torch.tensor([other]))
    module._forget()
    torch.testing.assert_close(given, module.log_conditionals(x))
    torch.testing.assert_close(density, module.log_prob(x))


def test_a_bank_takes_an_order_for_each_of_its_models():
    bank = RNADEModule.stack([make_module("rnade-mog", 3, seed=s) for s in range(2)])
    x = make_rows(bank, 4)
    orders = torch.tensor([[2, 0, 1], [1, 2, 0]])
    seen = torch.rand(2, *x.shape, generator=Generator().manual_seed(0)) < 0.5
    together = bank.log_prob(x, seen=seen, order=orders)
    for m in range(2):
        alone = bank[m].log_prob(x, seen=seen[m], order=orders[m])
        torch.testing.assert_close(together[m], alone)


def test_training_takes_the_whole_batch():
    """Weights, cells and orders reach the gradient: against the terms of the same module."""
    module = make_module("rnade-mog", 4)
    x = make_rows(module, 6)
    generator = Generator().manual_seed(0)
    batch = Batch(
        x[None],
        torch.rand(1, 6, generator=generator).double(),
        torch.rand(1, *x.shape, generator=generator) < 0.6,
        torch.tensor([[2, 0, 3, 1]]),
    )
    value = module.weighted_log_likelihood(batch)
    terms = module.log_conditionals(x, seen=batch.seen[0], order=batch.order[0])
    torch.testing.assert_close(value, (terms.sum(1) * batch.weights[0]).sum()[None])
    parameters = list(module.parameters())
    got = torch.autograd.grad(value.sum(), parameters)
    expected = torch.autograd.grad((terms.sum(1) * batch.weights[0]).sum(), parameters)
    for g, e in zip(got, expected, strict=True):
        torch.testing.assert_close(g, e)


def test_an_ensemble_averages_the_densities_of_what_is_seen():
    module = make_module("ensemble", 3)
    x = make_rows(module, 5)
    seen = torch.rand(x.shape, generator=Generator().manual_seed(0)) < 0.6
    members = [module.member(m).log_prob(x, seen=seen) for m in range(module.n_members)]
    expected = torch.logsumexp(torch.stack(members) + module.log_weights[0][:, None], 0)
    torch.testing.assert_close(module.log_prob(x, seen=seen), expected)


ZEROS = torch.zeros(5, 3).double()
BAD_CALLS = {
    "shape": (
        "rnade-mog",
        lambda m: m.log_prob(ZEROS, seen=torch.ones(5, 4).bool()),
        ValueError,
        r"Expected seen of shape \(5, 3\), as x; got \(5, 4\)",
    ),
    "dtype": (
        "fvbn",
        lambda m: m.log_conditionals(ZEROS, seen=torch.ones(5, 3)),
        TypeError,
        "Expected seen to be a torch.Tensor of torch.bool; got torch.float32",
    ),
    "order": (
        "nade",
        lambda m: m.log_prob(ZEROS, order=[0, 0, 1]),
        ValueError,
        r"order must be a permutation of 0 to 2; got \[\[0, 0, 1\]\]",
    ),
    "fvbn": (
        "fvbn",
        lambda m: m.log_prob(ZEROS, order=[2, 1, 0]),
        ValueError,
        "in one order, so that another order is not an option. Use a tied model",
    ),
    "mixture-order": (
        "gaussian",
        lambda m: m.log_conditionals(ZEROS, order=[2, 1, 0]),
        ValueError,
        "order is not an option for GaussianModule",
    ),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_cells_and_orders_are_told(case):
    name, call, error, message = BAD_CALLS[case]
    with pytest.raises(error, match=message):
        call(make_module(name, 3))
