"""Getting the bytes of a data file: from a folder, or downloaded once; checked always."""

import gzip
import hashlib
import os
import tarfile
import zlib
from importlib.resources import files
from pathlib import Path
from typing import Any

from rnade.checks import unknown_name
from rnade.data.manifest import DataFile, Manifest, default_manifest
from rnade.exceptions import DataError
from rnade.files import write_whole

ENVIRONMENT_VARIABLE = "RNADE_DATA"
_PASS_FOLDER = f"pass their folder as --data-dir or set {ENVIRONMENT_VARIABLE} to it"


class DataStore:
    """The files of the manifest, by name.

    Parameters
    ----------
    folder : path, optional
        A folder that holds the files under their names. Without it, the folder that the
        environment variable ``RNADE_DATA`` names; without that, files are downloaded from their
        original places and kept in a cache folder of the user.
    manifest : Manifest, optional
        What is known of the files; by default that of this library.
    cache : path, optional
        Where downloads are kept; by default the user's cache folder.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        manifest: Manifest | None = None,
        cache: str | os.PathLike[str] | None = None,
    ) -> None:
        folder = folder if folder is not None else os.environ.get(ENVIRONMENT_VARIABLE) or None
        if folder is not None and not Path(folder).is_dir():
            raise DataError(
                f"The data folder {folder} does not exist. Pass one that exists as --data-dir or"
                f" set {ENVIRONMENT_VARIABLE} to it; without either, files are downloaded."
            )
        self.folder = None if folder is None else Path(folder)
        self.manifest = default_manifest() if manifest is None else manifest
        self._cache = None if cache is None else Path(cache)

    def names(self, start: str) -> list[str]:
        """Names of the files that begin with `start`, sorted."""
        return sorted(name for name in self.manifest.files if name.startswith(start))

    def read(self, name: str) -> bytes:
        """Give the contents of a file, which agree with the manifest's checksum.

        Raises
        ------
        DataError
            If the file is missing, is not what the manifest says, or cannot be downloaded.
        """
        if name not in self.manifest.files:
            raise unknown_name(name, list(self.manifest.files), "data file")
        entry = self.manifest.files[name]
        if entry.packaged:
            return _checked(entry, files("rnade.data").joinpath(Path(name).name).read_bytes(), "")
        if self.folder is not None:
            return self._from_folder(entry, self.folder)
        if entry.archive is not None:
            return self._from_archive(entry)
        if entry.url is None:
            raise DataError(
                f"{name} cannot be downloaded by this program. Source:"
                f" {self.manifest.sets[entry.set]['source']}. Get it there and {_PASS_FOLDER}."
            )
        path = _download(entry.url, self.cache / name, entry.sha256)
        return _checked(entry, path.read_bytes(), str(path))

    @property
    def cache(self) -> Path:
        """Folder in which downloads are kept."""
        if self._cache is None:
            self._cache = Path(_pooch().os_cache("rnade"))
        return self._cache

    def _from_folder(self, entry: DataFile, folder: Path) -> bytes:
        path = folder / entry.name
        zipped = path.with_name(f"{path.name}.gz")
        if path.is_file():
            return _checked(entry, path.read_bytes(), str(path))
        if not zipped.is_file():
            raise DataError(
                f"{path} is missing (with and without .gz). The data folder {folder} must hold"
                " every file under its name in the manifest; without a data folder, files are"
                " downloaded."
            )
        try:
            contents = gzip.decompress(zipped.read_bytes())
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{zipped} is damaged or incomplete ({error}). Replace it.") from error
        return _checked(entry, contents, str(zipped))

    def _from_archive(self, entry: DataFile) -> bytes:
        """Unpack all files of an archive at the first need of one, each checked."""
        path = self.cache / entry.name
        if not path.is_file() or _sha256(path.read_bytes()) != entry.sha256:
            assert entry.archive is not None
            self._unpack(entry.archive)
        return _checked(entry, path.read_bytes(), str(path))

    def _unpack(self, archive: str) -> None:
        url = self.manifest.archives[archive]["url"]
        packed = _download(url, self.cache / url.rsplit("/", 1)[-1], None)
        wanted = {e.member: e for e in self.manifest.files.values() if e.archive == archive}
        try:
            with tarfile.open(packed) as tar:
                for member in tar:
                    name = member.name.removeprefix("./")
                    contents = tar.extractfile(member) if name in wanted else None
                    if contents is None:
                        continue
                    entry = wanted.pop(name)
                    path = self.cache / entry.name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    data = _checked(entry, contents.read(), f"{member.name} in {packed}")
                    write_whole(path, data, overwrite=True)
        except (tarfile.TarError, EOFError, zlib.error, DataError) as error:
            packed.unlink()  # so that the next try downloads it afresh
            raise DataError(
                f"The archive {url} is damaged or has changed ({error}). It was deleted; try"
                f" again, or get the files yourself and {_PASS_FOLDER}."
            ) from error
        if wanted:
            packed.unlink()
            raise DataError(
                f"The archive {url} lacks {len(wanted)} files, {next(iter(wanted))} among them."
                f" Get the files yourself and {_PASS_FOLDER}."
            )


def _sha256(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()


def _checked(entry: DataFile, contents: bytes, place: str) -> bytes:
    if _sha256(contents) == entry.sha256:
        return contents
    if len(contents) != entry.bytes:
        fault = f"expected {entry.bytes} bytes, got {len(contents)}; perhaps it is incomplete"
    else:
        fault = f"its sha256 is not {entry.sha256}"
    raise DataError(f"{place} is not the file that was expected: {fault}. Replace it.")


def _download(url: str, path: Path, sha256: str | None) -> Path:
    """Download a file, or find it in the cache; pooch writes it whole or not at all."""
    pooch = _pooch()
    from requests.exceptions import RequestException

    try:
        return Path(
            pooch.retrieve(
                url,
                known_hash=None if sha256 is None else f"sha256:{sha256}",
                fname=path.name,
                path=path.parent,
            )
        )
    except RequestException as error:
        raise DataError(
            f"Cannot download {url} ({type(error).__name__}). Without a network, get the files"
            f" elsewhere and {_PASS_FOLDER}."
        ) from error
    except ValueError as error:
        raise DataError(
            f"What {url} gives is not the file that was expected: its sha256 is not {sha256}."
            f" Get the file elsewhere and {_PASS_FOLDER}."
        ) from error


def _pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise DataError(
            "Downloading data sets needs pooch: pip install 'rnade[datasets]'. Or get the files"
            f" yourself and {_PASS_FOLDER}."
        ) from error
    return pooch
