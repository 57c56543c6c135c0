"""Whether rows drawn from the model look like the real ones: columns, pairs, correlations."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from rnade.report.asked import Asked, Index
from rnade.typing import Array

_BINS = 30
# Bins of each column's ranks when the dependence of all pairs is measured.
_RANK_BINS = 8
# Quantiles of the real values between which a column is drawn.
_DRAWN = (0.005, 0.995)


@dataclass(frozen=True)
class Marginal:
    """One column, real and sampled, as histograms over the same bins.

    Attributes
    ----------
    column : str
    edges : array of shape (n + 1,)
        From the real values' 0.5 % to their 99.5 % quantile.
    real, sampled : array of shape (n,)
        Share of the rows in each bin.
    distance : float
        Kolmogorov's: the largest difference between the two distribution functions.
    """

    column: str
    edges: Array
    real: Array
    sampled: Array
    distance: float


@dataclass(frozen=True)
class Pairs:
    """Rows to be drawn as points, for the columns that depend on each other the most.

    Attributes
    ----------
    columns : list of str
    real, sampled : array of shape (n, k)
    low, high : array of shape (k,)
        Range to draw.
    """

    columns: list[str]
    real: Array
    sampled: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class Correlation:
    """Rank correlations (Spearman's) of columns, real and sampled.

    Attributes
    ----------
    columns : list of str
    real, sampled : array of shape (D, D)
    """

    columns: list[str]
    real: Array
    sampled: Array

    @classmethod
    def of(cls, columns: list[str], real: Array, sampled: Array) -> "Correlation":
        """Correlate the columns of real and of sampled rows."""
        return cls(columns, rank_correlation(real), rank_correlation(sampled))

    @property
    def worst(self) -> tuple[int, int]:
        """The pair of columns in which the two differ the most."""
        i, j = np.unravel_index(np.abs(self.real - self.sampled).argmax(), self.real.shape)
        return int(i), int(j)


def marginals(asked: Asked, sampled: Array, columns: Iterable[int]) -> list[Marginal]:
    """Compare columns of the table and of rows drawn from the model."""
    names, values, steps = asked.names, asked.values, asked.steps
    return [marginal(names[d], values[:, d], sampled[:, d], float(steps[d])) for d in columns]


def marginal(column: str, real: Array, sampled: Array, step: float) -> Marginal:
    """Compare one column's real and sampled values.

    Parameters
    ----------
    column : str
    real, sampled : array of shape (n,) and (m,)
    step : float
        To what the column is rounded, 0 if it is not. Bins then hold whole steps, and samples are
        rounded alike before they are compared.
    """
    edges = _edges(real, step)
    if step > 0:
        sampled = real.min() + step * np.round((sampled - real.min()) / step)
    return Marginal(
        column,
        edges,
        np.histogram(real, edges)[0] / len(real),
        np.histogram(sampled, edges)[0] / len(sampled),
        _largest_difference(real, sampled),
    )


def _largest_difference(one: Array, other: Array) -> float:
    """Between two distribution functions; without the p-value, which takes scipy far longer."""
    values = np.concatenate([one, other])
    shares = [np.searchsorted(np.sort(x), values, side="right") / len(x) for x in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


def _edges(values: Array, step: float) -> Array:
    low, high = np.quantile(values, _DRAWN)
    if step > 0:
        # Start half a step below a value that occurs, so that no value lies on an edge.
        low = values.min() + step * (np.round((low - values.min()) / step) - 0.5)
        width = step * max(1.0, np.ceil((high - low) / step / _BINS))
        n = int(np.clip(np.ceil((high - low) / width), 2, _BINS + 1))
        return np.asarray(low + width * np.arange(n + 1))
    margin = 0.02 * (high - low) or 0.5
    return np.linspace(low - margin, high + margin, _BINS + 1)


def rank_correlation(X: Array) -> Array:
    """Spearman's correlation matrix; 0 for a column that never changes."""
    ranks = rankdata(X, axis=0)
    ranks = ranks - ranks.mean(axis=0)
    length = np.sqrt((ranks**2).sum(axis=0))
    ranks /= np.where(length > 0, length, 1.0)
    R = np.clip(ranks.T @ ranks, -1, 1)
    np.fill_diagonal(R, 1.0)
    return np.asarray(R)


def mutual_information(X: Array, of: Index) -> Array:
    """Dependence of some columns on every column in nats, curved or not, from their binned ranks.

    Ranks are put into 8 bins a column; one product of indicator matrices counts the rows in each
    cell of every pair. The expected excess of independent columns, (r - 1)(c - 1) / 2n, is taken
    off. A column shares 0 with itself.

    Parameters
    ----------
    X : array of shape (n, D)
    of : array of int, shape (k,)
        Columns: cost and memory grow with k times D.

    Returns
    -------
    array of shape (k, D)
    """
    (n, D), k = X.shape, len(of)
    bins = np.minimum((rankdata(X, axis=0) - 0.5) / n * _RANK_BINS, _RANK_BINS - 1).astype(int)
    indicator = np.zeros((n, D, _RANK_BINS), dtype=np.float32)
    indicator[np.arange(n)[:, None], np.arange(D), bins] = 1
    single = indicator.mean(axis=0, dtype=np.float64)
    counts = indicator[:, of].reshape(n, -1).T @ indicator.reshape(n, -1)
    joint = counts.astype(np.float64) / n
    expected = np.outer(single[of], single)
    terms = np.zeros_like(joint)
    np.log(joint / np.where(expected > 0, expected, 1), where=joint > 0, out=terms)
    information = (joint * terms).reshape(k, _RANK_BINS, D, _RANK_BINS).sum(axis=(1, 3))
    used = (single > 0).sum(axis=1)
    information -= np.outer(used[of] - 1, used - 1) / (2 * n)
    information[np.arange(k), of] = 0.0
    return np.asarray(np.maximum(information, 0.0))


def closest_columns(information: Array, of: Index) -> dict[int, tuple[int, float]]:
    """For each column of `mutual_information` the closest one and how much they share, if any."""
    closest = information.argmax(axis=1)
    shared = information.max(axis=1)
    found = zip(of.tolist(), closest.tolist(), shared.tolist(), strict=True)
    return {column: (partner, nats) for column, partner, nats in found if nats > 0}


def most_dependent(information: Array, of: Index, most: int = 5) -> list[int]:
    """Columns that depend on each other the most: the strongest pair, then its closest ones."""
    D = information.shape[1]
    if D < 2:
        return list(range(D))
    row, column = np.unravel_index(information.argmax(), information.shape)
    chosen = [int(of[row]), int(column)]
    while len(chosen) < min(most, D):
        closest = information[np.isin(of, chosen)].max(axis=0)
        closest[chosen] = -1
        chosen.append(int(closest.argmax()))
    return sorted(chosen)


def pairs(names: list[str], at: list[int], real: Array, sampled: Array, n_points: int) -> Pairs:
    """Take the points to draw: rows at even distances, so that no seed is needed."""
    low, high = np.quantile(real[:, at], _DRAWN, axis=0)
    margin = 0.08 * np.where(high > low, high - low, 1.0)

    def some(X: Array) -> Array:
        rows = np.linspace(0, len(X) - 1, min(n_points, len(X))).astype(int)
        return np.asarray(X[rows][:, at])

    return Pairs([names[d] for d in at], some(real), some(sampled), low - margin, high + margin)
