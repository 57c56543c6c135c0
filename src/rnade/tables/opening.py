"""A table's file as bytes, gzipped or not, and its format, known by its first bytes."""

import gzip
import sys
import zlib
from pathlib import Path

from rnade.exceptions import TableError
from rnade.tables.delimited import DelimitedText
from rnade.tables.typed import FORMATS, TypedFile

TableFile = DelimitedText | TypedFile


def open_file(source: str | Path, separator: str | None, header: bool | None) -> TableFile:
    """Open a file, ``-`` for standard input; the last two arguments are of a CSV file."""
    data, name = _read_bytes(source)
    for kind, (starts, suffixes) in FORMATS.items():
        if data.startswith(starts):
            return TypedFile(kind, data, name)
        if name.lower().endswith(suffixes):
            what = f"is not in {kind} format, despite its extension" if data else "is empty"
            raise TableError(f"{name} {what}.")
    return DelimitedText(data, name, separator=separator, header=header)


def _read_bytes(source: str | Path) -> tuple[bytes, str]:
    name = "standard input" if str(source) == "-" else str(source)
    try:
        data = sys.stdin.buffer.read() if str(source) == "-" else Path(source).read_bytes()
    except FileNotFoundError:
        raise TableError(f"There is no file {name}.") from None
    except IsADirectoryError:
        raise TableError(f"{name} is a folder; expected a CSV, Parquet or Arrow file.") from None
    except OSError as error:
        raise TableError(f"{name} cannot be read: {error.strerror}.") from None
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            raise TableError(f"{name} is a damaged or truncated gzip file.") from None
    return data, name
