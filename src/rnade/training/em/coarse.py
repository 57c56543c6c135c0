"""Fitting the coarse density of a table, by which its outliers are judged."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from rnade.batch import Batch
from rnade.nn.bank import AbstractBank
from rnade.nn.coarse import CoarseModule, encoded
from rnade.nn.mog import MixtureOfGaussiansModule
from rnade.training.em.members import fit_member
from rnade.training.em.progress import EMSettings
from rnade.typing import Array

# No component is narrower, in any direction, than so many standard deviations of a column. From
# 0.3 to 0.6 outliers of real tables are told about as well (docs/decisions/0021-two-scales.md).
SCALE = 0.4
# Components: at most so many, with so many rows for each; and numbers in all covariances.
MOST_COMPONENTS, ROWS_OF_A_COMPONENT, MOST_NUMBERS = 100, 5, 2_000_000
# Rows that a mixture is fitted to, and encoded columns beyond which there is none.
MOST_ROWS, MOST_COLUMNS = 20_000, 150
# Levels of a column that are told apart, each with so many rows at least.
MOST_LEVELS, FEWEST_OF_A_LEVEL = 12, 5
SETTINGS = EMSettings(max_iter=20, tol=1e-2, patience=None)


def fit_coarse(
    X: Array,
    weights: Array | None,
    left_out: Sequence[NDArray[np.int64]],
    categories: Sequence[int],
    seed: int,
    device: torch.device,
) -> CoarseModule | None:
    """Fit a mixture for each set of rows that is to be left out, or one to all.

    Parameters
    ----------
    X : array of shape (N, D)
        Training rows: numbers, and codes of levels; NaN where missing.
    weights : array of shape (N,), optional
    left_out : sequence of int arrays
        Places of the rows that each mixture leaves out.
    categories : sequence of int
        Columns that hold codes of levels.
    seed : int
    device : torch.device

    Returns
    -------
    CoarseModule, or None for tables that are too wide
    """
    levels = [_levels(x) if d in categories else None for d, x in enumerate(X.T)]
    D = sum(1 if own is None else len(own) for own in levels)
    if not 0 < D <= MOST_COLUMNS:
        return None
    sets = list(left_out) or [np.empty(0, dtype=np.int64)]
    fewest = len(X) - max(len(at) for at in sets)
    most = MOST_NUMBERS // (len(sets) * D**2)
    K = max(1, min(MOST_COMPONENTS, fewest // ROWS_OF_A_COMPONENT, most))
    cells = encoded(torch.as_tensor(X), levels).to(device)
    seen = ~cells.isnan()
    counts = seen.sum(0).clamp_min(1)
    mean = cells.nan_to_num(0.0).sum(0) / counts
    deviation = ((cells - mean).nan_to_num(0.0).square().sum(0) / counts).sqrt()
    scale = torch.where(deviation > 0, deviation, 1.0)
    x = ((cells - mean) / scale).nan_to_num(0.0)
    floor = torch.full((D,), SCALE)
    fitted = []
    for i, at in enumerate(sets):
        stays = np.setdiff1d(np.arange(len(X)), at)
        if len(stays) > MOST_ROWS:
            stays = np.random.default_rng(seed).choice(stays, MOST_ROWS, replace=False)
        w = None if weights is None else torch.as_tensor(weights[stays]).to(device)
        rows = Batch(x[torch.as_tensor(stays, device=device)], w)
        fitted.append(fit_member(rows, None, K, floor, seed + i, settings=SETTINGS)[0])
    mixtures: MixtureOfGaussiansModule = AbstractBank.stack(fitted)
    module = CoarseModule(levels, mixtures.float()).to(device)
    module.mean.copy_(mean)
    module.scale.copy_(scale)
    return module.double().requires_grad_(False)


def _levels(codes: Array) -> list[int]:
    """The frequent levels of a column; of two one is enough."""
    found, counts = np.unique(codes[~np.isnan(codes)], return_counts=True)
    common = [int(found[i]) for i in np.argsort(-counts) if counts[i] >= FEWEST_OF_A_LEVEL]
    return common[:1] if len(found) == 2 else common[:MOST_LEVELS]
