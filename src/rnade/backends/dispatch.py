"""Which backend computes a density, chosen from device, dtype and shape, with the reason."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from rnade.backends import vectorised
from rnade.backends.parameters import Activation, Parameters
from rnade.checks import unknown_name
from rnade.families.base import AbstractFamily

BACKENDS = ("auto", "vectorised")

# Elements of the largest tensor that the vectorised backend may make when it works in chunks:
# 64 MiB in float32, which is small beside any machine's memory and large enough to be fast.
CHUNK_ELEMENTS = 2**24


@dataclass(frozen=True)
class Choice:
    """A backend and why it was chosen.

    Attributes
    ----------
    name : str
    reason : str
    chunk_rows : int
        Rows it computes at a time when no gradient is wanted.
    """

    name: str
    reason: str
    chunk_rows: int


def choose(parameters: Parameters, backend: str = "auto") -> Choice:
    """Say which backend computes with these parameters, and why.

    Parameters
    ----------
    parameters : Parameters
        Their device, dtype and shape decide.
    backend : str
        "auto", or a backend's name; one that cannot serve raises a ValueError.
    """
    if backend not in BACKENDS:
        raise unknown_name(backend, list(BACKENDS), "backend")
    M, D, H = parameters.W.shape
    rows = max(1, CHUNK_ELEMENTS // (M * D * H))
    reason = "asked for" if backend == "vectorised" else "plain torch works on any device"
    return Choice("vectorised", reason, rows)


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

    Where no gradient is wanted the rows are taken in chunks, so that memory does not grow with
    the number of rows times D times H.
    """
    choice = choose(parameters, backend)

    def compute(rows: Tensor) -> Tensor:
        return vectorised.log_conditionals(
            rows, parameters, family, activation, order, scale_mean_gradient=scale_mean_gradient
        )

    if torch.is_grad_enabled():
        return compute(x)
    return _in_chunks(compute, x, choice.chunk_rows)


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
    choose(parameters, backend)
    terms = vectorised.log_conditionals(
        x, parameters, family, activation, order, scale_mean_gradient=scale_mean_gradient
    )
    return (weights * terms.sum(-1)).sum(-1)


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
) -> Float[Tensor, "M n D"]:
    """Exact draws, in chunks of rows."""
    M, _, H = parameters.W.shape
    largest = max(1, CHUNK_ELEMENTS // (M * max(H, family.n_outputs)))
    pieces = [
        vectorised.sample(
            min(largest, n - start),
            parameters,
            family,
            activation,
            order,
            generator=generator,
            low=low,
            high=high,
        )
        for start in range(0, n, largest)
    ]
    return torch.cat(pieces, dim=1)


def _in_chunks(compute: Callable[[Tensor], Tensor], x: Tensor, rows: int) -> Tensor:
    if x.shape[1] <= rows:
        return compute(x)
    return torch.cat([compute(piece) for piece in torch.split(x, rows, dim=1)], dim=1)
