"""Whether each column is calibrated, by the probability integral transform."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.stats import binom

from rnade.report.asked import Asked
from rnade.typing import Array

N_BINS = 20
# The share of right models whose whole histogram stays inside the band.
BAND_LEVEL = 0.99
# With fewer rows than this, hardly any model leaves the band.
LEAST_JUDGED = N_BINS


@dataclass(frozen=True)
class ColumnCalibration:
    """One column's transform against the uniform distribution that a right model gives.

    Attributes
    ----------
    column : str
    counts : array of shape (N_BINS,)
        Rows in each twentieth of the range from 0 to 1.
    low, high : float
        The band: a right model's counts all lie within, in 99 of 100 cases.
    inside : bool
        Whether they do.
    distance : float
        Largest difference between a predicted probability and the share observed.
    coverage : float
        Share of the values within the interval that the model gives 90 %.
    """

    column: str
    counts: Array
    low: float
    high: float
    inside: bool
    distance: float
    coverage: float


def column_calibration(column: str, u: Array) -> ColumnCalibration:
    """Compare one column's transformed values, from 0 to 1, with the uniform distribution."""
    n = len(u)
    counts = np.histogram(u, bins=N_BINS, range=(0.0, 1.0))[0].astype(np.float64)
    low, high = _band(n)
    ordered = np.sort(u)
    above = np.arange(1, n + 1) / n - ordered
    below = ordered - np.arange(n) / n
    return ColumnCalibration(
        column=column,
        counts=counts,
        low=low,
        high=high,
        inside=bool(((counts >= low) & (counts <= high)).all()),
        distance=float(max(above.max(), below.max())),
        coverage=float(((u >= 0.05) & (u <= 0.95)).mean()),
    )


@cache
def _band(n: int) -> tuple[float, float]:
    """Between which counts all bins of n uniform values stay, in 99 of 100 cases."""
    # Bonferroni over the bins, which lean on each other a little: the band is slightly wide.
    tail = (1 - BAND_LEVEL) / 2 / N_BINS
    low, high = binom.ppf([tail, 1 - tail], n, 1 / N_BINS)
    return float(low), float(high)


def calibrations(
    asked: Asked, rows: Any, columns: Iterable[int], random_state: Any
) -> list[ColumnCalibration]:
    """Give the calibration of columns, by those cells of some of the rows that are observed.

    Columns with missing cells are left out where too few are observed to judge by.
    """
    U = asked.estimator.pit(asked.given(rows), random_state=random_state)
    observed = {d: U[~np.isnan(U[:, d]), d] for d in columns}
    return [
        column_calibration(asked.names[d], u)
        for d, u in observed.items()
        if len(u) >= LEAST_JUDGED or not asked.mixed
    ]
