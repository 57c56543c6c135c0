"""Data sets of several files, or of one that does not fit into memory, on the command line."""

import glob
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rnade.cli import options
from rnade.cli.kinds import parse_kinds, tell_kinds
from rnade.cli.terminal import counted, note


@dataclass(frozen=True)
class FileSet:
    """What is told of a data set that was fitted, as of a table; files have no weights."""

    source: str
    n_rows: int
    left_out: Mapping[str, str]
    dropped_rows: int = 0
    weights: None = None


def names_several(data: str) -> bool:
    """Whether an argument names a folder or is a pattern such as ``data/*.parquet``."""
    return os.path.isdir(data) or (glob.has_magic(data) and not os.path.exists(data))


def is_too_large(data: str, memory: str | None) -> bool:
    """Whether a file is not to be read at once: by ``--memory``, else by what the machine has."""
    if data == "-" or not os.path.exists(data):
        return False
    from rnade.estimators.streaming import IN_MEMORY
    from rnade.streams import bytes_of, machine_memory

    # A number takes some eight bytes, as text and in Parquet files.
    cells = os.path.getsize(data) / 8
    return cells * IN_MEMORY > (machine_memory() if memory is None else bytes_of(memory))


def fit_files(
    estimator: Any, data: str, use: options.Use, reading: options.Reading, *, quiet: bool
) -> FileSet:
    """Fit an estimator to files, as the options of `rnade fit` say."""
    _refuse(use.weight, reading)
    from rnade.exceptions import TableWarning
    from rnade.tables import as_marks

    kinds = parse_kinds(use.kind or ())
    columns: Any = (
        "real" if kinds is None else {**kinds, **_unwanted(data, use.exclude or (), reading)}
    )
    missing = "informative" if reading.missing == options.Missing.informative else "ignore"
    estimator.set_params(columns=columns or "auto", missing=missing, na=as_marks(reading.marks))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)  # the schema's notes, which are told below
        estimator.fit(data)
    schema = estimator.schema_
    if schema is not None:
        if not estimator.verbose:
            tell_kinds(schema, quiet=quiet)
        for text in schema.notes:
            note(text, quiet=quiet)
    found = estimator.data_
    if found is not None:
        note(
            f"streamed {counted(found['files'], 'file')}; quantiles and atoms are those of a"
            f" sample of {counted(found['sampled_rows'], 'row')}",
            quiet=quiet,
        )
    return FileSet(data, estimator.n_rows_, {} if schema is None else schema.left_out)


def _unwanted(data: str, exclude: Sequence[str], reading: options.Reading) -> dict[str, str]:
    """Columns that are to be left out."""
    if reading.columns is None:
        return dict.fromkeys(exclude, "leave-out")
    from rnade.exceptions import TableError
    from rnade.streams.spool import opened

    with opened(data) as files:
        names = files.schema.names
    for name in reading.columns:
        if name not in names:
            raise TableError(f"{data} has no column {name!r}.")
    kept = [name for name in reading.columns if name not in exclude]
    return {name: "leave-out" for name in names if name not in kept}


def _refuse(weight: str | None, reading: options.Reading) -> None:
    """Refuse options that are for single files which are read at once."""
    given = {
        "--weight": weight,
        "--separator": reading.separator,
        "--decimal": reading.decimal,
        "--header": reading.header,
        f"--missing {reading.missing}": (
            reading.missing in (options.Missing.error, options.Missing.drop) or None
        ),
    }
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} is for one file that is read at once, not for several or for one larger"
                " than --memory."
            )
