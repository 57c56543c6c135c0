"""A model and the table it is asked about, with what every part of the study needs of them."""

from dataclasses import dataclass
from typing import Any, Literal

import narwhals.stable.v1 as nw
import numpy as np
from numpy.typing import NDArray

from rnade.columns import Column, Resolution, as_fitted, as_values, column_names
from rnade.columns.kinds import plain
from rnade.columns.names import is_mixed
from rnade.columns.values import level_words
from rnade.estimators.scoring import Judged
from rnade.evaluation import Calibration
from rnade.report.kinds import is_discrete, is_new
from rnade.typing import Array

Index = NDArray[np.int64]
Role = Literal["fitted", "other", "unknown"]


@dataclass(frozen=True)
class Rows:
    """The rows of a table by what the model knows of them.

    Attributes
    ----------
    role : "fitted", "other" or "unknown"
        Whether this is the very table that was fitted; "unknown" if the model does not remember.
    judged : array of int
        Rows by which the model is judged: those that it held out, or all of another table.
    folds : list of (array of int, array of int)
        Rows to fit a reference model to, and rows to score with it. Together the latter are the
        judged rows, so that every reference is judged by rows it was not fitted to.
    seen : array of bool, shape (N,), or None
        Whether the model learned from each row; None where that is not known.
    """

    role: Role
    judged: Index
    folds: list[tuple[Index, Index]]
    seen: NDArray[np.bool_] | None

    @classmethod
    def of(cls, estimator: Any, X: Array, *, seed: int = 0) -> "Rows":
        """Look at what the model remembers of the table that it was fitted to.

        The seed is of the split in two halves where the table is another one.
        """
        n = len(X)
        fitted = getattr(estimator, "fitted_rows_", None)
        if fitted is not None and fitted.are(X):
            held_out = np.zeros(n, dtype=bool)
            held_out[fitted.held_out] = True
            judged, learned = np.flatnonzero(held_out), np.flatnonzero(~held_out)
            again = hasattr(estimator, "retrain_history_") and estimator.judges_ is None
            seen = np.ones(n, dtype=bool) if again else ~held_out
            return cls("fitted", judged, [(learned, judged)], seen)
        role: Role = "unknown" if fitted is None else "other"
        unseen = None if fitted is None else np.zeros(n, dtype=bool)
        shuffled = np.random.default_rng(seed).permutation(n).astype(np.int64)
        one, other = np.sort(shuffled[: n // 2]), np.sort(shuffled[n // 2 :])
        folds = [(one, other), (other, one)] if n > 1 else []
        return cls(role, np.arange(n), folds, unseen)


@dataclass(frozen=True)
class Asked:
    """A model and a table.

    Attributes
    ----------
    estimator : fitted estimator
    names : list of str
    X : array of shape (N, D)
        As given.
    values : array of shape (N, D)
        As the model takes it: thresholded to bits, where it thresholds.
    rows : Rows
    steps : array of shape (D,)
        To what each column is rounded, 0 where it is not; bits, levels and integers are rounded
        to 1.
    source : frame or array
        The rows as they were given.
    """

    estimator: Any
    names: list[str]
    X: Array
    values: Array
    rows: Rows
    steps: Array
    source: Any

    @classmethod
    def of(cls, estimator: Any, X: Any, random_state: int = 0) -> "Asked":
        """Look at a table as the model sees it; the seed is of `Rows`."""
        source, X = X, as_values(estimator, X)
        values = X
        if not len(X):
            raise ValueError(f"Expected X to have rows; got shape {X.shape}.")
        if is_mixed(estimator):
            columns = estimator.schema_.columns
            steps = np.array([_step(c, x) for c, x in zip(columns, X.T, strict=True)])
        elif is_binary(estimator):
            steps = np.ones(X.shape[1])
            if estimator.binarize is not None:
                values = estimator._encode(X)
        else:
            resolution = getattr(estimator, "resolution_", None)
            steps = (Resolution.measure(X) if resolution is None else resolution).steps
        rows = Rows.of(estimator, X, seed=random_state)
        if rows.role == "fitted":  # by models that have not learned the rows held out
            estimator = estimator.judging
        return cls(estimator, column_names(estimator), X, values, rows, steps, source)

    @property
    def mixed(self) -> bool:
        """Whether the model is of a table with levels, integers, dates, atoms or missing cells."""
        return is_mixed(self.estimator)

    @property
    def columns(self) -> tuple[Column, ...]:
        """What the columns hold; empty where all are complete real numbers or bits."""
        return tuple(self.estimator.schema_.columns) if self.mixed else ()

    def new_levels(self) -> dict[int, list[str]]:
        """For each column with levels that the model does not know, that of each such cell."""
        found = {}
        for d, column in enumerate(self.columns):
            rows = np.flatnonzero(is_new(column, self.X[:, d]))
            if len(rows):
                found[d] = [self.level(int(i), d) for i in rows]
        return found

    def level(self, row: int, d: int) -> str:
        """The level in a cell as the table has it, be it known or new."""
        schema, frame = self.estimator.schema_, nw.from_native(self.source, pass_through=True)
        name = schema.columns[d].name
        if isinstance(frame, nw.DataFrame) and name in frame.columns:
            return level_words(frame[name][row])
        place = [str(label) for label in schema.inputs].index(name)
        if isinstance(frame, nw.DataFrame):
            return level_words(frame[frame.columns[place]][row])
        return level_words(plain(self.source[row][place]))

    @property
    def order(self) -> list[int] | None:
        """Which column comes first, second and so on in the model; None if it has no one order."""
        module = getattr(self.estimator, "module_", None)
        order = getattr(module, "order", None)
        return None if order is None else list(map(int, order[0]))

    def given(self, rows: Any = slice(None)) -> Any:
        """Rows with the column names that the model knows; all of them by default."""
        if self.mixed:
            # Numbers would lose the levels that the model does not know.
            return _take(self.source, rows)
        return as_fitted(self.estimator, self.X[rows])

    def sampled(self, n: int, random_state: Any) -> Array:
        """Rows drawn from the model; NaN where a drawn indicator says that the cell is missing."""
        draw = getattr(self.estimator, "sample_values", self.estimator.sample)
        found = np.asarray(draw(n, random_state=random_state))
        for d, column in enumerate(self.columns):
            if column.indicates in self.names:
                found[found[:, d] > 0.5, self.names.index(column.indicates)] = np.nan
        return found

    def scored(self) -> tuple[Array | None, Array]:
        """Each column's terms, if the model has them, and each row's log density: all, once."""
        if not hasattr(self.estimator, "log_conditionals"):
            return None, np.asarray(self.estimator.score_samples(self.given()))
        terms = np.asarray(self.estimator.log_conditionals(self.given()))
        return terms, terms.sum(axis=1)

    def judged(self) -> Judged:
        """Log densities and p-values of all rows, of the fitted table out of fold.

        A model without p-values of its own compares all rows with those that judge it.
        """
        if hasattr(self.estimator, "judge"):
            # Scores, p-values and thresholds alike by models that left rows out.
            found: Judged = self.estimator.judging.judge(self.given())
            return found
        scores = np.asarray(self.estimator.score_samples(self.given()))
        p_values = Calibration.from_scores(scores[self.rows.judged]).pvalue(scores)
        none = np.zeros(len(scores), dtype=bool)
        return Judged(scores, p_values, left_out=none, learned=none)


def is_binary(estimator: Any) -> bool:
    """Whether a model is of bits: such models have a threshold, which may be None."""
    return hasattr(estimator, "binarize")


def _step(column: Column, x: Array) -> float:
    """To what a column is rounded, 0 if it is not."""
    if is_discrete(column):
        return 1.0
    if column.step is not None:
        return float(column.step)
    spread = x[~np.isnan(x) & ~np.isin(x, column.atoms)]
    return float(Resolution.measure(spread[:, None]).steps[0])


def _take(X: Any, rows: Any) -> Any:
    """Some rows of a frame, an array or a list of rows."""
    if isinstance(rows, slice):
        rows = range(*rows.indices(len(X)))
    rows = [int(i) for i in rows]
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return nw.to_native(frame[rows])
    return X[rows] if hasattr(X, "dtype") else [X[i] for i in rows]
