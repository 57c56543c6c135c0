import ctypes
import functools
import gc
import importlib
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import scipy.stats
import threadpoolctl
import torch
from numba.core import event

from rnade import chunks
from rnade.backends import reference, vectorised
from rnade.backends.cpu import api as cpu
from rnade.backends.cpu import calls, density, gradient, lanes, launch, memory, products
from rnade.backends.cpu import threads as workers
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec
from rnade.batch import Batch
from rnade.families import make_family
from tests.rounding import assert_accurate, textbook_and_truth

FAMILIES = ["gaussian", "laplace", "bernoulli"]
ACTIVATIONS = ["relu", "sigmoid", "identity"]
# M, B, D, H, K: all ones; primes; three blocks of rows; more dimensions than a checkpoint, with
# a bank and without; outputs enough for padded copies of V; units in a multiple of 16; narrow
# products of several blocks of rows, and of several tiles.
SIZES = [
    (1, 1, 1, 1, 1),
    (3, 5, 7, 13, 2),
    (1, 530, 5, 17, 2),
    (1, 2, 37, 3, 1),
    (3, 3, 19, 5, 3),
    (1, 67, 4, 16, 7),
    (1, 530, 3, 18, 6),
    (2, 9, 3, 150, 23),
]
NAMES = ["x", "W", "c", "rho", "V", "b"]


@pytest.fixture(params=[1, 3], ids=["serial", "threads"], autouse=True)
def threads(request, monkeypatch):
    """Run on one thread, and on three with the work split however small it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    if request.param > 1:
        monkeypatch.setattr(launch, "SMALL", 0)
    yield request.param
    torch.set_num_threads(before)


serial = pytest.mark.parametrize("threads", [1], indirect=True)
threaded = pytest.mark.parametrize("threads", [3], indirect=True)


def problem(family, size, *, floor=False, order=False, dtype=torch.float64, seed=0, scale=0.5):
    """Random rows, parameters and perhaps orders."""
    M, B, D, H, _ = size
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    x, P = draw(M, B, D), family.n_outputs
    if family.discrete:
        x = (x > 0).to(dtype)
    parameters = Parameters(
        scale * draw(M, D, H),
        scale * draw(M, H),
        1 + 0.3 * draw(M, D),
        scale * draw(M, D, H, P),
        scale * draw(M, D, P),
        draw(M, D) - 1 if floor else None,
    )
    orders = [torch.randperm(D, generator=generator) for _ in range(M)]
    return x, parameters, torch.stack(orders) if order else None


def leaves(x, parameters):
    """Copies of x and the parameters that want gradients."""
    copies = [t.detach().clone().requires_grad_() for t in (x, *parameters.trained)]
    return copies, Parameters(*copies[1:], parameters.log_floor)


def value_and_gradients(
    backend, x, parameters, family, activation, order=None, upstream=None, **kw
):
    tensors, with_grad = leaves(x, parameters)
    terms = backend.log_conditionals(
        Batch(tensors[0], order=order), with_grad, Spec(family, activation, **kw)
    )
    total = (terms if upstream is None else upstream * terms).sum()
    return terms.detach(), torch.autograd.grad(total, tensors)


def by_reference(x, parameters, family, activation, order):
    """Terms and gradients of every model by the paper's loops."""
    given = Batch(x, order=order), parameters, Spec(family, activation)
    found = reference.gradients(*given)
    gradients = [torch.from_numpy(getattr(found, name)) for name in NAMES]
    return torch.from_numpy(reference.log_conditionals(*given)), gradients


def assert_close(actual, expected, tolerance=1e-10, what=""):
    scale = expected.abs().max().clamp_min(1e-12)
    assert actual.shape == expected.shape, what
    worst = ((actual - expected).abs().max() / scale).item()
    assert worst <= tolerance, f"{what}: {worst:.1e} of the largest"


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_value_and_gradients_follow_the_reference(name, activation, size):
    family = make_family(name, size[-1])
    for floor, ordered in [(False, True), (True, False)]:
        x, parameters, order = problem(family, size, floor=floor, order=ordered)
        terms, gradients = by_reference(x, parameters, family, activation, order)
        ours, ours_gradients = value_and_gradients(cpu, x, parameters, family, activation, order)
        assert_close(ours, terms, what="log p")
        for what, g, expected in zip(NAMES, ours_gradients, gradients, strict=True):
            assert_close(g, expected, what=what)

        tensors, with_grad = leaves(x, parameters)
        ones = x.new_ones(x.shape[:2])
        value = cpu.weighted_log_likelihood(
            Batch(tensors[0], ones, order=order), with_grad, Spec(family, activation)
        )
        assert_close(value.detach(), terms.sum((1, 2)), what="weighted log likelihood")
        found = torch.autograd.grad(value.sum(), tensors)
        for what, g, expected in zip(NAMES, found, gradients, strict=True):
            assert_close(g, expected, what=f"{what} of the weighted log likelihood")


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("scale_mean_gradient", [False, True])
def test_any_upstream_gradient_and_the_scaled_mean_follow_vectorised(name, scale_mean_gradient):
    family = make_family(name, 3)
    x, parameters, order = problem(family, (2, 9, 21, 18, 3), floor=True, order=True)
    upstream = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(1))
    settings = {"scale_mean_gradient": scale_mean_gradient}
    arguments = (x, parameters, family, "relu", order, upstream)
    terms, expected = value_and_gradients(vectorised, *arguments, **settings)
    ours, gradients = value_and_gradients(cpu, *arguments, **settings)
    assert_close(ours, terms)
    for what, g, e in zip(NAMES, gradients, expected, strict=True):
        assert_close(g, e, what=what)


def test_weights_and_what_comes_from_above_multiply_the_gradient():
    family = make_family("gaussian", 2)
    x, parameters, order = problem(family, (3, 6, 5, 7, 2), order=True)
    generator = torch.Generator().manual_seed(2)
    weights = torch.randn(3, 6, generator=generator, dtype=x.dtype)
    above = torch.randn(3, generator=generator, dtype=x.dtype)
    _, expected = value_and_gradients(
        vectorised, x, parameters, family, "relu", order, above[:, None, None] * weights[..., None]
    )
    tensors, with_grad = leaves(x, parameters)
    value = cpu.weighted_log_likelihood(
        Batch(tensors[0], weights, order=order), with_grad, Spec(family, "relu")
    )
    for _ in range(2):  # the second time nothing is kept from the forward pass
        found = torch.autograd.grad((above * value).sum(), tensors, retain_graph=True)
        for what, g, e in zip(NAMES, found, expected, strict=True):
            assert_close(g, e, what=what)


def test_weights_may_have_gradients_and_none_may_be_wanted():
    family = make_family("gaussian", 2)
    x, parameters, _ = problem(family, (2, 4, 3, 5, 2))
    weights = x[:, :, 0].clone().requires_grad_()
    terms = vectorised.log_conditionals(Batch(x), parameters, Spec(family, "relu"))
    value = cpu.weighted_log_likelihood(Batch(x, weights), parameters, Spec(family, "relu"))
    assert_close(torch.autograd.grad(value.sum(), weights)[0], terms.sum(-1))
    with torch.no_grad():
        _, with_grad = leaves(x, parameters)
        value = cpu.weighted_log_likelihood(Batch(x, weights), with_grad, Spec(family, "relu"))
    assert not value.requires_grad
    assert_close(value, (weights * terms.sum(-1)).sum(-1).detach())


@pytest.mark.parametrize("wanted", [["b"], ["V", "b"], ["W"], ["rho"], ["x"], ["c", "V"]], ids=str)
def test_only_wanted_gradients_are_computed(wanted):
    family = make_family("laplace", 2)
    x, parameters, order = problem(family, (1, 6, 20, 7, 2), order=True)
    _, expected = value_and_gradients(vectorised, x, parameters, family, "sigmoid", order)
    tensors = [t.clone() for t in (x, *parameters.trained)]
    for what, t in zip(NAMES, tensors, strict=True):
        t.requires_grad_(what in wanted)
    some = Parameters(*tensors[1:])
    chosen = [t for t in tensors if t.requires_grad]
    kept = [e for e, what in zip(expected, NAMES, strict=True) if what in wanted]
    value = cpu.weighted_log_likelihood(
        Batch(tensors[0], x.new_ones(1, 6), order=order), some, Spec(family, "sigmoid")
    )
    terms = cpu.log_conditionals(Batch(tensors[0], order=order), some, Spec(family, "sigmoid"))
    for total in (value, terms.sum()):
        for g, e in zip(torch.autograd.grad(total, chosen), kept, strict=True):
            assert_close(g, e)


@serial
@pytest.mark.parametrize("name", FAMILIES)
def test_gradcheck(name):
    family = make_family(name, 2)
    x, parameters, order = problem(family, (1, 2, 3, 2, 2), floor=True, order=True)
    tensors, _ = leaves(x, parameters)
    weights = x[:, :, 0].clone()

    def terms(*t):
        p = Parameters(*t[1:], parameters.log_floor)
        return cpu.log_conditionals(Batch(t[0], order=order), p, Spec(family, "sigmoid"))

    def value(*t):
        p = Parameters(*t[1:], parameters.log_floor)
        return cpu.weighted_log_likelihood(
            Batch(t[0], weights, order=order), p, Spec(family, "sigmoid")
        )

    assert torch.autograd.gradcheck(terms, tensors)
    assert torch.autograd.gradcheck(value, tensors)


@serial
def test_second_derivatives_are_those_of_vectorised():
    family = make_family("gaussian", 2)
    x, parameters, order = problem(family, (2, 3, 4, 3, 2), order=True)
    weights = x[:, :, 0].clone()

    def value(backend, tensors):
        p = Parameters(*tensors[1:])
        if backend is cpu:
            return cpu.weighted_log_likelihood(
                Batch(tensors[0], weights, order=order), p, Spec(family, "sigmoid")
            )
        terms = vectorised.log_conditionals(
            Batch(tensors[0], order=order), p, Spec(family, "sigmoid")
        )
        return (weights * terms.sum(-1)).sum(-1)

    second = []
    for backend in (vectorised, cpu):
        tensors, _ = leaves(x, parameters)
        first = torch.autograd.grad(value(backend, tensors).sum(), tensors, create_graph=True)
        penalty = sum(g.square().sum() for g in first)
        second.append(torch.autograd.grad(penalty, tensors))
    for what, g, e in zip(NAMES, second[1], second[0], strict=True):
        assert_close(g, e, what=what)
    tensors, with_grad = leaves(x, parameters)
    terms = cpu.log_conditionals(
        Batch(tensors[0], order=order), with_grad, Spec(family, "sigmoid")
    )
    (first,) = torch.autograd.grad(terms.sum(), tensors[0], create_graph=True)
    assert first.requires_grad


def smooth_problems(family, activation):
    """Float32 problems in which no derivative jumps within what rounding may move it."""
    for seed in itertools.count():
        x, parameters, _ = problem(
            family, (1, 64, 41, 83, 6), floor=True, dtype=torch.float32, seed=seed, scale=0.1
        )
        exact = Parameters(*(t if t is None else t.double() for t in parameters))
        columns = x.double().transpose(1, 2)[..., None]
        increments = columns * exact.W[:, :, None]
        a = increments.cumsum(1) - increments + exact.c[:, None, None]
        jumps = [a * exact.rho[:, :, None, None]] if activation == "relu" else []
        if family.name == "laplace":
            z = vectorised.outputs(Batch(x.double()), exact, Spec(family, activation))
            jumps.append(columns - z[..., 6:12])
        if all(t.abs().min() > 2e-6 for t in jumps):
            yield (x, parameters), (x.double(), exact)


@functools.cache
def accuracy_problems(name, activation):
    """Some problems, with what the textbook gives and the truth."""
    family = make_family(name, 6)

    def compute(x, parameters):
        return value_and_gradients(vectorised, x, parameters, family, activation)

    found = itertools.islice(smooth_problems(family, activation), 4)
    return [(given, *textbook_and_truth(compute, *exact)) for given, exact in found]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("way", ["own", "blas"])
def test_float32_is_as_accurate_as_its_sums_allow(name, activation, way, monkeypatch):
    """Over several problems, so that luck is out."""
    monkeypatch.setattr(products, "narrow_pays", lambda n_outputs: way == "own")
    family, rows = make_family(name, 6), []
    for given, textbook, truth in accuracy_problems(name, activation):
        got = value_and_gradients(cpu, *given, family, activation)
        rows.append([[terms, *gradients] for terms, gradients in (got, textbook, truth)])
    together = [[torch.cat(t) for t in zip(*c, strict=True)] for c in zip(*rows, strict=True)]
    assert_accurate(*together, ["log p", *NAMES])


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
@pytest.mark.parametrize("extreme", ["far", "narrow", "wide"])
def test_extreme_inputs_follow_the_reference(name, extreme):
    family = make_family(name, 3)
    x, parameters, _ = problem(family, (1, 8, 5, 6, 3), scale=0.1)
    if extreme == "far":
        x = 50 * x.sign()
    else:
        parameters.b[..., 6:] = np.log(1e-6 if extreme == "narrow" else 1e6)
    terms, gradients = by_reference(x, parameters, family, "relu", None)
    ours, found = value_and_gradients(cpu, x, parameters, family, "relu")
    assert_close(ours, terms)
    for what, g, e in zip(NAMES, found, gradients, strict=True):
        assert_close(g, e, what=what)


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("z_sigma", [-100.0, 100.0])
def test_run_away_scales_and_values_are_clamped_as_in_torch(name, dtype, z_sigma):
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    for K, far in [(3, False), (1, False), (1, True)]:
        family = make_family(name, K)
        x, parameters, _ = problem(family, (1, 8, 1, 6, K), scale=0.1, dtype=dtype)
        parameters.b[..., 2 * K] = z_sigma
        if far:
            x[0, 0] = 1e20
        terms, expected = value_and_gradients(vectorised, x, parameters, family, "relu")
        ours, found = value_and_gradients(cpu, x, parameters, family, "relu")
        assert torch.isfinite(ours).all()
        assert_close(ours, terms, tolerance)
        for what, g, e in zip(NAMES, found, expected, strict=True):
            assert_close(g, e, tolerance, what)


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_outputs_for_the_fractions_do_not_swallow_the_density(name, dtype):
    """A constant added to all of them changes nothing, however large."""
    family = make_family(name, 3)
    x, parameters, _ = problem(family, (1, 8, 5, 6, 3), dtype=dtype)
    parameters.V[..., :3] = 0
    fractions = torch.tensor([0.0, 1.0, 3.0], dtype=dtype)
    results = []
    for constant in (0.0, 2.0**20 if dtype == torch.float32 else 2.0**50):
        parameters.b[..., :3] = fractions + constant
        results.append(value_and_gradients(cpu, x, parameters, family, "relu"))
    (terms, gradients), (shifted, found) = results
    torch.testing.assert_close(shifted, terms)
    for g, e in zip(found, gradients, strict=True):
        torch.testing.assert_close(g, e)


def test_a_floor_of_zero_is_no_floor():
    family = make_family("gaussian", 2)
    x, parameters, _ = problem(family, (1, 4, 3, 5, 2))
    zero = parameters._replace(log_floor=torch.full((1, 3), -torch.inf, dtype=x.dtype))
    with_floor = value_and_gradients(cpu, x, zero, family, "relu")
    without = value_and_gradients(cpu, x, parameters, family, "relu")
    assert_close(with_floor[0], without[0], 1e-14)
    for a, b in zip(with_floor[1], without[1], strict=True):
        assert_close(a, b, 1e-14)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_shows(name, activation, bad):
    family = make_family(name, 3)
    x, parameters, _ = problem(family, (1, 20, 6, 5, 3))
    x[0, 7, 2] = bad
    terms, _ = value_and_gradients(cpu, x, parameters, family, activation)
    expected = vectorised.log_conditionals(Batch(x), parameters, Spec(family, activation))
    others = torch.arange(20) != 7
    assert_close(terms[:, others], expected[:, others])
    assert_close(terms[:, 7, :2], expected[:, 7, :2])
    assert torch.isnan(terms[0, 7, 2:]).all() or not np.isnan(bad)
    cases = [(x, parameters)]
    for what in range(5):
        copies = [t.clone() for t in parameters.trained]
        copies[what].view(-1)[0] = bad
        cases.append((x[:, others], Parameters(*copies)))
    for rows, p in cases:
        with np.errstate(all="ignore"):
            truth, gradients = by_reference(rows, p, family, activation, None)
        ours, ours_gradients = value_and_gradients(cpu, rows, p, family, activation)
        if name != "bernoulli":
            truth[rows.isinf()] = 0  # u is clamped, so that an infinite x has a finite term
        assert torch.equal(torch.isfinite(ours), torch.isfinite(truth))
        for g, e in zip(ours_gradients, gradients, strict=True):
            assert torch.isfinite(e).all() or not torch.isfinite(g).all()


def test_shared_rows_and_views_are_taken_as_they_are():
    family = make_family("bernoulli")
    x, parameters, _ = problem(family, (3, 6, 5, 8, 1))
    shared = x[:1].expand(3, -1, -1)
    W = parameters.W.clone().requires_grad_()
    tied = parameters._replace(W=W, V=W.unsqueeze(-1))
    found = []
    for backend in (vectorised, cpu):
        terms = backend.log_conditionals(Batch(shared), tied, Spec(family, "sigmoid"))
        found.append((terms.detach(), torch.autograd.grad(terms.sum(), W)[0]))
    for ours, expected in zip(found[1], found[0], strict=True):
        assert_close(ours, expected)
    turned = parameters._replace(
        V=parameters.V.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    )
    columns = x.transpose(1, 2).contiguous().transpose(1, 2)
    assert_close(
        cpu.log_conditionals(Batch(columns), turned, Spec(family, "relu")),
        vectorised.log_conditionals(Batch(x), turned, Spec(family, "relu")),
    )


@pytest.mark.parametrize("B", [0, 1])
def test_few_rows(B):
    family = make_family("gaussian", 2)
    x, parameters, _ = problem(family, (2, B, 3, 4, 2))
    terms, gradients = value_and_gradients(cpu, x, parameters, family, "relu")
    expected, expected_gradients = value_and_gradients(vectorised, x, parameters, family, "relu")
    assert terms.shape == expected.shape
    for g, e in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(g, e)
    x = cpu.sample(B, parameters, Spec(family, "relu"), generator=torch.Generator())
    assert x.shape == (2, B, 3)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_follow_the_density(name, dtype):
    family = make_family(name, 3)
    size = (2, 0, 5, 9, 3)
    _, parameters, order = problem(family, size, floor=True, order=True, dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    x = cpu.sample(4000, parameters, Spec(family, "relu"), order=order, generator=generator)
    z = vectorised.outputs(Batch(x, order=order), parameters, Spec(family, "relu"))  # (M, D, n, P)
    floor = parameters.log_floor[:, :, None]
    for m, d in itertools.product(range(2), range(5)):
        x_d, z_d, floor_d = x[m, :, d], z[m, d], floor[m, d]
        if name == "bernoulli":
            p = torch.sigmoid(z_d[:, 0])
            assert set(x_d.tolist()) <= {0.0, 1.0}
            deviation = (x_d - p).sum() / (p * (1 - p)).sum().sqrt()
            assert abs(deviation) < 4
        else:
            u = family.cdf(x_d, z_d, floor_d)
            assert scipy.stats.kstest(u.double().numpy(), "uniform").pvalue > 1e-4


def test_same_seed_same_samples_whatever_the_threads():
    family = make_family("laplace", 3)
    _, parameters, order = problem(family, (2, 0, 7, 40, 3), order=True, dtype=torch.float32)

    def draw(seed):
        generator = torch.Generator().manual_seed(seed)
        return cpu.sample(333, parameters, Spec(family, "relu"), order=order, generator=generator)

    many = draw(0)
    assert not torch.equal(many, draw(1))
    torch.set_num_threads(1)
    assert torch.equal(many, draw(0))


def test_samples_drawn_in_pieces_follow_the_density(monkeypatch):
    monkeypatch.setattr(chunks, "ELEMENTS", 2 * 5 * 1500)  # of two models, some rows at a time
    test_samples_follow_the_density("gaussian", torch.float64)


@serial
def test_samples_in_a_range():
    family = make_family("gaussian", 2)
    _, parameters, _ = problem(family, (1, 0, 3, 4, 2))
    low, high = torch.zeros(3).double(), torch.ones(3).double()
    generator = torch.Generator().manual_seed(0)
    x = cpu.sample(50, parameters, Spec(family, "relu"), generator=generator, low=low, high=high)
    assert ((low <= x) & (x <= high)).all()


@serial
def test_supports_says_why_not():
    family = make_family("gaussian", 2)
    _, parameters, _ = problem(family, (1, 1, 2, 3, 2))
    assert cpu.supports(parameters, Spec(family, "relu")) is None
    half = Parameters(*(t.half() for t in parameters.trained))
    assert "float16" in cpu.supports(half, Spec(family, "relu"))
    mixed = parameters._replace(c=parameters.c.float())
    assert "differ in dtype" in cpu.supports(mixed, Spec(family, "relu"))
    meta = Parameters(*(t.to("meta") for t in parameters.trained))
    assert "meta" in cpu.supports(meta, Spec(family, "relu"))
    deep = parameters._replace(U=torch.zeros(1, 1, 3, 3), u=torch.zeros(1, 1, 2, 3))
    deep = Parameters(*(None if t is None else t.double() for t in deep))
    assert "one hidden layer" in cpu.supports(deep, Spec(family, "relu"))

    class Poisson(type(family)):
        name = "poisson"

    assert "poisson" in cpu.supports(parameters, Spec(Poisson(2), "relu"))


def step(seed=0):
    """One gradient step of a model large enough to be split."""
    family = make_family("gaussian", 3)
    x, parameters, _ = problem(family, (1, 40, 37, 64, 3), seed=seed)
    return [g.numpy() for g in value_and_gradients(cpu, x, parameters, family, "relu")[1]]


@threaded
def test_several_python_threads_at_once():
    expected = [step(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(step, seed) for seed in range(4) for _ in range(5)]
        results = [future.result(timeout=60) for future in futures]
    for i, result in enumerate(results):
        for g, e in zip(result, expected[i // 5], strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-12, atol=1e-12)


@threaded
def test_joblib_workers():
    expected = step()
    results = joblib.Parallel(n_jobs=2, timeout=120)(joblib.delayed(_worker)() for _ in range(2))
    for result in results:
        for g, e in zip(result, expected, strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-10, atol=1e-12)


def _worker():
    launch.SMALL = 0
    torch.set_num_threads(2)
    return step()


@threaded
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_with_live_threads():
    expected = step()
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    busy, stop = threading.Event(), threading.Event()

    def keep_busy():
        while not stop.is_set():
            step()
            busy.set()

    other = threading.Thread(target=keep_busy)
    other.start()
    try:
        assert busy.wait(60)
        child = context.Process(target=_child, args=(queue,), daemon=True)
        child.start()
        child.join(60)
        assert child.exitcode == 0
    finally:
        stop.set()
        other.join()
        child.kill()
    inherited, total = queue.get()
    assert inherited == 0
    assert total == pytest.approx(float(sum(g.sum() for g in expected)))


def _child(queue):
    inherited = workers._pool.threads
    torch.set_num_threads(2)
    queue.put((inherited, float(sum(g.sum() for g in step()))))


def blas_threads():
    found = sorted((i["filepath"], i["num_threads"]) for i in threadpoolctl.threadpool_info())
    mkl = [s for s in torch.__config__.parallel_info().splitlines() if "mkl_get_max" in s]
    return [*found, *((line, None) for line in mkl)]


@threaded
def test_blas_threads_are_given_back():
    before = blas_threads(), torch.get_num_threads()
    step()
    assert (blas_threads(), torch.get_num_threads()) == before


@pytest.fixture
def scipy_blas(monkeypatch):
    """As on a machine whose torch has no MKL."""
    workers.gemm_address.cache_clear()
    monkeypatch.setattr(workers, "_mkl", lambda: None)
    yield
    workers.gemm_address.cache_clear()


@threaded
def test_without_mkl_scipy_blas_is_held_and_given_back(scipy_blas, monkeypatch):
    assert "SciPy" in workers.blas_name()
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        inside = []
        run = gradient.gradient

        def spy(*arguments):
            inside.extend(n for path, n in blas_threads() if "openblas" in path)
            return run(*arguments)

        monkeypatch.setattr(gradient, "gradient", spy)
        result = step()
        assert set(inside) == {1}
        assert blas_threads() == before
    workers.gemm_address.cache_clear()
    monkeypatch.undo()
    for g, e in zip(result, step(), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-10, atol=1e-10)


@threaded
def test_an_error_in_a_task_is_raised_and_blas_given_back():
    before = blas_threads()

    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        workers.run([fail] * 5, 3)
    assert blas_threads() == before


@threaded
def test_an_interruption_waits_for_threads_that_have_begun():
    """They write to the caller's memory."""
    begun, ended = threading.Event(), []

    def task():
        if threading.current_thread() is threading.main_thread():
            assert begun.wait(10)
        else:
            begun.set()
            time.sleep(0.4)
            ended.append(True)

    main = threading.main_thread().ident
    threading.Timer(0.2, signal.pthread_kill, [main, signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        workers.run([task] * 2, 2)
    assert ended


@threaded
def test_a_caller_does_not_wait_for_a_busy_thread(monkeypatch):
    monkeypatch.setattr(workers, "_pool", workers._Pool())
    free, done = threading.Event(), []
    workers._pool.submit(free.wait, os.cpu_count())
    workers.run([lambda: done.append(True)] * 3, 3)
    assert len(done) == 3
    free.set()


@threaded
def test_callers_at_the_same_time_have_threads_each(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    pool, free = workers._Pool(), threading.Event()
    for n_threads in (2, 4, 5):
        pool.submit(free.wait, 2)
        assert pool.threads == n_threads
    free.set()


@pytest.mark.parametrize("way", ["own", "blas"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_either_way_to_multiply(size, way, monkeypatch):
    """On every processor; which one is used is a matter of speed."""
    monkeypatch.setattr(products, "narrow_pays", lambda n_outputs: way == "own")
    test_value_and_gradients_follow_the_reference("gaussian", "relu", size)
    test_kernels_stay_within_their_room(size, monkeypatch)


@pytest.mark.parametrize("size", [*SIZES, (1, 70, 19, 512, 6), (1, 33, 9, 500, 11)], ids=str)
def test_kernels_stay_within_their_room(size, monkeypatch):
    given = []

    def guarded(n, dtype):
        room = torch.full((n + 4096,), 12345.0, dtype=dtype).numpy()
        given.append(room[n:])
        return room[:n]

    monkeypatch.setattr(memory, "workspace", guarded)
    for name, activation in [("gaussian", "relu"), ("bernoulli", "sigmoid")]:
        family = make_family(name, size[-1])
        x, parameters, _ = problem(family, size)
        value_and_gradients(cpu, x, parameters, family, activation)
        cpu.sample(70, parameters, Spec(family, activation), generator=torch.Generator())
    assert given
    assert all((beyond == 12345).all() for beyond in given)


@threaded
def test_new_sizes_compile_nothing():
    def signatures():
        kernels = (density.density, density.sample, gradient.gradient)
        found = [tuple(kernel.signatures) for kernel in (*kernels, gradient.join)]
        return found, len(calls._functions)

    def use(size, **settings):
        family = make_family("gaussian", size[-1])
        x, parameters, order = problem(family, size, **settings)
        value_and_gradients(cpu, x, parameters, family, "relu", order)
        value_and_gradients(cpu, x[:1].expand_as(x), parameters, family, "relu", order)
        cpu.sample(3, parameters, Spec(family, "relu"), order=order, generator=torch.Generator())

    use((2, 3, 4, 5, 2))
    before = signatures()
    use((1, 1, 1, 1, 1))
    use((3, 70, 33, 20, 4), order=True, floor=True)
    assert signatures() == before
    assert all(len(found) <= 2 for found in before[0])  # float32 and float64


@serial
def test_a_density_compiles_neither_the_way_back_nor_other_activations(monkeypatch):
    monkeypatch.setattr(calls, "_functions", {})
    monkeypatch.setattr(launch, "_addresses", launch._addresses.__wrapped__)
    family = make_family("gaussian", 2)
    x, parameters, _ = problem(family, (1, 4, 3, 5, 2))

    def names():
        return {key[0].__name__ for key in calls._functions}

    cpu.log_conditionals(Batch(x), parameters, Spec(family, "relu"))
    assert names() == {"epilogue", "advance"}
    value_and_gradients(cpu, x, parameters, family, "relu")
    assert names() == {"epilogue", "advance", "retreat", "_turn"}
    assert len(calls._functions) == 4  # of one activation each


COMPILED = """
def made(number):
    def add(to):
        to[0] = to[0] + number
    return add

def kernel(x):
    return x + 1
"""


@serial
def test_what_is_compiled_is_found_again(tmp_path, monkeypatch):
    """Also functions made for a number, as those of an activation are. No garbage is collected."""
    (tmp_path / "made.py").write_text(COMPILED)
    monkeypatch.syspath_prepend(tmp_path)
    collecting = []

    class Compiling(event.Listener):
        def on_start(self, event):
            collecting.append(gc.isenabled())

        def on_end(self, event):
            pass

    def use():  # as a new process would, with functions of its own
        monkeypatch.delitem(sys.modules, "made", raising=False)
        module = importlib.import_module("made")
        with event.install_listener("numba:run_pass", Compiling()):
            for number in (2, 3):
                place = np.zeros(1)
                address = calls.address_of(module.made(number), "p", place.dtype)
                ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(place.ctypes.data)
                assert place[0] == number
            assert calls.compiled(module.kernel)(1) == 2

    use()
    assert collecting
    assert not any(collecting)
    assert gc.isenabled()
    collecting.clear()
    use()
    assert not collecting


@serial
def test_kernels_work_where_nothing_can_be_cached():
    scope = {}
    exec("def double(x):\n    return 2 * x", scope)  # numba finds no file to cache it for
    assert calls.compiled(scope["double"])(3) == 6


def _exponentials(x, y, n):
    for i in range(0, n, lanes.LANES):
        lanes.store(y, i, lanes.exp(lanes.load(x, i)))


def _logarithms(x, y, n):
    for i in range(0, n, lanes.LANES):
        lanes.store(y, i, lanes.log(lanes.load(x, i)))


@functools.cache
def lanes_function(function, dtype):
    address = calls.address_of(function, "ppi", np.dtype(dtype))
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)

    def compute(x):
        x = np.ascontiguousarray(x, dtype)
        y = np.empty_like(x)
        call(x.ctypes.data, y.ctypes.data, x.size)
        return y

    return compute


@serial
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exp_and_log_to_the_last_place(dtype):
    rng = np.random.default_rng(0)
    low, high = (-86, 88) if dtype == np.float32 else (-707, 708)
    exp, log = lanes_function(_exponentials, dtype), lanes_function(_logarithms, dtype)
    for x in (rng.uniform(low, high, 16000), rng.uniform(-1, 1, 16000)):
        x = x.astype(dtype)
        truth = np.exp(x.astype(np.longdouble))
        assert (np.abs(exp(x) - truth) / np.spacing(truth.astype(dtype))).max() < 1.5
    for x in (np.exp(rng.uniform(low, high, 16000)), rng.uniform(0.5, 2, 16000)):
        x = x.astype(dtype)
        truth = np.log(x.astype(np.longdouble))
        assert (np.abs(log(x) - truth) / np.spacing(np.abs(truth.astype(dtype)))).max() < 1.5
    odd = np.zeros(16)
    odd[:5] = [np.nan, np.inf, -np.inf, -1000, 1000]
    np.testing.assert_array_equal(exp(odd)[:5], [np.nan, np.inf, 0, 0, np.inf])
    np.testing.assert_array_equal(log(np.full(16, np.nan)), np.full(16, np.nan))
    np.testing.assert_array_equal(log(np.full(16, np.inf)), np.full(16, np.inf))


LARGE = (1, 64, 32, 32)  # numbers enough to be worth keeping


def test_memory_is_given_out_again_once_nobody_holds_it():
    assert torch.Size(LARGE).numel() >= memory.WORTH_KEEPING
    first = memory.room(LARGE, torch.float32)
    place, view = first.data_ptr(), first[0, 3:]
    del first
    other = memory.room(LARGE, torch.float32)
    assert other.data_ptr() != place  # a view still holds it
    del view
    assert memory.room(LARGE, torch.float32).data_ptr() == place


def test_memory_of_another_size_or_precision_is_not_mistaken():
    memory.room(LARGE, torch.float32)  # and back at once
    for shape, dtype in [((2, *LARGE[1:]), torch.float32), (LARGE, torch.float64)]:
        room = memory.room(shape, dtype)
        assert room.shape == shape
        assert room.dtype == dtype


def test_memory_that_lies_ready_is_bounded():
    for n in range(3 * memory.MOST_KEPT):
        memory.room((memory.WORTH_KEEPING + n,), torch.float32)
    assert len(memory._ready) <= memory.MOST_KEPT + 1


def test_gradients_that_are_held_do_not_change_with_the_next_step():
    family, size = make_family("gaussian", 10), (1, 20, 16, 160, 10)
    x, parameters, _ = problem(family, size)
    leaves = [t.detach().requires_grad_() for t in parameters.trained]
    given = Parameters(*leaves, parameters.log_floor)
    assert leaves[3].numel() >= memory.WORTH_KEEPING

    def step(weight):
        weights = torch.full(x.shape[:2], weight, dtype=x.dtype)
        value = cpu.weighted_log_likelihood(Batch(x, weights), given, Spec(family, "relu"))
        return torch.autograd.grad(value.sum(), leaves)

    held = step(1.0)
    copies = [t.clone() for t in held]
    step(3.0)  # let go of at once
    again = step(2.0)
    for t, copy, twice in zip(held, copies, again, strict=True):
        assert torch.equal(t, copy)
        torch.testing.assert_close(twice, 2 * copy, rtol=1e-5, atol=1e-5 * copy.abs().max())


def test_threads_never_share_memory_that_they_hold():
    def work(number):
        for _ in range(50):
            room = memory.room(LARGE, torch.float32).fill_(number)
            if not bool((room == number).all()):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


@pytest.mark.parametrize("K", [1, 5, 7], ids=lambda K: f"K={K}")
def test_padded_copies_of_V_change_nothing(K, monkeypatch):
    family = make_family("gaussian", K)
    x, parameters, _ = problem(family, (2, 40, 5, 9, K))
    right = vectorised.log_conditionals(Batch(x), parameters, Spec(family, "relu"))

    def draws():
        generator = torch.Generator().manual_seed(0)
        return cpu.sample(30, parameters, Spec(family, "relu"), generator=generator)

    plain = draws()
    monkeypatch.setattr(launch, "PADDED_ROWS", 1)
    torch.testing.assert_close(
        cpu.log_conditionals(Batch(x), parameters, Spec(family, "relu")), right
    )
    torch.testing.assert_close(draws(), plain)


def test_rows_and_weights_of_another_precision_are_converted():
    family = make_family("gaussian", 3)
    x, parameters, _ = problem(family, (2, 9, 5, 7, 3))
    single = Parameters(*(t if t is None else t.float().requires_grad_() for t in parameters))
    weights = torch.linspace(0, 1, 18, dtype=torch.float64).view(2, 9)

    def gradients(dtype):
        batch = Batch(x.to(dtype), weights.to(dtype))
        value = cpu.weighted_log_likelihood(batch, single, Spec(family))
        return torch.autograd.grad(value.sum(), single.trained)

    right = gradients(torch.float32)
    for found, expected in zip(gradients(torch.float64), right, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    found, expected = (
        cpu.log_conditionals(Batch(x.to(dtype)), single, Spec(family)).detach()
        for dtype in (torch.float64, torch.float32)
    )
    torch.testing.assert_close(found, expected.double(), rtol=0, atol=0)


def test_parameters_of_several_precisions_are_refused():
    family = make_family("gaussian", 3)
    x, parameters, _ = problem(family, (1, 9, 5, 7, 3))
    mixed = parameters._replace(V=parameters.V.float())
    with pytest.raises(TypeError, match="one dtype; got torch.float64, .*torch.float32"):
        cpu.log_conditionals(Batch(x), mixed, Spec(family, "relu"))
