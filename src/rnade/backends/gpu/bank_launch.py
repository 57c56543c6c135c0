"""Launches of the kernels for banks of small models.

Like `launch`, this waits for nothing and imports Triton only at the first launch.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rnade.backends.gpu import tiling
from rnade.backends.gpu.launch import contiguous, flags_of, run
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec
from rnade.batch import Batch
from rnade.families.base import AbstractFamily


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
    M, B, _ = batch.x.shape
    enough = M >= tiling.BANK_MODELS and B >= 1
    return parameters.U is None and enough and small(parameters.W, spec.family)


def small(W: Tensor, family: AbstractFamily) -> bool:
    """Whether one program can take all inputs, units and components at once."""
    _, D, H = W.shape
    return (
        D <= tiling.BANK_DIMENSIONS
        and H <= tiling.BANK_HIDDEN
        and family.n_components <= tiling.BANK_COMPONENTS
    )


def constants_of(B: int, inputs: int, H: int, spec: Spec, *, gradient: bool) -> dict[str, Any]:
    """What kernels are compiled for that take all inputs, units and components at once."""
    tiles = tiling.bank(B, gradient=gradient)
    HP, KP, DP = (
        max(16, tiling.power_of_two(size)) for size in (H, spec.family.n_components, inputs)
    )
    return {
        **{"BB": tiles.rows, "HP": HP, "KP": KP, "DP": DP},
        **{"num_warps": tiles.warps, "num_stages": tiles.stages},
        "FAMILY": spec.family.name,
        "SCALE_MEAN": spec.scale_mean_gradient,
        "REREAD": gradient and KP >= tiling.BANK_REREAD,
    }


def terms(batch: Batch, parameters: Parameters, spec: Spec) -> Tensor:
    """The terms (M, B, D)."""
    out = batch.x.new_empty(batch.x.shape)
    _launch(batch._replace(weights=None), parameters, spec, out, None, None)
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
    n_own, block = own.shape[1], tiling.UPDATE_BLOCK
    out = own.new_empty(M, (D + 1) * H + n_own)
    grid = tiling.cdiv(out.shape[1], block), M
    tensors = own, early, order, scale, out
    run("bank.total_kernel", grid, *tensors, D, H, n_own, BLOCK=block, num_warps=4)
    shapes = [t.shape for t in parameters.trained]
    pieces = torch.split(out, [shape[1:].numel() for shape in shapes], dim=1)
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _launch(
    batch: Batch,
    parameters: Parameters,
    spec: Spec,
    out: Tensor,
    own: Tensor | None,
    early: Tensor | None,
) -> None:
    x, weights, _, order = batch
    W, c, rho, V, b, log_floor, _, _ = parameters
    M, B, D = x.shape
    H, K = W.shape[2], spec.family.n_components
    W, c, rho, b, log_floor = contiguous(W, c, rho, b, log_floor)
    weight_strides = (0, 0) if weights is None else weights.stride()
    run(
        "bank.bank_kernel",
        (M * D,),
        *(x, weights, W, c, rho, V, b, log_floor, order, out, own, early),
        *(B, D, H, K, *x.stride(), *weight_strides, *V.stride()),
        **constants_of(B, D + 1, H, spec, gradient=weights is not None),
        **flags_of(spec),
    )
