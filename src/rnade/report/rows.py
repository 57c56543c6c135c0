"""Which rows of a table the model learned from, and which it is judged by."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

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
