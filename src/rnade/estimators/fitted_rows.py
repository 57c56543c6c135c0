"""What a model remembers of the rows that it was fitted to, without keeping them."""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rnade.typing import Array


@dataclass(frozen=True)
class FittedRows:
    """Enough to know the fitted table again and to tell its held-out rows.

    Attributes
    ----------
    digest : str
        Of all the values, to know the table again.
    held_out : array of shape (n,)
        Places of the held-out rows in the table, ascending.
    low, high : array of shape (D,)
        Smallest and largest value of each column.
    at : array of shape (n,), optional
        Places of the digested rows in the table as it was given, if some of its rows, of weight
        0, need not be readable and are not among them.
    """

    digest: str
    held_out: NDArray[np.int64]
    low: Array
    high: Array
    at: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, X: Array, held_out: NDArray[np.int64]) -> "FittedRows":
        """Remember a table and which of its rows were held out."""
        return cls(digest(X), np.sort(held_out), np.nanmin(X, axis=0), np.nanmax(X, axis=0))

    def are(self, X: Array) -> bool:
        """Whether X is the very table that was fitted, row by row."""
        return X.shape[1:] == self.low.shape and digest(X) == self.digest


def digest(X: Array) -> str:
    """SHA-256 of a matrix's shape and float64 values."""
    found = hashlib.sha256(f"{X.shape}".encode())
    # Adding 0 makes -0 and 0, which are equal, the same bytes.
    found.update(np.ascontiguousarray(X + 0.0, dtype="<f8").data)
    return found.hexdigest()
