"""Launches of the GPU kernels: how they are cut into programs, what is allocated around them.

Nothing here waits for the device or looks at values, so that all of it can be captured in a CUDA
graph. Triton is imported by the first launch, not by this module.
"""

import contextlib
import functools
import importlib
import importlib.util
import os
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rnade.backends.gpu import tiling
from rnade.backends.gpu.tiling import Tiles
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec
from rnade.batch import Batch
from rnade.families.base import AbstractFamily

# The families that have kernels, by the name that these are compiled for (see `families`).
FAMILIES = ("gaussian", "laplace", "bernoulli")
# Those of the library that have none, and why.
WITHOUT: dict[str, str] = {}


def sizes_of(family: AbstractFamily) -> dict[str, Any]:
    """Sizes of a family's tiles, as the kernels take them."""
    P, K = family.n_outputs, family.n_components
    return {
        "P": P,
        "NP": max(16, tiling.power_of_two(P)),
        "K": K,
        "KP": tiling.power_of_two(K),
        "FAMILY": family.name,
    }


def flags_of(spec: Spec) -> dict[str, Any]:
    """What else the kernels are compiled for."""
    special = spec.precision == "bf16" and interpreting()
    return {
        "ACTIVATION": spec.activation,
        "PRECISION": "bf16 interpreted" if special else spec.precision,
    }


def product_dtype(spec: Spec) -> torch.dtype:
    """What the on-chip kernels are given V in."""
    return torch.bfloat16 if spec.precision == "bf16" else torch.float32


def on_chip_tiles(spec: Spec, H: int) -> Tiles:
    """How the on-chip kernels are cut."""
    return tiling.on_chip(H, sizes_of(spec.family)["NP"], product_dtype(spec).itemsize)


class Packed(NamedTuple):
    """Parameters as the on-chip kernels take them.

    V is copied once, padded to whole tiles and in the precision of the products: a copy of D H NP
    elements, small beside the (B / BB) D H NP that the kernel then reads without masks.
    """

    tensors: tuple[Any, ...]
    constants: dict[str, Any]
    tiles: Tiles

    @staticmethod
    def of(parameters: Parameters, spec: Spec, order: Tensor | None) -> "Packed":
        """Copy V; take the others as they are."""
        W, c, rho, V, b, log_floor, _, _ = parameters
        M, D, H, P = V.shape
        tiles, sizes = on_chip_tiles(spec, H), sizes_of(spec.family)
        S = tiling.cdiv(H, tiles.hidden)
        shape = (M, D, S * tiles.hidden, sizes["NP"])
        packed = torch.zeros(shape, dtype=product_dtype(spec), device=V.device)
        packed[:, :, :H, :P] = V
        constants = {**sizes, **flags_of(spec), **tiles.options, "S": S}
        constants["WHOLE"] = H == S * tiles.hidden
        return Packed(contiguous(W, c, rho, packed, b, log_floor, order), constants, tiles)

    def walk(self, x: Tensor, *drawn: Tensor | None, out: Tensor | None, **options: Any) -> None:
        """Launch the kernel over blocks of rows; `drawn` are uniform numbers and noise."""
        M, B, D = x.shape
        sizes = B, D, self.tensors[0].shape[2], *x.stride()
        grid = tiling.cdiv(B, self.tiles.rows), M
        constants = {**self.constants, **options}
        run("density.walk_kernel", grid, x, *drawn, *self.tensors, out, *sizes, **constants)


def density(batch: Batch, parameters: Parameters, spec: Spec, *, summed: bool) -> Tensor:
    """Terms (M, B, D), or their sums (M, B), with the hidden state on chip."""
    x = batch.x
    out = x.new_empty(x.shape[:2] if summed else x.shape)
    Packed.of(parameters, spec, batch.order).walk(x, None, None, out=out, SUMMED=summed)
    return out


def sampling(packed: Packed, uniform: Tensor, noise: Tensor, out: Tensor) -> None:
    """Fill `out` (M, R, D) with draws.

    `uniform` chooses the component, `noise` holds draws of the standard one; both (M, D, R).
    """
    registers = tiling.drawing_registers(packed.tiles, packed.constants["PRECISION"])
    packed.walk(out, uniform, noise, out=None, SUMMED=False, maxnreg=registers)


def contiguous(*tensors: Tensor | None) -> tuple[Any, ...]:
    """The tensors as kernels take them that are given no strides; None for none."""
    return tuple(None if t is None else t.contiguous() for t in tensors)


def run(kernel: str, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Launch a kernel on the device of its first argument.

    Parameters
    ----------
    kernel : str
        Its file in this folder and its name, "density.walk_kernel".
    grid : tuple of int
        How many programs there are along each axis.
    arguments : Tensor, int or None
        A tensor that is not there is None, which kernels are compiled for.
    constants
        What else the kernel is compiled for.
    """
    with current(arguments[0].device):
        _kernel(kernel)[grid](*arguments, **constants)


@functools.cache
def _kernel(name: str) -> Any:
    file, kernel = name.split(".")
    return getattr(importlib.import_module(f"rnade.backends.gpu.{file}"), kernel)


def interpreting() -> bool:
    """Whether Triton interprets kernels on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "y", "yes")


@functools.cache
def has_triton() -> bool:
    """Whether Triton is installed; it is not imported."""
    return importlib.util.find_spec("triton") is not None


def current(device: torch.device) -> AbstractContextManager[Any]:
    """Launch on the device that holds the tensors, whichever is current."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
