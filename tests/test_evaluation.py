"""Figures about held-out rows."""

import numpy as np
import pytest
import scipy.stats

from rnade.evaluation import Calibration, mean_score, standard_error_by_group


def test_mean_and_standard_error_agree_with_scipy():
    scores = np.random.default_rng(0).normal(size=50)
    summary = mean_score(scores)
    assert summary.mean == pytest.approx(scores.mean())
    assert summary.standard_error == pytest.approx(scipy.stats.sem(scores))
    assert summary.n_rows == 50
    assert np.isnan(mean_score(scores[:1]).standard_error)


def test_standard_errors_by_group():
    """Groups of one row are independent rows; copies of a row add nothing."""
    scores = np.random.default_rng(0).normal(size=50)
    alone = scipy.stats.sem(scores)
    assert standard_error_by_group(scores, np.arange(50) * 2) == pytest.approx(alone)
    copied = standard_error_by_group(np.repeat(scores, 7), np.repeat(np.arange(50), 7))
    assert copied == pytest.approx(alone)


def test_pvalue_is_the_share_at_most_as_likely():
    calibration = Calibration.from_scores(np.array([3.0, 1.0, 2.0, 2.0]))
    p = calibration.pvalue(np.array([0.0, 1.0, 2.0, 2.5, 9.0]))
    np.testing.assert_allclose(p, np.array([1, 2, 4, 4, 5]) / 5)


def test_pvalues_of_rows_like_the_calibration_rows_are_never_too_small(seed):
    """The conformal guarantee: P(p <= alpha) <= alpha, over fresh calibration sets."""
    rng = np.random.default_rng(seed)
    p = np.concatenate(
        [
            Calibration.from_scores(rng.normal(size=99)).pvalue(rng.normal(size=20))
            for _ in range(400)
        ]
    )
    for alpha in (0.01, 0.05, 0.2):
        share = (p <= alpha).mean()
        assert share <= alpha + 4 * np.sqrt(alpha / len(p)) + 0.005
        assert share >= alpha / 2


def test_weights_act_like_repetition():
    rng = np.random.default_rng(0)
    scores, weights = rng.normal(size=12), np.array([1.0, 2.0, 3.0] * 4)
    weighted = Calibration.from_scores(scores, weights)
    repeated = Calibration.from_scores(np.repeat(scores, weights.astype(int)))
    new = rng.normal(size=30)
    mass = 12  # weights are scaled to mean 1: the new row counts as one of 12
    expected = (1 + (repeated.pvalue(new) * 25 - 1) * 12 / 24) / (1 + mass)
    np.testing.assert_allclose(weighted.pvalue(new), expected)
