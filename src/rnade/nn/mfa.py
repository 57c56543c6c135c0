"""Mixture of factor analysers, as a torch module."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rnade.checks import positive_int
from rnade.nn.mixture import AbstractGaussianMixture, LogJoint


class Posterior(NamedTuple):
    """What the factors of a component are, given a row: normal, with these parameters."""

    weights: Float[Tensor, "M K q D"]
    """The mean is weights @ (x - mu)."""
    covariance: Float[Tensor, "M K q q"]
    log_precision: Float[Tensor, "M K"]
    """Log determinant of the inverse covariance."""

    @staticmethod
    def of(Lambda: Float[Tensor, "M K D q"], scaled: Float[Tensor, "M K D q"]) -> "Posterior":
        r"""From loadings, as they are and :math:`\Psi^{-1}\Lambda`.

        The precision is :math:`I + \Lambda^\top\Psi^{-1}\Lambda`.
        """
        eye = torch.eye(Lambda.shape[-1], dtype=Lambda.dtype, device=Lambda.device)
        R = torch.linalg.cholesky(eye + Lambda.mT @ scaled)
        # Not by cholesky_inverse, which on a GPU takes one matrix after the other.
        inverse = torch.linalg.solve_triangular(R, eye.expand_as(R), upper=False)
        covariance = inverse.mT @ inverse
        log_precision = 2 * R.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return Posterior(covariance @ scaled.mT, covariance, log_precision)


class MixtureOfFactorAnalyzersModule(AbstractGaussianMixture):
    r"""Mixture of K Gaussians with covariances :math:`\Lambda_k \Lambda_k^\top + \Psi_k`.

    Each component explains its rows by q factors, :math:`x = \mu_k + \Lambda_k z + \epsilon`, with
    diagonal noise :math:`\Psi_k`. q = D is a mixture of Gaussians. Densities cost O(D q) for each
    row and component, by the Woodbury identity.

    Parameters
    ----------
    n_dimensions : int
        D.
    n_components : int
        K.
    n_factors : int
        q, from 1 to D.
    n_models : int
        M, the number of models in a bank.

    References
    ----------
    Ghahramani and Hinton (1996), The EM algorithm for mixtures of factor analyzers.
    """

    def __init__(
        self, n_dimensions: int, n_components: int, n_factors: int, *, n_models: int = 1
    ) -> None:
        super().__init__(n_dimensions, n_components, n_models)
        self.n_factors = positive_int(n_factors, "n_factors")
        if self.n_factors > n_dimensions:
            raise ValueError(
                f"n_factors must be at most the number of columns, {n_dimensions};"
                f" got {n_factors}."
            )
        self.Lambda = nn.Parameter(torch.zeros(*self.mu.shape, self.n_factors))
        self.log_psi = nn.Parameter(torch.zeros_like(self.mu))

    def covariance_factor(self) -> Float[Tensor, "M K D D"]:
        psi = torch.diag_embed(self.log_psi.exp())
        L: Tensor = torch.linalg.cholesky(self.Lambda @ self.Lambda.mT + psi)
        return L

    def posterior(self) -> Posterior:
        """Of the factors, given a row."""
        return Posterior.of(self.Lambda, self.Lambda * (-self.log_psi).exp()[..., None])

    def log_joint(self) -> LogJoint:
        r"""Prepare the function that gives log alpha_k + log N(x; mu_k, Sigma_k).

        With z the factors' posterior mean, :math:`(x-\mu)^\top\Sigma^{-1}(x-\mu)
        = |\Psi^{-1/2}(x-\mu-\Lambda z)|^2 + |z|^2`: the Woodbury identity without its difference
        of two large numbers, which has no digits left where the noise is small.
        """
        M, K, D, q = self.Lambda.shape
        posterior = self.posterior()
        root = (-self.log_psi / 2).exp()  # Psi^-1/2
        # x - mu - Lambda z is linear in z and x; both products take all components at once.
        factor_weights = posterior.weights.reshape(M, K * q, D).mT
        factor_shift = -(posterior.weights @ self.mu[..., None]).reshape(M, 1, K * q)
        scaled = self.Lambda * root[..., None]  # Psi^-1/2 Lambda
        log_determinant = self.log_psi.sum(-1) + posterior.log_precision
        constant = self.log_alpha - log_determinant / 2 - D * math.log(2 * math.pi) / 2

        def log_joint(x: Tensor) -> Tensor:
            z = torch.baddbmm(factor_shift, x, factor_weights).view(M, -1, K, q)
            centred = (x[:, None] - self.mu[:, :, None]) * root[:, :, None]  # (M, K, B, D)
            z = z.transpose(1, 2)  # (M, K, B, q)
            residual = centred - z @ scaled.mT
            squares = residual.square().sum(-1) + z.square().sum(-1)
            return (constant[..., None] - squares / 2).mT

        return log_joint

    def _set_covariance(self, covariance: Float[Tensor, "M K D D"]) -> None:
        Lambda, psi = factors_of(covariance, self.n_factors)
        self.Lambda.copy_(Lambda)
        self.log_psi.copy_(psi.log())


def factors_of(
    covariance: Float[Tensor, "*components D D"], q: int
) -> tuple[Float[Tensor, "*components D q"], Float[Tensor, "*components D"]]:
    """Loadings of the q largest factors of covariances, and the noise that is left.

    Of the correlation matrix, so that columns of small variance count as others do.
    """
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    deviation = variance.sqrt()
    correlation = covariance / deviation[..., None] / deviation[..., None, :]
    values, vectors = torch.linalg.eigh(correlation)
    # With q = D any noise below the smallest eigenvalue makes the approximation exact.
    rest = values[..., :-q].mean(-1) if q < covariance.shape[-1] else values[..., 0] / 2
    strength = (values[..., -q:] - rest[..., None]).clamp_min(0).sqrt()
    factors = vectors[..., -q:] * strength[..., None, :]
    # Not below the rounding error of the difference.
    noise = (1 - factors.square().sum(-1)).clamp_min(torch.finfo(factors.dtype).eps)
    return factors * deviation[..., None], noise * variance
