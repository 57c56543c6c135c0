"""EM for mixtures of Gaussians and of factor analysers: starts, steps, and two loops.

`fit_mixture` trains one mixture, or several of one size; `fit_sizes` mixtures of many sizes on
several sets of rows.
"""

from rnade.training.em.loop import fit_mixture
from rnade.training.em.progress import PAPER_EM, EMSettings
from rnade.training.em.sizes import Size, Sized, fit_sizes
from rnade.training.em.starts import STARTS, starting_components

__all__ = [
    "PAPER_EM",
    "STARTS",
    "EMSettings",
    "Size",
    "Sized",
    "fit_mixture",
    "fit_sizes",
    "starting_components",
]
