"""Training: recipes, updates, the gradient loop, and banks of models trained as one program."""

from rnade.training.bank import Bank, Member, RowSet, Trained
from rnade.training.recipe import MODERN, PAPER, Recipe, make_recipe
from rnade.training.run import HistoryRow
from rnade.training.sgd import Outcome, diverged_error, train

__all__ = [
    "MODERN",
    "PAPER",
    "Bank",
    "HistoryRow",
    "Member",
    "Outcome",
    "Recipe",
    "RowSet",
    "Trained",
    "diverged_error",
    "make_recipe",
    "train",
]
