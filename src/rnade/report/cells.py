"""Single cells of rows of any kind: how likely each is given the others, and what was expected."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rnade.columns.partition import CODE, WITHIN
from rnade.columns.values import levels_of
from rnade.report.asked import Asked
from rnade.report.kinds import cell_value, is_discrete, kind_of
from rnade.typing import Array

# The interval of a number or a date that the model gives 90 %.
ENDS = (0.05, 0.95)
MOST_REASONS = 3
# Judged rows by which gains are measured: each column takes the networks once more.
_MOST_FOR_GAINS = 4000
# Fewer nats than this are no reason: half of all cells add some. A value within the interval needs
# more, since it is odd only as one between usual values, or beside a single very usual one.
LEAST_SURPRISE, LEAST_WITHIN = 1.0, 3.0


@dataclass(frozen=True)
class CellReason:
    """A cell that makes its row odd, with what the model expected given the row's other cells.

    Attributes
    ----------
    column : str
    kind : {"real", "integer", "category", "ordered category", "date", "indicator"}
    value : float or str
        A number; a level or a date as text.
    surprise : float
        Nats by which the value is less likely than is usual for this column.
    probability : float or None
        Of the value, where values have a probability; None of densities.
    known : bool
        False for a level that was not in the table that was fitted.
    likeliest : str or None
        The likeliest level; None of numbers and dates.
    likeliest_probability : float or None
    low, high : float, str or None
        The interval of a number or a date that the model gave 90 %; None of levels.
    within : bool
        Whether the value lies inside it all the same, where few values do.
    """

    column: str
    kind: str
    value: float | str
    surprise: float
    probability: float | None
    known: bool = True
    likeliest: str | None = None
    likeliest_probability: float | None = None
    low: float | str | None = None
    high: float | str | None = None
    within: bool = False


def explain_cells(asked: Asked, rows: NDArray[np.int64]) -> list[list[CellReason]]:
    """The cells of some rows that are odd given the other cells, the most surprising first.

    It takes a model of a table of any kind.
    """
    X = asked.X[rows]
    surprise = asked.estimator.surprise(asked.given(rows)) if len(rows) else np.empty(X.shape)
    surprise = np.where(np.isnan(surprise), -np.inf, surprise)
    found = []
    for i, (row, odd) in enumerate(zip(rows, surprise, strict=True)):
        columns = [d for d in np.argsort(-odd, kind="stable") if odd[d] >= LEAST_SURPRISE]
        told: list[CellReason] = []
        for d in columns:
            if len(told) == MOST_REASONS:
                break
            cell = _reason(asked, X[i : i + 1], int(row), int(d), float(odd[d]))
            if odd[d] >= (LEAST_WITHIN if cell.within else LEAST_SURPRISE):
                told.append(cell)
        found.append(sorted(told, key=lambda cell: cell.within))
    return found


def _reason(asked: Asked, X: Array, row: int, d: int, surprise: float) -> CellReason:
    column, x = asked.columns[d], float(X[0, d])
    density = asked.estimator.column_density(X, d)
    has_probability = is_discrete(column) or x in column.atoms
    probability = float(np.exp(density.log_prob(X[:, d])[0])) if has_probability else None
    of, odd = (column.name, kind_of(column)), (surprise, probability)
    if column.levels is not None:
        shares = density.probabilities()[0]
        best = int(shares.argmax())
        known = 0 <= x < len(column.levels)
        value = cell_value(column, x) if known else asked.level(row, d)
        likeliest = levels_of(column)[best], float(shares[best])
        # The likeliest level is what was expected, and so within it.
        return CellReason(*of, value, *odd, known, *likeliest, within=known and int(x) == best)
    low, high = (float(density.quantile(q)[0]) for q in ENDS)
    value, *ends = (cell_value(column, at) for at in (x, low, high))
    within = low <= x <= high
    return CellReason(*of, value, *odd, low=ends[0], high=ends[1], within=within)


def given_others(asked: Asked, rows: NDArray[np.int64]) -> Array:
    """Log densities of cells, (n, D), given the other observed ones of the row; NaN if missing."""
    X = asked.X[rows]
    found = np.full(X.shape, np.nan)
    for d in range(X.shape[1]):
        seen = ~np.isnan(X[:, d])
        if seen.any():
            found[seen, d] = asked.estimator.column_density(X[seen], d).log_prob(X[seen, d])
    return found


def alone(asked: Asked, rows: NDArray[np.int64]) -> Array:
    """Log densities of cells, (n, D), by their columns alone; NaN where missing.

    The columns are as they were in the rows that the model learned from, cut into the model's own
    cells, each with its share of those rows: what the model would say if it knew of no other cell.
    """
    X = asked.X[rows]
    found = np.full(X.shape, np.nan)
    for d, column in enumerate(asked.estimator.module_.columns):
        seen = ~np.isnan(X[:, d])
        cells = column.encode(X[seen, d])
        code, within = cells[:, CODE].astype(np.int64), cells[:, WITHIN]
        # What is outside of all cells has a density of its own.
        inside = column.log_inside + np.log(column.shares[np.maximum(code, 0)]) + within
        found[seen, d] = np.where(code >= 0, inside, within)
    return found


def gains_given_others(asked: Asked) -> Array:
    """What each judged cell's log density gains from all other cells of its row, (n, D)."""
    judged = asked.rows.judged
    at = np.linspace(0, len(judged) - 1, min(len(judged), _MOST_FOR_GAINS)).astype(int)
    return given_others(asked, judged[at]) - alone(asked, judged[at])
