"""What is given in a question: values and ranges of columns, or a table with missing cells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnade.columns import Column, Schema
from rnade.columns.arguments import nearest, nearest_or_all
from rnade.columns.kinds import plain
from rnade.columns.partition import ColumnCells
from rnade.columns.values import numbers_of, own_terms
from rnade.nn.questions import Range, is_empty
from rnade.typing import Array


@dataclass(frozen=True)
class Given:
    """What is known of one row.

    Attributes
    ----------
    values : array of shape (D,)
        Numbers and codes of levels, NaN where a column is not given.
    ranges : dict of int to (low, high)
        Columns known to lie between two numbers, both included.
    """

    values: Array
    ranges: dict[int, Range] = field(default_factory=dict)

    @property
    def columns(self) -> set[int]:
        """All columns that are given, by value or range."""
        return {int(d) for d in np.flatnonzero(~np.isnan(self.values))} | set(self.ranges)


def find_column(schema: Schema, name: Any) -> int:
    """Place of a column of the model by its name, or of an array's by its position.

    Raises
    ------
    ValueError
        If the model has no such column: which are near, or why it was left out.
    """
    names = [column.name for column in schema.columns]
    name = plain(name)
    if str(name) in names:
        return names.index(str(name))
    if schema.frame == "array" and isinstance(name, int) and 0 <= name < len(schema.inputs):
        return find_column(schema, schema.inputs[name])
    if str(name) in schema.left_out:
        raise ValueError(
            f"Column {name!r} was left out of the model ({schema.left_out[str(name)]}). Ask about"
            " another, or give its kind in columns={...} and fit again."
        )
    raise ValueError(f"The model has no column {name!r}.{nearest_or_all(str(name), names)}")


def read_given(
    schema: Schema, cells: Sequence[ColumnCells], given: Mapping[Any, Any], *, least: int = 1
) -> Given:
    """Read values and ranges by the names of columns.

    Parameters
    ----------
    schema : Schema
    cells : sequence of ColumnCells
        Of the columns of the model.
    given : mapping
        Of names to values, or to ranges as tuples (low, high) of which either may be None.
    least : int
        Smallest number of columns.

    Raises
    ------
    ValueError
        If a column is not known, or cannot hold what is given.
    """
    if len(given) < least:
        raise ValueError(
            "given is empty: name at least one column, e.g. given={"
            f"{schema.columns[0].name!r}: ...}}. Without any, ask `sample` or `score_samples`."
        )
    found = Given(np.full(len(schema.columns), np.nan))
    for name, value in given.items():
        d = find_column(schema, name)
        if isinstance(value, tuple):
            found.ranges[d] = _range(schema, cells[d], d, value)
        else:
            found.values[d] = _value(schema, d, value)
    # What is given is not missing.
    places = {column.name: d for d, column in enumerate(schema.columns)}
    for d, column in enumerate(schema.columns):
        if column.indicates in places and places[column.indicates] in found.columns:
            found.values[d] = 0.0
    return found


def _value(schema: Schema, d: int, value: Any) -> float:
    column = schema.columns[d]
    if np.ndim(value) != 0 or isinstance(value, list | set | dict):
        raise ValueError(
            f"Expected one value of column {column.name!r}, or a range as a tuple (low, high);"
            f" got {value!r}."
        )
    number = float(numbers_of(column, value, schema.na))
    if np.isnan(number):
        raise ValueError(
            f"Column {column.name!r} was given a missing value ({value!r}). Leave it out of given."
        )
    _check_level(column, number, value)
    return number


def _check_level(column: Column, number: float, value: Any) -> None:
    if column.levels is not None and number >= len(column.levels):
        shown = ", ".join(repr(level) for level in column.levels[:10])
        more = ", ..." if column.levels[10:] else ""
        near = nearest(str(value), map(str, column.levels))
        raise ValueError(
            f"Column {column.name!r} has no level {value!r}; it has {shown}{more}.{near}"
        )


def _range(schema: Schema, cells: ColumnCells, d: int, bounds: tuple[Any, ...]) -> Range:
    column = schema.columns[d]
    if len(bounds) != 2:
        raise ValueError(
            f"Expected a range of column {column.name!r} as a tuple (low, high); got {bounds!r}."
        )
    if column.levels is not None and not column.ordered:
        raise ValueError(
            f"The levels of column {column.name!r} have no order, so that {bounds!r} is no range"
            " of them. Give one level, or fit with columns={...: 'ordinal'}."
        )
    low, high = (
        _bound(column, schema, bound, side)
        for bound, side in zip(bounds, (-np.inf, np.inf), strict=True)
    )
    if low > high:
        raise ValueError(
            f"Expected a range (low, high) with low <= high for column {column.name!r}; got"
            f" {bounds!r}."
        )
    if is_empty(cells, (low, high)):
        raise ValueError(
            f"No value of column {column.name!r} lies in {bounds!r}: the table that was fitted"
            f" has values from {_ends(column, cells)}."
        )
    return low, high


def _bound(column: Column, schema: Schema, bound: Any, side: float) -> float:
    if bound is None or (isinstance(bound, float) and np.isinf(bound)):
        return side if bound is None else float(bound)
    if column.kind == "integer" and isinstance(bound, float):
        return bound  # ranges of whole numbers may end between them
    number = float(numbers_of(column, bound, schema.na))
    if np.isnan(number):
        raise ValueError(f"A range of column {column.name!r} ends at a missing value.")
    _check_level(column, number, bound)
    return number


def _ends(column: Column, cells: ColumnCells) -> str:
    if column.levels is not None:
        first, last = column.levels[0], column.levels[-1]
        return f"{first!r} to {last!r}"
    first, last = cells.reach
    whole = np.array([np.ceil(first), np.floor(last)]) if column.kind == "integer" else None
    ends = own_terms(column, np.array([first, last]) if whole is None else whole)
    return " to ".join(f"{end:.6g}" if isinstance(end, float) else str(end) for end in ends)
