"""Files of tables, gzipped or not, whose formats are known by their first bytes."""

import gzip
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rnade.exceptions import TableError
from rnade.tables.delimited import DelimitedText
from rnade.tables.numerals import numbers_or_reason

# Formats with types of their own: how their files begin, and the suffixes that promise them.
FORMATS = {
    "Parquet": ((b"PAR1",), (".parquet", ".pq")),
    "Arrow": ((b"ARROW1", b"\xff\xff\xff\xff"), (".feather", ".arrow")),
}


class TypedFile:
    """A Parquet or Arrow file, as `DelimitedText` is a CSV file."""

    has_header = True
    index = None
    decimal = "."
    separator = ","
    notes: Sequence[str] = ()

    def __init__(self, kind: str, data: bytes, source: str) -> None:
        self.source = source
        buffer = pa.BufferReader(data)
        try:
            if kind == "Parquet":
                self._table = pq.ParquetFile(buffer).read()
            else:
                open_ = pa.ipc.open_stream if data.startswith(b"\xff") else pa.ipc.open_file
                self._table = open_(buffer).read_all()
        except (pa.ArrowException, OSError):
            raise TableError(f"{source} is a damaged or truncated {kind} file.") from None
        if self._table.num_rows == 0:
            raise TableError(f"{source} has columns but no rows.")
        self.names: list[str] = self._table.column_names
        self.titles = self.names

    def place(self, record: int) -> str:
        """Say which row of the file a record, counted from 0, is."""
        return f"row {record + 1}"

    def written(self) -> pa.Table:
        """Give all columns as the file has them."""
        return self._table

    def columns(
        self, wanted: Sequence[str], decimal: str | None, na: Sequence[str] = ()
    ) -> Mapping[str, pa.ChunkedArray | str]:
        """Give the numbers of each column wanted, missing cells null, or why they are none."""
        return {name: numbers_or_reason(self._table[name]) for name in wanted}

    def typed(
        self,
        wanted: Sequence[str],
        decimal: str | None,
        na: Sequence[str] = (),
        sorts: Mapping[str, str] | None = None,
    ) -> Mapping[str, pa.ChunkedArray | str]:
        """Give each column wanted as the file has it."""
        return {name: self._table[name] for name in wanted}


TableFile = DelimitedText | TypedFile


def open_file(source: str | Path, separator: str | None, header: bool | None) -> TableFile:
    """Open a file, ``-`` for standard input; the last two arguments are of a CSV file."""
    data, name = _read_bytes(source)
    for kind, (starts, suffixes) in FORMATS.items():
        if data.startswith(starts):
            return TypedFile(kind, data, name)
        if name.lower().endswith(suffixes):
            what = f"is not in {kind} format, despite its extension" if data else "is empty"
            raise TableError(f"{name} {what}.")
    return DelimitedText(data, name, separator=separator, header=header)


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
