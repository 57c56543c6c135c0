"""All columns of a file, of the rows that were read of it."""

from collections.abc import Mapping

import pyarrow as pa

from rnade.tables.delimited import DelimitedText
from rnade.tables.frame import Frame
from rnade.tables.numerals import count, matches
from rnade.tables.table import Table
from rnade.tables.words import as_text as as_words


def original_columns(table: Table | Frame, *, as_text: bool) -> pa.Table:
    """Give all columns of the rows that were read, also those that were left out.

    With `as_text` the cells of a CSV file stay the text that they are; if not, columns that were
    read are in their types, and others whole numbers if nothing is lost by it, or else text: codes
    such as 00501 stay as they are.
    """
    found = table._file.written()
    if len(table.rows) < found.num_rows:
        found = found.take(pa.array(table.rows - 1))
    if not isinstance(table._file, DelimitedText) or as_text:
        return found
    known = table.to_arrow()
    columns = [
        known[name] if name in known.column_names else _whole_or_text(found[name])
        for name in found.column_names
    ]
    return pa.table(columns, found.column_names)


def filled_table(frame: Frame, filled: Mapping[str, pa.ChunkedArray]) -> pa.Table:
    """Give all columns of a file, all of whose rows are kept, with some of them replaced."""
    table = original_columns(frame, as_text=False)
    for name, column in filled.items():
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def _whole_or_text(raw: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give cells as whole numbers if that is what they are and nothing is lost, else as text."""
    text = as_words(raw, ())
    whole = count(matches(text, r"0|-?[1-9]\d{0,17}"))
    return text.cast(pa.int64()) if 0 < whole == len(text) - text.null_count else text
