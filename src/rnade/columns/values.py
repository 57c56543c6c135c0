"""Single values of a column in the table's own terms (levels, dates, numbers), and as numbers."""

import datetime
from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from rnade.columns.cells import Mark, make_cells
from rnade.columns.column import Column
from rnade.columns.encoding import encode_cells
from rnade.columns.frames import Filled, arrow_type
from rnade.columns.sources import object_cells
from rnade.typing import Array


def numbers_of(column: Column, values: Any, na: Sequence[Mark] = ()) -> Array:
    """Give values of a column, in their shape, as numbers, codes of levels, or NaN where missing.

    Dates may be text in ISO form. A level that the column does not know gets the number of its
    levels; what the column cannot hold is an error. `na` are marks of missing cells.
    """
    given = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
    if given.dtype.kind == "O" and given.ndim == 0:
        given = np.asarray(values)
    flat = given.ravel()
    label = f"Column {column.name!r}"
    if flat.dtype.kind in "fiu":
        cells = make_cells(label, pa.array(flat), None, na)
    else:
        objects = np.empty(len(flat), dtype=object)
        objects[:] = [_as_date(v, column) if column.kind == "date" else v for v in flat]
        cells = object_cells(label, objects, np.zeros(len(flat), dtype=bool), na)
    numbers, seen = encode_cells(cells, column, column.name)
    return np.asarray(np.where(seen, numbers, np.nan).reshape(given.shape))


def _as_date(value: Any, column: Column) -> Any:
    """Text in ISO form as a date with a time, in the column's own time zone."""
    if not isinstance(value, str):
        return value
    try:
        found = datetime.datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(
            f"Column {column.name!r} should hold dates but was given {value!r}. Write dates as"
            " 2024-12-31, with a time of day as 2024-12-31T08:30."
        ) from None
    zone = getattr(arrow_type(column.dtype), "tz", None)
    return found if zone is None or found.tzinfo else found.replace(tzinfo=ZoneInfo(zone))


def own_terms(column: Column, numbers: Array) -> Any:
    """Give numbers of a column as its own values: levels, dates, whole numbers, real numbers.

    Whole numbers, codes and days are rounded. The array is float64 for real numbers, datetime64
    for dates without a time zone, bool, int or objects for others.
    """
    numbers = np.asarray(numbers, dtype=np.float64)
    kind = arrow_type(column.dtype)
    t = pa.types
    is_number = t.is_floating(kind) or t.is_integer(kind) or t.is_decimal(kind)
    if is_number and column.kind == "real":
        return numbers
    if is_number and column.kind == "integer":
        whole = np.rint(numbers)
        return whole if np.isnan(whole).any() else whole.astype(np.int64)
    seen = ~np.isnan(numbers.ravel())
    values = Filled(column.name, column, np.where(seen, numbers.ravel(), 0.0), seen).arrow()
    if t.is_dictionary(values.type):
        values = values.dictionary_decode()
    if getattr(values.type, "tz", None) is None:
        return values.to_numpy(zero_copy_only=False).reshape(numbers.shape)
    # NumPy's dates have no time zone.
    objects = np.empty(len(values), dtype=object)
    objects[:] = values.cast(pa.timestamp("us", values.type.tz), safe=False).to_pylist()
    return objects.reshape(numbers.shape)


def level_words(level: object) -> str:
    """Write a level; a whole number without a decimal point."""
    if isinstance(level, float) and level.is_integer():
        return f"{level:.0f}"
    return str(level)


def levels_of(column: Column) -> list[str]:
    """The levels of a column, written."""
    return [level_words(level) for level in column.levels or ()]


def zone_of(column: Column) -> str | None:
    """The time zone of a column of times, if it has one."""
    if column.unit != "second":
        return None
    zone: str | None = getattr(arrow_type(column.dtype), "tz", None)
    return zone
