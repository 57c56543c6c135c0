"""Weights of the models of an average, by rows that each of them left out."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rnade.batch import Batch
from rnade.nn.ensemble import log_average
from rnade.training.folds import fold_rows
from rnade.training.stacking import stacking_weights
from rnade.typing import Array

# Kinds of model with less weight are left out of the average, and of its file.
LEAST_WEIGHT = 0.01


class Left(NamedTuple):
    """What is known of a model: its kind, and which of how many parts of the rows it left out."""

    kind: int
    fold: int | None
    n_folds: int


@torch.no_grad()
def member_weights(models: Sequence[Left], modules: Sequence[Any], rows: Batch) -> Array:
    """Weight of each model, 0 for those of kinds that earn none; 1 together.

    A kind's weight is found by stacking (`rnade.training.stacking`) on the rows that a model of
    every kind left out, and shared evenly by its models. Kinds have equal weights where there are
    no such rows.

    Parameters
    ----------
    models : sequence of M
    modules : sequence of M densities
    rows : Batch
        Training rows, x of shape (N, D).
    """
    kinds = sorted({model.kind for model in models})
    of_kind = [[m for m, model in enumerate(models) if model.kind == kind] for kind in kinds]
    weights = _stacked(of_kind, models, modules, rows)
    # One of the kinds that leave out most rows stays, so that these have scores out of fold.
    n_folds = np.array([len({models[m].fold for m in own}) for own in of_kind])
    stays = np.where(n_folds == n_folds.max(), weights, -1.0).argmax()
    kept = weights >= LEAST_WEIGHT
    kept[stays] = True
    weights = np.where(kept, np.maximum(weights, 1e-6), 0.0)
    found = np.zeros(len(models))
    for own, weight in zip(of_kind, weights / weights.sum(), strict=True):
        found[own] = weight / len(own)
    return found


def _stacked(
    of_kind: Sequence[Sequence[int]], models: Sequence[Left], modules: Sequence[Any], rows: Batch
) -> Array:
    """Weights of the kinds, each given as places of its models."""
    C, N = len(of_kind), len(rows.x)
    folds = [{(models[m].fold, models[m].n_folds) for m in own} for own in of_kind]
    common = set.intersection(*folds)
    parts = sorted((fold, n_folds) for fold, n_folds in common if fold is not None)
    if C == 1 or not parts:
        return np.full(C, 1 / C)

    def scores(own: Sequence[int], fold: int, n_folds: int) -> Tensor:
        x = rows.x[fold_rows(N, fold, n_folds)]
        here = [m for m in own if (models[m].fold, models[m].n_folds) == (fold, n_folds)]
        return log_average(torch.stack([modules[m].log_prob(x).double() for m in here])).cpu()

    held_out = torch.stack([torch.cat([scores(own, *part) for part in parts]) for own in of_kind])
    w = None
    if rows.weights is not None:
        w = torch.cat([rows.weights[fold_rows(N, *part)] for part in parts]).double().cpu().numpy()
    log_densities = held_out.numpy()
    # A kind that gives a row no number is not to be trusted with new ones.
    good = ~(np.isnan(log_densities) | (log_densities == np.inf)).any(axis=1)
    found = np.zeros(C)
    found[good] = stacking_weights(log_densities[good], w)
    return found
