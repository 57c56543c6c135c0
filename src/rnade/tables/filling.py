"""A file's table with some cells filled: all its columns in place, every other cell as it was."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool

from rnade.tables.frame import Frame
from rnade.tables.numerals import count, matches
from rnade.tables.writing import as_written

# Dates as they are written into CSV files.
_ISO = r"\s*\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?\s*"


def filled_text(
    frame: Frame,
    filled: Mapping[str, pa.ChunkedArray],
    gone: Mapping[str, Bool[np.ndarray, " N"]],
) -> tuple[pa.Table, list[str]]:
    """Give all columns of a CSV file as the text that it has, with some cells filled.

    `gone` says which cells to fill, for each column of `filled`. Numbers are filled in with the
    file's decimal point, booleans in the words of the cells beside them. Dates that are written in
    another form than 2020-12-31 are rewritten in this one, since a column must be of one form: the
    names of these columns are given too.
    """
    table, rewritten = frame.whole(), []
    for name, values in filled.items():
        d, raw, typed = table.column_names.index(name), table[name], frame.cells[name]
        at = pa.array(gone[name])
        words = _words(values, frame.decimal)
        if pa.types.is_temporal(values.type):
            seen = raw.filter(pc.invert(at))
            if count(matches(seen, _ISO)) < len(seen):
                rewritten.append(name)
                raw = as_written(typed).cast(pa.string())
        elif pa.types.is_boolean(typed.type):
            words = _in_use(values, raw, typed, words)
        table = table.set_column(d, name, pc.if_else(at, words, raw))
    return table.rename_columns(frame.titles), rewritten


def _words(values: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray:
    """Give values as the text that stands in a CSV file."""
    values = as_written(values)
    text = values.cast(pa.string())
    with_point = pa.types.is_floating(values.type) or pa.types.is_decimal(values.type)
    return pc.replace_substring(text, ".", decimal) if with_point else text


def _in_use(
    values: pa.ChunkedArray, raw: pa.ChunkedArray, typed: pa.ChunkedArray, words: pa.ChunkedArray
) -> pa.ChunkedArray:
    """Give booleans by the words that the column has for them, such as True or 1."""
    for value in (True, False):
        at = pc.index(typed, pa.scalar(value)).as_py()
        if at >= 0:
            words = pc.if_else(pc.equal(values, value), pc.utf8_trim_whitespace(raw[at]), words)
    return words
