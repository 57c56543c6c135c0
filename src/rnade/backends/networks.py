"""Densities of many separate networks with one hidden layer, each of one column.

Plain torch on any device; on a GPU, where `networks_launch` can serve, one kernel.
"""

from importlib import import_module
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rnade.backends import vectorised
from rnade.backends.parameters import Activation
from rnade.families.base import AbstractFamily


class Networks(NamedTuple):
    """Tensors of M networks of one shape.

    Attributes
    ----------
    W : Tensor of shape (M, D, H)
        a = c + x W, over the columns that a network sees.
    c : Tensor of shape (M, H)
    V : Tensor of shape (M, H, P)
        z = V' h + b, the numbers that the family turns into a density.
    b : Tensor of shape (M, P)
    own : Tensor of shape (M,)
        The column whose density a network gives.
    seen : Tensor of shape (M, D)
        The columns that it sees.
    log_floor : Tensor of shape (M,) or None
        Logarithm of the smallest scale of a component; None for no floor.
    """

    W: Float[Tensor, "M D H"]
    c: Float[Tensor, "M H"]
    V: Float[Tensor, "M H P"]
    b: Float[Tensor, "M P"]
    own: Int[Tensor, " M"]
    seen: Bool[Tensor, "M D"]
    log_floor: Float[Tensor, " M"] | None = None


def log_prob(
    x: Float[Tensor, "M B D"],
    networks: Networks,
    family: AbstractFamily,
    activation: Activation,
    *,
    scale_mean_gradient: bool = False,
) -> Float[Tensor, "M B"]:
    """Log density of each network's own column, in nats."""
    if not torch.is_grad_enabled():
        kernels = _kernels(networks, family)
        if kernels is not None:
            value: Tensor = kernels.log_prob(x, networks, family, activation)
            return value
    W, c, V, b, own, seen, log_floor = networks
    a = torch.baddbmm(c[:, None], x, W * seen[..., None])
    z = torch.baddbmm(b[:, None], vectorised.activate(a, activation), V)
    return family.log_prob(
        x.gather(2, own[:, None, None].expand(-1, x.shape[1], 1))[..., 0],
        z,
        None if log_floor is None else log_floor[:, None],
        scale_mean_gradient=scale_mean_gradient,
    )


def weighted_log_likelihood(
    x: Float[Tensor, "M B D"],
    weights: Float[Tensor, "M B"],
    networks: Networks,
    family: AbstractFamily,
    activation: Activation,
    *,
    scale_mean_gradient: bool = False,
) -> Float[Tensor, " M"]:
    """Sum over rows of weight times log density, for each network: what training differentiates.

    A scalar for each network lets the kernel compute value and gradient in one pass.
    """
    kernels = _kernels(networks, family)
    if kernels is not None:
        total: Tensor = kernels.weighted_log_likelihood(
            x, weights, networks, family, activation, scale_mean_gradient=scale_mean_gradient
        )
        return total
    terms = log_prob(x, networks, family, activation, scale_mean_gradient=scale_mean_gradient)
    return (terms * weights).sum(1)


def _kernels(networks: Networks, family: AbstractFamily) -> Any:
    """The module of the GPU's kernel, or None where plain torch serves."""
    module = import_module("rnade.backends.gpu.networks_launch")
    return module if module.serves(networks, family) else None
