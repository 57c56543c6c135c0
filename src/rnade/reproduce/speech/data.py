"""Speech for Table 3: which folder, its splits, and windows as rows on the device."""

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rnade.data import DataStore
from rnade.data.speech import (
    SpeechFolder,
    Utterance,
    find_utterances,
    group_of,
    split_speech,
    split_timit,
)
from rnade.data.windows import load_windows
from rnade.exceptions import DataError
from rnade.reproduce.core.experiment import Settings

# Shares that test and validate: of the 16 speakers of TIMIT's sample 3 and 2, and of folders with
# few in these proportions; of many, as the 60 of AudioMNIST, a tenth each.
SHARES_OF_FEW, SHARES_OF_MANY, MANY = (3 / 16, 2 / 16), (0.1, 0.1), 40
N_FOLDS = 5
SPLIT_SEED = 0
# Windows on which training is stopped and settings are chosen, where there are more.
MOST_VALIDATION = 20_000


def identity(folder: SpeechFolder, dataset: str) -> Settings:
    """What results on a data set depend on besides the models, as a job's settings."""
    facts: Settings = {"on_bad_file": folder.on_bad_file}
    if dataset != "timit":
        facts |= {"by": folder.by, "split_seed": SPLIT_SEED}
    if dataset == "folder":
        names = [f"{u.speaker}/{u.path.name}" for u in find_utterances(_given(folder))]
        facts["files"] = hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]
    return facts


def _given(folder: SpeechFolder) -> Path:
    if folder.path is None:
        raise DataError("Pass the folder of sound files as --speech FOLDER.")
    return folder.path


@dataclass(frozen=True, eq=False)
class FoldWindows:
    """Windows of one fold as rows, (N, D), standardised by its training frames.

    `utterance_of` has for each part the utterance that each of its windows is of, `facts` what the
    record says of the data: sizes, test speakers, files left out. `n_features` is of a frame, of
    which each window has several.
    """

    number: int
    train: Tensor
    validation: Tensor
    test: Tensor
    utterance_of: dict[str, NDArray[np.int64]]
    facts: Settings
    n_features: int

    def thinned(self, most: int) -> "FoldWindows":
        """Give a fold with about `most` windows of each part, evenly spaced."""
        parts, utterance_of = {}, {}
        for part in ("train", "validation", "test"):
            rows = getattr(self, part)
            step = max(1, len(rows) // most)
            parts[part] = rows[::step]
            utterance_of[part] = self.utterance_of[part][::step]
        return replace(self, **parts, utterance_of=utterance_of)


@functools.lru_cache(maxsize=N_FOLDS)
def load_fold(
    dataset: str, fold: int, folder: SpeechFolder, store: DataStore, device: torch.device
) -> FoldWindows:
    """Read one fold of a data set; TIMIT has only one.

    "sample" is that of TIMIT in the data folder's ``timit_sample``; "timit" is in the folder
    named, or in the data folder's ``timit``; "folder" is any folder of sound files. The folds read
    last are kept: making frames of thousands of files takes seconds.
    """
    utterances, skipped = _utterances(dataset, folder, store)
    split = (
        split_timit(utterances)
        if dataset == "timit"
        else split_speech(
            utterances, **sizes_of_parts(utterances, folder), by=folder.by, fold=fold
        )
    )
    windows = load_windows(split, on_bad_file=folder.on_bad_file, device=device)
    parts = {"train": windows.train, "validation": windows.validation, "test": windows.test}
    some = _some(len(windows.validation))
    utterance_of = {name: source.utterance_of_window for name, source in parts.items()}
    return FoldWindows(
        fold,
        windows.train[:],
        windows.validation[torch.as_tensor(some).to(device)],
        windows.test[:],
        utterance_of | {"validation": utterance_of["validation"][some]},
        {
            "folder": "" if folder.path is None else folder.path.name,
            "n_speakers": len({u.speaker for u in utterances}),
            "n_windows": {name: len(source) for name, source in parts.items()},
            "test_speakers": sorted({u.speaker for u in split.test}),
            "skipped": {
                # Where files stand on a machine is no part of a record.
                "/".join(Path(place).parts[-2:]): reason.replace(place, "").strip()
                for place, reason in (skipped | windows.skipped).items()
            },
        },
        windows.test.n_dimensions // windows.test.n_frames,
    )


def _utterances(
    dataset: str, folder: SpeechFolder, store: DataStore
) -> tuple[list[Utterance], dict[str, str]]:
    """Sound files without TIMIT's sa sentences; and those that are not what they should be."""
    if dataset == "sample":
        return _checked_sample(store, folder)
    if dataset == "folder" or folder.path is not None:
        return find_utterances(_given(folder)), {}
    if store.folder is None or not (store.folder / "timit").is_dir():
        raise DataError(
            "TIMIT (LDC93S1) is licensed and cannot be downloaded. Pass its folder as --timit"
            " FOLDER, or put it into the data folder as timit."
        )
    return find_utterances(store.folder / "timit"), {}


def _checked_sample(
    store: DataStore, folder: SpeechFolder
) -> tuple[list[Utterance], dict[str, str]]:
    """Give the utterances of the sample whose files have the manifest's checksums."""
    bad: dict[str, str] = {}
    for name in store.names("timit_sample/"):
        try:
            store.read(name)
        except DataError as error:
            if folder.on_bad_file == "refuse" or store.folder is None:
                raise
            bad[name] = str(error)
    assert store.folder is not None  # the sample cannot be downloaded, which the store has said
    root = store.folder
    found = find_utterances(root / "timit_sample")
    return [u for u in found if u.path.relative_to(root).as_posix() not in bad], bad


def sizes_of_parts(utterances: Sequence[Utterance], folder: SpeechFolder) -> dict[str, int]:
    """Speakers (or files) that test and validate."""
    n = len({group_of(u, folder.by) for u in utterances})
    if n < 3:
        raise DataError(
            f"Expected at least 3 {folder.by}s, to train, validate and test; got {n}."
            + (" Folders are speakers; --split-by file splits by file." * (folder.by == "speaker"))
        )
    test, validation = SHARES_OF_MANY if n >= MANY else SHARES_OF_FEW
    return {"n_test": max(1, round(test * n)), "n_validation": max(1, round(validation * n))}


def _some(n: int) -> NDArray[np.int64]:
    """Places of all windows, or of as many at random as are enough to validate on."""
    if n <= MOST_VALIDATION:
        return np.arange(n)
    return np.sort(np.random.default_rng(SPLIT_SEED).choice(n, MOST_VALIDATION, replace=False))
