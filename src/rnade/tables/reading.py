"""The numeric columns of CSV, Parquet and Arrow files, every cell accounted for."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from rnade.exceptions import TableError
from rnade.tables import making
from rnade.tables.choice import choose
from rnade.tables.numerals import OTHER_MARK
from rnade.tables.opening import open_file
from rnade.tables.table import NOT_CHOSEN, Table


def read_table(
    source: str | Path,
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    header: bool | None = None,
    missing: Literal["error", "drop"] = "error",
    *,
    decimal: str | None = None,
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
    if decimal is not None and decimal not in OTHER_MARK:
        raise TableError(f"Expected a decimal point or a decimal comma; got {decimal!r}.")
    file = open_file(source, separator, header)
    weights = choose(file, [weight], ()) if weight else []
    chosen = choose(file, columns, [*exclude, *weights])
    cells = file.columns([*chosen, *weights], decimal)
    numbers = {name: cells[name] for name in chosen if not isinstance(cells[name], str)}
    values = making.as_matrix(numbers)
    table = Table(
        source=file.source,
        names=tuple(numbers),
        values=values,
        has_header=file.has_header,
        left_out={name: NOT_CHOSEN for name in file.names if name not in cells}
        | dict.fromkeys(weights, "row weights"),
        notes=list(file.notes),
        dropped_rows=0,
        weights=next((making.row_weights(cells[w], w, file) for w in weights), None),
        rows=np.arange(1, len(values) + 1),
    )
    asked_for = columns is not None
    reasons = {name: why for name in chosen if isinstance(why := cells[name], str)}
    table = making.without(table, reasons, asked_for=asked_for)
    # A column asked for by name is kept: if it is empty, its cells are missing.
    if not asked_for:
        table = making.without_empty(table)
        if ids == "leave out":
            table = making.without_ids(table, file.index)
    table = making.complete(table, missing, file)
    making.check_range(table, file)
    if constant == "leave out":
        table = making.without_constant(table, asked_for=asked_for)
    return replace(
        table,
        values=np.ascontiguousarray(table.values),
        left_out={name: table.left_out[name] for name in file.names if name in table.left_out},
    )
