"""Columns before the model sees them: standardised, and looked at for what could make spikes."""

import math
from dataclasses import dataclass

import numpy as np

from rnade.families.base import Array

# In units of a column's standard deviation: no component gets narrower than this.
SMALLEST_FLOOR = 1e-4


@dataclass(frozen=True)
class Standardiser:
    """Affine map of each column to mean 0 and standard deviation 1 over the training rows.

    Attributes
    ----------
    mean, scale : array of shape (D,)
    """

    mean: Array
    scale: Array

    @classmethod
    def fit(cls, X: Array, weights: Array | None = None) -> "Standardiser":
        """Weighted mean and population standard deviation of each column."""
        mean = np.average(X, axis=0, weights=weights)
        variance = np.average((X - mean) ** 2, axis=0, weights=weights)
        return cls(mean, np.sqrt(variance))

    @classmethod
    def identity(cls, n_columns: int) -> "Standardiser":
        """The map that changes nothing, for binary data."""
        return cls(np.zeros(n_columns), np.ones(n_columns))

    @property
    def log_determinant_terms(self) -> Array:
        """What each column adds to the log density, in the data's own units: -log scale."""
        return -np.log(self.scale)

    @property
    def log_determinant(self) -> float:
        """What all columns add together."""
        return float(self.log_determinant_terms.sum())

    def transform(self, X: Array) -> Array:
        """Standardised columns."""
        return (X - self.mean) / self.scale

    def inverse(self, Z: Array) -> Array:
        """Columns in the data's own units."""
        return Z * self.scale + self.mean


@dataclass(frozen=True)
class Resolution:
    """How finely each column is recorded.

    Attributes
    ----------
    steps : array of shape (D,)
        Smallest distance between values of a column that is rounded, 0 where it is not.
    """

    steps: Array

    @classmethod
    def measure(cls, X: Array) -> "Resolution":
        """Find the columns of whole numbers or heavily repeated values, and their steps.

        A column counts as rounded if all its values are whole numbers or if at most half of them
        are distinct. Its step is the smallest distance between values that occur more than once
        (between any values, where fewer than two do), so that one odd value does not matter.
        """
        return cls(np.array([_step(column) for column in X.T]))

    def floors(self, scale: Array) -> Array:
        """Smallest component scale of each column, in standardised units.

        A value rounded to a step has an error of standard deviation step / sqrt(12); a component
        no narrower than that puts about the mass of one cell on one cell, and no more.
        """
        return np.maximum(self.steps / scale / math.sqrt(12), SMALLEST_FLOOR)


def _step(column: Array) -> float:
    values, counts = np.unique(column, return_counts=True)
    if len(values) < 2:
        return 0.0
    whole = bool(np.all(values == np.round(values)))
    if not whole and len(values) > len(column) / 2:
        return 0.0
    repeated = values[counts > 1]
    gaps = np.diff(repeated if len(repeated) > 1 else values)
    # Rounding error in the last digits (0.1 + 0.2 beside 0.3) is no step.
    gaps = gaps[gaps > 1e-9 * (values[-1] - values[0])]
    return float(gaps.min()) if len(gaps) else 0.0
