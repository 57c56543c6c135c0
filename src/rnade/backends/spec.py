"""What is computed, besides parameters and rows: the third argument of every backend."""

from typing import Literal, NamedTuple, get_args

from rnade.checks import unknown_name
from rnade.families.base import AbstractFamily

Activation = Literal["relu", "sigmoid", "identity"]
PRECISIONS = ("exact", "tf32", "bf16")


class Spec(NamedTuple):
    """What a tied network computes with its parameters, and how.

    Attributes
    ----------
    family : AbstractFamily
        The one-dimensional conditionals.
    activation : "relu", "sigmoid" or "identity"
        Hidden units g.
    scale_mean_gradient : bool
        Multiply the gradient of each component mean by its scale, the paper's training heuristic.
        Changes gradients only.
    backend : str
        "auto" or the name of a backend (see `rnade.backends.choose`).
    """

    family: AbstractFamily
    activation: Activation = "relu"
    scale_mean_gradient: bool = False
    backend: str = "auto"

    @property
    def precision(self) -> str:
        """Of the matrix products, "exact", "tf32" or "bf16"; all else is as the parameters are."""
        return self.backend.partition("-")[2] or "exact"


def check_activation(name: object) -> Activation:
    """Return `name` if it is an activation, else raise an error that gives the nearest one."""
    known = get_args(Activation)
    if name not in known:
        raise unknown_name(name, list(known), "activation")
    return name  # type: ignore[return-value]
