"""A Gaussian and a mixture of Gaussians with full covariances, as torch modules."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from rnade.nn.mixture import AbstractGaussianMixture, factor_of


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
        eye = torch.eye(n_dimensions)
        self.L = nn.Parameter(eye.repeat(self.n_models, self.n_components, 1, 1))

    def covariance_factor(self) -> Float[Tensor, "M K D D"]:
        return self.L

    def _set_covariance(self, covariance: Float[Tensor, "M K D D"]) -> None:
        self.L.copy_(torch.linalg.cholesky(covariance))


class GaussianModule(MixtureOfGaussiansModule):
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
        super().__init__(n_dimensions, 1, n_models=n_models)
        # The only component's fraction is 1, and no parameter.
        del self.log_alpha
        self.register_buffer("log_alpha", torch.zeros(self.n_models, 1))


def marginal(
    mixture: AbstractGaussianMixture, columns: Int[Tensor, " o"]
) -> MixtureOfGaussiansModule:
    """The density of some columns of a mixture, whatever the others are: a mixture again."""
    M, K = mixture.n_models, mixture.n_components
    found = MixtureOfGaussiansModule(len(columns), K, n_models=M)
    found = found.to(mixture.device, mixture.dtype).requires_grad_(False)
    found.log_alpha.copy_(mixture.log_alpha)
    found.mu.copy_(mixture.mu[..., columns])
    found.L.copy_(factor_of(mixture.covariances(), columns))
    return found
