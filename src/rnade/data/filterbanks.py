"""Log energies of mel filter banks, frame by frame, as speech recognisers take them."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy import fft

from rnade.typing import Array


@dataclass(frozen=True)
class FilterBanks:
    """How frames are made of sound.

    Each frame: the log of its energy, that is of the sum of its squared samples; then, from the
    frame pre-emphasised and under a Hamming window, the log of its power in triangular filters
    that stand evenly on the mel scale from 0 to half the sampling rate.

    Attributes
    ----------
    rate : int
        Samples a second.
    n_filters : int
    window, step : float
        Length of a frame and distance between frames, in seconds.
    pre_emphasis : float
        x_t - pre_emphasis x_{t-1}, within each frame.
    floor : float
        Smallest energy, in the units of 16-bit samples, so that silence has a logarithm.
    """

    rate: int = 16_000
    n_filters: int = 20
    window: float = 0.025
    step: float = 0.010
    pre_emphasis: float = 0.97
    floor: float = 1.0

    @property
    def n_features(self) -> int:
        """Numbers in a frame: the filters and the energy."""
        return self.n_filters + 1

    @property
    def frame_length(self) -> int:
        """Samples of a frame."""
        return round(self.window * self.rate)

    @property
    def frame_step(self) -> int:
        """Samples from frame to frame."""
        return round(self.step * self.rate)

    def __call__(self, samples: Array) -> NDArray[np.float32]:
        """Frames of a sound.

        Parameters
        ----------
        samples : array of shape (n,)
            In the units of 16-bit files.

        Returns
        -------
        float32 array of shape (n_frames, 1 + n_filters)
            The log energy, then the filters from low to high; no frames where the sound is
            shorter than one. Samples after the last whole frame are left out.
        """
        length = self.frame_length
        if len(samples) < length:
            return np.empty((0, self.n_features), dtype=np.float32)
        frames = sliding_window_view(samples, length)[:: self.frame_step]
        energy = np.square(frames).sum(1, keepdims=True)
        before = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
        shaped = (frames - self.pre_emphasis * before) * np.hamming(length)
        n_fft = fft_length(length)
        power = np.square(np.abs(fft.rfft(shaped, n_fft, axis=1)))
        filtered = power @ mel_filters(self.n_filters, n_fft, self.rate)
        logs = np.log(np.maximum(np.concatenate([energy, filtered], axis=1), self.floor))
        return np.asarray(logs, dtype=np.float32)


def fft_length(frame_length: int) -> int:
    """The next power of two."""
    return int(1 << (frame_length - 1).bit_length())


def mel(hertz: Array) -> Array:
    """Mel scale: about linear below 1000 Hz, logarithmic above."""
    return np.asarray(2595 * np.log10(1 + hertz / 700))


@cache
def mel_filters(n_filters: int, n_fft: int, rate: int) -> Array:
    """Triangles on the mel scale, each from its left neighbour's top to its right neighbour's.

    Returns
    -------
    array of shape (n_fft // 2 + 1, n_filters)
        Weight of each frequency in each filter.
    """
    frequencies = mel(np.arange(n_fft // 2 + 1) * rate / n_fft)
    edges = np.linspace(0, mel(np.asarray(rate / 2)), n_filters + 2)
    rising = (frequencies[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies[:, None]) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(rising, falling))
