"""Which backend computes, chosen from device, dtype and shape, with the reason.

Nothing global decides: each call names its backend, or leaves the choice to `choose`, which can be
asked what it chose and why. A backend that is asked for and cannot serve raises.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from rnade.backends import vectorised
from rnade.backends.parameters import Activation, Parameters
from rnade.checks import unknown_name
from rnade.families.base import AbstractFamily

BACKENDS = ("auto", "vectorised", "cpu", "gpu", "gpu-tf32", "gpu-bf16")

# Elements of the largest tensor that the vectorised backend may make when it works in chunks:
# 64 MiB in float32, which is small beside any machine's memory and large enough to be fast.
CHUNK_ELEMENTS = 2**24


@dataclass(frozen=True)
class Choice:
    """A backend and why it was chosen.

    Attributes
    ----------
    name : "vectorised", "cpu" or "gpu"
        The module of `rnade.backends` that computes.
    reason : str
    precision : "exact", "tf32" or "bf16"
        Of the matrix products; only "gpu" has a choice.
    """

    name: str
    reason: str
    precision: str = "exact"

    @property
    def module(self) -> Any:
        """The backend itself. Loaded on first use: numba and Triton are slow to import."""
        return _module(self.name)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments that only this backend takes."""
        return {"precision": self.precision} if self.name == "gpu" else {}


@cache
def _module(name: str) -> Any:
    return vectorised if name == "vectorised" else import_module(f"rnade.backends.{name}.api")


@cache
def _fused(name: str) -> Choice:
    return Choice(name, "fused kernels for this device")


@cache
def _asked(backend: str) -> Choice:
    name, _, precision = backend.partition("-")
    return Choice(name, "asked for", precision or "exact")


def choose(
    parameters: Parameters, family: AbstractFamily, activation: Activation, backend: str = "auto"
) -> Choice:
    """Say which backend computes with these parameters, and why.

    Parameters
    ----------
    parameters : Parameters
        Their device, dtype and shape decide.
    family : AbstractFamily
    activation : "relu", "sigmoid" or "identity"
    backend : {"auto", "vectorised", "cpu", "gpu", "gpu-tf32", "gpu-bf16"}
        "auto" takes the fused kernels of the parameters' device where they can serve, and plain
        torch elsewhere. A name is taken at its word: a ValueError says why it cannot be.
        "gpu" computes products as exactly as float32 does; the other two are faster and coarser.
    """
    if backend not in BACKENDS:
        raise unknown_name(backend, list(BACKENDS), "backend")
    if backend == "vectorised":
        return _asked(backend)
    if backend == "auto":
        fused = _fused("gpu" if parameters.W.is_cuda else "cpu")
        why_not = fused.module.supports(parameters, family, activation)
        return fused if why_not is None else Choice("vectorised", f"plain torch, since {why_not}")
    asked = _asked(backend)
    why_not = asked.module.supports(parameters, family, activation)
    if why_not is not None:
        raise ValueError(f"backend={backend!r} was asked for, but {why_not}.")
    return asked


def log_conditionals(
    x: Float[Tensor, "M B D"],
    parameters: Parameters,
    family: AbstractFamily,
    activation: Activation,
    order: Int[Tensor, "M D"] | None = None,
    *,
    scale_mean_gradient: bool = False,
    backend: str = "auto",
) -> Float[Tensor, "M B D"]:
    """The D terms log p(x_d | x_<d) of each row, by the backend that `choose` names.

    Where no gradient is wanted, memory does not grow with the number of rows times D times H.
    """
    choice = choose(parameters, family, activation, backend)

    def compute(rows: Tensor) -> Tensor:
        terms: Tensor = choice.module.log_conditionals(
            rows,
            parameters,
            family,
            activation,
            order,
            scale_mean_gradient=scale_mean_gradient,
            **choice.options,
        )
        return terms

    if choice.name != "vectorised" or torch.is_grad_enabled():
        return compute(x)
    M, D, H = parameters.W.shape
    return _in_chunks(compute, x, max(1, CHUNK_ELEMENTS // (M * D * H)))


def weighted_log_likelihood(
    x: Float[Tensor, "M B D"],
    weights: Float[Tensor, "M B"],
    parameters: Parameters,
    family: AbstractFamily,
    activation: Activation,
    order: Int[Tensor, "M D"] | None = None,
    *,
    scale_mean_gradient: bool = False,
    backend: str = "auto",
) -> Float[Tensor, " M"]:
    """Sum over rows of weight times log density, for each model: what training differentiates.

    A scalar for each model lets the fused backends compute value and gradient in one pass.
    """
    choice = choose(parameters, family, activation, backend)
    value: Tensor = choice.module.weighted_log_likelihood(
        x,
        weights,
        parameters,
        family,
        activation,
        order,
        scale_mean_gradient=scale_mean_gradient,
        **choice.options,
    )
    return value


def sample(
    n: int,
    parameters: Parameters,
    family: AbstractFamily,
    activation: Activation,
    order: Int[Tensor, "M D"] | None = None,
    *,
    generator: Generator,
    low: Float[Tensor, " D"] | None = None,
    high: Float[Tensor, " D"] | None = None,
    backend: str = "auto",
) -> Float[Tensor, "M n D"]:
    """Exact draws, in chunks of rows."""
    choice = choose(parameters, family, activation, backend)
    M, _, H = parameters.W.shape
    largest = max(1, CHUNK_ELEMENTS // (M * max(H, family.n_outputs)))
    pieces = [
        choice.module.sample(
            min(largest, n - start),
            parameters,
            family,
            activation,
            order,
            generator=generator,
            low=low,
            high=high,
            **choice.options,
        )
        for start in range(0, n, largest)
    ]
    return torch.cat(pieces, dim=1)


def _in_chunks(compute: Callable[[Tensor], Tensor], x: Tensor, rows: int) -> Tensor:
    if x.shape[1] <= rows:
        return compute(x)
    return torch.cat([compute(piece) for piece in torch.split(x, rows, dim=1)], dim=1)
