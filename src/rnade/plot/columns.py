"""Pictures of single columns: calibration, and real against sampled values."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from rnade.columns import column_names
from rnade.plot.base import ODD, QUIET, REAL, AbstractDisplay, draw_each
from rnade.plot.kinds import draw_levels, draw_numbers
from rnade.report.asked import Asked
from rnade.report.calibration import LEAST_JUDGED, N_BINS, ColumnCalibration, calibrations
from rnade.report.marginals import LevelMarginal, NumberMarginal
from rnade.report.marginals import marginals as marginals_of
from rnade.report.resemblance import Marginal


class CalibrationDisplay(AbstractDisplay[ColumnCalibration]):
    """Histogram of one column's probability integral transform, over the band of a right model."""

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, column: str | int, *, random_state: Any = 0, ax: Any = None
    ) -> Self:
        """Draw the calibration of one column; parameters are those of `rnade.plot.calibration`."""
        at = positions(estimator, [column])
        (found,) = _calibrations(estimator, X, at, random_state)
        return cls(found).plot(ax)

    def _draw(self, ax: Any) -> None:
        found = self.found
        ax.axhspan(found.low, found.high, color=QUIET, alpha=0.2, lw=0)
        ax.stairs(found.counts, np.linspace(0, 1, N_BINS + 1), color=REAL if found.inside else ODD)
        ax.set(
            xlim=(0, 1),
            ylim=(0, None),
            xlabel="probability integral transform",
            ylabel="rows",
            title=found.column,
        )


class MarginalDisplay(AbstractDisplay[Marginal | LevelMarginal]):
    """One column's values, real and sampled: levels as bars, atoms as lines with a mark."""

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        column: str | int,
        *,
        n_samples: int = 20_000,
        random_state: Any = 0,
        ax: Any = None,
    ) -> Self:
        """Draw one column; parameters are those of `rnade.plot.marginals`."""
        (found,) = _compared(estimator, X, [column], n_samples, random_state)
        return cls(found).plot(ax)

    def _draw(self, ax: Any) -> None:
        found = self.found
        if isinstance(found, LevelMarginal):
            draw_levels(ax, found)
        else:
            draw_numbers(ax, found)
        of = "observed cells" if isinstance(found, LevelMarginal | NumberMarginal) else "rows"
        missing = getattr(found, "missing", 0.0)
        title = f"{found.column} ({100 * missing:.3g} % missing)" if missing else found.column
        ax.set(xlabel=found.column, ylabel=f"share of {of}", title=title)
        ax.legend()


def calibration(
    estimator: Any,
    X: Any,
    columns: Sequence[str | int] | None = None,
    *,
    random_state: Any = 0,
    ax: Any = None,
) -> Any:
    """Draw the calibration of columns: flat, and inside the band, where the model is right.

    Parameters
    ----------
    estimator : fitted estimator with `pit`
    X : array-like or data frame of shape (N, D)
        Rows that the model did not learn from.
    columns : sequence of str or int, optional
        Names or positions; all by default.
    random_state : int, RandomState instance or None
        For rounded and binary columns.
    ax : matplotlib Axes, or an array of them
        One for each column.

    Returns
    -------
    matplotlib Axes, or an array of them
    """
    at = positions(estimator, columns)
    found = _calibrations(estimator, X, at, random_state)
    return draw_each([CalibrationDisplay(column) for column in found], ax)


def _calibrations(
    estimator: Any, X: Any, at: list[int], random_state: Any
) -> list[ColumnCalibration]:
    """The calibration of columns, all of which must have cells enough to judge by."""
    found = calibrations(Asked.of(estimator, X), slice(None), at, random_state)
    judged = {column.column for column in found}
    for name in (column_names(estimator)[d] for d in at):
        if name not in judged:
            raise ValueError(
                f"Expected at least {LEAST_JUDGED} observed cells in column {name!r} to judge its"
                " calibration by. Pass more rows, or name other columns."
            )
    return found


def marginals(
    estimator: Any,
    X: Any,
    columns: Sequence[str | int] | None = None,
    *,
    n_samples: int = 20_000,
    random_state: Any = 0,
    ax: Any = None,
) -> Any:
    """Draw columns of real rows and of rows drawn from the model.

    Parameters
    ----------
    estimator : fitted estimator
    X : array-like or data frame of shape (N, D)
    columns : sequence of str or int, optional
        Names or positions; all by default.
    n_samples : int
        Rows to draw from the model.
    random_state : int, RandomState instance or None
    ax : matplotlib Axes, or an array of them
        One for each column.

    Returns
    -------
    matplotlib Axes, or an array of them
    """
    found = _compared(estimator, X, columns, n_samples, random_state)
    return draw_each([MarginalDisplay(column) for column in found], ax)


def _compared(
    estimator: Any, X: Any, columns: Sequence[str | int] | None, n_samples: int, random_state: Any
) -> Sequence[Marginal | LevelMarginal]:
    """Columns of real rows and of rows drawn from the model."""
    asked, at = Asked.of(estimator, X), positions(estimator, columns)
    return marginals_of(asked, asked.sampled(n_samples, random_state), at)


def positions(estimator: Any, columns: Sequence[str | int] | None) -> list[int]:
    """Where columns stand, by their names or positions; all columns for None."""
    names = column_names(estimator)
    found = []
    for column in range(len(names)) if columns is None else columns:
        if isinstance(column, str):
            if column not in names:
                raise ValueError(
                    f"The model has no column {column!r}; it has {', '.join(names[:10])}."
                )
            column = names.index(column)
        elif not -len(names) <= column < len(names):
            raise ValueError(f"Expected a column from 0 to {len(names) - 1}; got {column}.")
        found.append(column % len(names))
    return found
