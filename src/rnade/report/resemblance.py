"""Whether rows drawn from the model look like the real ones: columns, pairs, correlations."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from rnade.columns import Column
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
    """Rows (n, k) to be drawn as points, for the columns that depend on each other the most.

    Each column has a range to draw, from `low` to `high`.
    """

    columns: list[str]
    real: Array
    sampled: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class TablePairs(Pairs):
    """Rows to be drawn as points of a table with columns of any kind, some of which hold levels.

    Codes of levels are whole numbers; NaN (in JSON null) where a cell is missing.
    """

    are_levels: list[bool]


@dataclass(frozen=True)
class Correlation:
    """Rank correlations (Spearman's) of columns, real and sampled, each (D, D)."""

    columns: list[str]
    real: Array
    sampled: Array

    @property
    def worst(self) -> tuple[int, int]:
        """The pair of columns in which the two differ the most."""
        i, j = np.unravel_index(np.abs(self.real - self.sampled).argmax(), self.real.shape)
        return int(i), int(j)


def marginal(column: str, real: Array, sampled: Array, step: float) -> Marginal:
    """Compare one column's real and sampled values.

    Of a column that is rounded to a `step`, which else is 0, bins hold whole steps, and samples
    are rounded alike before they are compared.
    """
    edges = histogram_edges(real, step)
    sampled = rounded(sampled, real, step)
    return Marginal(
        column,
        edges,
        np.histogram(real, edges)[0] / len(real),
        np.histogram(sampled, edges)[0] / len(sampled),
        largest_difference(real, sampled),
    )


def rounded(sampled: Array, real: Array, step: float) -> Array:
    """Samples rounded as the real values are: whole steps from the smallest."""
    if step > 0:
        return np.asarray(real.min() + step * np.round((sampled - real.min()) / step))
    return sampled


def largest_difference(one: Array, other: Array) -> float:
    """Between two distribution functions; without the p-value, which takes scipy far longer."""
    values = np.concatenate([one, other])
    shares = [np.searchsorted(np.sort(x), values, side="right") / len(x) for x in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


def histogram_edges(values: Array, step: float) -> Array:
    """Edges of bins over most of the values; of rounded ones, bins of as many steps each."""
    low, high = np.quantile(values, _DRAWN)
    if step > 0:
        # Start half a step below a value that occurs, so that no value lies on an edge.
        low = values.min() + step * (np.round((low - values.min()) / step) - 0.5)
        width = step * max(1.0, np.ceil((high - low) / step / _BINS))
        n = int(np.clip(np.ceil((high - low) / width), 2, _BINS + 1))
        return np.asarray(low + width * np.arange(n + 1))
    margin = 0.02 * (high - low) or 0.5
    return np.linspace(low - margin, high + margin, _BINS + 1)


def rank_bins(X: Array) -> NDArray[np.int64]:
    """The eighth of the ranks, from 0, in which each value of a column lies."""
    share = (rankdata(X, axis=0) - 0.5) / len(X)
    return np.asarray(np.minimum(share * _RANK_BINS, _RANK_BINS - 1), dtype=np.int64)


def cell_bins(column: Column, x: Array) -> NDArray[np.int64]:
    """Eight bins of a column of any kind; -1 where a cell is missing.

    Numbers and ordered levels by their ranks, other levels by themselves: the seven most frequent,
    and the rest in one.
    """
    bins, seen = np.full(len(x), -1), ~np.isnan(x)
    if not seen.any():
        return bins
    if column.levels is None or column.ordered:
        bins[seen] = rank_bins(x[seen])
        return bins
    codes = x[seen].astype(np.int64)
    place = np.argsort(np.argsort(-np.bincount(codes), kind="stable"), kind="stable")
    bins[seen] = np.minimum(place[codes], _RANK_BINS - 1)
    return bins


def mutual_information(bins: NDArray[np.int64], of: Index) -> Array:
    """Dependence of some columns on every column in nats, (k, D), curved or not, from their bins.

    One product of indicator matrices counts the rows in each cell of every pair, by the rows that
    have both: cost and memory grow with k times D. The expected excess of independent columns, (r
    - 1)(c - 1) / 2n, is taken off. A column shares 0 with itself.
    """
    (n, D), k = bins.shape, len(of)
    indicator = (bins[:, :, None] == np.arange(_RANK_BINS)).astype(np.float32)
    counts = indicator[:, of].reshape(n, -1).T @ indicator.reshape(n, -1)
    joint = counts.astype(np.float64).reshape(k, _RANK_BINS, D, _RANK_BINS)
    rows = joint.sum(axis=(1, 3), keepdims=True)
    joint /= np.maximum(rows, 1)
    one, other = joint.sum(axis=3, keepdims=True), joint.sum(axis=1, keepdims=True)
    terms = np.zeros_like(joint)
    np.log(joint / np.where(joint > 0, one * other, 1), where=joint > 0, out=terms)
    found = (joint * terms).sum(axis=(1, 3))
    used = [(part > 0).sum(axis=(1, 3)) for part in (one, other)]
    found -= (used[0] - 1) * (used[1] - 1) / (2 * np.maximum(rows[:, 0, :, 0], 1))
    found[np.arange(k), of] = 0.0
    return np.asarray(np.maximum(found, 0.0))


def information(asked: Asked, X: Array, of: Index) -> Array:
    """Mutual information of some columns of a table with every column, (k, D)."""
    if not asked.mixed:
        return mutual_information(rank_bins(X), of)
    bins = [cell_bins(column, x) for column, x in zip(asked.columns, X.T, strict=True)]
    return mutual_information(np.stack(bins, axis=1), of)


def has_ranks(column: Column) -> bool:
    """Whether larger and smaller mean something: numbers, dates, ordered or just two levels."""
    return column.levels is None or column.ordered or len(column.levels) <= 2


def correlations(
    asked: Asked, at: Index, real: Array, sampled: Array
) -> tuple[Correlation, list[str]]:
    """Rank correlations of those columns that have ranks, and the names of the others."""
    ranked = [int(d) for d in at if not asked.mixed or has_ranks(asked.columns[d])]
    others = [asked.names[d] for d in at if d not in ranked]
    both = (rank_correlation(X[:, ranked]) for X in (real, sampled))
    return Correlation([asked.names[d] for d in ranked], *both), others


def rank_correlation(X: Array) -> Array:
    """Spearman's correlation matrix, each pair by the rows that have both; 0 of constant columns.

    Ranks are those among all observed cells of a column.
    """
    seen = ~np.isnan(X)
    ranks = np.zeros(X.shape)
    for d in range(X.shape[1]):
        own = rankdata(X[seen[:, d], d])
        # From 0 to 1 about the middle, so that sums lose no digits.
        ranks[seen[:, d], d] = (own - (len(own) + 1) / 2) / max(len(own), 1)
    m = seen.astype(np.float64)
    n = np.maximum(m.T @ m, 1)
    sums, squares = ranks.T @ m, (ranks**2).T @ m
    shared = ranks.T @ ranks - sums * sums.T / n
    spread = np.maximum(squares - sums**2 / n, 0.0)
    length = np.sqrt(spread * spread.T)
    # What rounding leaves of a column that never changes is no spread.
    R = np.clip(np.where(length > 1e-12 * n, shared / np.where(length > 0, length, 1), 0), -1, 1)
    np.fill_diagonal(R, 1.0)
    return np.asarray(R)


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


def pairs(
    names: list[str],
    at: list[int],
    real: Array,
    sampled: Array,
    n_points: int,
    columns: Sequence[Column] = (),
) -> Pairs:
    """Take the points to draw: rows at even distances, so that no seed is needed.

    What the `columns` hold is said of tables with columns of any kind.
    """
    low, high = np.empty(len(at)), np.empty(len(at))
    for i, d in enumerate(at):
        x = real[~np.isnan(real[:, d]), d]
        x = x if len(x) else sampled[:, d]
        low[i], high[i] = np.quantile(x, _DRAWN)
        margin = 0.08 * (high[i] - low[i]) or 0.5
        levels = columns[d].levels if columns else None
        if levels is not None:
            low[i], high[i], margin = 0.0, max(len(levels) - 1, float(x.max())), 0.5
        low[i], high[i] = low[i] - margin, high[i] + margin
    real, sampled = (_some(X, at, n_points) for X in (real, sampled))
    found = Pairs([names[d] for d in at], real, sampled, low, high)
    if not columns:
        return found
    return TablePairs(**vars(found), are_levels=[columns[d].levels is not None for d in at])


def _some(X: Array, at: list[int], n_points: int) -> Array:
    rows = np.linspace(0, len(X) - 1, min(n_points, len(X))).astype(int)
    return np.asarray(X[rows][:, at])


def spread_points(codes: Array, irrational: float = 2**0.5) -> Array:
    """Codes of levels moved a little to either side, so that points do not hide each other."""
    # Multiples of an irrational number are even between 0 and 1, and need no seed.
    return np.asarray(codes + 0.6 * (np.arange(len(codes)) * irrational % 1.0 - 0.5))
