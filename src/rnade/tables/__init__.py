"""Tables from CSV, Parquet and Arrow files, of numbers or of any type, and back into them."""

from rnade.tables.choice import listed
from rnade.tables.filling import filled_text
from rnade.tables.frame import Frame, read_frame
from rnade.tables.original import filled_table, original_columns
from rnade.tables.reading import as_marks, read_table
from rnade.tables.table import NOT_CHOSEN, Table
from rnade.tables.writing import check_destination, rows_of, table_format, write_table

__all__ = [
    "NOT_CHOSEN",
    "Frame",
    "Table",
    "as_marks",
    "check_destination",
    "filled_table",
    "filled_text",
    "listed",
    "original_columns",
    "read_frame",
    "read_table",
    "rows_of",
    "table_format",
    "write_table",
]
