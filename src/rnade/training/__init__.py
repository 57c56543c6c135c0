"""Training: recipes, updates, the gradient loop, banks trained as one program; EM for mixtures."""

from rnade.training.bank import Bank
from rnade.training.em import PAPER_EM, EMSettings, fit_mixture
from rnade.training.member import HistoryRow, Member, Outcome, Trained
from rnade.training.recipe import MODERN, PAPER, PAPER_GRID, Recipe, make_recipe
from rnade.training.sgd import diverged_error, train
from rnade.training.sources import AbstractMinibatches, FreshRows, RowSource, ShuffledRows

__all__ = [
    "MODERN",
    "PAPER",
    "PAPER_EM",
    "PAPER_GRID",
    "AbstractMinibatches",
    "Bank",
    "EMSettings",
    "FreshRows",
    "HistoryRow",
    "Member",
    "Outcome",
    "Recipe",
    "RowSource",
    "ShuffledRows",
    "Trained",
    "diverged_error",
    "fit_mixture",
    "make_recipe",
    "train",
]
