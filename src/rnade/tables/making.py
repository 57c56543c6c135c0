"""From the columns of a file to a table: steps that check cells and leave out columns and rows.

Each takes the table that the one before it gave.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from jaxtyping import Float

from rnade.exceptions import TableError
from rnade.tables.opening import TableFile
from rnade.tables.table import NOT_CHOSEN, Table

# Far beyond any measurement, and far enough below float32's 3.4e38 for a square to be scaled.
LARGEST = 1e30

# What people and pandas call a column that only tells rows apart.
_is_name_of_ids = re.compile(r"(?i:(.*[ _.-])?id|index|unnamed: 0)|.*[a-z](Id|ID)").fullmatch
# In fewer rows, whole numbers may well happen to be all different.
_FEWEST_IDS = 10


def as_matrix(columns: Mapping[str, pa.ChunkedArray]) -> Float[np.ndarray, "N D"]:
    """Give numeric columns as one array of float64, missing cells as NaN."""
    n_rows = len(next(iter(columns.values()), []))
    # Column by column, so that no second copy of the whole table is made.
    values = np.empty((n_rows, len(columns)))
    for d, column in enumerate(columns.values()):
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.uint8())
        values[:, d] = column.cast(pa.float64(), safe=False).to_numpy()
    return values


def without(table: Table, reasons: Mapping[str, str], *, asked_for: bool = False) -> Table:
    """Leave columns out, each for a reason in plain words; one asked for is an error."""
    if reasons and asked_for:
        name, reason = next(iter(reasons.items()))
        raise TableError(f"{table.source}: column {name!r} cannot be used: {reason}.")
    left_out = {**table.left_out, **reasons}
    kept = [d for d, name in enumerate(table.names) if name not in reasons]
    if not kept:
        why = [f"{name!r}: {why}" for name, why in left_out.items() if why != NOT_CHOSEN]
        shown = "; ".join(why[:3]) + ("; ..." if len(why) > 3 else "")
        raise TableError(f"{table.source} has no numeric column that can be used ({shown}).")
    if len(kept) == len(table.names):
        return replace(table, left_out=left_out)
    names = tuple(table.names[d] for d in kept)
    return replace(table, names=names, values=table.values[:, kept], left_out=left_out)


def without_empty(table: Table) -> Table:
    """Leave out columns in which all cells are missing."""
    empty = np.flatnonzero(np.isnan(table.values).all(axis=0))
    return without(table, {table.names[d]: "empty" for d in empty})


def without_ids(table: Table, index: str | None) -> Table:
    """Leave out what only tells rows apart, and note what else may be such a column.

    `index` is the column that the file itself marks as one.
    """
    columns = dict(zip(table.names, table.values.T, strict=True))
    distinct = {name: values for name, values in columns.items() if _are_distinct(values)}
    enough = len(table.values) >= _FEWEST_IDS
    ids = {
        name: f"row numbers or ids ({len(values)} different whole numbers)"
        for name, values in distinct.items()
        if name == index or _is_name_of_ids(name) or (enough and (np.diff(values) == 1).all())
    }
    notes = [f"column {name!r} is kept if --columns names it" for name in ids]
    notes += [
        f"column {name!r} looks like an id: its values are whole numbers, all different;"
        " if it is one, leave it out with --exclude"
        for name in distinct
        if enough and name not in ids
    ]
    return replace(without(table, ids), notes=[*table.notes, *notes])


def _are_distinct(values: Float[np.ndarray, " N"]) -> bool:
    """Tell whether a column holds whole numbers, no two the same."""
    # Most columns show a fraction or a value twice early on, without a look at all of them.
    return len(values) > 1 and all(
        (part == np.floor(part)).all() and len(np.unique(part)) == len(part)
        for part in (values[:1000], values)
    )


def without_constant(table: Table, *, asked_for: bool) -> Table:
    """Leave out columns with one value in all rows, unless there is one row only."""
    values = table.values
    if len(values) == 1:
        return table
    same = np.flatnonzero((values == values[0]).all(axis=0))
    constant = {table.names[d]: f"constant ({values[0, d]:.6g} in every row)" for d in same}
    return without(table, constant, asked_for=asked_for)


def complete(table: Table, missing: str, file: TableFile) -> Table:
    """Leave out rows with a missing or infinite cell, or raise if `missing` is not "drop"."""
    finite = np.isfinite(table.values)
    kept = finite.all(axis=1)
    if kept.all():
        return table
    if missing != "drop":
        row, d = np.argwhere(~finite)[0]
        n_infinite = int(np.isinf(table.values).sum())
        n_missing = int((~finite).sum()) - n_infinite
        counts = {"missing": n_missing, "infinite": n_infinite}
        told = " and ".join(f"{n} {what}" for what, n in counts.items() if n)
        plural = "cell" if n_missing + n_infinite == 1 else "cells"
        raise TableError(
            f"{table.source} has {told} {plural}, the first in {file.place(int(row))}, column"
            f" {table.names[d]!r}; fix them, or leave such rows out with --missing drop."
        )
    if not kept.any():
        worst = table.names[int(np.argmin(finite.sum(axis=0)))]
        raise TableError(
            f"{table.source}: no row is left, each has a missing cell (most in column {worst!r})."
        )
    return replace(
        table,
        values=table.values[kept],
        rows=table.rows[kept],
        weights=None if table.weights is None else table.weights[kept],
        dropped_rows=int((~kept).sum()),
    )


def check_range(table: Table, file: TableFile) -> None:
    """Refuse values that no training could take."""
    far = np.argwhere(np.abs(table.values) > LARGEST)
    if far.size:
        row, d = far[0]
        raise TableError(
            f"{table.source}: {file.place(int(table.rows[row]) - 1)}, column {table.names[d]!r}: "
            f"{table.values[row, d]:g} is out of range; expected at most {LARGEST:g} in size."
        )


def row_weights(
    cells: pa.ChunkedArray | str, name: str, file: TableFile
) -> Float[np.ndarray, " N"]:
    """Give the weights that a column holds, or say why it cannot hold any."""
    if isinstance(cells, str):
        raise TableError(f"{file.source}: column {name!r} cannot hold row weights: {cells}.")
    weights = as_matrix({name: cells})[:, 0]
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if wrong.size:
        value = weights[wrong[0]]
        what = "no value" if np.isnan(value) else f"{value:g}"
        raise TableError(
            f"{file.source}: {file.place(int(wrong[0]))}, column {name!r}: expected a row"
            f" weight of 0 or more; got {what}."
        )
    if not weights.any():
        raise TableError(f"{file.source}: all row weights in column {name!r} are 0.")
    return weights
