"""Data sets that are not Parquet files, written once as Parquet into a temporary folder.

Row groups of CSV files cannot be found without reading all that comes before them; those of a
filtered data set are not known at all. One pass writes them where they can be read in any order.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as ds
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from rnade.exceptions import TableError
from rnade.streams.files import DataFiles, arrow_errors, find_paths, is_parquet, open_files
from rnade.tables.delimited import DelimitedText
from rnade.tables.dialect import MISSING

# Rows of a row group that is written, bytes of a CSV file that are parsed at a time, and those by
# which it is found how the file is written.
GROUP_ROWS, BLOCK_BYTES, HEAD_BYTES = 2**16, 2**22, 2**22
# What a column is taken for in turn, if a cell is not what those before it were.
_WIDER = {pa.int64(): pa.float64(), pa.float64(): pa.string()}


@contextmanager
def opened(source: Any) -> Iterator[DataFiles]:
    """Within it, a data set as Parquet files: its own, or those of a temporary folder."""
    if isinstance(source, ds.Dataset) and is_parquet(source):
        yield open_files(source)
        return
    with tempfile.TemporaryDirectory(prefix="rnade-") as folder:
        if isinstance(source, ds.Dataset):
            path = Path(folder) / "rows.parquet"
            _write(path, source.schema, source.to_batches(batch_size=GROUP_ROWS), "The data set")
            yield open_files(path)
            return
        paths, found = find_paths(source), []
        for i, own in enumerate(paths):
            kind = _format(own)
            found.append(own if kind == "parquet" else str(Path(folder) / f"{i:06d}.parquet"))
            if kind != "parquet":
                (_spool_csv if kind == "csv" else _spool_arrow)(own, Path(found[-1]))
        yield open_files(found, paths)


def _format(path: str) -> str:
    try:
        with open(path, "rb") as file:
            start = file.read(6)
    except FileNotFoundError:
        raise TableError(f"There is no file {path}.") from None
    if not start:
        raise TableError(f"{path} is empty: remove it from the data set.")
    if start[:4] == b"PAR1" or path.lower().endswith((".parquet", ".pq")):
        return "parquet"
    return "arrow" if start == b"ARROW1" or start[:4] == b"\xff" * 4 else "csv"


def _write(path: Path, schema: pa.Schema, batches: Any, name: str) -> None:
    with pq.ParquetWriter(path, schema) as writer:
        rows: list[Any] = []
        with arrow_errors(f"{name} cannot be read"):
            for batch in batches:
                rows.append(batch)
                if sum(map(len, rows)) >= GROUP_ROWS:
                    writer.write_table(pa.Table.from_batches(rows, schema))
                    rows = []
        if rows:
            writer.write_table(pa.Table.from_batches(rows, schema))


def _spool_arrow(path: str, destination: Path) -> None:
    with pa.memory_map(path) as source:
        try:
            if source.read(6) == b"ARROW1":
                file = ipc.open_file(source)
                batches: Any = (file.get_batch(i) for i in range(file.num_record_batches))
            else:
                source.seek(0)
                batches = file = ipc.open_stream(source)
        except (pa.ArrowException, OSError):
            raise TableError(f"{path} is a damaged or truncated Arrow file.") from None
        _write(destination, file.schema, batches, path)


def _spool_csv(path: str, destination: Path) -> None:
    """Write a CSV file as Parquet; a column whose cells turn out otherwise is taken for more."""
    with pa.input_stream(path, compression="detect") as source:
        head = source.read(HEAD_BYTES)
        more = bool(source.read(1))
    head = head[: head.rfind(b"\n") + 1] if more else head
    text = DelimitedText(head, path, separator=None, header=None)
    cells = text.typed(text.names, None)
    kinds = {
        name: pa.string() if isinstance(column, str) else column.type
        for name, column in cells.items()
    }
    if text.separator.encode() not in head and len(text.names) > 1:
        raise TableError(
            f"{path} has blanks between its cells: write it with commas to have it streamed."
        )
    while True:
        try:
            _convert_csv(path, destination, text, kinds)
            return
        except TableError as error:
            told = re.search(r"In CSV column #(\d+)", str(error))
            if told is None:
                raise
            name = text.names[int(told[1])]
            if kinds[name] == pa.string():
                raise
            kinds[name] = _WIDER.get(kinds[name], pa.string())


def _convert_csv(path: str, destination: Path, text: DelimitedText, kinds: dict[str, Any]) -> None:
    words = sorted({*MISSING, ""})
    with pa.input_stream(path, compression="detect") as source:
        with arrow_errors(f"{path} cannot be read"):
            reader = pacsv.open_csv(
                source,
                read_options=pacsv.ReadOptions(
                    column_names=text.names,
                    skip_rows=text.first_line - 1,
                    block_size=BLOCK_BYTES,
                    use_threads=False,
                ),
                parse_options=pacsv.ParseOptions(
                    delimiter=text.separator, newlines_in_values=True
                ),
                convert_options=pacsv.ConvertOptions(
                    column_types=kinds,
                    null_values=words,
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    decimal_point=text.decimal,
                ),
            )
        _write(destination, reader.schema, reader, path)
