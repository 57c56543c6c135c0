"""Densities of many separate networks with one hidden layer, each of one column.

Plain torch on any device; on a GPU, where `gpu.networks_launch` can serve, one kernel.
"""

from importlib import import_module
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rnade.backends import vectorised
from rnade.backends.spec import Spec
from rnade.batch import Batch


class Networks(NamedTuple):
    """Tensors of M networks of one shape.

    Attributes
    ----------
    W : Tensor of shape (M, D, H)
        a = c + x W, over the columns that a network takes.
    c : Tensor of shape (M, H)
    V : Tensor of shape (M, H, P)
        z = V' h + b, the numbers that the family turns into a density.
    b : Tensor of shape (M, P)
    own : Tensor of shape (M,)
        The column whose density a network gives.
    inputs : Tensor of shape (M, D)
        The columns that it takes.
    log_floor : Tensor of shape (M,) or None
        Logarithm of the smallest scale of a component; None for no floor.
    """

    W: Float[Tensor, "M D H"]
    c: Float[Tensor, "M H"]
    V: Float[Tensor, "M H P"]
    b: Float[Tensor, "M P"]
    own: Int[Tensor, " M"]
    inputs: Bool[Tensor, "M D"]
    log_floor: Float[Tensor, " M"] | None = None

    @property
    def trained(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Tensors that have gradients."""
        return self.W, self.c, self.V, self.b


def log_prob(batch: Batch, networks: Networks, spec: Spec) -> Float[Tensor, "M B"]:
    """Log density of each network's own column, in nats; 0 where it is not seen."""
    x, counts = batch.filled(), _own_cells(batch.seen, networks)
    kernels = None if torch.is_grad_enabled() else _kernels(networks, spec)
    if kernels is not None:
        terms: Tensor = kernels.log_prob(x, networks, spec)
    else:
        terms = _plain(x, networks, spec)
    return terms if counts is None else torch.where(counts, terms, 0.0)


def weighted_log_likelihood(batch: Batch, networks: Networks, spec: Spec) -> Float[Tensor, " M"]:
    """Sum over rows of weight times log density, for each network: what training differentiates.

    A scalar for each network lets the kernel compute value and gradient in one pass.
    """
    x, counts = batch.filled(), _own_cells(batch.seen, networks)
    weights = x.new_ones(x.shape[:2]) if batch.weights is None else batch.weights
    weights = weights if counts is None else weights * counts
    kernels = _kernels(networks, spec)
    if kernels is not None:
        total: Tensor = kernels.weighted_log_likelihood(x, weights, networks, spec)
        return total
    return (_plain(x, networks, spec) * weights).sum(1)


def _plain(x: Tensor, networks: Networks, spec: Spec) -> Tensor:
    W, c, V, b, own, inputs, log_floor = networks
    a = torch.baddbmm(c[:, None], x, W * inputs[..., None])
    z = torch.baddbmm(b[:, None], vectorised.activate(a, spec.activation), V)
    return spec.family.log_prob(
        _own(x, own),
        z,
        None if log_floor is None else log_floor[:, None],
        scale_mean_gradient=spec.scale_mean_gradient,
    )


def _own(cells: Tensor, own: Tensor) -> Tensor:
    """Of the cells (M, B, D) those of each network's own column, (M, B)."""
    return cells.gather(2, own[:, None, None].expand(-1, cells.shape[1], 1))[..., 0]


def _own_cells(seen: Tensor | None, networks: Networks) -> Tensor | None:
    return None if seen is None else _own(seen, networks.own)


def _kernels(networks: Networks, spec: Spec) -> Any:
    """The module of the GPU's kernel, or None where plain torch serves."""
    module = import_module("rnade.backends.gpu.networks_launch")
    return module if module.serves(networks, spec.family) else None
