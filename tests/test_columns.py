"""Columns: standardising with its log-determinant, and the steps of rounded ones."""

import numpy as np
import pytest

from rnade.columns import SMALLEST_FLOOR, Resolution, Standardiser


def test_standardised_columns_have_mean_0_and_deviation_1():
    X = np.random.default_rng(0).normal([3, -5], [2, 0.1], size=(500, 2))
    standardiser = Standardiser.fit(X)
    Z = standardiser.transform(X)
    np.testing.assert_allclose(Z.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(Z.std(0), 1, rtol=1e-12)
    np.testing.assert_allclose(standardiser.inverse(Z), X, rtol=1e-12)
    np.testing.assert_allclose(standardiser.log_determinant_terms, -np.log(X.std(0)))


def test_weights_act_like_repetition():
    X = np.random.default_rng(0).normal(size=(20, 2))
    weights = np.arange(20) % 4
    repeated = Standardiser.fit(np.repeat(X, weights, axis=0))
    weighted = Standardiser.fit(X, weights.astype(float))
    np.testing.assert_allclose(weighted.mean, repeated.mean)
    np.testing.assert_allclose(weighted.scale, repeated.scale)


@pytest.mark.parametrize(
    ("column", "step"),
    [
        (np.random.default_rng(0).normal(size=200), 0.0),
        (np.random.default_rng(0).normal(size=200).round(1), 0.1),
        (np.random.default_rng(0).integers(0, 1000, size=200) * 1.0, 1.0),
        (np.random.default_rng(0).integers(0, 9, size=200) * 5.0, 5.0),
        # One odd value among repeated ones is no step, nor is error in the last digit.
        (np.append(np.random.default_rng(0).integers(0, 9, size=200), 3.0001), 1.0),
        (np.array([0.1 + 0.2, 0.3, 0.1, 0.1, 0.3, 0.1 + 0.2] * 3), 0.2),
        (np.full(10, 7.0), 0.0),
    ],
    ids=["continuous", "one-decimal", "whole", "fives", "odd-value", "last-digit", "constant"],
)
def test_steps_of_rounded_columns(column, step):
    found = Resolution.measure(np.column_stack([column])).steps
    np.testing.assert_allclose(found, [step], rtol=1e-9)


def test_floors_follow_the_step_and_have_a_least_value():
    floors = Resolution(np.array([0.0, 1.0])).floors(np.array([1.0, 10.0]))
    np.testing.assert_allclose(floors, [SMALLEST_FLOOR, 0.1 / np.sqrt(12)])
