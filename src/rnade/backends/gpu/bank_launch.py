"""Launches of the kernels for banks of small models.

Like `launch`, this waits for nothing and imports Triton only at the first launch.
"""

import itertools
from typing import NamedTuple

from torch import Tensor

from rnade.backends.gpu import tiling
from rnade.backends.gpu.launch import Request, current, kernels_of
from rnade.backends.parameters import Parameters


class Parts(NamedTuple):
    """Gradients before they are added up."""

    own: Tensor  # (M, D + D H P + D P): drho, dV, db
    early: Tensor  # (M, D, D + 1, H): what each position gives to dW and dc
    order: Tensor | None


def fits(request: Request, x: Tensor, parameters: Parameters) -> bool:
    """Whether there are enough models, and these small enough, for one program a dimension.

    Beyond the smallest number of models their number does not matter, so that a model's bits do
    not depend on how many others there are.
    """
    M, B, D = x.shape
    return (
        parameters.U is None
        and M >= tiling.BANK_MODELS
        and B >= 1
        and D <= tiling.BANK_DIMENSIONS
        and parameters.W.shape[2] <= tiling.BANK_HIDDEN
        and request.family.n_components <= tiling.BANK_COMPONENTS
    )


def terms(request: Request, x: Tensor, parameters: Parameters) -> Tensor:
    """The terms (M, B, D)."""
    out = x.new_empty(x.shape)
    _launch(request, x, parameters, None, out, out, out)
    return out


def value_and_parts(
    request: Request, x: Tensor, weights: Tensor, parameters: Parameters
) -> tuple[Tensor, Parts]:
    """Each dimension's part (M, D) of the weighted sum of terms, and parts of its gradient."""
    M, D, H, P = parameters.V.shape
    out = x.new_empty(M, D)
    own, early = x.new_empty(M, D * (1 + (H + 1) * P)), x.new_empty(M, D, D + 1, H)
    _launch(request, x, parameters, weights, out, own, early)
    return out, Parts(own, early, request.order)


def totals(parts: Parts, scale: Tensor, parameters: Parameters) -> list[Tensor]:
    """Gradients of W, c, rho, V and b from their parts, each model's times its `scale` (M,)."""
    own, early, order = parts
    M, D, H = parameters.W.shape
    n = (D + 1) * H + own.shape[1]
    out = own.new_empty(M, n)
    with current(out.device):
        kernels_of("bank").total_kernel[(tiling.cdiv(n, tiling.UPDATE_BLOCK), M)](
            own,
            early,
            own if order is None else order,
            scale,
            out,
            D,
            H,
            own.shape[1],
            ORDERED=order is not None,
            BLOCK=tiling.UPDATE_BLOCK,
            num_warps=4,
        )
    shapes = [t.shape for t in parameters[:5]]
    ends = [0, *itertools.accumulate(shape[1:].numel() for shape in shapes)]
    return [
        out[:, low:high].view(shape)
        for (low, high), shape in zip(itertools.pairwise(ends), shapes, strict=True)
    ]


def _launch(
    request: Request,
    x: Tensor,
    parameters: Parameters,
    weights: Tensor | None,
    out: Tensor,
    own: Tensor,
    early: Tensor,
) -> None:
    W, c, rho, V, b, log_floor = parameters[:6]
    M, B, D = x.shape
    H, K = W.shape[2], request.family.n_components
    rho, order = rho.contiguous(), request.order
    gradient = weights is not None
    tiles = tiling.bank(B, gradient=gradient)
    KP = max(16, tiling.power_of_two(K))
    with current(x.device):
        kernels_of("bank").bank_kernel[(M * D,)](
            x,
            x if weights is None else weights,
            W.contiguous(),
            c.contiguous(),
            rho,
            V,
            b.contiguous(),
            rho if log_floor is None else log_floor.contiguous(),
            rho if order is None else order,
            out,
            own,
            early,
            B,
            D,
            H,
            K,
            *x.stride(),
            *((0, 0) if weights is None else weights.stride()),
            *V.stride(),
            BB=tiles.rows,
            HP=max(16, tiling.power_of_two(H)),
            KP=KP,
            DP=max(16, tiling.power_of_two(D + 1)),
            FAMILY=request.family.name,
            **request.flags,
            FLOORED=log_floor is not None,
            ORDERED=order is not None,
            GRADIENT=gradient,
            SCALE_MEAN=request.scale_mean_gradient,
            REREAD=gradient and KP >= tiling.BANK_REREAD,
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )
