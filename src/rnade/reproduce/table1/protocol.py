"""RNADE by the paper's protocol on small tables: its grid, its recipe, its rule of retraining."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Generator

from rnade.batch import Batch
from rnade.families import GaussianMixture
from rnade.nn import RNADEModule
from rnade.nn.bank import AbstractTrainable
from rnade.reproduce.core.banks import train_all
from rnade.reproduce.table1.families import any_family
from rnade.reproduce.table1.folds import Fitted, FoldRows, log_densities, log_terms
from rnade.training import PAPER, PAPER_GRID, Member, Recipe, ShuffledRows, Trained
from rnade.training.retraining import least_after_retraining, retraining_took
from rnade.typing import Array

# The paper's grid, section 4.1: 96 settings.
N_HIDDEN = 50

Setting = tuple[int, float, float]  # components, rate, decay
GRID: tuple[Setting, ...] = tuple(itertools.product(*PAPER_GRID.values()))


@dataclass(frozen=True)
class Protocol:
    """The paper's protocol, and what it leaves open or might have been otherwise.

    Attributes
    ----------
    grid : sequence of (components, rate, decay)
    recipe : dict
        Changes of the paper's recipe.
    broad_start : bool
        Whether the scales' biases start at the spacing of the means, as in the authors' released
        code, so that scales start above 1; or at its logarithm.
    decayed : tuple of str
        Parameters that weight decay touches.
    sigma_floor : float
        Smallest scale of a component, in standard deviations of the column.
    activation : "relu" or "sigmoid"
    order : "raster" or "random"
        Of the columns.
    early_stopping : bool
        Whether the weights of the best validation score are kept, or the last ones.
    """

    grid: Sequence[Setting] = GRID
    recipe: Mapping[str, Any] = field(default_factory=dict)
    broad_start: bool = False
    decayed: tuple[str, ...] = ("W",)
    sigma_floor: float = 0.0
    activation: str = "relu"
    order: str = "raster"
    early_stopping: bool = True

    def settings(self, family: str) -> dict[str, Any]:
        """What results depend on, for the record."""
        own = {**asdict(self), "grid": [list(setting) for setting in self.grid]}
        own["decayed"] = list(self.decayed)
        return own | {"n_hidden": N_HIDDEN, "recipe": asdict(self.paper_recipe(family))}

    def paper_recipe(self, family: str) -> Recipe:
        """The paper's recipe with the changes; its heuristic is for mixtures of Gaussians only."""
        recipe = PAPER.with_changes(**self.recipe)
        gaussian = isinstance(any_family(family, n_components=1), GaussianMixture)
        return recipe if gaussian else recipe.with_changes(scale_mean_gradient=False)


# Table 1's, by family. Where the paper is silent, on momentum and on where the scales of Gaussians
# start, it follows the authors' released code, whose Laplaces do not start broad.
PROTOCOLS = {"gaussian": Protocol(broad_start=True), "laplace": Protocol()}


@dataclass(frozen=True, eq=False)
class Searched:
    """One fold's models of the whole grid, setting by setting.

    Attributes
    ----------
    trials : list of Trained
    validation : array of shape (n_settings,)
        Mean log-likelihoods at the weights that were kept; -inf where there is no finite one.
    validation_terms, test_terms : arrays of shape (n_settings, D)
        The same of each conditional: means of log p(x_d | x_<d).
    skipped : array of shape (n_settings,)
        Updates left out since their gradient was not finite.
    """

    trials: list[Trained]
    validation: Array
    validation_terms: Array
    test_terms: Array
    skipped: Array

    @property
    def test(self) -> Array:
        """Mean log-likelihoods of the test rows, of shape (n_settings,)."""
        return np.asarray(self.test_terms.sum(1))


def fit_paper(
    family: str, folds: Sequence[FoldRows], device: torch.device, quick: bool
) -> Iterator[Fitted]:
    """RNADE by the paper's protocol.

    All settings and folds train as one bank. In each fold the setting with the best validation
    score is then trained afresh on all training rows, until their log-likelihood is that of the
    training rows at the chosen iteration; where that fails, the searched model stands.
    """
    protocol = PROTOCOLS[family]
    if quick:
        protocol = replace(protocol, grid=GRID[::48], recipe={"epochs": 30})
    searched = search(family, folds, device, protocol)
    chosen = [int(fold.validation.argmax()) for fold in searched]
    finals = retrained(family, folds, device, protocol, searched, chosen)
    for fold, found, c, final in zip(folds, searched, chosen, finals, strict=True):
        K, rate, decay = protocol.grid[c]
        trial = found.trials[c]
        details = {
            "n_components": K,
            "learning_rate": rate,
            "weight_decay": decay,
            "validation": trial.best_score,
            "train_at_best": trial.train_at_best,
            "best_epoch": trial.best_epoch,
            "retrained_epochs": retrained_epochs(final, trial),
            "before_retraining": float(found.test[c]),
            "n_settings": len(protocol.grid),
            "n_diverged": sum(t.diverged is not None for t in found.trials),
        }
        yield Fitted(log_densities(final.module, fold.test), details)


def search(
    family: str, folds: Sequence[FoldRows], device: torch.device, protocol: Protocol
) -> list[Searched]:
    """Train the whole grid in all folds as one bank, and score each model."""
    trained = train_all(paper_members(family, folds, device, protocol))
    tests = _mean_terms(trained, [fold.test for fold in folds])
    validations = _mean_terms(trained, [fold.validation for fold in folds])
    scores = validations.sum(1)
    usable = np.where(np.isfinite(scores), scores, -np.inf)
    skipped = np.array([t.history[-1]["skipped"] for t in trained])
    n = len(folds)
    return [
        Searched(trained[k::n], usable[k::n], validations[k::n], tests[k::n], skipped[k::n])
        for k in range(n)
    ]


def retrained(
    family: str,
    folds: Sequence[FoldRows],
    device: torch.device,
    protocol: Protocol,
    searched: Sequence[Searched],
    chosen: Sequence[int],
) -> list[Trained]:
    """Train each fold's chosen setting afresh on all its training rows, by the paper's rule.

    Where the training fails, the searched model is given.
    """
    models = [found.trials[c] for found, c in zip(searched, chosen, strict=True)]
    members = [
        _member(
            protocol,
            family,
            protocol.grid[c],
            fold.sources(device)[2],
            target=model.train_at_best,
        )
        for fold, c, model in zip(folds, chosen, models, strict=True)
    ]
    return finished(train_all(members), models)


def finished(again: Sequence[Trained], searched: Sequence[Trained]) -> list[Trained]:
    """Give each model as it was trained again where that took, else as it was searched."""
    return [new if _took(new, old) else old for new, old in zip(again, searched, strict=True)]


def _took(again: Trained, model: Trained) -> bool:
    least = least_after_retraining(model.train_at_best, model.best_score)
    return retraining_took(again.train_at_best, least)


def retrained_epochs(final: Trained, searched: Trained) -> int | None:
    """Epochs of training again; None where the searched model stands."""
    return None if final is searched else len(final.history) - 1


def paper_members(
    family: str, folds: Sequence[FoldRows], device: torch.device, protocol: Protocol
) -> list[Member]:
    """Give the models of the grid in all folds, setting by setting."""
    both = [f.sources(device)[:2] for f in folds]
    sets = [(source, left if protocol.early_stopping else None) for source, left in both]
    return [
        _member(protocol, family, setting, *rows) for setting in protocol.grid for rows in sets
    ]


def _member(
    protocol: Protocol,
    family: str,
    setting: Setting,
    source: ShuffledRows,
    held_out: Batch | None = None,
    target: float | None = None,
) -> Member:
    (K, rate, decay), x = setting, source.x
    recipe = protocol.paper_recipe(family)
    module = _Decaying(
        x.shape[1],
        N_HIDDEN,
        any_family(family, K),
        activation=protocol.activation,
        order=protocol.order,
        weight_scale=recipe.weight_scale,
        generator=Generator().manual_seed(source.seed),
    ).to(x.device)
    module.decayed_names = protocol.decayed
    module.start_from(x, spread=recipe.spread)
    if protocol.broad_start:
        module.b.data[..., 2 * K :].exp_()
    if protocol.sigma_floor:
        module.set_floor(torch.full((x.shape[1],), protocol.sigma_floor))
    own = recipe.with_changes(learning_rate=rate, weight_decay=decay)
    return Member(module, own, source, held_out, target)


class _Decaying(RNADEModule):
    """An RNADE that says which parameters weight decay touches.

    In the authors' released code c is a row of W, and so decays with it.
    """

    decayed_names: tuple[str, ...] = ("W",)

    def decayed(self) -> list[str]:
        return list(self.decayed_names)


def _mean_terms(trained: Sequence[Trained], rows: Sequence[Array]) -> Array:
    """Mean log p(x_d | x_<d) of each model on the rows of its fold, (n_models, D), in float64.

    Models come setting by setting, and within a setting fold by fold, as `rows` do.
    """
    means = np.empty((len(trained), rows[0].shape[1]))
    groups: dict[tuple[str, int], list[int]] = {}
    for m, t in enumerate(trained):
        groups.setdefault((str(t.module.signature()), m % len(rows)), []).append(m)
    for (_, k), mine in groups.items():
        bank = AbstractTrainable.stack([trained[m].module for m in mine])
        means[mine] = log_terms(bank, rows[k]).reshape(len(mine), *rows[k].shape).mean(1)
    return means
