"""Kernel densities of rows, for many kernels and bandwidths at once."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

# Distances in memory at once.
N_DISTANCES = 2**24


def kernel_log_densities(
    rows: Float[Tensor, "N D"], x: Float[Tensor, "B D"], settings: Sequence[tuple[str, float]]
) -> Float[Tensor, "C B"]:
    r"""Log density :math:`\log \frac{1}{N} \sum_i k_h(|x - x_i|)` for each kernel k and width h.

    Distances are computed once for all settings.

    Parameters
    ----------
    rows : Tensor of shape (N, D)
        On which the kernels stand.
    x : Tensor of shape (B, D)
        Rows to be scored.
    settings : sequence of (kernel, bandwidth)
        Kernels are "gaussian", exp(-r^2 / 2 h^2), and "exponential", exp(-r / h).

    Returns
    -------
    Tensor of shape (C, B)
        One row a setting, in nats.
    """
    pieces = torch.split(x, max(1, N_DISTANCES // len(rows)))
    return torch.cat([_log_densities(rows, piece, settings) for piece in pieces], dim=1)


def _log_densities(centres: Tensor, x: Tensor, settings: Sequence[tuple[str, float]]) -> Tensor:
    N, D = centres.shape
    # By differences: |a|^2 + |b|^2 - 2 ab would leave duplicate rows some 1e-8 apart.
    r = torch.cdist(x, centres, compute_mode="donot_use_mm_for_euclid_dist")
    found = []
    for kernel, h in settings:
        exponent = -r / h if kernel == "exponential" else -(r**2) / (2 * h**2)
        log_sum = torch.logsumexp(exponent, dim=1)
        found.append(log_sum - math.log(N) - _log_integral(kernel, h, D))
    return torch.stack(found)


def _log_integral(kernel: str, h: float, D: int) -> float:
    """Log of the integral of a kernel over R^D."""
    if kernel == "gaussian":
        return D / 2 * math.log(2 * math.pi) + D * math.log(h)
    if kernel == "exponential":
        # Surface of the unit sphere, times the integral of r^(D - 1) exp(-r / h) over r.
        surface = math.log(2) + D / 2 * math.log(math.pi) - math.lgamma(D / 2)
        return surface + math.lgamma(D) + D * math.log(h)
    raise ValueError(f"kernel must be 'gaussian' or 'exponential'; got {kernel!r}.")
