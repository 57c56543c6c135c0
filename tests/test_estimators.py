"""Estimators: scikit-learn's contract to the letter, densities in the data's units, bad input."""

import math
import os
import re
import signal
import warnings
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import scipy.stats
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from rnade import (
    FVBN,
    FVSBN,
    NADE,
    RNADE,
    Gaussian,
    MixtureOfColumns,
    MixtureOfFactorAnalyzers,
    MixtureOfGaussians,
    load,
)
from rnade.batch import Batch
from rnade.columns import dependent_columns
from rnade.estimators.kinds import EFFORTS, USUAL_EPOCHS, WORK, work_of_a_row
from rnade.exceptions import (
    CheckpointError,
    SpikeWarning,
    TrainingDivergedError,
    TrainingWarning,
)
from rnade.families import Bernoulli, GaussianMixture
from rnade.nn import RNADEModule
from rnade.training import Bank
from rnade.training.member import Diverged

QUICK = {"n_hidden": 8, "epochs": 6, "random_state": 0, "device": "cpu"}
ONE = QUICK | {"ensemble": None}  # one model instead of a bank
EM_QUICK = {"random_state": 0, "device": "cpu"}
ESTIMATORS = {
    "rnade-auto": RNADE(n_components=2, **QUICK | {"epochs": 3}),
    "rnade-auto-retrain": RNADE(n_components=2, retrain=True, **QUICK | {"epochs": 3}),
    "rnade": RNADE(n_components=3, **ONE),
    "rnade-laplace": RNADE(family="laplace", n_components=3, **ONE),
    "rnade-random-order": RNADE(order="random", n_components=2, **ONE),
    "rnade-paper": RNADE(recipe="paper", **ONE),
    "rnade-retrain": RNADE(retrain=True, n_components=2, **ONE),
    "nade": NADE(**QUICK),
    "nade-tied": NADE(tied_weights=True, **QUICK),
    "fvsbn": FVSBN(epochs=6, random_state=0, device="cpu"),
    "fvbn": FVBN(n_components=[1, 3], **QUICK),
    "fvbn-random-order": FVBN(order="random", family="laplace", n_components=2, **QUICK),
    "gaussian": Gaussian(**EM_QUICK),
    "gaussian-shrunk": Gaussian(shrinkage=0.2, retrain=False, **EM_QUICK),
    "mog": MixtureOfGaussians(3, **EM_QUICK),
    "mog-restarts": MixtureOfGaussians([1, 3], n_init=2, init="random", retrain=True, **EM_QUICK),
    "mog-minibatch": MixtureOfGaussians(3, batch_size=64, max_iter=40, **EM_QUICK),
    "mfa": MixtureOfFactorAnalyzers(3, 2, max_iter=30, **EM_QUICK),
    "columns": MixtureOfColumns(max_iter=30, **EM_QUICK),
    "columns-restarts": MixtureOfColumns(3, n_init=2, retrain=True, **EM_QUICK),
    "mfa-search": MixtureOfFactorAnalyzers([1, 2], "search", max_iter=10, **EM_QUICK),
}
REAL = [name for name in ESTIMATORS if not name.startswith(("nade", "fvsbn"))]


def make_X(n=300, seed=0):
    """Three columns of very different units, one of them a curved function of another."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    b = a**2 + 0.3 * rng.normal(size=n)
    c = -0.5 * b + rng.normal(size=n)
    return np.column_stack([1000 + 50 * a, 0.001 * b, c])


# The checks use tiny tables of rounded numbers and rates of their own; those warnings are tested
# below. No check is expected to fail.
@pytest.mark.changes_global_state
@pytest.mark.filterwarnings("ignore::rnade.exceptions.SpikeWarning")
@pytest.mark.filterwarnings("ignore::rnade.exceptions.TrainingWarning")
@parametrize_with_checks(
    [
        RNADE(n_hidden=4, n_components=2, epochs=2, random_state=0),
        RNADE(
            n_hidden=4, family="laplace", epochs=2, retrain=True, dequantize=True, ensemble=None
        ),
        RNADE(n_hidden=4, n_layers=2, n_components=2, epochs=2, ensemble=None),
        NADE(n_hidden=4, epochs=2),
        FVSBN(epochs=2),
        FVBN(n_hidden=[2, 4], n_components=2, epochs=2, columns="real"),
        FVBN(n_hidden=4, n_components=2, epochs=2, random_state=0),
        # A check fits 24 rows of 30 columns, whose covariance has no inverse without these.
        Gaussian(shrinkage=0.1),
        Gaussian(sigma_floor=0.1, retrain=False),
        MixtureOfGaussians(2, max_iter=5),
        MixtureOfGaussians("search", n_init=2, batch_size=10, max_iter=5, init="random"),
        MixtureOfFactorAnalyzers(2, max_iter=5),
        MixtureOfColumns(max_iter=5),
        MixtureOfColumns("search", columns="real", n_init=2, retrain=True, max_iter=2),
        MixtureOfFactorAnalyzers([1, 2], "search", retrain=True, max_iter=5),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_scores_terms_and_means_agree(name):
    X = make_X()
    model = clone(ESTIMATORS[name]).fit(X)
    scores = model.score_samples(X)
    assert scores.dtype == np.float64
    np.testing.assert_allclose(model.log_conditionals(X).sum(1), scores, atol=1e-7)
    assert model.score(X) == pytest.approx(scores.mean())
    assert model.sample(7, random_state=1).shape == (7, 3)
    np.testing.assert_array_equal(model.sample(7, 1), model.sample(7, 1))
    assert (model.sample(50, 1) != model.sample(50, 2)).any()
    if not name.endswith("minibatch"):  # of which each tenth iteration is looked at
        assert len(model.history_) == model.history_[-1]["epoch"] + 1


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("s", [1e-3, 20.0])
def test_scaling_the_data_shifts_the_log_density(name, s):
    """Densities are of the data as given: a factor of s costs D log s nats."""
    X = make_X()
    plain, scaled = (clone(ESTIMATORS[name]) for _ in range(2))
    for model, data in ((plain, X), (scaled, s * X + 5)):
        if "dtype" in model.get_params():  # a Gaussian has none
            model.set_params(dtype="float64")
        if model.get_params().get("family") == "laplace" or name.startswith("rnade-auto"):
            # A Laplace's gradient jumps: large steps make much of rounding.
            model.set_params(learning_rate=1e-3)
        model.fit(data)
    np.testing.assert_allclose(
        scaled.score_samples(s * X + 5), plain.score_samples(X) - 3 * math.log(s), atol=2e-5
    )


def test_density_integrates_to_one_in_the_datas_units():
    X = make_X()[:, :1]
    model = RNADE(**(ONE | {"epochs": 30})).fit(X)
    grid = np.linspace(400, 1600, 20_001)
    density = np.exp(model.score_samples(grid[:, None]))
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-4)


def test_beats_a_gaussian_where_the_data_is_curved():
    X, held_out = make_X(2000), make_X(1000, seed=1)
    model = RNADE(random_state=0, effort="fast", epochs=20).fit(X)
    gaussian = scipy.stats.multivariate_normal(X.mean(0), np.cov(X.T))
    assert model.score(held_out) > gaussian.logpdf(held_out).mean() + 0.2


def test_same_seed_same_model():
    X = make_X()
    a, b = (RNADE(**ONE).fit(X).score_samples(X) for _ in range(2))
    np.testing.assert_array_equal(a, b)


def test_grid_search_cross_validation_and_pipeline():
    X = make_X(150)
    base = RNADE(n_hidden=4, epochs=2, random_state=0)
    search = GridSearchCV(base, {"n_components": [1, 3]}, cv=2).fit(X)
    assert search.best_params_["n_components"] in (1, 3)
    assert cross_val_score(base, X, cv=2).shape == (2,)
    pipeline = make_pipeline(StandardScaler(), base).fit(X)
    assert np.isfinite(pipeline.score(X))


@pytest.mark.parametrize(
    "frame", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"]
)
def test_data_frames_give_names_that_are_checked(frame):
    X = make_X(100)
    columns = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}
    model = RNADE(**ONE).fit(frame(columns))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(
        model.score_samples(frame(columns)), RNADE(**ONE).fit(X).score_samples(X)
    )
    swapped = {"b": X[:, 1], "a": X[:, 0], "c": X[:, 2]}
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        model.score_samples(frame(swapped))
    with pytest.raises(ValueError, match="Feature names unseen at fit time:\n- d"):
        model.score_samples(frame({"a": X[:, 0], "b": X[:, 1], "d": X[:, 2]}))


def test_frames_may_hold_whole_numbers_and_truths():
    X = make_X(60)
    frame = pd.DataFrame({"a": X[:, 0], "n": np.arange(60), "t": X[:, 0] > 1000})
    with pytest.warns(SpikeWarning, match="column 'n', column 't'"):
        RNADE(**ONE, columns="real").fit(frame)


def test_row_weights_steer_the_fit():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-3, 1, size=(150, 2)), rng.normal(3, 1, size=(150, 2))])
    weights = np.repeat([1e-4, 1.0], 150)
    model = RNADE(**(ONE | {"epochs": 30})).fit(X, sample_weight=weights)
    assert model.sample(500, random_state=0).mean() > 2


def test_scores_are_weighted_means():
    X = make_X()
    weights = np.random.default_rng(0).integers(0, 4, size=len(X)).astype(float)
    model = RNADE(**ONE).fit(X)
    repeated = np.repeat(X, weights.astype(int), axis=0)
    assert model.score(X, sample_weight=weights) == pytest.approx(model.score(repeated))
    with pytest.raises(ValueError, match="[Nn]egative"):
        model.score(X, sample_weight=-weights)


def test_the_held_out_score_has_the_rows_weights():
    X = make_X()
    weights = np.random.default_rng(0).uniform(0.1, 3, size=len(X))
    model = RNADE(**ONE).fit(X, sample_weight=weights)
    held_out = model.fitted_rows_.held_out
    expected = np.average(model.score_samples(X[held_out]), weights=weights[held_out])
    assert model.held_out_score().mean == pytest.approx(expected)
    equal = RNADE(**ONE).fit(X).held_out_score()
    spread = RNADE(**ONE).fit(X).validation_scores_
    assert equal.standard_error == pytest.approx(scipy.stats.sem(spread))


def test_rows_of_weight_zero_are_ignored():
    X = make_X(120)
    weights = np.ones(120)
    weights[100:] = 0
    weighted = RNADE(**ONE).fit(X, sample_weight=weights)
    without = RNADE(**ONE).fit(X[:100], sample_weight=np.ones(100))
    np.testing.assert_array_equal(weighted.score_samples(X), without.score_samples(X))


@pytest.mark.parametrize(
    "make", [lambda: RNADE(**ONE), lambda: NADE(**QUICK), lambda: FVBN(**QUICK)]
)
def test_starting_values_count_rows_by_their_weights(make, monkeypatch):
    given = []
    for family in (GaussianMixture, Bernoulli):
        start = family.starting_biases

        def counted(self, rows, *, weights=None, start=start, **options):
            given.append(weights)
            return start(self, rows, weights=weights, **options)

        monkeypatch.setattr(family, "starting_biases", counted)
    model = make()
    X = make_X(80) > 0 if isinstance(model, NADE) else make_X(80)
    model.fit(X.astype(float), sample_weight=np.linspace(1, 2, 80))
    assert given
    assert all(weights is not None and weights.min() < weights.max() for weights in given)


def test_pvalues_flag_the_odd_and_spare_the_usual():
    X, fresh = make_X(2000), make_X(2000, seed=5)
    model = RNADE(effort="fast", random_state=0, epochs=25, validation_fraction=0.3).fit(X)
    p = model.pvalue(fresh)
    assert (p <= 0.05).mean() == pytest.approx(0.05, abs=0.025)
    assert ((p > 0) & (p <= 1)).all()
    odd = fresh.copy()
    odd[:, 1] += 0.05  # 15 standard deviations of the column
    assert (model.pvalue(odd) <= 0.01).mean() > 0.95
    worst = model.log_conditionals(odd).argmin(1)
    assert (worst == 1).mean() > 0.9


def test_held_out_score_is_that_of_rows_not_trained_on():
    X = make_X()
    model = RNADE(**ONE).fit(X)
    summary = model.held_out_score()
    assert summary.n_rows == 30
    assert summary.mean == pytest.approx(model.validation_scores_.mean())
    # In the data's units: on standardised columns the history holds the same number.
    best = model.history_[model.best_epoch_]["validation"]
    shift = model.standardiser_.log_determinant_terms.sum()
    assert summary.mean == pytest.approx(best + shift, abs=1e-4)


def test_retraining_uses_all_rows_and_stops_at_the_same_likelihood():
    X = make_X()
    model = RNADE(retrain=True, **(ONE | {"epochs": 30})).fit(X)
    target = model.members_[0]["train"]  # of the first training's best epoch
    reached = [row["train"] for row in model.retrain_history_]
    assert all(score < target for score in reached[:-1])
    assert reached[-1] >= target or len(reached) == 31


@pytest.mark.filterwarnings("ignore:4 rows are too few")
def test_training_again_on_four_rows_takes():
    """One row is held out, so that its score has no standard error."""
    weights = np.array([1.0, 2.0, 1.0, 3.0])
    for own in (None, weights):
        model = RNADE(retrain=True, n_components=1, sigma_floor=0.1, **ONE)
        assert model.fit(make_X(4), sample_weight=own).retrain_history_


def test_where_one_of_several_diverges_in_training_again_the_first_are_kept(monkeypatch, tmp_path):
    """Rather than an average of fewer, which the file's list of members would not fit."""
    X = make_X()
    results = Bank.results

    def one_diverged(self, wanted=None):
        found = results(self, wanted)
        if self.members[0].target is not None:
            found[0] = replace(found[0], diverged=Diverged(epoch=3, rate=0.1, skipped=10))
        return found

    monkeypatch.setattr(Bank, "results", one_diverged)
    model = RNADE(n_components=2, retrain=True, **QUICK | {"epochs": 3})
    with pytest.warns(TrainingWarning, match=r"first model was kept.*epoch 3"):
        model.fit(X)
    model.save(tmp_path / "model.rnade")
    loaded = load(tmp_path / "model.rnade")
    np.testing.assert_array_equal(loaded.score_samples(X), model.score_samples(X))


@pytest.mark.parametrize("how", ["diverges", "ends far below"])
def test_where_training_again_breaks_the_first_model_is_kept(how, monkeypatch):
    X = make_X()
    first = RNADE(**ONE).fit(X)
    train = RNADE._train

    def train_badly(self, training, held_out, seed, target):
        module, outcome = train(self, training, held_out, seed, target)
        if held_out is None and how == "diverges":
            raise TrainingDivergedError("Training diverged in epoch 3.")
        if held_out is None:
            module.b.data += 5
        return module, outcome

    monkeypatch.setattr(RNADE, "_train", train_badly)
    model = RNADE(retrain=True, **ONE)
    why = "epoch 3" if how == "diverges" else "nats a row on the rows it was trained on"
    with pytest.warns(TrainingWarning, match=f"first model was kept.*{why}"):
        model.fit(X)
    assert not hasattr(model, "retrain_history_")
    np.testing.assert_array_equal(model.score_samples(X), first.score_samples(X))


def test_constrained_samples_stay_in_the_datas_range():
    X = make_X()
    model = RNADE(**ONE).fit(X)
    rows = model.sample(300, 0, low=[990, -np.inf, 0], high=[1010, np.inf, 1])
    assert rows[:, 0].min() >= 990
    assert rows[:, 0].max() <= 1010
    assert rows[:, 2].min() >= 0
    single = model.set_params(score_dtype="float32").sample(20_000, 0, high=[1000.3, np.inf, 0.1])
    assert (single[:, [0, 2]] <= [1000.3, 0.1]).all()


def test_repeated_values_are_named_and_the_floor_holds():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=500), rng.integers(0, 3, size=500) * 10.0])
    settings = {"effort": "fast", "n_hidden": 8, "epochs": 30, "learning_rate": 0.05}
    with pytest.warns(SpikeWarning, match="repeated values in column 1: .*dequantize=True"):
        model = RNADE(**settings, random_state=0).fit(X)
    # No component is narrower than the step of 10 allows: at most about the mass of one cell.
    step_density = math.log(math.sqrt(12) / (10 * math.sqrt(2 * math.pi)))
    assert model.log_conditionals(X)[:, 1].max() <= step_density + 1e-6
    with pytest.warns(SpikeWarning):
        free = RNADE(**settings, random_state=0, sigma_floor=0.0).fit(X)
    assert free.log_conditionals(X)[:, 1].max() > step_density + 1


def test_dequantised_values_get_the_mass_of_their_cell():
    """Of three equally likely values, a step of 1 apart, each has density 1/3."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 3, size=1500), rng.normal(size=1500)])
    with pytest.warns(SpikeWarning):
        model = RNADE(random_state=0, dequantize=True, epochs=40, learning_rate=0.01).fit(X)
    anywhere = X + np.column_stack([rng.uniform(-0.5, 0.5, size=1500), np.zeros(1500)])
    density = np.exp(model.log_conditionals(anywhere)[:, 0]).mean()
    assert density == pytest.approx(1 / 3, abs=0.06)


@pytest.mark.parametrize("share", [0.06, 0.2, 0.4, 0.49])
def test_single_values_that_hold_a_share_of_the_rows_are_named(share):
    """Zeros among continuous values, as of rain or of spending."""
    X = make_X()
    X[: round(share * len(X)), 1] = 0
    with pytest.warns(SpikeWarning, match=rf"repeated: 0 in column 1 \({share:.0%} of the rows\)"):
        RNADE(**ONE, columns="real").fit(X)


@pytest.mark.parametrize("whole", [False, True])
def test_a_code_for_missing_values_is_suspected(whole):
    X = make_X()
    X = np.round(X[:, [0]]) if whole else X
    X[::9, 0] = -999
    with pytest.warns(SpikeWarning) as caught:
        MixtureOfGaussians(1, max_iter=2).fit(X)
    suspected = "-999 in column 0 (11% of the rows; a code for missing values?)"
    assert suspected in str(caught[-1].message)
    assert {Path(warning.filename).name for warning in caught} == {Path(__file__).name}


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        (lambda X: X[:, 0], "column 3"),
        (lambda X: 0.1 * X[:, 0] + 1e5 * X[:, 1] - 7, "column 3"),
        (lambda X: X[:, [0, 2]] * 2, "column 3, column 4"),
    ],
    ids=["copy", "combination", "two"],
)
def test_columns_that_follow_from_others_are_named(extra, named):
    X = make_X()
    X = np.column_stack([X, extra(X)])
    with pytest.warns(SpikeWarning, match=f"columns before: {named}\\."):
        RNADE(**ONE).fit(X)


def test_copies_are_found_where_there_are_fewer_rows_than_columns():
    X = np.random.default_rng(0).normal(size=(30, 40))
    X[:, 7] = X[:, 2]
    with pytest.warns(SpikeWarning, match="columns before: column 7\\."):
        RNADE(**ONE).fit(X)


def test_linear_functions_are_found_in_large_tables_with_rare_values():
    """Of 20,000 rows looked at, a column that is nearly always 0 may show nothing but 0."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50_000, 4))
    X[:, 1] = np.eye(1, 50_000, 7)[0]
    X[:, 3] = 2 * X[:, 0]
    assert dependent_columns(X) == [3]
    X[:, 2] = np.where(np.arange(50_000) % 3 == 0, X[:, 0], X[:, 2])
    assert dependent_columns(X) == [3]


def test_few_rows_are_told():
    with pytest.warns(TrainingWarning, match="^2 rows are too few"):
        RNADE(**ONE).fit(make_X(2))


def test_columns_of_tiny_scale_are_fitted_or_refused():
    X = make_X()
    model = RNADE(**ONE).fit(X * [1, 1, 1e-200])
    plain = RNADE(**ONE).fit(X)
    np.testing.assert_allclose(
        model.score_samples(X * [1, 1, 1e-200]),
        plain.score_samples(X) + 200 * math.log(10),
        rtol=1e-6,
    )
    with pytest.raises(ValueError, match=r"column 2 differ by less than 1e-290.* Rescale"):
        RNADE(**ONE).fit(X * [1, 1, 1e-300])


def test_masked_values_are_missing_values():
    X = np.ma.MaskedArray(make_X(40), mask=False)
    X[5, 2] = np.ma.masked
    with pytest.raises(ValueError, match="the first is nan in row 5, column 2"):
        RNADE(**ONE, columns="real").fit(X)
    whole = np.ma.MaskedArray(make_X(40), mask=False)
    np.testing.assert_array_equal(
        RNADE(**ONE).fit(whole).score_samples(whole),
        RNADE(**ONE).fit(make_X(40)).score_samples(whole),
    )


def test_frames_of_objects_and_decimals_are_read_as_the_numbers_that_they_hold():
    X = make_X(40).round(6)
    decimals = [Decimal(str(value)) for value in X[:, 0]]
    expected = RNADE(**ONE).fit(X).score_samples(X)
    for frame in (
        pd.DataFrame({"a": decimals, "b": X[:, 1].astype(object), "c": X[:, 2]}),
        pl.DataFrame({"a": decimals, "b": X[:, 1], "c": X[:, 2]}),
        pa.table({"a": decimals, "b": X[:, 1], "c": X[:, 2]}),
    ):
        np.testing.assert_allclose(RNADE(**ONE).fit(frame).score_samples(frame), expected)
    gap = pd.DataFrame({"a": [1.5, pd.NA, 2.5], "b": [1.0, 2.5, 3.5]}, dtype=object)
    with pytest.raises(ValueError, match="the first is nan in row 1, column 'a'"):
        RNADE(**ONE, columns="real").fit(gap)
    mixed = pd.DataFrame({"a": [1.5, "x", 2.5], "b": [1.0, 2.5, 3.5]}, dtype=object)
    with pytest.raises(ValueError, match="columns of numbers; column 'a' holds text"):
        RNADE(**ONE, columns="real").fit(mixed)


def test_lazy_frames_are_told_to_be_collected():
    lazy = pl.DataFrame(make_X(30)).lazy()
    with pytest.raises(TypeError, match=r"lazy frame \(polars.*LazyFrame\).* collect\(\) first"):
        RNADE(**ONE).fit(lazy)


def test_nothing_is_said_of_ordinary_columns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RNADE(**ONE).fit(make_X())


def test_training_that_does_not_help_is_told():
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.warns(TrainingWarning, match="did not improve .* learning_rate=1000 may be too"):
        RNADE(n_hidden=4, epochs=3, random_state=0, learning_rate=1e3).fit(X)


def test_binary_models_threshold_or_insist():
    X = make_X(80)
    model = NADE(binarize=0.5, **QUICK).fit(X)
    np.testing.assert_array_equal(
        model.score_samples(X), model.score_samples((X > 0.5).astype(float))
    )
    assert set(np.unique(model.sample(20, 0))) <= {0.0, 1.0}
    with pytest.raises(ValueError, match=r"only values 0 and 1 with binarize=None; got .* row 0"):
        FVSBN(binarize=None).fit(X)


def test_progress_bar_is_drawn_on_stderr_when_asked(capfd):
    RNADE(verbose=1, **ONE).fit(make_X(60))
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "Training" in shown.err
    RNADE(verbose=0, **ONE).fit(make_X(60))
    assert capfd.readouterr().err == ""


def with_value(value, row=4, column=1):
    X = make_X(20)
    X[row, column] = value
    return X


CONSTANT = make_X(20) * [1, 0, 1]
BAD_X = {
    "nan": (
        with_value(np.nan),
        r"1 missing or infinite values \(NaN or inf\); the first is nan in row 4, column 1",
    ),
    "inf": (with_value(-np.inf), "the first is -inf in row 4, column 1"),
    "none": (
        pd.DataFrame({"a": [1.0, None, 2.5], "b": [1.0, 2.5, 3.5]}),
        "the first is nan in row 1, column 'a'",
    ),
    "huge": (with_value(1e35), r"beyond 1e\+30.* the first is 1e\+35 in row 4, column 1"),
    "constant": (CONSTANT, r"constant in column 1: .*\(all 20 rows"),
    "constant-named": (pd.DataFrame(CONSTANT, columns=["a", "b", "c"]), "constant in column 'b'"),
    "one-row": (make_X(1), r"1 sample\(s\)"),
    "no-rows": (np.empty((0, 3)), r"0 sample\(s\)"),
    "no-columns": (np.empty((5, 0)), r"0 feature\(s\)"),
    "strings": (np.array([["a", "b"], ["c", "d"]]), r"X holds text \(strings\)"),
    "text-column": (
        pd.DataFrame({"a": [1.0, 2.0], "name": ["x", "y"]}),
        "column 'name' holds text",
    ),
    "one-dimension": (np.arange(5.0), "Expected 2D array, got 1D array"),
    "three-dimensions": (np.zeros((2, 2, 2)), "dim 3"),
}


@pytest.mark.parametrize("name", BAD_X)
def test_bad_rows_are_told_what_and_where(name):
    X, message = BAD_X[name]
    with pytest.raises(ValueError, match=message):
        RNADE(**ONE, columns="real").fit(X)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (scipy.sparse.csr_matrix(np.eye(3)), "Sparse data was passed"),
        ({"a": [1, 2]}, "Expected X to be a table of numbers; got dict"),
        (np.array([[object(), 1.0], [2.0, 3.0]]), "float"),
    ],
    ids=["sparse", "dict", "objects"],
)
def test_bad_types_are_refused(X, message):
    with pytest.raises(TypeError, match=message):
        RNADE(**ONE).fit(X)


def test_paths_are_for_estimators_that_read_files():
    with pytest.raises(ValueError, match=r"There is no file wine\.csv"):
        RNADE(**ONE).fit("wine.csv")
    with pytest.raises(TypeError, match="Expected X to be a table of numbers; got str"):
        Gaussian().fit("wine.csv")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"family": "gausian"}, "Unknown family 'gausian'.*Did you mean 'gaussian'"),
        ({"family": "bernoulli"}, "Unknown family 'bernoulli'; expected one of 'gaussian', 'lap"),
        ({"activation": "sigmoidal"}, "Unknown activation 'sigmoidal'.*Did you mean 'sigmoid'"),
        ({"recipe": "paperr"}, "Unknown recipe 'paperr'.*Did you mean 'paper'"),
        ({"device": "gpu"}, "Unknown device 'gpu'"),
        ({"dtype": "float16"}, "Unknown dtype 'float16'"),
        ({"backend": "vectorized"}, "Unknown backend 'vectorized'.*Did you mean 'vectorised'"),
        ({"n_hidden": 0}, "n_hidden must be a whole number >= 1; got 0"),
        ({"n_hidden": 2.5}, "n_hidden must be a whole number >= 1; got 2.5"),
        ({"n_components": -1}, "n_components must be a whole number >= 1; got -1"),
        ({"learning_rate": 0}, "learning_rate must be a number > 0; got 0"),
        ({"learning_rate": "fast"}, "learning_rate must be a number > 0; got 'fast'"),
        ({"batch_size": 0}, "batch_size must be a whole number >= 1; got 0"),
        ({"epochs": -1}, "epochs must be a whole number >= 1; got -1"),
        ({"validation_fraction": 0}, "validation_fraction must be a number > 0 and <= 0.9; got 0"),
        ({"validation_fraction": 1.5}, "validation_fraction must be .* got 1.5"),
        ({"sigma_floor": "none"}, "sigma_floor must be 'auto' or a number >= 0; got 'none'"),
        ({"sigma_floor": -1.0}, "sigma_floor must be a number >= 0; got -1.0"),
        ({"order": [0, 1]}, "order must be a permutation of 0 to 2"),
        ({"order": "rastr"}, "order must be None, 'raster', 'random' or a permutation"),
    ],
    ids=str,
)
def test_bad_parameters_are_told_what_is_wrong(parameters, message):
    with pytest.raises(ValueError, match=message):
        RNADE(**(ONE | parameters)).fit(make_X(30))


def test_cuda_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match="device='cuda' was asked for, .* sees no CUDA device"):
        RNADE(n_hidden=4, device="cuda").fit(make_X(30))


def test_bounds_that_cross_are_told_in_the_datas_units():
    model = RNADE(**ONE).fit(make_X(60))
    with pytest.raises(
        ValueError, match="low < high in every column; got 1010 and 990 in column 0"
    ):
        model.sample(1, low=[1010, -1, -1], high=[990, 1, 1])


def test_scoring_checks_columns_and_fit_first():
    X = make_X(30)
    with pytest.raises(ValueError, match="not fitted yet"):
        RNADE().score_samples(X)
    model = RNADE(**ONE).fit(X)
    with pytest.raises(ValueError, match="X has 2 features, but RNADE is expecting 3"):
        model.score_samples(X[:, :2])
    with pytest.raises(ValueError, match="n_samples must be a whole number >= 1; got 0"):
        model.sample(0)
    with pytest.raises(ValueError, match=r"Expected low of shape \(3,\).* got \(2,\)"):
        model.sample(1, low=[0, 0])
    with pytest.raises(ValueError, match="low holds NaN"):
        model.sample(1, low=[0, np.nan, 0])


def test_negative_or_vanishing_weights_are_refused():
    X = make_X(30)
    with pytest.raises(ValueError, match="[Nn]egative"):
        RNADE(**ONE).fit(X, sample_weight=-np.ones(30))
    with pytest.raises(ValueError, match=r"Found 1 sample\(s\) of positive weight"):
        RNADE(**ONE).fit(X, sample_weight=np.eye(30)[0])


# ------------------------------------------------------------------------ banks inside


def test_the_default_averages_several_kinds_in_several_orders():
    model = RNADE(**QUICK | {"epochs": 15}).fit(make_X(200))
    weights = {}
    for member in model.members_:
        key = member["kind"], member["changes"].get("weight_decay"), member["mixture"]
        weights.setdefault(key, []).append(member["weight"])
    assert len(weights) > 2
    assert any(mixture for *_, mixture in weights)
    assert sum(map(sum, weights.values())) == pytest.approx(1)
    for own in weights.values():
        assert own == [pytest.approx(own[0])] * 8  # of a kind all weigh the same
    found = model.module_.log_weights[0].exp()
    assert found.tolist() == pytest.approx([member["weight"] for member in model.members_])
    orders = [model.module_.member(m).order[0].tolist() for m in range(8)]
    assert orders[0] == [0, 1, 2]
    assert len({tuple(order) for order in orders}) > 2


def test_kinds_that_earn_no_weight_are_dropped():
    """Rows of one Gaussian: a mixture of one has most weight, and not all kinds have any."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4)) @ rng.normal(size=(4, 4))
    model = RNADE(**QUICK | {"epochs": 2, "learning_rate": 1e-4}).fit(X)
    of_gaussian = sum(m["weight"] for m in model.members_ if m["mixture"] == 1)
    assert of_gaussian > 0.5
    tried = len(model._plan(360, 4, "cpu"))
    assert len(model.members_) < tried
    assert min(m["weight"] for m in model.members_) * 8 >= 0.01


def test_fast_trains_two_kinds_of_small_networks():
    model = RNADE(**QUICK, effort="fast").fit(make_X(200))
    assert len(model.members_) == 16
    assert {m["changes"]["weight_decay"] for m in model.members_} == {0.0, 1.0}


def test_more_effort_trains_more():
    plans = [RNADE(effort=e)._plan(2000, 10, "cpu") for e in ("fast", "default", "best")]
    assert len(plans[0]) < len(plans[1]) < len(plans[2])


def test_what_the_user_sets_holds_for_all_kinds():
    plan = RNADE(n_hidden=7, epochs=3, family="laplace")._plan(5000, 5, "cpu")
    networks = [planned.changes for planned in plan if planned.mixture is None]
    assert not any({"n_hidden", "epochs", "family"} & set(changes) for changes in networks)
    assert len({str(changes) for changes in networks}) > 2


def test_an_unknown_effort_is_told():
    with pytest.raises(ValueError, match=r"effort must be .*'best'.*'hard'|'hard'.*best"):
        RNADE(effort="hard").fit(make_X(50))


def test_p_values_of_the_default_are_honest_on_little_data():
    """No row that calibrates p-values has had a part in training or in stopping it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 6)) @ rng.normal(size=(6, 6))
    model = RNADE(random_state=0, epochs=60, validation_fraction=0.3).fit(X[:300])
    assert (model.pvalue(X[300:]) <= 0.1).mean() == pytest.approx(0.1, abs=0.06)
    assert model.held_out_score().mean == pytest.approx(model.score(X[300:]), abs=0.6)


def test_each_model_of_the_default_stops_by_rows_of_its_own():
    model = RNADE(**QUICK)
    model.fit(make_X(100))
    plan = [planned for planned in model._plan(90, 3, "cpu") if planned.mixture is None]
    assert [planned.fold for planned in plan] == [*range(8)] * (len(plan) // 8)
    x = torch.arange(90.0)[:, None].expand(-1, 3)
    members = model.make_members(Batch(x), Batch(x[:9] + 1000), 0, plan)
    held_out = torch.cat([member.held_out.x for member in members[:8]])
    assert torch.equal(held_out, x)  # each row once
    for member in members:
        together = torch.cat([member.source.x, member.held_out.x])[:, 0]
        assert torch.equal(together.sort().values, x[:, 0])
    few = [planned for planned in model._plan(32, 3, "cpu") if planned.mixture is None]
    stopped = model.make_members(Batch(x[:32]), Batch(x[:9] + 1000), 0, few)
    # Parts that are too small to stop training are left out all the same.
    assert all(torch.equal(member.held_out.x, x[:9] + 1000) for member in stopped)
    assert {len(member.source.x) for member in stopped} == {28}
    assert all(planned.fold is None for planned in model._plan(7, 3, "cpu"))


def test_the_default_beats_its_own_members():
    X, held_out = make_X(300), make_X(1000, seed=1)
    model = RNADE(**QUICK | {"epochs": 15}).fit(X)
    with torch.no_grad():
        x = torch.as_tensor(model.standardiser_.transform(held_out))
        members = model.module_.member_log_prob(x).mean(1)
        assert model.module_.log_prob(x).mean() > members.max()


@pytest.mark.parametrize("settings", [{"ensemble": None}, {"recipe": "paper"}])
def test_one_model_is_planned_where_one_is_asked_for(settings):
    assert len(RNADE(**settings)._plan(10_000, 4, "cpu")) == 1


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("effort", ["fast", "default", "best"])
def test_larger_tables_get_fewer_orders_and_training_grows_at_most_linearly(device, effort):
    def work(n_rows):
        model = RNADE(effort=effort)
        plan = model._plan(n_rows, 20, device)
        total = 0.0
        for planned in plan:
            if planned.mixture is None:
                sizes = model.get_params() | planned.changes
                epochs = min(sizes["epochs"], USUAL_EPOCHS)
                total += work_of_a_row(sizes, 20) * n_rows * epochs
        return len(plan), total

    few, some, many = (work(n) for n in (1000, 50_000, 5_000_000))
    assert few[0] + 8 >= some[0] >= many[0]  # several layers are for many rows
    assert some[1] < 2 * WORK[device] * EFFORTS[effort]
    assert many[1] <= 101 * some[1]


def test_an_order_given_by_hand_is_kept_by_all():
    model = RNADE(order=[2, 0, 1], n_hidden=4, epochs=2, random_state=0).fit(make_X(60))
    networks = [m for m, member in enumerate(model.members_) if not member["mixture"]]
    orders = {tuple(model.module_.member(m).order[0].tolist()) for m in networks}
    assert orders == {(2, 0, 1)}


def test_a_fit_goes_on_from_its_checkpoint(tmp_path):
    X = make_X(100)
    settings = ONE | {"checkpoint": tmp_path / "c", "retrain": True}
    expected = RNADE(retrain=True, **ONE).fit(X)
    first = RNADE(**settings).fit(X)
    files = sorted(p.relative_to(tmp_path / "c").as_posix() for p in tmp_path.rglob("*.safe*"))
    assert files == ["retrain/bank-000.safetensors", "train/bank-000.safetensors"]
    again = RNADE(**settings).fit(X)
    for model in (first, again):
        np.testing.assert_array_equal(model.score_samples(X), expected.score_samples(X))
    with pytest.raises(CheckpointError, match="is of another run"):
        RNADE(**settings).fit(X**2)


def test_ctrl_c_keeps_the_best_model_so_far(monkeypatch):
    X = make_X(100)
    compute, calls = RNADEModule.weighted_log_likelihood, []

    def press_after_a_while(self, *args, **options):
        calls.append(1)
        if len(calls) == 50:  # in the third of its epochs of 20 updates
            os.kill(os.getpid(), signal.SIGINT)
        return compute(self, *args, **options)

    monkeypatch.setattr(RNADEModule, "weighted_log_likelihood", press_after_a_while)
    model = RNADE(retrain=True, **ONE)
    with pytest.warns(TrainingWarning, match="stopped by Ctrl-C; the best model so far"):
        model.fit(X)
    assert len(model.history_) == 3
    assert not hasattr(model, "retrain_history_")
    assert np.isfinite(model.score(X))


def test_the_bar_counts_models_and_epochs(capsys):
    RNADE(verbose=1, **QUICK).fit(make_X(60))
    shown = capsys.readouterr().err
    assert re.search(r"Training \d\d models", shown)
    assert re.search(r"\d+/\d+ epochs .* left best -?\d+\.\d+ nats", shown)


# ---------------------------------------------------------------- conditionals


@pytest.mark.parametrize("name", ESTIMATORS)
def test_pit_of_draws_is_uniform_and_independent(name, seed):
    """Rows drawn from the model itself are what the model is right about."""
    model = clone(ESTIMATORS[name]).fit(make_X())
    u = model.pit(model.sample(4000, random_state=seed), random_state=seed)
    assert u.shape == (4000, 3)
    for column in u.T:
        assert scipy.stats.kstest(column, "uniform").pvalue > 1e-4
    correlation = np.corrcoef(u.T) - np.eye(3)
    assert np.abs(correlation).max() < 4.5 / np.sqrt(4000)


@pytest.mark.filterwarnings("ignore::rnade.exceptions.SpikeWarning")
def test_pit_of_a_rounded_column_is_uniform(seed):
    """A value stands for its rounding interval: whole numbers of a normal of deviation 1."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(4000, 1)))
    settings = {"n_components": 3, "epochs": 30, "effort": "fast", "random_state": 0}
    model = RNADE(dequantize=True, **settings).fit(X[:2000])
    u = model.pit(X[2000:], random_state=0)[:, 0]
    # The model is fitted, so what is left is its own error; unrandomised, u has a few values.
    assert scipy.stats.kstest(u, "uniform").statistic < 0.06
    assert len(np.unique(u)) == 2000


@pytest.mark.parametrize("where", [np.ones((300, 3), int), [[True] * 3], np.ones((300, 2), bool)])
def test_cells_to_compute_are_an_array_of_truths(where):
    model = clone(ESTIMATORS["gaussian"]).fit(make_X())
    with pytest.raises(ValueError, match=r"`where` to be an array of bool of shape \(300, 3\)"):
        model.conditional_quantiles(make_X(), 0.5, where=where)
    with pytest.raises(ValueError, match="q to be a number or a list"):
        model.conditional_quantiles(make_X(), [[0.5]])


def test_several_quantiles_come_together():
    X = make_X()
    model = clone(ESTIMATORS["mog"]).fit(X)
    both = model.conditional_quantiles(X, [0.05, 0.95])
    assert both.shape == (2, *X.shape)
    np.testing.assert_array_equal(both[1], model.conditional_quantiles(X, 0.95))


@pytest.mark.parametrize("name", REAL)
def test_conditional_quantiles_have_their_share_of_the_rows(name, seed):
    model = clone(ESTIMATORS[name]).fit(make_X())
    rows = model.sample(2000, random_state=seed)
    below = (rows <= model.conditional_quantiles(rows, 0.2)).mean(axis=0)
    np.testing.assert_allclose(below, 0.2, atol=4.5 * math.sqrt(0.16 / 2000))


def test_binary_quantiles_are_values_of_the_data():
    model = clone(ESTIMATORS["nade"]).fit(make_X())
    X = (make_X() > 0).astype(float)
    assert set(np.unique(model.conditional_quantiles(X, 0.5))) <= {0.0, 1.0}


# ---------------------------------------------------------------- what is remembered of the rows


def test_the_fitted_table_and_its_held_out_rows_are_known_again():
    X = make_X()
    model = clone(ESTIMATORS["rnade"]).fit(X)
    fitted = model.fitted_rows_
    assert fitted.are(X)
    assert not fitted.are(X[::-1])
    assert not fitted.are(X[:, :2])
    np.testing.assert_allclose(
        np.sort(model.score_samples(X[fitted.held_out])), np.sort(model.validation_scores_)
    )
    np.testing.assert_array_equal(fitted.low, X.min(axis=0))
    np.testing.assert_array_equal(fitted.high, X.max(axis=0))


def test_held_out_rows_are_counted_in_the_table_as_given():
    """Rows of weight 0 are absent from training, but not from the table."""
    X = make_X()
    weights = np.ones(len(X))
    weights[::3] = 0
    model = clone(ESTIMATORS["rnade"]).fit(X, sample_weight=weights)
    held_out = model.fitted_rows_.held_out
    assert model.fitted_rows_.are(X)
    assert weights[held_out].all()
    np.testing.assert_allclose(
        np.sort(model.score_samples(X[held_out])), np.sort(model.validation_scores_)
    )
