"""Parquet files of one schema: which row groups they have, and how one is read in bounded memory.

Every error names the file, and what to do.
"""

import glob
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rnade.exceptions import TableError
from rnade.tables.choice import refuse_repeated

# Rows that are held out or trained on together, so that a file with few row groups has both.
RUN_ROWS = 1024
# Rows that are decoded at a time, and bytes of a column that are read at a time: a row group of
# any size passes through.
BATCH_ROWS, BUFFER_BYTES = 2**15, 2**16
_SUFFIXES = (".parquet", ".pq")
# What is looked for in a folder.
_DATA_SUFFIXES = (*_SUFFIXES, ".csv", ".csv.gz", ".tsv", ".feather", ".arrow")


@contextmanager
def arrow_errors(what: str, advice: str = "") -> Iterator[None]:
    """Within it, what Arrow cannot read is an error in our words, with Arrow's reason."""
    try:
        yield
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{what} ({str(error).splitlines()[0]}){advice}.") from error


@dataclass(frozen=True)
class RowGroup:
    """One row group: the place of its file in the data set, its own in the file, and its rows."""

    file: int
    index: int
    n_rows: int


@dataclass(frozen=True)
class _File:
    path: str
    filesystem: Any
    constants: dict[str, Any]  # columns that a partitioned data set has in the names of folders


class DataFiles:
    """The Parquet files of a data set, which all have the same columns.

    Parameters
    ----------
    files : sequence of _File
    names : sequence of str, optional
        What files are called in messages and hashed by, if not by their paths.

    Attributes
    ----------
    schema : pyarrow.Schema
    groups : list of RowGroup
        Of all files, in their order.
    """

    def __init__(self, files: Sequence[_File], names: Sequence[str] | None = None) -> None:
        self._files = list(files)
        self.names = list(names) if names is not None else [file.path for file in files]
        self.groups: list[RowGroup] = []
        self.schema = pa.schema([])
        for i in range(len(files)):
            with self._opened(i) as file:
                self._check(i, file.schema_arrow, file.metadata.num_rows)
                self.groups += [
                    RowGroup(i, g, file.metadata.row_group(g).num_rows)
                    for g in range(file.num_row_groups)
                    if file.metadata.row_group(g).num_rows
                ]
        constants = [(n, pa.scalar(v).type) for n, v in self._files[0].constants.items()]
        for name, kind in constants:
            self.schema = self.schema.append(pa.field(name, kind))

    @cached_property
    def n_rows(self) -> int:
        """Of all files."""
        return sum(group.n_rows for group in self.groups)

    def _check(self, i: int, schema: pa.Schema, n_rows: int) -> None:
        """Refuse a file without rows, or with other columns than the first one."""
        if not n_rows:
            raise TableError(
                f"{self.names[i]} has columns but no rows: remove it from the data set."
            )
        schema = schema.remove_metadata()
        refuse_repeated(self.names[i], schema.names)
        if i == 0:
            self.schema = schema
            return
        first = self.names[0]
        for field in self.schema:
            if field.name not in schema.names:
                raise TableError(
                    f"{self.names[i]} has no column {field.name!r}, which {first} has: all files"
                    " of a data set need the same columns."
                )
            kind = schema.field(field.name).type
            if kind != field.type:
                raise TableError(
                    f"Column {field.name!r} is of type {kind} in {self.names[i]} and of type"
                    f" {field.type} in {first}: write all files with the same types."
                )
        more = [name for name in schema.names if name not in self.schema.names]
        if more:
            raise TableError(
                f"{self.names[i]} has a column {more[0]!r}, which {first} has not: all files of a"
                " data set need the same columns."
            )

    def where(self, group: RowGroup) -> str:
        """Name a row group in a message."""
        return f"{self.names[group.file]}, row group {group.index}"

    @contextmanager
    def _opened(self, i: int) -> Iterator[pq.ParquetFile]:
        file, name = self._files[i], self.names[i]
        try:
            if file.filesystem.get_file_info(file.path).size == 0:
                raise TableError(f"{name} is empty: remove it from the data set.")
            source = file.filesystem.open_input_file(file.path)
        except FileNotFoundError:
            raise TableError(f"There is no file {name}, or it has vanished.") from None
        what = f"{name} is damaged or not a Parquet file"
        with source, arrow_errors(what, ": write it again, or remove it from the data set"):
            yield pq.ParquetFile(source, buffer_size=BUFFER_BYTES, pre_buffer=False)

    def batches(
        self,
        group: RowGroup,
        columns: Sequence[str] | None = None,
        skip: int = 0,
        *,
        size: int = BATCH_ROWS,
    ) -> Iterator[pa.Table]:
        """Read columns of a row group in the order given, by default all, `size` rows at a time.

        The first rows, as many as `skip`, are left out.
        """
        names = self.schema.names if columns is None else columns
        constants = {n: v for n, v in self._files[group.file].constants.items() if n in names}
        wanted = [name for name in names if name not in constants]
        seen, what = 0, f"{self.where(group)} cannot be read"
        advice = ": write the file again, or remove it from the data set"
        with self._opened(group.file) as file, arrow_errors(what, advice):
            if group.index >= file.num_row_groups:
                raise self._changed(group)
            batches = file.iter_batches(
                size, row_groups=[group.index], columns=wanted, use_threads=False
            )
            for batch in batches:
                seen += len(batch)
                table = pa.Table.from_batches([batch])
                table = table.slice(max(0, skip - seen + len(batch)))
                if table.num_rows:
                    yield _with_constants(table, constants).select(names)
        if seen != group.n_rows:
            raise self._changed(group)

    def _changed(self, group: RowGroup) -> TableError:
        return TableError(
            f"{self.names[group.file]} has changed since the data set was opened: start again."
        )

    def read(self) -> pa.Table:
        """Give all rows."""
        return pa.concat_tables([t for group in self.groups for t in self.batches(group)])

    def held_out(self, group: RowGroup, share: float) -> NDArray[np.bool_]:
        """Which rows of a row group are held out: runs of rows, by a hash of the group's name.

        They do not depend on a seed, nor on which other files there are: a model fitted later, to
        more files, leaves out the same rows of the earlier ones.
        """
        name = self._places[group.file]
        digest = hashlib.sha256(f"{name}\n{group.index}".encode()).digest()
        drawn = np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))
        runs = drawn.random(-(-group.n_rows // RUN_ROWS)) < share
        return np.repeat(runs, RUN_ROWS)[: group.n_rows]

    @cached_property
    def _places(self) -> list[str]:
        """Names of the files below the folder that they share."""
        own = (os.path.abspath(name) if os.path.exists(name) else name for name in self.names)
        paths = [name.replace(os.sep, "/") for name in own]
        common = os.path.commonpath([os.path.dirname(path) for path in paths])
        return [path[len(common) :].lstrip("/") for path in paths]


def _with_constants(table: pa.Table, constants: dict[str, Any]) -> pa.Table:
    for name, value in constants.items():
        table = table.append_column(name, pa.repeat(value, table.num_rows))
    return table


# ---------------------------------------------------------------- what users give


def is_data_set(X: Any) -> bool:
    """Whether X names files rather than holding rows: a path, a pattern, a list, a data set."""
    if isinstance(X, str | os.PathLike | ds.Dataset):
        return True
    return isinstance(X, list | tuple) and bool(X) and all(isinstance(x, str | Path) for x in X)


def is_parquet(dataset: ds.Dataset) -> bool:
    """Whether a data set of pyarrow is of Parquet files and means all of their rows."""
    try:
        dataset.get_fragments()
    except ValueError:  # it is filtered or projected
        return False
    own = isinstance(dataset, ds.FileSystemDataset)
    return own and isinstance(dataset.format, ds.ParquetFileFormat)


def find_paths(source: Any) -> list[str]:
    """Give the files that a path, a pattern such as ``data/*.parquet``, a folder or a list names.

    Raises
    ------
    TableError
        If there is none.
    """
    if isinstance(source, list | tuple):
        return [path for each in source for path in find_paths(each)]
    text = os.fspath(source)
    if os.path.isdir(text):
        every = (str(path) for path in Path(text).rglob("*") if path.is_file())
        found = sorted(p for p in every if p.lower().endswith(_DATA_SUFFIXES) and not _hidden(p))
        if not found:
            raise TableError(f"The folder {text} holds no Parquet, CSV or Arrow file.")
        return found
    if os.path.exists(text) or not glob.has_magic(text):
        return [text]
    found = sorted(path for path in glob.glob(text, recursive=True) if os.path.isfile(path))
    if not found:
        raise TableError(f"No file matches {text!r}.")
    return found


def _hidden(path: str) -> bool:
    # As Spark and others mark files that are not data.
    return os.path.basename(path).startswith((".", "_"))


def open_files(source: Any, names: Sequence[str] | None = None) -> DataFiles:
    """Open the Parquet files of a data set: what `find_paths` takes, or a data set of pyarrow.

    `names` are what the files are called in messages, if not by their paths.
    """
    if isinstance(source, ds.Dataset):
        files = [
            _File(
                fragment.path,
                fragment.filesystem,
                ds.get_partition_keys(fragment.partition_expression),
            )
            for fragment in source.get_fragments()
        ]
        if not files:
            raise TableError("The data set has no files.")
        return DataFiles(files)
    local = pafs.LocalFileSystem()
    return DataFiles([_File(path, local, {}) for path in find_paths(source)], names)
