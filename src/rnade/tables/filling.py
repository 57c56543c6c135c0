"""A file's table with some cells filled: all its columns in place, every other cell as it was."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool

from rnade.tables.frame import Frame
from rnade.tables.numerals import count, matches
from rnade.tables.words import as_text
from rnade.tables.writing import as_written

# Dates as they are written into CSV files.
_ISO = r"\s*\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?\s*"


@dataclass(frozen=True)
class Filling:
    """Values for the missing cells of one column.

    Attributes
    ----------
    gone : bool array of shape (N,)
        Which cells to fill.
    values : pyarrow Array
        One for each row; only those to fill count.
    """

    gone: Bool[np.ndarray, " N"]
    values: pa.Array


def filled_text(frame: Frame, fillings: Mapping[str, Filling]) -> tuple[pa.Table, list[str]]:
    """Fill cells of a CSV file in the manner in which the file writes such values.

    Numbers have the file's decimal point, booleans and levels the words of the cells beside them.
    Dates that are written in another form than 2020-12-31 are rewritten in this one, since a
    column must be of one form.

    Parameters
    ----------
    frame : Frame
        Of a CSV file, all of whose rows are kept.
    fillings : mapping of str to Filling

    Returns
    -------
    pyarrow Table
        Of text: all columns of the file.
    list of str
        Names of the columns that are rewritten.
    """
    table, rewritten = frame.whole(), []
    for name, filling in fillings.items():
        if not filling.gone.any():
            continue
        raw, typed = table[name], frame.cells[name]
        gone = pa.array(filling.gone)
        words = _words(filling.values, frame.decimal)
        if pa.types.is_temporal(typed.type):
            seen = pc.if_else(gone, pa.scalar(None, pa.string()), raw)
            if count(matches(seen, _ISO)) + int(filling.gone.sum()) < len(raw):
                rewritten.append(name)
                raw = as_written(typed).cast(pa.string())
        elif pa.types.is_boolean(typed.type):
            words = _in_use(filling, raw, typed, words)
        column = pc.if_else(gone, words, raw)
        table = table.set_column(table.column_names.index(name), name, column)
    return table, rewritten


def filled_table(frame: Frame, fillings: Mapping[str, Filling]) -> pa.Table:
    """Fill cells of a table in the types of its columns, for files that have types.

    Columns of a CSV file that the frame has not are whole numbers if nothing is lost by it, or
    else text: codes such as 00501 stay as they are.

    Parameters
    ----------
    frame : Frame
        All of whose rows are kept.
    fillings : mapping of str to Filling
    """
    table = frame.whole()
    for d, name in enumerate(table.column_names):
        if name in frame.names:
            column = frame.cells[name]
            if name in fillings:
                column = _filled(column, fillings[name])
            table = table.set_column(d, name, column)
        elif frame.is_text:
            table = table.set_column(d, name, _typed(table[name]))
    return table


def _words(values: pa.Array, decimal: str) -> pa.ChunkedArray:
    """Give values as the text that stands in a CSV file."""
    column = as_written(pa.chunked_array([values]))
    text = column.cast(pa.string())
    if decimal != "." and (pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
        return pc.replace_substring(text, ".", decimal)
    return text


def _in_use(
    filling: Filling, raw: pa.ChunkedArray, typed: pa.ChunkedArray, words: pa.ChunkedArray
) -> pa.ChunkedArray:
    """Give booleans by the words that the column has for them, such as True or 1."""
    for value in (True, False):
        at = pc.index(typed, value).as_py()
        if at >= 0:
            word = pc.utf8_trim_whitespace(raw[at])
            words = pc.if_else(pc.equal(pa.chunked_array([filling.values]), value), word, words)
    return words


def _filled(column: pa.ChunkedArray, filling: Filling) -> pa.ChunkedArray:
    before, values = column, pa.chunked_array([filling.values])
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_dictionary(before.type):
        column = column.cast(before.type.value_type)
    try:
        values = values.cast(column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # such as 2.5 among whole numbers
        column = column.cast(values.type)
    column = pc.if_else(pa.array(filling.gone), values, column)
    return _with_levels(column, before) if pa.types.is_dictionary(before.type) else column


def _with_levels(column: pa.ChunkedArray, before: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give a column its levels back, in their order; new ones come last."""
    kind = before.type
    known = before.unify_dictionaries().chunk(0).dictionary
    levels = pc.unique(pa.chunked_array([known, *column.chunks])).drop_null()
    codes = pc.index_in(column, value_set=levels).combine_chunks().cast(kind.index_type)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(codes, levels, ordered=kind.ordered)])


def _typed(raw: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give cells as whole numbers if that is what they are and nothing is lost, else as text."""
    text = as_text(raw, ())
    whole = matches(text, r"0|-?[1-9]\d{0,17}")
    if text.null_count < len(text) and count(whole) == len(text) - text.null_count:
        return text.cast(pa.int64())
    return text
