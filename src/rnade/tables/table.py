"""A table of finite numbers, as it is read from a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int

if TYPE_CHECKING:
    from rnade.tables.opening import TableFile

NOT_CHOSEN = "not chosen"


@dataclass(frozen=True, eq=False)
class Table:
    """Numbers from a file, with what was left out of it.

    Attributes
    ----------
    source : str
        The file's name, for messages.
    names : tuple of str
        Names of the columns kept; ``x1``, ``x2``, ... by position where the file gives none.
    values : ndarray of shape (N, D)
        All finite.
    has_header : bool
        Whether the file names its columns.
    left_out : mapping of str to str
        Columns not kept, each with the reason in plain words.
    notes : sequence of str
        What the user may want to check about the columns kept.
    dropped_rows : int
        Rows left out for a missing cell.
    weights : ndarray of shape (N,) or None
        Weights of the rows, if a column holds them.
    rows : ndarray of shape (N,)
        Which row of the file each row was, counted from 1 without the header.
    """

    source: str
    names: tuple[str, ...]
    values: Float[np.ndarray, "N D"]
    has_header: bool
    left_out: Mapping[str, str]
    notes: Sequence[str]
    dropped_rows: int
    weights: Float[np.ndarray, " N"] | None
    rows: Int[np.ndarray, " N"]
    _file: "TableFile"

    @property
    def n_rows(self) -> int:
        """N."""
        return len(self.values)

    def to_arrow(self) -> pa.Table:
        """Give the columns under their names, as a data frame that the estimators take."""
        return pa.table(dict(zip(self.names, self.values.T, strict=True)))
