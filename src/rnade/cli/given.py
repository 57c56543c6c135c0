"""What conditions mean: their words as values of a model's columns, by the kinds of these."""

import datetime as dt
import difflib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from rnade.cli.conditions import Condition, Interval, write_value

if TYPE_CHECKING:
    from rnade.columns import Column

# Names and levels told in a message; of more, the number is told.
MOST_NAMES = 12


def prepared(estimator: Any) -> Any:
    """Give a model that answers questions, in tables of pyarrow; or say why it cannot.

    Whatever frame was fitted: the command line takes no other library.
    """
    answers = hasattr(estimator, "conditional") and estimator.answers_questions
    if not answers and not hasattr(estimator, "questions"):
        kind = type(estimator).__name__
        which = " of complete real-valued columns" if kind == "FVBN" else ""
        raise ValueError(
            f"{kind} models{which} do not answer questions about some columns given others. Fit"
            " one that does with --model rnade."
        )
    if not answers:
        raise ValueError(
            "This model has no networks that answer questions about some columns given others. Fit"
            " it again without --no-questions, --no-ensemble and --recipe paper."
        )
    schema = estimator._asked_schema
    estimator.schema_ = schema if schema.frame == "array" else replace(schema, frame="pyarrow")
    return estimator


def nothing_known(column: str, estimator: Any) -> Any:
    """Give a table of one row that tells nothing, for questions about a column without others."""
    import pyarrow as pa

    schema = estimator.schema_
    names = map(str, schema.inputs) if schema.frame == "array" else [column]
    return pa.table({name: pa.nulls(1) for name in names})


def find_column(name: str, estimator: Any) -> "Column":
    """Give a column of a model by its name, or say which there are.

    Those of a model that was fitted without names are called x1, x2, ...
    """
    schema = estimator.schema_
    left_out = dict((getattr(estimator, "origin_", None) or {}).get("left_out", {}))
    left_out |= schema.left_out | {c.name: "constant" for c in schema.constants}
    columns: dict[str, Column] = {column.name: column for column in schema.columns}
    if name in columns:
        return columns[name]
    if name in left_out:
        raise ValueError(f"Column {name!r} is not in the model: {left_out[name]}.")
    raise ValueError(f"The model has no column {name!r}; {_instead(name, list(columns))}")


def values_of(conditions: Iterable[Condition], estimator: Any) -> dict[str, Any]:
    """Give what conditions say as values that estimators take, by column.

    These are levels, numbers and dates; of an interval a tuple of its ends, None where it is open.
    Where there is no such column, or it cannot hold such a value, an error says which it can hold.
    """
    found = {}
    for condition in conditions:
        column, value = find_column(condition.column, estimator), condition.value
        found[column.name] = (
            _interval(value, column) if isinstance(value, Interval) else read_value(value, column)
        )
    return found


@contextmanager
def errors_as_typed(conditions: Iterable[Condition], given: Mapping[str, Any]) -> Iterator[None]:
    """Within it, what an estimator raises tells intervals as they were typed, and no rows."""
    try:
        yield
    except ValueError as error:
        text = str(error).replace(" in row 0", "")
        for condition in conditions:
            value = write_value(condition.value)
            text = text.replace(repr(given[condition.column]), value)
        raise ValueError(text) from error


def read_value(word: str, column: "Column") -> Any:
    """Give the value that a word stands for in a column.

    >>> from rnade.columns.column import Column
    >>> read_value("2020-02-01", Column("day", "date", dtype="date32[day]", unit="day"))
    datetime.date(2020, 2, 1)
    >>> read_value("TRUE", Column("ok", "category", levels=(False, True)))
    True
    """
    if column.levels is not None:
        return _level(word, column, column.levels)
    read = {"integer": _whole, "date": _date}.get(column.kind, _real)
    return read(word, column)


def _interval(interval: Interval, column: "Column") -> tuple[Any, Any]:
    if column.levels is not None and not column.ordered:
        raise ValueError(
            f"The levels of column {column.name!r} have no order, so that there are no intervals"
            f" of them: give one of {_listed(column.levels)}. A level with .. in it stands in"
            " quotes."
        )
    low, high = (
        None if end is None else read_value(end, column) for end in (interval.low, interval.high)
    )
    ends: list[Any] = [low, high]
    if column.levels is not None:
        ends = [None if end is None else column.levels.index(end) for end in ends]
    if None not in ends and ends[0] > ends[1]:
        raise ValueError(
            f"The interval {interval.low}..{interval.high} of column {column.name!r} ends below"
            " where it begins; swap its ends."
        )
    return low, high


def _level(word: str, column: "Column", levels: Sequence[Any]) -> Any:
    if isinstance(levels[0], str):
        meant: Any = word
    elif isinstance(levels[0], bool):
        meant = {"true": True, "1": True, "false": False, "0": False}.get(word.lower())
    else:
        meant = _number(word)
    for level in levels:
        if level == meant:
            return level
    names = [_shown(level) for level in levels]
    raise ValueError(f"Column {column.name!r} has no level {word!r}; {_instead(word, names)}")


def _number(word: str) -> float:
    """Give the number that a word is; NaN if it is none."""
    try:
        number = float(word)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def _whole(word: str, column: "Column") -> int:
    number = _number(word)
    if not number.is_integer():
        raise ValueError(f"Column {column.name!r} holds whole numbers, such as 40; got {word!r}.")
    return int(number)


def _real(word: str, column: "Column") -> Any:
    import pyarrow as pa

    from rnade.columns.frames import arrow_type

    kind = arrow_type(column.dtype)
    if pa.types.is_time(kind):
        try:
            return dt.time.fromisoformat(word)
        except ValueError:
            raise ValueError(
                f"Column {column.name!r} holds times of day, such as 18:30; got {word!r}."
            ) from None
    number = _number(word)
    if math.isnan(number):
        what = "spans of time in seconds" if pa.types.is_duration(kind) else "numbers"
        raise ValueError(f"Column {column.name!r} holds {what}, such as 12.5; got {word!r}.")
    return dt.timedelta(seconds=number) if pa.types.is_duration(kind) else number


def _date(word: str, column: "Column") -> Any:
    from rnade.columns.frames import arrow_type

    example = "2020-12-31" if column.unit == "day" else "2020-12-31 18:30"
    wrong = ValueError(f"Column {column.name!r} holds dates, such as {example}; got {word!r}.")
    try:
        found = dt.datetime.fromisoformat(word)
    except ValueError:
        raise wrong from None
    if column.unit == "day":
        if found.timetz() != dt.time():
            raise wrong
        return found.date()
    zone = getattr(arrow_type(column.dtype), "tz", None)
    if zone is not None:
        # What has no zone is meant on the clock of the column's.
        return found if found.tzinfo else found.replace(tzinfo=ZoneInfo(zone))
    if found.tzinfo is not None:
        raise ValueError(f"Column {column.name!r} has no time zone; got {word!r}. Leave it out.")
    return found


def _instead(word: str, known: Sequence[str]) -> str:
    """Say what was perhaps meant, and what there is."""
    folded = {name.casefold().strip(): name for name in known}
    near = difflib.get_close_matches(word.casefold().strip(), folded, n=1)
    guess = f"did you mean {folded[near[0]]!r}? It" if near else "it"
    return f"{guess} has {_listed(known)}."


def _listed(levels: Sequence[Any]) -> str:
    from rnade.tables import listed

    return listed([_shown(level) for level in levels], MOST_NAMES)


def _shown(level: object) -> str:
    return str(level).lower() if isinstance(level, bool) else str(level)
