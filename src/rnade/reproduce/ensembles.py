"""Averages of RNADE over orders of the columns, with settings chosen by cross-validation."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator

from rnade.families import make_family
from rnade.families.base import Array
from rnade.nn import RNADEModule
from rnade.preprocessing import Resolution
from rnade.reproduce.paper_protocol import scores_of, train
from rnade.reproduce.uci_folds import Fitted, FoldRows
from rnade.training import Member, Recipe, RowSet, Trained, make_recipe

# Parts of the training rows: of each setting, a model for each part is stopped early by it.
N_PARTS = 8
# Settings that are averaged: those with the best scores.
N_BEST = 3
N_HIDDEN = 50


@dataclass(frozen=True)
class Candidate:
    """A setting that may be averaged."""

    family: str
    n_components: int
    recipe: str
    learning_rate: float
    weight_decay: float

    def make_recipe(self) -> Recipe:
        """How its models are trained."""
        own = {"learning_rate": self.learning_rate, "weight_decay": self.weight_decay}
        recipe = make_recipe(self.recipe, **own)
        heuristic = recipe.scale_mean_gradient and self.family == "gaussian"
        return recipe.with_changes(scale_mean_gradient=heuristic)


CANDIDATES = [
    Candidate(family, *how)
    for family, how in itertools.product(
        ("gaussian", "laplace"),
        ((10, "modern", 0.03, 0.0), (10, "modern", 0.03, 1.0), (20, "paper", 0.1, 2.0)),
    )
]
SETTINGS = {
    "candidates": [asdict(candidate) for candidate in CANDIDATES],
    "n_parts": N_PARTS,
    "n_best": N_BEST,
    "n_hidden": N_HIDDEN,
}


def fit_ensembles(
    folds: Sequence[FoldRows], device: torch.device, quick: bool
) -> Iterator[Fitted]:
    """Average RNADEs of several orders and of the settings that validate best.

    Of each setting eight models are trained, the first in the columns' own order and the others
    in random ones. Each leaves out an eighth of the training rows, which stops it early: the mean
    of the eight scores is the setting's score by cross-validation. The density is the average of
    all models of the best settings. All settings, orders and folds train as one bank.
    """
    tried = CANDIDATES[:3] if quick else CANDIDATES
    members = [
        member
        for fold in folds
        for member in _members(fold, tried, device, epochs=3 if quick else None)
    ]
    trained = train(members)
    each = len(tried) * N_PARTS
    for k, fold in enumerate(folds):
        mine = trained[k * each : (k + 1) * each]
        of_setting = [mine[i : i + N_PARTS] for i in range(0, each, N_PARTS)]
        validation = np.array([_validation(models) for models in of_setting])
        scores = np.stack(
            [_average([scores_of(model, fold.test) for model in models]) for models in of_setting]
        )
        best = np.argsort(-validation)[:N_BEST]
        yield Fitted(
            _average(scores[best]),
            {
                "chosen": [asdict(tried[i]) for i in best],
                "validation": float(validation[best[0]]),
                "validation_by_setting": [round(float(v), 4) for v in validation],
                "test_by_setting": [round(float(v), 4) for v in scores.mean(1)],
            },
        )


def _members(
    fold: FoldRows, candidates: Sequence[Candidate], device: torch.device, epochs: int | None
) -> list[Member]:
    """Give a fold's models, setting by setting, and within a setting part by part."""
    shuffled = np.random.default_rng(fold.number).permutation(fold.all_training)
    x = torch.as_tensor(shuffled, dtype=torch.float32).to(device)
    floor = torch.as_tensor(Resolution.measure(shuffled).floors(np.ones(x.shape[1])))
    part_of = torch.arange(len(x), device=device) * N_PARTS // len(x)
    sets = [
        RowSet(x[part_of != part], 100 * fold.number + part, validation=x[part_of == part])
        for part in range(N_PARTS)
    ]
    made = []
    for candidate, part in itertools.product(candidates, range(N_PARTS)):
        recipe = candidate.make_recipe().with_changes(epochs=epochs)
        module = RNADEModule(
            x.shape[1],
            N_HIDDEN,
            make_family(candidate.family, candidate.n_components),
            order="random" if part else "raster",
            weight_scale=recipe.weight_scale,
            generator=Generator().manual_seed(100 * fold.number + part),
        ).to(device)
        module.start_from(x, spread=recipe.spread)
        module.set_floor(floor)
        made.append(Member(module, recipe, sets[part]))
    return made


def _validation(models: Sequence[Trained]) -> float:
    scores = [model.best_score for model in models]
    return float(np.mean(scores)) if np.isfinite(scores).all() else -np.inf


def _average(scores: Sequence[Array] | Array) -> Array:
    """Log of the mean density, row by row."""
    average: Any = np.logaddexp.reduce(np.stack(list(scores)), axis=0) - np.log(len(scores))
    return np.asarray(average)
