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
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec
from rnade.batch import Batch
from rnade.checks import unknown_name
from rnade.chunks import rows_at_a_time

BACKENDS = ("auto", "vectorised", "cpu", "gpu", "gpu-tf32", "gpu-bf16")


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


@cache
def _module(name: str) -> Any:
    return vectorised if name == "vectorised" else import_module(f"rnade.backends.{name}.api")


@cache
def _fused(on_gpu: bool) -> Choice:
    return Choice("gpu" if on_gpu else "cpu", "fused kernels for this device")


@cache
def _asked(backend: str) -> Choice:
    name, _, precision = backend.partition("-")
    return Choice(name, "asked for", precision or "exact")


def choose(parameters: Parameters, spec: Spec) -> Choice:
    """Say which backend computes with these parameters, and why.

    Parameters
    ----------
    parameters : Parameters
        Their device, dtype and shape decide.
    spec : Spec
        Of its backends "auto" takes the fused kernels of the parameters' device where they can
        serve, and plain torch ("vectorised") elsewhere. Any other name, "vectorised", "cpu",
        "gpu", "gpu-tf32" or "gpu-bf16", is taken at its word: a ValueError says why it cannot be.
        "gpu" computes products as exactly as float32 does; "gpu-tf32" and "gpu-bf16" are faster
        and coarser.
    """
    backend = spec.backend
    if backend not in BACKENDS:
        raise unknown_name(backend, list(BACKENDS), "backend")
    if backend == "vectorised":
        return _asked(backend)
    choice = _asked(backend) if backend != "auto" else _fused(parameters.W.is_cuda)
    why_not = choice.module.supports(parameters, spec)
    if why_not is None:
        return choice
    if backend == "auto":
        return Choice("vectorised", f"plain torch, since {why_not}")
    raise ValueError(f"backend={backend!r} was asked for, but {why_not}.")


def log_conditionals(batch: Batch, parameters: Parameters, spec: Spec) -> Float[Tensor, "M B D"]:
    """The D terms log p(x_d | x_<d) of each row, by the backend that `choose` names.

    Of a cell that is not seen the term is 0. Where no gradient is wanted, memory does not grow
    with the number of rows times D times H.
    """
    terms = _by_rows("log_conditionals", _complete(batch), parameters, spec)
    return terms if batch.seen is None else torch.where(batch.seen, terms, 0.0)


def log_prob(batch: Batch, parameters: Parameters, spec: Spec) -> Float[Tensor, "M B"]:
    """Log density of what is seen of each row, in nats: the sum of `log_conditionals`."""
    if batch.seen is not None:
        return log_conditionals(batch, parameters, spec).sum(-1)
    return _by_rows("log_prob", batch, parameters, spec)


def weighted_log_likelihood(
    batch: Batch, parameters: Parameters, spec: Spec
) -> Float[Tensor, " M"]:
    """Sum over rows of weight times log density, for each model: what training differentiates.

    A scalar for each model lets the fused backends compute value and gradient in one pass.
    """
    backend = choose(parameters, spec).module
    value: Tensor = backend.weighted_log_likelihood(_complete(batch), parameters, spec)
    return value


def sample(
    n: int,
    parameters: Parameters,
    spec: Spec,
    *,
    order: Int[Tensor, "M D"] | None = None,
    generator: Generator,
    low: Float[Tensor, " D"] | None = None,
    high: Float[Tensor, " D"] | None = None,
) -> Float[Tensor, "M n D"]:
    """Exact draws, in chunks of rows."""
    backend = choose(parameters, spec).module
    M, _, H = parameters.W.shape
    largest = rows_at_a_time(M * max(H, spec.family.n_outputs))
    given = {"order": order, "generator": generator, "low": low, "high": high}
    pieces = [
        backend.sample(min(largest, n - start), parameters, spec, **given)
        for start in range(0, n, largest)
    ]
    return torch.cat(pieces, dim=1)


def _complete(batch: Batch) -> Batch:
    """The batch as kernels take it, which know of no missing cells.

    A value of 0 adds nothing to a, and weights of cells leave out the terms of those not seen.
    """
    x, weights, seen, order = batch
    if seen is None:
        return batch
    weights = seen.to(x) if weights is None else weights[..., None] * seen
    return Batch(batch.filled(), weights, None, order)


def _by_rows(name: str, batch: Batch, parameters: Parameters, spec: Spec) -> Tensor:
    """What a backend's function gives for each row, in chunks where plain torch may need them."""
    choice = choose(parameters, spec)
    compute: Callable[..., Tensor] = getattr(choice.module, name)
    M, D, H = parameters.W.shape
    B, size = batch.x.shape[1], rows_at_a_time(M * D * H)
    if choice.name != "vectorised" or torch.is_grad_enabled() or B <= size:
        return compute(batch, parameters, spec)
    pieces = [batch.rows(slice(start, start + size)) for start in range(0, B, size)]
    return torch.cat([compute(piece, parameters, spec) for piece in pieces], dim=1)
