"""Judging rows at two scales: by how unlikely they are, and by how far from all others."""

from dataclasses import dataclass

import numpy as np

from rnade.evaluation import Calibration
from rnade.typing import Array

# Quantiles by which the distribution of a score is kept.
KNOTS = 512
# How much of the coarse log rank counts for every row, beside the smaller of both: of equally
# unlikely rows, those far from all others are the odder (docs/decisions/0021-two-scales.md).
COARSE_SHARE = 0.3


@dataclass(frozen=True, eq=False)
class Scale:
    """How scores of usual rows are distributed, to compare scores of different kinds.

    Attributes
    ----------
    scores : array of shape (K,), ascending
        Of rows that were left out.
    log_ranks : array of shape (K,)
        Logarithm of the share of rows that are at most as likely.
    """

    scores: Array
    log_ranks: Array

    @classmethod
    def of(cls, scores: Array) -> "Scale":
        """Measure the distribution of the scores of rows that were left out."""
        usual = np.sort(scores[np.isfinite(scores)])
        n = len(usual)
        at = np.unique(np.round(np.geomspace(1, n, KNOTS)).astype(int)) - 1
        values, first = np.unique(usual[at], return_index=True)
        return cls(values, np.log((at[first] + 1) / (n + 1)))

    def __call__(self, scores: Array) -> Array:
        """Log share of usual rows that are at most as likely; below all, in proportion."""
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

    def score(self, fine: Array, coarse: Array) -> Array:
        """Both log ranks of each row as one score; arrays of any one shape."""
        return combined_rank(self.fine, self.coarse, fine, coarse)


def combined_rank(of_fine: Scale, of_coarse: Scale, fine: Array, coarse: Array) -> Array:
    """Of each row the smaller of two log ranks, and a share of the coarse one besides."""
    by_coarse = of_coarse(coarse)
    return np.minimum(of_fine(fine), by_coarse) + COARSE_SHARE * by_coarse
