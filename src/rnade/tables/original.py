"""All columns of a file, of the rows that were read of it."""

import pyarrow as pa

from rnade.tables.delimited import DelimitedText
from rnade.tables.filling import whole_or_text
from rnade.tables.frame import Frame
from rnade.tables.table import Table


def original_columns(table: Table | Frame, *, as_text: bool) -> pa.Table:
    """Give all columns of the rows that were read, also those that were left out.

    With `as_text` the cells of a CSV file stay the text that they are; if not, columns that were
    read are in their types, and others whole numbers if nothing is lost by it, or else text.
    """
    file = table._file
    found = file.written().take(pa.array(table.rows - 1))
    if not isinstance(file, DelimitedText) or as_text:
        return found
    known = table.to_arrow()
    columns = [
        known[name] if name in known.column_names else whole_or_text(found[name])
        for name in found.column_names
    ]
    return pa.table(columns, found.column_names)
