"""Files written whole or not at all."""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


def check_writable(
    path: str | os.PathLike[str], *, overwrite: bool, inputs: Sequence[str] = ()
) -> Path:
    """Return `path` if a file can be written there, else raise an error that says why not.

    It is never one of the `inputs`, under whatever name; ``-`` is standard input.
    """
    path = Path(path)
    for name in inputs:
        if _is_same_file(path, name):
            known = "standard input" if name == "-" else name
            raise ValueError(f"Cannot write {path}: it is an input too ({known}).")
    if path.is_dir():
        raise IsADirectoryError(f"Cannot write {path}: it is a directory.")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists already and is not overwritten without being asked.")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"Cannot write {path}: the folder {path.parent} does not exist.")
    return path


def _is_same_file(path: Path, source: str) -> bool:
    try:
        there = os.fstat(sys.stdin.fileno()) if source == "-" else os.stat(source)
        return os.path.samestat(os.stat(path), there)
    except (OSError, ValueError):  # one of them does not exist, or standard input is no file
        return False


def write_whole(path: str | os.PathLike[str], data: bytes, *, overwrite: bool) -> None:
    """Write `data` under a temporary name and move it, so that a crash leaves no half a file."""
    path = check_writable(path, overwrite=overwrite)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp makes files that only their owner reads
        os.replace(temporary, path)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError):
            raise OSError(error.errno, f"Cannot write {path}: {error.strerror}") from error
        raise
