"""Density estimators of other libraries on the folds of Table 1.

Each fold's settings are chosen by the validation rows; the chosen ones are fitted again to all
training rows. Fits are small, so they run side by side, one process and one thread each.
"""

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from sklearn.utils.parallel import Parallel, delayed

from rnade.records import usable_cores
from rnade.reproduce.core.experiment import Settings
from rnade.reproduce.core.plans import read_plan
from rnade.reproduce.table1.folds import Column, Fitted, FoldRows
from rnade.typing import Array

_PEERS = read_plan("table1")["peers"]
# Of zuko's flows.
HIDDEN, BATCH, EPOCHS, PATIENCE = (
    _PEERS["zuko-nsf"]["settings"][name] for name in ("hidden", "batch_size", "epochs", "patience")
)


def grid_of(name: str) -> list[Settings]:
    """All settings of a peer."""
    choices = _PEERS[name]["choices"]
    values = itertools.product(*choices.values())
    return [dict(zip(choices, each, strict=True)) for each in values]


# Fits a setting to rows and scores others; gives the scores and the epochs trained, 0 where there
# is no such thing. Told 0 epochs, a flow stops early by the rows that it scores.
FitOne = Callable[[Settings, Array, Array, int], tuple[Array, int]]


def peer(name: str, fit_one: FitOne) -> Column:
    """Give the column of another library's estimator, whose settings are chosen among a grid."""
    own, grid = _PEERS[name], grid_of(name)
    fit = partial(fit_peer, fit_one, grid, own["quick"])
    return Column(own["label"], fit, {"grid": grid, **own.get("settings", {})}, own.get("needs"))


def fit_peer(
    fit_one: FitOne,
    grid: Sequence[Settings],
    quick_grid: Sequence[Settings],
    folds: Sequence[FoldRows],
    device: torch.device,
    quick: bool,
) -> Iterator[Fitted]:
    """Choose settings by validation rows in every fold, and fit them to all training rows."""
    tried = quick_grid if quick else grid
    side_by_side = Parallel(1 if quick else usable_cores(), return_as="generator")
    trials = side_by_side(
        delayed(fit_one)(settings, fold.train, fold.validation, 0)
        for fold in folds
        for settings in tried
    )
    means, epochs = np.array([(scores.mean(), n) for scores, n in trials]).T.reshape(
        2, len(folds), len(tried)
    )
    best = np.where(np.isfinite(means), means, -np.inf).argmax(1)
    trained = [int(epochs[k, i]) for k, i in enumerate(best)]
    finals = side_by_side(
        delayed(fit_one)(tried[i], fold.all_training, fold.test, n)
        for fold, i, n in zip(folds, best, trained, strict=True)
    )
    for k, (i, (scores, _)) in enumerate(zip(best, finals, strict=True)):
        chosen = {"chosen": tried[i], "validation": float(means[k, i]), "epochs": trained[k]}
        yield Fitted(scores, {**chosen, "n_settings": len(tried)})


def fit_mixture(settings: Settings, train: Array, scored: Array, epochs: int) -> tuple[Array, int]:
    """GaussianMixture of scikit-learn."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = GaussianMixture(**settings, random_state=0).fit(train)
    return np.asarray(model.score_samples(scored)), 0


def fit_kernels(settings: Settings, train: Array, scored: Array, epochs: int) -> tuple[Array, int]:
    """KernelDensity of scikit-learn."""
    from sklearn.neighbors import KernelDensity

    return np.asarray(KernelDensity(**settings).fit(train).score_samples(scored)), 0


def fit_flow(
    kind: str, settings: Settings, train: Array, scored: Array, epochs: int
) -> tuple[Array, int]:
    """NSF or MAF of zuko by Adam.

    Without a number of epochs, training stops early by the scored rows, whose scores are those of
    the best epoch.
    """
    import zuko

    x, y = (torch.as_tensor(rows, dtype=torch.float32) for rows in (train, scored))
    with torch.random.fork_rng(devices=[]):  # zuko draws starting weights from the global state
        torch.manual_seed(0)
        flow = getattr(zuko.flows, kind)(
            x.shape[1], transforms=settings["transforms"], hidden_features=HIDDEN
        )
    rows = torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(flow.parameters(), lr=settings["learning_rate"])
    best, best_mean, best_epoch = np.full(len(y), -np.inf), -np.inf, 0
    for epoch in range(1, (epochs or settings.get("epochs", EPOCHS)) + 1):
        for batch in torch.split(torch.randperm(len(x), generator=rows), BATCH):
            loss = -flow().log_prob(x[batch]).mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(flow.parameters(), 10.0)
            if torch.isfinite(loss):
                optimiser.step()
        if epochs and epoch < epochs:
            continue
        with torch.no_grad():
            scores = np.asarray(flow().log_prob(y).double().numpy())
        mean = float(scores.mean())
        if epochs or mean > best_mean:
            best, best_mean, best_epoch = scores, mean, epoch
        elif epoch - best_epoch >= PATIENCE:
            break
    return best, best_epoch
