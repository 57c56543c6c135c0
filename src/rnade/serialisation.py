"""Model files: one safetensors file, settings as JSON in its metadata. Loading runs no code.

Torch, which is slow to import, is loaded only where tensors are asked for.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from rnade._version import __version__
from rnade.exceptions import ModelFileError
from rnade.files import write_whole

if TYPE_CHECKING:
    from torch import Tensor

SUFFIX = ".rnade"
METADATA_KEY = "rnade"
FORMAT_VERSION = 1

# What people hand in by mistake, by the bytes such files begin with.
_FOREIGN = {
    b"PK\x03\x04": "a ZIP archive, such as torch.save writes",
    b"\x80": "a pickle",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"%PDF": "a PDF document",
    b"PAR1": "a Parquet table",
    b"\x1f\x8b": "a gzip archive",
    b"\x89HDF": "an HDF5 file",
}
_LARGEST_HEADER = 100_000_000  # safetensors' own limit


def write_model(
    path: str | os.PathLike[str],
    tensors: "dict[str, Tensor]",
    settings: dict[str, Any],
    *,
    overwrite: bool = False,
) -> None:
    """Write tensors and settings to one file, whole or not at all.

    Parameters
    ----------
    path : path
    tensors : dict of Tensor
    settings : dict
        Anything that JSON holds.
    overwrite : bool
        Replace a file that exists already.
    """
    arrays = {name: t.detach().cpu().contiguous().numpy() for name, t in tensors.items()}
    description = {
        "format_version": FORMAT_VERSION,
        "library_version": __version__,
        "settings": settings,
    }
    description["sha256"] = _digest(arrays, description)
    # One key: safetensors writes several in random order, and equal models should be equal files.
    metadata = {METADATA_KEY: json.dumps(description)}
    write_whole(path, safetensors.numpy.save(arrays, metadata), overwrite=overwrite)


def read_model(path: str | os.PathLike[str]) -> "tuple[dict[str, Tensor], dict[str, Any]]":
    """Read what `write_model` wrote; see `read_arrays`."""
    import torch

    arrays, settings = read_arrays(path)
    return {name: torch.from_numpy(array) for name, array in arrays.items()}, settings


def read_arrays(
    path: str | os.PathLike[str],
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what `write_model` wrote, tensors as NumPy arrays.

    Raises
    ------
    ModelFileError
        In one line: what is wrong with the file. A file that is missing or cannot be opened
        raises Python's own OSError.
    """
    path = Path(path)
    _check_header(path)
    try:
        with safetensors.safe_open(path, framework="np") as file:
            description = _described(path, file.metadata() or {})
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise ModelFileError(f"{path} is damaged or cut short ({error}).") from error
    if description.pop("sha256", None) != _digest(arrays, description):
        raise ModelFileError(f"{path} was altered after it was saved: its checksum is wrong.")
    versions = {key: description[key] for key in ("format_version", "library_version")}
    return arrays, description["settings"] | versions


def _check_header(path: Path) -> None:
    """Recognise foreign files before any of their content is believed."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory, not a model file.")
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(9)
    for magic, what in _FOREIGN.items():
        if start.startswith(magic) and not start[8:] == b"{":
            raise ModelFileError(f"{path} is not an rnade model file: it looks like {what}.")
    if len(start) < 9 or start[8:] != b"{":
        empty = "it is empty" if size == 0 else "it does not begin as one"
        raise ModelFileError(f"{path} is not an rnade model file: {empty}.")
    header = int.from_bytes(start[:8], "little")
    if header > _LARGEST_HEADER:
        raise ModelFileError(f"{path} claims a header of {header} bytes, which is too large.")
    if header > size - 8:
        raise ModelFileError(f"{path} is cut short: it ends inside its header.")


def _described(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    """The description in the metadata, if it is one that this version can read."""
    if METADATA_KEY not in metadata:
        raise ModelFileError(f"{path} is a safetensors file, but not an rnade model.")
    try:
        description = json.loads(metadata[METADATA_KEY])
        version = int(description["format_version"])
    except (ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{path} was altered: its description is not readable.") from error
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format {version}, written by rnade {description.get('library_version')};"
            f" this is rnade {__version__}, which reads formats up to {FORMAT_VERSION}."
            " Upgrade rnade to load it."
        )
    return dict(description)


def _digest(arrays: dict[str, NDArray[Any]], description: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        # Torch's names of types, by which files were signed from the first version on.
        digest.update(f"\n{name} torch.{array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
