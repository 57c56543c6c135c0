"""Commands over data sets of files: each file in, a Parquet file out, and what is done is kept."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rnade.cli.files import names_several
from rnade.cli.terminal import counted, note, print_json


def writes_folder(data: str, output: str) -> bool:
    """Whether the result is a folder of files: of several, or named with a slash at the end."""
    return names_several(data) or output.endswith(("/", os.sep)) or os.path.isdir(output)


def refuse(given: dict[str, Any]) -> None:
    """Refuse options that are for one table that is read at once."""
    for name, value in given.items():
        if value is not None and value is not False:
            raise ValueError(f"{name} is for one file, written to one file.")


def into_folder(
    data: str,
    output: str,
    function: Callable[[Any], Any],
    *,
    model: str,
    settings: Any,
    what: str,
    force: bool,
    quiet: bool,
    as_json: bool,
    summary: Callable[[], dict[str, Any]] = dict,
) -> None:
    """Make a file of each file of a data set, with a bar, and say what was done.

    Parameters
    ----------
    data, output : str
        The files, and the folder to write to.
    function : callable
        Makes an Arrow table of an Arrow table.
    model : str
        The model file, and `settings` of the function: files made by others are not kept.
    what : str
        What is done, in a word: Scoring.
    summary : callable
        Gives what else to tell at the end.
    """
    import sys

    from rnade.exceptions import TableError
    from rnade.progress import rows_bar
    from rnade.streams import open_files
    from rnade.streams.transform import destinations, transform_files

    if output == "-":
        raise ValueError("Several files are written to a folder: name it with -o FOLDER/.")
    if os.path.exists(output) and not os.path.isdir(output):
        raise ValueError(f"{output} is a file; several files are written to a folder.")
    digest = hashlib.sha256(Path(model).read_bytes()).hexdigest()
    total = None
    paths = [path for path, target in destinations(data, output) if force or not target.exists()]
    if all(path.endswith((".parquet", ".pq")) for path in paths):
        total = sum(open_files([path]).n_rows for path in paths)
    try:
        with rows_bar(what, total, shown=sys.stderr.isatty() and not quiet) as on_rows:
            done = transform_files(
                data, output, function, f"{digest} {settings}", force=force, on_rows=on_rows
            )
    except TableError:
        note(f"what is complete in {output} is kept; run again to go on", quiet=quiet)
        raise
    told = {"n_rows": done.n_rows, "written": done.written, "kept": done.kept, **summary()}
    if as_json:
        print_json({"summary": told})
        return
    kept = f"; {counted(len(done.kept), 'file')} of an earlier run kept" if done.kept else ""
    rows = counted(done.n_rows, "row")
    note(f"wrote {rows} to {counted(len(done.written), 'file')} in {output}{kept}", quiet=quiet)
