"""Mixture of K Gaussians, the paper's main choice of conditional (RNADE-MoG)."""

import math

import torch
from torch import Generator, Tensor

from rnade.families.mixture import AbstractMixture
from rnade.typing import Array

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class GaussianMixture(AbstractMixture):
    r"""Mixture of K Gaussians, :math:`\sum_k \alpha_k \mathcal{N}(x; \mu_k, \sigma_k^2)`.

    Parameters
    ----------
    n_components : int
        K.

    References
    ----------
    Uria, Murray and Larochelle (2013), equations 6 to 8 and appendix.

    Examples
    --------
    >>> import torch
    >>> family = GaussianMixture(2)
    >>> z = torch.tensor([0.0, 0.0, -1.0, 1.0, 0.0, 0.0])
    >>> round(family.cdf(torch.tensor(0.0), z).item(), 3)
    0.5
    """

    name = "gaussian"
    deviation = 1.0

    @staticmethod
    def _log_kernel(u: Tensor) -> Tensor:
        return -0.5 * u * u - LOG_SQRT_2PI

    @staticmethod
    def _cdf_kernel(u: Tensor) -> Tensor:
        return torch.as_tensor(torch.special.ndtr(u))

    @staticmethod
    def _log_cdf_kernel(u: Tensor) -> Tensor:
        # Beyond -1e8 log_ndtr squares past what is useful; the leading term is exact there.
        return torch.where(u < -1e8, -0.5 * u * u, torch.special.log_ndtr(u.clamp_min(-1e8)))

    @staticmethod
    def _quantile_of_log(log_q: Tensor) -> Tensor:
        # Newton's method on log Phi, which is concave and increasing, so that every step but the
        # first comes from the left and converges. exp(log_q) would underflow beyond 38 sigma.
        u = torch.where(
            log_q > -300, torch.special.ndtri(log_q.clamp_min(-300).exp()), -(-2 * log_q).sqrt()
        )
        for _ in range(4):
            log_phi = torch.special.log_ndtr(u)
            log_hazard = GaussianMixture._log_kernel(u) - log_phi
            step = (log_phi - log_q) * torch.exp(-log_hazard)
            u = u - torch.where(torch.isfinite(step), step, torch.zeros_like(step))
        return u

    def noise(self, like: Tensor, generator: Generator) -> Tensor:
        return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=generator)

    @staticmethod
    def _reference_kernel(u: Array) -> tuple[Array, Array]:
        return -0.5 * u * u - LOG_SQRT_2PI, -u
