"""Parquet and Arrow files, whose columns have types of their own."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from rnade.exceptions import TableError

# How their files begin, and the suffixes that promise them.
FORMATS = {
    "Parquet": ((b"PAR1",), (".parquet", ".pq")),
    "Arrow": ((b"ARROW1", b"\xff\xff\xff\xff"), (".feather", ".arrow")),
}


class TypedFile:
    """A Parquet or Arrow file, as `DelimitedText` is a CSV file."""

    has_header = True
    index = None
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

    def place(self, record: int) -> str:
        """Say which row of the file a record, counted from 0, is."""
        return f"row {record + 1}"

    def columns(
        self, wanted: Sequence[str], decimal: str | None
    ) -> Mapping[str, pa.ChunkedArray | str]:
        """Give the numbers of each column wanted, missing cells null, or why they are none."""
        return {name: numbers_or_reason(self._table[name]) for name in wanted}


def numbers_or_reason(column: pa.ChunkedArray) -> pa.ChunkedArray | str:
    """Give a column back if its type is numeric, else say in plain words what it holds."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind, types = column.type, pa.types
    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    if types.is_null(kind) or any(is_kind(kind) for is_kind in numeric):
        return column
    if types.is_date(kind) or types.is_timestamp(kind):
        return "dates"
    if types.is_time(kind) or types.is_duration(kind):
        return "times"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    return f"values of type {kind}"
