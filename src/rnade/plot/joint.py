"""Pictures of columns together: pairs and correlations, real against sampled."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from rnade.plot.base import MODEL, QUIET, REAL, AbstractDisplay, as_function, pyplot
from rnade.plot.columns import positions
from rnade.report.asked import Asked
from rnade.report.resemblance import Correlation, Pairs, correlations, information, most_dependent
from rnade.report.resemblance import pairs as points_of_pairs
from rnade.report.table_pictures import points_of


class PairsDisplay:
    """A matrix of pairs of columns: real rows below the diagonal, sampled ones above it.

    Parameters
    ----------
    found : rnade.report.resemblance.Pairs

    Attributes
    ----------
    axes_ : array of matplotlib Axes, shape (k, k)
    figure_ : matplotlib Figure
    """

    axes_: Any
    figure_: Any

    def __init__(self, found: Pairs) -> None:
        self.found = found

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        columns: Sequence[str | int] | None = None,
        *,
        n_points: int = 700,
        random_state: Any = 0,
        axes: Any = None,
    ) -> Self:
        """Draw a matrix of pairs, real rows below the diagonal and sampled ones above it.

        Parameters
        ----------
        estimator : fitted estimator
        X : array-like or data frame of shape (N, D)
        columns : sequence of str or int, optional
            Names or positions; by default the five that depend on each other the most.
        n_points : int
            Rows of each kind to draw.
        random_state : int, RandomState instance or None
        axes : array of matplotlib Axes, shape (k, k), optional
        """
        asked, at = Asked.of(estimator, X), positions(estimator, columns)
        if columns is None:
            every = np.arange(len(asked.names))
            at = most_dependent(information(asked, asked.X, every), every)
        sampled = asked.sampled(n_points, random_state)
        found = points_of_pairs(asked.names, at, asked.X, sampled, n_points, asked.columns)
        return cls(found).plot(axes)

    def plot(self, axes: Any = None) -> Self:
        """Draw on a square of axes, or on those of a new figure."""
        found, k = self.found, len(self.found.columns)
        if axes is None:
            _, axes = pyplot().subplots(
                k, k, figsize=(1.7 * k, 1.7 * k), squeeze=False, layout="constrained"
            )
        axes = np.asarray(axes, dtype=object)
        if axes.shape != (k, k):
            raise ValueError(f"Expected axes of shape ({k}, {k}); got {axes.shape}.")
        for i in range(k):
            for j in range(k):
                ax = axes[i, j]
                ax.set(xticks=[], yticks=[])
                if i == j:
                    ax.text(0.5, 0.5, found.columns[i], ha="center", va="center")
                    continue
                points, colour = (found.real, REAL) if i > j else (found.sampled, MODEL)
                ax.scatter(*points_of(found, points, j, i), s=4, alpha=0.4, color=colour, lw=0)
                ax.set(xlim=(found.low[j], found.high[j]), ylim=(found.low[i], found.high[i]))
        self.axes_, self.figure_ = axes, axes.flat[0].figure
        return self


class CorrelationDisplay(AbstractDisplay[Correlation]):
    """Rank correlation of every pair of columns, real across and sampled up."""

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        n_samples: int = 20_000,
        random_state: Any = 0,
        ax: Any = None,
    ) -> Self:
        """Draw the correlation of every pair of columns, real against sampled.

        Columns of more than two levels without an order have none, and are left out.

        Parameters
        ----------
        estimator : fitted estimator
        X : array-like or data frame of shape (N, D)
        n_samples : int
            Rows to draw from the model.
        random_state : int, RandomState instance or None
        ax : matplotlib Axes, optional
        """
        asked = Asked.of(estimator, X)
        sampled = asked.sampled(n_samples, random_state)
        found, others = correlations(asked, np.arange(len(asked.names)), asked.X, sampled)
        if others and len(found.columns) < 2:
            raise ValueError(
                "Expected at least two columns of numbers, dates, ordered levels or two levels:"
                " others have no rank correlation."
            )
        return cls(found).plot(ax)

    def _draw(self, ax: Any) -> None:
        i, j = np.triu_indices(len(self.found.columns), 1)
        ax.plot([-1, 1], [-1, 1], color=QUIET, lw=1, ls="--")
        ax.scatter(self.found.real[i, j], self.found.sampled[i, j], s=12, alpha=0.5, color=MODEL)
        ax.set(
            xlim=(-1, 1),
            ylim=(-1, 1),
            aspect="equal",
            xlabel="rank correlation, real",
            ylabel="rank correlation, sampled",
        )


pairs = as_function(PairsDisplay.from_estimator, "pairs", gives="axes_")
correlation = as_function(CorrelationDisplay.from_estimator, "correlation", gives="ax_")
