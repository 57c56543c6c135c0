"""Three of the binary data sets on which NADE was tried, with its own splits."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rnade.checks import unknown_name
from rnade.data.store import DataStore
from rnade.exceptions import DataError

BINARY_SETS = ("mushrooms", "dna", "nips")


@dataclass(frozen=True)
class BinarySet:
    """Rows of 0 and 1 in three parts, each of shape (N, D)."""

    name: str
    train: NDArray[np.uint8]
    validation: NDArray[np.uint8]
    test: NDArray[np.uint8]


def load_binary(name: str, store: DataStore) -> BinarySet:
    """Read one of `BINARY_SETS`, of which "nips" is NIPS-0-12."""
    if name not in BINARY_SETS:
        raise unknown_name(name, list(BINARY_SETS), "data set")
    return BinarySet(name, *(_read(f"binary/{name}.{p}.data", store) for p in _PARTS))


_PARTS = ("train", "valid", "test")


def _read(path: str, store: DataStore) -> NDArray[np.uint8]:
    """Rows of a file of comma-separated single digits: read as bytes, which is quick."""
    entry = store.manifest.files[path]
    assert entry.rows is not None
    assert entry.columns is not None
    cells = np.frombuffer(store.read(path), dtype=np.uint8).reshape(entry.rows, -1)
    digits = cells[:, ::2][:, : entry.columns] - ord("0")
    if digits.shape[1] != entry.columns or digits.max() > 1:
        raise DataError(f"{path} holds something else than {entry.columns} digits 0 and 1 a row.")
    return digits
