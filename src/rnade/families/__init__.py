"""One-dimensional conditionals, composed into models."""

from typing import Any

from rnade.checks import unknown_name
from rnade.families.base import AbstractFamily
from rnade.families.bernoulli import Bernoulli
from rnade.families.conditional import Conditional
from rnade.families.gaussian import GaussianMixture
from rnade.families.laplace import LaplaceMixture

__all__ = [
    "AbstractFamily",
    "Bernoulli",
    "Conditional",
    "GaussianMixture",
    "LaplaceMixture",
    "make_family",
]


def make_family(name: str, n_components: int = 1) -> AbstractFamily:
    """Build the family called `name`: "gaussian", "laplace" or "bernoulli".

    Parameters
    ----------
    name : str
    n_components : int
        Components of the mixtures; a Bernoulli has none.
    """
    makers: dict[str, Any] = {
        "gaussian": lambda: GaussianMixture(n_components),
        "laplace": lambda: LaplaceMixture(n_components),
        "bernoulli": Bernoulli,
    }
    if name not in makers:
        raise unknown_name(name, list(makers), "family")
    family: AbstractFamily = makers[name]()
    return family
