"""The estimators of the baselines: what they give, their searches, and data that is degenerate."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Generator

from rnade import FVBN, Gaussian, MixtureOfFactorAnalyzers, MixtureOfGaussians
from rnade.exceptions import SingularDataError, SpikeWarning
from rnade.families import GaussianMixture
from rnade.nn import FVBNModule

QUICK = {"random_state": 0, "device": "cpu"}


def make_X(n=400, D=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)) @ rng.normal(size=(D, D)) + rng.normal(size=D)
    X[: n // 3] = X[: n // 3] @ rng.normal(size=(D, D)) - 5
    return X * np.logspace(0, 3, D)


# ------------------------------------------------------------------ Gaussian


def test_gaussian_is_mean_and_covariance_of_all_rows():
    X = make_X()
    model = Gaussian(**QUICK).fit(X)
    np.testing.assert_allclose(model.mean_, X.mean(0))
    np.testing.assert_allclose(model.covariance_, np.cov(X.T, bias=True))
    expected = scipy.stats.multivariate_normal(X.mean(0), np.cov(X.T, bias=True)).logpdf(X)
    np.testing.assert_allclose(model.score_samples(X), expected)
    assert model.held_out_score().n_rows == 40


def test_gaussian_weights_are_repeats():
    X = make_X(60)
    weights = np.repeat([1.0, 3.0], 30)
    weighted = Gaussian(**QUICK).fit(X, sample_weight=weights)
    repeated = np.concatenate([X, X[30:], X[30:]])
    np.testing.assert_allclose(weighted.mean_, repeated.mean(0))
    np.testing.assert_allclose(weighted.covariance_, np.cov(repeated.T, bias=True))


def test_gaussian_held_out_rows_are_not_trained_on():
    X = make_X(50)
    model = Gaussian(retrain=False, **QUICK).fit(X)
    outside = model.validation_scores_
    assert len(outside) == 5
    assert not np.allclose(model.mean_, X.mean(0))


def test_gaussian_shrinkage_and_floor():
    X = make_X()
    correlation = np.corrcoef(X.T)
    shrunk = Gaussian(shrinkage=0.25, **QUICK).fit(X).covariance_
    deviation = np.sqrt(np.diag(shrunk))
    np.testing.assert_allclose(deviation, X.std(0))
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(
        (shrunk / deviation / deviation[:, None])[off], 0.75 * correlation[off]
    )
    floored = Gaussian(sigma_floor=0.7, **QUICK).fit(X).covariance_ / np.outer(X.std(0), X.std(0))
    assert np.linalg.eigvalsh(correlation).min() < 0.45
    assert np.linalg.eigvalsh(floored).min() == pytest.approx(0.49)


@pytest.mark.filterwarnings("ignore:.* rows are too few")
def test_gaussian_explains_singular_data():
    X = make_X(100)
    X = np.column_stack([X, X[:, 0] - 2 * X[:, 1], X[:, 2]])
    with pytest.raises(
        SingularDataError,
        match="no inverse: column 3, column 4 can be computed exactly from the columns before."
        " Leave out such columns, or set shrinkage or sigma_floor above 0.",
    ):
        Gaussian(**QUICK).fit(X)
    for remedy in ({"shrinkage": 0.01}, {"sigma_floor": 0.01}):
        model = Gaussian(**remedy, **QUICK).fit(X)
        assert np.isfinite(model.score_samples(X)).all()
    with pytest.raises(SingularDataError, match="4 training rows .* too few .* at least 6 are"):
        Gaussian(**QUICK).fit(X[:5])


# ------------------------------------------------------------------ mixtures


def test_mixture_parameters_are_in_the_datas_units():
    rng = np.random.default_rng(0)
    a = rng.multivariate_normal([0, 1000], [[1, 5], [5, 100]], size=4000)
    b = rng.multivariate_normal([50, 0], [[4, 0], [0, 25]], size=1000)
    for model in (
        MixtureOfGaussians(2, **QUICK),
        MixtureOfFactorAnalyzers(2, 1, tol=1e-7, max_iter=1000, **QUICK),
    ):
        model.fit(np.concatenate([a, b]))
        first = int(model.weights_.argmax())
        assert model.weights_[first] == pytest.approx(0.8, abs=0.02)
        np.testing.assert_allclose(model.means_[first], [0, 1000], atol=1)
        np.testing.assert_allclose(
            model.covariances_[first], [[1, 5], [5, 100]], rtol=0.1, atol=0.2
        )
        np.testing.assert_allclose(
            model.covariances_[1 - first], [[4, 0], [0, 25]], rtol=0.1, atol=1
        )


def test_search_takes_the_best_size_on_held_out_rows():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(8 * k, 1, size=(200, 2)) for k in range(4)])
    model = MixtureOfGaussians([1, 2, 4], **QUICK).fit(X)
    scores = {row["n_components"]: row["validation"] for row in model.search_}
    assert model.n_components_ == 4
    assert max(scores, key=scores.get) == 4
    assert model.module_.n_components == 4
    best = model.history_[model.best_epoch_]["validation"]
    assert best == scores[4]


@pytest.mark.filterwarnings("ignore:.* rows are too few")
def test_search_ranges_are_the_papers():
    X = make_X(300, D=5)
    model = MixtureOfFactorAnalyzers("search", "search", max_iter=1, **QUICK).fit(X)
    tried = {(row["n_components"], row["n_factors"]) for row in model.search_}
    assert tried == {(K, q) for K in range(2, 51, 2) for q in (2, 4)}
    few = MixtureOfGaussians("search", max_iter=1, **QUICK).fit(X[:12])
    assert [row["n_components"] for row in few.search_] == [2, 4]
    single = MixtureOfFactorAnalyzers(1, "search", max_iter=1, **QUICK).fit(X[:, :1])
    assert single.n_factors_ == 1


def test_restarts_keep_the_best():
    X = make_X(300)
    best = MixtureOfGaussians(4, n_init=5, init="random", **QUICK).fit(X)
    one = MixtureOfGaussians(4, n_init=1, init="random", **QUICK).fit(X)
    assert best.held_out_score().mean >= one.held_out_score().mean - 1e-9
    assert isinstance(best.history_[-1]["train"], float)


def test_retraining_uses_all_rows():
    X = make_X(300)
    model = MixtureOfGaussians(3, retrain=True, **QUICK).fit(X)
    target = model.history_[model.best_epoch_]["train"]
    assert model.retrain_history_[-1]["train"] >= target or len(model.retrain_history_) > 1


def test_row_weights_steer_the_fit():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-3, 1, size=(150, 2)), rng.normal(3, 1, size=(150, 2))])
    weights = np.repeat([1e-4, 1.0], 150)
    for model in (MixtureOfGaussians(2, **QUICK), MixtureOfFactorAnalyzers(2, **QUICK)):
        model.fit(X, sample_weight=weights)
        assert model.sample(500, random_state=0).mean() > 2


def test_samples_follow_the_density():
    model = MixtureOfGaussians(3, **QUICK).fit(make_X(600))
    X = model.sample(4000, random_state=0)
    fractions = model.weights_ @ model.means_
    np.testing.assert_allclose(X.mean(0), fractions, atol=5 * X.std(0).max() / math.sqrt(4000))
    # Entropy: the mean log density of draws is the same for two independent sets of them.
    other = model.sample(4000, random_state=1)
    assert model.score(X) == pytest.approx(model.score(other), abs=0.1)


def rounded(X):
    return np.round(X[:, :2])


DEGENERATE = {
    "duplicated rows": lambda X: np.repeat(X[:10], 20, axis=0),
    "two distinct rows": lambda X: np.repeat(X[:2], 30, axis=0),
    "collinear": lambda X: np.column_stack([X, X[:, 0] + X[:, 1]]),
    "copied column": lambda X: np.column_stack([X, X[:, 0]]),
    "fewer rows than components": lambda X: X[:6],
    "two rows": lambda X: X[:2],
    "rounded": rounded,
    "one column": lambda X: X[:, :1],
    "outlier": lambda X: np.concatenate([X, [[1e8, -1e8, 1e8]]]),
}


@pytest.mark.filterwarnings("ignore::rnade.exceptions.SpikeWarning")
@pytest.mark.filterwarnings("ignore:.* rows are too few")
@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize(
    "model",
    [
        MixtureOfGaussians(8, **QUICK),
        MixtureOfGaussians(8, init="random", n_init=2, dtype="float32", **QUICK),
        MixtureOfGaussians(8, batch_size=20, max_iter=50, **QUICK),
        MixtureOfFactorAnalyzers(8, 1, **QUICK),
        MixtureOfFactorAnalyzers(8, "search", max_iter=30, **QUICK),
    ],
    ids=["mog", "mog-float32", "mog-minibatch", "mfa", "mfa-search"],
)
def test_degenerate_data_gives_a_usable_model(name, model):
    X = DEGENERATE[name](make_X(200))
    model.fit(X)
    assert np.isfinite(model.score_samples(X)).all()
    assert np.isfinite(model.sample(20, random_state=0)).all()
    assert all(np.isfinite(row["train"]) for row in model.history_)


def test_constant_columns_are_named():
    X = make_X(50)
    X[:, 1] = 4
    for model in (Gaussian(), MixtureOfGaussians(2), MixtureOfFactorAnalyzers(2), FVBN()):
        with pytest.raises(ValueError, match="X is constant in column 1"):
            model.fit(X)


def test_spikes_are_told_without_remedies_that_are_not_there():
    X = np.round(make_X(100)[:, 1:])
    with pytest.warns(SpikeWarning, match="column's resolution.$"):
        MixtureOfGaussians(2, **QUICK).fit(X)
    with pytest.warns(SpikeWarning, match="dequantize=True spreads"):
        FVBN(epochs=1, **QUICK).fit(X)


BAD = {
    "components": (MixtureOfGaussians(0), "n_components must be a whole number >= 1; got 0"),
    "word": (MixtureOfGaussians("many"), "n_components must be .* or 'search'; got 'many'"),
    "list": (MixtureOfFactorAnalyzers([2, -1]), "n_components must be .* got -1"),
    "factors": (MixtureOfFactorAnalyzers(2, 4), "n_factors must be at most .* 3; got 4"),
    "init": (MixtureOfGaussians(init="best"), "Unknown init 'best'"),
    "restarts": (MixtureOfGaussians(n_init=0), "n_init must be a whole number >= 1"),
    "floor": (MixtureOfGaussians(sigma_floor="low"), "sigma_floor must be 'auto' or a number"),
    "shrinkage": (Gaussian(shrinkage=2), "shrinkage must be a number >= 0 and <= 1; got 2"),
    "hidden": (FVBN(n_hidden=[3, 0]), "n_hidden must be a whole number >= 1; got 0"),
    "family": (FVBN(family="gauss"), "Unknown family 'gauss'"),
    "search": (FVBN(search="all"), "search must be 'auto', 'paper', None or a list of settings"),
    "searched": (FVBN(search=[{"epochs": 3}]), "Unknown setting to search over 'epochs'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_settings_are_told(name):
    model, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        model.fit(make_X(40))


# ------------------------------------------------------------------ FVBN


def test_fvbn_chooses_for_each_column():
    """The first column needs two components, the second a curve and one."""
    rng = np.random.default_rng(0)
    a = np.where(rng.random(2000) < 0.5, -2, 2) + 0.3 * rng.normal(size=2000)
    X = np.column_stack([a, np.sin(2 * a) + 0.2 * rng.normal(size=2000)])
    model = FVBN(n_hidden=[1, 20], n_components=[1, 4], epochs=25, **QUICK).fit(X)
    assert model.chosen_[0]["n_components"] == 4
    assert model.chosen_[1]["n_hidden"] == 20
    assert len(model.chosen_) == 2
    alone = [
        FVBN(n_hidden=H, n_components=K, epochs=25, **QUICK).fit(X).held_out_score().mean
        for H, K in [(1, 1), (20, 4)]
    ]
    assert model.held_out_score().mean > max(alone) - 0.05
    assert model.held_out_score().mean > min(alone) + 0.3
    # The history is of the networks kept, in the units of the standardised columns.
    best = max(row["validation"] for row in model.history_)
    shift = model.standardiser_.log_determinant
    assert model.held_out_score().mean >= best + shift - 1e-3


def test_fvbn_searches_over_rates_and_decays():
    """Each column keeps the setting that is best for it when trained alone."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=600)
    X = np.column_stack([a, np.sin(3 * a) + 0.2 * rng.normal(size=600), rng.normal(size=600)])
    settings = [
        {"learning_rate": 0.03, "weight_decay": 0.0},
        {"learning_rate": 0.03, "weight_decay": 30.0},
        {"learning_rate": 1e-5},
    ]
    some = dict(n_hidden=8, n_components=2, epochs=8, **QUICK)
    model = FVBN(search=settings, **some).fit(X)
    alone = [FVBN(search=[setting], **some).fit(X) for setting in settings]
    scores = np.array([[column["validation"] for column in other.chosen_] for other in alone])
    best = scores.argmax(0)
    for d, column in enumerate(model.chosen_):
        assert column == alone[best[d]].chosen_[d]
        terms = alone[best[d]].log_conditionals(X)[:, d]
        np.testing.assert_allclose(model.log_conditionals(X)[:, d], terms, atol=1e-4)
    assert model.chosen_[1]["weight_decay"] == 0.0
    assert len(FVBN(search="paper")._candidates()) == 96
    assert len(FVBN(search="paper", n_components=[2, 3], n_hidden=[4, 5])._candidates()) == 192
    assert len(FVBN(recipe="paper")._candidates()) == len(FVBN(search=None)._candidates()) == 1


def test_fvbn_trains_again_on_all_rows():
    """Each network until its training rows score as they did at its best epoch."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=500)
    X = np.column_stack([a, a**2 + 0.2 * rng.normal(size=500)])
    model = FVBN(n_hidden=[4, 8], n_components=2, epochs=30, retrain=True, **QUICK).fit(X)
    assert 2 <= len(model.retrain_history_) <= 31
    assert model.retrain_history_[-1]["validation"] is None
    assert model.n_hidden_ in (4, 8)
    first = FVBN(n_hidden=[4, 8], n_components=2, epochs=30, **QUICK).fit(X)
    assert model.chosen_ == first.chosen_
    assert model.score(X) != first.score(X)
    assert model.score(X) > first.score(X) - 0.2


def test_fvbn_goes_on_from_a_checkpoint(tmp_path):
    X = make_X(80)
    some = dict(n_hidden=3, n_components=[1, 2], **QUICK)
    whole = FVBN(epochs=4, **some).fit(X)
    again = FVBN(epochs=4, checkpoint=tmp_path, **some).fit(X)
    assert list(tmp_path.rglob("*.safetensors"))
    resumed = FVBN(epochs=4, checkpoint=tmp_path, **some).fit(X)
    np.testing.assert_allclose(again.score_samples(X), whole.score_samples(X))
    np.testing.assert_allclose(resumed.score_samples(X), whole.score_samples(X))


def test_all_sizes_at_once_are_as_good_as_one_after_the_other():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 4)) + 0.3 * rng.normal(size=(300, 4))
    model = MixtureOfFactorAnalyzers([1, 2], [1, 2, 4], **QUICK).fit(X)
    assert len(model.search_) == 6
    for found in model.search_:
        K, q = found["n_components"], found["n_factors"]
        alone = MixtureOfFactorAnalyzers(K, q, **QUICK).fit(X)
        assert found["validation"] == pytest.approx(alone.search_[0]["validation"], abs=0.1)
    kept = max(model.search_, key=lambda found: found["validation"])
    assert (kept["n_components"], kept["n_factors"]) == (model.n_components_, model.n_factors_)
    assert len(model.history_) > kept["best_epoch"] == model.best_epoch_
    assert model.history_[model.best_epoch_]["validation"] == kept["validation"]


def test_fvbn_networks_are_separate():
    """A change of one network's weights changes one column's terms only."""
    module = FVBNModule(4, 5, GaussianMixture(2), generator=Generator().manual_seed(0)).double()
    x = torch.randn(6, 4, generator=Generator().manual_seed(1), dtype=torch.float64)
    before = module.log_conditionals(x)
    with torch.no_grad():
        module.networks.V[2] += 1
    changed = (module.log_conditionals(x) != before).any(0)
    assert changed.tolist() == [False, False, True, False]


def test_fvbn_of_networks_of_several_sizes():
    """Units and components that are added to make the networks alike make no difference."""
    generator = Generator().manual_seed(0)
    rows = torch.randn(100, 3, generator=generator, dtype=torch.float64)
    order = torch.tensor([2, 0, 1])
    models = [
        FVBNModule(3, H, GaussianMixture(K), order=order, generator=generator).double()
        for H, K in ((2, 1), (5, 4), (3, 2))
    ]
    for model in models:
        model.start_from(rows)
        model.set_floor(torch.tensor([0.0, 0.1, 0.2]))
    made = FVBNModule.of([model.networks[d] for d, model in enumerate(models)], order)
    assert made.networks.V.shape == (3, 5, 12)
    terms = made.log_conditionals(rows)
    for d, model in enumerate(models):
        torch.testing.assert_close(terms[:, d], model.log_conditionals(rows)[:, d])
    for low in (None, torch.zeros(3, dtype=torch.float64)):
        drawn = made.sample(200, Generator().manual_seed(1), low=low)
        assert torch.isfinite(made.log_prob(drawn)).all()


def test_progress_is_drawn_when_asked(capfd):
    X = make_X(60)
    for model in (
        FVBN(n_hidden=[1, 4], epochs=40, patience=1, verbose=1, **QUICK),
        MixtureOfGaussians([1, 2], verbose=1, **QUICK),
        MixtureOfFactorAnalyzers([1, 2], verbose=1, **QUICK),
    ):
        model.fit(X)
        shown = capfd.readouterr()
        assert shown.out == ""
        assert " nats" in shown.err
        assert "nan" not in shown.err


def test_fvbn_beats_a_gaussian_where_the_data_is_curved():
    rng = np.random.default_rng(0)
    a = rng.normal(size=3000)
    X = np.column_stack([a, a**2 + 0.3 * rng.normal(size=3000)])
    model = FVBN(n_hidden=20, n_components=3, epochs=20, **QUICK).fit(X[:2000])
    assert model.score(X[2000:]) > Gaussian(**QUICK).fit(X[:2000]).score(X[2000:]) + 0.5
