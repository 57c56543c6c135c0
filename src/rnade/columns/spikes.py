"""Columns on which a density can grow without bound: single values repeated, planes."""

from dataclasses import dataclass

import numpy as np

from rnade.columns.resolution import Resolution
from rnade.typing import Array

# A value is a spike if it holds this share of the rows and at least so many of them.
SPIKE_SHARE = 0.05
SPIKE_ROWS = 5
# A column is taken for a linear function of others if they leave less than this of its variance.
SMALLEST_SHARE = 1e-12
# Rows that are looked at for such columns, and columns up to which it is done.
COMPARED_ROWS = 20_000
MOST_COMPARED_COLUMNS = 2_000


@dataclass(frozen=True)
class Spike:
    """A single value that holds an excess share of the rows of a column.

    It lies `apart` if it is further from all other values than these from each other, as a code
    for missing cells is.
    """

    column: int
    value: float
    share: float
    apart: bool


def find_spikes(X: Array, resolution: Resolution) -> list[Spike]:
    """Values that hold an excess share of their column, the largest first.

    In columns that are rounded anyway every value is repeated: of these only values far apart
    from all others are told.
    """
    found = []
    for d, column in enumerate(X.T):
        column = column[~np.isnan(column)]
        values, counts = np.unique(column, return_counts=True)
        often = counts >= max(SPIKE_ROWS, SPIKE_SHARE * len(column))
        for i in np.flatnonzero(often):
            others = np.delete(values, i)
            distance = np.abs(others - values[i]).min() if len(others) else 0.0
            apart = len(others) > 1 and bool(distance > np.ptp(others))
            if apart or resolution.steps[d] == 0:
                found.append(Spike(d, float(values[i]), float(counts[i] / len(column)), apart))
    return sorted(found, key=lambda spike: -spike.share)


def dependent_columns(X: Array) -> list[int]:
    """Columns that can be computed exactly, by a linear function, from those before them.

    Copies of a column are found in any table; linear functions where there are more rows than
    columns, since else there always are some. Rows with missing cells are not looked at.
    """
    complete = ~np.isnan(X).any(axis=1)
    if not complete.any():
        return []
    X = X if complete.all() else X[complete]
    if len(X) > COMPARED_ROWS:
        # At random, since rows may have a period.
        X = X[np.random.default_rng(0).choice(len(X), COMPARED_ROWS, replace=False)]
    varies = np.flatnonzero(np.ptp(X, axis=0) > 0)  # of the rows looked at
    X = X[:, varies]
    N, D = X.shape
    if N <= D + 1 or D > MOST_COMPARED_COLUMNS:
        first: dict[bytes, int] = {}
        copies = [
            first.setdefault(np.ascontiguousarray(x).tobytes(), d) for d, x in enumerate(X.T)
        ]
        return [int(varies[d]) for d, earliest in enumerate(copies) if earliest != d]
    centred = X - X.mean(axis=0)
    norms = np.linalg.norm(centred / np.abs(centred).max(axis=0), axis=0)
    Z = centred / np.abs(centred).max(axis=0) / norms
    return [int(varies[d]) for d in dependent_in(Z.T @ Z)]


def dependent_in(covariance: Array) -> list[int]:
    """Variables that are linear functions of those before them, by their covariance (D, D)."""
    variance = covariance.diagonal().copy()
    try:
        left = np.linalg.cholesky(covariance).diagonal() ** 2
        if (left > SMALLEST_SHARE * variance).all():
            return []
    except np.linalg.LinAlgError:
        pass
    # The same elimination, but passing over what is dependent.
    rest, found = covariance.copy(), []
    for d in range(len(rest)):
        if rest[d, d] <= SMALLEST_SHARE * variance[d]:
            found.append(d)
            continue
        column = rest[d:, d] / np.sqrt(rest[d, d])
        rest[d:, d:] -= np.outer(column, column)
    return found
