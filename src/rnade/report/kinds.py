"""Columns of tables with levels, integers, dates and missing cells: what each holds, in words."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from rnade.columns import Column
from rnade.columns.frames import SECONDS_PER_DAY
from rnade.columns.values import levels_of, zone_of
from rnade.report.words import fixed, near
from rnade.typing import Array

# New levels that are named; more are counted.
_MOST_NEW = 5
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class ColumnKind:
    """What one column holds, and how many of its cells are missing.

    Attributes
    ----------
    column : str
    kind : {"real", "integer", "category", "ordered category", "date", "indicator"}
    details : str
        Levels, atoms, bounds and units in words.
    missing : float
        Share of the rows of this table in which the cell is missing.
    missing_when_fitted : float
        Share of the rows of the table that was fitted.
    n_new : int
        Cells of this table with a level that the model does not know.
    new_levels : list of str
        These levels, the most frequent first; at most 5.
    """

    column: str
    kind: str
    details: str
    missing: float
    missing_when_fitted: float
    n_new: int
    new_levels: list[str]


def kind_of(column: Column) -> str:
    """The kind of a column in a word or two."""
    return column.describe()[1]


def is_discrete(column: Column) -> bool:
    """Whether all values of a column have a probability, and none a density."""
    return column.kind in ("category", "integer") or column.unit == "day"


def describe_columns(schema: Any, values: Array, labels: dict[int, list[str]]) -> list[ColumnKind]:
    """Say what the columns hold, and how much of it is missing, by values (N, D).

    `labels` has, for columns with new levels, the level of each such cell.
    """
    found = []
    for d, column in enumerate(schema.columns):
        new = labels.get(d, [])
        by_count = sorted(set(new), key=lambda level: (-new.count(level), level))
        # Without what is said in columns of its own.
        _, kind, details = _without_missing(column).describe()
        missing = float(np.isnan(values[:, d]).mean())
        found.append(
            ColumnKind(
                column.name,
                kind,
                details,
                missing,
                column.missing,
                len(new),
                by_count[:_MOST_NEW],
            )
        )
    return found


def _without_missing(column: Column) -> Column:
    return Column(**(vars(column) | {"missing": 0.0}))


def is_new(column: Column, values: Array) -> Any:
    """Which cells hold a level that the model does not know."""
    if column.levels is None:
        return np.zeros(len(values), dtype=bool)
    return values >= len(column.levels)


def date_words(x: float, unit: str, span: float = 0.0, zone: str | None = None) -> str:
    """Write a date given as a number, with the time of day where the range is short.

    Parameters
    ----------
    x : float
        Days or seconds since 1970-01-01.
    unit : {"day", "second"}
    span : float
        Width of the range that it is part of, in the unit; 0 for the whole time of day.
    zone : str, optional
        Of times: in which zone to write them.

    Examples
    --------
    >>> date_words(19723, "day"), date_words(1704110400, "second")
    ('2024-01-01', '2024-01-01 12:00:00')
    >>> date_words(1704110400, "second", 30 * 86400), date_words(1704110400, "second", 9000)
    ('2024-01-01', '2024-01-01 12:00')
    """
    seconds = x * SECONDS_PER_DAY if unit == "day" else x
    try:
        when = _EPOCH + timedelta(seconds=round(seconds))
    except OverflowError:
        when = _FIRST if seconds < 0 else _LAST
    if unit == "day":
        return when.date().isoformat()
    if zone is not None and _FIRST.year < when.year < _LAST.year:
        when = when.astimezone(ZoneInfo(zone))
    if span > 20 * SECONDS_PER_DAY:
        return when.date().isoformat()
    time = when.time().isoformat("minutes" if span > 60 else "seconds")
    return f"{when.date().isoformat()} {time}"


def number_words(x: float, kind: str, span: float) -> str:
    """Write a number as finely as a range of this width asks for; whole where it must be."""
    if kind == "integer" and math.isfinite(x) and abs(x) < 1e9:
        return fixed(round(x) + 0.0, 0)
    return near(x, span)


def cell_value(column: Column, x: float) -> str | float:
    """A cell as data holds it: a level or a date as text, a number as it is."""
    if column.levels is not None:
        levels = levels_of(column)
        return levels[int(x)] if 0 <= x < len(levels) else ""
    if column.unit is not None:
        return date_words(x, column.unit, zone=zone_of(column))
    return float(x)


def with_missing(columns: Iterable[ColumnKind]) -> list[ColumnKind]:
    """Those with missing cells in this table, the most first."""
    gaps = [column for column in columns if column.missing > 0]
    return sorted(gaps, key=lambda column: -column.missing)
