"""The models of Table 1, each fitted to all folds of a data set at once."""

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.stats import multivariate_normal
from torch import Generator, Tensor

from rnade.data import Fold, UciSet
from rnade.exceptions import SpikeWarning
from rnade.families import GaussianMixture, LaplaceMixture
from rnade.families.base import Array
from rnade.nn import RNADEModule
from rnade.training import PAPER, PAPER_GRID, Bank, Member, Recipe, RowSet, Trained

# The paper's grid, section 4.1: 96 settings.
COMPONENTS, RATES, DECAYS = PAPER_GRID.values()
N_HIDDEN = 50
GRID = list(itertools.product(COMPONENTS, RATES, DECAYS))


@dataclass(frozen=True)
class FoldRows:
    """Rows of one fold, standardised by the mean and deviation of all its training rows."""

    number: int
    train: Array
    validation: Array
    test: Array

    @staticmethod
    def of(table: UciSet, fold: Fold, number: int) -> "FoldRows":
        """Standardise the rows of a fold."""
        everything = table.X[fold.all_training]
        mean, scale = everything.mean(0), everything.std(0)
        parts = ((table.X[at] - mean) / scale for at in (fold.train, fold.validation, fold.test))
        return FoldRows(number, *parts)

    @property
    def all_training(self) -> Array:
        """Training and validation rows."""
        return np.concatenate([self.train, self.validation])


@dataclass(frozen=True)
class Fitted:
    """Log densities of a fold's test rows, and what else is worth recording."""

    scores: Array
    details: dict[str, Any]


# Fits all folds; gives them in their order.
Fit = Callable[[Sequence[FoldRows], torch.device, bool], Iterator[Fitted]]


def fit_gaussian(folds: Sequence[FoldRows], device: torch.device, quick: bool) -> Iterator[Fitted]:
    """Fit the full-covariance Gaussian by its closed form."""
    for fold in folds:
        rows = fold.all_training
        density = multivariate_normal(rows.mean(0), np.cov(rows, rowvar=False, ddof=0))
        yield Fitted(np.asarray(density.logpdf(fold.test)), {})


def fit_paper(
    family: str, folds: Sequence[FoldRows], device: torch.device, quick: bool
) -> Iterator[Fitted]:
    """RNADE by the paper's protocol: its grid, its recipe, its rule of retraining.

    All settings and folds train as one bank. In each fold the setting with the best validation
    score is then trained afresh on all training rows, until their log-likelihood is that of the
    training rows at the chosen iteration.
    """
    grid = GRID[::48] if quick else GRID
    recipe = _paper_recipe(family, quick)
    members = paper_members(family, folds, device, quick=quick)
    searched = _trained(members)
    by_fold = [searched[k :: len(folds)] for k in range(len(folds))]
    chosen = [max(range(len(grid)), key=lambda c: trials[c].best_score) for trials in by_fold]
    again = [
        _member(
            family,
            grid[c],
            recipe,
            RowSet(_tensor(f.all_training, device), f.number),
            target=trials[c].train_at_best,
        )
        for f, c, trials in zip(folds, chosen, by_fold, strict=True)
    ]
    for f, c, trials, final in zip(folds, chosen, by_fold, _trained(again), strict=True):
        K, rate, decay = grid[c]
        details = {
            "n_components": K,
            "learning_rate": rate,
            "weight_decay": decay,
            "validation": trials[c].best_score,
            "train_at_best": trials[c].train_at_best,
            "best_epoch": trials[c].best_epoch,
            "retrained_epochs": len(final.history) - 1,
            "before_retraining": float(_scores(trials[c], f.test).mean()),
            "n_settings": len(grid),
            "n_diverged": sum(t.diverged is not None for t in trials),
        }
        yield Fitted(_scores(final, f.test), details)


def paper_members(
    family: str, folds: Sequence[FoldRows], device: torch.device, *, quick: bool = False
) -> list[Member]:
    """Give the models of the paper's grid in all folds, setting by setting."""
    sets = [
        RowSet(_tensor(f.train, device), f.number, validation=_tensor(f.validation, device))
        for f in folds
    ]
    recipe = _paper_recipe(family, quick)
    grid = GRID[::48] if quick else GRID
    return [_member(family, setting, recipe, rows) for setting in grid for rows in sets]


def _paper_recipe(family: str, quick: bool) -> Recipe:
    recipe = PAPER if family == "gaussian" else PAPER.with_changes(scale_mean_gradient=False)
    return recipe.with_changes(epochs=20) if quick else recipe


def fit_default(folds: Sequence[FoldRows], device: torch.device, quick: bool) -> Iterator[Fitted]:
    """`RNADE()` with no settings at all, one fold after the other."""
    from rnade.estimators import RNADE

    for fold in folds:
        model = RNADE(random_state=fold.number, device=str(device))
        if quick:
            model.set_params(epochs=3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SpikeWarning)  # of repeated values, as is well known
            model.fit(fold.all_training)
        details = {
            "validation": model.held_out_score().mean,
            "n_members": len(model.members_),
            "fit_seconds": model.fit_seconds_,
        }
        yield Fitted(model.score_samples(fold.test), details)


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Attributes
    ----------
    label : str
        As the paper has it, if it does.
    fit : callable
    settings : dict
        What the results depend on, for the record.
    """

    label: str
    fit: Fit
    settings: dict[str, Any]


_PAPER_SETTINGS = {
    "components": list(COMPONENTS),
    "rates": list(RATES),
    "decays": list(DECAYS),
    "n_hidden": N_HIDDEN,
    "recipe": dataclasses.asdict(PAPER),
}
COLUMNS = {
    "gaussian": Column("Gaussian", fit_gaussian, {}),
    "rnade-mog": Column("RNADE-MoG", partial(fit_paper, "gaussian"), _PAPER_SETTINGS),
    "rnade-mol": Column("RNADE-MoL", partial(fit_paper, "laplace"), _PAPER_SETTINGS),
    "rnade-default": Column("RNADE(), our default", fit_default, {}),
}


def _member(
    family: str,
    setting: tuple[int, float, float],
    recipe: Recipe,
    rows: RowSet,
    target: float | None = None,
) -> Member:
    K, rate, decay = setting
    mixture = GaussianMixture(K) if family == "gaussian" else LaplaceMixture(K)
    module = RNADEModule(
        rows.x.shape[1],
        N_HIDDEN,
        mixture,
        weight_scale=recipe.weight_scale,
        generator=Generator().manual_seed(rows.seed),
    ).to(rows.x.device)
    module.start_from(rows.x, spread=recipe.spread)
    own = recipe.with_changes(learning_rate=rate, weight_decay=decay)
    return Member(module, own, rows, target)


def _trained(members: Sequence[Member]) -> list[Trained]:
    bank = Bank(members)
    if not bank.advance():
        raise KeyboardInterrupt
    return bank.results()


def _scores(trained: Trained, rows: Array) -> Array:
    module: Any = trained.module.double()
    with torch.no_grad():
        x = torch.as_tensor(rows, dtype=torch.float64).to(module.device)
        return np.asarray(module.log_prob(x).cpu().numpy())


def _tensor(rows: Array, device: torch.device) -> Tensor:
    return torch.as_tensor(rows, dtype=torch.float32).to(device)
