"""Kinds of columns on the command line: what ``--kind`` means, and a schema's words in ours."""

import ast
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rnade.checks import unknown_name
from rnade.cli.terminal import counted, note

if TYPE_CHECKING:
    from rnade.columns import Schema
    from rnade.tables import Frame

KINDS = ("real", "integer", "category", "ordinal", "boolean", "date", "leave-out")
# Columns, notes and reasons told one by one; of more, the number is told.
MOST_NOTES = 20


def parse_kinds(given: Sequence[str]) -> dict[str, str] | None:
    """Give the kinds that ``--kind`` names, by column; None for ``--kind real`` alone.

    >>> parse_kinds(["city=category", "rings=integer"]), parse_kinds(["real"])
    ({'city': 'category', 'rings': 'integer'}, None)
    """
    kinds: dict[str, str] = {}
    for word in given:
        name, equals, kind = word.rpartition("=")
        if not equals and word == "real":
            if len(given) > 1:
                raise ValueError("--kind real, for all columns, must be the only --kind.")
            return None
        if not equals or not name:
            raise ValueError(
                f"Expected --kind NAME=KIND, such as --kind city=category, or --kind real for all"
                f" columns; got {word!r}."
            )
        if kind not in KINDS:
            raise unknown_name(kind, list(KINDS), "kind of column")
        if name in kinds:
            raise ValueError(f"--kind names column {name!r} more than once.")
        kinds[name] = kind
    return kinds


def infer(
    frame: "Frame", kinds: Mapping[str, str], *, missing: str, na: Sequence[str], asked_for: bool
) -> "tuple[Frame, Schema, dict[str, str]]":
    """Find out what the columns of a table hold, and leave out the rows that are not to be used.

    Gives the rows that are left, their schema, and the kinds to be given to the estimator.

    Parameters
    ----------
    kinds : mapping of str to str
        Of single columns, by name.
    missing : {"error", "drop", "ignore", "informative"}
    na : sequence of str
        Marks of missing cells.
    asked_for : bool
        Whether the user named the columns: then those that look like ids are kept, and a column
        that cannot be used is an error.
    """
    kinds = dict(kinds)
    schema = _schema(frame, kinds, missing, na)
    if asked_for and schema.left_out:
        from rnade.exceptions import TableError

        for name, reason in schema.left_out.items():
            if not reason.startswith("looks like"):
                raise TableError(
                    f"{frame.source}: column {name!r} cannot be used:"
                    f" {in_our_words(reason, frame)}."
                )
            is_text = "text" in reason
            kinds[name] = "category" if is_text else "integer"
        schema = _schema(frame, kinds, missing, na)
    if missing in ("error", "drop"):
        kept = without_gaps(frame, schema, missing)
        if kept is not frame:
            frame, schema = kept, _schema(kept, kinds, missing, na)
    return frame, schema, kinds


def _schema(frame: "Frame", kinds: Mapping[str, str], missing: str, na: Sequence[str]) -> "Schema":
    from rnade.columns import Schema
    from rnade.tables import as_marks

    how = "informative" if missing == "informative" else "ignore"
    with errors_in_our_words(frame):
        return Schema.infer(frame.cells, dict(kinds) or None, how, as_marks(na))


def without_gaps(frame: "Frame", schema: "Schema", missing: str) -> "Frame":
    """Leave out the rows with a missing cell in a column of the schema, or raise for the first."""
    from rnade.exceptions import TableError

    with errors_in_our_words(frame):
        _, seen = schema.encode(frame.cells)
    kept: Any = seen.all(axis=1)
    if kept.all():
        return frame
    n_missing = int((~seen).sum())
    if missing == "error":
        row = int((~kept).argmax())
        name = schema.names[int((~seen[row]).argmax())]
        raise TableError(
            f"{frame.source} has {counted(n_missing, 'missing cell')}, the first in"
            f" {frame.place(row)}, column {name!r}; fix them, leave such rows out with --missing"
            " drop, or let rows count by their other cells with --missing ignore."
        )
    if not kept.any():
        worst = schema.names[int(seen.sum(axis=0).argmin())]
        raise TableError(
            f"{frame.source}: no row is left, each has a missing cell (most in column {worst!r})."
        )
    return frame.keep(kept)


def sorts_of(schema: "Schema") -> dict[str, str]:
    """Give the kinds by which a file's columns are read for a model."""
    found = {}
    of_levels = {str: "category", bool: "boolean", int: "real", float: "real"}
    for column in (*schema.columns, *schema.constants):
        if column.indicates is None:
            found[column.name] = column.kind
            if column.kind == "category":
                assert column.levels is not None
                found[column.name] = of_levels[type(column.levels[0])]
    return found


@contextmanager
def errors_in_our_words(frame: "Frame") -> Iterator[None]:
    """Within it, what a schema raises names the file, its lines and the options to use."""
    from rnade.exceptions import TableError

    try:
        yield
    except TableError:
        raise
    except ValueError as error:
        text = in_our_words(str(error), frame)
        if text.startswith("Column "):
            text = f"column {text.removeprefix('Column ')}"
        raise TableError(f"{frame.source}: {text}") from error


def in_our_words(text: str, frame: "Frame") -> str:
    """Say what a schema says to users of Python to those of the command line.

    Parameters become options, and rows counted from 0 become places in the file.
    """

    def kind(found: re.Match[str]) -> str:
        return f"--kind {shlex.quote(f'{ast.literal_eval(found[1])}={found[2]}')}"

    def marks(found: re.Match[str]) -> str:
        if found[1] == "...":
            return "--na"
        values = ast.literal_eval(f"[{found[1]}]")
        words = dict.fromkeys(f"{m:g}" if isinstance(m, float) else str(m) for m in values)
        return f'--na "{",".join(words)}"'

    def place(found: re.Match[str]) -> str:
        return f" in {frame.place(int(found[1]))}"

    text = re.sub(r"""columns=\{((?:'[^']*'|"[^"]*")): "([\w-]+)"\}""", kind, text)
    text = text.replace("columns={...}", "--kind")
    text = re.sub(r"na=\[([^\]]*)\]", marks, text)
    text = re.sub(r'missing="(\w+)"', r"--missing \1", text)
    text = re.sub(r" in row (\d+)\b", place, text)
    text = re.sub(r", e\.g\. with pandas[^.]*\.\w+(?: or polars' \S+\w)?", "", text)
    return text.replace("No column of X", "no column")


def tell_kinds(schema: "Schema", *, quiet: bool) -> None:
    """Say what each column holds, one line each, unless all are complete real numbers."""
    if schema.is_plain:
        return
    described = [
        (name, kind, more)
        for name, kind, more in schema.describe()
        if kind not in ("left out", "indicator")
    ]
    for name, kind, more in described[:MOST_NOTES]:
        note(f"column {name!r}: {kind}" + (f" ({more})" if more else ""), quiet=quiet)
    if len(described) > MOST_NOTES:
        note(f"{counted(len(described) - MOST_NOTES, 'more column')}", quiet=quiet)


def with_marks(estimator: Any, na: Sequence[str]) -> Any:
    """Give the schema of a fitted model, which then takes further marks as missing cells."""
    from rnade.tables import as_marks

    schema = estimator.schema_
    added = [mark for mark in as_marks(na) if mark not in schema.na]
    if added:
        estimator.schema_ = schema = replace(schema, na=(*schema.na, *added))
    return schema
