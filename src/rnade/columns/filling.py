"""Tables given back as they came, with some of their missing cells filled."""

import importlib
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rnade.columns.column import Column
from rnade.columns.frames import Filled, build
from rnade.columns.schema import Schema
from rnade.columns.values import own_terms
from rnade.typing import Array


def fill_cells(X: Any, schema: Schema, values: Array, missing: Any) -> Any:
    """Give a table with its `missing` cells, (N, D), replaced and all else, bit for bit, as it is.

    Index, types, order of the columns and columns that the schema leaves out are kept. It is a
    copy; an array for a masked array or a list of lists. Values (N, D) are as `Schema.encode`
    gives them.
    """
    changed = [
        (column, values[:, d], missing[:, d])
        for d, column in enumerate(schema.columns)
        if missing[:, d].any() and column.indicates is None
    ]
    frame = nw.from_native(X, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return _filled_array(X, schema, changed)
    names = {str(name): name for name in frame.columns}
    if schema.frame == "array":  # whose columns are found by position
        places = dict(zip(map(str, schema.inputs), frame.columns, strict=True))
    else:
        places = names
    if frame.implementation.is_pandas():
        return _filled_pandas(X, changed, places)
    if frame.implementation.is_polars():
        return _filled_polars(X, changed, places)
    return _filled_arrow(X, changed, places)


Changes = list[tuple[Column, Array, Any]]


def _filled_array(X: Any, schema: Schema, changed: Changes) -> Any:
    if isinstance(X, np.ma.MaskedArray):
        table = X.filled(np.nan) if X.dtype.kind == "f" else np.ma.getdata(X).copy()
    else:
        table = np.array(X) if np.asarray(X).dtype.kind in "fiub" else np.array(X, dtype=object)
    places = {str(name): d for d, name in enumerate(schema.inputs)}
    for column, values, at in changed:
        table[at, places[column.name]] = own_terms(column, values[at])
    return table


def _filled_pandas(X: Any, changed: Changes, places: dict[str, Any]) -> Any:
    pd = importlib.import_module("pandas")
    table = X.copy()
    for column, values, at in changed:
        name = places[column.name]
        old = X[name]
        new = pd.Series(own_terms(column, values[at]), index=old.index[at])
        if hasattr(old.dtype, "categories"):
            levels = list(dict.fromkeys(new[~new.isin(old.cat.categories)]))
            old = old.cat.add_categories(levels) if levels else old
            new = new.astype(old.dtype)
        elif old.dtype != object:
            new = new.astype(old.dtype)
        # By position: an index may hold a label twice.
        filled = old.copy()
        filled.iloc[np.flatnonzero(at)] = new.array
        table[name] = filled
    return table


def _filled_polars(X: Any, changed: Changes, places: dict[str, Any]) -> Any:
    pl = importlib.import_module("polars")
    series = []
    for column, values, at in changed:
        old = X[places[column.name]]
        new = build("polars", [Filled(old.name, column, values, at)])[old.name]
        series.append(old.zip_with(pl.Series(~at), new.cast(old.dtype)))
    return X.with_columns(series)


def _filled_arrow(X: Any, changed: Changes, places: dict[str, Any]) -> Any:
    table = X
    for column, values, at in changed:
        d = table.column_names.index(places[column.name])
        old = table.column(d)
        new = Filled(column.name, column, values, at).arrow()
        table = table.set_column(d, table.field(d), _either(at, new, old))
    return table


def _either(at: Any, new: Any, old: Any) -> Any:
    """New cells where `at` says so, else old ones, in the type of the old ones."""
    if not pa.types.is_dictionary(old.type):
        return pc.if_else(pa.array(at), new.cast(old.type, safe=False), old)
    # The levels of a type keep their order; new ones come last.
    values = old.type.value_type
    both = pc.if_else(pa.array(at), new.cast(values), old.cast(values))
    declared = old.unify_dictionaries().chunk(0).dictionary
    levels = pc.unique(pa.chunked_array([declared, *both.chunks])).drop_null()
    codes = pc.index_in(both, value_set=levels).combine_chunks().cast(old.type.index_type)
    return pa.DictionaryArray.from_arrays(codes, levels, ordered=old.type.ordered)
