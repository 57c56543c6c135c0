"""Training: recipes, updates and the gradient loop; EM for mixtures."""

from rnade.training.em import PAPER_EM, EMSettings, fit_mixture
from rnade.training.recipe import MODERN, PAPER, Recipe, make_recipe
from rnade.training.sgd import HistoryRow, Outcome, train

__all__ = [
    "MODERN",
    "PAPER",
    "PAPER_EM",
    "EMSettings",
    "HistoryRow",
    "Outcome",
    "Recipe",
    "fit_mixture",
    "make_recipe",
    "train",
]
