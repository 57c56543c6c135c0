"""The numeric columns of CSV, Parquet and Arrow files, every cell accounted for."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from jaxtyping import Float

from rnade.columns.inference import FEWEST_IDS, is_name_of_ids
from rnade.exceptions import TableError
from rnade.tables.choice import choose
from rnade.tables.numerals import OTHER_MARK
from rnade.tables.opening import TableFile, open_file
from rnade.tables.table import NOT_CHOSEN, Table

# Far beyond any measurement, and far enough below float32's 3.4e38 for a square to be scaled.
LARGEST = 1e30


def read_table(
    source: str | Path,
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    header: bool | None = None,
    missing: Literal["error", "drop"] = "error",
    *,
    decimal: str | None = None,
    na: Sequence[str] = (),
    exclude: Sequence[str] = (),
    weight: str | None = None,
    constant: Literal["keep", "leave out"] = "keep",
    ids: Literal["keep", "leave out"] = "keep",
) -> Table:
    """Read the numeric columns of a CSV, Parquet, Feather or Arrow file.

    Whole numbers, decimals and booleans (as 0 and 1) are kept; text, dates and columns without a
    value are left out. A CSV column that pyarrow does not find numeric counts as numeric with a
    stray word, which is an error, if at least half of its non-empty cells are numbers; else it
    is text. In a CSV file, errors count lines as an editor does: line 1 is the header. In other
    files they count rows from 1.

    Parameters
    ----------
    source : str or Path
        The file; ``-`` is standard input. Its format is known by its first bytes.
    columns : sequence of str, optional
        Names of the columns to keep, in this order. In a file without a header also positions,
        counted from 1.
    separator : str, optional
        Of a CSV file: one character, or tab, comma, semicolon, pipe, blank. By default it is
        detected.
    header : bool, optional
        Whether the first line of a CSV file names its columns. By default it is detected.
    missing : {"error", "drop"}
        What to do with rows that have an empty, NaN or infinite cell in a column that is kept.
    decimal : {".", ","}, optional
        The decimal point of a CSV file; the other of the two then marks thousands. By default it
        is detected.
    na : sequence of str
        Marks of missing cells, beside the empty cell, NA, ?, - and the like.
    exclude : sequence of str
        Names of columns not to keep.
    weight : str, optional
        Name of the column that holds the weights of the rows; it is not one of the columns kept.
    constant : {"keep", "leave out"}
        Whether to keep columns with one value in all rows: yes to score, no to fit.
    ids : {"keep", "leave out"}
        Whether to keep row numbers and ids, if `columns` does not name them: yes to score, no to
        fit.

    Raises
    ------
    TableError
        In one line: which file, which line and column, and what to do.
    """
    check_decimal(decimal)
    file = open_file(source, separator, header)
    weights = choose(file, [weight], ()) if weight else []
    chosen = choose(file, columns, [*exclude, *weights])
    cells = file.columns([*chosen, *weights], decimal, na)
    numbers = {name: cells[name] for name in chosen if not isinstance(cells[name], str)}
    values = _as_matrix(numbers)
    values[np.isin(values, [mark for mark in as_marks(na) if not isinstance(mark, str)])] = np.nan
    table = Table(
        source=file.source,
        names=tuple(numbers),
        values=values,
        has_header=file.has_header,
        left_out={name: NOT_CHOSEN for name in file.names if name not in cells}
        | dict.fromkeys(weights, "row weights"),
        notes=list(file.notes),
        dropped_rows=0,
        weights=next((row_weights(cells[w], w, file) for w in weights), None),
        rows=np.arange(1, len(values) + 1),
        _file=file,
    )
    asked_for = columns is not None
    reasons = {name: why for name in chosen if isinstance(why := cells[name], str)}
    table = _without(table, reasons, asked_for=asked_for)
    # A column asked for by name is kept: if it is empty, its cells are missing.
    if not asked_for:
        table = _without_empty(table)
        if ids == "leave out":
            table = _without_ids(table, file.index)
    table = _complete(table, missing, file)
    _check_range(table, file)
    if constant == "leave out":
        table = _without_constant(table, asked_for=asked_for)
    return replace(
        table,
        values=np.ascontiguousarray(table.values),
        left_out={name: table.left_out[name] for name in file.names if name in table.left_out},
    )


def check_decimal(decimal: str | None) -> None:
    """Refuse a decimal point that is neither a point nor a comma."""
    if decimal is not None and decimal not in OTHER_MARK:
        raise TableError(f"Expected a decimal point or a decimal comma; got {decimal!r}.")


def as_marks(na: Sequence[str]) -> tuple[str | float, ...]:
    """Give marks of missing cells as text, and as numbers too where they are numbers.

    >>> as_marks(["-", "999"])
    ('-', '999', 999.0)
    """
    marks: list[str | float] = []
    for word in na:
        marks.append(word)
        with suppress(ValueError):
            marks.append(float(word))
    return tuple(mark for mark in marks if mark == mark)


def _as_matrix(columns: Mapping[str, pa.ChunkedArray]) -> Float[np.ndarray, "N D"]:
    """Give numeric columns as one array of float64, missing cells as NaN."""
    n_rows = len(next(iter(columns.values()), []))
    # Column by column, so that no second copy of the whole table is made.
    values = np.empty((n_rows, len(columns)))
    for d, column in enumerate(columns.values()):
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.uint8())
        values[:, d] = column.cast(pa.float64(), safe=False).to_numpy()
    return values


def _without(table: Table, reasons: Mapping[str, str], *, asked_for: bool = False) -> Table:
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


def _without_empty(table: Table) -> Table:
    """Leave out columns in which all cells are missing."""
    empty = np.flatnonzero(np.isnan(table.values).all(axis=0))
    return _without(table, {table.names[d]: "empty" for d in empty})


def _without_ids(table: Table, index: str | None) -> Table:
    """Leave out what only tells rows apart, and note what else may be such a column.

    `index` is the column that the file itself marks as one.
    """
    columns = dict(zip(table.names, table.values.T, strict=True))
    distinct = {name: values for name, values in columns.items() if are_distinct(values)}
    enough = len(table.values) >= FEWEST_IDS
    ids = {
        name: f"row numbers or ids ({len(values)} different whole numbers)"
        for name, values in distinct.items()
        if name == index
        or is_name_of_ids(name)
        or (enough and values[0] in (0, 1) and (np.diff(values) == 1).all())
    }
    notes = [f"column {name!r} is kept if --columns names it" for name in ids]
    notes += [
        f"column {name!r} looks like an id: its values are whole numbers, all different;"
        " if it is one, leave it out with --exclude"
        for name in distinct
        if enough and name not in ids
    ]
    return replace(_without(table, ids), notes=[*table.notes, *notes])


def are_distinct(values: Float[np.ndarray, " N"]) -> bool:
    """Tell whether a column holds whole numbers, no two the same."""
    # Most columns show a fraction or a value twice early on, without a look at all of them.
    return len(values) > 1 and all(
        (part == np.floor(part)).all() and len(np.unique(part)) == len(part)
        for part in (values[:1000], values)
    )


def _without_constant(table: Table, *, asked_for: bool) -> Table:
    """Leave out columns with one value in all rows, unless there is one row only."""
    values = table.values
    if len(values) == 1:
        return table
    same = np.flatnonzero((values == values[0]).all(axis=0))
    constant = {table.names[d]: f"constant ({values[0, d]:.6g} in every row)" for d in same}
    return _without(table, constant, asked_for=asked_for)


def _complete(table: Table, missing: str, file: TableFile) -> Table:
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


def _check_range(table: Table, file: TableFile) -> None:
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
    weights = _as_matrix({name: cells})[:, 0]
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
