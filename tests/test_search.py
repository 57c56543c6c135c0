"""Searches: scikit-learn's manner, the same scores as models trained alone, what is refitted."""

import math
import os
import signal

import numpy as np
import pytest
import scipy.stats
from sklearn.base import clone
from sklearn.model_selection import KFold, PredefinedSplit, cross_val_score
from sklearn.neighbors import KernelDensity

from rnade import FVSBN, RNADE, RNADESearchCV, load
from rnade.exceptions import TrainingWarning
from rnade.nn import RNADEModule
from rnade.training import bank as bank_file
from tests.test_estimators import make_X

BASE = RNADE(n_hidden=4, epochs=6, device="cpu")
GRID = {"n_components": [1, 3], "learning_rate": [1e-3, 0.05]}


def make_search(grid=None, **options):
    options = {"cv": 2, "random_state": 0, **options}
    return RNADESearchCV(BASE, GRID if grid is None else grid, **options)


def test_results_have_scikit_learns_form():
    X = make_X(120)
    search = make_search(cv=3).fit(X)
    results = search.cv_results_
    assert results["params"] == [
        {"learning_rate": rate, "n_components": K} for rate in (1e-3, 0.05) for K in (1, 3)
    ]
    splits = np.stack([results[f"split{i}_test_score"] for i in range(3)])
    np.testing.assert_allclose(results["mean_test_score"], splits.mean(0))
    np.testing.assert_allclose(results["std_test_score"], splits.std(0))
    assert sorted(results["rank_test_score"]) == [1, 2, 3, 4]
    assert results["rank_test_score"][search.best_index_] == 1
    assert search.best_params_ == results["params"][search.best_index_]
    assert search.best_score_ == results["mean_test_score"].max()
    assert search.n_splits_ == 3
    assert search.best_estimator_.n_components == search.best_params_["n_components"]
    np.testing.assert_array_equal(search.score_samples(X), search.best_estimator_.score_samples(X))
    assert search.sample(3, 0).shape == (3, 3)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("score_samples", ()),
        ("log_conditionals", ()),
        ("pvalue", ()),
        ("pit", (0,)),
        ("conditional_quantiles", ([0.1, 0.9],)),
    ],
)
def test_the_best_estimator_is_asked(method, arguments):
    X = make_X(60)
    search = make_search({"n_components": [1]}).fit(X)
    expected = getattr(search.best_estimator_, method)(X, *arguments)
    np.testing.assert_array_equal(getattr(search, method)(X, *arguments), expected)
    assert search.held_out_score() == search.best_estimator_.held_out_score()
    assert getattr(RNADESearchCV, method).__doc__ == getattr(RNADE, method).__doc__


def test_scores_are_those_of_models_trained_one_after_the_other(monkeypatch):
    """In the data's units: the score of a fold is that of a Gaussian's log density plus."""
    X = make_X(120)
    together = make_search().fit(X).cv_results_
    monkeypatch.setattr(bank_file, "_free_memory", lambda device: 0)  # one model a bank
    alone = make_search().fit(X).cv_results_
    for name in ("split0_test_score", "split1_test_score", "mean_best_epoch"):
        np.testing.assert_allclose(together[name], alone[name], rtol=1e-4)


def test_scores_are_in_the_datas_units():
    X = make_X(300)
    search = make_search({"learning_rate": [0.05]}, refit=False, cv=KFold(2)).fit(X)
    (train, test), _ = KFold(2).split(X)
    gaussian = scipy.stats.multivariate_normal(X[train].mean(0), np.cov(X[train].T))
    score = search.cv_results_["split0_test_score"][0]
    assert score == pytest.approx(gaussian.logpdf(X[test]).mean(), abs=2)


@pytest.mark.filterwarnings("ignore::rnade.exceptions.SpikeWarning")
def test_mixed_shapes_and_options_of_the_rows():
    grid = [{"n_hidden": [2, 5]}, {"dequantize": [True]}, {"order": ["random", [2, 1, 0]]}]
    search = make_search(grid).fit(np.round(make_X(80), 3))
    assert len(search.cv_results_["params"]) == 5
    assert search.cv_results_["param_n_hidden"].mask.tolist() == [False, False, True, True, True]


def test_settings_drawn_at_random():
    grid = {"learning_rate": scipy.stats.loguniform(1e-3, 1e-1)}
    a, b = (make_search(grid, n_iter=3, refit=False).fit(make_X(60)) for _ in range(2))
    assert len(a.cv_results_["params"]) == 3
    assert a.cv_results_["params"] == b.cv_results_["params"]


def test_refit_by_the_papers_rule():
    search = make_search(refit="paper").fit(make_X(100))
    model = search.best_estimator_
    target = model.members_[0]["train"]
    reached = [row["train"] for row in model.retrain_history_]
    assert all(score < target for score in reached[:-1])


def test_refit_as_an_ensemble_of_shapes_and_orders(tmp_path):
    X = make_X(100)
    search = make_search(refit="ensemble", n_best=2).fit(X)
    model = search.best_estimator_
    assert len(model.members_) == 16
    kinds = {tuple(sorted(m["changes"].items())) for m in model.members_}
    ranked = np.argsort(search.cv_results_["rank_test_score"])[:2]
    assert kinds == {tuple(sorted(search.cv_results_["params"][i].items())) for i in ranked}
    search.save(tmp_path / "m.rnade")
    np.testing.assert_array_equal(
        load(tmp_path / "m.rnade", device="cpu").score_samples(X), search.score_samples(X)
    )


def test_halving_stops_the_weak_and_keeps_the_best():
    X = make_X(200)
    grid = {"learning_rate": [1e-6, 1e-5, 1e-4, 1e-3, 2e-3, 4e-3]}
    base = clone(BASE).set_params(epochs=18)
    options = {"cv": 2, "random_state": 0, "refit": False}
    halved = RNADESearchCV(base, grid, halving=True, **options).fit(X)
    whole = RNADESearchCV(base, grid, **options).fit(X)
    epochs = halved.cv_results_["mean_best_epoch"]
    assert (epochs[:2] <= 2).all()  # a ninth of 18
    assert epochs[halved.best_index_] > 2
    assert halved.best_score_ == pytest.approx(whole.best_score_, abs=0.2)


def test_a_search_is_nested_in_cross_validation():
    scores = cross_val_score(make_search({"n_components": [1, 2]}), make_X(90), cv=2)
    assert np.isfinite(scores).all()


def test_a_single_split_as_the_paper_has_it():
    fold = np.r_[np.full(80, -1), np.zeros(20, dtype=int)]
    search = make_search(cv=PredefinedSplit(fold), refit=False).fit(make_X(100))
    assert search.n_splits_ == 1


def test_mad_settings_lose_and_are_counted():
    grid = {"learning_rate": [1e-2, 1e30]}
    base = clone(BASE).set_params(recipe="paper", epochs=12)
    search = RNADESearchCV(base, grid, cv=2, random_state=0, refit=False).fit(make_X(60))
    assert search.best_params_ == {"learning_rate": 1e-2}
    assert np.isfinite(search.best_score_)


def test_a_search_goes_on_from_its_checkpoints(tmp_path):
    X = make_X(80)
    expected = make_search(refit=False).fit(X)
    for _ in range(2):
        search = make_search(refit=False, checkpoint=tmp_path / "c").fit(X)
        assert search.best_score_ == expected.best_score_
    assert len(list((tmp_path / "c").glob("bank-*.safetensors"))) == 2


def test_a_search_that_halves_goes_on_from_its_checkpoints(tmp_path):
    """Several stages share one checkpoint, whose run is known by how it began."""
    X = make_X(80)
    options = {"refit": False, "halving": True}
    expected = make_search(**options).fit(X)
    for _ in range(2):
        search = make_search(checkpoint=tmp_path / "c", **options).fit(X)
        np.testing.assert_array_equal(
            search.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"]
        )


def test_ctrl_c_compares_what_has_trained(monkeypatch):
    compute, calls = RNADEModule.weighted_log_likelihood, []

    def press_after_a_while(self, *args, **options):
        calls.append(1)
        if len(calls) == 50:
            os.kill(os.getpid(), signal.SIGINT)
        return compute(self, *args, **options)

    monkeypatch.setattr(RNADEModule, "weighted_log_likelihood", press_after_a_while)
    search = make_search({"learning_rate": [1e-3, 0.05]}, refit=False)
    with pytest.warns(TrainingWarning, match="search was stopped by Ctrl-C"):
        search.fit(make_X(80))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_the_leaders_are_shown(capsys):
    make_search(verbose=1, refit=False).fit(make_X(60))
    shown = capsys.readouterr().err
    assert "8 models" in shown
    assert "n_components" in shown
    assert "nats per row" in shown


def test_without_a_refit_there_is_no_estimator():
    search = make_search(refit=False).fit(make_X(60))
    assert not hasattr(search, "score_samples")
    assert not hasattr(search, "best_estimator_")
    with pytest.raises(AttributeError, match="refit=False: it has no estimator"):
        search.score(make_X(60))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"refit": "papr"}, "Unknown refit 'papr'.*Did you mean 'paper'"),
        ({"n_best": 0}, "n_best must be a whole number >= 1; got 0"),
        ({"n_iter": 0}, "n_iter must be a whole number >= 1; got 0"),
        ({"grid": {"learning_rate": [-1.0]}}, "learning_rate must be a number > 0; got -1.0"),
        ({"grid": {"n_hiden": [1]}}, "Invalid parameter 'n_hiden'"),
        ({"grid": {"learning_rate": [math.nan]}}, "learning_rate must be a number > 0"),
    ],
)
def test_bad_options_are_told(options, message):
    with pytest.raises(ValueError, match=message):
        make_search(**options).fit(make_X(30))


def test_other_estimators_are_refused():
    with pytest.raises(TypeError, match="Expected an RNADE, NADE or FVSBN.*got KernelDensity"):
        RNADESearchCV(KernelDensity(), {}).fit(make_X(30))
    with pytest.raises(ValueError, match="refit='ensemble' is for RNADE; got FVSBN"):
        RNADESearchCV(
            FVSBN(epochs=1), {"learning_rate": [0.1]}, cv=2, refit="ensemble", random_state=0
        ).fit(make_X(30) > 0)


def test_a_list_of_settings_is_averaged_by_the_estimator_itself():
    model = RNADE(ensemble=[{"n_components": 2}, {"n_components": 4}], n_hidden=4, epochs=2)
    model.fit(make_X(60))
    assert [m["changes"]["n_components"] for m in model.members_] == [2] * 8 + [4] * 8
    assert [part.family.n_components for part in model.module_.parts] == [2, 4]
    with pytest.raises(ValueError, match="ensemble must be 'auto', None or a list of settings"):
        RNADE(ensemble="grid").fit(make_X(60))
    with pytest.raises(ValueError, match="n_components must be a whole number >= 1; got 0"):
        RNADE(ensemble=[{"n_components": 0}]).fit(make_X(60))


def test_weights_of_test_rows_act_like_repeated_rows():
    X = make_X(80)
    counts = np.concatenate([np.ones(40), np.random.default_rng(0).integers(0, 3, size=40)])
    weighted = make_search(cv=[(np.arange(40), np.arange(40, 80))], refit=False)
    weighted.fit(X, sample_weight=counts)
    rows = np.repeat(np.arange(80), counts.astype(int))
    repeated = make_search(cv=[(np.arange(40), np.arange(40, len(rows)))], refit=False)
    repeated.fit(X[rows])
    np.testing.assert_allclose(
        weighted.cv_results_["mean_test_score"],
        repeated.cv_results_["mean_test_score"],
        rtol=1e-5,
    )


def test_row_weights_reach_the_refit_and_the_score():
    X = make_X(80)
    weights = np.random.default_rng(0).integers(0, 3, size=80).astype(float)
    search = make_search({"n_components": [1]}).fit(X, sample_weight=weights)
    expected = np.average(X, axis=0, weights=weights)
    np.testing.assert_allclose(search.best_estimator_.standardiser_.mean, expected)
    assert search.score(X, sample_weight=weights) == pytest.approx(
        np.average(search.score_samples(X), weights=weights)
    )
    with pytest.raises(ValueError, match="[Nn]egative"):
        make_search().fit(X, sample_weight=-weights)
    with pytest.raises(ValueError, match="A fold of cv has .* rows of positive weight"):
        make_search().fit(X, sample_weight=(np.arange(80) >= 60).astype(float))
