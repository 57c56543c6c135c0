"""Mixture of Gaussians with full covariances, as a torch module."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rnade.nn.mixture import AbstractGaussianMixture, LogJoint, log_joint_of_factors


class MixtureOfGaussiansModule(AbstractGaussianMixture):
    r"""Mixture of K Gaussians with full covariances, each kept as its Cholesky factor.

    The untrained module has K standard normal components of equal weight: EM starts from
    components set by `set_components` (see `rnade.training.em.starts`).

    Parameters
    ----------
    n_dimensions : int
        D.
    n_components : int
        K.
    n_models : int
        M, the number of models in a bank.

    Examples
    --------
    >>> import torch
    >>> model = MixtureOfGaussiansModule(3, n_components=2)
    >>> model.log_prob(torch.zeros(4, 3)).shape
    torch.Size([4])
    """

    def __init__(self, n_dimensions: int, n_components: int, *, n_models: int = 1) -> None:
        super().__init__(n_dimensions, n_components, n_models)
        M, K, D = self.n_models, self.n_components, self.n_dimensions
        self.log_alpha = nn.Parameter(-torch.full((M, K), float(K)).log())
        self.mu = nn.Parameter(torch.zeros(M, K, D))
        self.L = nn.Parameter(torch.eye(D).repeat(M, K, 1, 1))

    def covariance_factor(self) -> Float[Tensor, "M K D D"]:
        """Lower triangular L with covariance L L'."""
        return self.L

    def log_joint(self) -> LogJoint:
        """Prepare the function that gives log alpha_k + log N(x; mu_k, Sigma_k)."""
        return log_joint_of_factors(self.log_alpha, self.mu, self.L)

    @torch.no_grad()
    def set_components(
        self,
        alpha: Float[Tensor, "M K"],
        mu: Float[Tensor, "M K D"],
        covariance: Float[Tensor, "M K D D"],
    ) -> None:
        """Take these components."""
        self.log_alpha.copy_(alpha.log())
        self.mu.copy_(mu)
        self.L.copy_(torch.linalg.cholesky(covariance))
