"""Mixtures of K location-scale components: everything but the shape of one component."""

import abc
import math
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Shaped
from scipy.special import log_softmax, logsumexp
from torch import Generator, Tensor

from rnade.checks import positive_int
from rnade.families.base import AbstractFamily, Epilogue, Floor, Outputs, Rows, RowWeights, Values
from rnade.typing import Array

# Numerical guards. Without them a run-away network output (z_sigma = 100, or a mean 1e25 away)
# makes exp or u * u overflow in float32, and the gradient becomes NaN. No density that anyone
# fits comes near: the columns are standardised, exp(-30) is 1e-13 and exp(30) is 1e13.
LOG_SCALE_BOUND = 30.0
U_BOUND = 1e9


class MixtureParameters(NamedTuple):
    """Constrained parameters of a mixture, each of shape (..., K)."""

    log_alpha: Tensor
    mu: Tensor
    log_sigma: Tensor


class AbstractMixture(AbstractFamily):
    r"""Mixture of K components, :math:`\sum_k \alpha_k f((x-\mu_k)/\sigma_k)/\sigma_k`.

    The K mixing fractions, means and scales come from z = (z_alpha, z_mu, z_sigma), each K long:
    alpha = softmax(z_alpha), mu = z_mu, sigma = exp(z_sigma) (the paper's equations 6 to 8). With
    a floor, sigma = sqrt(exp(2 z_sigma) + floor^2): smooth, never below the floor, and exactly the
    paper's form for a floor of 0.

    Parameters
    ----------
    n_components : int
        K.

    Attributes
    ----------
    deviation : float
        Standard deviation of the component of scale 1.
    """

    deviation: ClassVar[float]
    discrete = False
    has_scale = True

    def __init__(self, n_components: int = 10) -> None:
        self.n_components = positive_int(n_components, "n_components")
        self.n_outputs = 3 * self.n_components

    @classmethod
    def make(cls, n_components: int) -> "AbstractMixture":
        return cls(n_components)

    # The shape of one component, at location 0 and scale 1.

    @staticmethod
    @abc.abstractmethod
    def _log_kernel(u: Tensor) -> Tensor:
        """Log density of the standard component."""

    @staticmethod
    @abc.abstractmethod
    def _cdf_kernel(u: Tensor) -> Tensor:
        """Distribution function of the standard component."""

    @staticmethod
    @abc.abstractmethod
    def _log_cdf_kernel(u: Tensor) -> Tensor:
        """Its logarithm, accurate far into the left tail."""

    @staticmethod
    @abc.abstractmethod
    def _quantile_of_log(log_q: Tensor) -> Tensor:
        """The u at which the log distribution function is log_q, for log_q <= log(1/2)."""

    @abc.abstractmethod
    def noise(self, like: Tensor, generator: Generator) -> Tensor:
        """Draws from the standard component, of the shape, dtype and device of `like`."""

    @staticmethod
    @abc.abstractmethod
    def _reference_kernel(u: Array) -> tuple[Array, Array]:
        """Log density of the standard component and its derivative, in NumPy."""

    def _starting_scale(self, spacing: Tensor) -> Tensor:
        """Scale of a component when neighbouring means are `spacing` apart."""
        return spacing / self.deviation

    @staticmethod
    def mean_factor(log_sigma: Tensor) -> Tensor:
        """What `scale_mean_gradient` multiplies the gradient of a mean by: the paper's sigma."""
        return log_sigma.exp()

    # Everything else follows.

    def moved(self, z: Outputs, by: Tensor, log_unit: Tensor) -> Tensor:
        z_alpha, mu, z_sigma = torch.split(z, self.n_components, dim=-1)
        by, log_unit = by[..., None], log_unit[..., None]
        return torch.cat([z_alpha, by + log_unit.exp() * mu, z_sigma + log_unit], dim=-1)

    def constrained(self, z: Outputs, log_floor: Floor = None) -> MixtureParameters:
        """Mixing fractions (in logs), means and log scales from the network's outputs."""
        z_alpha, z_mu, z_sigma = torch.split(z, self.n_components, dim=-1)
        log_sigma = z_sigma.clamp(-LOG_SCALE_BOUND, LOG_SCALE_BOUND)
        if log_floor is not None:
            log_sigma = torch.logaddexp(2 * log_sigma, 2 * log_floor.unsqueeze(-1)) / 2
        return MixtureParameters(torch.log_softmax(z_alpha, dim=-1), z_mu, log_sigma)

    def log_prob(
        self, x: Values, z: Outputs, log_floor: Floor = None, *, scale_mean_gradient: bool = False
    ) -> Values:
        log_alpha, mu, log_sigma = self.constrained(z, log_floor)
        if scale_mean_gradient:
            factor = self.mean_factor(log_sigma.detach())
            mu = mu * factor + (mu * (1 - factor)).detach()
        u = ((x.unsqueeze(-1) - mu) * torch.exp(-log_sigma)).clamp(-U_BOUND, U_BOUND)
        return torch.logsumexp(log_alpha + self._log_kernel(u) - log_sigma, dim=-1)

    def cdf(self, x: Values, z: Outputs, log_floor: Floor = None) -> Values:
        log_alpha, mu, log_sigma = self.constrained(z, log_floor)
        u = (x.unsqueeze(-1) - mu) * torch.exp(-log_sigma)
        return (log_alpha.exp() * self._cdf_kernel(u)).sum(-1).clamp(0, 1)

    def sample(
        self,
        z: Outputs,
        log_floor: Floor = None,
        *,
        generator: Generator,
        low: Values | None = None,
        high: Values | None = None,
    ) -> Values:
        """One draw for each z: a component, then a value from it."""
        if low is not None or high is not None:
            return self._sample_between(z, log_floor, generator, low, high)
        log_alpha, mu, log_sigma = self.constrained(z, log_floor)
        k = _draw_component(log_alpha, generator)
        mu, log_sigma = mu.gather(-1, k).squeeze(-1), log_sigma.gather(-1, k).squeeze(-1)
        return mu + log_sigma.exp() * self.noise(mu, generator)

    def _sample_between(
        self,
        z: Tensor,
        log_floor: Tensor | None,
        generator: Generator,
        low: Tensor | None,
        high: Tensor | None,
    ) -> Tensor:
        """Exact draws from the truncated mixture, however little mass lies in the range.

        Masses are kept in logs and taken in the tail that holds the interval, so that a range 40
        standard deviations away is drawn from correctly and without rejection.
        """
        dtype = z.dtype
        z = z.double()
        log_floor = None if log_floor is None else log_floor.double()
        infinity = z.new_tensor(math.inf)
        low = -infinity if low is None else low.double()
        high = infinity if high is None else high.double()
        log_alpha, mu, log_sigma = self.constrained(z, log_floor)
        low_u = (low.unsqueeze(-1) - mu) * torch.exp(-log_sigma)
        high_u = (high.unsqueeze(-1) - mu) * torch.exp(-log_sigma)
        # By symmetry, look at each interval from the side on which most of it is the left tail.
        flipped = low_u + high_u > 0
        left = torch.where(flipped, -high_u, low_u)
        right = torch.where(flipped, -low_u, high_u)
        log_left, log_right = self._log_cdf_kernel(left), self._log_cdf_kernel(right)
        log_mass = log_right + torch.log(-torch.expm1(log_left - log_right))
        # An interval narrower than the arithmetic resolves has no mass at all: spread evenly.
        log_mass = torch.where(torch.isfinite(log_mass), log_mass, log_right - 700.0)
        k = _draw_component(torch.log_softmax(log_alpha + log_mass, dim=-1), generator)

        def chosen(t: Tensor) -> Tensor:
            return t.gather(-1, k).squeeze(-1)

        left, right = chosen(left), chosen(right)
        log_left, log_right = chosen(log_left), chosen(log_right)
        v = torch.rand(left.shape, dtype=left.dtype, device=left.device, generator=generator)
        log_q = torch.logaddexp(v.log() + log_right, torch.log1p(-v) + log_left)
        half = math.log(0.5)
        # Where the draw falls beyond the median, use the other tail: F(u) = 1 - F(-u).
        beyond = log_q > half
        u = torch.where(
            beyond,
            -self._quantile_of_log(torch.log(-torch.expm1(torch.where(beyond, log_q, half)))),
            self._quantile_of_log(torch.where(beyond, half, log_q)),
        )
        u = torch.minimum(torch.maximum(u, left), right)
        u = torch.where(chosen(flipped), -u, u)
        x = chosen(mu) + chosen(log_sigma).exp() * u
        return torch.minimum(torch.maximum(x, low), high).to(dtype)

    def starting_biases(
        self, rows: Rows, *, weights: RowWeights = None, spread: str = "quantile"
    ) -> Float[Tensor, "D P"]:
        """Equal fractions; means at quantiles of each column, or evenly over its range."""
        if weights is not None:
            weights = weights.to(rows)
            rows, weights = rows[weights > 0], weights[weights > 0]
        K, D = self.n_components, rows.shape[1]
        if spread == "range":
            low, high = rows.amin(0), rows.amax(0)
            spacing = ((high - low) / (K + 1)).clamp_min(1e-3)  # (D,)
            mu = low[:, None] + spacing[:, None] * torch.arange(1, K + 1).to(rows)
            scale = self._starting_scale(spacing)[:, None].expand(D, K)
        elif spread == "quantile":
            mu, deviation = _quantiles(rows, weights, K), _deviation(rows, weights)
            scale = self._starting_scale(deviation.clamp_min(1e-3))[:, None].expand(D, K)
        else:
            raise ValueError(f"spread must be 'quantile' or 'range'; got {spread!r}.")
        return torch.cat([torch.zeros_like(mu), mu, scale.log()], dim=1)

    def check_support(self, x: Shaped[Tensor, "..."]) -> None:
        """Any real number has a density."""

    def reference_epilogue(self, x: Array, z: Array, log_floor: float | None) -> Epilogue:
        """Responsibilities and gradients as in the paper's appendix, with its slips mended."""
        z_alpha, mu, z_sigma = np.split(z, 3, axis=-1)
        log_sigma = np.clip(z_sigma, -LOG_SCALE_BOUND, LOG_SCALE_BOUND)
        slope = (log_sigma == z_sigma).astype(float)  # d log_sigma / d z_sigma
        if log_floor is not None:
            unfloored = log_sigma
            log_sigma = np.logaddexp(2 * log_sigma, 2 * log_floor) / 2
            slope = slope * np.exp(2 * (unfloored - log_sigma))
        log_alpha, sigma = log_softmax(z_alpha, axis=-1), np.exp(log_sigma)
        u = (x[:, None] - mu) / sigma
        log_kernel, d_kernel = self._reference_kernel(u)
        log_phi = log_kernel - log_sigma  # log density of x under each component
        log_p = logsumexp(log_alpha + log_phi, axis=-1)
        pi = np.exp(log_alpha + log_phi - log_p[:, None])  # responsibilities
        d_mu = -pi * d_kernel / sigma
        d_z = np.concatenate(
            [pi - np.exp(log_alpha), d_mu, -pi * (u * d_kernel + 1) * slope], axis=-1
        )
        return Epilogue(log_p, d_z, -d_mu.sum(-1))


def _quantiles(rows: Tensor, weights: Tensor | None, K: int) -> Tensor:
    """Quantiles (k + 1/2) / K of each column, (D, K)."""
    shares = (torch.arange(K, device=rows.device) + 0.5) / K
    ordered, at = rows.sort(0)
    last = len(rows) - 1
    if weights is None:
        # By sorted position: torch.quantile refuses more than 16 million values.
        return ordered[(shares * len(rows)).long().clamp_max(last)].T
    summed = weights[at].double().cumsum(0).T.contiguous()  # (D, N)
    wanted = shares * summed[:, -1:].to(shares)  # rounded as above, so that ties fall the same way
    place = torch.searchsorted(summed, wanted.double(), right=True)
    return ordered.T.gather(1, place.clamp_max(last))


def _deviation(rows: Tensor, weights: Tensor | None) -> Tensor:
    """Standard deviation of each column, (D,)."""
    if weights is None:
        return rows.std(0, correction=0)
    share = weights / weights.sum()
    return (share @ (rows - share @ rows).square()).sqrt()


def _draw_component(log_alpha: Tensor, generator: Generator) -> Tensor:
    """Index of a component for each row, of shape (..., 1), by inverting the summed fractions."""
    cumulative = log_alpha.exp().cumsum(-1)
    shape = (*cumulative.shape[:-1], 1)
    v = torch.rand(shape, dtype=cumulative.dtype, device=cumulative.device, generator=generator)
    k = (cumulative < v * cumulative[..., -1:]).sum(-1, keepdim=True)
    return k.clamp_max(log_alpha.shape[-1] - 1)
