"""What every one-dimensional conditional p(x_d | theta_d) gives to models and kernels."""

import abc
from typing import Any, ClassVar, NamedTuple

from jaxtyping import Float, Shaped
from torch import Generator, Tensor, device

from rnade.typing import Array

# Values x, or what is told of each; and the numbers that a network gives for each.
Values = Float[Tensor, "..."]
Outputs = Float[Tensor, "... P"]
# Logarithm of the smallest scale allowed, for each value.
Floor = Values | None
# A table, and what each of its rows weighs.
Rows = Float[Tensor, "N D"]
RowWeights = Float[Tensor, " N"] | None


class Epilogue(NamedTuple):
    """What the reference backend needs of a family at one dimension.

    Attributes
    ----------
    log_prob : array of shape (B,)
    d_z : array of shape (B, P)
        Gradient of the log density with respect to the family's inputs z.
    d_x : array of shape (B,)
        Gradient of the log density with respect to x.
    """

    log_prob: Array
    d_z: Array
    d_x: Array


class AbstractFamily(abc.ABC):
    """A family of one-dimensional densities, computed from `n_outputs` unconstrained numbers z.

    All methods broadcast: x has shape (...), z has shape (..., P) with P = `n_outputs`, and
    `log_floor` (the logarithm of the smallest scale allowed, or None for no floor) broadcasts
    against x. Families without a scale ignore `log_floor`.

    Attributes
    ----------
    name : str
        What it is called in settings and in the registry, `rnade.families.REGISTRY`.
    n_components : int
        K; 1 where there are no components.
    n_outputs : int
        P, how many numbers z the network gives to each dimension.
    discrete : bool
        Whether values are whole numbers with probabilities, not real numbers with densities.
    has_scale : bool
        Whether components have a location and a scale: then a floor bounds the scales, and
        `scale_mean_gradient` has a meaning.
    """

    name: ClassVar[str]
    n_components: int
    n_outputs: int
    discrete: ClassVar[bool]
    has_scale: ClassVar[bool]

    @classmethod
    def make(cls, n_components: int) -> "AbstractFamily":
        """Build the family; one without components ignores their number."""
        return cls()

    @abc.abstractmethod
    def log_prob(
        self, x: Values, z: Outputs, log_floor: Floor = None, *, scale_mean_gradient: bool = False
    ) -> Values:
        """Log density of x in nats.

        With `scale_mean_gradient` the gradient reaching each component mean is multiplied by
        that component's scale, the paper's training heuristic; the value is the same.
        """

    @abc.abstractmethod
    def cdf(self, x: Values, z: Outputs, log_floor: Floor = None) -> Values:
        """Probability of a value of at most x."""

    @abc.abstractmethod
    def sample(
        self,
        z: Outputs,
        log_floor: Floor = None,
        *,
        generator: Generator,
        low: Values | None = None,
        high: Values | None = None,
    ) -> Values:
        """One draw for each z, from the density truncated to [low, high] where these are given."""

    def moved(self, z: Outputs, by: Tensor, log_unit: Tensor) -> Tensor:
        """Outputs whose density is that of ``by + exp(log_unit) * x``, if there were no floor."""
        raise TypeError(f"Values of {type(self).__name__} have no location and scale to change.")

    def noise(self, like: Values, generator: Generator) -> Tensor | None:
        """What a fused draw takes beside one uniform number for each of `like`; None for nothing.

        Of a mixture: draws of the component at location 0 and scale 1.
        """
        return None

    @abc.abstractmethod
    def starting_biases(
        self, rows: Rows, *, weights: RowWeights = None, spread: str = "quantile"
    ) -> Float[Tensor, "D P"]:
        """Biases b with which an untrained model already resembles each column of `rows`.

        Parameters
        ----------
        rows : Tensor of shape (N, D)
        weights : Tensor of shape (N,), optional
            A row of weight 2 counts as two rows, one of weight 0 not at all.
        spread : "quantile" or "range"
            Whether a mixture's means are at quantiles of a column, or evenly over its range, which
            is what the paper's authors did.
        """

    @abc.abstractmethod
    def check_support(self, x: Shaped[Tensor, "..."]) -> None:
        """Raise a ValueError that names the problem if x has values of no density."""

    @abc.abstractmethod
    def reference_epilogue(self, x: Array, z: Array, log_floor: float | None) -> Epilogue:
        """Log density and its exact gradients in float64 NumPy, for the reference backend."""

    def settings(self) -> dict[str, Any]:
        """What `make_family` needs to build this family again."""
        return {"name": self.name, "n_components": self.n_components}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_components})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.settings() == other.settings()

    def __hash__(self) -> int:
        return hash((self.name, self.n_components))


def fresh_generator(where: device | str = "cpu") -> Generator:
    """A generator with a seed from the operating system; torch's global one is never touched."""
    generator = Generator(where)
    generator.seed()
    return generator
