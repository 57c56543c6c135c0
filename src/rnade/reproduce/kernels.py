"""Kernel densities of the training rows, many bandwidths at once, on any device."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rnade.reproduce.peers import KERNELS
from rnade.typing import Array

# The bandwidths and kernels among which scikit-learn's row chooses: no more freedom than that.
SETTINGS = [(str(s["kernel"]), float(s["bandwidth"])) for s in KERNELS]
# Distances in memory at once.
N_DISTANCES = 2**24


def kernel_log_densities(
    rows: Array, scored: Array, settings: list[tuple[str, float]], device: torch.device
) -> Array:
    r"""Log :math:`\frac{1}{N} \sum_i k_h(|x - x_i|)` for each kernel k and bandwidth h.

    Parameters
    ----------
    rows : array of shape (N, D)
        On which the kernels stand.
    scored : array of shape (B, D)
    settings : list of (kernel, bandwidth)
        Kernels are "gaussian", exp(-r^2 / 2 h^2), and "exponential", exp(-r / h).
    device : torch.device

    Returns
    -------
    array of shape (B, n_settings)
    """
    centres = torch.as_tensor(rows, dtype=torch.float64).to(device)
    pieces = torch.as_tensor(scored, dtype=torch.float64).to(device)
    each = max(1, N_DISTANCES // len(rows))
    return np.concatenate(
        [_log_densities(centres, x, settings).cpu().numpy() for x in torch.split(pieces, each)]
    )


def held_out_kernel_log_densities(
    rows: Array,
    part_of: NDArray[np.int64],
    settings: list[tuple[str, float]],
    device: torch.device,
) -> Array:
    """Log density of each row by kernels on the rows of all other parts, (N, n_settings)."""
    found = np.empty((len(rows), len(settings)))
    for part in np.unique(part_of):
        mine = part_of == part
        found[mine] = kernel_log_densities(rows[~mine], rows[mine], settings, device)
    return found


def _log_densities(centres: Tensor, x: Tensor, settings: list[tuple[str, float]]) -> Tensor:
    N, D = centres.shape
    # By differences: |a|^2 + |b|^2 - 2 ab would leave twins some 1e-8 apart.
    r = torch.cdist(x, centres, compute_mode="donot_use_mm_for_euclid_dist")
    by_setting = []
    for kernel, h in settings:
        exponent = -r / h if kernel == "exponential" else -(r**2) / (2 * h**2)
        log_sum = torch.logsumexp(exponent, dim=1)
        by_setting.append(log_sum - math.log(N) - _log_integral(kernel, h, D))
    return torch.stack(by_setting, dim=1)


def _log_integral(kernel: str, h: float, D: int) -> float:
    """Log of the integral of a kernel over R^D."""
    if kernel == "gaussian":
        return D / 2 * math.log(2 * math.pi) + D * math.log(h)
    if kernel == "exponential":
        # Surface of the unit sphere, times the integral of r^(D - 1) exp(-r / h) over r.
        surface = math.log(2) + D / 2 * math.log(math.pi) - math.lgamma(D / 2)
        return surface + math.lgamma(D) + D * math.log(h)
    raise ValueError(f"kernel must be 'gaussian' or 'exponential'; got {kernel!r}.")
