"""Figures about held-out rows: mean log-likelihood, its standard errors, conformal p-values."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rnade.typing import Array


@dataclass(frozen=True)
class MeanScore:
    """A mean log-likelihood in nats per row, and its standard error over rows."""

    mean: float
    standard_error: float
    n_rows: int


def mean_score(scores: Array, weights: Array | None = None) -> MeanScore:
    """Summarise log densities of independent rows, which may have weights.

    The standard error is that of a weighted mean, sqrt(sum w^2 (s - mean)^2) / sum w, times
    sqrt(n / (n - 1)); for equal weights the usual one.
    """
    n = len(scores)
    if weights is None:
        error = float(scores.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
        return MeanScore(float(scores.mean()), error, n)
    mean = np.average(scores, weights=weights)
    square = np.square(weights * (scores - mean)).sum() / weights.sum() ** 2
    error = float(np.sqrt(square * n / (n - 1))) if n > 1 else float("nan")
    return MeanScore(float(mean), error, n)


def standard_error_by_group(scores: Array, groups: NDArray[np.int64]) -> float:
    """Standard error of the mean where the rows of a group (an image, a speaker) go together.

    Groups are taken as drawn at random, rows within one as drawn from it: the deviations from the
    mean are added up within each group, and these sums are independent. NaN for one group.

    Parameters
    ----------
    scores : array of shape (N,)
    groups : array of shape (N,)
        The number of each row's group.
    """
    sums = np.bincount(groups, weights=scores - scores.mean())
    n = np.count_nonzero(np.bincount(groups))
    if n < 2:
        return float("nan")
    return float(np.sqrt(n / (n - 1) * np.square(sums).sum()) / len(scores))


@dataclass(frozen=True)
class Calibration:
    """Log densities of rows that the model was not trained on, for p-values.

    Attributes
    ----------
    scores : array of shape (n,), ascending
    weights : array of shape (n,)
        Row weights, with mean 1.
    """

    scores: Array
    weights: Array

    @classmethod
    def from_scores(cls, scores: Array, weights: Array | None = None) -> "Calibration":
        """Sort the scores of held-out rows and keep their weights beside them."""
        ascending = np.argsort(scores, kind="stable")
        weights = np.ones_like(scores) if weights is None else weights / weights.mean()
        return cls(scores[ascending], weights[ascending])

    def pvalue(self, scores: Array) -> Array:
        """Conformal p-value: the share of calibration rows that are at most as likely.

        The row itself counts as one of them, (1 + #{calibration <= score}) / (n + 1), so that
        among rows like the training data p <= alpha happens with probability at most alpha.
        """
        below = np.searchsorted(self.scores, scores, side="right")
        mass = np.concatenate([[0.0], np.cumsum(self.weights)])
        return np.asarray((1 + mass[below]) / (1 + mass[-1]))
