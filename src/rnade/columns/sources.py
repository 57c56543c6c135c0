"""Tables of any kind (frames, arrays, lists), their columns read one at a time."""

import datetime
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real as Number
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import pyarrow as pa

from rnade.columns.cells import Cells, Mark, make_cells
from rnade.columns.kinds import Level, plain


@dataclass(frozen=True)
class Source:
    """A table as it was given, whose columns are read one at a time.

    Attributes
    ----------
    frame : {"pandas", "polars", "pyarrow", "array"}
    names : tuple of str or int
        Of the columns; x1, x2, ... for an array.
    n_rows : int
    """

    frame: str
    names: tuple[str | int, ...]
    n_rows: int
    _columns: Sequence[Any] = field(repr=False)

    def label(self, d: int) -> str:
        """Name column d in a message."""
        name = self.names[d]
        return f"Column {d} ({name!r})" if self.frame == "array" else f"Column {name!r}"

    def cells(self, d: int, na: Sequence[Mark] = ()) -> Cells:
        """Read column d; the cells that `na` marks are missing too.

        Raises
        ------
        ValueError
            If the column mixes types.
        """
        values, dtype, levels = self._columns[d], None, None
        if self.frame == "pandas":
            dtype = _pandas_dtype(values)
            if dtype == "object":
                gone = values.isna().to_numpy()
                return object_cells(self.label(d), values.to_numpy(), gone, na)
            if dtype.startswith("category of"):
                values, levels = _plain_categories(values)
                dtype = _pandas_dtype(values)
            if dtype.startswith("Sparse"):
                values = values.sparse.to_dense()
                dtype = _pandas_dtype(values)
            try:
                values = pa.Array.from_pandas(values)
            except pa.ArrowException:
                values = None
            if isinstance(getattr(values, "type", None), pa.BaseExtensionType):  # such as periods
                values = None
        elif self.frame == "polars":
            dtype = re.sub(r"\(.*", "", str(values.dtype))
            values = _polars_to_arrow(values)
            dtype = dtype if dtype in ("Enum", "Categorical") else None
        elif self.frame == "array":
            if values.dtype == object:
                gone = np.ma.getmaskarray(values)
                return object_cells(self.label(d), np.ma.getdata(values), gone, na)
            dtype = "str" if values.dtype.kind in "UT" else str(values.dtype)
            values = pa.array(
                np.ma.getdata(values).tolist() if dtype == "str" else np.ma.getdata(values).copy(),
                mask=np.ma.getmaskarray(values).copy(),
            )
        if values is None:
            held = f"values of type {self._columns[d].dtype}"
            return Cells(self.label(d), pa.nulls(self.n_rows), "other", "", held=held)
        return make_cells(self.label(d), values, dtype, na, levels)


def as_frame(X: Any) -> Any:
    """Give X as a frame of narwhals if it is a frame, else as it is.

    Raises
    ------
    ValueError
        If two columns have one name.
    """
    try:
        frame = nw.from_native(X, pass_through=True)
        if isinstance(frame, nw.DataFrame):
            list(frame.columns)
    except nw.exceptions.DuplicateError:
        names = getattr(X, "columns", ())
        raise ValueError(_names_differ(names)) from None
    return frame


def _names_differ(names: Iterable[Any]) -> str:
    """Say that names of columns must differ, and which ones do not."""
    twice = [repr(name) for name, count in Counter(map(str, names)).items() if count > 1]
    shown = f"; got {', '.join(twice[:5])} more than once" if twice else ""
    return f"Column names of X must differ{shown}: rename the duplicates."


def read_source(X: Any) -> Source:
    """Take a frame of pandas, polars or pyarrow, an array, a masked array or a list of lists.

    Raises
    ------
    TypeError
        If X is no table.
    ValueError
        If it has no rows or columns, or two columns of one name.
    """
    frame = as_frame(X)
    is_frame = isinstance(frame, nw.DataFrame)
    names = list(frame.columns) if is_frame else []
    if isinstance(frame, nw.LazyFrame):
        raise TypeError(
            f"X is a lazy frame ({type(X).__module__}.{type(X).__name__}), which holds no rows"
            " yet: call its collect() first."
        )
    if is_frame:
        return _frame_source(X, frame, names)
    if isinstance(X, str | bytes | dict):
        raise TypeError(f"Expected X to be a table; got {type(X).__name__}.")
    values = X if isinstance(X, np.ma.MaskedArray) else _as_array(X)
    if values.ndim != 2:
        raise ValueError(
            f"Expected X of shape (N, D), one row per observation; got shape {values.shape}."
        )
    if values.dtype.kind not in "fiubOUT":
        raise ValueError(
            f"Expected X to hold numbers, booleans or text; got an array of {values.dtype}. Pass"
            " a data frame, whose columns may have different types."
        )
    if values.dtype.kind in "fiu":  # Arrow has neither other byte orders nor wider floats
        wide = values.dtype.itemsize > 8
        values = values.astype(np.float64 if wide else values.dtype.newbyteorder("="), copy=False)
    names = [f"x{d}" for d in range(1, values.shape[1] + 1)]
    return Source("array", tuple(names), len(values), [values[:, d] for d in range(len(names))])


def _frame_source(X: Any, frame: nw.DataFrame[Any], names: list[Any]) -> Source:
    kind = frame.implementation
    known = {"pandas": kind.is_pandas(), "polars": kind.is_polars(), "pyarrow": kind.is_pyarrow()}
    library = next((name for name, is_it in known.items() if is_it), None)
    if library is None:
        raise TypeError(
            f"Expected a frame of pandas, polars or pyarrow; got {type(X).__name__}. Convert it"
            " first, e.g. with its to_pandas()."
        )
    names = [plain(name) for name in names]
    strange = [n for n in names if not isinstance(n, str | int) or isinstance(n, bool)]
    if strange:
        raise ValueError(
            f"Column names of X must be text or whole numbers; got {strange[0]!r}. Rename it."
        )
    if len(set(map(str, names))) < len(names):
        raise ValueError(_names_differ(names))
    columns = [column.to_native() for column in frame.iter_columns()]
    return Source(library, tuple(names), len(frame), columns)


def _as_array(X: Any) -> Any:
    """Rows as an array: of numbers where all are, else of objects, so that types are kept."""
    if isinstance(X, np.ndarray):
        return X
    try:
        values = np.asarray(X)
        return np.asarray(X, dtype=object) if values.dtype.kind not in "fiub" else values
    except ValueError:
        raise ValueError(
            "Expected X to be a table: every row needs the same number of cells."
        ) from None


def _pandas_dtype(series: Any) -> str:
    """Name a pandas type so that it can be told from all others."""
    dtype = series.dtype
    if hasattr(dtype, "pyarrow_dtype"):
        return f"arrow of {dtype.pyarrow_dtype}"
    if hasattr(dtype, "categories"):
        return f"category of {_pandas_dtype(dtype.categories)}"
    name = str(dtype)
    return f"string[{dtype.storage}]" if name == "string" else name


def _plain_categories(series: Any) -> tuple[Any, tuple[Level, ...]]:
    """Categories as text where they are neither text nor numbers, such as intervals."""
    levels = [plain(level) for level in series.cat.categories]
    if not all(isinstance(level, str | bool | int | float) for level in levels):
        series = series.cat.rename_categories([str(level) for level in levels])
        levels = [str(level) for level in levels]
    return series, tuple(levels)


def _polars_to_arrow(series: Any) -> Any:
    try:
        return series.to_arrow() if str(series.dtype) != "Object" else None
    except pa.ArrowException:  # of types that Arrow has not, such as Int128
        return None


def object_cells(label: str, objects: Any, gone: Any, na: Sequence[Mark]) -> Cells:
    """Cells of Python objects, which may be of any type but must all be of one."""
    cells = [
        None if hidden or is_missing(v) or _is_marked(v, na) else v
        for v, hidden in zip(map(_plain, objects), gone, strict=True)
    ]
    first: tuple[int, str] | None = None
    classes: dict[type, str] = {}
    for row, value in enumerate(cells):
        if value is None:
            continue
        if type(value) not in classes:
            classes[type(value)] = _class_of(value)
        kind = classes[type(value)]
        if first is None:
            first = row, kind
        elif kind != first[1]:
            raise ValueError(
                f"{label} mixes types: row {first[0]} holds {cells[first[0]]!r} ({first[1]}), row"
                f" {row} holds {value!r} ({kind}). Convert all its cells to one type, or pass"
                " na=[...] with what marks missing cells."
            )
    if first is not None and first[1] not in _CLASSES:
        nested = first[1] in ("list", "tuple", "dict", "set", "ndarray")
        binary = first[1] in ("bytes", "bytearray")
        held = "nested values" if nested else "binary data" if binary else "objects"
        held = held if binary else f"{held} ({first[1]})"
        return Cells(label, pa.nulls(len(cells)), "other", "object", held=held)
    try:
        values = pa.array(cells)
    except (pa.ArrowException, OverflowError):  # huge whole numbers
        values = pa.array([None if v is None else float(v) for v in cells])
    return make_cells(label, values, f"object of {values.type}", na)


_CLASSES = ("bool", "number", "text", "date with a time", "date", "time", "duration")


def _class_of(value: object) -> str:
    classes: list[tuple[str, Any]] = [
        ("bool", bool),
        ("number", Number | Decimal),
        ("text", str),
        ("date with a time", datetime.datetime),
        ("date", datetime.date),
        ("time", datetime.time),
        ("duration", datetime.timedelta),
    ]
    return next((name for name, kind in classes if isinstance(value, kind)), type(value).__name__)


def _plain(value: object) -> Any:
    if isinstance(value, np.datetime64 | np.timedelta64):
        value = value.astype(f"{value.dtype.kind}8[us]")  # of nanoseconds Python has none
    return value.item() if isinstance(value, np.generic) else value


def is_missing(value: object) -> bool:
    """Whether a Python object stands for a missing cell: None, NaN, NA of pandas."""
    if isinstance(value, float | Decimal):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _is_marked(value: object, na: Sequence[Mark]) -> bool:
    if not na or isinstance(value, bool) or not isinstance(value, str | Number | Decimal):
        return False
    return any(isinstance(value, str) == isinstance(mark, str) and value == mark for mark in na)
