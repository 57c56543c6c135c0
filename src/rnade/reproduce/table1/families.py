"""Mixtures of Table 1's variants: what the authors' runs may have had beside the paper's form.

The paper's equations 6 to 8 set sigma = exp(z_sigma) and alpha = softmax(z_alpha), and so does the
code that the authors released to train with. Parts of the same file that nothing calls any more
have sigma = log(1 + exp(10 z_sigma)) / 10 and alpha = softmax(10 tanh(z_alpha)). The biases with
which its scales start, the spacing of the means and not its logarithm, fit these and not the
exponential. The paper also names, besides its own, another scaling of the means' gradient.

Only `rnade reproduce table1-variants` uses these families, and plain torch computes them.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from rnade.families import AbstractFamily, GaussianMixture, LaplaceMixture, make_family
from rnade.families.base import Epilogue
from rnade.families.mixture import AbstractMixture, MixtureParameters
from rnade.typing import Array

SLOPE = 10.0

# Below this log(1 + exp(y)) is exp(y) to float64's last digit, and its logarithm y; above the
# other it is y. In between the plain form neither underflows nor overflows.
EXPONENTIAL_BELOW, LINEAR_ABOVE = -37.0, 37.0


class AbstractSoftplusMixture(AbstractMixture):
    r"""Mixture of K components with :math:`\sigma = \log(1 + e^{10 z}) / 10`.

    Where sigma is small, :math:`d \log\sigma / dz` is 10 and not 1. A step of gradient ascent has
    that factor twice, so that a narrow component's log sigma moves a hundred times as far.

    Parameters
    ----------
    n_components : int
        K.
    """

    def constrained(
        self, z: Float[Tensor, "... P"], log_floor: Float[Tensor, "..."] | None = None
    ) -> MixtureParameters:
        """Mixing fractions (in logs), means and log scales from the network's outputs."""
        return super().constrained(self._printed(z), log_floor)

    def starting_biases(
        self,
        rows: Float[Tensor, "N D"],
        *,
        weights: Float[Tensor, " N"] | None = None,
        spread: str = "quantile",
    ) -> Float[Tensor, "D P"]:
        """As in the paper's form, but the scales' biases are the scales, not their logarithms."""
        b = super().starting_biases(rows, weights=weights, spread=spread)
        alpha, mu, log_scale = b.chunk(3, dim=-1)
        return torch.cat([alpha, mu, log_scale.exp()], dim=-1)

    def reference_epilogue(self, x: Array, z: Array, log_floor: float | None) -> Epilogue:
        """The paper's, at the z that gives it the same mixture, and the chain rule."""
        own = torch.tensor(z, requires_grad=True)
        printed = self._printed(own)
        # Each output of the paper's form depends on one of ours alone.
        (slopes,) = torch.autograd.grad(printed.sum(), own)
        told = super().reference_epilogue(x, printed.detach().numpy(), log_floor)
        return told._replace(d_z=told.d_z * slopes.numpy())

    def _printed(self, z: Tensor) -> Tensor:
        """Outputs that give the paper's form the same mixture."""
        z_alpha, z_mu, z_sigma = torch.split(z, self.n_components, dim=-1)
        return torch.cat([self._logits(z_alpha), z_mu, self._log_scale(z_sigma)], dim=-1)

    @staticmethod
    def _log_scale(z_sigma: Tensor) -> Tensor:
        """log(log(1 + exp(10 z)) / 10), finite for every z."""
        y = SLOPE * z_sigma
        exponential = y < EXPONENTIAL_BELOW
        inside = y.masked_fill(exponential, 0.0)
        curved = functional.softplus(inside, threshold=LINEAR_ABOVE).log()
        return torch.where(exponential, y, curved) - math.log(SLOPE)

    @staticmethod
    def _logits(z_alpha: Tensor) -> Tensor:
        """What the softmax is taken of."""
        return z_alpha


class SoftplusGaussianMixture(AbstractSoftplusMixture, GaussianMixture):
    """Mixture of K Gaussians with softplus scales."""

    name = "gaussian-softplus"


class SoftplusLaplaceMixture(AbstractSoftplusMixture, LaplaceMixture):
    """Mixture of K Laplaces with softplus scales."""

    name = "laplace-softplus"


class WrittenOutGaussianMixture(SoftplusGaussianMixture):
    """The same as it is written: in float32 1 + exp(10 z) is 1 where sigma should be below 6e-9.

    There sigma is 0 and the gradient not a number. Such an update is skipped here and counted; in
    the authors' code the run ends and counts for nothing.
    """

    name = "gaussian-written-out"

    @staticmethod
    def _log_scale(z_sigma: Tensor) -> Tensor:
        return torch.log(torch.log(1 + torch.exp(SLOPE * z_sigma)) / SLOPE)


class SoftplusTanhGaussianMixture(SoftplusGaussianMixture):
    r"""Mixture of K Gaussians with softplus scales and :math:`\alpha = softmax(10 \tanh z)`.

    No fraction falls below :math:`e^{-20}` of another.
    """

    name = "gaussian-softplus-tanh"

    @staticmethod
    def _logits(z_alpha: Tensor) -> Tensor:
        return SLOPE * torch.tanh(z_alpha)


class NewtonGaussianMixture(GaussianMixture):
    """Mixture of K Gaussians whose means' gradient training multiplies by the variance.

    That is Newton's method for one Gaussian, which the paper names beside its own choice, the
    standard deviation. A mean then follows the rows however narrow its component is.
    """

    name = "gaussian-newton"

    @staticmethod
    def mean_factor(log_sigma: Tensor) -> Tensor:
        """The variance."""
        return torch.exp(2 * log_sigma)


VARIANT_FAMILIES: dict[str, type[AbstractMixture]] = {
    family.name: family
    for family in (
        NewtonGaussianMixture,
        SoftplusGaussianMixture,
        SoftplusLaplaceMixture,
        SoftplusTanhGaussianMixture,
        WrittenOutGaussianMixture,
    )
}


def any_family(name: str, n_components: int) -> AbstractFamily:
    """Build the family called `name`, whether the library's or one of these."""
    return (
        VARIANT_FAMILIES[name](n_components)
        if name in VARIANT_FAMILIES
        else make_family(name, n_components)
    )
