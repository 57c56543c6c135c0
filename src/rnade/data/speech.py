"""Speech: utterances in TIMIT's layout or in any folder of sound files, and their parts."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rnade.checks import unknown_name
from rnade.data.audio import read_audio
from rnade.data.filterbanks import FilterBanks
from rnade.exceptions import DataError

# Two men and a woman from each of the eight dialect regions, as TIMIT's documentation lists them.
_CORE_TEST = (
    "mdab0 mwbt0 felc0 mtas1 mwew0 fpas0 mjmp0 mlnt0 fpkt0 mlll0 mtls0 fjlm0"
    " mbpm0 mklt0 fnlp0 mcmj0 mjdh0 fmgd0 mgrt0 mnjm0 fdhc0 mjln0 mpam0 fmld0"
)
CORE_TEST_SPEAKERS = frozenset(_CORE_TEST.split())
_SUFFIXES = {".wav", ".flac", ".sph", ".nist"}


@dataclass(frozen=True)
class Utterance:
    """A sound file and what its path says.

    Attributes
    ----------
    path : Path
    speaker : str
        In lower case: name of the folder the file is in, without TIMIT's "dr1-" if it has it.
    sentence : str
        In lower case: the file's name up to the first dot.
    part : "train", "test" or None
        Which of TIMIT's two parts, where one of the folders above is so called.
    """

    path: Path
    speaker: str
    sentence: str
    part: str | None = None


@dataclass(frozen=True)
class SpeechFolder:
    """Where speech is, and how it is taken.

    Attributes
    ----------
    path : Path or None
        None for the data folder's own.
    by : "speaker" or "file"
        What no two parts share; TIMIT has parts of its own.
    on_bad_file : "refuse" or "skip"
        What to do about sound files that cannot be used.
    """

    path: Path | None = None
    by: str = "speaker"
    on_bad_file: str = "refuse"


@dataclass(frozen=True)
class SpeechSplit:
    """Utterances of three parts that share no speaker (or no file, where asked for)."""

    train: list[Utterance]
    validation: list[Utterance]
    test: list[Utterance]


@dataclass(frozen=True)
class Frames:
    """Frames of many utterances, one after the other: values of shape (n_frames, n_features).

    With them the frames of each utterance that was read, and the files that were not, and why.
    """

    values: NDArray[np.float32]
    lengths: NDArray[np.int64]
    utterances: list[Utterance]
    skipped: dict[str, str]


def find_utterances(folder: str | os.PathLike[str], *, sa: bool = False) -> list[Utterance]:
    """Find the sound files below a folder, in the order of their names.

    Parameters
    ----------
    folder : path
        TIMIT as the LDC ships it, names in upper or lower case; or any folder.
    sa : bool
        Keep TIMIT's two sa sentences, which every speaker reads and which are in no standard
        training or test set. Files with such names count as them in any folder.
    """
    root = Path(folder)
    if not root.is_dir():
        raise DataError(f"The folder of speech {root} does not exist.")
    found: dict[tuple[Path, str], Utterance] = {}
    for path in sorted(root.rglob("*"), key=lambda p: (len(p.name), str(p).lower())):
        if path.suffix.lower() not in _SUFFIXES or not path.is_file():
            continue
        utterance = _describe(path, root)
        # Some copies of TIMIT hold each file twice, as SA1.WAV and SA1.WAV.wav: take one.
        found.setdefault((path.parent, utterance.sentence), utterance)
    kept = [u for u in found.values() if sa or not re.fullmatch(r"sa[12]", u.sentence)]
    if not kept:
        raise DataError(f"No WAV, FLAC or SPHERE files below {root}.")
    return sorted(kept, key=lambda u: str(u.path).lower())


def _describe(path: Path, root: Path) -> Utterance:
    folders = [part.lower() for part in path.relative_to(root).parts[:-1]]
    parts = [name for name in (root.name.lower(), *folders) if name in ("train", "test")]
    speaker = re.sub(r"^dr\d-", "", folders[-1] if folders else "")
    sentence = path.name.lower().split(".", 1)[0]
    return Utterance(path, speaker, sentence, parts[-1] if parts else None)


def split_timit(utterances: Sequence[Utterance]) -> SpeechSplit:
    """TIMIT's own parts: its training speakers, the 24 of the core test, and others to validate.

    The validation speakers are those of the test part that are not in the core test set.
    """
    train = [u for u in utterances if u.part == "train"]
    test = [u for u in utterances if u.part == "test"]
    core = [u for u in test if u.speaker in CORE_TEST_SPEAKERS]
    others = [u for u in test if u.speaker not in CORE_TEST_SPEAKERS]
    for name, part in (("train", train), ("core test", core), ("other test", others)):
        if not part:
            raise DataError(
                f"No utterances of TIMIT's {name} speakers: expected folders train and test with"
                " TIMIT's names of speakers. Other folders are split by speaker or by file."
            )
    missing = CORE_TEST_SPEAKERS - {u.speaker for u in core}
    if missing:
        raise DataError(
            f"{len(missing)} of the 24 core test speakers are missing:"
            f" {', '.join(sorted(missing))}."
        )
    return SpeechSplit(train, others, core)


def split_speech(
    utterances: Sequence[Utterance],
    *,
    n_validation: int,
    n_test: int,
    by: str = "speaker",
    seed: int = 0,
    fold: int = 0,
) -> SpeechSplit:
    """Split at random, so that no speaker (or no file) is in two parts.

    Speakers (or files) are put in a random order. The first fold tests the first `n_test` and
    validates on the next; the second fold tests the `n_test` after those of the first, and so on,
    round and round: folds of one seed test different speakers until all have been tested. All
    that neither test nor validate train.
    """
    if by not in ("speaker", "file"):
        raise unknown_name(by, ["speaker", "file"], "split")
    groups = sorted({group_of(u, by) for u in utterances})
    if min(n_validation, n_test) < 1 or n_validation + n_test >= len(groups):
        raise ValueError(
            f"Expected n_validation and n_test of at least 1 that leave some of the {len(groups)}"
            f" {by}s to train; got {n_validation} and {n_test}."
        )
    order = np.roll(np.random.default_rng(seed).permutation(len(groups)), -fold * n_test)
    test = {groups[i] for i in order[:n_test]}
    validation = {groups[i] for i in order[n_test : n_test + n_validation]}
    return SpeechSplit(
        [u for u in utterances if group_of(u, by) not in test | validation],
        [u for u in utterances if group_of(u, by) in validation],
        [u for u in utterances if group_of(u, by) in test],
    )


def group_of(utterance: Utterance, by: str) -> str:
    """Name what must not be in two parts: the speaker, or the file itself."""
    return utterance.speaker if by == "speaker" else str(utterance.path)


def read_frames(
    utterances: Sequence[Utterance],
    banks: FilterBanks,
    *,
    on_bad_file: str = "refuse",
    min_frames: int = 1,
) -> Frames:
    """Read sound files and make frames of them.

    Files that are damaged, cut short, empty, stereo, of another rate or shorter than `min_frames`
    are bad: "refuse" names them all in an error, "skip" leaves them out and names them in the
    result.
    """
    if on_bad_file not in ("refuse", "skip"):
        raise ValueError(f"on_bad_file must be 'refuse' or 'skip'; got {on_bad_file!r}.")
    values, kept, bad = [], [], {}
    for utterance in utterances:
        place = str(utterance.path)
        try:
            frames = banks(read_audio(utterance.path.read_bytes(), place, rate=banks.rate))
        except (DataError, OSError) as error:
            bad[place] = str(error)
            continue
        if len(frames) < min_frames:
            bad[place] = f"{place} has {len(frames)} frames; expected at least {min_frames}."
            continue
        values.append(frames)
        kept.append(utterance)
    if bad and on_bad_file == "refuse":
        shown = " ".join(list(bad.values())[:10])
        more = f" And {len(bad) - 10} more." if len(bad) > 10 else ""
        raise DataError(f"{len(bad)} of {len(utterances)} sound files are bad. {shown}{more}")
    if not values:
        raise DataError(f"None of {len(utterances)} sound files could be used.")
    lengths = np.array([len(v) for v in values])
    return Frames(np.concatenate(values), lengths, kept, bad)
