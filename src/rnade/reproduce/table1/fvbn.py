"""Table 1's FVBN: all networks of all settings and folds as one bank, chosen by conditional."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Generator

from rnade.families import GaussianMixture
from rnade.nn import FVBNModule
from rnade.reproduce.core.banks import train_all, trained_bank
from rnade.reproduce.table1.folds import Fitted, FoldRows, log_densities
from rnade.reproduce.table1.protocol import GRID, N_HIDDEN, finished, retrained_epochs
from rnade.training import PAPER, PAPER_GRID, Member, ShuffledRows, Trained
from rnade.typing import Array

SETTINGS: dict[str, Any] = {
    "grid": PAPER_GRID,
    "n_hidden": N_HIDDEN,
    "recipe": dataclasses.asdict(PAPER),
}
"""What the results depend on, for the record."""


def fit_fvbn(folds: Sequence[FoldRows], device: torch.device, quick: bool) -> Iterator[Fitted]:
    """FVBN by the paper's protocol: its grid, its recipe, its rule of retraining.

    In each fold, for each conditional, the network with the best validation score is chosen. It
    is then trained afresh on all training rows, until their log-likelihood is that of the training
    rows at the chosen iteration; where that fails, the chosen network stands.
    """
    grid = GRID[::48] if quick else GRID
    recipe = PAPER.with_changes(epochs=20) if quick else PAPER
    recipes = [recipe.with_changes(learning_rate=r, weight_decay=w) for _, r, w in grid]

    sources, held_out, all_rows = zip(*(fold.sources(device) for fold in folds), strict=True)
    starts = [_starts(source) for source in sources]
    # Setting by setting, and within a setting fold by fold.
    members = [
        Member(start[K].networks, own, source, left)
        for (K, _, _), own in zip(grid, recipes, strict=True)
        for start, source, left in zip(starts, sources, held_out, strict=True)
    ]
    searched = trained_bank(members)
    n = len(folds)
    places = [searched.best_of_each_model(range(k, len(members), n)) for k in range(n)]
    chosen = _by_fold(searched.results(list(itertools.chain(*places))), n)

    members = []
    for source, pairs, found in zip(all_rows, places, chosen, strict=True):
        start = _starts(source)
        for (m, d), network in zip(pairs, found, strict=True):
            networks, own = start[grid[m // n][0]].networks, recipes[m // n]
            members.append(Member(networks[d], own, source, target=network.train_at_best))
    final = _by_fold(train_all(members), n)

    for fold, pairs, found, again in zip(folds, places, chosen, final, strict=True):
        settings = [grid[m // n] for m, _ in pairs]
        last = finished(again, found)
        details = {
            "n_components": [K for K, _, _ in settings],
            "learning_rate": [rate for _, rate, _ in settings],
            "weight_decay": [decay for _, _, decay in settings],
            "validation": sum(network.best_score for network in found),
            "train_at_best": sum(network.train_at_best for network in found),
            "best_epoch": [network.best_epoch for network in found],
            "retrained_epochs": [
                retrained_epochs(*both) for both in zip(last, found, strict=True)
            ],
            "before_retraining": float(_scores(found, fold.test).mean()),
            "n_settings": len(grid),
        }
        yield Fitted(_scores(last, fold.test), details)


def _starts(source: ShuffledRows) -> dict[int, FVBNModule]:
    """Untrained models by their number of components; settings that share it start alike."""
    started = {}
    for K in PAPER_GRID["n_components"]:
        module = FVBNModule(
            source.x.shape[1],
            N_HIDDEN,
            GaussianMixture(K),
            weight_scale=PAPER.weight_scale,
            generator=Generator().manual_seed(source.seed),
        ).to(source.x.device)
        module.start_from(source.x, spread=PAPER.spread)
        started[K] = module
    return started


def _by_fold(networks: Sequence[Trained], n_folds: int) -> list[list[Trained]]:
    D = len(networks) // n_folds
    return [list(networks[k * D : (k + 1) * D]) for k in range(n_folds)]


def _scores(networks: Sequence[Trained], rows: Array) -> Array:
    modules: list[Any] = [network.module for network in networks]
    return log_densities(FVBNModule.of(modules, torch.arange(len(modules))), rows)
