"""Samples of sound files: NIST SPHERE, RIFF WAV and FLAC, told apart by their contents."""

from io import BytesIO

import numpy as np

from rnade.exceptions import DataError
from rnade.typing import Array

# Samples are given in the units of 16-bit files.
FULL_SCALE = 32768.0


def read_audio(contents: bytes, place: str, *, rate: int) -> Array:
    """Samples of a file with one channel and this rate, whose place is for errors.

    Returns
    -------
    float64 array of shape (n,)
        From -32768 to 32767, whatever the file's sample format.

    Raises
    ------
    DataError
        If the file is empty, damaged, cut short, has several channels, another rate or no
        samples.
    """
    try:
        import soundfile
    except ImportError as error:
        raise DataError(
            "Reading sound files needs soundfile: pip install 'rnade[datasets]'."
        ) from error

    if not contents:
        raise DataError(f"{place} is empty.")
    missing = _missing_bytes(contents)
    if missing > 0:
        raise DataError(f"{place} is cut short: its header promises {missing} bytes more.")
    try:
        with soundfile.SoundFile(BytesIO(contents)) as file:
            if file.channels != 1:
                raise DataError(f"{place} has {file.channels} channels; expected 1.")
            if file.samplerate != rate:
                raise DataError(
                    f"{place} has {file.samplerate} samples a second; expected {rate}."
                )
            samples: Array = file.read(dtype="float64")
    except (soundfile.SoundFileError, RuntimeError) as error:
        raise DataError(f"{place} is not a readable sound file ({error}).") from error
    if not len(samples):
        raise DataError(f"{place} has no samples.")
    if not np.isfinite(samples).all():
        raise DataError(f"{place} has samples that are not finite.")
    return samples * FULL_SCALE


def _missing_bytes(contents: bytes) -> int:
    """Bytes that a SPHERE or RIFF header promises and the file does not have.

    The sound library reads a file that was cut short as if it were whole, so this is ours to see.
    FLAC needs no such check: its frames are numbered and carry checksums.
    """
    if contents.startswith(b"NIST_1A"):
        return _missing_from_sphere(contents)
    if contents[:4] == b"RIFF" and contents[8:12] == b"WAVE":
        return _missing_from_riff(contents)
    return 0


def _missing_from_sphere(contents: bytes) -> int:
    lines = contents[:1024].split(b"\n")
    fields = {}
    for line in lines:
        parts = line.split(maxsplit=2)
        if len(parts) == 3:
            fields[parts[0].decode("latin-1")] = parts[2]
    try:
        header = int(lines[1])
        samples = int(fields["sample_count"]) * int(fields.get("channel_count", 1))
        promised = header + samples * int(fields.get("sample_n_bytes", 2))
    except (IndexError, KeyError, ValueError):
        return 0  # a damaged header: the sound library says so
    # A compressed file is shorter than its samples.
    coding = fields.get("sample_coding", b"pcm")
    return promised - len(contents) if coding == b"pcm" else 0


def _missing_from_riff(contents: bytes) -> int:
    at = 12
    while at + 8 <= len(contents):
        kind, size = contents[at : at + 4], int.from_bytes(contents[at + 4 : at + 8], "little")
        if kind == b"data":
            # Programs that write to a pipe do not know the size and leave the largest number.
            return 0 if size >= 0xFFFFFF00 else at + 8 + size - len(contents)
        at += 8 + size + size % 2
    return at + 8 - len(contents)
