"""`RNADEImputer`: the contract of scikit-learn's transformers, names and types."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from rnade import RNADE, RNADEImputer
from tests.test_mixed import SMALL, frame


# The checks use tiny tables of rounded numbers, of which fits warn.
@pytest.mark.changes_global_state
@pytest.mark.filterwarnings("ignore::rnade.exceptions.SpikeWarning")
@pytest.mark.filterwarnings("ignore::rnade.exceptions.TrainingWarning")
@parametrize_with_checks([RNADEImputer(estimator=RNADE(epochs=1, n_hidden=4), random_state=0)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def imputer() -> RNADEImputer:
    return RNADEImputer(estimator=RNADE(**SMALL), random_state=0).fit(frame(100))


def test_names_and_types_are_kept(imputer):
    table = frame(40, seed=1)
    filled = imputer.transform(table)
    assert filled.dtypes.equals(table.dtypes)
    assert filled.index.equals(table.index)
    assert not filled.isna().any().any()
    assert list(imputer.get_feature_names_out()) == list(table.columns)
    assert list(imputer.feature_names_in_) == list(table.columns)
    assert imputer.n_features_in_ == 7


def test_columns_left_out_are_given_back():
    table = frame(60).assign(id=[f"row {i}" for i in range(60)], one=1)
    imputer = RNADEImputer(estimator=RNADE(**SMALL)).fit(table)
    assert {"id", "one"} <= set(imputer.model_.schema_.left_out)
    filled = imputer.transform(table)
    pd.testing.assert_frame_equal(filled[["id", "one"]], table[["id", "one"]])
    assert list(filled.columns) == list(imputer.get_feature_names_out())


def test_output_can_be_set():
    X = np.random.default_rng(0).normal(size=(60, 2))
    X[::7, 0] = np.nan
    imputer = RNADEImputer(estimator=RNADE(**SMALL)).fit(X)
    plain = imputer.transform(X)
    assert isinstance(plain, np.ndarray)
    framed = imputer.set_output(transform="pandas").transform(X)
    assert list(framed.columns) == ["x0", "x1"]
    np.testing.assert_array_equal(framed.to_numpy(), plain)
    with pytest.raises(ValueError, match="n_draws gives a list"):
        imputer.set_params(how="draw", n_draws=2).transform(X)


def test_frames_of_polars_stay_so():
    table = pl.from_pandas(frame(60).assign(grade="low"))
    filled = RNADEImputer(estimator=RNADE(**SMALL)).fit_transform(table)
    assert filled.schema == table.schema
    assert filled.null_count().sum_horizontal()[0] == 0


def test_draws_are_reproducible_and_several():
    table = frame(30, seed=2)
    drawing = RNADEImputer(estimator=RNADE(**SMALL), how="draw", n_draws=3, random_state=0)
    tables = drawing.fit(frame(100)).transform(table)
    assert len(tables) == 3
    assert not tables[0].equals(tables[1])
    pd.testing.assert_frame_equal(drawing.transform(table)[1], tables[1])


def test_it_stands_in_a_pipeline():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    X[:, 2] = X[:, 0] + 0.1 * rng.normal(size=120)
    y = X.sum(1)
    X[rng.random(X.shape) < 0.2] = np.nan
    pipeline = make_pipeline(RNADEImputer(estimator=RNADE(**SMALL)), LinearRegression())
    assert (cross_val_score(pipeline, X, y, cv=3) > 0.3).all()


def test_bad_settings_are_told():
    with pytest.raises(ValueError, match="Unknown how 'mode'"):
        RNADEImputer(how="mode").fit(frame(40))
    with pytest.raises(ValueError, match="n_draws must be a whole number"):
        RNADEImputer(how="draw", n_draws=0).fit(frame(40))
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(ValueError, match="Fit it again with questions=True"):
        RNADEImputer(estimator=RNADE(epochs=1, questions=False)).fit(X)
