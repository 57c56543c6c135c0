"""Mixtures of Table 1's variants: what the authors' runs may have had beside the paper's form.

The paper's equations 6 to 8 set sigma = exp(z_sigma) and alpha = softmax(z_alpha), and so does the
code that the authors released to train with. Parts of the same file that nothing calls any more
have sigma = log(1 + exp(10 z_sigma)) / 10 and alpha = softmax(10 tanh(z_alpha)). The biases with
which its scales start, the spacing of the means and not its logarithm, fit these and not the
exponential. The paper also names, besides its own, another scaling of the means' gradient.

Only `rnade reproduce table1-variants` uses these families, and plain torch computes them.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import expit
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
        z_alpha, z_mu, z_sigma = torch.split(z, self.n_components, dim=-1)
        printed = torch.cat([self._logits(z_alpha), z_mu, self._log_scale(z_sigma)], dim=-1)
        return super().constrained(printed, log_floor)

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
        z_alpha, z_mu, z_sigma = np.split(z, 3, axis=-1)
        logits, d_logits = self._reference_logits(z_alpha)
        log_scale, d_log_scale = self._reference_log_scale(z_sigma)
        printed = np.concatenate([logits, z_mu, log_scale], axis=-1)
        slopes = [d_logits, np.ones_like(z_mu), d_log_scale]
        log_prob, d_printed, d_x = super().reference_epilogue(x, printed, log_floor)
        return Epilogue(log_prob, d_printed * np.concatenate(slopes, axis=-1), d_x)

    @staticmethod
    def _log_scale(z_sigma: Tensor) -> Tensor:
        """log(log(1 + exp(10 z)) / 10), finite for every z."""
        y = SLOPE * z_sigma
        exponential = y < EXPONENTIAL_BELOW
        inside = y.masked_fill(exponential, 0.0)
        curved = functional.softplus(inside, threshold=LINEAR_ABOVE).log()
        return torch.where(exponential, y, curved) - math.log(SLOPE)

    @staticmethod
    def _reference_log_scale(z_sigma: Array) -> tuple[Array, Array]:
        """The same and its derivative, in NumPy."""
        y = SLOPE * z_sigma
        exponential = y < EXPONENTIAL_BELOW
        inside = np.where(exponential, 0.0, y)
        softplus = np.logaddexp(0, inside)
        log_scale = np.where(exponential, y, np.log(softplus)) - math.log(SLOPE)
        return log_scale, SLOPE * np.where(exponential, 1.0, expit(inside) / softplus)

    @staticmethod
    def _logits(z_alpha: Tensor) -> Tensor:
        """What the softmax is taken of."""
        return z_alpha

    @staticmethod
    def _reference_logits(z_alpha: Array) -> tuple[Array, Array]:
        """The same and its derivative, in NumPy."""
        return z_alpha, np.ones_like(z_alpha)


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

    @staticmethod
    def _reference_logits(z_alpha: Array) -> tuple[Array, Array]:
        t = np.tanh(z_alpha)
        return SLOPE * t, SLOPE * (1 - t * t)


class NewtonGaussianMixture(GaussianMixture):
    """Mixture of K Gaussians whose means' gradient training multiplies by the variance.

    That is Newton's method for one Gaussian, which the paper names beside its own choice, the
    standard deviation. A mean then follows the rows however narrow its component is.
    """

    name = "gaussian-newton"

    @staticmethod
    def _mean_factor(log_sigma: Tensor) -> Tensor:
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
