"""How finely each column is recorded, which bounds how narrow a density may get."""

import math
from dataclasses import dataclass

import numpy as np

from rnade.typing import Array

# In units of a column's standard deviation: no component gets narrower than this.
SMALLEST_FLOOR = 1e-4


@dataclass(frozen=True)
class Resolution:
    """How finely each column is recorded.

    The step of a column that is rounded is the smallest distance between its values, else 0.
    """

    steps: Array

    @classmethod
    def measure(cls, X: Array) -> "Resolution":
        """Find the columns of whole numbers or heavily repeated values, and their steps.

        A column counts as rounded if all its values are whole numbers or if at most half of them
        are distinct. Its step is the smallest distance between values that occur more than once
        (between any values, where fewer than two do), so that one odd value does not matter.
        """
        return cls(np.array([_step(column[~np.isnan(column)]) for column in X.T]))

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
