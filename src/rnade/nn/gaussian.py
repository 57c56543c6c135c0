"""Gaussian with full covariance, as a torch module."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rnade.nn.mixture import AbstractGaussianMixture, LogJoint, log_joint_of_factors


class GaussianModule(AbstractGaussianMixture):
    """One Gaussian with full covariance, kept as its Cholesky factor: a mixture of one.

    Parameters
    ----------
    n_dimensions : int
        D.
    n_models : int
        M, the number of models in a bank.

    Examples
    --------
    >>> import torch
    >>> GaussianModule(2).log_prob(torch.zeros(1, 2)).exp()  # 1 / (2 pi)
    tensor([0.1592], grad_fn=<ExpBackward0>)
    """

    def __init__(self, n_dimensions: int, *, n_models: int = 1) -> None:
        super().__init__(n_dimensions, 1, n_models)
        M, D = self.n_models, self.n_dimensions
        self.register_buffer("log_alpha", torch.zeros(M, 1))
        self.mu = nn.Parameter(torch.zeros(M, 1, D))
        self.L = nn.Parameter(torch.eye(D).repeat(M, 1, 1, 1))

    def covariance_factor(self) -> Float[Tensor, "M 1 D D"]:
        """Lower triangular L with covariance L L'."""
        return self.L

    def log_joint(self) -> LogJoint:
        """Prepare the function that gives log N(x; mu, Sigma)."""
        return log_joint_of_factors(self.log_alpha, self.mu, self.L)

    @torch.no_grad()
    def set_components(
        self,
        alpha: Float[Tensor, "M 1"],
        mu: Float[Tensor, "M 1 D"],
        covariance: Float[Tensor, "M 1 D D"],
    ) -> None:
        """Take this mean and covariance."""
        self.mu.copy_(mu)
        self.L.copy_(torch.linalg.cholesky(covariance))
