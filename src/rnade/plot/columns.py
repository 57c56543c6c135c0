"""Pictures of single columns: calibration, and real against sampled values."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from rnade.columns import column_names
from rnade.plot.base import MODEL, ODD, QUIET, REAL, AbstractDisplay, draw_each
from rnade.report.asked import Asked
from rnade.report.calibration import N_BINS, ColumnCalibration, calibrations
from rnade.report.resemblance import Marginal
from rnade.report.resemblance import marginals as marginals_of


class CalibrationDisplay(AbstractDisplay[ColumnCalibration]):
    """Histogram of one column's probability integral transform, over the band of a right model."""

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, column: str | int, *, random_state: Any = 0, ax: Any = None
    ) -> Self:
        """Draw the calibration of one column; parameters are those of `rnade.plot.calibration`."""
        at = positions(estimator, [column])
        (found,) = calibrations(Asked.of(estimator, X), slice(None), at, random_state)
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


class MarginalDisplay(AbstractDisplay[Marginal]):
    """One column's values, real and sampled."""

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
        sampled = estimator.sample(n_samples, random_state=random_state)
        (found,) = marginals_of(Asked.of(estimator, X), sampled, positions(estimator, [column]))
        return cls(found).plot(ax)

    def _draw(self, ax: Any) -> None:
        found = self.found
        ax.stairs(found.real, found.edges, fill=True, color=REAL, alpha=0.3, label="real")
        ax.stairs(found.sampled, found.edges, color=MODEL, label="sampled")
        ax.set(xlabel=found.column, ylabel="share of rows", title=found.column)
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
    found = calibrations(Asked.of(estimator, X), slice(None), at, random_state)
    return draw_each([CalibrationDisplay(column) for column in found], ax)


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
    sampled = estimator.sample(n_samples, random_state=random_state)
    found = marginals_of(Asked.of(estimator, X), sampled, positions(estimator, columns))
    return draw_each([MarginalDisplay(column) for column in found], ax)


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
