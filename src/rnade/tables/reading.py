"""The numeric columns of CSV, Parquet and Arrow files, every cell accounted for."""

import gzip
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from rnade.exceptions import TableError
from rnade.tables.choice import choose
from rnade.tables.delimited import DelimitedText, look_closer, open_delimited
from rnade.tables.making import Columns, make_table
from rnade.tables.numerals import OTHER_MARK, Marks
from rnade.tables.table import Table

# Formats with types of their own: how their files begin, and the suffixes that promise them.
_TYPED = {
    "Parquet": ((b"PAR1",), (".parquet", ".pq")),
    "Arrow": ((b"ARROW1", b"\xff\xff\xff\xff"), (".feather", ".arrow")),
}


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
    data, name = _read_bytes(source)
    text = None
    for kind, (starts, suffixes) in _TYPED.items():
        if data.startswith(starts):
            table = _read_typed(kind, data, name)
            names, has_header = table.column_names, True
            break
        if name.lower().endswith(suffixes):
            what = f"is not in {kind} format, despite its extension" if data else "is empty"
            raise TableError(f"{name} {what}.")
    else:
        text = open_delimited(data, name, separator=separator, header=header)
        names, has_header = list(text.names), text.has_header
    weights = choose(names, [weight], (), name, has_header=has_header) if weight else []
    chosen = choose(names, columns, [*exclude, *weights], name, has_header=has_header)
    wanted = [*chosen, *weights]
    found = (
        _typed_columns(table, wanted, name)
        if text is None
        else _delimited_columns(text, wanted, decimal)
    )
    return make_table(
        found,
        missing,
        asked_for=columns is not None,
        weight=next(iter(weights), None),
        leave_out_constant=constant == "leave out",
        leave_out_ids=ids == "leave out",
    )


def _read_bytes(source: str | Path) -> tuple[bytes, str]:
    name = "standard input" if str(source) == "-" else str(source)
    try:
        data = sys.stdin.buffer.read() if str(source) == "-" else Path(source).read_bytes()
    except FileNotFoundError:
        raise TableError(f"There is no file {name}.") from None
    except IsADirectoryError:
        raise TableError(f"{name} is a folder; expected a CSV, Parquet or Arrow file.") from None
    except OSError as error:
        raise TableError(f"{name} cannot be read: {error.strerror}.") from None
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            raise TableError(f"{name} is a damaged or truncated gzip file.") from None
    return data, name


def _delimited_columns(text: DelimitedText, wanted: Sequence[str], decimal: str | None) -> Columns:
    table, marks = text.read(wanted, decimal)

    def numeric(name: str) -> pa.ChunkedArray | str:
        column = table[name]
        if not pa.types.is_string(column.type):
            return _why_not_numeric(column.type) or column
        return look_closer(column, marks, lambda at, word: _stray(text, name, at, word, marks))

    return Columns(
        source=text.source,
        names=text.names,
        cells={name: numeric(name) for name in wanted},
        has_header=text.has_header,
        place=lambda record: f"line {text.line(record)}",
        index=text.index,
        notes=marks.notes,
    )


def _stray(text: DelimitedText, name: str, record: int, word: str, marks: Marks) -> TableError:
    advice = marks.why_not(word)
    if record == 0 and not text.has_header:
        advice = "; if this line names the columns, pass --header"
    elif not advice:
        advice = ", as most of the column is; fix the cell or leave the column out"
    return TableError(
        f"{text.source}: line {text.line(record)}, column {name!r}: {word!r} is not a number"
        f"{advice}."
    )


def _read_typed(kind: str, data: bytes, source: str) -> pa.Table:
    buffer = pa.BufferReader(data)
    try:
        if kind == "Parquet":
            table = pq.ParquetFile(buffer).read()
        else:
            is_stream = data.startswith(b"\xff")
            table = (pa.ipc.open_stream if is_stream else pa.ipc.open_file)(buffer).read_all()
    except (pa.ArrowException, OSError):
        raise TableError(f"{source} is a damaged or truncated {kind} file.") from None
    if table.num_rows == 0:
        raise TableError(f"{source} has columns but no rows.")
    return table


def _typed_columns(table: pa.Table, wanted: Sequence[str], source: str) -> Columns:
    def numeric(column: pa.ChunkedArray) -> pa.ChunkedArray | str:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        return _why_not_numeric(column.type) or column

    return Columns(
        source=source,
        names=table.column_names,
        cells={name: numeric(table[name]) for name in wanted},
        has_header=True,
        place=lambda record: f"row {record + 1}",
    )


def _why_not_numeric(type_: pa.DataType) -> str:
    """Say in plain words why a column of this type cannot be used; empty if it can."""
    types = pa.types
    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    if types.is_null(type_) or any(is_kind(type_) for is_kind in numeric):
        return ""
    if types.is_date(type_) or types.is_timestamp(type_):
        return "dates"
    if types.is_time(type_) or types.is_duration(type_):
        return "times"
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return "text"
    return f"values of type {type_}"
