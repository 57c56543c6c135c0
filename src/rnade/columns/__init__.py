"""A table's columns: their names, how they are standardised, how finely they are recorded."""

from rnade.columns.names import as_fitted, as_values, column_names
from rnade.columns.resolution import SMALLEST_FLOOR, Resolution
from rnade.columns.spikes import Spike, dependent_columns, find_spikes
from rnade.columns.standardiser import Standardiser

__all__ = [
    "SMALLEST_FLOOR",
    "Resolution",
    "Spike",
    "Standardiser",
    "as_fitted",
    "as_values",
    "column_names",
    "dependent_columns",
    "find_spikes",
]
