"""Figures about held-out rows."""

import numpy as np
import pytest
import scipy.stats

from rnade.evaluation import (
    Calibration,
    benjamini_hochberg,
    left_out_pvalues,
    mean_score,
    standard_error_by_group,
)


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


def make_groups(rng, weighted):
    """Scores of three groups' rows, the first by all three groups' models, and weights."""
    scores = [rng.normal(size=n) for n in (7, 4, 9)]
    held_out = np.stack([scores[0], *rng.normal(size=(2, 7))])
    draw = rng.uniform(0.5, 2, 20) if weighted else np.ones(20)
    return scores, held_out, np.split(draw, [7, 11])


@pytest.mark.parametrize("weighted", [False, True])
def test_pvalues_of_groups_count_each_row_under_its_own_models(weighted, seed):
    rng = np.random.default_rng(seed)
    scores, _, weights = make_groups(rng, weighted)
    calibration = Calibration.from_groups(scores, weights, shifts=np.zeros(3))
    new = rng.normal(size=(3, 30))
    w = np.concatenate(weights) / np.concatenate(weights).mean()
    slow = [
        (1 + sum(w[i] for i in range(20) if np.concatenate(scores)[i] <= row[group_of(i)])) / 21
        for row in new.T
    ]
    np.testing.assert_allclose(calibration.pvalue(new), slow)
    assert calibration.smallest == pytest.approx(1 / 21)
    np.testing.assert_array_equal(calibration.group(0)[0], np.sort(scores[0]))
    np.testing.assert_array_equal(calibration.group(2)[0], np.sort(scores[2]))
    with pytest.raises(ValueError, match="models of 3 groups; got 1"):
        calibration.pvalue(new[0])


def group_of(i):
    return 0 if i < 7 else 1 if i < 11 else 2


@pytest.mark.parametrize("weighted", [False, True])
def test_pvalues_of_left_out_rows_against_comparing_all_pairs(weighted, seed):
    rng = np.random.default_rng(seed)
    scores, held_out, weights = make_groups(rng, weighted)
    shifts = np.array([0.0, 0.4, -0.2])
    w = np.concatenate(weights) / np.concatenate(weights).mean()
    flat = np.concatenate(scores)

    def at_most_as_likely(j, i):
        """Whether row j is, by models that have left out both if there are any."""
        gi, gj = group_of(i), group_of(j)
        if gi == 0:
            return (held_out[gj][j] if gj == 0 else flat[j]) <= held_out[gj][i]
        if gj == 0:
            return held_out[gi][j] <= flat[i]
        return flat[j] + shifts[gj] <= flat[i] + shifts[gi]

    slow = [
        (1 + sum(w[j] for j in range(20) if j != i and at_most_as_likely(j, i)))
        / (1 + w.sum() - w[i])
        for i in range(20)
    ]
    np.testing.assert_allclose(left_out_pvalues(scores, held_out, weights, shifts), slow)


def test_pvalues_of_one_group_of_left_out_rows_are_their_ranks(seed):
    scores = np.random.default_rng(seed).normal(size=25)
    p = left_out_pvalues([scores], scores[None], [np.ones(25)], np.zeros(1))
    np.testing.assert_allclose(p, scipy.stats.rankdata(scores) / 25)


def test_equal_rows_tie_though_their_last_digits_differ():
    calibration = Calibration.from_scores(np.array([-41.000000000000014, -3.0, -2.0]))
    assert calibration.pvalue(np.array([-41.00000000000002]))[0] == 0.5
    assert calibration.pvalue(np.array([-41.001, -np.inf])).tolist() == [0.25, 0.25]


def test_quantiles_of_groups_are_of_scores_shifted_to_all_models():
    rng = np.random.default_rng(0)
    shifts = np.array([0.0, 2.0, -3.0])
    scores = [rng.normal(size=400) - shift for shift in shifts]
    calibration = Calibration.from_groups(scores, shifts=shifts)
    together = np.concatenate([own + shift for own, shift in zip(scores, shifts, strict=True)])
    for share in (0.01, 0.1, 0.5):
        expected = np.quantile(together, share, method="hazen")
        assert calibration.quantile(share) == pytest.approx(expected)


@pytest.mark.parametrize("fdr", [0.01, 0.1, 0.5, 1.0])
def test_benjamini_hochberg_agrees_with_scipy(fdr, seed):
    rng = np.random.default_rng(seed)
    p = np.concatenate([rng.uniform(size=80), rng.uniform(size=20) / 200])
    expected = scipy.stats.false_discovery_control(p) <= fdr
    np.testing.assert_array_equal(benjamini_hochberg(p, fdr), expected)
    gaps = np.concatenate([[np.nan], p, [np.nan]])
    np.testing.assert_array_equal(benjamini_hochberg(gaps, fdr)[1:-1], expected)
    assert not benjamini_hochberg(gaps, fdr)[[0, -1]].any()


def test_benjamini_hochberg_of_nothing():
    assert benjamini_hochberg([], 0.1).tolist() == []
    assert benjamini_hochberg([0.9, 0.4], 0.1).tolist() == [False, False]
    with pytest.raises(ValueError, match="fdr"):
        benjamini_hochberg([0.1], 0.0)


def test_false_discoveries_among_conformal_outliers_keep_to_the_rate(seed):
    """Of what is reported, over many tables, at most about a tenth are usual rows."""
    rng = np.random.default_rng(seed)
    shares = []
    for _ in range(300):
        calibration = Calibration.from_scores(rng.normal(size=500))
        new = np.concatenate([rng.normal(size=95), rng.normal(-4, 1, size=5)])
        told = benjamini_hochberg(calibration.pvalue(new), 0.1)
        shares.append(told[:95].sum() / max(told.sum(), 1))
    assert np.mean(shares) < 0.13
