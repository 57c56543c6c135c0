"""Outliers: the rows that the model finds odd, why, and what it expected in their place."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rnade.estimators.scoring import Judged
from rnade.evaluation import Calibration
from rnade.report.asked import Asked
from rnade.report.cells import (
    LEAST_SURPRISE,
    LEAST_WITHIN,
    MOST_REASONS,
    CellReason,
    explain_cells,
)
from rnade.typing import Array

LEVELS = (0.05, 0.01, 0.001)
# What the model expects of a cell is told as the interval that it gives this probability.
COVERAGE = 0.9
_MOST_LOOKED_AT = 6
_BINS = 60


@dataclass(frozen=True)
class Reason:
    """A cell that makes its row odd.

    Attributes
    ----------
    column : str
    value : float
    low, high : float
        The interval that the model gave 90 %, knowing all other columns or, if it answers no
        questions, those before this one.
    surprise : float
        Nats by which the value is less likely than is usual for this column.
    """

    column: str
    value: float
    low: float
    high: float
    surprise: float

    @property
    def within(self) -> bool:
        """Whether the value lies in the interval all the same, where few values do."""
        return self.low <= self.value <= self.high


@dataclass(frozen=True)
class OddRow:
    """One of the least likely rows.

    Attributes
    ----------
    row : int
        Counted from 1 in the file, without the header.
    log_density : float
    p_value : float
    seen : bool or None
        Whether the model learned from it; None where that is not known.
    left_out : bool
        Whether it is of the fitted table, and judged by models that left it out of training.
    reasons : list of Reason or CellReason
        The most surprising first; empty where the model has no conditionals. Of a table with
        levels, integers, dates or missing cells `CellReason`.
    """

    row: int
    log_density: float
    p_value: float
    seen: bool | None
    left_out: bool
    reasons: Sequence[Reason | CellReason]


@dataclass(frozen=True)
class Threshold:
    """The log density below which rows are odd at a level.

    Attributes
    ----------
    level : float
    log_density : float or None
        None where there are too few rows to compare with. About where p-values reach the level,
        which of an average of models depend on more than the log density.
    share : float
        Of the rows of this table with a p-value of at most the level.
    n_rows : int
        How many these are.
    """

    level: float
    log_density: float | None
    share: float
    n_rows: int


@dataclass(frozen=True)
class ScoreHistogram:
    """Log densities of all rows; `n_below` of them lie left of the first edge, not drawn."""

    edges: Array
    counts: Array
    n_below: int


@dataclass(frozen=True)
class Oddness:
    """What is odd.

    Attributes
    ----------
    rows : list of OddRow
        The least likely first.
    thresholds : list of Threshold
    histogram : ScoreHistogram
    n_calibration : int
        Rows that p-values count.
    smallest_p : float
        The smallest p-value that these allow.
    own_calibration : bool
        Whether those are rows that models left out when they were fitted; if not, there are none
        and the judged rows of this table stand in.
    n_left_out : int
        Rows of this table that are judged by models that left them out.
    n_learned : int
        Rows of this table that no model left out.
    given_others : bool
        Whether cells are judged given all other cells of their row, not only those before.
    """

    rows: list[OddRow]
    thresholds: list[Threshold]
    histogram: ScoreHistogram
    n_calibration: int
    smallest_p: float
    own_calibration: bool
    n_left_out: int
    n_learned: int
    given_others: bool

    @property
    def level(self) -> Threshold | None:
        """The threshold to speak of: 1 %, or 5 % where p-values cannot be as small; or none."""
        possible = [t for t in self.thresholds if t.log_density is not None and t.level >= 0.01]
        return min(possible, key=lambda t: t.level, default=None)


def find_odd(
    asked: Asked,
    judged: Judged,
    places: NDArray[np.int64],
    *,
    most: int = 10,
) -> Oddness:
    """Rank the rows and explain the oddest; `places` are the rows' numbers in the file, from 1."""
    own = getattr(asked.estimator, "calibration_", None)
    scores, p_values = judged.scores, judged.p_values
    calibration = Calibration.from_scores(scores[asked.rows.judged]) if own is None else own
    # A row with nothing observed has a log density of 0, and nothing that could be odd.
    empty = np.asarray(np.isnan(asked.values).all(1))
    oddest = np.lexsort((np.where(empty, np.inf, scores), p_values))[:most]
    oddest = oddest[~empty[oddest]]
    reasons: Sequence[Sequence[Reason | CellReason]] = [[] for _ in oddest]
    if asked.mixed:
        reasons = explain_cells(asked, oddest)
    elif hasattr(asked.estimator, "surprise") and len(oddest):
        reasons = _reasons(asked, oddest)
    seen = [None] * len(scores) if asked.rows.seen is None else asked.rows.seen.tolist()
    rows = [
        OddRow(
            int(places[i]),
            float(scores[i]),
            float(p_values[i]),
            seen[i],
            bool(judged.left_out[i]),
            why,
        )
        for i, why in zip(oddest, reasons, strict=True)
    ]
    odd = {level: p_values <= level for level in LEVELS}
    thresholds = [
        Threshold(level, threshold(calibration, level), float(at.mean()), int(at.sum()))
        for level, at in odd.items()
    ]
    return Oddness(
        rows,
        thresholds,
        score_histogram(scores),
        n_calibration=len(calibration.scores),
        smallest_p=calibration.smallest,
        own_calibration=own is not None,
        n_left_out=int(judged.left_out.sum()),
        n_learned=int(judged.learned.sum()),
        given_others=getattr(asked.estimator, "_explaining", None) is not None,
    )


def threshold(calibration: Calibration, level: float) -> float | None:
    """The log density below which a row's p-value is at most `level`; None if no row's can be."""
    if calibration.smallest > level:
        return None
    calibration = calibration.pooled()
    usual = calibration.pvalue(calibration.scores) > level
    return float(calibration.scores[np.argmax(usual)]) if usual.any() else float("inf")


def score_histogram(scores: Array) -> ScoreHistogram:
    """Bins from the 0.1 % quantile, or a little below the bulk if that is further, to the top."""
    low = float(np.quantile(scores, 0.001))
    middle, upper = np.quantile(scores, [0.5, 0.99])
    low = max(low, float(middle - 12 * (upper - middle)))
    high = float(scores.max())
    if not high > low:
        low, high = low - 0.5, high + 0.5
    counts, edges = np.histogram(scores, bins=_BINS, range=(low, high))
    return ScoreHistogram(edges, counts.astype(np.float64), int((scores < low).sum()))


def _reasons(asked: Asked, rows: NDArray[np.int64]) -> list[list[Reason]]:
    """The cells of each row that are the least likely, compared with what is usual."""
    X, given = asked.X[rows], asked.given(rows)
    surprise = asked.estimator.surprise(given)
    # Few cells of each row, since finding the ends of an interval is slow.
    columns = np.argsort(-surprise, axis=1, kind="stable")[:, :_MOST_LOOKED_AT]
    where = np.zeros(X.shape, dtype=bool)
    np.put_along_axis(where, columns, True, axis=1)
    low, high = asked.estimator.expected(given, COVERAGE, where=where)
    found = []
    for i, row in enumerate(columns):
        cells = [
            Reason(asked.names[d], *(float(cell[i, d]) for cell in (X, low, high, surprise)))
            for d in row
        ]
        told = [
            cell
            for cell in cells
            if cell.surprise >= (LEAST_WITHIN if cell.within else LEAST_SURPRISE)
        ]
        # What lies outside is plainer to see, and comes first.
        found.append(sorted(told, key=lambda cell: cell.within)[:MOST_REASONS])
    return found
