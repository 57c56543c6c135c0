"""The numeric columns of CSV and Parquet files, every cell accounted for."""

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
from rnade.tables.delimited import (
    DelimitedText,
    look_closer,
    open_delimited,
    uses_decimal_comma,
)
from rnade.tables.table import NOT_CHOSEN, Columns, Table, make_table


def read_table(
    source: str | Path,
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    header: bool | None = None,
    missing: Literal["error", "drop"] = "error",
    *,
    exclude: Sequence[str] = (),
    constant: Literal["keep", "leave out"] = "keep",
) -> Table:
    """Read the numeric columns of a CSV or Parquet file.

    Whole numbers, decimals and booleans (as 0 and 1) are kept; text, dates and columns without a
    value are left out. A CSV column that pyarrow does not find numeric counts as numeric with a
    stray word, which is an error, if at least half of its non-empty cells are numbers; else it
    is text. In a CSV file, errors count lines as an editor does: line 1 is the header. In a
    Parquet file they count rows from 1.

    Parameters
    ----------
    source : str or Path
        The file; ``-`` is standard input. Gzip and Parquet are known by their first bytes.
    columns : sequence of str, optional
        Names of the columns to keep, in this order. In a file without a header also positions,
        counted from 1.
    separator : str, optional
        Of a CSV file: one character, or tab, comma, semicolon, pipe, blank. Found out by default.
    header : bool, optional
        Whether the first line of a CSV file names its columns. Found out by default.
    missing : {"error", "drop"}
        What to do with rows that have an empty, NaN or infinite cell in a column that is kept.
    exclude : sequence of str
        Names of columns not to keep.
    constant : {"keep", "leave out"}
        Whether to keep columns with one value in all rows: yes to score, no to fit.

    Raises
    ------
    TableError
        In one line: which file, which line and column, and what to do.
    """
    data, name = _read_bytes(source)
    if data[:4] == b"PAR1":
        found = _parquet_columns(data, name, columns, exclude)
    elif name.lower().endswith((".parquet", ".pq")):
        what = "is no Parquet file, whatever its name says" if data else "is empty"
        raise TableError(f"{name} {what}.")
    else:
        text = open_delimited(data, name, separator=separator, header=header)
        found = _delimited_columns(text, columns, exclude)
    return make_table(found, columns, missing, constant)


def _read_bytes(source: str | Path) -> tuple[bytes, str]:
    name = "standard input" if str(source) == "-" else str(source)
    try:
        data = sys.stdin.buffer.read() if str(source) == "-" else Path(source).read_bytes()
    except FileNotFoundError:
        raise TableError(f"There is no file {name}.") from None
    except IsADirectoryError:
        raise TableError(f"{name} is a folder; expected a CSV or Parquet file.") from None
    except OSError as error:
        raise TableError(f"{name} cannot be read: {error.strerror}.") from None
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            raise TableError(f"{name} is a damaged or truncated gzip file.") from None
    return data, name


def _delimited_columns(
    text: DelimitedText, columns: Sequence[str] | None, exclude: Sequence[str]
) -> Columns:
    chosen = choose(text.names, columns, exclude, text.source, has_header=text.has_header)
    table = text.parse(chosen)
    decimal_point = "."
    texts = [column for column in table.columns if pa.types.is_string(column.type)]
    if any(uses_decimal_comma(column, text.separator) for column in texts):
        decimal_point = ","
        table = text.parse(chosen, decimal_point)

    numbers, left_out = {}, dict.fromkeys(text.names, NOT_CHOSEN)
    for name in chosen:
        column = table[name]
        del left_out[name]
        if not pa.types.is_string(column.type):
            reason = _why_not_numeric(column.type)
            if reason:
                left_out[name] = reason
            else:
                numbers[name] = column
            continue
        closer = look_closer(column, decimal_point)
        if closer.stray is not None:
            raise _stray_word(text, name, closer.stray, closer.word, decimal_point)
        if closer.numbers is None:
            left_out[name] = closer.reason
        else:
            numbers[name] = closer.numbers
    return Columns(
        source=text.source,
        names=text.names,
        numbers=numbers,
        left_out=left_out,
        has_header=text.has_header,
        place=lambda record: f"line {text.line(record)}",
    )


def _stray_word(
    text: DelimitedText, name: str, record: int, word: str, decimal_point: str
) -> TableError:
    if record == 0 and not text.has_header:
        advice = "; if this line names the columns, say --header"
    elif decimal_point == ",":
        advice = " (decimals have a comma in this file)"
    else:
        advice = ", as most of the column is; mend the cell or leave the column out"
    return TableError(
        f"{text.source}: line {text.line(record)}, column {name!r}: {word!r} is not a number"
        f"{advice}."
    )


def _parquet_columns(
    data: bytes, source: str, columns: Sequence[str] | None, exclude: Sequence[str]
) -> Columns:
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read()
    except (pa.ArrowException, OSError):
        raise TableError(f"{source} is a damaged or truncated Parquet file.") from None
    names = table.column_names
    chosen = choose(names, columns, exclude, source, has_header=True)
    numbers, left_out = {}, dict.fromkeys(names, NOT_CHOSEN)
    for name in chosen:
        column = table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        del left_out[name]
        reason = _why_not_numeric(column.type)
        if reason:
            left_out[name] = reason
        else:
            numbers[name] = column
    if table.num_rows == 0:
        raise TableError(f"{source} has columns but no rows.")
    return Columns(
        source=source,
        names=names,
        numbers=numbers,
        left_out=left_out,
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
