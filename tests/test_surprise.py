"""Which cells make a row an outlier, in the same unit for every column, and what was expected."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from rnade import NADE, RNADE, Gaussian, MixtureOfColumns, MixtureOfGaussians

QUICK = {"random_state": 0, "device": "cpu"}


def sizes(n, seed=0):
    """Columns that depend on each other, in units of very different size."""
    rng = np.random.default_rng(seed)
    height = rng.normal(1.7, 0.1, n)
    weight = 90_000 * (height - 1) + rng.normal(0, 6_000, n)
    return np.column_stack([height, weight, rng.normal(37, 0.3, n)])


@pytest.fixture(scope="module")
def answering():
    """A model of real columns with a network that answers questions."""
    return RNADE(**QUICK, effort="fast", epochs=25).fit(sizes(1500))


@pytest.fixture(scope="module")
def mixed():
    rng = np.random.default_rng(0)
    level = rng.integers(0, 3, 900)
    table = pd.DataFrame(
        {
            "city": np.array(["Bern", "Oslo", "Rome"])[level],
            "far": level * 1000.0 + rng.normal(0, 30, 900),
            "rooms": level + rng.integers(1, 3, 900),
        }
    )
    table.loc[::20, "far"] = np.nan
    return RNADE(**QUICK, n_hidden=32).fit(table), table


def test_of_a_gaussian_it_is_half_a_squared_residual():
    """Along the columns: the entropy of a residual less its log density, 0.5 (z^2 - 1)."""
    X = sizes(4000)
    model = Gaussian(**QUICK).fit(X)
    C, mean = model.covariance_, model.mean_
    z = (X[:, 2] - mean[2]) - (X[:, :2] - mean[:2]) @ np.linalg.solve(C[:2, :2], C[:2, 2])
    z /= math.sqrt(C[2, 2] - C[2, :2] @ np.linalg.solve(C[:2, :2], C[:2, 2]))
    # The typical term is a mean over draws.
    np.testing.assert_allclose(model.surprise(X)[:, 2], 0.5 * (z**2 - 1), atol=0.1)


def test_it_is_0_on_average_over_draws_and_the_same_in_any_unit():
    X = sizes(400)
    unit = np.array([1.0, 1e-3, 1e4])
    for make in (Gaussian, lambda **s: MixtureOfGaussians(2, **s)):
        one, other = (make(**QUICK).fit(rows) for rows in (X, X * unit))
        assert np.abs(one.surprise(one.sample(2000, random_state=0)).mean(0)).max() < 1e-6
        np.testing.assert_allclose(one.surprise(X), other.surprise(X * unit), atol=1e-4)


def test_it_is_given_all_other_cells_where_the_model_answers_questions(answering):
    X = sizes(300, seed=1)
    names = ["x1", "x2", "x3"]
    surprise = answering.surprise(X)
    for d, name in enumerate(names):
        log_pdf = answering.conditional(name, X).log_pdf(X[:, d])
        # The same but for what is typical, which is one number for each column.
        np.testing.assert_allclose((surprise[:, d] + log_pdf).std(), 0, atol=1e-6)


def test_ordinary_rows_do_not_blame_the_column_of_the_largest_unit(answering):
    X = sizes(200, seed=2)
    assert (answering.log_conditionals(X).argmin(1) == 1).mean() > 0.95  # grams
    blamed = np.bincount(answering.surprise(X).argmax(1), minlength=3)
    assert blamed.max() < 140
    hot = X.copy()
    hot[:, 2] = 39.5
    assert (answering.surprise(hot).argmax(1) == 2).all()


def test_missing_cells_have_none(answering):
    X = sizes(5, seed=1)
    X[2, 0] = np.nan
    surprise = answering.surprise(X)
    np.testing.assert_array_equal(np.isnan(surprise), np.isnan(X))
    # Without the height, the weight is judged by what is left.
    whole = answering.surprise(sizes(5, seed=1))
    assert surprise[2, 1] != pytest.approx(whole[2, 1])
    np.testing.assert_allclose(surprise[[0, 1, 3, 4]], whole[[0, 1, 3, 4]])


def test_levels_and_numbers_of_a_mixed_table(mixed):
    model, table = mixed
    odd = table[:2].assign(city=["Oslo", "Rome"], far=[2000.0, 2000.0], rooms=[2, 4])
    surprise = model.surprise(odd)
    assert surprise[0].max() > 3
    assert surprise[0].argmax() in (0, 1)
    assert surprise[1].max() < 2
    low, high = model.expected(odd)
    assert low[0, 0] == high[0, 0] == "Rome"
    assert low[0, 1] < 1000 < high[0, 1] < 1300
    assert isinstance(low[1, 2], int)
    assert low[1, 2] <= 4 <= high[1, 2]


def test_what_was_expected_is_the_conditional(mixed):
    model, table = mixed
    where = np.zeros((20, 3), dtype=bool)
    where[:, 1] = True
    low, high = model.expected(table[:20], 0.8, where=where)
    ends = model.conditional("far", table[:20]).interval(0.8)
    np.testing.assert_array_equal(low[:, 1].astype(float), ends[0])
    np.testing.assert_array_equal(high[:, 1].astype(float), ends[1])
    assert all(cell is None for cell in low[:, 0])


def test_what_is_expected_of_a_gaussian():
    X = sizes(3000)
    model = Gaussian(**QUICK).fit(X)
    low, high = model.expected(X[:5], 0.9)
    normal = scipy.stats.norm(model.mean_[0], math.sqrt(model.covariance_[0, 0]))
    np.testing.assert_allclose(low[:, 0], normal.ppf(0.05))
    np.testing.assert_allclose(high[:, 0], normal.ppf(0.95))
    with pytest.raises(ValueError, match="level"):
        model.expected(X, 1.5)


def test_intervals_hold_their_share(answering):
    X = sizes(500, seed=4)
    low, high = answering.expected(X)
    assert low.dtype == np.float64
    inside = ((low <= X) & (X <= high)).mean(0)
    assert (np.abs(inside - 0.9) < 0.06).all()


def test_other_models():
    rng = np.random.default_rng(0)
    bits = (rng.random((300, 4)) < 0.3).astype(float) * 5
    model = NADE(**QUICK, n_hidden=4, epochs=5, binarize=3.0).fit(bits)
    assert np.isfinite(model.surprise(bits)).all()
    assert np.abs(model.surprise(model.sample(2000, 0) * 5).mean(0)).max() < 1e-6
    classes = MixtureOfColumns(2, **QUICK).fit(
        pd.DataFrame({"a": ["x", "y"] * 50, "b": [1, 5] * 50})
    )
    surprise = classes.surprise(pd.DataFrame({"a": ["x", "x"], "b": [1, 5]}))
    assert surprise[1].min() > surprise[0].max() + 1


def test_a_second_fit_forgets_what_was_typical():
    X = sizes(200)
    model = Gaussian(**QUICK).fit(X)
    before = model.surprise(X)
    model.fit(X * [1, 10, 1])
    np.testing.assert_allclose(model.surprise(X * [1, 10, 1]), before, atol=1e-6)
