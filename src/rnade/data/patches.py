"""Patches of natural images, drawn on the device as training goes (the paper's section 4.2).

A grey patch of 8 x 8 pixels at a random place; uniform noise in [0, 1) added to each pixel; over
256; its mean subtracted; the bottom-right pixel dropped, since it follows from the others: 63
dimensions.
"""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from rnade.data.store import DataStore

SIDE = 8
N_VALIDATION_IMAGES = 20
# Patches drawn at a time where many are asked for: 64 eight-byte indices each.
_CHUNK = 100_000


class PatchSource:
    """Grey images in one tensor on a device, from which patches are drawn.

    Images may differ in size. Every place in every image is as likely as any other, so that
    images of one size are drawn equally often.

    Parameters
    ----------
    images : sequence of uint8 arrays of shape (height, width)
    device : torch.device or str
    """

    def __init__(
        self, images: Sequence[NDArray[np.uint8]], *, device: torch.device | str = "cpu"
    ) -> None:
        for image in images:
            if image.ndim != 2 or min(image.shape) < SIDE or image.dtype != np.uint8:
                raise ValueError(
                    f"Expected grey uint8 images of at least {SIDE} x {SIDE} pixels; got"
                    f" {image.dtype} of shape {image.shape}."
                )
        heights, widths = np.array([image.shape for image in images]).T
        places = (heights - SIDE + 1) * (widths - SIDE + 1)
        self.n_images, self.n_places = len(images), int(places.sum())
        self.device = torch.device(device)

        def to_device(values: NDArray[Any]) -> Tensor:
            return torch.as_tensor(values).to(self.device)

        self._pixels = to_device(np.concatenate([image.ravel() for image in images]))
        self._widths = to_device(widths)
        self._last_place = to_device(np.cumsum(places))
        self._first_place = to_device(np.cumsum(places) - places)
        self._first_pixel = to_device(np.cumsum(heights * widths) - heights * widths)

    def to(self, device: torch.device | str) -> "PatchSource":
        """Give the same images on another device."""
        moved = copy(self)
        moved.device = torch.device(device)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(moved, name, value.to(moved.device))
        return moved

    @property
    def n_dimensions(self) -> int:
        """D, one less than the pixels of a patch."""
        return SIDE**2 - 1

    def draw(self, n: int, generator: Generator) -> Tensor:
        """Draw patches, prepared as the paper does: float32 of shape (n, D)."""
        return self.draw_labelled(n, generator)[0]

    def draw_labelled(self, n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw patches as `draw` does; with them the numbers of their images, of shape (n,)."""
        if n <= _CHUNK:
            raw, image = self._draw_raw(n, generator)
            return self._prepare(raw, generator), image
        sizes = [_CHUNK] * (n // _CHUNK) + [n % _CHUNK] * (n % _CHUNK > 0)
        drawn = [self.draw_labelled(size, generator) for size in sizes]
        x, image = (torch.cat(parts) for parts in zip(*drawn, strict=True))
        return x, image

    def _draw_raw(self, n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw patches as they are, uint8 of shape (n, 8, 8), and the numbers of their images."""
        place = torch.randint(self.n_places, (n,), device=self.device, generator=generator)
        image = torch.searchsorted(self._last_place, place, right=True)
        place = place - self._first_place[image]
        width = self._widths[image]
        per_row = width - SIDE + 1
        row, column = place.div(per_row, rounding_mode="floor"), place % per_row
        corner = self._first_pixel[image] + row * width + column
        step = torch.arange(SIDE, device=self.device)
        index = corner[:, None] + step * width[:, None]  # first pixel of each row of each patch
        return self._pixels[index[:, :, None] + step], image

    def _prepare(self, patches: Tensor, generator: Generator) -> Tensor:
        x = patches.flatten(1).float()
        x += torch.rand(x.shape, device=self.device, generator=generator)
        x /= 256
        return (x - x.mean(1, keepdim=True))[:, :-1].contiguous()


@dataclass(frozen=True)
class Bsds300:
    """Sources of training, validation and test patches, of 180, 20 and 100 images."""

    train: PatchSource
    validation: PatchSource
    test: PatchSource


def load_bsds300(
    store: DataStore, *, seed: int = 0, device: torch.device | str = "cpu"
) -> Bsds300:
    """Read BSDS300.

    Parameters
    ----------
    store : DataStore
    seed : int
        Chooses the 20 of the 200 training images that validate.
    device : torch.device or str
        Where the images are kept and patches drawn.
    """
    train = [_read_grey(name, store) for name in store.names("bsds300/images/train/")]
    test = [_read_grey(name, store) for name in store.names("bsds300/images/test/")]
    order = np.random.default_rng(seed).permutation(len(train))
    held_out, used = order[:N_VALIDATION_IMAGES], order[N_VALIDATION_IMAGES:]
    return Bsds300(
        PatchSource([train[i] for i in used], device=device),
        PatchSource([train[i] for i in held_out], device=device),
        PatchSource(test, device=device),
    )


def fixed_patches(source: PatchSource, n: int = 1_000_000, *, seed: int = 1) -> Tensor:
    """Draw patches that are the same on every device: drawn on the CPU, then moved."""
    return fixed_labelled_patches(source, n, seed=seed)[0]


def fixed_labelled_patches(
    source: PatchSource, n: int = 1_000_000, *, seed: int = 1
) -> tuple[Tensor, Tensor]:
    """Draw the patches of `fixed_patches`; with them the numbers of their images."""
    x, image = source.to("cpu").draw_labelled(n, Generator().manual_seed(seed))
    return x.to(source.device), image.to(source.device)


def whole_patches(x: Tensor) -> Tensor:
    """Give back the last pixel, which the others leave: (..., D) to (..., side, side)."""
    side = math.isqrt(x.shape[-1] + 1)
    return torch.cat([x, -x.sum(-1, keepdim=True)], -1).view(*x.shape[:-1], side, side)


def turned(x: Tensor, symmetry: int) -> Tensor:
    """Turn patches by one of the 8 symmetries of the square.

    A linear map of the D numbers onto themselves whose determinant is 1 or -1, since it only
    permutes the pixels of a patch with mean 0: densities of turned patches need no correction.

    Parameters
    ----------
    x : Tensor of shape (..., D)
    symmetry : int
        From 0 to 7: 1 mirrors left and right, 2 top and bottom, 4 swaps rows and columns; sums of
        these do several in turn.
    """
    patch = whole_patches(x)
    if symmetry & 1:
        patch = patch.flip(-1)
    if symmetry & 2:
        patch = patch.flip(-2)
    if symmetry & 4:
        patch = patch.mT
    return patch.flatten(-2)[..., :-1]


def _read_grey(name: str, store: DataStore) -> NDArray[np.uint8]:
    from PIL import Image

    with Image.open(BytesIO(store.read(name))) as image:
        return np.asarray(image.convert("L"))
