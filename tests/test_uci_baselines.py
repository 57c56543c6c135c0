"""Table 1's FVBN and mixtures of factor analysers on rows whose density is known."""

import numpy as np
import pytest
import torch
from scipy import stats

from rnade.reproduce.table1 import mfa, protocol
from rnade.reproduce.table1.folds import FoldRows
from rnade.reproduce.table1.fvbn import fit_fvbn
from rnade.reproduce.table1.mfa import fit_mfa

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folds():
    """Two folds of a bent cloud, with its density's own score on the test rows."""
    made, own = [], []
    for number in range(2):
        rng = np.random.default_rng(number)
        a = rng.normal(size=700)
        b = a**2 - 1 + 0.4 * rng.normal(size=700)
        X = np.column_stack([a, b, rng.normal(size=700)])
        made.append(FoldRows(number, X[:500], X[500:600], X[600:]))
        density = stats.norm.logpdf(a) + stats.norm.logpdf(b, a**2 - 1, 0.4)
        own.append((density + stats.norm.logpdf(X[:, 2]))[600:].mean())
    return made, own


def gaussian_score(fold):
    rows = fold.all_training
    density = stats.multivariate_normal(rows.mean(0), np.cov(rows, rowvar=False))
    return density.logpdf(fold.test).mean()


def test_fvbn(folds):
    rows, own = folds
    fitted = list(fit_fvbn(rows, CPU, quick=True))
    for fold, right, result in zip(rows, own, fitted, strict=True):
        assert gaussian_score(fold) < result.scores.mean() < right + 0.1
        details = result.details
        assert result.scores.shape == (100,)
        assert len(details["n_components"]) == len(details["best_epoch"]) == 3
        assert set(details["n_components"]) <= {2, 10}
        assert all(epochs is None or 0 < epochs <= 20 for epochs in details["retrained_epochs"])
        assert details["n_settings"] == 2


def test_where_training_again_breaks_the_chosen_networks_of_fvbn_stand(folds, monkeypatch):
    rows, _ = folds
    monkeypatch.setattr(protocol, "retraining_took", lambda reached, least: False)
    for result in fit_fvbn(rows, CPU, quick=True):
        assert result.details["retrained_epochs"] == [None] * 3
        assert result.scores.mean() == pytest.approx(result.details["before_retraining"])


def test_a_fold_ends_as_it_would_alone(folds):
    rows, _ = folds
    both = list(fit_fvbn(rows, CPU, quick=True))
    alone = list(fit_fvbn(rows[1:], CPU, quick=True))
    assert both[1].details["n_components"] == alone[0].details["n_components"]
    np.testing.assert_allclose(both[1].scores, alone[0].scores, atol=1e-4)


def test_mfa(folds, monkeypatch):
    rows, own = folds
    monkeypatch.setattr(mfa, "COMPONENTS", (2, 8, 14))
    fitted = list(fit_mfa(rows, CPU, quick=False))
    for fold, right, result in zip(rows, own, fitted, strict=True):
        assert gaussian_score(fold) + 0.2 < result.scores.mean() < right + 0.1
        assert result.details["n_sizes"] == 3
        assert result.details["n_components"] in (8, 14)
        assert result.details["n_factors"] == 2
        assert result.details["retrained_iterations"] <= mfa.AGAIN.max_iter


def test_mfa_of_all_folds_at_once_is_that_of_each(folds, monkeypatch):
    rows, _ = folds
    monkeypatch.setattr(mfa, "COMPONENTS", (2, 4))
    together = list(mfa._fitted(rows, CPU, False))
    for one, result in zip(together, fit_mfa(rows, CPU, False), strict=True):
        assert one.details["n_components"] == result.details["n_components"]
        np.testing.assert_allclose(one.scores, result.scores, atol=1e-6)
