"""Findings: each figure against an outside oracle, each caution where it was planted."""

import json
import math
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from scipy.integrate import quad
from sklearn.datasets import load_wine
from sklearn.mixture import GaussianMixture

from rnade import FVBN, FVSBN, NADE, RNADE, load
from rnade.evaluation import Calibration
from rnade.exceptions import SpikeWarning, TrainingWarning
from rnade.families import Conditional
from rnade.report import render, study
from rnade.report.asked import Rows
from rnade.report.calibration import column_calibration
from rnade.report.oddness import threshold
from rnade.report.references import IndependentBits, IndependentMixtures, gaussian_log_density
from rnade.report.resemblance import (
    closest_columns,
    marginal,
    most_dependent,
    mutual_information,
    pairs,
    rank_bins,
    rank_correlation,
)
from rnade.report.words import MINUS
from tests.weather import make_weather

QUICK = {"n_hidden": 8, "n_components": 3, "epochs": 4, "random_state": 0, "device": "cpu"}
QUICK["ensemble"] = None  # one model, in one order


def fit(X, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpikeWarning)
        return RNADE(**(QUICK | settings)).fit(X)


def gaussian_rows(n=2000, rho=0.8, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    b = rho * a + math.sqrt(1 - rho**2) * rng.normal(size=n)
    return np.column_stack([a, b, rng.normal(size=n)])


@pytest.fixture(scope="module")
def weather():
    """A model of real numbers with everything in them, and what was found there."""
    frame = pd.DataFrame(make_weather())
    model = fit(frame, n_hidden=30, n_components=8, epochs=15, columns="real")
    model.origin_ = {"source": "w.csv", "left_out": {"day": "dates"}, "dropped_rows": 3}
    return model, frame, study(model, frame, source="w.csv")


def kinds(found):
    return {caution.kind: caution for caution in found.cautions}


# ---------------------------------------------------------------- references


def test_the_gaussian_reference_is_the_closed_form():
    X = gaussian_rows() * [1, 50, 0.01]
    rows = X[:20] + 0.1
    law = scipy.stats.multivariate_normal(X.mean(axis=0), np.cov(X.T, bias=True))
    # But for the ridge of a millionth of each variance.
    np.testing.assert_allclose(gaussian_log_density(X, rows), law.logpdf(rows), rtol=1e-4)


def test_independent_mixtures_are_densities_close_to_the_truth(seed):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(3, 2, 4000), rng.gamma(3, size=4000) * 100])
    found = IndependentMixtures.fit(X, np.full(2, 1e-4))
    for d, (low, high) in enumerate([(-20, 25), (-200, 2000)]):

        def density(x, d=d):
            return math.exp(found.log_densities(np.full((1, 2), x))[0, d])

        assert quad(density, low, high, limit=500)[0] == pytest.approx(1, abs=1e-3)
    fresh = np.column_stack([rng.normal(3, 2, 4000), rng.gamma(3, size=4000) * 100])
    truth = [scipy.stats.norm(3, 2), scipy.stats.gamma(3, scale=100)]
    expected = [law.logpdf(x).mean() for law, x in zip(truth, fresh.T, strict=True)]
    np.testing.assert_allclose(found.log_densities(fresh).mean(axis=0), expected, atol=0.03)


def test_independent_mixtures_have_the_floor_they_are_given():
    X = np.repeat([[1.0], [2.0]], 200, axis=0)
    found = IndependentMixtures.fit(X, np.array([0.5]))
    # Half of the rows at each of two values, each as a normal of half the column's deviation.
    expected = np.log(0.5 * scipy.stats.norm(1, 0.25).pdf(1))
    assert found.log_densities(X)[0, 0] == pytest.approx(expected, abs=0.05)


def test_independent_bits_are_bernoulli_with_a_row_of_each_added():
    X = np.array([[1, 0], [1, 0], [0, 0]], dtype=float)
    law = scipy.stats.bernoulli([3 / 5, 1 / 5])
    np.testing.assert_allclose(IndependentBits.fit(X).log_densities(X), law.logpmf(X.astype(int)))


# ---------------------------------------------------------------- calibration and resemblance


def test_calibration_of_uniform_values(seed):
    rng = np.random.default_rng(seed)
    columns = [column_calibration("a", rng.uniform(size=500)) for _ in range(200)]
    # 99 % of right models are inside: more than 8 of 200 outside has a chance below 1e-3.
    assert sum(not column.inside for column in columns) <= 8
    u = rng.uniform(size=500)
    one = column_calibration("a", u)
    assert one.distance == pytest.approx(scipy.stats.kstest(u, "uniform").statistic)
    assert one.coverage == pytest.approx(np.mean((u > 0.05) & (u < 0.95)))
    assert one.counts.sum() == 500


@pytest.mark.parametrize("shape", [(3, 3), (0.5, 0.5), (1, 2)], ids=["unsure", "sure", "off"])
def test_calibration_sees_a_wrong_model(shape):
    u = scipy.stats.beta(*shape).rvs(2000, random_state=0)
    assert not column_calibration("a", u).inside


def test_marginals_are_shares_over_the_same_bins():
    rng = np.random.default_rng(0)
    real, sampled = rng.normal(size=3000), rng.normal(0.5, size=2000)
    found = marginal("a", real, sampled, 0.0)
    assert found.real.sum() == pytest.approx(0.99, abs=0.01)
    assert found.distance == pytest.approx(scipy.stats.ks_2samp(real, sampled).statistic)
    assert len(found.edges) == len(found.real) + 1 == len(found.sampled) + 1


def test_marginals_of_rounded_columns_have_no_combs():
    """Every bin holds the same number of steps, and samples are rounded before comparing."""
    rng = np.random.default_rng(0)
    real = np.round(rng.uniform(0, 10, 20_000), 1)
    found = marginal("a", real, rng.uniform(0, 10, 20_000), 0.1)
    inner = found.real[1:-1]
    assert inner.max() < 1.25 * inner.min()
    assert found.distance < 0.03


def test_rank_correlation_is_spearmans():
    X = np.exp(gaussian_rows(300))
    np.testing.assert_allclose(rank_correlation(X), scipy.stats.spearmanr(X).statistic)
    assert rank_correlation(np.column_stack([X[:, 0], np.ones(300)])).tolist() == [[1, 0], [0, 1]]


def test_mutual_information_sees_curves_and_no_ghosts():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 5000))
    X = np.column_stack([a, b, a**2 + 0.1 * rng.normal(size=5000), np.ones(5000)])
    every = np.arange(4)
    information = mutual_information(rank_bins(X), every)
    np.testing.assert_allclose(information, information.T)
    assert information[0, 1] < 0.01
    assert information[0, 2] > 0.8
    # 64 cells and 1000 rows look dependent by 49 / 2000 nats where nothing is.
    noise = rank_bins(rng.normal(size=(1000, 10)))
    assert mutual_information(noise, np.arange(10)).mean() < 0.01
    assert abs(scipy.stats.spearmanr(a, X[:, 2]).statistic) < 0.05  # which correlation misses
    assert information[3].max() == 0
    assert most_dependent(information, every, 2) == [0, 2]
    some = mutual_information(rank_bins(X), np.array([2, 1]))
    np.testing.assert_array_equal(some, information[[2, 1]])
    assert most_dependent(some, np.array([2, 1]), 2) == [0, 2]
    assert set(closest_columns(some, np.array([2, 1]))) <= {1, 2}
    assert closest_columns(some, np.array([2, 1]))[2] == (0, information[2, 0])


def test_mutual_information_of_gaussians():
    """Binned ranks lose some of -log(1 - rho^2) / 2, and never gain."""
    information = mutual_information(rank_bins(gaussian_rows(20_000)), np.array([0]))[0, 1]
    exact = -0.5 * math.log(1 - 0.8**2)
    assert 0.85 * exact < information < exact


def test_pairs_hold_as_many_points_as_asked():
    X = gaussian_rows(500)
    found = pairs(["a", "b", "c"], [0, 2], X, X[:40], 100)
    assert found.columns == ["a", "c"]
    assert found.real.shape == (100, 2)
    assert found.sampled.shape == (40, 2)


# ---------------------------------------------------------------- odd rows and gains


@pytest.mark.parametrize("level", [0.05, 0.01, 0.001])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_below_the_threshold_are_those_with_small_p_values(level, weighted, seed):
    rng = np.random.default_rng(seed)
    # Of 1999 rows p-values are multiples of 1 / 2000, so that all three levels are met exactly.
    weights = rng.uniform(0.5, 1.5, 1999) if weighted else None
    calibration = Calibration.from_scores(rng.normal(size=1999), weights)
    bound = threshold(calibration, level)
    scores = rng.normal(-2, 1.5, size=5000)
    np.testing.assert_array_equal(scores < bound, calibration.pvalue(scores) <= level)


def test_too_few_held_out_rows_have_no_threshold():
    calibration = Calibration.from_scores(np.arange(98.0))
    assert threshold(calibration, 0.01) is None
    assert threshold(calibration, 0.05) is not None


def test_planted_rows_are_the_oddest_for_the_planted_reason(weather):
    model, _, _ = weather
    rows = pd.DataFrame(make_weather(n=500, seed=9))
    rows.loc[7, "dew point"] = rows.loc[7, "temperature"] + 8  # never above the temperature
    rows.loc[30, "pressure"] = 1090.0
    found = study(model, rows, source="new.csv", places=np.arange(11, 511))
    assert found.table.role == "other"
    oddest = {row.row: row for row in found.oddness.rows[:2]}
    assert set(oddest) == {18, 41}
    dew_point, pressure = oddest[18].reasons[0], oddest[41].reasons[0]
    assert dew_point.column == "dew point"
    assert dew_point.low < dew_point.high < dew_point.value == rows.loc[7, "dew point"]
    assert pressure.column == "pressure"
    assert pressure.high < 1090
    assert kinds(found)["outside"].text.startswith("Values in “pressure”")
    assert "1 row" in kinds(found)["outside"].title


def test_expected_intervals_hold_nine_of_ten_values(weather):
    model, frame, _ = weather
    held_out = frame.iloc[model.fitted_rows_.held_out]
    low, high = (model.conditional_quantiles(held_out, q) for q in (0.05, 0.95))
    inside = ((held_out >= low) & (held_out <= high)).mean()
    assert inside[["temperature", "pressure", "wind", "humidity"]].between(0.84, 0.96).all()


def test_gains_add_up_to_the_lead_over_independent_columns(weather):
    *_, found = weather
    lead = next(line.lead for line in found.scores if line.model == "independent columns")
    assert sum(gain.gain for gain in found.gains) == pytest.approx(lead.mean)


def test_gains_of_gaussians_are_their_mutual_information():
    X = gaussian_rows(6000)
    found = study(fit(X, epochs=15, n_hidden=20), X)
    exact = [0, -0.5 * math.log(1 - 0.8**2), 0]
    for gain, truth in zip(found.gains, exact, strict=True):
        assert gain.gain == pytest.approx(truth, abs=3 * gain.standard_error + 0.03)
    assert [gain.closest for gain in found.gains][:2] == ["x2", "x1"]


def test_gains_follow_the_models_order():
    X = gaussian_rows(400)
    found = study(fit(X, order=[2, 1, 0]), X)
    assert [(gain.column, gain.position) for gain in found.gains] == [
        ("x3", 1),
        ("x2", 2),
        ("x1", 3),
    ]


# ---------------------------------------------------------------- which rows are what


def test_the_fitted_table_is_judged_by_its_held_out_rows(weather):
    model, frame, found = weather
    assert (found.table.role, found.table.n_judged) == ("fitted", 300)
    assert found.scores[0].score.mean == pytest.approx(model.validation_scores_.mean())
    rows = Rows.of(model, frame.to_numpy())
    ((learned, judged),) = rows.folds
    assert not set(learned) & set(judged)
    assert rows.seen.sum() == 2700


def test_another_table_is_judged_by_all_rows_and_references_by_the_other_half(weather):
    model, _, _ = weather
    rows = Rows.of(model, pd.DataFrame(make_weather(n=101, seed=3)).to_numpy())
    assert rows.role == "other"
    assert len(rows.judged) == 101
    scored = np.concatenate([judge for _, judge in rows.folds])
    assert sorted(scored) == list(range(101))
    assert all(not set(learn) & set(judge) for learn, judge in rows.folds)


def test_a_model_that_does_not_remember_says_so(weather, tmp_path):
    model, frame, _ = weather
    model.save(tmp_path / "m.rnade")
    old = load(tmp_path / "m.rnade")
    old.fitted_rows_ = None
    found = study(old, frame)
    assert found.table.role == "unknown"
    assert kinds(found)["rows"].severity == "mind"
    assert found.oddness.rows[0].seen is None


def test_a_model_trained_again_has_seen_all_rows():
    X = gaussian_rows(300)
    found = study(fit(X, retrain=True), X)
    assert "seen all" in kinds(found)["rows"].title
    assert all(row.seen for row in found.oddness.rows)


def test_an_average_trained_again_is_judged_as_it_was_before():
    X = gaussian_rows(300)
    model, first = (fit(X, retrain=again, ensemble="auto") for again in (True, False))
    found, before = study(model, X), study(first, X)
    assert "rows" not in kinds(found)
    assert found.scores == before.scores
    assert str(found.calibration) == str(before.calibration)
    assert "before it was trained again on all rows" in render(found)
    new = gaussian_rows(200, seed=1)
    assert study(model, new).scores[0].score.mean == pytest.approx(model.score(new))


def test_a_model_that_could_not_be_trained_again_has_not_seen_the_held_out_rows():
    X = gaussian_rows(300)
    model = fit(X, retrain=True)
    del model.retrain_history_
    found = study(model, X)
    assert "rows" not in kinds(found)
    assert not all(row.seen for row in found.oddness.rows)
    assert "trained again" not in str(found.fitted)


# ---------------------------------------------------------------- cautions


def test_a_weighted_model_is_told_of_and_keeps_its_weighted_score():
    X = np.random.default_rng(0).normal(size=(300, 2))
    weights = np.where(X[:, 0] > 0, 1.0, 0.01)
    model = RNADE(**QUICK).fit(X, sample_weight=weights)
    found = study(model, X)
    assert "weighted" in {caution.kind for caution in found.cautions}
    assert found.fitted.stored_score == model.held_out_score()
    plain = study(RNADE(**QUICK).fit(X), X)
    assert "weighted" not in {caution.kind for caution in plain.cautions}


def test_cautions_of_the_weather(weather):
    *_, found = weather
    told = kinds(found)
    assert "“dew point”" in told["leak"].title
    assert "“wind”" not in told["leak"].title
    assert "“rain” (0 in" in told["spike"].text
    assert "“sunshine”" in told["rounded"].text
    assert "“rain”" not in told["rounded"].text  # it is spread out but for one value
    assert "repeated" not in told
    assert "outside" not in told
    assert "rows" not in told


def test_a_good_fit_to_plain_rows_needs_no_caution_but_of_time():
    X = gaussian_rows(3000)
    assert set(kinds(study(fit(X, epochs=12, n_components=1), X))) <= {"short"}


def test_a_model_worse_than_a_gaussian_is_told():
    X = gaussian_rows(2000, rho=0.999)
    found = study(fit(X, epochs=1, batches_per_epoch=2), X)
    told = kinds(found)["worse-than-gaussian"]
    assert told.severity == "serious"
    assert found.cautions[0].severity == "serious"
    assert found.sentences["comparison"].startswith("A Gaussian with full covariance gives")


def test_overfitting_is_the_gap_of_the_fitted_model():
    """Of the average that was fitted, whatever the curve of one of its models says."""
    X = load_wine().data
    model = fit(X, ensemble="auto", epochs=20, n_hidden=50, validation_fraction=0.3)
    held_out = np.zeros(len(X), dtype=bool)
    held_out[model.fitted_rows_.held_out] = True
    scores = model.judging.score_samples(X)
    means = scores[~held_out].mean(), scores[held_out].mean()
    assert means[0] > means[1] + 3  # or this tests nothing
    text = kinds(study(model, X))["overfit"].text
    told = re.findall(r"-?\d+\.?\d*", text.replace(MINUS, "-"))
    np.testing.assert_allclose([*map(float, told)], [*means, means[0] - means[1]], rtol=0.01)


def test_overfitting_of_one_model_is_known_without_its_table():
    X = np.random.default_rng(0).normal(size=(60, 6))
    model = fit(X, epochs=10)
    mean = model.held_out_score().mean
    shift = model.standardiser_.log_determinant
    model.history_ = [row | {"train": mean - shift + 9.0} for row in model.history_]
    assert "9 nats" in kinds(study(model, X + 1e-9))["overfit"].text


def test_of_an_average_what_is_said_is_true_of_all_its_models():
    X = gaussian_rows(400)
    model = fit(X, ensemble="auto", epochs=6)
    networks = [member for member in model.members_ if not member["mixture"]]
    best = [member["best_epoch"] for member in networks]
    found = study(model, X)
    epochs = f"epochs {min(best)} to {max(best)}" if len(set(best)) > 1 else f"epoch {best[0]}"
    assert found.sentences["curve"].startswith(
        f"{len(networks)} networks were averaged, each with the weights of its own best epoch"
        f" ({epochs}); the model was then trained again on all rows. By weights that left-out rows"
        " earned them, the average is "
    )
    share = sum(member["weight"] for member in model.members_ if member["mixture"] == 1)
    assert f"{share:.0%} a Gaussian" in found.sentences["curve"]
    assert "its own 1/8 fold of the training rows" in found.sentences["curve"]
    page = render(found)
    assert "had no part in training: each model early-stopped on its own 1/8 fold" in page
    assert "chose the epoch" not in page
    assert "the fold that stopped it" in page
    one = study(fit(X), X)
    assert "its weights were kept" in one.sentences["curve"]
    assert "which chose the epoch to stop at, and no more" in render(one)


def test_an_average_that_was_too_small_for_folds_was_stopped_by_held_out_rows():
    X = gaussian_rows(40)
    model = fit(X, ensemble="auto", epochs=2)
    assert len(model.members_) > 1
    found = study(model, X)
    assert not found.fitted.trained.own_folds
    assert "which chose the epoch" in render(found)


def test_models_that_were_still_improving_are_counted():
    X = gaussian_rows(400)
    model = fit(X, ensemble="auto", effort="fast", epochs=6)
    for m, member in enumerate(model.members_):
        member["best_epoch"] = member["epochs"] - (m >= 12)
    assert "12 of 16 models" in kinds(study(model, X))["short"].text
    for member in model.members_[:8]:
        member["best_epoch"] = 1
    assert "short" not in kinds(study(model, X))


def test_each_column_of_an_fvbn_has_an_epoch_of_its_own():
    X = gaussian_rows(300)
    found = study(FVBN(epochs=5, search=None, random_state=0, device="cpu").fit(X), X)
    assert found.sentences["curve"].startswith("Each column has a network, each with")


def test_where_p_values_cannot_be_small_nothing_is_expected():
    X = gaussian_rows(890)
    model = fit(X)  # 89 rows are held out: no p-value is below 1/90
    found = study(model, X)
    page = render(found)
    assert found.oddness.smallest_p == pytest.approx(1 / 90)
    assert '<td class="figure">8.9</td>' not in page
    assert "no p below 0.011" in page
    few = study(fit(gaussian_rows(50)), gaussian_rows(50))
    assert "With 5 rows to compare with no p-value can be below 0.17" in few.sentences["oddness"]
    assert "Smallest p-value possible" in render(few)


def test_calibration_is_not_judged_by_a_handful_of_rows():
    X = gaussian_rows(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingWarning)
        found = study(fit(X), X)
    assert found.calibration == []
    assert any("cannot be judged by 1 row" in sentence for sentence in found.absent)
    assert "Calibration cannot be judged" in kinds(found)["few"].text
    page = render(found)
    assert "points, in" not in page
    assert "1 rows" not in page


def test_calibration_says_what_chance_explains():
    X = gaussian_rows(400)
    found = study(fit(X), X)
    said = float(re.search(r"chance alone explains (\S+)\.$", found.sentences["calibration"])[1])
    # The largest of three columns' distances, by simulation.
    u = np.random.default_rng(0).uniform(size=(4000, 3, 40))
    draws = np.sort(u, axis=2)
    above = (np.arange(1, 41) / 40 - draws).max(axis=(1, 2))
    below = (draws - np.arange(40) / 40).max(axis=(1, 2))
    share = (100 * np.maximum(above, below) > said).mean()
    assert share == pytest.approx(0.01, abs=0.006)


def test_another_kind_of_rows_is_told():
    model = fit(gaussian_rows(1000))
    found = study(model, gaussian_rows(500) + 4)
    assert kinds(found)["unlike"].severity == "serious"


def test_duplicate_rows_are_told_with_those_in_training():
    X = np.tile(gaussian_rows(200), (2, 1))
    found = study(fit(X), X)
    assert (
        "100\N{NO-BREAK SPACE}% of the rows occur more than once" in kinds(found)["repeated"].text
    )
    assert "are exact duplicates of rows the model learned" in kinds(found)["repeated"].text


def test_no_floor_on_rounded_columns_is_serious():
    X = np.round(gaussian_rows(400), 1)
    assert kinds(study(fit(X, sigma_floor=0.0), X))["rounded"].severity == "serious"


def test_few_rows_and_skipped_updates_are_told():
    X = gaussian_rows(50)
    model = fit(X)
    model.history_[-1]["skipped"] = 2
    told = kinds(study(model, X))
    assert told["few"].title == "Only 5 rows held out"
    assert told["skipped"].text.startswith("2 updates")


# ---------------------------------------------------------------- all kinds of models and tables


def test_everything_is_had_as_json(weather):
    *_, found = weather
    plain = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert set(plain) == {field for field in vars(found)}
    assert plain["oddness"]["thresholds"][2]["log_density"] is None
    assert len(plain["pairs"]["real"]) == 700
    assert plain["fitted"]["left_out"] == {"day": "dates"}
    assert plain["fitted"]["settings"]["n_hidden"] == 30


@pytest.mark.parametrize("kind", [NADE, FVSBN])
def test_binary_models(kind, seed):
    rng = np.random.default_rng(seed)
    a = rng.uniform(size=2000) < 0.3
    X = np.column_stack([a, a ^ (rng.uniform(size=2000) < 0.1), rng.uniform(size=2000) < 0.5])
    settings = {"epochs": 20, "learning_rate": 0.05, "random_state": 0, "device": "cpu"}
    model = kind(**settings).fit(3.0 * X)  # thresholded at 0
    found = study(model, 3.0 * X)
    assert [line.model for line in found.scores] == [kind.__name__, "independent columns"]
    second = scipy.stats.entropy([0.34, 0.66]) - scipy.stats.entropy([0.1, 0.9])
    assert found.gains[1].gain == pytest.approx(second, abs=0.12)
    assert all(column.distance < 0.1 for column in found.calibration)
    assert "3 columns" in found.sentences["summary"]
    assert "Values above 0 count as 1" in found.fitted.changes[0]
    assert "probability" in found.sentences["comparison"]
    assert "leak" not in kinds(found)
    render(found)


class Plain:
    """A density without conditionals, as a mixture of Gaussians is."""

    def __init__(self, X):
        self.mixture = GaussianMixture(2, random_state=0).fit(X)
        self.n_features_in_ = X.shape[1]

    def get_params(self, deep=True):
        return self.mixture.get_params(deep)

    def score_samples(self, X):
        return self.mixture.score_samples(X)

    def sample(self, n, random_state=None):
        return self.mixture.set_params(random_state=random_state).sample(n)[0]


def test_a_model_without_conditionals_leaves_sections_out():
    X = gaussian_rows(600)
    found = study(Plain(X), X)
    assert found.gains == found.calibration == []
    assert len(found.absent) == 2
    assert not found.oddness.own_calibration
    page = render(found)
    assert "Plain has no log density for single columns" in page
    assert "What depends on what" not in page


@pytest.mark.parametrize("shape", [(40, 1), (3, 2), (1, 3)])
def test_small_tables(shape):
    model = fit(gaussian_rows(100)[:, : shape[1]])
    found = study(model, gaussian_rows(shape[0], seed=4)[:, : shape[1]])
    assert found.table.n_rows == shape[0]
    assert (found.pairs is None) == (shape[1] == 1)
    render(found)
    json.dumps(found.as_json(), allow_nan=False)


def test_what_cannot_be_asked():
    model = fit(pd.DataFrame(gaussian_rows(100), columns=["a", "b", "c"]))
    with pytest.raises(ValueError, match="no column 'b', which the model was fitted to"):
        study(model, pd.DataFrame({"a": [1.0], "c": [2.0]}))
    with pytest.raises(
        ValueError, match=r"Expected X of shape \(N, 3\) with N >= 1; got \(4, 2\)"
    ):
        study(model, np.zeros((4, 2)))
    with pytest.raises(ValueError, match="missing or infinite"):
        study(model, np.full((4, 3), np.nan))


def test_an_average_over_orders_has_gains_from_other_columns():
    X = gaussian_rows()
    model = fit(X, ensemble="auto", epochs=20, retrain=False)
    found = study(model, X)
    assert [gain.position for gain in found.gains] == [0, 0, 0]
    a, b, c = (gain.gain for gain in found.gains)
    # Each of the pair knows the other in half of the orders, or all of them: half in sum.
    assert a + b == pytest.approx(-0.5 * math.log(1 - 0.8**2), abs=0.1)
    assert c == pytest.approx(0, abs=0.05)
    page = render(found)
    assert "in an order of its own" in page
    assert "columns above it" not in page


# ---------------------------------------------------------------- wide tables


def wide_rows(n_columns, n=60):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 3)) @ rng.normal(size=(3, n_columns)) + rng.normal(
        size=(n, n_columns)
    )


def test_a_page_does_not_grow_with_the_columns_of_a_wide_table():
    pages = {}
    for n_columns in (400, 800):
        X = wide_rows(n_columns)
        found = study(fit(X, epochs=1), X)
        pages[n_columns] = render(found)
        assert len(found.marginals) == len(found.gains) == n_columns
        assert len(found.correlation.columns) == 300
    assert len(pages[800]) < 1.05 * len(pages[400])
    assert "Shown: 60 of 800 columns, those that are the furthest off." in pages[800]
    assert "Shown: 60 of 800 columns, those with the largest gains." in pages[800]
    assert "Compared: 300 of 800 columns, those that gain the most" in pages[800]


def test_intervals_are_found_for_the_cells_that_are_shown_alone(monkeypatch):
    asked = []
    quantile = Conditional.quantile

    def counting(conditional, q):
        asked.append(q)
        return quantile(conditional, q)

    monkeypatch.setattr(Conditional, "quantile", counting)
    X = wide_rows(200)
    found = study(fit(X, epochs=1), X)
    told = [reason for row in found.oddness.rows for reason in row.reasons]
    assert len(told) > 10
    assert all(reason.low < reason.high for reason in told)
    # Six cells of ten rows, of which three are told, and the two ends of each.
    assert len(asked) <= 6 * 10 * 2


def test_quantiles_of_some_cells_are_those_of_all(weather):
    model, frame, _ = weather
    rows = frame[:4]
    where = np.random.default_rng(0).uniform(size=rows.shape) < 0.4
    found = model.conditional_quantiles(rows, 0.3, where=where)
    np.testing.assert_array_equal(np.isfinite(found), where)
    np.testing.assert_array_equal(found[where], model.conditional_quantiles(rows, 0.3)[where])


def test_a_gaussian_of_fewer_rows_than_columns_is_no_reference():
    X = wide_rows(80)
    found = study(fit(X, epochs=1), X)
    assert [line.model for line in found.scores] == ["RNADE", "independent columns"]
    assert any("more rows than columns" in sentence for sentence in found.absent)
