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
from rnade.backends.spec import Spec
from rnade.families.base import AbstractFamily

# The families that the kernel has, by name, and those of the library that it does not, and why.
FAMILIES = ("gaussian", "laplace")
WITHOUT = {"bernoulli": "the networks are those of a real-valued FVBN"}
# Rows that a program scores, so that few networks and many rows fill the chip too.
SCORED_ROWS = 512


def serves(networks: Networks, family: AbstractFamily) -> bool:
    """Whether the kernel can take these networks."""
    _, D, H = networks.W.shape
    return (
        has_triton()
        and family.name in FAMILIES
        and D <= tiling.BANK_DIMENSIONS
        and H <= tiling.BANK_HIDDEN
        and family.n_components <= tiling.BANK_COMPONENTS
        and all(t.dtype == torch.float32 for t in networks.trained)
        and all(t.device.type == "cuda" or interpreting() for t in networks.trained)
    )


def log_prob(x: Tensor, networks: Networks, spec: Spec) -> Tensor:
    """Log densities (M, B) of each network's own column in rows (M, B, D); no gradient."""
    out = x.new_empty(x.shape[:2])
    _launch(x, None, networks, spec, out, [out] * 4)
    return out


def weighted_log_likelihood(
    x: Tensor, weights: Tensor, networks: Networks, spec: Spec
) -> Float[Tensor, " M"]:
    """Weighted sums of log densities; can be differentiated once, to W, c, V and b."""
    total: Tensor = _Differentiable.apply(spec, x, weights, *networks)  # type: ignore[no-untyped-call]
    return total


class _Differentiable(torch.autograd.Function):
    """Weighted sums (M,); their gradients are made on the way and kept."""

    @staticmethod
    def forward(ctx: Any, spec: Spec, x: Tensor, weights: Tensor, *given: Tensor) -> Any:
        networks, out = Networks(*given), x.new_empty(len(x))
        ctx.gradients = [
            torch.empty_like(p, memory_format=torch.contiguous_format) for p in networks.trained
        ]
        _launch(x, weights, networks, spec, out, ctx.gradients)
        return out

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("The GPU kernels give first derivatives only.")
        W, c, V, b = (g * upstream.view(-1, *[1] * (g.ndim - 1)) for g in ctx.gradients)
        return None, None, None, *Networks(W, c, V, b, None, None)  # type: ignore[arg-type]


def _launch(
    x: Tensor,
    weights: Tensor | None,
    networks: Networks,
    spec: Spec,
    out: Tensor,
    gradients: list[Tensor],
) -> None:
    W, c, V, b, own, inputs, log_floor = networks
    M, B, D = x.shape
    family = spec.family
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
            inputs.view(torch.uint8),
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
            ACTIVATION=spec.activation,
            FLOORED=log_floor is not None,
            GRADIENT=gradient,
            SCALE_MEAN=spec.scale_mean_gradient,
            REREAD=gradient and KP >= tiling.BANK_REREAD,
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )
