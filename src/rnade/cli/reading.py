"""Tables as commands read them: to fit a model to, and for a model that is fitted."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rnade.cli import options
from rnade.cli.kinds import (
    MOST_NOTES,
    in_our_words,
    infer,
    sorts_of,
    tell_kinds,
    with_marks,
    without_gaps,
)
from rnade.cli.terminal import counted, note, shows_progress

if TYPE_CHECKING:
    from rnade.columns import Schema
    from rnade.tables import Frame, Table


def numbers_to_fit(
    data: str, reading: options.Reading, use: options.Use, *, of_bits: bool, quiet: bool
) -> "Table":
    """Read numeric columns, as all models take them."""
    from rnade.tables import read_table

    table = read_table(
        data,
        **reading.for_numbers(),
        exclude=use.exclude or (),
        weight=use.weight,
        # The density of a constant is infinite, but a bit that never changes is a bit.
        constant="keep" if of_bits else "leave out",
        ids="leave out",
    )
    _say_what_is_left_out(table, quiet=quiet)
    _say_notes(table, quiet=quiet)
    return table


def kinds_to_fit(
    data: str,
    reading: options.Reading,
    use: options.Use,
    kinds: Mapping[str, str],
    *,
    quiet: bool,
) -> "tuple[Frame, Schema, dict[str, Any]]":
    """Read columns of any kind; give them, what they hold, and the parameters that say it."""
    from rnade.tables import as_marks, read_frame

    missing = str(reading.missing or options.Missing.ignore)
    frame, named = read_frame(
        data,
        **reading.for_kinds(),
        exclude=use.exclude or (),
        weight=use.weight,
        kinds=kinds,
        index="leave out",
    )
    frame, schema, named = infer(
        frame, named, missing=missing, na=reading.marks, asked_for=reading.columns is not None
    )
    reasons = {name: in_our_words(why, frame) for name, why in schema.left_out.items()}
    ids = [name for name, why in reasons.items() if why.startswith("looks like")]
    frame = replace(
        frame,
        left_out={**frame.left_out, **reasons},
        notes=[
            *frame.notes,
            *(in_our_words(text, frame) for text in schema.notes),
            *(f"column {name!r} is kept if --columns names it" for name in ids),
        ],
    )
    # In a terminal the estimator tells the kinds itself, and what is left out of them.
    if not shows_progress(quiet=quiet) or schema.is_plain:
        tell_kinds(schema, quiet=quiet)
        _say_what_is_left_out(frame, quiet=quiet)
    _say_notes(frame, quiet=quiet)
    parameters: dict[str, Any] = {"na": as_marks(reading.marks)}
    if named:
        parameters["columns"] = named
    if missing == "informative":
        parameters["missing"] = missing
    return frame, schema, parameters


def read_for(
    estimator: Any,
    data: str,
    reading: options.Reading,
    *,
    weight: str | None = None,
    quiet: bool,
    to_fill: bool = False,
) -> Any:
    """Read a model's columns: by name, or by position where the model has no names.

    Gives a `Frame` for models of tables with columns of any kind, and a `Table` for others; always
    a `Frame` with `to_fill`, which says that other columns are kept, and cells may be missing.
    """
    from rnade.columns.names import is_read_by_kind

    if reading.missing == options.Missing.informative:
        raise ValueError("--missing informative is an option for rnade fit.")
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        if reading.columns is not None:
            raise ValueError(
                "--columns is for models fitted without column names; this one has names."
            )
        reading = replace(reading, columns=[str(name) for name in names])
    read = _kinds_for if is_read_by_kind(estimator) or to_fill else _numbers_for
    table = read(estimator, data, reading, weight)
    if names is not None and not to_fill:
        _say_ignored(table, quiet=quiet)
    _say_notes(table, quiet=quiet)
    return table


def _numbers_for(
    estimator: Any, data: str, reading: options.Reading, weight: str | None
) -> "Table":
    from rnade.tables import read_table

    table = read_table(data, **reading.for_numbers(), weight=weight)
    if reading.columns is None or not hasattr(estimator, "feature_names_in_"):
        _check_number(table, estimator.n_features_in_, "numeric column")
    return table


def _kinds_for(estimator: Any, data: str, reading: options.Reading, weight: str | None) -> "Frame":
    from rnade.tables import read_frame

    schema = with_marks(estimator, reading.marks)
    marks = [*reading.marks, *(mark for mark in schema.na if isinstance(mark, str))]
    reading = replace(reading, na=list(dict.fromkeys(marks)))
    kinds = None
    if schema.frame != "array":
        kinds = sorts_of(schema)
        reading = replace(reading, columns=list(kinds))
    table, _ = read_frame(data, **reading.for_kinds(), weight=weight, kinds=kinds)
    if schema.frame == "array":
        _check_number(table, len(schema.inputs), "column")
    if reading.missing in (options.Missing.error, options.Missing.drop):
        table = without_gaps(table, schema, str(reading.missing))
    return table


def _check_number(table: "Table | Frame", expected: int, noun: str) -> None:
    """Refuse another number of columns than a model without names has."""
    from rnade.exceptions import TableError

    if len(table.names) != expected:
        raise TableError(
            f"{table.source} has {counted(len(table.names), noun)}; the model, which has no column"
            f" names, expects {expected}. Choose them with --columns."
        )


def _say_ignored(table: "Table | Frame", *, quiet: bool) -> None:
    from rnade.tables import NOT_CHOSEN, listed

    ignored = [name for name, why in table.left_out.items() if why == NOT_CHOSEN]
    if ignored:
        note(f"columns not in the model are ignored: {listed(ignored)}", quiet=quiet)


def _say_what_is_left_out(table: "Table | Frame", *, quiet: bool) -> None:
    from rnade.tables import NOT_CHOSEN

    reasons = [(name, why) for name, why in table.left_out.items() if why != NOT_CHOSEN]
    for name, why in reasons[:MOST_NOTES]:
        note(f"left out column {name!r}: {why}", quiet=quiet)
    if len(reasons) > MOST_NOTES:
        more = counted(len(reasons) - MOST_NOTES, "more column")
        note(f"left out {more}", quiet=quiet)


def _say_notes(table: "Table | Frame", *, quiet: bool) -> None:
    """Say what to check about the columns, and how many rows were left out."""
    for text in table.notes[:MOST_NOTES]:
        note(text, quiet=quiet)
    if table.dropped_rows:
        rows = counted(table.n_rows + table.dropped_rows, "row")
        note(f"left out {table.dropped_rows} of {rows} for a missing cell", quiet=quiet)
