"""One-dimensional conditionals as objects, for looking at p(x_d | x_<d) itself."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Generator, Tensor

from rnade.families.base import AbstractFamily, fresh_generator


@dataclass(frozen=True)
class Conditional:
    """Densities p(x_d | x_<d), one for each row given.

    Attributes
    ----------
    family : AbstractFamily
    z : Tensor of shape (B, P)
        The network's outputs for this dimension.
    log_floor : Tensor that broadcasts to (B,), or None
        Logarithm of the smallest scale allowed.
    """

    family: AbstractFamily
    z: Tensor
    log_floor: Tensor | None = None

    def log_prob(self, x: Float[Tensor, "*N B"]) -> Float[Tensor, "*N B"]:
        """Log density in nats of one value for each row; leading axes hold several values."""
        return self.family.log_prob(x, self.z, self.log_floor)

    def pdf(self, x: Float[Tensor, "*N B"]) -> Float[Tensor, "*N B"]:
        """Density of one value for each row."""
        return self.log_prob(x).exp()

    def cdf(self, x: Float[Tensor, "*N B"]) -> Float[Tensor, "*N B"]:
        """Probability of a value of at most x."""
        return self.family.cdf(x, self.z, self.log_floor)

    def sample(
        self,
        generator: Generator | None = None,
        *,
        low: Float[Tensor, "*B"] | None = None,
        high: Float[Tensor, "*B"] | None = None,
    ) -> Float[Tensor, " B"]:
        """One draw for each row, truncated to [low, high] where these are given."""
        generator = fresh_generator(self.z.device) if generator is None else generator
        return self.family.sample(self.z, self.log_floor, generator=generator, low=low, high=high)
