"""Which fused kernels update M models, and what they are told, the same on every device."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor


class Counts(NamedTuple):
    """What training counts, each of shape (M,), moved on by every verdict on a gradient."""

    active: Bool[Tensor, " M"]  # read alone: whether a model still trains
    skipped: Int[Tensor, " M"]
    in_a_row: Int[Tensor, " M"]
    log_likelihood: Float[Tensor, " M"]
    counted: Float[Tensor, " M"]


class Rule(NamedTuple):
    """A rule of update and what it remembers.

    Attributes
    ----------
    name : "sgd", "momentum" or "adam"
    first, second : sequence of Tensor
        Velocities, or Adam's means and squares; empty where the rule has none.
    momentum : Tensor of shape (M,), optional
    constants : tuple of float
        Adam's two betas and epsilon.
    """

    name: str
    first: Sequence[Tensor] = ()
    second: Sequence[Tensor] = ()
    momentum: Float[Tensor, " M"] | None = None
    constants: tuple[float, float, float] = (0.0, 0.0, 0.0)


def fused_updates(parameters: Sequence[Tensor]) -> Any:
    """Give the module whose `judge` and `update` serve these parameters, or None for plain torch.

    Loaded on first use: numba and Triton are slow to import.
    """
    for name in ("gpu_update", "cpu_update"):
        kernels = import_module(f"rnade.backends.{name}")
        if kernels.serves(parameters):
            return kernels
    return None
