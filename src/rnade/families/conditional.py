"""One-dimensional conditionals as objects, for looking at p(x_d | x_<d) itself."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rnade.families.base import AbstractFamily, fresh_generator

# Columns are standardised, so that a value 2**64 away is that of no column; and the bracket of the
# usual case, 2 wide, is halved down to float64's resolution.
_MOST_DOUBLINGS = 64
_HALVINGS = 60


@dataclass(frozen=True)
class Conditional:
    """Densities p(x_d | x_<d), one for each row given, or for each cell of several columns.

    Attributes
    ----------
    family : AbstractFamily
    z : Tensor of shape (B, P), or (B, D, P)
        The network's outputs for this dimension.
    log_floor : Tensor that broadcasts to (B,) or (B, D), or None
        Logarithm of the smallest scale allowed.
    """

    family: AbstractFamily
    z: Tensor
    log_floor: Tensor | None = None

    def __getitem__(self, where: Any) -> "Conditional":
        """The densities of some rows or cells, with an index or a mask as tensors take it."""
        floor = self.log_floor
        floor = None if floor is None else floor.expand(self.z.shape[:-1])[where]
        return Conditional(self.family, self.z[where], floor)

    def log_prob(self, x: Float[Tensor, "*N B"]) -> Float[Tensor, "*N B"]:
        """Log density in nats of one value for each row; leading axes hold several values."""
        return self.family.log_prob(x, self.z, self.log_floor)

    def pdf(self, x: Float[Tensor, "*N B"]) -> Float[Tensor, "*N B"]:
        """Density of one value for each row."""
        return self.log_prob(x).exp()

    def cdf(self, x: Float[Tensor, "*N B"]) -> Float[Tensor, "*N B"]:
        """Probability of a value of at most x."""
        return self.family.cdf(x, self.z, self.log_floor)

    def moved(self, by: Tensor, log_unit: Tensor) -> "Conditional":
        """The densities of ``by + exp(log_unit) * x``, of families with locations and scales.

        Parameters
        ----------
        by, log_unit : Tensors that broadcast to (B,), or (B, D)
        """
        z = self.family.moved(self.z, by, log_unit)
        floor = None if self.log_floor is None else self.log_floor + log_unit
        return Conditional(self.family, z, floor)

    def quantile(self, q: float) -> Float[Tensor, " B"]:
        """Smallest value with a distribution function of at least q, for each density.

        By bisection of the distribution function, so that it holds for every family: first the
        bracket is doubled until it holds the value, then halved down to the last bit. Its ends
        are powers of two, so that the jumps of a binary value are met exactly.

        Parameters
        ----------
        q : float
            Strictly between 0 and 1.
        """
        if not 0 < q < 1:
            raise ValueError(f"Expected q strictly between 0 and 1; got {q!r}.")
        low = torch.full_like(self.z[..., 0], -1.0)
        high = -low
        for _ in range(_MOST_DOUBLINGS):
            too_high, too_low = self.cdf(low) >= q, self.cdf(high) < q
            if not (too_high.any() or too_low.any()):
                break
            low, high = torch.where(too_high, 2 * low, low), torch.where(too_low, 2 * high, high)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = self.cdf(middle) < q
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return high

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
