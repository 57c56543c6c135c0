"""Arrays as text in a page: small, and read back by ``tensors.js``."""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rnade.typing import Array

# Whole numbers of so many bits stand for weights, times a scale for each row of them: as fine as
# float32 is for the largest weight of the row.
WEIGHT_BITS = 24


@dataclass(frozen=True)
class Block:
    """Some arrays in one compressed stream, in base64.

    The directory has name, kind and number of entries of each, in the order of the stream. Arrays
    of kind "weights" have their scales before them.
    """

    text: str
    directory: list[tuple[str, str, int]]


def pack(arrays: Mapping[str, Array], weights: Mapping[str, Array]) -> Block:
    """Make text of arrays, kept exactly, and of weights, rounded to `WEIGHT_BITS`.

    Each row of weights, along the last axis, has a scale of its own.
    """
    directory: list[tuple[str, str, int]] = []
    parts: list[bytes] = []

    def add(name: str, kind: str, values: Array, planes: bytes) -> None:
        directory.append((name, kind, values.size))
        parts.append(planes)

    for name, array in arrays.items():
        values = np.ascontiguousarray(array, dtype="<f8").ravel()
        add(name, "doubles", values, _planes(values.view(np.uint8), 8, 8))
    for name, array in weights.items():
        rows = np.asarray(array, dtype=np.float64).reshape(-1, array.shape[-1])
        scales = np.abs(rows).max(axis=1) / (2 ** (WEIGHT_BITS - 1) - 1)
        scales[scales == 0] = 1.0
        whole = np.rint(rows / scales[:, None]).astype("<i4")
        add(f"{name} scales", "doubles", scales, _planes(scales.view(np.uint8), 8, 8))
        add(name, "weights", rows, _planes(whole.view(np.uint8), 4, WEIGHT_BITS // 8))
    stream = zlib.compress(b"".join(parts), 9)
    return Block(base64.b64encode(stream).decode("ascii"), directory)


def _planes(octets: np.ndarray, width: int, kept: int) -> bytes:
    """Bytes of numbers plane by plane, the lowest first; alike bytes compress better."""
    return octets.reshape(-1, width)[:, :kept].T.tobytes()
