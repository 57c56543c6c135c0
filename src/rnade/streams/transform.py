"""Files of a data set, each made into another, batch by batch; what is done is not done again."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rnade.exceptions import TableError
from rnade.streams.files import DataFiles, find_paths
from rnade.streams.spool import opened

# Rows that are worked on at a time: few take longer, and more take memory.
ROWS_AT_A_TIME = 2**17
# In the metadata of a file that was written: from what it was made.
_MARK = b"rnade"


@dataclass(frozen=True)
class Transformed:
    """What became of a data set.

    Attributes
    ----------
    written, kept : list of str
        Files written now, and files of an earlier run.
    n_rows : int
        Of the files written now.
    """

    written: list[str]
    kept: list[str]
    n_rows: int


def destinations(source: Any, folder: str | Path) -> list[tuple[str, Path]]:
    """Give each file of a data set with its name in a folder, always a Parquet file.

    Raises
    ------
    TableError
        If two would have the same name, or one would replace its source.
    """
    found: dict[Path, str] = {}
    for path in find_paths(source):
        stem = Path(path).name.removesuffix(".gz")
        target = Path(folder) / f"{Path(stem).stem}.parquet"
        if target in found:
            raise TableError(
                f"{path} and {found[target]} would both be written to {target}: rename one."
            )
        if target.exists() and os.path.samefile(target, path):
            raise TableError(f"{path} would be written over itself: choose another folder.")
        found[target] = path
    return [(path, target) for target, path in found.items()]


def transform_files(
    source: Any,
    folder: str | Path,
    function: Callable[[pa.Table], pa.Table],
    mark: str,
    *,
    force: bool = False,
    on_rows: Callable[[int], None] = lambda n: None,
) -> Transformed:
    """Write a Parquet file for each file of a data set, whole or not at all.

    Files that an earlier run has made, of the same sources by the same function, are kept: a run
    that was killed goes on with the file at which it was.

    Parameters
    ----------
    source : path, pattern, list of paths
    folder : path
        Made if need be.
    function : callable
        Makes a table of a table of some rows.
    mark : str
        Says what `function` does, such as a digest of a model.
    force : bool
        Whether to replace files that were made otherwise.
    on_rows : callable
        Called with the number of rows of each batch.
    """
    os.makedirs(folder, exist_ok=True)
    written, kept, n_rows = [], [], 0
    for path, target in destinations(source, folder):
        own = _mark(mark, path)
        if target.exists() and not force:
            if _made_from(target) != own:
                raise TableError(
                    f"{target} exists already, and was not made from {path} as it is, by this"
                    " model: pass --force to overwrite it, or choose another folder."
                )
            kept.append(str(target))
            continue
        with opened([path]) as files:
            n_rows += _transform(files, target, function, own, on_rows)
        written.append(str(target))
    return Transformed(written, kept, n_rows)


def write_parts(
    folder: str | Path,
    n_parts: int,
    tables: Callable[[int], Iterable[pa.Table]],
    mark: str | None,
    *,
    force: bool = False,
) -> Transformed:
    """Write files part-00000.parquet and so on, whole or not at all; those that are there stay.

    Parameters
    ----------
    folder : path
        Made if need be.
    n_parts : int
    tables : callable
        Gives the tables of part i, one for each row group.
    mark : str or None
        Says how parts are made: those made otherwise are refused. None if no two are alike.
    force : bool
        Whether to replace files that are there.
    """
    os.makedirs(folder, exist_ok=True)
    written, kept, n_rows = [], [], 0
    for i in range(n_parts):
        target = Path(folder) / f"part-{i:05d}.parquet"
        own = b"" if mark is None else hashlib.sha256(f"{mark} {i}".encode()).hexdigest().encode()
        if target.exists() and not force:
            if mark is None or _made_from(target) != own:
                raise TableError(
                    f"{target} exists already, and is not of these draws: pass --force to"
                    " overwrite it, or choose another folder."
                )
            kept.append(str(target))
            continue
        n_rows += _write_whole(target, tables(i), own)
        written.append(str(target))
    return Transformed(written, kept, n_rows)


def _transform(
    files: DataFiles,
    target: Path,
    function: Callable[[pa.Table], pa.Table],
    mark: bytes,
    on_rows: Callable[[int], None],
) -> int:
    def tables() -> Iterator[pa.Table]:
        for group in files.groups:
            parts = []
            for batch in files.batches(group, size=ROWS_AT_A_TIME):
                try:
                    parts.append(function(batch))
                except ValueError as error:
                    raise TableError(f"{files.where(group)}: {error}") from error
                on_rows(batch.num_rows)
            yield pa.concat_tables(parts)

    return _write_whole(target, tables(), mark)


def _write_whole(target: Path, tables: Iterable[pa.Table], mark: bytes) -> int:
    """Write tables as the row groups of a file, under another name until it is complete."""
    temporary = target.with_name(f".{target.name}.part")
    writer: Any = None
    n_rows, written = 0, None
    # What is written and what is made next take turns on the disk and the processors.
    with ThreadPoolExecutor(1) as beside:
        try:
            for table in tables:
                table = table.replace_schema_metadata({_MARK: mark})
                if writer is None:
                    # Dictionaries of numbers that are all different take time, and as much room.
                    texts = [f.name for f in table.schema if not pa.types.is_floating(f.type)]
                    writer = pq.ParquetWriter(temporary, table.schema, use_dictionary=texts)
                if written is not None:
                    written.result()
                written = beside.submit(writer.write_table, table)
                n_rows += table.num_rows
            if written is not None:
                written.result()
            writer.close()
            os.replace(temporary, target)
        finally:
            if writer is not None:
                if written is not None:
                    written.exception()  # is waited for
                writer.close()
            temporary.unlink(missing_ok=True)
    return n_rows


def _mark(mark: str, path: str) -> bytes:
    found = os.stat(path)
    told = f"{mark}\n{os.path.basename(path)}\n{found.st_size}\n{found.st_mtime_ns}"
    return hashlib.sha256(told.encode()).hexdigest().encode()


def _made_from(path: Path) -> bytes | None:
    try:
        metadata = pq.read_schema(path).metadata or {}
    except (pa.ArrowException, OSError):
        return None
    return metadata.get(_MARK)
