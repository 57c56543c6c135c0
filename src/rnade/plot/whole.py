"""Pictures of the whole model: how it learned, what it finds odd, what depends on what."""

from typing import Any, Self

import numpy as np

from rnade.columns.names import is_mixed
from rnade.plot.base import MODEL, ODD, QUIET, REAL, AbstractDisplay, as_function
from rnade.report.asked import Asked
from rnade.report.dependence import Gain
from rnade.report.fitted import LearningCurve
from rnade.report.fitted import learning_curve as curve_of
from rnade.report.oddness import LEVELS, ScoreHistogram, score_histogram, threshold
from rnade.report.study import gains_of


class LearningCurveDisplay(AbstractDisplay[LearningCurve]):
    """Log-likelihood after each epoch, of the rows trained on and of those that stop training."""

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw the log-likelihood after each epoch; of an average, that of one of its models.

        Parameters
        ----------
        estimator : fitted estimator with `history_`
        ax : matplotlib Axes, optional
        """
        found = curve_of(estimator)
        if found is None:
            raise ValueError(
                f"{type(estimator).__name__} has no history_ of its training to draw."
            )
        return cls(found).plot(ax)

    def _draw(self, ax: Any) -> None:
        found = self.found
        ax.plot(found.epochs, found.train, color=QUIET, label="rows it learned from")
        ax.plot(found.epochs, found.held_out, color=MODEL, label="rows that stop training")
        ax.axvline(found.best_epoch, color=QUIET, lw=1, ls="--")
        ax.set(xlabel="epoch", ylabel="log-likelihood, nats a row")
        ax.legend()


class ScoresDisplay(AbstractDisplay[ScoreHistogram]):
    """Histogram of log densities, with the thresholds below which rows are outliers.

    Parameters
    ----------
    found : rnade.report.oddness.ScoreHistogram
    thresholds : dict of float to float
        Log density by level.
    """

    def __init__(self, found: ScoreHistogram, thresholds: dict[float, float]) -> None:
        super().__init__(found)
        self.thresholds = thresholds

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, *, ax: Any = None) -> Self:
        """Draw the log densities of rows, with the thresholds for 5 %, 1 % and 0.1 %.

        Parameters
        ----------
        estimator : fitted estimator
            With held-out scores (`calibration_`) for thresholds.
        X : array-like or data frame of shape (N, D)
        ax : matplotlib Axes, optional
        """
        asked = Asked.of(estimator, X)
        # The thresholds are of models that left rows out, and so are these scores.
        scores = getattr(estimator, "judging", estimator).score_samples(asked.given())
        calibration = getattr(estimator, "calibration_", None)
        thresholds = {}
        if calibration is not None:
            known = {level: threshold(calibration, level) for level in LEVELS}
            thresholds = {level: bound for level, bound in known.items() if bound is not None}
        return cls(score_histogram(scores), thresholds).plot(ax)

    def _draw(self, ax: Any) -> None:
        ax.stairs(self.found.counts, self.found.edges, fill=True, color=REAL, alpha=0.3)
        for level, bound in self.thresholds.items():
            ax.axvline(bound, color=ODD, lw=1)
            ax.annotate(
                f"{100 * level:g} %",
                (bound, 1),
                xycoords=("data", "axes fraction"),
                xytext=(2, -2),
                textcoords="offset points",
                va="top",
                color=ODD,
            )
        ax.set(xlabel="log density, nats", ylabel="rows")


class GainsDisplay(AbstractDisplay[list[Gain]]):
    """What each column's log-likelihood gains from the columns before it.

    Parameters
    ----------
    found : list of rnade.report.dependence.Gain
    source : str
        What the columns gain from; of a table with levels, integers, dates or missing cells all
        other columns.
    """

    def __init__(self, found: list[Gain], source: str = "columns before it") -> None:
        super().__init__(found)
        self.source = source

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, *, random_state: int = 0, ax: Any = None
    ) -> Self:
        """Draw what each column gains from the columns before it.

        Parameters
        ----------
        estimator : fitted estimator with `log_conditionals`
        X : array-like or data frame of shape (N, D)
            If this is the table that was fitted, its held-out rows are scored.
        random_state : int
            Of the split for columns by themselves where it is another table.
        ax : matplotlib Axes, optional
        """
        source = "other columns" if is_mixed(estimator) else "columns before it"
        return cls(gains_of(estimator, X, random_state=random_state), source).plot(ax)

    def _draw(self, ax: Any) -> None:
        names = [gain.column for gain in self.found]
        places = np.arange(len(names))
        values = [gain.gain for gain in self.found]
        errors = [2 * gain.standard_error for gain in self.found]
        ax.barh(places, values, xerr=errors, color=REAL, ecolor=QUIET)
        ax.set_yticks(places, names)
        ax.invert_yaxis()
        ax.set(xlabel=f"gain from {self.source}, nats")


learning_curve = as_function(LearningCurveDisplay.from_estimator, "learning_curve", gives="ax_")
scores = as_function(ScoresDisplay.from_estimator, "scores", gives="ax_")
gains = as_function(GainsDisplay.from_estimator, "gains", gives="ax_")
