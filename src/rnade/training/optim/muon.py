"""Muon (Jordan and others, 2024): momentum of a matrix, made orthogonal.

An update of a square matrix then moves all its singular directions alike, where momentum itself is
mostly a few large ones. Iterations that use products alone stand for a singular value
decomposition: they bring every singular value near 1, which is all that an update needs.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rnade.training.optim.plain import per_model

MOMENTUM = 0.95
N_ITERATIONS = 5
# Of X <- a X + (b XX' + c (XX')^2) X: the steepest at 0 for which singular values stay near 1.
COEFFICIENTS = 3.4445, -4.7750, 2.0315
# Adam moves a weight by about this much of its rate: with it both take the same rates.
SIZE = 0.2


def orthogonal(x: Float[Tensor, "M *layers H H"]) -> Float[Tensor, "M *layers H H"]:
    """Give matrices with the singular vectors of these, and singular values near 1.

    On a GPU in bfloat16, whose error is far below the spread of these values.
    """
    a, b, c = COEFFICIENTS
    norm = torch.linalg.matrix_norm(x, keepdim=True).clamp_min(1e-7)
    found: Tensor = (x / norm).flatten(0, -3)
    found = found.bfloat16() if x.device.type == "cuda" else found
    for _ in range(N_ITERATIONS):
        square = found @ found.mT
        factor = torch.baddbmm(square, square, square, beta=b, alpha=c)
        found = torch.baddbmm(found, factor, found, beta=a)
    return found.view_as(x).to(x.dtype)


def direction(
    velocity: Float[Tensor, "M *layers H H"],
    gradient: Float[Tensor, "M *layers H H"],
    usable: Bool[Tensor, " M"],
) -> Float[Tensor, "M *layers H H"]:
    """Move the velocities of the models that are to move, in place; give what to subtract.

    It is of the size of Adam's, so that it can be taken with the same rate.
    """
    moved = velocity.lerp(gradient, 1 - MOMENTUM)
    velocity.copy_(torch.where(per_model(usable, velocity), moved, velocity))
    ahead = gradient.lerp(velocity, MOMENTUM)  # Nesterov's
    return orthogonal(ahead) * (SIZE * math.sqrt(velocity.shape[-1]))
