"""Launches of the kernels for banks of small models.

Like `launch`, this waits for nothing and imports Triton only at the first launch.
"""

import itertools
from typing import NamedTuple

from torch import Tensor

from rnade.backends.gpu import tiling
from rnade.backends.gpu.launch import current, flags_of, kernels_of
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec
from rnade.batch import Batch


class Parts(NamedTuple):
    """Gradients before they are added up."""

    own: Tensor  # (M, D + D H P + D P): drho, dV, db
    early: Tensor  # (M, D, D + 1, H): what each position gives to dW and dc
    order: Tensor | None


def fits(batch: Batch, parameters: Parameters, spec: Spec) -> bool:
    """Whether there are enough models, and these small enough, for one program a dimension.

    Beyond the smallest number of models their number does not matter, so that a model's bits do
    not depend on how many others there are.
    """
    M, B, D = batch.x.shape
    return (
        parameters.U is None
        and M >= tiling.BANK_MODELS
        and B >= 1
        and D <= tiling.BANK_DIMENSIONS
        and parameters.W.shape[2] <= tiling.BANK_HIDDEN
        and spec.family.n_components <= tiling.BANK_COMPONENTS
    )


def terms(batch: Batch, parameters: Parameters, spec: Spec) -> Tensor:
    """The terms (M, B, D)."""
    out = batch.x.new_empty(batch.x.shape)
    _launch(batch._replace(weights=None), parameters, spec, out, out, out)
    return out


def value_and_parts(batch: Batch, parameters: Parameters, spec: Spec) -> tuple[Tensor, Parts]:
    """Each dimension's part (M, D) of the weighted sum of terms, and parts of its gradient."""
    M, D, H, P = parameters.V.shape
    new = batch.x.new_empty
    out, own, early = new(M, D), new(M, D * (1 + (H + 1) * P)), new(M, D, D + 1, H)
    _launch(batch, parameters, spec, out, own, early)
    return out, Parts(own, early, batch.order)


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
    shapes = [t.shape for t in parameters.trained]
    ends = [0, *itertools.accumulate(shape[1:].numel() for shape in shapes)]
    return [
        out[:, low:high].view(shape)
        for (low, high), shape in zip(itertools.pairwise(ends), shapes, strict=True)
    ]


def _launch(
    batch: Batch, parameters: Parameters, spec: Spec, out: Tensor, own: Tensor, early: Tensor
) -> None:
    x, weights, _, order = batch
    W, c, rho, V, b, log_floor, _, _ = parameters
    M, B, D = x.shape
    H, K = W.shape[2], spec.family.n_components
    rho = rho.contiguous()
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
            FAMILY=spec.family.name,
            **flags_of(spec),
            FLOORED=log_floor is not None,
            ORDERED=order is not None,
            GRADIENT=gradient,
            SCALE_MEAN=spec.scale_mean_gradient,
            REREAD=gradient and KP >= tiling.BANK_REREAD,
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )
