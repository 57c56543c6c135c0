"""Networks with residual layers: every backend against the reference, and every user of them.

The properties that all models share (integral, order, draws, banks) are tested over the table in
`conftest`, which has deep entries. Kernels run as in `test_gpu`.
"""

import json
import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Generator

from rnade import RNADE, RNADESearchCV, chunks, load
from rnade.backends import reference, threads, vectorised
from rnade.backends.gpu import api as gpu
from rnade.backends.gpu import layers
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec
from rnade.batch import Batch
from rnade.families import GaussianMixture
from rnade.nn import EnsembleModule, FVBNModule, RNADEModule
from rnade.training import MODERN, Bank, Member, ShuffledRows, train
from rnade.training.optim import gpu as gpu_update
from tests.conftest import FAMILIES
from tests.interpreter import assert_passes_under_the_interpreter
from tests.rounding import assert_accurate, textbook_and_truth
from tests.test_gpu import DEVICE, HAS_TRITON, INTERPRETING, UNITS, drawn, needs_kernels

# M, B, D, H, L: one of everything; a bank; more units than a tile; more rows than a block.
SIZES = {
    "ones": (1, 1, 1, 1, 1),
    "bank": (2, 5, 3, 5, 2),
    "tiles": (1, 17, 2, 67, 1),
    "blocks": (1, 33, 3, 16, 3),
    "whole": (1, 64, 2, 128, 2),
    "ragged": (1, 100, 2, 16, 2),
}
# Numbers of the hidden state that are stored at a time: 16 rows, and 80 of 100.
STORED = {"blocks": 1, "ragged": 80 * 2 * 16}
NAMES = ("x", "W", "c", "rho", "V", "b", "U", "u")


def draw(family, size, seed=0, floor=False):
    """Float64 rows, parameters and orders that float32 holds too."""
    M, B, D, H, L = SIZES[size]
    generator = Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator).double()

    P = family.n_outputs
    parameters = Parameters(
        W=0.5 * normal(M, D, H),
        c=0.5 * normal(M, H),
        rho=1 + 0.25 * normal(M, D),
        V=normal(M, D, H, P) / 2 ** round(np.log2(H) / 2),
        b=0.5 * normal(M, D, P),
        log_floor=normal(M, D) - 1 if floor else None,
        U=normal(M, L, H, H) / 2 ** round(np.log2(H) / 2),
        u=0.5 * normal(M, L, D, H),
    )
    x = normal(M, B, D)
    order = torch.stack([torch.randperm(D, generator=generator) for _ in range(M)])
    return (x > 0).double() if family.discrete else x, parameters, order


def with_gradients(function, x, parameters, *upstream):
    """What `function` gives and the gradients of `NAMES`."""
    leaves = [t.detach().clone().requires_grad_() for t in (x, *parameters.trained)]
    given = parameters._replace(**dict(zip(NAMES[1:], leaves[1:], strict=True)))
    value = function(leaves[0], given)
    return [value.detach(), *torch.autograd.grad(value, leaves, *upstream)]


# ---------------------------------------------------------------- the reference and plain torch


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("activation", ["relu", "sigmoid", "identity"])
def test_the_reference_agrees_with_finite_differences(name, activation):
    family = FAMILIES[name]
    x, parameters, order = draw(family, "bank", floor=True)
    batch, spec = Batch(x, order=order), Spec(family, activation)
    exact = reference.gradients(batch, parameters, spec)

    def total(**changed):
        given = batch._replace(x=changed.pop("x", x))
        return reference.log_conditionals(given, parameters._replace(**changed), spec).sum()

    rng = np.random.default_rng(7)
    for field in NAMES:
        value = x if field == "x" else getattr(parameters, field)
        for _ in range(3):
            direction, step = torch.tensor(rng.normal(size=value.shape)), 1e-6
            difference = (
                total(**{field: value + step * direction})
                - total(**{field: value - step * direction})
            ) / (2 * step)
            expected = (getattr(exact, field) * direction.numpy()).sum()
            assert difference == pytest.approx(expected, rel=1e-6, abs=1e-6), field


def test_linear_layers_make_a_gaussian():
    """With identity units, one component and constant scales the joint is Gaussian."""
    family = GaussianMixture(1)
    x, drawn, _ = draw(family, "blocks")
    drawn.V[..., [0, 2]] = 0
    p = Parameters(*(None if t is None else t[0].numpy() for t in drawn))
    D = len(p.W)
    through = np.linalg.multi_dot([np.eye(16) + U for U in p.U])
    A, m = np.zeros((D, D)), np.zeros(D)
    for d in range(D):
        bias = np.zeros(16)
        for U, u in zip(p.U, p.u, strict=True):
            bias = bias @ (np.eye(16) + U) + u[d]
        readout = p.V[d, :, 1]
        m[d] = p.b[d, 1] + (p.rho[d] * p.c @ through + bias) @ readout
        A[d, :d] = p.rho[d] * p.W[:d] @ through @ readout
    inverse = np.linalg.inv(np.eye(D) - A)
    joint = scipy.stats.multivariate_normal(
        inverse @ m, inverse @ np.diag(np.exp(2 * p.b[:, 2])) @ inverse.T
    )
    terms = reference.log_conditionals(Batch(x), drawn, Spec(family, "identity"))[0]
    np.testing.assert_allclose(terms.sum(1), joint.logpdf(x[0].numpy()), rtol=1e-8)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("activation", ["relu", "sigmoid", "identity"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("ordered", [False, True])
def test_values_and_gradients_agree_with_the_reference(name, activation, size, ordered):
    family = FAMILIES[name]
    x, parameters, order = draw(family, size, floor=ordered)
    order = order if ordered else None
    value, *gradients = with_gradients(
        lambda x, p: vectorised.log_conditionals(
            Batch(x, order=order), p, Spec(family, activation)
        ).sum((1, 2)),
        x,
        parameters,
        torch.ones(len(x), dtype=torch.float64),
    )
    given = Batch(x, order=order), parameters, Spec(family, activation)
    terms, expected = reference.log_conditionals(*given), reference.gradients(*given)
    np.testing.assert_allclose(value, terms.sum((1, 2)), rtol=1e-10)
    for field, g in zip(NAMES, gradients, strict=True):
        right = getattr(expected, field)
        scale = max(1, np.abs(right).max())
        np.testing.assert_allclose(g / scale, right / scale, atol=1e-9, err_msg=field)


def test_gradient_is_exact_by_gradcheck():
    family = FAMILIES["gaussian-1"]
    x, parameters, _ = draw(family, "bank")
    leaves = [t[:1, :2].clone().requires_grad_() for t in (x,)]
    leaves += [t[:1].clone().requires_grad_() for t in parameters.trained]

    def function(x, *t):
        p = parameters._replace(**dict(zip(NAMES[1:], t, strict=True)))
        return vectorised.log_conditionals(Batch(x), p, Spec(family, "sigmoid"))

    assert torch.autograd.gradcheck(function, leaves)


def test_layers_that_do_nothing_leave_a_linear_network():
    module = RNADEModule(
        4, 6, GaussianMixture(2), n_layers=3, generator=Generator().manual_seed(0)
    )
    module = module.double()
    with torch.no_grad():
        module.U.zero_()
    p = module.tied_parameters()
    x = torch.randn(5, 4, generator=Generator().manual_seed(1), dtype=torch.float64)
    linear = vectorised.log_conditionals(
        Batch(x[None]), p._replace(U=None, u=None), Spec(module.family, "identity")
    )
    torch.testing.assert_close(module.log_conditionals(x), linear[0])


# ---------------------------------------------------------------- kernels


@pytest.mark.skipif(INTERPRETING, reason="this is the inner run")
@pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")
def test_kernels_under_the_interpreter():
    assert_passes_under_the_interpreter(__file__, "-k", "kernel", more_than=5)


def moved(t):
    if t is None:
        return None
    return t.to(DEVICE) if t.dtype == torch.int64 else t.to(DEVICE, torch.float32)


@needs_kernels
@pytest.mark.parametrize(
    ("name", "activation", "size", "weighted"),
    [
        *(("gaussian-4", "relu", size, True) for size in SIZES),
        ("laplace-4", "sigmoid", "blocks", True),
        ("gaussian-1", "sigmoid", "bank", False),
        ("bernoulli", "identity", "bank", False),
    ],
)
def test_kernel_values_and_gradients(name, activation, size, weighted, monkeypatch):
    """Also in chunks of rows that are summed, for sizes of more than one block."""
    family = FAMILIES[name]
    x, parameters, order = draw(family, size, floor=size == "blocks")
    if size in STORED:
        monkeypatch.setattr(chunks, "STORED_ELEMENTS", STORED[size])
    weights = drawn(torch.rand, x.shape[:2])
    upstream = drawn(torch.randn, x.shape[:1] if weighted else x.shape)

    def by(backend, weights, order):
        def function(x, p):
            if weighted:
                return backend.weighted_log_likelihood(
                    Batch(x, weights, order=order), p, Spec(family, activation)
                )
            return backend.log_conditionals(Batch(x, order=order), p, Spec(family, activation))

        return function

    plain = by(vectorised, weights, order)
    measure = textbook_and_truth(with_gradients, plain, x, parameters, upstream)
    single = Parameters(*map(moved, parameters))
    arguments = (moved(x), single, moved(upstream))
    settings = (moved(weights), moved(order))
    got = with_gradients(by(gpu, *settings), *arguments)
    assert_accurate(got, *measure, ("value", *NAMES), UNITS)
    again = with_gradients(by(gpu, *settings), *arguments)
    assert all(torch.equal(a, b) for a, b in zip(got, again, strict=True))


@needs_kernels
@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 0.01), ("bf16", 0.05)])
def test_kernel_precisions(precision, tolerance):
    family = FAMILIES["gaussian-4"]
    x, parameters, order = draw(family, "tiles")
    weights = torch.ones(x.shape[:2], dtype=torch.float64)

    def by(module, weights, order, **more):
        def function(x, p):
            return module.weighted_log_likelihood(
                Batch(x, weights, order=order), p, Spec(family, "relu", **more)
            )

        return function

    right = with_gradients(by(vectorised, weights, order), x, parameters)
    got = with_gradients(
        by(gpu, moved(weights), moved(order), backend=f"gpu-{precision}"),
        moved(x),
        Parameters(*map(moved, parameters)),
    )
    for what, a, b in zip(("value", *NAMES), got, right, strict=True):
        error = ((a.cpu().double() - b).norm() / b.norm()).item()
        assert error < tolerance, what
        if precision == "bf16" and what == "U":
            assert error > 1e-5  # it did round


@needs_kernels
def test_kernel_stream_is_bounded_but_passes_nan_on():
    """Where products are in bf16 the stream is float16, which ends at 65,504."""
    family = FAMILIES["gaussian-4"]
    x, parameters, _ = draw(family, "blocks")
    spec = Spec(family, "relu", backend="gpu-bf16")
    for t in (parameters.U, parameters.V):
        t[..., 0, :] = 0  # nobody reads the first unit
    values = []
    for c in (0.0, 1e6):
        parameters.c[0, 0] = c
        single = Parameters(*map(moved, parameters))
        values.append(gpu.log_conditionals(Batch(moved(x)), single, spec))
    torch.testing.assert_close(values[1], values[0])
    a = torch.zeros(1, 3, 2, 16, dtype=torch.float16, device=DEVICE)
    a[0, 0, 0, 5] = math.nan
    s, _ = layers.forward(a, a.to(torch.bfloat16), single, spec, recorded=False)
    assert s[0, 0, 0].isnan().all()
    assert s[0, :, 1].isfinite().all()


@needs_kernels
def test_kernel_scores_without_a_gradient_and_draws():
    family = FAMILIES["gaussian-4"]
    x, parameters, order = draw(family, "blocks")
    single = Parameters(*map(moved, parameters))
    with torch.no_grad():
        rows = gpu.log_prob(Batch(moved(x), order=moved(order)), single, Spec(family, "relu"))
        expected = vectorised.log_conditionals(
            Batch(x, order=order), parameters, Spec(family, "relu")
        ).sum(-1)
        torch.testing.assert_close(rows.cpu().double(), expected, rtol=1e-4, atol=1e-4)
        drawn = gpu.sample(
            7, single, Spec(family, "relu"), generator=Generator(DEVICE).manual_seed(0)
        )
    assert drawn.shape == (1, 7, 3)


@needs_kernels
def test_kernel_products_leave_torch_settings_alone():
    torch_settings = torch.backends.cuda.matmul
    before = torch_settings.fp32_precision
    family = FAMILIES["gaussian-1"]
    x, parameters, _ = draw(family, "ones")
    single = Parameters(*map(moved, parameters))
    gpu.log_conditionals(Batch(moved(x)), single, Spec(family, "relu", backend="gpu-tf32"))
    assert torch_settings.fp32_precision == before


@needs_kernels
@pytest.mark.parametrize("backend", ["gpu", "gpu-bf16"])
def test_kernel_training_agrees_with_plain_torch(backend):
    """Value, gradient and update by kernels, on a GPU from a CUDA graph."""
    x = torch.randn(40, 3, generator=Generator().manual_seed(0))
    recipe = MODERN.with_changes(epochs=2, batches_per_epoch=3, batch_size=10)

    def trained(backend, device):
        module = make(backend=backend).to(device)
        module.start_from(x.to(device))
        train(module, x.to(device), recipe, generator=Generator().manual_seed(1))
        return module

    ours = trained(backend, DEVICE)
    assert gpu_update.serves(list(ours.parameters()))
    theirs = trained("vectorised", "cpu")
    tolerance = 1e-3 if backend == "gpu" else 0.1
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p.cpu(), q, rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------- modules and training


def make(seed=0, **options):
    options = {"n_layers": 3, **options}
    generator = Generator().manual_seed(seed)
    return RNADEModule(3, 5, GaussianMixture(2), generator=generator, **options)


def test_the_choice_of_backend_gives_its_reason():
    choice = make().backend_choice()
    assert choice.name == "vectorised"
    assert "one hidden layer and this network has more" in choice.reason
    with pytest.raises(ValueError, match="'cpu' was asked for, but the CPU kernels have one"):
        make(backend="cpu").log_prob(torch.zeros(1, 3))


def test_scores_are_made_in_chunks(monkeypatch):
    module = make().double()
    x = torch.randn(50, 3, generator=Generator().manual_seed(0), dtype=torch.float64)
    expected = module.log_prob(x).detach()
    sizes = []
    plain = vectorised.log_conditionals

    def counted(batch, *arguments):
        sizes.append(batch.x.shape[1])
        return plain(batch, *arguments)

    monkeypatch.setattr(vectorised, "log_conditionals", counted)
    monkeypatch.setattr(chunks, "ELEMENTS", 20 * 3 * 5)
    with torch.no_grad():
        torch.testing.assert_close(module.log_prob(x), expected)
    assert sizes == [20, 20, 10]


@pytest.mark.parametrize("n", [0, -1, 1.5])
def test_layers_are_counted_from_one(n):
    with pytest.raises(ValueError, match=f"n_layers must be a whole number >= 1; got {n}"):
        make(n_layers=n)


def test_one_layer_has_no_more_parameters_than_before():
    names = [name for name, _ in make(n_layers=1).named_parameters()]
    assert names == ["W", "c", "rho", "V", "b"]
    assert dict(make(n_layers=3).named_parameters())["U"].shape == (1, 2, 5, 5)
    assert dict(make(n_layers=3).named_parameters())["u"].shape == (1, 2, 3, 5)


def test_models_of_different_depth_share_no_bank_but_an_ensemble():
    shallow, deep = make(n_layers=2), make(n_layers=3)
    with pytest.raises(ValueError, match="Expected models of one kind and shape"):
        RNADEModule.stack([shallow, deep])
    x = torch.randn(4, 3, generator=Generator().manual_seed(0))
    mean = EnsembleModule.of([shallow, deep]).log_prob(x).exp()
    expected = (shallow.log_prob(x).exp() + deep.log_prob(x).exp()) / 2
    torch.testing.assert_close(mean, expected)


def test_training_fits_a_curve():
    """Held-out rows of a noisy sine, whose conditional density is known."""
    generator = Generator().manual_seed(0)
    a = 4 * torch.rand(3000, 1, generator=generator) - 2
    x = torch.cat([a, torch.sin(3 * a) + 0.2 * torch.randn(3000, 1, generator=generator)], 1)
    module = RNADEModule(
        2, 16, GaussianMixture(2), n_layers=3, generator=Generator().manual_seed(1)
    )
    module.start_from(x)
    recipe = MODERN.with_changes(epochs=12, learning_rate=0.01)
    train(module, x[:2000], recipe, generator=Generator().manual_seed(2))
    with torch.no_grad():
        fitted = module.log_conditionals(x[2000:])[:, 1].mean().item()
    truth = -scipy.stats.norm(scale=0.2).entropy()
    assert truth - 0.15 < fitted < truth + 0.1


def test_training_goes_on_from_a_checkpoint(tmp_path):
    x = torch.randn(60, 3, generator=Generator().manual_seed(0))
    member = Member(make(), MODERN.with_changes(epochs=4), ShuffledRows(x, 1))
    whole, killed, resumed = (
        Bank([member], checkpoint=tmp_path / name, checkpoint_every=0.0)
        for name in ("whole", "killed", "killed")
    )
    whole.advance()
    killed.advance(share=0.5)
    resumed.advance()
    assert resumed.epochs_done == 4
    for p, q in zip(*(b.results()[0].module.parameters() for b in (whole, resumed)), strict=True):
        assert torch.equal(p, q)


# ---------------------------------------------------------------- estimator, search, command line

QUICK = {"n_hidden": 4, "n_components": 2, "epochs": 2, "random_state": 0, "device": "cpu"}
X = np.random.default_rng(0).normal(size=(80, 3))


def test_the_estimator_averages_deep_models():
    model = RNADE(n_layers=2, **QUICK).fit(X)
    assert isinstance(model.module_, EnsembleModule)
    assert model.module_.member(0).n_layers == 2
    assert model.log_conditionals(X).sum(1) == pytest.approx(model.score_samples(X))
    drawn = model.sample(5, random_state=0)
    assert drawn.shape == (5, 3)


def test_a_search_over_the_number_of_layers():
    search = RNADESearchCV(RNADE(**QUICK), {"n_layers": [1, 2]}, cv=2, random_state=0).fit(X)
    assert search.cv_results_["param_n_layers"].tolist() == [1, 2]
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.module_ is not None


def test_the_command_line(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from rnade.cli.app import app

    monkeypatch.chdir(tmp_path)
    np.savetxt("t.csv", X, delimiter=",", header="a,b,c", comments="")
    options = "--n-layers 3 --n-hidden 4 --epochs 2 --random-state 0 --device cpu --no-ensemble -q"
    runner = CliRunner()
    fitted = runner.invoke(app, ["fit", "t.csv", *options.split()])
    assert fitted.exit_code == 0, fitted.output
    assert load("t.rnade").module_.n_layers == 3
    told = json.loads(runner.invoke(app, ["info", "t.rnade", "--json"]).stdout)
    assert told["settings"]["n_layers"] == 3


@pytest.mark.parametrize(("few", "expected"), [(0, 2), (2**62, 1)])
def test_torch_has_threads_where_its_products_are_worth_it(few, expected, monkeypatch):
    monkeypatch.setattr(threads, "FEW_PRODUCTS", few)
    module = RNADEModule(
        3, 8, GaussianMixture(2), n_layers=2, generator=Generator().manual_seed(0)
    )
    seen, before = [], torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        train(
            module,
            torch.randn(40, 3, generator=Generator().manual_seed(1)),
            MODERN.with_changes(epochs=1),
            generator=Generator().manual_seed(2),
            on_epoch=lambda row: seen.append(torch.get_num_threads()),
        )
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {expected}


def test_products_that_are_left_to_torch():
    def made(n_layers):
        return RNADEModule(3, 4, GaussianMixture(2), n_layers=n_layers, n_models=5)

    assert made(1).n_torch_products(10) == 0
    assert made(3).n_torch_products(10) == 5 * 10 * 3 * 2 * 4 * 4
    assert FVBNModule(3, 4, GaussianMixture(2)).networks.n_torch_products(10) == 10 * 3 * 4 * (
        3 + 6
    )
