"""Windows of frames, drawn on the device as training goes (the paper's section 4.3)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

from rnade.data.filterbanks import FilterBanks
from rnade.data.speech import Frames, SpeechSplit, read_frames
from rnade.typing import Array

N_FRAMES = 11


class WindowSource:
    """All windows of `n_frames` frames within an utterance, none stored twice.

    Only the frames are kept, on the device; windows are put together when asked for. A window's
    dimensions are those of its first frame, then of its second, and so on.

    Parameters
    ----------
    frames : Frames
    mean, scale : arrays of shape (n_features,)
        Subtracted from, and divided out of, each frame: those of the training frames.
    n_frames : int
        Frames in a window; 11 of 21 features make the paper's 231 dimensions.
    device : torch.device or str
    """

    def __init__(
        self,
        frames: Frames,
        mean: Array,
        scale: Array,
        *,
        n_frames: int = N_FRAMES,
        device: torch.device | str = "cpu",
    ) -> None:
        if frames.lengths.min() < n_frames:
            raise ValueError(
                f"Expected utterances of at least {n_frames} frames; got one of"
                f" {frames.lengths.min()}. Read them with min_frames={n_frames}."
            )
        standard = (frames.values - mean) / scale
        self.device = torch.device(device)
        self.n_frames = n_frames
        self.n_dimensions = n_frames * frames.values.shape[1]
        self._frames = torch.as_tensor(standard, dtype=torch.float32).to(self.device)
        first = np.cumsum(frames.lengths) - frames.lengths
        count = frames.lengths - n_frames + 1
        starts = np.concatenate([f + np.arange(n) for f, n in zip(first, count, strict=True)])
        self._starts = torch.as_tensor(starts).to(self.device)
        self.utterance_of_window = np.repeat(np.arange(len(count)), count)

    def __len__(self) -> int:
        """Number of windows."""
        return len(self._starts)

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        """Windows by number: float32 of shape (n, D)."""
        step = torch.arange(self.n_frames, device=self.device)
        return self._frames[self._starts[index][:, None] + step].flatten(1)

    def draw(self, n: int, generator: Generator) -> Tensor:
        """Draw windows at random, with replacement: float32 of shape (n, D)."""
        index = torch.randint(len(self), (n,), device=self.device, generator=generator)
        return self[index]


def frame_statistics(frames: Frames) -> tuple[Array, Array]:
    """Mean and population standard deviation of each feature over all frames."""
    values = frames.values.astype(np.float64)
    return values.mean(0), values.std(0)


@dataclass(frozen=True)
class SpeechWindows:
    """Windows of three parts, all standardised by the training frames; and the files left out."""

    train: WindowSource
    validation: WindowSource
    test: WindowSource
    skipped: dict[str, str]


def load_windows(
    split: SpeechSplit, *, on_bad_file: str = "refuse", device: torch.device | str = "cpu"
) -> SpeechWindows:
    """Read the utterances of a split and make windows of their frames, as in the paper.

    What to do about bad files, see `rnade.data.speech.read_frames`.
    """
    frames = [
        read_frames(part, FilterBanks(), on_bad_file=on_bad_file, min_frames=N_FRAMES)
        for part in (split.train, split.validation, split.test)
    ]
    mean, scale = frame_statistics(frames[0])
    train, validation, test = (WindowSource(f, mean, scale, device=device) for f in frames)
    skipped = {place: why for part in frames for place, why in part.skipped.items()}
    return SpeechWindows(train, validation, test, skipped)
