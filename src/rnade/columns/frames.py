"""Numbers given back as the frame or array they came from, with its names and types."""

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rnade.columns.cells import PER_SECOND
from rnade.columns.column import Column
from rnade.typing import Array

# Dates that Python and pandas can write: the years 1 to 9999.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
SECONDS_PER_DAY = 86_400


@dataclass(frozen=True)
class Filled:
    """One column to give back: values as `Schema.encode` gives them, and which are seen."""

    name: str | int
    column: Column
    values: Array
    seen: Any

    def levels(self) -> pa.Array:
        """Give the levels as values of the column's own type."""
        kind = arrow_type(self.column.dtype)
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        levels = pa.array(self.column.levels)
        # Objects are of any type.
        return levels if self.column.dtype.endswith("object") else levels.cast(kind)

    def codes(self) -> pa.Array:
        """Codes of a category, null where a cell is missing or of no level."""
        assert self.column.levels is not None
        codes = np.rint(self.values)
        known = self.seen & (codes >= 0) & (codes < len(self.column.levels))
        return pa.array(np.where(known, codes, 0).astype(np.int64), mask=~known)

    def arrow(self) -> pa.Array:
        """Give the cells as an Arrow array of the column's type."""
        kind = arrow_type(self.column.dtype)
        if self.column.kind == "category":
            if pa.types.is_dictionary(kind):
                codes = self.codes().cast(kind.index_type)
                return pa.DictionaryArray.from_arrays(codes, self.levels(), ordered=kind.ordered)
            levels = self.levels()
            if pa.types.is_string_view(kind):  # for which Arrow has no take
                return levels.cast(pa.large_string()).take(self.codes()).cast(kind)
            return levels.take(self.codes())
        values, gone = self.values, ~np.asarray(self.seen)
        if self.column.unit != "day":
            if self.column.step is not None:
                values = np.rint(values / self.column.step) * self.column.step
            return _of_numbers(values, gone, kind, self.column.kind)
        values = np.rint(values) * SECONDS_PER_DAY
        if not pa.types.is_timestamp(kind) or kind.tz is None:
            return _of_numbers(values, gone, kind, self.column.kind)
        # Days are counted on the clock of the zone, where one may begin an hour late.
        local = _of_numbers(values, gone, pa.timestamp(kind.unit), self.column.kind)
        return pc.assume_timezone(local, kind.tz, ambiguous="earliest", nonexistent="latest")


def build(frame: str, columns: Sequence[Filled]) -> Any:
    """Give columns as a frame of pandas, polars or pyarrow, or as an array."""
    if frame == "array":
        return _array(columns)
    if frame == "pyarrow":
        return pa.table([c.arrow() for c in columns], names=[str(c.name) for c in columns])
    if frame == "polars":
        pl = importlib.import_module("polars")
        return pl.DataFrame([_polars_series(pl, c) for c in columns])
    pd = importlib.import_module("pandas")
    return pd.DataFrame({c.name: _pandas_series(pd, c) for c in columns})


def _array(columns: Sequence[Filled]) -> Any:
    arrays = [column.arrow() for column in columns]
    numeric = [
        c.column.kind != "date" and _is_numeric(a) for c, a in zip(columns, arrays, strict=True)
    ]
    if all(numeric):
        values = [a.cast(pa.uint8()) if pa.types.is_boolean(a.type) else a for a in arrays]
        values = [v.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) for v in values]
        return np.column_stack(values)
    objects = np.empty((len(arrays[0]), len(arrays)), dtype=object)
    for d, values in enumerate(arrays):
        objects[:, d] = values.to_pylist()
    return objects


def _is_numeric(values: pa.Array) -> bool:
    kind = values.type
    return any(
        test(kind)
        for test in (
            pa.types.is_boolean,
            pa.types.is_integer,
            pa.types.is_floating,
            pa.types.is_decimal,
        )
    )


def _polars_series(pl: Any, filled: Filled) -> Any:
    series = pl.from_arrow(filled.arrow()).alias(str(filled.name))
    if filled.column.dtype == "Enum":
        return series.cast(pl.Enum(list(map(str, filled.column.levels or ()))))
    return series.cast(pl.Categorical) if filled.column.dtype == "Categorical" else series


def _pandas_series(pd: Any, filled: Filled) -> Any:
    dtype = filled.column.dtype
    if dtype.startswith("category of ") and filled.column.kind == "category":
        codes = np.asarray(filled.codes().fill_null(-1))
        inner = dtype.removeprefix("category of ")
        levels = _pandas_array(pd, filled.levels(), inner)
        categories = pd.Categorical.from_codes(
            codes, categories=pd.Index(levels), ordered=filled.column.ordered
        )
        return pd.Series(categories)
    return pd.Series(_pandas_array(pd, filled.arrow(), dtype.removeprefix("category of ")))


def _pandas_array(pd: Any, values: pa.Array, dtype: str) -> Any:
    if dtype.startswith("object"):
        return pd.Series(values.to_pylist(), dtype=object)
    series = pd.Series(pd.arrays.ArrowExtensionArray(values))
    if dtype.startswith("arrow of "):
        return series
    if values.null_count and re.fullmatch(r"u?int\d+", dtype):
        dtype = dtype.replace("uint", "UInt").replace("int", "Int")
    elif values.null_count and dtype == "bool":
        dtype = "boolean"
    return series.astype(dtype)


def as_kind(dtype: str, kind: str, is_boolean: bool, is_integer: bool) -> str:
    """Name the type in which a column of some kind is given back.

    It is the one it came in, unless that cannot hold such values: whole numbers or booleans taken
    as real numbers become floats, booleans taken as whole numbers integers.
    """
    if kind == "real" and (is_boolean or is_integer):
        wanted = ("double", "float64", "Float64")
    elif kind == "integer" and is_boolean:
        wanted = ("int64", "int64", "Int64")
    else:
        return dtype
    arrow, numpy, masked = wanted
    for prefix in ("object of ", "arrow of "):
        if dtype.startswith(prefix):
            return prefix + arrow
    dtype = dtype.removeprefix("category of ")
    if dtype == "boolean" or dtype.startswith(("Int", "UInt")):
        return masked
    return numpy  # which Arrow knows too


def arrow_type(dtype: str) -> pa.DataType:
    """Give the Arrow type of a column by the name of its own type.

    As a column has it: of Arrow ("double"), NumPy and pandas ("float64", "Int64", "datetime64[ns,
    UTC]", "object of date32[day]") or polars ("Enum").
    """
    for prefix in ("object of ", "arrow of ", "category of "):
        dtype = dtype.removeprefix(prefix)
    if dtype in ("str", "object", "Enum", "Categorical") or dtype.startswith("string["):
        return pa.large_string()
    if dtype in ("bool", "boolean"):
        return pa.bool_()
    if found := re.fullmatch(r"dictionary<values=(.*), indices=(\w+), ordered=(\d)>", dtype):
        values, indices, ordered = found.groups()
        return pa.dictionary(arrow_type(indices), arrow_type(values), ordered == "1")
    if found := re.fullmatch(r"(?:datetime64|timestamp)\[(\w+)(?:, (?:tz=)?(.+))?\]", dtype):
        return pa.timestamp(found[1], found[2])
    if found := re.fullmatch(r"timedelta64\[(\w+)\]", dtype):
        return pa.duration(found[1])
    if found := re.fullmatch(r"decimal(\d+)\((\d+), (-?\d+)\)", dtype):
        make = getattr(pa, f"decimal{found[1]}")
        return make(int(found[2]), int(found[3]))
    return pa.type_for_alias(dtype.lower())


def _of_numbers(seconds: Array, gone: Any, kind: pa.DataType, what: str) -> pa.Array:
    """Give numbers as Arrow values of a type, the nearest that the type can hold."""
    t = pa.types
    if t.is_dictionary(kind):
        return _of_numbers(seconds, gone, kind.value_type, what)
    if t.is_floating(kind):
        values = np.rint(seconds) if what == "integer" else seconds
        return pa.array(values, mask=gone).cast(kind, safe=False)
    if t.is_integer(kind):
        return pa.array(_whole(seconds, np.iinfo(kind.to_pandas_dtype())), mask=gone)
    if t.is_decimal(kind):
        # The largest number of so many digits, less what float64 cannot tell from it.
        most = 10.0 ** (kind.precision - kind.scale) * (1 - 1e-15) - 10.0**-kind.scale
        values = np.clip(np.rint(seconds) if what == "integer" else seconds, -most, most)
        return pa.array(values, mask=gone).cast(kind)
    if t.is_date(kind):
        days = np.clip(np.rint(seconds / SECONDS_PER_DAY), FIRST_DAY, LAST_DAY)
        return pa.array(days.astype(np.int32), mask=gone).cast(pa.date32()).cast(kind)
    if t.is_time(kind):
        seconds = np.clip(seconds, 0, SECONDS_PER_DAY - 1e-6)
    elif t.is_timestamp(kind):
        seconds = np.clip(seconds, FIRST_DAY * SECONDS_PER_DAY, LAST_DAY * SECONDS_PER_DAY)
    # To the microsecond, which is as fine as float64 is for today's dates.
    per = PER_SECOND[kind.unit]
    furthest = 2**63 // per - 1
    seconds = np.clip(seconds, -furthest, furthest)
    whole = np.floor(seconds)
    fine = min(per, 10**6)
    parts = np.rint((seconds - whole) * fine).astype(np.int64) * (per // fine)
    counts = whole.astype(np.int64) * per + parts
    if t.is_time(kind):
        counts = np.minimum(counts, SECONDS_PER_DAY * per - 1)
    width = np.int32 if t.is_time32(kind) else np.int64
    return pa.array(counts.astype(width), mask=gone).cast(kind)


def _whole(values: Array, limits: Any) -> Any:
    """Round to whole numbers within the limits of an integer type."""
    rounded = np.rint(values)
    # float64 cannot hold the limits of 64 bits: beyond them, they are set as whole numbers.
    low, high = rounded <= float(limits.min), rounded >= float(limits.max)
    whole = np.where(low | high, 0, rounded).astype(limits.dtype)
    whole[low], whole[high] = limits.min, limits.max
    return whole
