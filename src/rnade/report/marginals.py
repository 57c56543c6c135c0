"""Single columns of any kind, real beside sampled: shares of levels, atoms, histograms."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rnade.columns import Column
from rnade.columns.values import levels_of, zone_of
from rnade.report.asked import Asked
from rnade.report.kinds import is_new, kind_of
from rnade.report.resemblance import (
    Marginal,
    histogram_edges,
    largest_difference,
    marginal,
    rounded,
)
from rnade.typing import Array


@dataclass(frozen=True)
class LevelMarginal:
    """One column of levels, real and sampled.

    Attributes
    ----------
    column : str
    kind : {"category", "ordered category", "indicator"}
    levels : list of str
        Those that the model knows, in order.
    real, sampled : array of shape (n,)
        Share of the observed cells with each level.
    new : float
        Share of the observed real cells with a level that the model does not know.
    missing : float
        Share of the real rows in which the cell is missing.
    distance : float
        The largest difference between the shares of a level; NaN where no cell is observed.
    """

    column: str
    kind: str
    levels: list[str]
    real: Array
    sampled: Array
    new: float
    missing: float
    distance: float


@dataclass(frozen=True)
class NumberMarginal(Marginal):
    """One column of numbers or dates of which some may be atoms or missing, real and sampled.

    Shares are of the observed cells. The histogram is of values that are not atoms; its edges are
    numbers, of dates in days or seconds since 1970-01-01.

    Attributes
    ----------
    kind : {"real", "integer", "date"}
    unit : {"day", "second"} or None
        Of dates.
    zone : str or None
        Time zone of times.
    atoms : array of shape (A,)
        Single values that have a share of the rows of their own.
    real_atoms, sampled_atoms : array of shape (A,)
        Their shares.
    missing : float
        Share of the real rows in which the cell is missing.
    """

    kind: str
    unit: str | None
    zone: str | None
    atoms: Array
    real_atoms: Array
    sampled_atoms: Array
    missing: float


def marginals(
    asked: Asked, sampled: Array, columns: Iterable[int]
) -> Sequence[Marginal | LevelMarginal]:
    """Compare columns of the table and of rows drawn from the model."""
    kinds, names, values, steps = asked.columns, asked.names, asked.values, asked.steps.tolist()
    if kinds:
        return [column_marginal(kinds[d], values[:, d], sampled[:, d], steps[d]) for d in columns]
    return [marginal(names[d], values[:, d], sampled[:, d], steps[d]) for d in columns]


def column_marginal(
    column: Column, real: Array, sampled: Array, step: float
) -> LevelMarginal | NumberMarginal:
    """Compare one column's real and sampled values, NaN where a cell is missing.

    `step` is to what numbers are rounded, 0 if they are not.
    """
    missing = float(np.isnan(real).mean())
    real, sampled = real[~np.isnan(real)], sampled[~np.isnan(sampled)]
    if column.levels is not None:
        return _levels(column, real, sampled, missing)
    # A column of which nothing is observed is drawn by the samples alone.
    spread, drawn = (x[~np.isin(x, column.atoms)] for x in (real, sampled))
    shown = spread if len(spread) else drawn if len(drawn) else np.array(column.atoms)
    edges = histogram_edges(shown, step)
    alike = rounded(drawn, shown, step)
    with_atoms = np.concatenate([alike, sampled[np.isin(sampled, column.atoms)]])
    both = len(real) and len(sampled)
    return NumberMarginal(
        column.name,
        edges,
        np.histogram(spread, edges)[0] / max(len(real), 1),
        np.histogram(alike, edges)[0] / max(len(sampled), 1),
        largest_difference(real, with_atoms) if both else float("nan"),
        kind_of(column),
        column.unit,
        zone_of(column),
        np.array(column.atoms),
        _shares_of(real, column.atoms),
        _shares_of(sampled, column.atoms),
        missing,
    )


def _shares_of(values: Array, points: tuple[float, ...]) -> Array:
    """Share of the values that are each of some points."""
    return np.array([(values == point).sum() / max(len(values), 1) for point in points])


def _levels(column: Column, real: Array, sampled: Array, missing: float) -> LevelMarginal:
    levels = levels_of(column)
    new = float(is_new(column, real).mean()) if len(real) else 0.0
    one, other = (_level_shares(codes, len(levels)) for codes in (real, sampled))
    off = max(float(np.abs(one - other).max()), new) if len(real) else float("nan")
    return LevelMarginal(column.name, kind_of(column), levels, one, other, new, missing, off)


def _level_shares(codes: Array, n_levels: int) -> Array:
    counts = np.bincount(codes.astype(np.int64), minlength=n_levels)[:n_levels]
    return np.asarray(counts / max(len(codes), 1))
