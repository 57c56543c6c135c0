"""Training: recipes, updates, the gradient loop, banks trained as one program; EM for mixtures."""

from rnade.training.bank import Bank, Member, RowSet, Trained
from rnade.training.em import PAPER_EM, EMSettings, fit_mixture
from rnade.training.minibatches import AbstractMinibatches, FreshRows, RowSource
from rnade.training.recipe import MODERN, PAPER, Recipe, make_recipe
from rnade.training.run import HistoryRow
from rnade.training.sgd import Outcome, diverged_error, train

__all__ = [
    "MODERN",
    "PAPER",
    "PAPER_EM",
    "AbstractMinibatches",
    "Bank",
    "EMSettings",
    "FreshRows",
    "HistoryRow",
    "Member",
    "Outcome",
    "Recipe",
    "RowSet",
    "RowSource",
    "Trained",
    "diverged_error",
    "fit_mixture",
    "make_recipe",
    "train",
]
