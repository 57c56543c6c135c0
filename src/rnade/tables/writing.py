"""Tables into CSV and Parquet files: whole or not at all, and never over a file unasked."""

import csv
import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from rnade.exceptions import TableError
from rnade.files import check_writable, write_whole

_FORMATS: Mapping[str, Literal["csv", "parquet"]] = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def table_format(path: str | Path) -> Literal["csv", "parquet"]:
    """Give the format that a file's suffix asks for; ``-``, standard output, is CSV."""
    if str(path) == "-":
        return "csv"
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise TableError(f"Expected a file name ending in .csv or .parquet; got {str(path)!r}.")
    return _FORMATS[suffix]


def check_destination(path: str | Path, *, force: bool = False) -> None:
    """Refuse a place where no file can be written, before the work that it is to hold is done."""
    try:
        check_writable(path, overwrite=force)
    except FileExistsError:
        raise TableError(f"{path} exists already; say --force to write over it.") from None
    if not os.access(Path(path).absolute().parent, os.W_OK):
        raise TableError(f"The folder of {path} may not be written to.")


def write_table(
    columns: Mapping[str, Any], destination: str | Path = "-", *, force: bool = False
) -> None:
    """Write columns of equal length as a table with a header.

    Parameters
    ----------
    columns : mapping of str to array or list
        In the order in which they are to stand.
    destination : str or Path
        A file ending in ``.csv`` or ``.parquet``; ``-`` is standard output.
    force : bool
        Whether a file that exists already may be replaced.
    """
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    data = _as_csv(table) if table_format(destination) == "csv" else _as_parquet(table)
    if str(destination) == "-":
        _write_all(data)
        return
    check_destination(destination, force=force)
    write_whole(destination, data, overwrite=force)


def _write_all(data: bytes) -> None:
    sys.stdout.flush()
    rest = memoryview(data)
    while rest:
        # Unbuffered (PYTHONUNBUFFERED), a write may take a part only, as when the reader leaves.
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def _as_parquet(table: pa.Table) -> bytes:
    body = pa.BufferOutputStream()
    pq.write_table(table, body)
    return bytes(body.getvalue())


def _as_csv(table: pa.Table) -> bytes:
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(table.column_names)
    # pyarrow's "needed" quotes every string; without quotes it refuses strings that need them.
    try:
        return header.getvalue().encode() + _csv_rows(table, "none")
    except pa.ArrowInvalid:
        return header.getvalue().encode() + _csv_rows(table, "needed")


def _csv_rows(table: pa.Table, quoting: str) -> bytes:
    body = pa.BufferOutputStream()
    options = pacsv.WriteOptions(include_header=False, quoting_style=quoting)
    pacsv.write_csv(table, body, options)
    return bytes(body.getvalue())
