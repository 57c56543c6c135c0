"""Training: recipes, updates and the gradient loop."""

from rnade.training.recipe import MODERN, PAPER, Recipe, make_recipe
from rnade.training.sgd import HistoryRow, Outcome, train

__all__ = ["MODERN", "PAPER", "HistoryRow", "Outcome", "Recipe", "make_recipe", "train"]
