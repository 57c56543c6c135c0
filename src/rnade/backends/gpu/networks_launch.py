"""Launches of the kernel for many separate networks, and their gradient.

Like `launch`, this waits for nothing and imports Triton only at the first launch.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rnade.backends.gpu import tiling
from rnade.backends.gpu.launch import current, has_triton, interpreting, kernels_of
from rnade.backends.networks import Networks
from rnade.backends.parameters import Activation
from rnade.families.base import AbstractFamily

# Rows that a program scores, so that few networks and many rows fill the chip too.
SCORED_ROWS = 512


def serves(networks: Networks, family: AbstractFamily) -> bool:
    """Whether the kernel can take these networks."""
    _, D, H = networks.W.shape
    return (
        has_triton()
        and family.name in ("gaussian", "laplace")
        and D <= tiling.BANK_DIMENSIONS
        and H <= tiling.BANK_HIDDEN
        and family.n_components <= tiling.BANK_COMPONENTS
        and all(t.dtype == torch.float32 for t in networks[:4])
        and all(t.device.type == "cuda" or interpreting() for t in networks[:4])
    )


def log_prob(
    x: Float[Tensor, "M B D"], networks: Networks, family: AbstractFamily, activation: Activation
) -> Float[Tensor, "M B"]:
    """Log density of each network's own column; no gradient."""
    out = x.new_empty(x.shape[:2])
    _launch(x, None, networks, family, activation, out, [out] * 4, scaled=False)
    return out


def weighted_log_likelihood(
    x: Float[Tensor, "M B D"],
    weights: Float[Tensor, "M B"],
    networks: Networks,
    family: AbstractFamily,
    activation: Activation,
    *,
    scale_mean_gradient: bool = False,
) -> Float[Tensor, " M"]:
    """Weighted sums of log densities; can be differentiated once, to W, c, V and b."""
    request = networks[4:], family, activation, scale_mean_gradient
    total: Tensor = _Differentiable.apply(request, x, weights, *networks[:4])  # type: ignore[no-untyped-call]
    return total


class _Differentiable(torch.autograd.Function):
    """Weighted sums (M,); their gradients are made on the way and kept."""

    @staticmethod
    def forward(ctx: Any, request: Any, x: Tensor, weights: Tensor, *parameters: Tensor) -> Any:
        fixed, family, activation, scaled = request
        out = x.new_empty(len(x))
        gradients = [
            torch.empty_like(p, memory_format=torch.contiguous_format) for p in parameters
        ]
        _launch(
            x,
            weights,
            Networks(*parameters, *fixed),
            family,
            activation,
            out,
            gradients,
            scaled=scaled,
        )
        ctx.gradients = gradients
        return out

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("The GPU kernels give first derivatives only.")
        scaled = [g * upstream.view(-1, *[1] * (g.ndim - 1)) for g in ctx.gradients]
        return None, None, None, *scaled


def _launch(
    x: Tensor,
    weights: Tensor | None,
    networks: Networks,
    family: AbstractFamily,
    activation: Activation,
    out: Tensor,
    gradients: list[Tensor],
    *,
    scaled: bool,
) -> None:
    W, c, V, b, own, seen, log_floor = networks
    M, B, D = x.shape
    H, K = W.shape[2], family.n_components
    if B == 0:
        out.zero_()
        for g in gradients:
            g.zero_()
        return
    gradient = weights is not None
    tiles = tiling.bank(B, gradient=gradient)
    chunk = B if gradient else min(B, SCORED_ROWS)
    KP = max(16, tiling.power_of_two(K))
    with current(x.device):
        kernels_of("networks").network_kernel[(M, tiling.cdiv(B, chunk))](
            x,
            x if weights is None else weights,
            W.contiguous(),
            c.contiguous(),
            V.contiguous(),
            b.contiguous(),
            c if log_floor is None else log_floor.contiguous(),
            own,
            seen.view(torch.uint8),
            out,
            *gradients,
            B,
            D,
            H,
            K,
            chunk,
            *x.stride(),
            *((0, 0) if weights is None else weights.stride()),
            BB=tiles.rows,
            HP=max(16, tiling.power_of_two(H)),
            KP=KP,
            DP=max(16, tiling.power_of_two(D)),
            FAMILY=family.name,
            ACTIVATION=activation,
            FLOORED=log_floor is not None,
            GRADIENT=gradient,
            SCALE_MEAN=scaled,
            REREAD=gradient and KP >= tiling.BANK_REREAD,
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )
