"""Data sets larger than memory: Parquet files read row group by row group, in any order."""

from rnade.streams.files import DataFiles, RowGroup, is_data_set, open_files
from rnade.streams.memory import bytes_of, machine_memory
from rnade.streams.shards import Shard, deal
from rnade.streams.survey import Survey, survey_files

__all__ = [
    "DataFiles",
    "RowGroup",
    "Shard",
    "Survey",
    "bytes_of",
    "deal",
    "is_data_set",
    "machine_memory",
    "open_files",
    "survey_files",
]
