"""Scores and draws in the precision that was asked for, on the CPU and on a GPU."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from rnade import FVBN, FVSBN, NADE, RNADE, MixtureOfGaussians, load
from rnade.estimators.scoring import LARGEST_DIFFERENCE, SINGLE_ROWS

QUICK = {"n_hidden": 8, "epochs": 4, "random_state": 0}
MODELS = {
    "rnade": RNADE(n_components=3, ensemble=None, **QUICK),
    "rnade-average": RNADE(n_components=2, **QUICK),
    "rnade-laplace": RNADE(family="laplace", n_components=3, ensemble=None, **QUICK),
    "rnade-deep": RNADE(n_layers=3, n_components=2, ensemble=None, **QUICK),
    "nade": NADE(**QUICK),
    "fvsbn": FVSBN(epochs=4, random_state=0),
    "fvbn": FVBN(n_components=2, **QUICK),
    "mog": MixtureOfGaussians(2, random_state=0),
}
GRADIENT = [name for name in MODELS if name != "mog"]


def gpu(test):
    """Mark a test that needs a CUDA device."""
    missing = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    return pytest.mark.gpu(missing(test))


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    a, b, c = rng.normal(size=(3, n))
    return np.column_stack([50 + 3 * a, a**2 + b, 0.001 * (c - b)])


def fitted(name, device, **settings):
    return clone(MODELS[name]).set_params(device=device, **settings).fit(rows(400))


@pytest.mark.parametrize("name", GRADIENT)
def test_float32_scores_are_near_float64_ones(name):
    X = rows(300, seed=1)
    exact, fast = (fitted(name, "cpu", score_dtype=kind) for kind in ("float64", "float32"))
    np.testing.assert_allclose(fast.score_samples(X), exact.score_samples(X), rtol=0, atol=1e-4)
    np.testing.assert_allclose(
        fast.log_conditionals(X).sum(1), fast.score_samples(X), rtol=0, atol=1e-4
    )
    assert fast.score_samples(X).dtype == fast.sample(3).dtype == np.float64


def test_a_cpu_scores_in_float64_unless_told_otherwise():
    X = rows(SINGLE_ROWS + 1, seed=1)
    auto, exact = (fitted("rnade", "cpu", score_dtype=kind) for kind in ("auto", "float64"))
    np.testing.assert_array_equal(auto.score_samples(X), exact.score_samples(X))


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="Unknown score_dtype 'float16'"):
        fitted("rnade", "cpu", score_dtype="float16")


# ---------------------------------------------------------------- on a GPU


@gpu
@pytest.mark.parametrize("name", MODELS)
def test_large_tables_are_scored_on_a_gpu_as_on_the_cpu(name, tmp_path):
    """In float32 where there are many rows, and within the difference that is allowed."""
    model = fitted(name, "cuda")
    model.save(tmp_path / "model.rnade")
    other = load(tmp_path / "model.rnade", device="cpu")
    for n in (100, SINGLE_ROWS + 100):
        X = rows(n, seed=1)
        allowed = 1e-9 if n == 100 or name == "mog" else 3 * LARGEST_DIFFERENCE
        np.testing.assert_allclose(
            model.score_samples(X), other.score_samples(X), rtol=0, atol=allowed
        )
        np.testing.assert_allclose(
            model.log_conditionals(X), other.log_conditionals(X), rtol=0, atol=allowed
        )
        assert ((model.pvalue(X) > 0) & (model.pvalue(X) <= 1)).all()


@gpu
@pytest.mark.parametrize("name", [name for name in GRADIENT if name != "fvbn"])
def test_large_tables_reach_the_fused_kernels(name):
    model = fitted(name, "cuda")
    module = model._module_for(rows(SINGLE_ROWS), lambda module, x: module.log_prob(x))
    assert module.dtype == torch.float32
    one = module.member(0) if name.endswith("average") else module
    assert one.backend_choice().name == "gpu"
    few = model._module_for(rows(SINGLE_ROWS - 1), lambda module, x: module.log_prob(x))
    assert few.dtype == torch.float64


@gpu
def test_float64_is_kept_where_float32_is_too_coarse():
    """Components of a few ten-thousandths of a column's deviation, far from its mean."""
    model = fitted("rnade", "cuda")
    with torch.no_grad():
        model.module_.b[:, :, 6:] = -9.0
        model.module_.V.zero_()
    X = rows(SINGLE_ROWS)
    module = model._module_for(X, lambda module, x: module.log_prob(x))
    assert module.dtype == torch.float64


@gpu
@pytest.mark.parametrize("backend", ["gpu", "gpu-tf32", "gpu-bf16", "vectorised"])
@pytest.mark.parametrize("ensemble", ["auto", None])
def test_every_backend_trains_an_estimator_that_scores(backend, ensemble, tmp_path):
    model = fitted("rnade", "cuda", backend=backend, ensemble=ensemble)
    X = rows(SINGLE_ROWS + 10, seed=1)
    scores = model.score_samples(X)
    assert np.isfinite(scores).all()
    assert model.sample(SINGLE_ROWS, 0).shape == (SINGLE_ROWS, 3)
    model.save(tmp_path / "model.rnade")
    again = load(tmp_path / "model.rnade", device="cuda")
    np.testing.assert_allclose(again.score_samples(X), scores, rtol=0, atol=1e-9)


@gpu
@pytest.mark.parametrize("name", GRADIENT)
def test_large_samples_come_from_the_density(name):
    """Their mean log density is that of small samples, drawn in float64."""
    model = fitted(name, "cuda")
    large = model.score_samples(model.sample(5 * SINGLE_ROWS, 0))
    small = np.concatenate(
        [model.score_samples(model.sample(SINGLE_ROWS - 1, seed)) for seed in range(1, 6)]
    )
    error = np.hypot(large.std() / np.sqrt(len(large)), small.std() / np.sqrt(len(small)))
    assert abs(large.mean() - small.mean()) < 4.5 * error


@gpu
@pytest.mark.changes_global_state
@pytest.mark.filterwarnings("ignore::rnade.exceptions.SpikeWarning")
@pytest.mark.filterwarnings("ignore::rnade.exceptions.TrainingWarning")
@parametrize_with_checks(
    [
        RNADE(n_hidden=4, n_components=2, epochs=2, random_state=0),
        RNADE(n_hidden=4, n_components=2, epochs=2, backend="gpu-bf16", ensemble=None),
        NADE(n_hidden=4, epochs=2),
        FVBN(n_hidden=4, n_components=2, epochs=2),
    ]
)
def test_scikit_learn_contract_on_a_gpu(estimator, check):
    check(estimator)
