"""Labels of outliers: levels, false discoveries, the conventions of scikit-learn and PyOD."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from sklearn.base import OutlierMixin, clone, is_outlier_detector
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import rnade.estimators.kinds as plain_plans
from rnade import NADE, RNADE, Gaussian, MixtureOfColumns, MixtureOfGaussians, RNADESearchCV

QUICK = {"n_hidden": 8, "epochs": 8, "random_state": 0, "device": "cpu", "questions": False}


def rows(n, seed=0, n_odd=0):
    """Two columns that go together, and at the end rows in which they do not."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    X = np.column_stack([x, x + 0.2 * rng.normal(size=n)])
    X[n - n_odd :, 1] = -X[n - n_odd :, 0] + 3 * np.sign(X[n - n_odd :, 0])
    return X


def test_labels_are_signs_of_the_decision_function():
    X, new = rows(400), rows(1000, seed=1)
    model = RNADE(**QUICK, contamination=0.05).fit(X)
    assert isinstance(model, OutlierMixin)
    decision = model.decision_function(new)
    labels = model.predict(new)
    np.testing.assert_array_equal(labels, np.where(decision >= 0, 1, -1))
    assert labels.dtype.kind == "i"
    assert (labels == -1).mean() == pytest.approx(0.05, abs=0.035)
    odd = rows(50, seed=2, n_odd=50)
    assert (model.predict(odd) == -1).mean() > 0.9


def test_the_offset_of_a_gaussian_is_a_quantile_of_its_log_densities():
    X = np.random.default_rng(0).normal(size=(4000, 3))
    model = Gaussian(contamination=0.1, random_state=0, validation_fraction=0.5).fit(X)
    exact = -0.5 * scipy.stats.chi2(3).ppf(0.9) - 1.5 * np.log(2 * np.pi)
    assert model.offset_ == pytest.approx(exact, abs=0.2)
    assert Gaussian(random_state=0).fit(X).contamination == "auto"
    strict = Gaussian(random_state=0, validation_fraction=0.5).fit(X)
    assert (strict.predict(X) == -1).mean() == pytest.approx(0.01, abs=0.006)


@pytest.mark.parametrize("share", [0.02, 0.1])
def test_fit_predict_labels_a_share_of_the_table_out_of_fold(share):
    X = rows(300, n_odd=6)
    model = RNADE(**QUICK | {"epochs": 30}, contamination=share)
    labels = model.fit_predict(X)
    assert (labels == -1).mean() == pytest.approx(share, abs=0.015)
    np.testing.assert_array_equal(labels == -1, model.fit_pvalues_ <= share)
    assert (labels[-6:] == -1).sum() >= (4 if share == 0.02 else 5)  # far rows are labelled too
    assert not is_outlier_detector(model)  # of which the labels of predict would be the same


def test_fit_predict_leaves_out_every_row_of_a_large_table(monkeypatch):
    X = rows(300)
    monkeypatch.setitem(plain_plans.WORK, "cpu", 1.0)
    model = RNADE(**QUICK)
    model.fit_predict(X, sample_weight=np.ones(300))
    assert not np.isnan(model.fit_scores_).any()
    assert np.isnan(model.fit(X).fit_scores_).any()  # its parameters have not changed
    assert model.score_fitted is False


@pytest.mark.parametrize(
    "model",
    [
        RNADE(**QUICK, ensemble=None),
        NADE(n_hidden=4, epochs=3, random_state=0),
        MixtureOfGaussians(2, random_state=0),
        MixtureOfColumns(2, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_every_estimator_has_labels(model):
    X = rows(100)
    model = clone(model).set_params(contamination=0.1)
    assert set(model.fit_predict(X)) <= {-1, 1}
    assert set(model.predict(X)) <= {-1, 1}


def test_levels_and_false_discoveries():
    X = rows(500)
    model = RNADE(**QUICK).fit(X)
    new = rows(200, seed=3, n_odd=20)
    p = model.pvalue(new)
    np.testing.assert_array_equal(model.outliers(new), p <= 0.01)
    np.testing.assert_array_equal(model.outliers(new, level=0.2), p <= 0.2)
    adjusted = scipy.stats.false_discovery_control(p)
    np.testing.assert_array_equal(model.outliers(new, fdr=0.2), adjusted <= 0.2)
    assert model.outliers(new, fdr=0.2)[-20:].mean() > 0.7
    with pytest.raises(ValueError, match="a false discovery rate \\(fdr\\) is for new rows"):
        model.outliers(X, fdr=0.2)  # of ranks, all or none
    assert model.outliers(X, level=0.1).mean() == pytest.approx(0.1, abs=0.02)
    with pytest.raises(ValueError, match="a level or a false discovery rate .* not both"):
        model.outliers(new, level=0.1, fdr=0.1)
    with pytest.raises(ValueError, match="level"):
        model.outliers(new, level=2)


@pytest.mark.parametrize("wrong", [0.0, 0.7, "none", -1])
def test_bad_contamination(wrong):
    with pytest.raises((ValueError, TypeError), match="contamination"):
        Gaussian(contamination=wrong).fit(rows(50))


def test_an_unfitted_model_says_so():
    model = RNADE()
    assert not hasattr(model, "predict")
    for name in ("predict", "decision_function"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(model, name)
    assert "Label outliers" in RNADE.predict.__doc__
    assert hasattr(Gaussian().fit(rows(50)), "predict")


def test_in_a_pipeline_and_a_search():
    X = rows(150)
    pipeline = make_pipeline(StandardScaler(), RNADE(**QUICK))
    labels = pipeline.fit_predict(X)
    np.testing.assert_array_equal(
        pipeline.predict(X), pipeline[-1].predict(pipeline[0].transform(X))
    )
    assert set(labels) <= {-1, 1}
    search = RNADESearchCV(RNADE(**QUICK), {"n_components": [2]}, cv=2, random_state=0).fit(X)
    np.testing.assert_array_equal(search.outliers(X), search.best_estimator_.outliers(X))
    assert search.surprise(X).shape == X.shape


def test_labels_of_a_mixed_table():
    rng = np.random.default_rng(0)
    level = rng.integers(0, 2, 300)
    table = pd.DataFrame(
        {"sort": np.where(level, "tall", "low"), "size": level * 50 + rng.normal(0, 3, 300)}
    )
    table.loc[[5, 77], "size"] = [50.0 * (1 - level[i]) for i in (5, 77)]
    model = RNADE(**QUICK | {"epochs": 20, "n_hidden": 16}, contamination=0.02)
    labels = model.fit_predict(table)
    assert (labels[[5, 77]] == -1).all()
    assert (labels == -1).sum() <= 6


# ---------------------------------------------------------------- PyOD


@pytest.fixture(scope="module")
def detector():
    pytest.importorskip("pyod")
    from rnade.pyod import RNADEDetector

    return RNADEDetector(contamination=0.1, estimator=RNADE(**QUICK | {"epochs": 30})).fit(
        rows(300, n_odd=15)
    )


def test_pyod_detectors_have_what_their_base_class_promises(detector):
    """What the tests of PyOD's own detectors look at."""
    from pyod.models.base import BaseDetector

    X, y = rows(300, n_odd=15), np.arange(300) >= 285
    assert isinstance(detector, BaseDetector)
    assert detector.decision_scores_.shape == detector.labels_.shape == (300,)
    # Out of fold, and by what p-values go by: the lower the p-value, the higher the score.
    p_values = detector.estimator_.fit_pvalues_
    assert scipy.stats.spearmanr(detector.decision_scores_, p_values).statistic < -0.99
    assert detector.labels_.sum() == 30
    assert detector.threshold_ == pytest.approx(np.percentile(detector.decision_scores_, 90))
    assert roc_auc_score(y, detector.decision_scores_) > 0.8  # the floor of PyOD's tests
    new, truth = rows(200, seed=5, n_odd=20), np.arange(200) >= 180
    scores = detector.decision_function(new)
    assert scores.shape == (200,)
    assert roc_auc_score(truth, scores) > 0.8
    np.testing.assert_array_equal(detector.predict(new), scores > detector.threshold_)
    for method in ("linear", "unify"):
        shares = detector.predict_proba(new, method=method)
        assert shares.shape == (200, 2)
        np.testing.assert_allclose(shares.sum(1), 1)
        assert shares.min() >= 0
    labels, confidence = detector.predict(new, return_confidence=True)
    assert set(labels) <= {0, 1}
    assert ((confidence >= 0) & (confidence <= 1)).all()
    ranks = detector._predict_rank(new, normalized=True)
    assert ranks.max() == 1
    assert X.shape[1] == detector.estimator_.n_features_in_


def test_pyod_detectors_are_cloned_and_checked(detector):
    from rnade.pyod import RNADEDetector

    again = clone(detector)
    assert again.contamination == 0.1
    assert not hasattr(again, "decision_scores_")
    assert "estimator__epochs" in detector.get_params()
    with pytest.raises(ValueError, match="contamination must be in"):
        RNADEDetector(contamination=0.9)
    with pytest.raises(NotFittedError):
        again.decision_function(rows(3))
    with pytest.raises(NotFittedError):
        again.predict(rows(3))
