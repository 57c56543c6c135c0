"""Pictures of single columns: calibration, and real against sampled values."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from rnade.columns import Resolution, as_fitted, as_values, column_names
from rnade.plot.base import MODEL, ODD, QUIET, REAL, AbstractDisplay, draw_each
from rnade.report.calibration import N_BINS, ColumnCalibration, column_calibration
from rnade.report.resemblance import Marginal, marginal


class CalibrationDisplay(AbstractDisplay):
    """Histogram of one column's probability integral transform, over the band of a right model.

    Parameters
    ----------
    found : rnade.report.calibration.ColumnCalibration
    """

    def __init__(self, found: ColumnCalibration) -> None:
        self.found = found

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, column: str | int, *, random_state: Any = 0, ax: Any = None
    ) -> Self:
        """Transform one column of the rows and draw it.

        Parameters
        ----------
        estimator : fitted estimator with `pit`
        X : array-like or data frame of shape (N, D)
            Rows that the model did not learn from.
        column : str or int
            Name or place.
        random_state : int, RandomState instance or None
            For rounded and binary columns.
        ax : matplotlib Axes, optional
        """
        X = as_values(estimator, X)
        d = place_of(estimator, column)
        u = estimator.pit(as_fitted(estimator, X), random_state=random_state)[:, d]
        return cls(column_calibration(column_names(estimator)[d], u)).plot(ax)

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


class MarginalDisplay(AbstractDisplay):
    """One column's values, real and sampled.

    Parameters
    ----------
    found : rnade.report.resemblance.Marginal
    """

    def __init__(self, found: Marginal) -> None:
        self.found = found

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
        """Draw rows from the model and compare one column.

        Parameters
        ----------
        estimator : fitted estimator
        X : array-like or data frame of shape (N, D)
        column : str or int
            Name or place.
        n_samples : int
        random_state : int, RandomState instance or None
        ax : matplotlib Axes, optional
        """
        (display,) = _marginals(estimator, X, [column], n_samples, random_state)
        return cls(display.found).plot(ax)

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
        Names or places; all by default.
    random_state : int, RandomState instance or None
        For rounded and binary columns.
    ax : matplotlib Axes, or an array of them
        One for each column.

    Returns
    -------
    matplotlib Axes, or an array of them
    """
    X = as_values(estimator, X)
    names = column_names(estimator)
    U = estimator.pit(as_fitted(estimator, X), random_state=random_state)
    at = [place_of(estimator, column) for column in (names if columns is None else columns)]
    return draw_each([CalibrationDisplay(column_calibration(names[d], U[:, d])) for d in at], ax)


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
        Names or places; all by default.
    n_samples : int
    random_state : int, RandomState instance or None
    ax : matplotlib Axes, or an array of them
        One for each column.

    Returns
    -------
    matplotlib Axes, or an array of them
    """
    chosen = column_names(estimator) if columns is None else columns
    return draw_each(_marginals(estimator, X, chosen, n_samples, random_state), ax)


def place_of(estimator: Any, column: str | int) -> int:
    """Where a column stands, by its name or its place."""
    names = column_names(estimator)
    if isinstance(column, str):
        if column not in names:
            raise ValueError(
                f"The model has no column {column!r}; it has {', '.join(names[:10])}."
            )
        return names.index(column)
    if not -len(names) <= column < len(names):
        raise ValueError(f"Expected a column from 0 to {len(names) - 1}; got {column}.")
    return int(column) % len(names)


def _marginals(
    estimator: Any,
    X: Any,
    columns: Sequence[str | int],
    n_samples: int,
    random_state: Any,
) -> list[MarginalDisplay]:
    X = as_values(estimator, X)
    names = column_names(estimator)
    sampled = estimator.sample(n_samples, random_state=random_state)
    resolution = getattr(estimator, "resolution_", None)
    steps = (Resolution.measure(X) if resolution is None else resolution).steps
    at = [place_of(estimator, column) for column in columns]
    return [
        MarginalDisplay(marginal(names[d], X[:, d], sampled[:, d], float(steps[d]))) for d in at
    ]
