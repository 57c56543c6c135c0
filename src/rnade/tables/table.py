"""A table of finite numbers, and the checks that make one of a file's columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float, Int

from rnade.exceptions import TableError

NOT_CHOSEN = "not chosen"

# Far beyond any measurement, and far enough below float32's 3.4e38 for a square to be scaled.
LARGEST = 1e30


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
    dropped_rows : int
        Rows left out for a missing cell.
    rows : ndarray of shape (N,)
        Which row of the file each row was, counted from 1 without the header.
    """

    source: str
    names: tuple[str, ...]
    values: Float[np.ndarray, "N D"]
    has_header: bool
    left_out: Mapping[str, str]
    dropped_rows: int
    rows: Int[np.ndarray, " N"]

    def to_arrow(self) -> pa.Table:
        """Give the columns under their names, as a data frame that the estimators take."""
        return pa.table(dict(zip(self.names, self.values.T, strict=True)))


@dataclass(frozen=True)
class Columns:
    """Columns of a file as float64 with nulls, and what is needed to speak about them."""

    source: str
    names: Sequence[str]  # of all the columns in the file, in its order
    numbers: Mapping[str, pa.ChunkedArray]
    left_out: Mapping[str, str]
    has_header: bool
    place: Callable[[int], str]  # of a record counted from 0: "line 12" or "row 11"


def _as_float64(column: pa.ChunkedArray) -> Float[np.ndarray, " N"]:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    floats = column.cast(pa.float64(), safe=False)
    result: Float[np.ndarray, " N"] = floats.to_numpy()  # null becomes NaN
    return result


def make_table(
    found: Columns, columns: Sequence[str] | None, missing: str, constant: str
) -> Table:
    """Check the cells, leave out rows and constant columns as asked, and make the table."""
    source = found.source
    left_out = dict(found.left_out)

    def leave_out(names: Mapping[str, str]) -> None:
        if names and columns is not None:
            name, reason = next(iter(names.items()))
            raise TableError(f"{source}: column {name!r} cannot be used: {reason}.")
        left_out.update(names)

    leave_out({name: why for name, why in found.left_out.items() if why != NOT_CHOSEN})
    if not found.numbers:
        raise TableError(_no_numeric_column(source, left_out))

    names = list(found.numbers)
    n_rows = len(next(iter(found.numbers.values())))
    # Column by column, so that no second copy of the whole table is made.
    values = np.empty((n_rows, len(names)))
    for d, name in enumerate(names):
        values[:, d] = _as_float64(found.numbers[name])
    empty = np.flatnonzero(np.isnan(values).all(axis=0))
    # A column asked for by name is not left out: its cells are missing.
    if empty.size and columns is None:
        leave_out({names[d]: "empty" for d in empty})
        values = np.delete(values, empty, axis=1)
        names = [name for name in names if name not in left_out]
    if not names:
        raise TableError(_no_numeric_column(source, left_out))

    finite = np.isfinite(values)
    rows = np.arange(1, n_rows + 1)
    if not finite.all():
        kept = finite.all(axis=1)
        if missing == "error":
            raise _missing_cells(source, values, finite, names, found.place)
        if not kept.any():
            worst = names[int(np.argmin(finite.sum(axis=0)))]
            raise TableError(
                f"{source}: no row is left, each has a missing cell (most in column {worst!r})."
            )
        values, rows = values[kept], rows[kept]
    far = np.argwhere(np.abs(values) > LARGEST)
    if far.size:
        row, d = far[0]
        raise TableError(
            f"{source}: {found.place(int(rows[row]) - 1)}, column {names[d]!r}: "
            f"{values[row, d]:g} is out of range; expected at most {LARGEST:g} in size."
        )
    if constant == "leave out" and len(values) > 1:
        same = np.flatnonzero((values == values[0]).all(axis=0))
        leave_out({names[d]: f"constant ({values[0, d]:.6g} in every row)" for d in same})
        values = np.delete(values, same, axis=1)
        names = [name for name in names if name not in left_out]
        if not names:
            raise TableError(_no_numeric_column(source, left_out))
    return Table(
        source=source,
        names=tuple(names),
        values=np.ascontiguousarray(values),
        has_header=found.has_header,
        left_out={name: left_out[name] for name in found.names if name in left_out},
        dropped_rows=n_rows - len(values),
        rows=rows,
    )


def _no_numeric_column(source: str, left_out: Mapping[str, str]) -> str:
    reasons = [f"{name!r}: {why}" for name, why in left_out.items() if why != NOT_CHOSEN]
    shown = "; ".join(reasons[:3]) + ("; ..." if len(reasons) > 3 else "")
    return f"{source} has no numeric column that can be used ({shown})."


def _missing_cells(
    source: str,
    values: Float[np.ndarray, "N D"],
    finite: Bool[np.ndarray, "N D"],
    names: Sequence[str],
    place: Callable[[int], str],
) -> TableError:
    row, d = np.argwhere(~finite)[0]
    n_infinite = int(np.isinf(values).sum())
    n_missing = int((~finite).sum()) - n_infinite
    counts = [f"{n} {what}" for n, what in ((n_missing, "missing"), (n_infinite, "infinite")) if n]
    plural = "cell" if n_missing + n_infinite == 1 else "cells"
    return TableError(
        f"{source} has {' and '.join(counts)} {plural}, the first in {place(int(row))}, "
        f"column {names[d]!r}; mend them, or leave such rows out with --missing drop."
    )
