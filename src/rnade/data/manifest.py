"""What is known of every file: source, size, checksum, licence."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class DataFile:
    """One file of a data set, as ``manifest.json`` describes it.

    Attributes
    ----------
    name : str
        Path in the data folder, with forward slashes; ``uci/housing.data``.
    sha256 : str
        Of the contents, unzipped where the folder holds the file with ``.gz``.
    bytes : int
        Length of the contents.
    set : str
        Key in the manifest's ``sets``, where source and licence stand.
    url : str or None
        Where the file itself can be downloaded.
    archive, member : str or None
        The archive that holds it (key in the manifest's ``archives``), and its path in there.
    packaged : bool
        Whether the file comes with this library.
    rows, columns : int or None
        Shape of a table.
    gzip_sha256 : str or None
        Checksum of the zipped copy from which the contents were taken.
    """

    name: str
    sha256: str
    bytes: int
    set: str
    url: str | None = None
    archive: str | None = None
    member: str | None = None
    packaged: bool = False
    rows: int | None = None
    columns: int | None = None
    gzip_sha256: str | None = None


@dataclass(frozen=True)
class Manifest:
    """All files, the sets they belong to, and the archives they come in."""

    files: dict[str, DataFile]
    sets: dict[str, dict[str, str]]
    archives: dict[str, dict[str, str]]

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Read a manifest."""
        content: dict[str, Any] = json.loads(text)
        described = {name: DataFile(name, **entry) for name, entry in content["files"].items()}
        return cls(described, content["sets"], content["archives"])


@cache
def default_manifest() -> Manifest:
    """Read the manifest that comes with this library."""
    return Manifest.from_json(files("rnade.data").joinpath("manifest.json").read_text())
