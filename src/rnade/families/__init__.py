"""One-dimensional conditionals, composed into models."""

from rnade.checks import unknown_name
from rnade.families.base import AbstractFamily
from rnade.families.bernoulli import Bernoulli
from rnade.families.conditional import Conditional
from rnade.families.gaussian import GaussianMixture
from rnade.families.laplace import LaplaceMixture

__all__ = [
    "REGISTRY",
    "AbstractFamily",
    "Bernoulli",
    "Conditional",
    "GaussianMixture",
    "LaplaceMixture",
    "make_family",
]


# Families by name; a new one is added here.
REGISTRY: dict[str, type[AbstractFamily]] = {
    family.name: family for family in (GaussianMixture, LaplaceMixture, Bernoulli)
}


def make_family(name: str, n_components: int = 1) -> AbstractFamily:
    """Build the family called `name`: "gaussian", "laplace" or "bernoulli".

    Parameters
    ----------
    name : str
    n_components : int
        Components of the mixtures; ignored by a family that has none.
    """
    if name not in REGISTRY:
        raise unknown_name(name, list(REGISTRY), "family")
    return REGISTRY[name].make(n_components)
