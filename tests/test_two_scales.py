"""Rows judged at two scales: how unlikely they are, and how far from all others."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp

import rnade.training.em.coarse as coarse_fits
from rnade import RNADE, load
from rnade.estimators.two_scales import COARSE_SHARE, Scale, combined_rank
from rnade.nn import MixtureOfGaussiansModule
from rnade.nn.coarse import CoarseModule
from rnade.training.em.coarse import SCALE, fit_coarse
from tests.conftest import random_components

QUICK = {
    "n_hidden": 8,
    "epochs": 5,
    "effort": "fast",
    "questions": False,
    "random_state": 0,
    "device": "cpu",
}


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return np.column_stack([x, x + 0.3 * rng.normal(size=n), np.exp(0.5 * rng.normal(size=n))])


def test_log_ranks_are_those_of_the_rows():
    scores = np.random.default_rng(0).normal(size=300)
    scale = Scale.of(scores)
    ranks = stats.rankdata(scores) / 301
    np.testing.assert_allclose(scale(scores), np.log(ranks), atol=0.02)
    assert scale(np.array([scores.max() + 5]))[0] == pytest.approx(np.log(300 / 301))


def test_scores_below_all_are_told_apart():
    scale = Scale.of(np.arange(100.0))
    low = scale(np.array([-1e6, -50.0, -1.0, 0.0]))
    assert (np.diff(low) > 0).all()
    assert low[-1] == pytest.approx(np.log(1 / 101))
    assert np.isfinite(scale(np.array([-np.inf]))).all()


def test_equal_scores_are_no_trouble():
    assert Scale.of(np.ones(50))(np.array([0.0, 1.0, 2.0])).shape == (3,)


def test_the_more_telling_scale_counts():
    scale = Scale.of(np.arange(1000.0))
    fine, coarse = np.array([0.0, 500.0, 500.0]), np.array([500.0, 0.0, 500.0])
    by_fine, by_coarse, usual = combined_rank(scale, scale, fine, coarse)
    least, half = np.log(1 / 1001), scale(np.array([500.0]))[0]
    assert by_fine == pytest.approx(least + COARSE_SHARE * half)
    assert by_coarse == pytest.approx((1 + COARSE_SHARE) * least)
    assert usual == pytest.approx((1 + COARSE_SHARE) * half)


def test_the_coarse_density_is_the_mixture_of_encoded_cells():
    """Numbers standardised, levels as 0 and 1, missing cells at the mean; by scipy."""
    generator = torch.Generator().manual_seed(0)
    mixture = MixtureOfGaussiansModule(3, 2).double()
    mixture.set_components(*random_components(1, 2, 3, generator))
    module = CoarseModule([None, [2, 0]], mixture).double()
    module.mean.copy_(torch.tensor([1.0, 0.5, 0.25]))
    module.scale.copy_(torch.tensor([2.0, 1.0, 0.5]))
    values = torch.tensor([[3.0, 2.0], [1.0, 7.0], [np.nan, 0.0], [0.0, np.nan]]).double()
    cells = np.array([[1, 0.5, -0.5], [0, -0.5, -0.5], [0, -0.5, 1.5], [-0.5, 0, 0]])
    np.testing.assert_allclose(module.encoded(values), cells)
    parts = [
        np.log(alpha) + stats.multivariate_normal(mu, C).logpdf(cells)
        for alpha, mu, C in zip(
            mixture.log_alpha[0].exp().detach().numpy(),
            mixture.mu[0].detach().numpy(),
            mixture.covariances()[0].detach().numpy(),
            strict=True,
        )
    ]
    np.testing.assert_allclose(module.log_prob(values)[0].detach(), logsumexp(parts, axis=0))


def test_no_component_is_narrow_and_each_leaves_out_its_rows():
    X = np.round(rows(200), 0)
    X[:20] += 1e3  # far away: a mixture that learned them puts mass there
    left_out = [np.arange(20), np.arange(100, 120)]
    module = fit_coarse(X, None, left_out, [], 0, torch.device("cpu"))
    smallest = torch.linalg.eigvalsh(module.mixtures.covariances()).min()
    assert smallest >= SCALE**2 * (1 - 1e-4)
    without, with_them = module.log_prob(torch.as_tensor(X[:20])).mean(1)
    assert without < with_them - 3


def test_frequent_levels_are_told_apart():
    codes = np.repeat([0.0, 1.0, 2.0, 3.0], [50, 40, 8, 2])
    module = fit_coarse(codes[:, None], None, [], [0], 0, torch.device("cpu"))
    assert module.levels == [[0, 1, 2]]
    two = fit_coarse((codes > 0)[:, None] * 1.0, None, [], [0], 0, torch.device("cpu"))
    assert two.levels in ([[0]], [[1]])


def test_tables_that_are_too_wide_have_none(monkeypatch):
    monkeypatch.setattr(coarse_fits, "MOST_COLUMNS", 2)
    model = RNADE(**QUICK).fit(rows(100))
    assert model.coarse_ is None
    np.testing.assert_allclose(
        model.decision_function(rows(5)), model.score_samples(rows(5)) - model.offset_
    )


def test_one_model_judges_by_its_log_density():
    model = RNADE(**QUICK | {"effort": "default"}, ensemble=None).fit(rows(100))
    assert model.two_scales_ is None
    np.testing.assert_allclose(
        model.decision_function(rows(5)), model.score_samples(rows(5)) - model.offset_
    )


@pytest.fixture(scope="module")
def fitted():
    return RNADE(**QUICK).fit(rows(400))


def test_p_values_and_decisions_agree(fitted):
    new = rows(500, seed=1)
    new[:3] += [20, 0, 0]
    p, decision = fitted.pvalue(new), fitted.decision_function(new)
    assert (p[:3] == p.min()).all()
    assert (decision[:3] < 0).all()
    assert stats.spearmanr(p, decision).statistic > 0.99
    assert (fitted.predict(new) == np.where(decision < 0, -1, 1)).all()


def test_files_keep_both_scales(fitted, tmp_path):
    fitted.save(tmp_path / "m.rnade")
    again = load(tmp_path / "m.rnade", device="cpu")
    new = rows(50, seed=2)
    np.testing.assert_array_equal(again.decision_function(new), fitted.decision_function(new))
    np.testing.assert_array_equal(again.pvalue(new), fitted.pvalue(new))
    assert again.offset_ == fitted.offset_


@pytest.mark.filterwarnings("ignore::rnade.exceptions.SpikeWarning")
def test_outliers_among_repeated_values_are_found():
    """Whole numbers far from all others; by log density alone rare usual values come first."""
    rng = np.random.default_rng(0)
    usual = rng.poisson(3, size=(400, 4)).astype(float)
    usual[:, 0] = rng.choice([0.0, 1.5, 2.5], 400)
    usual[:, 3] = np.where(rng.random(400) < 0.6, 0.0, rng.normal(5, 1, 400))
    odd = usual[:20] + np.array([8, 8, 8, 6])
    columns = {d: "integer" for d in (1, 2)}
    model = RNADE(**QUICK, columns=columns).fit(usual[100:])
    assert model._mixed
    decisions = model.decision_function(np.concatenate([usual[:100], odd]))
    assert decisions[100:].max() < np.quantile(decisions[:100], 0.1)


def test_tables_with_levels_and_missing_cells_are_judged():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=200),
            "colour": rng.choice(["red", "green", "blue"], 200),
            "n": rng.integers(0, 5, 200),
        }
    )
    frame.loc[:10, "size"] = np.nan
    model = RNADE(**QUICK).fit(frame)
    strange = pd.DataFrame({"size": [40.0], "colour": ["red"], "n": [2]})
    assert model.pvalue(strange)[0] == pytest.approx(model.calibration_.smallest)
    assert model.decision_function(strange)[0] < 0
    assert np.isfinite(model.decision_function(frame)).all()


def test_missing_cells_do_not_make_rows_usual():
    """What a missing column is worth is taken off, as far as enough rows tell."""
    rng = np.random.default_rng(0)
    missing = rng.random((4000, 3)) < [0.3, 0.1, 0.0]
    missing[:, 1] |= missing[:, 0] & (rng.random(4000) < 0.5)
    scores = rng.normal(size=4000) + missing @ [5.0, -2.0, 1.0]
    scale = Scale.of(scores, missing)
    np.testing.assert_allclose(scale.worth[:2], [5.0, -2.0], atol=0.2)
    assert scale.worth[2] == 0  # nothing tells
    for column in (0, 1):
        for at in (missing[:, column], ~missing[:, column]):
            log_ranks = scale(scores[at], missing[at])
            assert stats.kstest(np.exp(log_ranks), "uniform").statistic < 0.06


def test_outliers_with_missing_cells_are_found_as_others_are(tmp_path):
    """Usual rows are named as often, whatever is missing, and odd ones that miss cells found."""
    rng = np.random.default_rng(0)

    def rows(n, odd=False):
        x = rng.normal(size=n)
        far = 4 * rng.choice([-1, 1], n) if odd else 0
        table = np.column_stack([x, x + 0.1 * rng.normal(size=n) + far, rng.normal(size=(n, 3))])
        table[rng.random(n) < 0.4, 2:] = np.nan
        return table

    model = RNADE(random_state=0, epochs=8, n_hidden=32).fit(rows(500))
    new, odd = rows(600), rows(100, odd=True)
    p, whole = model.pvalue(new), ~np.isnan(new).any(1)
    shares = [(p[at] <= 0.2).mean() for at in (whole, ~whole)]
    assert max(shares) < 0.3
    assert min(shares) > 0.1
    found = model.pvalue(odd) <= 0.05
    gaps = np.isnan(odd).any(1)
    assert found[gaps].mean() > 0.9
    assert found[~gaps].mean() > 0.9
    model.save(tmp_path / "gaps.rnade")
    other = load(tmp_path / "gaps.rnade")
    np.testing.assert_array_equal(other.pvalue(new), p)
    np.testing.assert_array_equal(other.decision_function(new), model.decision_function(new))
