"""Tables of numbers from CSV, Parquet and Arrow files, and back into them."""

from rnade.tables.choice import listed
from rnade.tables.reading import read_table
from rnade.tables.table import NOT_CHOSEN, Table
from rnade.tables.writing import check_destination, table_format, write_table

__all__ = [
    "NOT_CHOSEN",
    "Table",
    "check_destination",
    "listed",
    "read_table",
    "table_format",
    "write_table",
]
