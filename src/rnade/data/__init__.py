"""The data sets of the paper: where their files are, how they are read, split and prepared.

Needs the extra ``datasets``: ``pip install 'rnade[datasets]'``.
"""

from rnade.data.binary import BINARY_SETS, BinarySet, load_binary
from rnade.data.splits import Fold, make_folds
from rnade.data.store import DataStore
from rnade.data.uci import UCI_SETS, UciSet, load_uci

__all__ = [
    "BINARY_SETS",
    "UCI_SETS",
    "BinarySet",
    "DataStore",
    "Fold",
    "UciSet",
    "load_binary",
    "load_uci",
    "make_folds",
]
