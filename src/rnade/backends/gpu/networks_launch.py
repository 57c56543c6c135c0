"""Launches of the kernel for many separate networks, and their gradient.

Like `launch`, this waits for nothing and imports Triton only at the first launch.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rnade.backends.gpu import tiling
from rnade.backends.gpu.bank_launch import constants_of, small
from rnade.backends.gpu.launch import contiguous, has_triton, interpreting, run
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
    return (
        has_triton()
        and family.name in FAMILIES
        and small(networks.W, family)
        and all(t.dtype == torch.float32 for t in networks.trained)
        and all(t.device.type == "cuda" or interpreting() for t in networks.trained)
    )


def log_prob(x: Tensor, networks: Networks, spec: Spec) -> Tensor:
    """Log densities (M, B) of each network's own column in rows (M, B, D); no gradient."""
    out = x.new_empty(x.shape[:2])
    _launch(x, None, networks, spec, out)
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
    gradients: Sequence[Tensor | None] = (None,) * 4,
) -> None:
    W, c, V, b, own, inputs, log_floor = networks
    M, B, D = x.shape
    H, K = W.shape[2], spec.family.n_components
    if B == 0:
        for t in (out, *gradients):
            if t is not None:
                t.zero_()
        return
    chunk = min(B, SCORED_ROWS) if weights is None else B
    W, c, V, b, log_floor = contiguous(W, c, V, b, log_floor)
    columns = own, inputs.view(torch.uint8)
    weight_strides = (0, 0) if weights is None else weights.stride()
    run(
        "networks.network_kernel",
        (M, tiling.cdiv(B, chunk)),
        *(x, weights, W, c, V, b, log_floor, *columns, out, *gradients),
        *(B, D, H, K, chunk, *x.stride(), *weight_strides),
        **constants_of(B, D, H, spec, gradient=weights is not None),
        ACTIVATION=spec.activation,
    )
