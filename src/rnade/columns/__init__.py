"""A table's columns: names, kinds, how they are standardised, how finely they are recorded."""

from rnade.columns.kinds import Category, Date, Integer, Kind, LeaveOut, Real, make_kind
from rnade.columns.names import as_fitted, as_values, column_names
from rnade.columns.resolution import SMALLEST_FLOOR, Resolution
from rnade.columns.schema import Column, Schema
from rnade.columns.spikes import Spike, dependent_columns, find_spikes
from rnade.columns.standardiser import Standardiser

__all__ = [
    "SMALLEST_FLOOR",
    "Category",
    "Column",
    "Date",
    "Integer",
    "Kind",
    "LeaveOut",
    "Real",
    "Resolution",
    "Schema",
    "Spike",
    "Standardiser",
    "as_fitted",
    "as_values",
    "column_names",
    "dependent_columns",
    "find_spikes",
    "make_kind",
]
