"""Cells of one column as numbers, checked: what a column cannot hold is named, and where."""

from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rnade.columns.cells import Cells, local_seconds
from rnade.columns.column import Column
from rnade.columns.frames import SECONDS_PER_DAY, arrow_type
from rnade.typing import Array

# Beyond this a column's square overflows float32 on the way.
LARGEST_NUMBER = 1e30

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def encode_cells(cells: Cells, column: Column, key: object) -> tuple[Array, Mask]:
    """Give the cells of one column as numbers, 0 where missing, and which of them are seen.

    A cell that cannot be in such a column is an error: which, where and what to do. Messages call
    the column by its `key`, as `columns` does.
    """
    seen = cells.seen
    if not seen.any() and cells.sort != "other":
        return np.zeros(len(seen)), seen
    _check_type(cells, column, seen)
    if column.kind == "category":
        values = _codes(cells, column)
    else:
        values = cells.numbers()
        if column.kind == "date":
            values = _in_unit(cells, values, column)
        _check_numbers(cells, values, column, key)
    values[~seen] = 0.0
    return values, seen


def _check_type(cells: Cells, column: Column, seen: Mask) -> None:
    """Check that the cells are of a type that the column can hold."""
    if column.kind == "category":
        assert column.levels is not None
        text = isinstance(column.levels[0], str)
        wanted = "text" if text else "numbers or booleans"
        fits = cells.sort == "text" if text else cells.is_number and cells.sort != "time"
        # Codes that a file without types held as text are whole numbers in other files.
        digits = text and all(str(level).lstrip("-").isdigit() for level in column.levels)
        fits = fits or (digits and cells.sort == "integer")
        advice = f"Convert the column to {wanted}"
    elif column.kind == "date":
        wanted, fits = "dates", cells.sort in ("date", "datetime")
        advice = "Convert the column to dates, e.g. with pandas.to_datetime"
    else:
        wanted, fits = "numbers", cells.is_number
        advice = "Convert the column to numbers"
        if cells.sort == "text":
            advice += "; if such text marks missing cells, pass it in na=[...] when fitting"
    if not fits:
        found = cells.held if cells.sort == "other" else f"{cells.held}, first {cells.first(seen)}"
        raise ValueError(f"{cells.label} should hold {wanted} but holds {found}. {advice}.")


def _codes(cells: Cells, column: Column) -> Array:
    """Codes of the levels; one past the last for a level that is not among them."""
    assert column.levels is not None
    n_levels = len(column.levels)
    if isinstance(column.levels[0], str):
        text = cells.values.cast(pa.large_string())
        places = pc.index_in(text, value_set=pa.array(column.levels, pa.large_string()))
        return np.array(pc.fill_null(places, n_levels).to_numpy(), dtype=np.float64)
    if cells.sort == "integer" and all(isinstance(level, int) for level in column.levels):
        # As whole numbers, of which float64 holds those beyond 2**53 only roughly.
        wide = pa.uint64() if pa.types.is_uint64(cells.values.type) else pa.int64()
        with suppress(OverflowError, pa.ArrowException):
            known = pa.array([int(level) for level in column.levels], wide)
            places = pc.index_in(cells.values.cast(wide), value_set=known)
            return np.array(pc.fill_null(places, n_levels).to_numpy(), dtype=np.float64)
    levels = np.array(column.levels, dtype=np.float64)
    order, values = np.argsort(levels), cells.numbers()
    places = order[np.clip(np.searchsorted(levels[order], values), 0, n_levels - 1)]
    return np.where(levels[places] == values, places, n_levels).astype(np.float64)


def _in_unit(cells: Cells, values: Array, column: Column) -> Array:
    """Dates in the unit of the column."""
    if cells.sort == "date":
        return values if column.unit == "day" else values * SECONDS_PER_DAY
    fitted, given = arrow_type(column.dtype), cells.values.type
    if pa.types.is_timestamp(fitted) and (fitted.tz is None) != (given.tz is None):
        have = "no time zone" if given.tz is None else f"the time zone {given.tz}"
        want = "none" if fitted.tz is None else fitted.tz
        raise ValueError(
            f"{cells.label} has {have}, but had {want} when it was fitted. Convert it, e.g."
            " with pandas' dt.tz_localize or polars' dt.replace_time_zone."
        )
    if column.unit != "day":
        return values
    values = local_seconds(cells.values, getattr(fitted, "tz", None))
    late = cells.seen & (values % SECONDS_PER_DAY != 0)
    if late.any():
        raise ValueError(
            f"{cells.label} should hold dates without a time of day but holds"
            f" {cells.first(late)}. Take the time of day off first."
        )
    return values / SECONDS_PER_DAY


def _check_numbers(cells: Cells, values: Array, column: Column, key: object) -> None:
    """Check that numbers are finite, in range, and whole where they must be."""
    infinite = ~np.isfinite(values)
    if infinite.any():
        raise ValueError(
            f"{cells.label} holds an infinite value, first {cells.first(infinite)}. Replace it by"
            " a number, or by NaN if it is missing."
        )
    large = np.abs(values) > LARGEST_NUMBER
    if large.any():
        raise ValueError(
            f"{cells.label} holds numbers beyond {LARGEST_NUMBER:g}, too large to compute with,"
            f" first {cells.first(large)}. Rescale the column."
        )
    broken = values != np.floor(values) if column.kind == "integer" else np.zeros(0, dtype=bool)
    if broken.any():
        raise ValueError(
            f"{cells.label} should hold whole numbers but holds {cells.first(broken)}. Round it,"
            f' or pass columns={{{key!r}: "real"}} when fitting.'
        )
    for name, bound, crossed in (
        ("low", column.low, np.less),
        ("high", column.high, np.greater),
    ):
        beyond = cells.seen & crossed(values, bound) if bound is not None else broken
        if bound is not None and beyond.any():
            side = "below" if name == "low" else "above"
            raise ValueError(
                f"{cells.label} holds {cells.first(beyond)}, {side} the bound {name}={bound:g}"
                f" that columns gives. Correct the value, or change the bound and fit again."
            )
