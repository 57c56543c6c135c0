"""Tables into CSV, Parquet and Arrow files: whole or not at all, never over a file unasked."""

import csv
import io
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from rnade.columns.cells import PER_SECOND
from rnade.exceptions import TableError
from rnade.files import check_writable, write_whole
from rnade.tables.opening import FORMATS

_FORMATS = {suffix: kind.lower() for kind, (_, suffixes) in FORMATS.items() for suffix in suffixes}
_FORMATS[".csv"] = "csv"


def table_format(path: str | Path) -> str:
    """Give the format that a file's suffix asks for; ``-``, standard output, is CSV."""
    if str(path) == "-":
        return "csv"
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise TableError(
            f"Expected a file name ending in .csv, .parquet or .feather; got {str(path)!r}."
        )
    return _FORMATS[suffix]


def check_destination(
    path: str | Path, *, force: bool = False, inputs: Sequence[str] = ()
) -> None:
    """Refuse a place where no file can be written, before the work that it is to hold is done.

    A file that is one of the `inputs` is refused even with `force`. ``-`` is standard output.
    """
    if str(path) == "-":
        return
    try:
        check_writable(path, overwrite=force, inputs=inputs)
    except FileExistsError:
        raise TableError(f"{path} exists already; pass --force to overwrite it.") from None
    if not os.access(Path(path).absolute().parent, os.W_OK):
        raise TableError(f"The folder of {path} may not be written to.")


def write_table(
    columns: Mapping[str, Any] | pa.Table,
    destination: str | Path = "-",
    *,
    force: bool = False,
    separator: str = ",",
) -> None:
    """Write columns of equal length as a table with a header.

    Parameters
    ----------
    columns : mapping of str to array or list, or pyarrow Table
        In the order in which they are to stand. Missing cells are empty in a CSV file.
    destination : str or Path
        A file ending in ``.csv``, ``.parquet`` or ``.feather``; ``-`` is standard output.
    force : bool
        Whether a file that exists already may be replaced.
    separator : str
        What stands between the cells of a CSV file.
    """
    table = columns
    if not isinstance(table, pa.Table):
        table = pa.table({name: pa.array(values) for name, values in columns.items()})
    data = _encoded(table, table_format(destination), separator)
    check_destination(destination, force=force)
    if str(destination) == "-":
        _write_all(data)
    else:
        write_whole(destination, data, overwrite=force)


def _write_all(data: bytes) -> None:
    sys.stdout.flush()
    rest = memoryview(data)
    while rest:
        # Unbuffered (PYTHONUNBUFFERED), a write may take a part only, as when the reader leaves.
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def as_written(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give a column as pyarrow can write it into a CSV file."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_duration(column.type):
        per_second = float(PER_SECOND[column.type.unit])
        return pc.divide(column.cast(pa.int64()).cast(pa.float64()), per_second)
    if pa.types.is_timestamp(column.type) and column.type.unit != "s":
        with suppress(pa.ArrowInvalid):  # which has fractions of seconds
            return column.cast(pa.timestamp("s", column.type.tz))
    return column


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Give the rows of a table as JSON can hold them: dates and times as text."""
    columns = []
    for column in map(as_written, table.columns):
        if pa.types.is_temporal(column.type):
            column = column.cast(pa.string())
        elif pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        columns.append(column)
    rows: list[dict[str, Any]] = pa.table(columns, table.column_names).to_pylist()
    return rows


def _encoded(table: pa.Table, kind: str, separator: str) -> bytes:
    body = pa.BufferOutputStream()
    if kind == "parquet":
        pq.write_table(table, body)
    elif kind == "arrow":
        table = table.unify_dictionaries()
        with pa.ipc.new_file(body, table.schema) as file:
            file.write_table(table)
    else:
        header = io.StringIO()
        names = csv.writer(header, delimiter=separator, lineterminator="\n")
        names.writerow(table.column_names)
        head = header.getvalue().encode()
        table = pa.table([as_written(column) for column in table.columns], table.column_names)
        options = pacsv.WriteOptions(
            include_header=False, quoting_style="none", delimiter=separator
        )
        try:
            pacsv.write_csv(table, body, options)
        except pa.ArrowInvalid:  # a cell that needs quotes, where pyarrow would quote all text
            return head + _with_quotes(table, separator)
        return head + bytes(body.getvalue())
    return bytes(body.getvalue())


def _with_quotes(table: pa.Table, separator: str) -> bytes:
    """Write the rows of a CSV file, those cells in quotes that need them."""
    quote, nothing, between = (pa.scalar(word, pa.large_string()) for word in ('"', "", separator))
    cells = []
    for column in table.columns:
        text = column.cast(pa.large_string())
        needs = pc.match_substring_regex(text, rf'[\x{ord(separator):02x}"\r\n]')
        doubled = pc.replace_substring(text, '"', '""')
        quoted = pc.binary_join_element_wise(quote, doubled, quote, nothing)
        cells.append(pc.if_else(needs, quoted, text))
    lines = pc.binary_join_element_wise(*cells, between, null_handling="replace")
    return "".join(f"{line}\n" for line in lines.to_pylist()).encode()
