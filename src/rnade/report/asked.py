"""A model and the table it is asked about, with what every part of the study needs of them."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rnade.columns import Resolution, as_fitted, as_values, column_names
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

        Parameters
        ----------
        estimator : fitted estimator
        X : array of shape (N, D)
        seed : int
            Of the split in two halves where the table is another one.
        """
        n = len(X)
        fitted = getattr(estimator, "fitted_rows_", None)
        if fitted is not None and fitted.are(X):
            held_out = np.zeros(n, dtype=bool)
            held_out[fitted.held_out] = True
            judged, learned = np.flatnonzero(held_out), np.flatnonzero(~held_out)
            again = hasattr(estimator, "retrain_history_")
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
        To what each column is rounded, 0 where it is not; bits are rounded to 1.
    """

    estimator: Any
    names: list[str]
    X: Array
    values: Array
    rows: Rows
    steps: Array

    @classmethod
    def of(cls, estimator: Any, X: Any, random_state: int = 0) -> "Asked":
        """Look at a table as the model sees it; the seed is of `Rows`."""
        X = as_values(estimator, X)
        values = X
        if is_binary(estimator):
            steps = np.ones(X.shape[1])
            if estimator.binarize is not None:
                values = np.where(X > estimator.binarize, 1.0, 0.0)
        else:
            resolution = getattr(estimator, "resolution_", None)
            steps = (Resolution.measure(X) if resolution is None else resolution).steps
        rows = Rows.of(estimator, X, seed=random_state)
        return cls(estimator, column_names(estimator), X, values, rows, steps)

    @property
    def order(self) -> list[int] | None:
        """Which column comes first, second and so on in the model; None if it has no one order."""
        module = getattr(self.estimator, "module_", None)
        order = getattr(module, "order", None)
        return None if order is None else list(map(int, order[0]))

    def given(self, rows: Any = slice(None)) -> Any:
        """Rows with the column names that the model knows; all of them by default."""
        return as_fitted(self.estimator, self.X[rows])

    def scored(self) -> tuple[Array | None, Array]:
        """Each column's terms, if the model has them, and each row's log density: all, once."""
        if not hasattr(self.estimator, "log_conditionals"):
            return None, np.asarray(self.estimator.score_samples(self.given()))
        terms = np.asarray(self.estimator.log_conditionals(self.given()))
        return terms, terms.sum(axis=1)


def is_binary(estimator: Any) -> bool:
    """Whether a model is of bits: such models have a threshold, which may be None."""
    return hasattr(estimator, "binarize")
