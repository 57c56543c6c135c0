"""Mixture of K Laplaces, the paper's variant for sharp peaks and heavy tails (RNADE-MoL)."""

import math

import numpy as np
import torch
from torch import Generator, Tensor

from rnade.families.mixture import AbstractMixture
from rnade.typing import Array

LOG_2 = math.log(2)


class LaplaceMixture(AbstractMixture):
    r"""Mixture of K Laplaces, :math:`\sum_k \alpha_k \exp(-|x-\mu_k|/\sigma_k) / (2\sigma_k)`.

    Parameters
    ----------
    n_components : int
        K.

    References
    ----------
    Uria, Murray and Larochelle (2013), section 3, "Variants".
    """

    name = "laplace"
    deviation = math.sqrt(2)

    @staticmethod
    def _log_kernel(u: Tensor) -> Tensor:
        return -u.abs() - LOG_2

    @staticmethod
    def _cdf_kernel(u: Tensor) -> Tensor:
        tail = 0.5 * torch.exp(-u.abs())
        return torch.where(u > 0, 1 - tail, tail)

    @staticmethod
    def _log_cdf_kernel(u: Tensor) -> Tensor:
        return torch.where(u > 0, torch.log1p(-0.5 * torch.exp(-u.abs())), u.clamp_max(0) - LOG_2)

    @staticmethod
    def _quantile_of_log(log_q: Tensor) -> Tensor:
        return log_q + LOG_2

    def noise(self, like: Tensor, generator: Generator) -> Tensor:
        v = torch.rand(like.shape, dtype=torch.float64, device=like.device, generator=generator)
        v = v - 0.5  # in [-0.5, 0.5); float64 so that log1p(-2|v|) reaches far into the tails
        magnitude = -torch.log1p(-2 * v.abs().clamp_max(0.5 - 2.0**-54))
        return (v.sign() * magnitude).to(like.dtype)

    @staticmethod
    def _reference_kernel(u: Array) -> tuple[Array, Array]:
        return -np.abs(u) - LOG_2, -np.sign(u)
