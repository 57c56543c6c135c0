"""The study of a model of a table with levels, integers, dates, atoms or missing cells."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rnade._version import __version__
from rnade.columns import Column
from rnade.estimators.scoring import Judged
from rnade.report.asked import Asked, Index, sampled_values
from rnade.report.calibration import LEAST_JUDGED, calibrations
from rnade.report.cells import alone, given_others
from rnade.report.dependence import Gain
from rnade.report.findings import MOST_SHOWN, Table, TableFindings
from rnade.report.fitted import compare, describe
from rnade.report.kinds import describe_columns
from rnade.report.marginals import LevelMarginal, NumberMarginal, column_marginal
from rnade.report.oddness import find_odd
from rnade.report.resemblance import (
    Correlation,
    cell_bins,
    closest_columns,
    information_of_bins,
    most_dependent,
    pairs_of_kinds,
)
from rnade.report.words import listed, plural
from rnade.typing import Array

# Judged rows by which gains are measured: each column takes the networks once more.
_MOST_FOR_GAINS = 4000
# Every pair of so many columns is correlated; of wider tables, those that gain the most.
MOST_CORRELATED = 300
# Points in each cell of the matrix of pairs.
N_POINTS = 700


def study_table(
    asked: Asked,
    scores: Array,
    judged: Judged,
    *,
    source: str,
    places: NDArray[np.int64] | None,
    dropped_rows: int,
    n_sampled: int,
    random_state: int,
) -> TableFindings:
    """Find out what a model found in a table with columns of any kind.

    The findings have no cautions and sentences yet. Beside those of `study`, parameters are the
    log densities of all rows, of shape (N,), the same out of fold with p-values, and how many rows
    to draw from the model.
    """
    rows, X = asked.rows, asked.X
    fitted = describe(asked)
    absent = [
        "A Gaussian takes complete columns of numbers, so none is set beside this model.",
        *_unjudged(asked),
    ]
    sampled = observed_samples(asked, n_sampled, random_state)
    gained = gains_given_others(asked)
    ranked = np.argsort(-np.nan_to_num(_means(gained)), kind="stable")
    shown, correlated = np.sort(ranked[:MOST_SHOWN]), np.sort(ranked[:MOST_CORRELATED])
    some = X[np.linspace(0, len(X) - 1, min(len(sampled), len(X))).astype(int)]
    shared = information(asked.columns, some, shown)
    correlation, unordered = correlation_of(asked.columns, correlated, some, sampled)
    numbered = np.arange(1, len(X) + 1) if places is None else places
    if len(asked.names) > MOST_CORRELATED:
        absent.append(
            f"Correlations are of the {MOST_CORRELATED} columns that gain the most from others."
        )
    if unordered:
        absent.append(
            f"Levels without an order have no rank correlation: {listed(unordered)} left out of"
            " the correlations."
        )
    by_columns = np.nansum(alone(asked, rows.judged), axis=1)
    return TableFindings(
        fitted=fitted,
        table=Table(source, len(X), dropped_rows, rows.role, len(rows.judged), len(sampled)),
        scores=compare({fitted.kind: scores[rows.judged], "independent columns": by_columns}),
        calibration=calibrations(asked, rows.judged, range(len(asked.names)), random_state),
        marginals=marginals_of_kinds(asked, sampled, range(len(asked.names))),
        pairs=pairs_of_kinds(asked.columns, most_dependent(shared, shown), X, sampled, N_POINTS)
        if len(asked.names) > 1
        else None,
        correlation=correlation,
        oddness=find_odd(asked, judged, numbered),
        gains=gains_of_kinds(asked, gained, closest_columns(shared, shown)),
        cautions=[],
        sentences={},
        absent=absent,
        version=__version__,
        columns=describe_columns(asked.estimator.schema_, X, asked.new_levels()),
    )


def observed_samples(asked: Asked, n: int, random_state: Any) -> Array:
    """Rows drawn from the model; NaN where a drawn indicator says that the cell is missing."""
    sampled = sampled_values(asked.estimator, n, random_state)
    for d, column in enumerate(asked.columns):
        if column.indicates in asked.names:
            sampled[sampled[:, d] > 0.5, asked.names.index(column.indicates)] = np.nan
    return sampled


def marginals_of_kinds(
    asked: Asked, sampled: Array, columns: Any
) -> list[LevelMarginal | NumberMarginal]:
    """Compare columns of the table and of rows drawn from the model."""
    return [
        column_marginal(asked.columns[d], asked.X[:, d], sampled[:, d], float(asked.steps[d]))
        for d in columns
    ]


def information(columns: tuple[Column, ...], X: Array, of: Index) -> Array:
    """Mutual information of some columns with every column, (k, D)."""
    bins = [cell_bins(column, x) for column, x in zip(columns, X.T, strict=True)]
    return information_of_bins(np.stack(bins, axis=1), of)


def has_ranks(column: Column) -> bool:
    """Whether larger and smaller mean something: numbers, dates, ordered or just two levels."""
    return column.levels is None or column.ordered or len(column.levels) <= 2


def correlation_of(
    columns: tuple[Column, ...], at: Index, real: Array, sampled: Array
) -> tuple[Correlation | None, list[str]]:
    """Rank correlations of the columns that have ranks, if two have; and names of the others."""
    ranked = [int(d) for d in at if has_ranks(columns[d])]
    others = [columns[d].name for d in at if not has_ranks(columns[d])]
    if len(ranked) < 2:
        return None, others
    names = [columns[d].name for d in ranked]
    return Correlation.of_observed(names, real[:, ranked], sampled[:, ranked]), others


def gains_given_others(asked: Asked) -> Array:
    """What each judged cell's log density gains from all other cells of its row, (n, D)."""
    judged = asked.rows.judged
    at = np.linspace(0, len(judged) - 1, min(len(judged), _MOST_FOR_GAINS)).astype(int)
    return given_others(asked, judged[at]) - alone(asked, judged[at])


def gains_of_kinds(
    asked: Asked, gained: Array, closest: dict[int, tuple[int, float]]
) -> list[Gain]:
    """Gains of the columns of which at least two judged cells are observed.

    Parameters
    ----------
    asked : Asked
    gained : array of shape (n, D)
        From `gains_given_others`.
    closest : dict of int to (int, float)
        For some columns the one that shares the most information with it, and how much.
    """
    found = []
    n = (~np.isnan(gained)).sum(axis=0)
    for d in np.flatnonzero(n > 1):
        own = gained[~np.isnan(gained[:, d]), d]
        partner, nats = closest.get(int(d), (None, 0.0))
        nearest = None if partner is None else asked.names[partner]
        error = float(own.std(ddof=1) / np.sqrt(len(own)))
        found.append(Gain(asked.names[d], 0, float(own.mean()), error, nearest, nats))
    return found


def _means(gained: Array) -> Array:
    """Mean of what is observed of each column; NaN where nothing is."""
    n = (~np.isnan(gained)).sum(axis=0)
    return np.where(n > 0, np.nansum(gained, axis=0) / np.maximum(n, 1), np.nan)


def _unjudged(asked: Asked) -> list[str]:
    """Which columns have too few observed cells for their calibration to be judged, if any."""
    judged = asked.X[asked.rows.judged]
    if len(judged) < LEAST_JUDGED:
        rows = plural(len(judged), "row")
        return [f"Calibration cannot be judged by {rows}; it takes {LEAST_JUDGED}."]
    n = (~np.isnan(judged)).sum(axis=0)
    few = [name for name, m in zip(asked.names, n, strict=True) if m < LEAST_JUDGED]
    if not few:
        return []
    return [
        f"The calibration of {listed(few)} cannot be judged: it takes {LEAST_JUDGED} observed"
        " cells among the judged rows."
    ]
