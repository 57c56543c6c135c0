"""The GPU kernels against the reference and vectorised backends: values, gradients, draws.

Without a GPU the kernels run under Triton's interpreter, which has to be chosen before Triton is
first imported and would change Triton for every other test of the process. So the tests that need
kernels (marked `gpu`) are skipped in an ordinary run, and `test_kernels_under_the_interpreter`
runs them in processes of their own with TRITON_INTERPRET=1. On a machine with a CUDA device the
same tests run on it as they are.
"""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Generator

from rnade import chunks
from rnade.backends import reference, vectorised
from rnade.backends.gpu import api as gpu
from rnade.backends.gpu import launch, stored_launch, tiling
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec
from rnade.batch import Batch
from rnade.families import AbstractFamily, GaussianMixture
from tests.conftest import FAMILIES
from tests.interpreter import assert_passes_under_the_interpreter
from tests.rounding import assert_accurate, textbook_and_truth

INTERPRETING = launch.interpreting()
HAS_TRITON = importlib.util.find_spec("triton") is not None
DEVICE = "cpu" if INTERPRETING else "cuda"


def needs_kernels(test):
    """Mark a test that launches kernels."""
    can_run = HAS_TRITON and (INTERPRETING or torch.cuda.is_available())
    reason = "no CUDA device; run by test_kernels_under_the_interpreter where Triton is installed"
    return pytest.mark.gpu(pytest.mark.skipif(not can_run, reason=reason)(test))


@pytest.mark.skipif(INTERPRETING, reason="this is the inner run")
@pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")
@pytest.mark.parametrize("part", ["density", "gradient", "sampling"])
def test_kernels_under_the_interpreter(part):
    assert_passes_under_the_interpreter(__file__, "-k", part, more_than=5)


# Shapes M, B, D, H, then whether there is an order and a floor. Tiles are 16 to 64 wide: 67 units
# are a tile and a bit, 17 and 33 rows a block and one more.
SIZES = {
    "ones": (1, 1, 1, 1, False, False),
    "bank": (2, 5, 3, 5, True, True),
    "tiles": (1, 17, 2, 67, True, False),
    "blocks": (1, 33, 3, 16, False, True),
}
NAMES = ("x", "W", "c", "rho", "V", "b")
UNITS = 16  # of float32's rounding: among the few numbers of small sizes luck is not out
CASES = [
    *((name, "relu", size) for name in ("gaussian-4", "laplace-4", "bernoulli") for size in SIZES),
    *((name, "relu", "bank") for name in ("gaussian-1", "laplace-1")),
    *((name, "sigmoid", "bank") for name in ("gaussian-4", "laplace-1")),
    *((name, "identity", "bank") for name in ("gaussian-1", "bernoulli")),
]


def draw(family: AbstractFamily, size: str, seed: int = 0):
    """Float64 rows, parameters and order of one size."""
    M, B, D, H, ordered, floored = SIZES[size]
    generator = Generator().manual_seed(seed)

    def normal(*shape):
        drawn = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return drawn.float().double()  # so that float32 starts from the same numbers

    P = family.n_outputs
    x = normal(M, B, D)
    parameters = Parameters(
        W=0.5 * normal(M, D, H),
        c=0.5 * normal(M, H),
        rho=1 + 0.25 * normal(M, D),
        V=normal(M, D, H, P) / 2 ** round(np.log2(H) / 2),
        b=0.5 * normal(M, D, P),
        log_floor=normal(M, D) - 1 if floored else None,
    )
    orders = torch.stack([torch.randperm(D, generator=generator) for _ in range(M)])
    x = (x > 0).double() if family.discrete else x
    return x, parameters, orders if ordered else None


def moved(order, *tensors):
    """The order and all tensors on the device, in float32."""
    to = [None if t is None else t.to(DEVICE, torch.float32) for t in tensors]
    return None if order is None else order.to(DEVICE), *to


def gradients(function, x, parameters, *upstream):
    """What `function` gives and the gradients of x, W, c, rho, V and b."""
    leaves = [t.detach().clone().requires_grad_() for t in (x, *parameters.trained)]
    value = function(leaves[0], Parameters(*leaves[1:], parameters.log_floor))
    return [value.detach(), *torch.autograd.grad(value, leaves, *upstream)]


def drawn(draw, shape):
    """Float64 numbers that float32 holds too."""
    return draw(shape, generator=Generator().manual_seed(1)).double()


@needs_kernels
@pytest.mark.parametrize(("name", "activation", "size"), CASES)
def test_gradient_of_every_term(name, activation, size):
    family = FAMILIES[name]
    x, parameters, order = draw(family, size)
    upstream = drawn(torch.randn, x.shape)

    def plain(x, p):
        return vectorised.log_conditionals(Batch(x, order=order), p, Spec(family, activation))

    order_32, x_32, upstream_32, *rest = moved(order, x, upstream, *parameters)
    got = gradients(
        lambda x, p: gpu.log_conditionals(Batch(x, order=order_32), p, Spec(family, activation)),
        x_32,
        Parameters(*rest),
        upstream_32,
    )
    measure = textbook_and_truth(gradients, plain, x, parameters, upstream)
    assert_accurate(got, *measure, ("value", *NAMES), UNITS)


@needs_kernels
def test_gradient_against_the_reference():
    family = FAMILIES["gaussian-4"]
    x, parameters, order = draw(family, "bank")
    order_32, x_32, *rest = moved(order, x, *parameters)
    got = gradients(
        lambda x, p: gpu.log_prob(Batch(x, order=order_32), p, Spec(family, "sigmoid")).sum(),
        x_32,
        Parameters(*rest),
    )
    expected = reference.gradients(Batch(x, order=order), parameters, Spec(family, "sigmoid"))
    for name, mine in zip(NAMES, got[1:], strict=True):
        right = getattr(expected, name)
        np.testing.assert_allclose(mine.cpu(), right, rtol=1e-4, atol=2e-5, err_msg=name)


@needs_kernels
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("name", ["gaussian-4", "laplace-1", "bernoulli"])
def test_gradient_of_weighted_log_likelihood(name, chunked, scaled, monkeypatch):
    """Also in chunks of rows that are summed, and with the paper's scaling of the means' part."""
    family = FAMILIES[name]
    size = "blocks" if chunked else "bank"
    x, parameters, order = draw(family, size)
    if chunked:
        monkeypatch.setattr(chunks, "STORED_ELEMENTS", 1)  # 16 rows at a time
    weights = drawn(torch.rand, x.shape[:2])
    upstream = torch.tensor([2.0, -3.0], dtype=torch.float64)[: x.shape[0]]

    def plain(x, p):
        terms = vectorised.log_conditionals(
            Batch(x, order=order), p, Spec(family, "relu", scale_mean_gradient=scaled)
        )
        return (weights * terms.sum(-1)).sum(-1)

    order_32, x_32, weights_32, upstream_32, *rest = moved(
        order, x, weights, upstream, *parameters
    )
    got = gradients(
        lambda x, p: gpu.weighted_log_likelihood(
            Batch(x, weights_32, order=order_32),
            p,
            Spec(family, "relu", scale_mean_gradient=scaled),
        ),
        x_32,
        Parameters(*rest),
        upstream_32,
    )
    measure = textbook_and_truth(gradients, plain, x, parameters, upstream)
    assert_accurate(got, *measure, ("value", *NAMES), UNITS)


@needs_kernels
def test_gradient_is_bit_for_bit_repeatable_and_reaches_the_weights():
    family = FAMILIES["gaussian-4"]
    x, parameters, _ = draw(family, "bank")
    _, x_32, *rest = moved(None, x, *parameters)
    weights = torch.ones(x.shape[:2], device=DEVICE, requires_grad=True)

    def function(x, p):
        return gpu.weighted_log_likelihood(Batch(x, weights), p, Spec(family, "relu")).sum()

    first, again = (gradients(function, x_32, Parameters(*rest)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    rows = gpu.log_prob(Batch(x_32), Parameters(*rest), Spec(family, "relu"))
    (to_weights,) = torch.autograd.grad(function(x_32, Parameters(*rest)), [weights])
    torch.testing.assert_close(to_weights, rows)


@needs_kernels
def test_gradient_value_is_the_sum_over_many_programs(monkeypatch):
    """More partial sums than the last program adds at a time, with some left over."""
    monkeypatch.setitem(SIZES, "programs", (1, 17, 65, 4, False, False))
    family = FAMILIES["gaussian-1"]
    x, parameters, _ = draw(family, "programs")
    right = vectorised.log_conditionals(Batch(x), parameters, Spec(family, "relu")).sum(-1)
    _, x_32, *rest = moved(None, x, *parameters.trained)
    leaves = Parameters(*(t.requires_grad_() for t in rest))
    weights = torch.rand(right.shape, generator=Generator().manual_seed(1)).to(DEVICE)
    first, again = (
        gpu.weighted_log_likelihood(Batch(x_32, weights), leaves, Spec(family, "relu")).detach()
        for _ in range(2)
    )
    assert torch.equal(first, again)
    expected = (weights.cpu().double() * right).sum(-1)
    torch.testing.assert_close(first.cpu().double(), expected, rtol=1e-5, atol=1e-4)


@needs_kernels
def test_gradient_through_strided_parameters_and_rows():
    """A tied V is a transposed view; a bank may share one x; some parameters may be fixed."""
    family = FAMILIES["bernoulli"]
    x, parameters, _ = draw(family, "bank")
    _, x_32, *rest = moved(None, x[:1], *parameters)
    p = Parameters(*rest)
    shared = x_32.expand(2, -1, -1)
    tied = p.W[..., None].detach().requires_grad_()
    strided = tied.transpose(1, 2).contiguous().transpose(1, 2)
    fixed = Parameters(p.W, p.c, p.rho, strided, p.b)
    results = [
        torch.autograd.grad(
            backend.log_conditionals(Batch(shared), fixed, Spec(family, "relu")).sum(), [tied]
        )[0]
        for backend in (gpu, vectorised)
    ]
    torch.testing.assert_close(*results)


@needs_kernels
def test_gradient_of_no_rows_is_zero():
    family = FAMILIES["gaussian-4"]
    x, parameters, _ = draw(family, "bank")
    _, x_32, *rest = moved(None, x[:, :0], *parameters)
    weights = x_32.new_empty(2, 0)
    for function in (
        lambda x, p: gpu.log_prob(Batch(x), p, Spec(family, "relu")).sum(),
        lambda x, p: gpu.weighted_log_likelihood(Batch(x, weights), p, Spec(family, "relu")).sum(),
    ):
        for t in gradients(function, x_32, Parameters(*rest)):
            assert (t == 0).all()
    assert gpu.log_conditionals(Batch(x_32), Parameters(*rest), Spec(family, "relu")).shape == (
        2,
        0,
        3,
    )


@needs_kernels
def test_gradient_is_finite_for_run_away_outputs():
    """Outputs far past the guards on scale and distance, where float32 would overflow."""
    for name in ("gaussian-4", "laplace-4"):
        family = FAMILIES[name]
        x, parameters, order = draw(family, "bank")
        K = family.n_components
        parameters.b[..., 2 * K] = 100
        parameters.b[..., 2 * K + 1] = -100
        parameters.b[..., K] = 1e25
        order_32, x_32, *rest = moved(order, x, *parameters)
        results = [
            gradients(
                lambda x, p, b=backend, f=family, o=order_32: b.log_conditionals(
                    Batch(x, order=o), p, Spec(f, "relu")
                ).sum(),
                x_32,
                Parameters(*rest),
            )
            for backend in (gpu, vectorised)
        ]
        for got, expected in zip(*results, strict=True):
            assert torch.isfinite(got).all()
            torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)


@needs_kernels
def test_gradient_is_the_same_for_large_outputs_of_the_fractions():
    """A constant added to all of them changes nothing, however large."""
    for name in ("gaussian-4", "laplace-4"):
        family = FAMILIES[name]
        x, parameters, order = draw(family, "bank")
        parameters.V[..., :4] = 0
        results = []
        for constant in (0.0, 2.0**20):
            parameters.b[..., :4] = torch.arange(4.0) + constant
            order_32, x_32, *rest = moved(order, x, *parameters)

            def total(x, p, family=family, order=order_32):
                return gpu.log_conditionals(Batch(x, order=order), p, Spec(family, "relu")).sum()

            terms = total(x_32, Parameters(*rest))
            results.append([terms, *gradients(total, x_32, Parameters(*rest))])
        for got, expected in zip(*results, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@needs_kernels
def test_gradient_of_a_gradient_is_refused():
    family = GaussianMixture(1)
    x, parameters, _ = draw(family, "ones")
    _, x_32, *rest = moved(None, x, *parameters)
    x_32.requires_grad_()
    value = gpu.log_prob(Batch(x_32), Parameters(*rest), Spec(family, "relu")).sum()
    with pytest.raises(RuntimeError, match="first derivatives only; use backend='vectorised'"):
        torch.autograd.grad(value, [x_32], create_graph=True)


@pytest.fixture
def on_chip(monkeypatch):
    """Send any number of rows to the on-chip kernel, and count its launches."""
    launches = []
    density = launch.density

    def counted(*arguments, **more):
        launches.append(arguments)
        return density(*arguments, **more)

    monkeypatch.setattr(tiling, "BLOCKS_TO_FILL", 0)
    monkeypatch.setattr(launch, "density", counted)
    return launches


@needs_kernels
@pytest.mark.parametrize(("name", "activation", "size"), CASES)
def test_density_on_chip(name, activation, size, on_chip):
    family = FAMILIES[name]
    x, parameters, order = draw(family, size)
    order_32, x_32, *rest = moved(order, x, *parameters)
    arguments = (Batch(x_32, order=order_32), Parameters(*rest), Spec(family, activation))
    got = [gpu.log_conditionals(*arguments), gpu.log_prob(*arguments)]

    def plain():
        terms = vectorised.log_conditionals(
            Batch(x, order=order), parameters, Spec(family, activation)
        )
        return [terms, terms.sum(-1)]

    assert_accurate(got, *textbook_and_truth(plain), ("terms", "sums"), UNITS)
    assert len(on_chip) == 2


@needs_kernels
@pytest.mark.parametrize("size", ["bank", "tiles"])
def test_density_of_few_rows_takes_the_stored_path(size, monkeypatch):
    family = FAMILIES["laplace-4"]
    x, parameters, order = draw(family, size)
    order_32, x_32, *rest = moved(order, x, *parameters)
    arguments = (Batch(x_32, order=order_32), Parameters(*rest), Spec(family))
    monkeypatch.setattr(launch, "density", None)
    monkeypatch.setattr(chunks, "STORED_ELEMENTS", 1)
    plain = vectorised.log_conditionals(*arguments)
    torch.testing.assert_close(gpu.log_conditionals(*arguments), plain, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gpu.log_prob(*arguments), plain.sum(-1), rtol=1e-5, atol=1e-5)


@needs_kernels
@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 2e-2), ("bf16", 0.15)])
def test_density_in_lower_precision(precision, tolerance, on_chip):
    """Close to float32 but, in bf16, not equal to it: the precision asked for is what is used."""
    family = FAMILIES["gaussian-4"]
    x, parameters, order = draw(family, "tiles")
    order_32, x_32, *rest = moved(order, x, *parameters)
    arguments = (Batch(x_32, order=order_32), Parameters(*rest), Spec(family))
    exact = vectorised.log_conditionals(*arguments)
    coarse = Spec(family, backend=f"gpu-{precision}")
    chip = gpu.log_conditionals(*arguments[:2], coarse)
    error = (chip - exact).abs().max().item()
    assert error < tolerance
    assert error > 1e-4 or (precision == "tf32" and INTERPRETING)
    assert on_chip
    with pytest.raises(ValueError, match="Did you mean 'tf32'"):
        gpu.log_prob(*arguments[:2], Spec(family, backend="gpu-tf23"))


@needs_kernels
def test_density_of_extreme_rows(on_chip):
    """Rows 50 standard deviations out and components of width 1e-6, on both paths."""
    for name in ("gaussian-4", "laplace-4"):
        family = FAMILIES[name]
        K = family.n_components
        x, parameters, _ = draw(family, "bank")
        parameters = parameters._replace(log_floor=None)
        x *= 50
        parameters.b[..., 2 * K :] = np.log(1e-6)
        parameters.V[..., 2 * K :] = 0
        _, x_32, *rest = moved(None, x, *parameters)
        arguments = (Batch(x_32), Parameters(*rest), Spec(family))
        right = vectorised.log_conditionals(Batch(x), parameters, Spec(family, "relu"))
        stored, _ = stored_launch.evaluate(*arguments, gradient=False, gradient_x=False)
        for terms in (gpu.log_conditionals(*arguments), stored):
            assert torch.isfinite(terms).all()
            np.testing.assert_allclose(terms.cpu(), right, rtol=2e-4)
    assert len(on_chip) == 2


@needs_kernels
@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")  # NumPy, in the interpreter
@pytest.mark.parametrize("name", ["gaussian-4", "laplace-4"])
@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
def test_density_of_a_row_with_nan_is_nan_and_no_other(name, activation, on_chip):
    """A guard that hides a NaN would hide a bug."""
    family = FAMILIES[name]
    x, parameters, _ = draw(family, "bank")
    x[0, 2, 1] = torch.nan
    _, x_32, *rest = moved(None, x, *parameters)
    p = Parameters(*rest)
    expected = torch.isnan(vectorised.log_conditionals(Batch(x_32), p, Spec(family, activation)))
    assert torch.equal(
        torch.isnan(gpu.log_conditionals(Batch(x_32), p, Spec(family, activation))), expected
    )
    p.W.requires_grad_()
    stored = gpu.log_conditionals(Batch(x_32), p, Spec(family, activation))
    assert torch.equal(torch.isnan(stored), expected)


@needs_kernels
@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("gaussian-4", "bank"),
        ("laplace-4", "tiles"),
        ("gaussian-1", "tiles"),
        ("bernoulli", "bank"),
    ],
)
def test_sampling_follows_the_conditionals(name, size, seed):
    """Through its conditional distribution function every draw of a mixture is uniform."""
    family = FAMILIES[name]
    _, parameters, order = draw(family, size)
    order_32, *rest = moved(order, *parameters)
    p = Parameters(*rest)
    generator = Generator(DEVICE).manual_seed(seed)
    x = gpu.sample(400, p, Spec(family, "relu"), order=order_32, generator=generator)
    z = vectorised.outputs(Batch(x, order=order_32), p, Spec(family, "relu"))
    floor = None if p.log_floor is None else p.log_floor[:, :, None]
    v = family.cdf(x.transpose(1, 2), z, floor).cpu().double().numpy()  # (M, D, n)
    if family.discrete:
        probability = torch.sigmoid(z.squeeze(-1)).cpu().double().numpy()
        excess = x.transpose(1, 2).cpu().double().numpy() - probability
        spread = np.sqrt((probability * (1 - probability)).sum(-1))
        assert (np.abs(excess.sum(-1)) < 5 * spread).all()
    else:
        for one in v.reshape(-1, v.shape[-1]):
            assert stats.kstest(one, "uniform").pvalue > 1e-5


@needs_kernels
def test_sampling_is_repeatable_and_in_pieces(monkeypatch):
    family = FAMILIES["gaussian-4"]
    _, parameters, order = draw(family, "bank")
    order_32, *rest = moved(order, *parameters)
    p = Parameters(*rest)

    def sample(seed):
        generator = Generator(DEVICE).manual_seed(seed)
        return gpu.sample(70, p, Spec(family, "relu"), order=order_32, generator=generator)

    assert torch.equal(sample(0), sample(0))
    assert not torch.equal(sample(0), sample(1))
    monkeypatch.setattr(chunks, "ELEMENTS", 32 * 6)  # 32 rows at a time
    pieces = sample(0)
    assert torch.isfinite(pieces).all()
    assert pieces.unique().numel() == pieces.numel()


@needs_kernels
def test_sampling_between_bounds_is_left_to_plain_torch():
    family = FAMILIES["gaussian-4"]
    _, parameters, order = draw(family, "bank")
    order_32, *rest = moved(order, *parameters)
    bounds = {"low": torch.zeros(3, device=DEVICE), "high": torch.ones(3, device=DEVICE)}
    drawn = [
        backend.sample(
            50,
            Parameters(*rest),
            Spec(family, "relu"),
            order=order_32,
            generator=Generator(DEVICE).manual_seed(0),
            **bounds,
        )
        for backend in (gpu, vectorised)
    ]
    assert torch.equal(*drawn)
    assert ((drawn[0] >= 0) & (drawn[0] <= 1)).all()


def test_import_does_not_load_triton():
    program = "import rnade.backends.gpu.api, sys; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.skipif(INTERPRETING, reason="the interpreter serves the CPU")
def test_supports_says_why_not(monkeypatch):
    family = GaussianMixture(2)
    _, parameters, _ = draw(family, "bank")
    single = Parameters(*[None if t is None else t.float() for t in parameters])

    def reason(p=single, f=family):
        return gpu.supports(p, Spec(f, "relu"))

    monkeypatch.setattr(gpu, "_has_triton", lambda: False)
    assert reason() == "Triton is not installed"
    monkeypatch.setattr(gpu, "_has_triton", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert reason() == "there is no CUDA device"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert reason() == "the parameters are on the cpu device"
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert reason() is None
    assert reason(parameters) == "the kernels compute in float32 and W is torch.float64"
    mixed = single._replace(b=parameters.b)
    assert reason(mixed) == "the kernels compute in float32 and b is torch.float64"
    many = "600 outputs a dimension are more than the 512 of a tile"
    assert reason(f=GaussianMixture(200)) == many
    monkeypatch.setattr(GaussianMixture, "name", "cauchy")
    assert reason() == "there is no kernel for the family 'cauchy'"


@pytest.mark.skipif(INTERPRETING, reason="the interpreter serves the CPU")
def test_what_cannot_be_served_raises(monkeypatch):
    family = GaussianMixture(2)
    x, parameters, _ = draw(family, "bank")
    monkeypatch.setattr(gpu, "_has_triton", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="GPU kernels cannot serve: there is no CUDA device"):
        gpu.log_prob(Batch(x), parameters, Spec(family, "relu"))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    single = Parameters(*[None if t is None else t.float() for t in parameters])
    with pytest.raises(ValueError, match="Expected x in float32 on cpu; got torch.float64"):
        gpu.log_prob(Batch(x), single, Spec(family, "relu"))
