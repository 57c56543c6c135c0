"""The cells of one column in one form, wherever they came from: missing ones are null."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rnade.columns.kinds import Level
from rnade.typing import Array

Mark = str | float

# How many of a time's units make a second.
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class Cells:
    """The cells of one column.

    Attributes
    ----------
    label : str
        The column's name in messages.
    values : pyarrow Array
        Missing cells are null. Floats are float64, text is large_string, and categories stand
        as what they are, not as codes.
    sort : str
        "boolean", "integer", "float", "decimal", "text", "date", "datetime", "time" or "empty";
        "other" for what no kind of column can hold.
    dtype : str
        How to give such values back.
    levels : tuple or None
        Those that a categorical type declares.
    ordered : bool
    held : str
        What the column holds, in words, for messages.
    """

    label: str
    values: pa.Array
    sort: str
    dtype: str
    levels: tuple[Level, ...] | None = None
    ordered: bool = False
    held: str = ""

    @property
    def seen(self) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        """Which cells are not missing."""
        return np.asarray(pc.is_valid(self.values).to_numpy(zero_copy_only=False), dtype=bool)

    @property
    def is_number(self) -> bool:
        """Whether the cells are numbers, booleans or spans of time."""
        return self.sort in ("boolean", "integer", "float", "decimal", "time")

    def numbers(self) -> Array:
        """Give the cells as float64, 0 where they are missing: dates in days, times in seconds."""
        values, kind = self.values, self.values.type
        if pa.types.is_boolean(kind):
            values = values.cast(pa.uint8())
        elif pa.types.is_date64(kind):
            values = values.cast(pa.date32()).cast(pa.int32())
        elif pa.types.is_date(kind):
            values = values.cast(pa.int32())
        elif pa.types.is_temporal(kind):
            return _seconds(values)
        values = pc.fill_null(values.cast(pa.float64(), safe=False), 0.0)
        return np.array(values.to_numpy(zero_copy_only=False), dtype=np.float64)

    def first(self, where: "np.ndarray[Any, np.dtype[np.bool_]]") -> str:
        """Name the first of some cells: its value and row, for a message."""
        row = int(np.flatnonzero(where)[0])
        value = self.values[row : row + 1]
        if pa.types.is_timestamp(value.type):  # Python's own have no nanoseconds
            value = value.cast(pa.timestamp("us", value.type.tz), safe=False)
        shown = value[0].as_py()
        return f"{repr(shown) if isinstance(shown, str) else shown} in row {row}"


def _seconds(values: pa.Array) -> Array:
    """Times as seconds: whole seconds and the rest apart, so that microseconds are not lost."""
    kind = values.type
    width = pa.int32() if pa.types.is_time32(kind) else pa.int64()
    counts = pc.fill_null(values.cast(width).cast(pa.int64()), 0)
    whole, rest = np.divmod(counts.to_numpy(zero_copy_only=False), PER_SECOND[kind.unit])
    return np.asarray(whole + rest / PER_SECOND[kind.unit], dtype=np.float64)


def local_seconds(values: pa.Array, zone: str | None = None) -> Array:
    """Times as seconds on the clock of a time zone, by default their own, 0 where missing.

    A zone is only for times that have one.
    """
    if values.type.tz is not None:
        values = values.cast(pa.timestamp(values.type.unit, zone or values.type.tz))
        values = pc.local_timestamp(values)
    return _seconds(values)


def make_cells(
    label: str,
    values: Any,
    dtype: str | None,
    na: Sequence[Mark],
    levels: tuple[Level, ...] | None = None,
) -> Cells:
    """Bring an Arrow column to the form of `Cells`; cells with one of the marks `na` are missing.

    `dtype` says how to give the values back, by default as their Arrow type; `levels` are those
    declared, by default the dictionary of a categorical column.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
        if isinstance(values, pa.ChunkedArray):  # what cannot be one array, such as huge text
            values = pa.concat_arrays(values.chunks)
    dtype = str(values.type) if dtype is None else dtype
    ordered = False
    if pa.types.is_dictionary(values.type):
        # Polars shares the categories of a Categorical between columns: they declare nothing.
        if dtype != "Categorical" and levels is None:
            levels = tuple(values.dictionary.drop_null().to_pylist())
        ordered = bool(values.type.ordered)
        values = values.dictionary_decode()
    sort = sort_of(values.type)
    held = {"text": "text", "datetime": "dates with a time", "date": "dates", "boolean": "bools"}
    if sort == "float":
        values = values.cast(pa.float64())
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, pa.float64()), values)
    elif sort == "text":
        values = values.cast(pa.large_string())
    if levels is not None and not all(isinstance(v, str | bool | int | float) for v in levels):
        levels = None
    cells = Cells(label, values, sort, dtype, levels, ordered, held.get(sort, "numbers"))
    if sort == "other":
        return replace(cells, held=_in_words(values.type))
    return _without_marks(cells, na)


def _without_marks(cells: Cells, na: Sequence[Mark]) -> Cells:
    words = [mark for mark in na if isinstance(mark, str)]
    numbers = [mark for mark in na if not isinstance(mark, str)]
    if words and cells.sort == "text":
        marked = pc.is_in(cells.values, value_set=pa.array(words, pa.large_string()))
    elif numbers and cells.sort in ("integer", "float", "decimal"):
        marked = pa.array(np.isin(cells.numbers(), numbers) & cells.seen)
    else:
        return cells
    levels = cells.levels and tuple(level for level in cells.levels if level not in na)
    values = pc.if_else(marked, pa.scalar(None, cells.values.type), cells.values)
    return replace(cells, values=values, levels=levels)


def sort_of(kind: pa.DataType) -> str:
    """Sort the types of Arrow into the few that are treated alike."""
    t = pa.types
    sorts = {
        "empty": t.is_null,
        "boolean": t.is_boolean,
        "integer": t.is_integer,
        "float": t.is_floating,
        "decimal": t.is_decimal,
        "date": t.is_date,
        "datetime": t.is_timestamp,
    }
    for sort, is_it in sorts.items():
        if is_it(kind):
            return sort
    if t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind):
        return "text"
    return "time" if t.is_time(kind) or t.is_duration(kind) else "other"


def _in_words(kind: pa.DataType) -> str:
    if pa.types.is_nested(kind):
        return f"nested values ({kind})"
    is_binary = any(
        test(kind)
        for test in (
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_fixed_size_binary,
            pa.types.is_binary_view,
        )
    )
    return "binary data" if is_binary else f"values of type {kind}"
