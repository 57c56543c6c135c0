"""Frames of columns with two levels: what they hold, and their levels as 0 and 1."""

from collections.abc import Callable
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np

from rnade.columns.arguments import key_of
from rnade.columns.cells import Cells
from rnade.columns.column import Column
from rnade.columns.encoding import encode_cells
from rnade.columns.inference import infer_column
from rnade.columns.kinds import Category
from rnade.columns.schema import Schema
from rnade.columns.sources import read_source

# Makes an error from what a table holds.
Refused = Callable[[str], ValueError]
# Levels told in a message.
MOST_SHOWN = 5


def read_bits(X: Any, refused: Refused) -> Schema:
    """Find out what the columns of a frame hold: two levels each, or numbers.

    Numbers, which a threshold may turn into bits, stay numbers. Unlike in other tables a column
    that never changes is kept: a bit that is always 0 has a density. Columns with another number
    of levels, dates and others are `refused`.
    """
    source, columns = read_source(X), []
    for d, name in enumerate(source.names):
        cells = source.cells(d)
        if _is_number(cells):
            kind = "integer" if cells.sort == "integer" else "real"
            columns.append(Column(str(name), kind, dtype=cells.dtype))
            continue
        if cells.sort not in ("boolean", "text") and cells.levels is None:
            raise refused(f"{_label(cells)} holds {cells.held}")
        levels = Category(ordered=cells.ordered)
        found = infer_column(cells, str(name), key_of(source, d), levels, ())
        column = found.column
        if column is None or column.levels is None:
            raise refused(f"{_label(cells)} holds nothing ({found.reason})")
        if len(column.levels) != 2:
            shown = ", ".join(map(str, column.levels[:MOST_SHOWN]))
            more = ", ..." if column.levels[MOST_SHOWN:] else ""
            n = len(column.levels)
            raise refused(f"{_label(cells)} has {n} level{'s' * (n != 1)} ({shown}{more})")
        columns.append(column)
    return Schema(columns=tuple(columns), frame=source.frame, inputs=source.names)


def with_codes(X: Any, schema: Schema, refused: Refused) -> Any:
    """Give a frame with the codes 0 and 1 in place of levels, NaN where they are missing.

    Columns that the schema, from `read_bits`, does not have, or has as numbers, are left as they
    are; other levels than the two are `refused`.
    """
    source, frame = read_source(X), nw.from_native(X, eager_only=True)
    known = {column.name: column for column in schema.columns if column.kind == "category"}
    columns = []
    for d, name in enumerate(map(str, source.names)):
        if name not in known:
            continue
        cells = source.cells(d)
        values, seen = encode_cells(cells, known[name], key_of(source, d))
        new = seen & (values > 1)
        if new.any():
            levels = " and ".join(map(str, known[name].levels or ()))
            raise refused(f"{_label(cells)} holds {cells.first(new)} beside {levels}")
        codes = np.where(seen, values, np.nan)
        label = frame.columns[d]
        columns.append(nw.new_series(label, codes, nw.Float64, backend=frame.implementation))
    return nw.to_native(frame.with_columns(*columns)) if columns else X


def _is_number(cells: Cells) -> bool:
    numbers = cells.sort in ("integer", "float", "decimal", "empty")
    return numbers and cells.levels is None


def _label(cells: Cells) -> str:
    return cells.label[:1].lower() + cells.label[1:]
