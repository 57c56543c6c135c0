"""Rows that models left out of training: their scores, their p-values, and those of new rows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import logsumexp

import rnade.estimators.kinds as plain_plans
import rnade.estimators.rnade as rnade_estimator
import rnade.training.em.coarse as coarse_fits
import rnade.training.table as table_plans
from rnade import RNADE, Gaussian, MixtureOfGaussians, load
from rnade.backends.cpu import threads
from rnade.columns.partition import ColumnCells
from rnade.nn.table import encoded
from rnade.serialisation import read_model, write_model
from rnade.training import Bank
from rnade.training.member import Diverged
from rnade.training.table import plan_table

QUICK = {
    "n_hidden": 8,
    "epochs": 5,
    "random_state": 0,
    "device": "cpu",
    "questions": False,
    "retrain": False,
}


def curved(n, seed=0, D=4):
    """Skewed and dependent columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    X[:, 1] += X[:, 0] ** 2
    X[:, -1] = np.exp(X[:, -1] + 0.5 * X[:, 0])
    return X


def homes(n, seed=0):
    """Levels, whole numbers, an atom, missing cells; all columns depend on each other."""
    rng = np.random.default_rng(seed)
    city = rng.choice(["Oslo", "Rome", "Bern", "Lima"], n, p=[0.5, 0.3, 0.15, 0.05])
    rooms = rng.poisson(2 + 2 * (city == "Rome"))
    price = np.exp(rng.normal(3 + 0.3 * rooms, 0.4))
    tax = np.where(rng.random(n) < 0.3, 0.0, price / 10 + rng.normal(size=n))
    price[rng.random(n) < 0.1] = np.nan
    return pd.DataFrame({"city": city, "rooms": rooms, "price": price, "tax": tax})


def few_tables(rows):
    """Rows of `curved` without links between columns, but with a column of levels."""
    X = curved(rows)
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": np.where(X[:, 2] > 0, "x", "y")})


def folds_of(model, n):
    """For each row the fold in which it was left out; -1 if it was held out, by the seed."""
    rng = np.random.RandomState(model.random_state)
    shuffled = rng.permutation(n)
    n_held_out = round(0.1 * n)
    found = np.full(n, -1)
    training = shuffled[n_held_out:]
    for fold in range(8):
        found[training[fold * len(training) // 8 : (fold + 1) * len(training) // 8]] = fold
    return found


# ---------------------------------------------------------------- scores of the fitted table


def test_scores_are_by_exactly_the_models_that_left_a_row_out():
    X = curved(203)
    model = RNADE(**QUICK).fit(X)
    folds = folds_of(model, 203)
    np.testing.assert_array_equal(np.flatnonzero(folds < 0), model.fitted_rows_.held_out)
    Z = torch.as_tensor(model.standardiser_.transform(X))
    with torch.no_grad():
        members = range(len(model.members_))
        each = torch.stack([model.module_.member(m).log_prob(Z) for m in members]).numpy()
    left_out = np.array([member["fold"] for member in model.members_])
    weights = np.array([member["weight"] for member in model.members_])
    for i, fold in enumerate(folds):
        own = slice(None) if fold < 0 else left_out == fold
        mean = logsumexp(each[own, i], b=weights[own] / weights[own].sum())
        expected = mean + model.standardiser_.log_determinant
        assert model.fit_scores_[i] == pytest.approx(expected)


def test_scores_of_mixed_tables_are_by_the_networks_that_left_a_row_out():
    frame = few_tables(120)
    model = RNADE(**QUICK).fit(frame)
    assert not any(model.module_.networks.links)
    folds = folds_of(model, 120)
    values, _ = model.schema_.encode(frame)
    with torch.no_grad():
        along = model.module_.terms(model.module_.cells(values)).sum(-1).numpy()
    for i, fold in enumerate(folds):
        own = along[:, i] if fold < 0 else along[fold::8, i]
        assert model.fit_scores_[i] == pytest.approx(logsumexp(own) - np.log(len(own)))


def test_links_do_not_tell_a_left_out_row_of_itself():
    """Tables of pairs have counted the row: its own count is taken out again."""
    rng = np.random.default_rng(0)
    city = rng.choice([f"city {i}" for i in range(12)], 300)
    frame = pd.DataFrame({"city": city, "code": [f"code {name}" for name in city]})
    frame.loc[17] = ["city 3", "code city 8"]
    model = RNADE(**QUICK | {"epochs": 10}).fit(frame)
    module, fold = model.module_, folds_of(model, 300)[17]
    assert module.links
    assert fold >= 0
    values, _ = model.schema_.encode(frame)
    with torch.no_grad():
        knowing, blind = (
            torch.logsumexp(module.terms(x.double()).sum(-1)[fold::8, 17], 0) - np.log(2)
            for x in (module.cells(values), encoded(module.columns, values, module.links, 1.0))
        )
    assert blind < knowing - 0.1
    assert model.fit_scores_[17] == pytest.approx(float(blind))
    assert model.fit_pvalues_[17] == pytest.approx(1 / 300)


def test_pvalues_of_the_fitted_table_are_those_out_of_fold():
    X, new = curved(150), curved(40, seed=1)
    model = RNADE(**QUICK).fit(X)
    np.testing.assert_array_equal(model.pvalue(X), model.fit_pvalues_)
    judged = model.judge(X)
    np.testing.assert_array_equal(judged.scores, model.fit_scores_)
    assert judged.left_out.all()
    assert not judged.learned.any()
    assert (model.pvalue(X[::-1]) != model.fit_pvalues_[::-1]).any()  # another table
    judged = model.judge(new)
    assert not judged.left_out.any()
    np.testing.assert_allclose(judged.scores, model.score_samples(new))
    np.testing.assert_array_equal(judged.p_values, model.pvalue(new))
    # Ranks, up to rows that are compared under different models.
    assert np.abs(np.sort(model.fit_pvalues_) - np.arange(1, 151) / 150).max() < 0.05


def test_pvalues_of_new_rows_compare_fold_by_fold(monkeypatch):
    monkeypatch.setattr(coarse_fits, "MOST_COLUMNS", 0)  # by log densities alone
    X, new = curved(100), curved(25, seed=1)
    model = RNADE(**QUICK).fit(X)
    folds = folds_of(model, 100)
    left_out = np.array([member["fold"] for member in model.members_])
    weights = np.array([member["weight"] for member in model.members_])

    def by(members, rows):
        Z = torch.as_tensor(model.standardiser_.transform(rows))
        with torch.no_grad():
            each = torch.stack([model.module_.member(m).log_prob(Z) for m in members])
        return logsumexp(each.numpy(), axis=0, b=weights[members][:, None])

    count = np.ones(25)
    for fold in range(-1, 8):
        here = left_out == fold if fold >= 0 else np.ones(len(left_out), dtype=bool)
        members = np.flatnonzero(here).tolist()
        compared = by(members, X[folds == fold])
        count += (compared[:, None] <= by(members, new)).sum(0)
    np.testing.assert_allclose(model.pvalue(new), count / 101)
    assert model.calibration_.smallest == pytest.approx(1 / 101)
    assert model.pvalue(X[:1] + 100)[0] == pytest.approx(1 / 101)
    assert model.held_out_score().n_rows == 10


def test_outliers_in_the_fitted_table_are_found():
    """Each cell of a planted row is that of another row. Models that learned them miss them."""
    rng = np.random.default_rng(0)
    height = rng.normal(size=300)
    X = np.column_stack([height + 0.1 * rng.normal(size=300) for _ in range(6)])
    X[:6] = np.column_stack([rng.choice(x, 6) for x in X.T])
    model = RNADE(random_state=1, questions=False, epochs=40).fit(X)
    assert (model.fit_pvalues_[:6] <= 0.03).all()
    assert (model.fit_pvalues_[6:] <= 0.03).mean() < 0.03


# ---------------------------------------------------------------- uniform on new rows

# Largest differences that the share of p-values below a level may have from it: what the size of
# the fitted table allows, at four standard errors.
SHARES = (0.05, 0.1, 0.5)


def assert_uniform(p_values, n_fitted):
    for share in SHARES:
        # A p-value is a count of so many rows, and the fitted rows are a draw themselves.
        allowed = 4 * np.sqrt(share * (1 - share) / n_fitted) + 1 / n_fitted + 0.02
        assert abs((p_values <= share).mean() - share) < allowed, share


@pytest.mark.parametrize("n", [30, 60, 300, 3000])
def test_pvalues_of_new_rows_are_uniform(n, seed):
    settings = QUICK | {"epochs": 10, "random_state": seed}
    model = RNADE(**settings).fit(curved(n, seed))
    assert_uniform(model.pvalue(curved(2000, seed=100 + seed)), n)
    assert model.calibration_.smallest == pytest.approx(1 / (n + 1))


@pytest.mark.parametrize("n", [30, 100, 800])
def test_pvalues_of_new_rows_of_mixed_tables_are_uniform(n, seed):
    settings = QUICK | {"random_state": seed, "score_fitted": n > 30}
    model = RNADE(**settings).fit(homes(n, seed))
    assert_uniform(model.pvalue(homes(1500, seed=100 + seed)), n)
    assert model.calibration_.smallest == pytest.approx(1 / (n + 1))


def test_pvalues_of_weighted_rows_are_uniform_in_the_weighted_population(seed):
    """Weights shift the table; new rows are drawn from what they shift it to."""
    rng = np.random.default_rng(seed)
    X, many = curved(800, seed), curved(20_000, seed=50 + seed)
    weights, of_many = (np.exp(rows[:, 0]) for rows in (X, many))
    model = RNADE(**QUICK | {"random_state": seed}).fit(X, sample_weight=weights)
    new = many[rng.choice(len(many), 2000, p=of_many / of_many.sum())]
    assert_uniform(model.pvalue(new), 800 / np.e)  # rows that such weights are worth
    unweighted = RNADE(**QUICK | {"random_state": seed}).fit(X)
    assert (unweighted.pvalue(new) <= 0.5).mean() > (model.pvalue(new) <= 0.5).mean() + 0.05


# ---------------------------------------------------------------- who has such scores


def test_rows_that_all_models_learned_from_have_none():
    X = curved(100)
    for model in (RNADE(**QUICK, ensemble=None), Gaussian(), MixtureOfGaussians(2)):
        model.set_params(random_state=0).fit(X)
        held_out = model.fitted_rows_.held_out
        known = ~np.isnan(model.fit_scores_)
        np.testing.assert_array_equal(np.flatnonzero(known), held_out)
        np.testing.assert_array_equal(~np.isnan(model.fit_pvalues_), known)
        np.testing.assert_allclose(
            np.sort(model.fit_scores_[held_out]), np.sort(model.validation_scores_)
        )
        judged = model.judge(X)
        np.testing.assert_array_equal(judged.learned, ~known)
        np.testing.assert_allclose(judged.scores[~known], model.score_samples(X)[~known])
        assert np.isfinite(judged.p_values).all()


def test_one_network_of_a_mixed_table_leaves_out_its_fold_too():
    model = RNADE(**QUICK, ensemble=None).fit(homes(200))
    assert (~np.isnan(model.fit_scores_)).sum() == 20 + 22  # a tenth, and an eighth of the others


def test_retraining_keeps_the_scores_and_the_judges_of_the_first_training(tmp_path):
    X, new = curved(100), curved(50, seed=1)
    first, again = (RNADE(**QUICK | {"retrain": again}).fit(X) for again in (False, True))
    assert (first.score_samples(new) != again.score_samples(new)).all()
    again.save(tmp_path / "again.rnade")
    for model in (again, load(tmp_path / "again.rnade")):
        np.testing.assert_array_equal(first.fit_scores_, model.fit_scores_)
        np.testing.assert_array_equal(first.fit_pvalues_, model.fit_pvalues_)
        # All folds calibrate, under the models that did not learn them.
        np.testing.assert_array_equal(first.pvalue(new), model.pvalue(new))
        np.testing.assert_array_equal(first.decision_function(new), model.decision_function(new))
        np.testing.assert_array_equal(model.judge(new).scores, model.score_samples(new))
        assert model.held_out_score() == first.held_out_score()


@pytest.mark.parametrize(
    ("changes", "again"),
    [
        ({}, True),
        ({"effort": "best"}, True),
        ({"effort": "fast"}, False),
        ({"retrain": False}, False),
        ({"ensemble": None}, False),
        ({"ensemble": [{"n_hidden": 4}, {"n_hidden": 8}]}, False),
    ],
)
def test_averages_of_few_rows_are_trained_again_on_all(changes, again, monkeypatch):
    settings = QUICK | {"epochs": 2, "retrain": None, "columns": "real"} | changes
    assert hasattr(RNADE(**settings).fit(curved(60)), "retrain_history_") == again
    monkeypatch.setattr(rnade_estimator, "FEW_ROWS", 59)
    of_many = RNADE(**settings).fit(curved(60))
    assert hasattr(of_many, "retrain_history_") == (changes == {"effort": "best"})


def test_what_judges_measures_its_own_typical_cells():
    X = curved(80)
    first, again = (RNADE(**QUICK | {"retrain": again}).fit(X) for again in (False, True))
    again.surprise(X[:2])  # which measures what is typical of the model trained again
    np.testing.assert_array_equal(again.judging.surprise(X), first.surprise(X))


@pytest.mark.parametrize("n_threads", [1, 2])
def test_ctrl_c_in_training_again_ends_the_fit(monkeypatch, n_threads):
    train, before = RNADE._train, torch.get_num_threads()

    def interrupted(self, training, held_out, seed, target):
        module, outcome = train(self, training, held_out, seed, target)
        return module, replace(outcome, interrupted=held_out is None)

    monkeypatch.setattr(RNADE, "_train", interrupted)
    torch.set_num_threads(n_threads)
    try:
        model = RNADE(**QUICK | {"retrain": True, "questions": True}).fit(curved(60))
    finally:
        torch.set_num_threads(before)
    assert not hasattr(model, "retrain_history_")
    # With more threads than one the network for questions was trained beside the model.
    assert (model.questions_ is not None) == (n_threads == 2 and threads.may_split_anywhere())


@pytest.mark.filterwarnings("ignore:.*rows are too few")
@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("covered", [False, True])
@pytest.mark.parametrize("make", [curved, few_tables])
def test_tables_of_a_few_rows_are_fitted(n, covered, make):
    settings = QUICK | {"retrain": None, "score_fitted": covered, "epochs": 2}
    model = RNADE(**settings).fit(make(n))
    assert np.isfinite(model.pvalue(make(n))).all()
    # What has learned all rows has none to be judged by.
    assert hasattr(model, "retrain_history_") == (model.judges_ is not None)


@pytest.mark.parametrize("changes", [{"ensemble": None}, {"effort": "fast"}])
def test_one_network_of_a_few_rows_learns_from_all_but_the_held_out_ones(changes):
    model = RNADE(**QUICK | changes).fit(few_tables(30))
    assert [member["fold"] for member in model.members_] == [None]


def test_rows_of_weight_0_have_none():
    X, weights = curved(100), np.ones(100)
    weights[::4] = 0
    model = RNADE(**QUICK).fit(X, sample_weight=weights)
    np.testing.assert_array_equal(np.isnan(model.fit_scores_), weights == 0)
    assert np.isfinite(model.pvalue(X)).all()
    frame = homes(100)
    frame.loc[0, "city"] = None
    mixed = RNADE(**QUICK).fit(frame, sample_weight=weights)
    np.testing.assert_array_equal(np.isnan(mixed.fit_scores_), weights == 0)
    # The table that is known again is that of the rows that count.
    kept = frame[weights > 0]
    np.testing.assert_array_equal(mixed.pvalue(kept), mixed.fit_pvalues_[weights > 0])
    whole = mixed.judge(frame)
    np.testing.assert_array_equal(whole.left_out, weights > 0)
    np.testing.assert_array_equal(whole.p_values[weights > 0], mixed.pvalue(kept))


def test_rows_of_a_network_that_diverged_have_none(monkeypatch):
    """The other networks keep the folds that they left out."""
    results = Bank.results

    def one_diverged(self, wanted=None):
        found = results(self, wanted)
        found[2] = replace(found[2], diverged=Diverged(epoch=3, rate=0.1, skipped=10))
        return found

    monkeypatch.setattr(Bank, "results", one_diverged)
    frame = few_tables(120)
    model = RNADE(**QUICK).fit(frame)
    folds = folds_of(model, 120)
    np.testing.assert_array_equal(np.isnan(model.fit_scores_), folds == 2)
    values, _ = model.schema_.encode(frame)
    with torch.no_grad():
        along = model.module_.terms(model.module_.cells(values)).sum(-1).numpy()
    at = np.flatnonzero(folds == 3)[0]
    own = along[2::7, at]  # the third of the seven that are left
    assert model.fit_scores_[at] == pytest.approx(logsumexp(own) - np.log(len(own)))


# ---------------------------------------------------------------- covering all rows


def test_large_tables_are_covered_if_asked_for(monkeypatch):
    X = curved(400)
    monkeypatch.setitem(plain_plans.WORK, "cpu", 1.0)
    some = RNADE(**QUICK, effort="fast").fit(X)
    assert len(some.members_) == 2
    assert np.isnan(some.fit_scores_).mean() == pytest.approx(0.9 * 7 / 8, abs=0.01)
    model = RNADE(**QUICK | {"epochs": 8}, effort="fast", score_fitted=True).fit(X)
    assert [(m["fold"], m["n_folds"]) for m in model.members_] == [(i, 4) for i in range(4)] * 2
    assert {m["epochs"] for m in model.members_} == {3}  # 4 times as many models: 1.5 times long
    assert not np.isnan(model.fit_scores_).any()
    assert_uniform(model.pvalue(curved(2000, seed=9)), 400)


def test_large_mixed_tables_are_covered_if_asked_for(monkeypatch):
    monkeypatch.setitem(table_plans.WORK, "cpu", 1.0)
    frame = homes(300)
    some = RNADE(**QUICK).fit(frame)
    assert len(some.members_) == 1
    assert np.isnan(some.fit_scores_).mean() == pytest.approx(0.9 * 7 / 8, abs=0.01)
    judged = some.judge(frame)
    np.testing.assert_array_equal(judged.learned, np.isnan(some.fit_scores_))
    model = RNADE(**QUICK, score_fitted=True).fit(frame)
    assert [m["fold"] for m in model.members_] == [0, 1, 2, 3]
    assert not np.isnan(model.fit_scores_).any()


def test_networks_that_cover_all_rows_share_the_work():
    columns = [ColumnCells.of_numbers(np.arange(100.0), whole=False)] * 3
    eight = plan_table(1000, columns, "cpu", n_components=4)
    assert eight.n_networks == 8
    assert plan_table(1000, columns, "cpu", n_components=4, cover=True) == eight
    for n_rows in (10_000, 30_000):
        few = plan_table(n_rows, columns, "cpu", n_components=4)
        covering = plan_table(n_rows, columns, "cpu", n_components=4, cover=True)
        assert few.n_networks < 8
        assert covering.n_networks == covering.n_folds == max(4, few.n_networks)
        work = [plan.n_networks * plan.n_updates for plan in (few, covering)]
        assert work[1] <= 1.5 * work[0] + 4


def test_where_all_rows_are_left_out_as_it_is_nothing_changes():
    X = curved(150)
    plain, covering = (RNADE(**QUICK, score_fitted=on).fit(X) for on in (False, True))
    np.testing.assert_array_equal(plain.score_samples(X), covering.score_samples(X))


def test_covering_needs_an_average():
    for settings in ({"ensemble": None}, {"recipe": "paper"}):
        with pytest.raises(ValueError, match="score_fitted=True is for an average of models"):
            RNADE(score_fitted=True, **settings).fit(curved(50))


# ---------------------------------------------------------------- model files


@pytest.mark.parametrize("table", [curved(100), homes(100)], ids=["plain", "mixed"])
def test_model_files_keep_what_p_values_need(table, tmp_path):
    model = RNADE(**QUICK).fit(table)
    model.save(tmp_path / "m.rnade")
    loaded = load(tmp_path / "m.rnade", device="cpu")
    np.testing.assert_array_equal(loaded.fit_scores_, model.fit_scores_)
    np.testing.assert_array_equal(loaded.pvalue(table), model.fit_pvalues_)
    new = curved(30, seed=2) if isinstance(table, np.ndarray) else homes(30, seed=2)
    np.testing.assert_array_equal(loaded.pvalue(new), model.pvalue(new))
    assert loaded.held_out_score() == model.held_out_score()


def test_files_of_before_folds_calibrated_load(tmp_path, monkeypatch):
    monkeypatch.setattr(coarse_fits, "MOST_COLUMNS", 0)
    X = curved(100)
    model = RNADE(**QUICK).fit(X)
    model.save(tmp_path / "m.rnade")
    tensors, settings = read_model(tmp_path / "m.rnade")
    scores, weights = (torch.as_tensor(own) for own in model.calibration_.group(0))
    parts = ("fit.", "calibration.")
    old = {name: t for name, t in tensors.items() if not name.startswith(parts)}
    old |= {"calibration.scores": scores, "calibration.weights": weights}
    write_model(tmp_path / "old.rnade", old, settings)
    loaded = load(tmp_path / "old.rnade", device="cpu")
    assert loaded.fit_scores_ is None
    assert loaded.held_out_score() == model.held_out_score()
    below = np.searchsorted(scores.numpy(), model.score_samples(X), side="right")
    np.testing.assert_allclose(loaded.pvalue(X), (1 + below) / 11, atol=1 / 11 + 1e-9)
    assert loaded.calibration_.smallest == pytest.approx(1 / 11)
