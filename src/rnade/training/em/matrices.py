"""Symmetric matrices, many at once."""

import torch
from jaxtyping import Float
from torch import Tensor


def upper_pairs(D: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows and columns of the upper triangle of a D x D matrix."""
    i, j = torch.triu_indices(D, D, device=device)
    return i, j


def symmetric(upper: Float[Tensor, "... T"], D: int) -> Float[Tensor, "... D D"]:
    """Matrices from their upper triangles."""
    i, j = upper_pairs(D, upper.device)
    place = torch.empty(D, D, dtype=torch.int64, device=upper.device)
    place[i, j] = place[j, i] = torch.arange(len(i), device=upper.device)
    return upper[..., place]


def spd_inverse(matrices: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n n"]:
    """Inverses of positive definite matrices, all at once on a GPU too."""
    L = torch.linalg.cholesky(matrices)
    eye = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device).expand_as(L)
    inverse: Tensor = torch.linalg.solve_triangular(L, eye, upper=False)
    return inverse.mT @ inverse


def not_below_floor(
    covariance: Float[Tensor, "*K D D"], floor: Float[Tensor, " D"]
) -> Float[Tensor, "*K D D"]:
    """Raise covariances to at least diag(floor) in every direction.

    With columns in units of the floor, eigenvalues below 1 become 1. That is the covariance of
    the greatest likelihood under this bound, so that EM still never goes down. An eigenvalue
    decomposition is made only of those matrices that need it.
    """
    if not bool((floor > 0).all()):
        return covariance
    root = floor.sqrt()
    units = root[:, None] * root
    scaled = covariance / units
    eye = torch.eye(len(floor), dtype=floor.dtype, device=floor.device)
    _, low = torch.linalg.cholesky_ex(scaled - eye)
    low = low > 0
    if bool(low.any()):
        values, vectors = torch.linalg.eigh(scaled[low])
        scaled[low] = (vectors * values.clamp_min(1)[..., None, :]) @ vectors.mT
    return scaled * units
