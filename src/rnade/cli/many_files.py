"""Commands over data sets of files: each file in, a Parquet file out, and what is done is kept."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rnade.cli.files import names_several
from rnade.cli.options import Output
from rnade.cli.terminal import counted, note, print_json, shows_progress


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
    result: Output,
    summary: Callable[[], dict[str, Any]] = dict,
) -> None:
    """Make a file of each file of a data set, with a bar, and say what was done.

    Files that another model, or the function with other `settings`, has made are not kept. `what`
    is done is a word such as Scoring, and `summary` gives what else to tell at the end.
    """
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
    paths = [
        path for path, target in destinations(data, output) if result.force or not target.exists()
    ]
    if all(path.endswith((".parquet", ".pq")) for path in paths):
        total = sum(open_files([path]).n_rows for path in paths)
    try:
        with rows_bar(what, total, shown=shows_progress(quiet=result.quiet)) as on_rows:
            done = transform_files(
                data, output, function, f"{digest} {settings}", force=result.force, on_rows=on_rows
            )
    except TableError:
        note(f"what is complete in {output} is kept; run again to go on", quiet=result.quiet)
        raise
    told = {"n_rows": done.n_rows, "written": done.written, "kept": done.kept, **summary()}
    if result.as_json:
        print_json({"summary": told})
    else:
        say_written(done, output, quiet=result.quiet)


def say_written(done: Any, output: str, *, quiet: bool) -> None:
    """Say which files of a folder are new, and which are of an earlier run."""
    kept = f"; {counted(len(done.kept), 'file')} of an earlier run kept" if done.kept else ""
    files = counted(len(done.written), "file")
    note(f"wrote {counted(done.n_rows, 'row')} to {files} in {output}{kept}", quiet=quiet)
