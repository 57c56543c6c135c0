"""Files of a data set, each made into another, batch by batch; what is done is not done again."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

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
    """What became of a data set: files written now, those of an earlier run, rows of the first."""

    written: list[str]
    kept: list[str]
    n_rows: int


def destinations(source: Any, folder: str | Path) -> list[tuple[str, Path]]:
    """Give each file of a data set with its name in a folder, always a Parquet file.

    No two may have the same name, and none may replace its source.
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
    that was killed goes on with the file at which it was. With `force` files that were made
    otherwise are replaced. `mark` says what `function` does, such as a digest of a model.
    """

    def targets() -> Iterator[_Target]:
        for path, target in destinations(source, folder):
            own = _mark(mark, path)
            why = f"was not made from {path} as it is, by this model"

            def write(path: str = path, target: Path = target, own: bytes = own) -> int:
                with opened([path]) as files:
                    return _transform(files, target, function, own, on_rows)

            yield _Target(target, own, why, write)

    return _write_missing(folder, targets(), force=force)


def write_parts(
    folder: str | Path,
    n_parts: int,
    tables: Callable[[int], Iterable[pa.Table]],
    mark: str | None,
    *,
    force: bool = False,
) -> Transformed:
    """Write files part-00000.parquet and so on, whole or not at all; those that are there stay.

    `tables` gives those of part i, one for each row group; `mark` says how parts are made: those
    made otherwise are refused, or replaced with `force`. It is None if no two are alike.
    """

    def targets() -> Iterator[_Target]:
        for i in range(n_parts):
            target = Path(folder) / f"part-{i:05d}.parquet"
            own = None if mark is None else _digest(f"{mark} {i}")

            def write(target: Path = target, own: bytes | None = own, i: int = i) -> int:
                return _write_whole(target, tables(i), own or b"")

            yield _Target(target, own, "is not of these draws", write)

    return _write_missing(folder, targets(), force=force)


class _Target(NamedTuple):
    """A file to be written: its mark, None if no two are alike, and why another is refused."""

    path: Path
    mark: bytes | None
    refused: str
    write: Callable[[], int]


def _write_missing(folder: str | Path, targets: Iterable[_Target], *, force: bool) -> Transformed:
    """Write those files of a folder that are not there yet."""
    os.makedirs(folder, exist_ok=True)
    written, kept, n_rows = [], [], 0
    for path, mark, refused, write in targets:
        if path.exists() and not force:
            if mark is None or _made_from(path) != mark:
                raise TableError(
                    f"{path} exists already, and {refused}: pass --force to overwrite it, or"
                    " choose another folder."
                )
            kept.append(str(path))
            continue
        n_rows += write()
        written.append(str(path))
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
    return _digest(told)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).hexdigest().encode()


def _made_from(path: Path) -> bytes | None:
    try:
        metadata = pq.read_schema(path).metadata or {}
    except (pa.ArrowException, OSError):
        return None
    return metadata.get(_MARK)
