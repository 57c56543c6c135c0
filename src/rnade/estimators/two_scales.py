"""Judging rows at two scales: by how unlikely they are, and by how far from all others."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rnade.evaluation import Calibration
from rnade.typing import Array

# Quantiles by which the distribution of a score is kept.
KNOTS = 512
# How much of the coarse log rank counts for every row, beside the smaller of both: of equally
# unlikely rows, those far from all others are the odder (docs/decisions/0021-two-scales.md).
COARSE_SHARE = 0.3
# What a missing cell is worth is measured with so many rows' worth of nothing, and by scores that
# are no lower than this share of rows have: a few outliers should not decide it.
PRIOR_ROWS, LOWEST = 3.0, 0.03


@dataclass(frozen=True, eq=False)
class Scale:
    """How scores of usual rows are distributed, to compare scores of different kinds.

    Attributes
    ----------
    scores : array of shape (K,), ascending
        Of rows that were left out.
    log_ranks : array of shape (K,)
        Logarithm of the share of rows that are at most as likely.
    worth : array of shape (D,), optional
        How much higher scores are where a column is missing, which is taken off: a row of which
        less is observed is not the more usual for that.
    """

    scores: Array
    log_ranks: Array
    worth: Array | None = None

    @classmethod
    def of(cls, scores: Array, missing: NDArray[np.bool_] | None = None) -> "Scale":
        """Measure the distribution of the scores of rows that were left out.

        Parameters
        ----------
        scores : array of shape (N,)
        missing : bool array of shape (N, D), optional
            Which of their cells are missing.
        """
        finite, worth = np.isfinite(scores), None
        usual = scores[finite]
        if missing is not None and missing.any() and len(usual):
            worth = _worth(usual, missing[finite])
            usual = usual - missing[finite] @ worth
        usual, n = np.sort(usual), len(usual)
        at = np.unique(np.round(np.geomspace(1, n, KNOTS)).astype(int)) - 1
        values, first = np.unique(usual[at], return_index=True)
        return cls(values, np.log((at[first] + 1) / (n + 1)), worth)

    def __call__(self, scores: Array, missing: NDArray[np.bool_] | None = None) -> Array:
        """Log share of usual rows that are at most as likely; below all, in proportion.

        Parameters
        ----------
        scores : array of shape (..., N)
        missing : bool array of shape (N, D), optional
        """
        if self.worth is not None and missing is not None:
            scores = scores - missing @ self.worth
        low, middle = self.scores[0], self.scores[len(self.scores) // 2]
        inside = np.interp(scores, self.scores, self.log_ranks)
        width = max(middle - low, 1e-9 * max(1.0, abs(low)))
        below = self.log_ranks[0] * (1 + (low - np.maximum(scores, -1e300)) / width)
        return np.asarray(np.where(scores < low, below, inside))


@dataclass(frozen=True, eq=False)
class TwoScales:
    """How odd rows are at the more telling of two scales, and how odd that is of usual rows.

    Attributes
    ----------
    fine, coarse : Scale
        Of log densities by the model itself, and by its coarse density.
    calibration : Calibration
        Of both put together, for p-values.
    """

    fine: Scale
    coarse: Scale
    calibration: Calibration

    def score(self, fine: Array, coarse: Array, missing: NDArray[np.bool_] | None = None) -> Array:
        """Both log ranks of each row as one score; arrays of any one shape (..., N)."""
        return combined_rank(self.fine, self.coarse, fine, coarse, missing)


def combined_rank(
    of_fine: Scale,
    of_coarse: Scale,
    fine: Array,
    coarse: Array,
    missing: NDArray[np.bool_] | None = None,
) -> Array:
    """Of each row the smaller of two log ranks, and a share of the coarse one besides."""
    by_coarse = of_coarse(coarse, missing)
    return np.minimum(of_fine(fine, missing), by_coarse) + COARSE_SHARE * by_coarse


def _worth(scores: Array, missing: NDArray[np.bool_]) -> Array:
    """Least squares, with a prior, of scores on which cells are missing: (D,)."""
    kept = np.maximum(scores, np.quantile(scores, LOWEST))
    m = missing - missing.mean(axis=0)
    squares = m.T @ m + PRIOR_ROWS * np.eye(m.shape[1])
    return np.asarray(np.linalg.solve(squares, m.T @ (kept - kept.mean())))
