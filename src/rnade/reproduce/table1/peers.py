"""Density estimators of other libraries on the folds of Table 1.

Each fold's settings are chosen by the validation rows; the chosen ones are fitted again to all
training rows. Fits are small, so they run side by side, one process and one thread each.
"""

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch

from rnade.records import usable_cores
from rnade.reproduce.core.experiment import Settings
from rnade.reproduce.table1.folds import Column, Fitted, FoldRows
from rnade.typing import Array


def _all_of(**choices: Sequence[Any]) -> list[Settings]:
    return [
        dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())
    ]


MIXTURES = _all_of(
    n_components=(1, 2, 3, 5, 8, 12, 20, 30),
    covariance_type=("full", "diag"),
    reg_covar=(1e-6, 1e-4, 1e-2),
)
KERNELS = _all_of(
    bandwidth=[round(float(b), 4) for b in np.geomspace(0.03, 1.5, 18)],
    kernel=("gaussian", "exponential"),
)
FLOWS = _all_of(transforms=(3,), learning_rate=(1e-3, 5e-3))
QUICK_FLOWS = [{"transforms": 1, "learning_rate": 5e-3, "epochs": 3}]
# Of flows: two hidden layers, rows in a minibatch, epochs at most, and epochs without a better
# validation score after which training stops.
HIDDEN, BATCH, EPOCHS, PATIENCE = (64, 64), 256, 100, 10

# Fits a setting to rows and scores others; gives the scores and the epochs trained, 0 where there
# is no such thing. Told 0 epochs, a flow stops early by the rows that it scores.
FitOne = Callable[[Settings, Array, Array, int], tuple[Array, int]]


def peer(
    label: str,
    fit_one: FitOne,
    grid: Sequence[Settings],
    quick_grid: Sequence[Settings],
    needs: str | None = None,
    **settings: Any,
) -> Column:
    """Give the column of another library's estimator, whose settings are chosen among a grid."""
    fit = partial(fit_peer, fit_one, grid, quick_grid)
    return Column(label, fit, {"grid": list(grid), **settings}, needs)


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
    side_by_side = map if quick else _workers().map
    pairs = [(fold, settings) for fold in folds for settings in tried]
    trials = side_by_side(
        fit_one,
        [settings for _, settings in pairs],
        [fold.train for fold, _ in pairs],
        [fold.validation for fold, _ in pairs],
        [0] * len(pairs),
    )
    means, epochs = np.array([(scores.mean(), n) for scores, n in trials]).T.reshape(
        2, len(folds), len(tried)
    )
    best = np.where(np.isfinite(means), means, -np.inf).argmax(1)
    trained = [int(epochs[k, i]) for k, i in enumerate(best)]
    finals = side_by_side(
        fit_one,
        [tried[i] for i in best],
        [fold.all_training for fold in folds],
        [fold.test for fold in folds],
        trained,
    )
    for k, (i, (scores, _)) in enumerate(zip(best, finals, strict=True)):
        chosen = {"chosen": tried[i], "validation": float(means[k, i]), "epochs": trained[k]}
        yield Fitted(scores, {**chosen, "n_settings": len(tried)})


@cache
def _workers() -> ProcessPoolExecutor:
    """Processes for all columns and data sets: to start them takes longer than many a fit."""
    # A fresh interpreter each: torch and its threads do not survive a fork.
    return ProcessPoolExecutor(
        mp_context=get_context("spawn"), initializer=_one_thread, max_workers=usable_cores()
    )


def _one_thread() -> None:
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
    torch.set_num_threads(1)


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


def flow(kind: str) -> Column:
    """Give the column of one of zuko's flows."""
    return peer(
        f"zuko {kind}",
        partial(fit_flow, kind),
        FLOWS,
        QUICK_FLOWS,
        "zuko",
        hidden=list(HIDDEN),
        batch_size=BATCH,
        epochs=EPOCHS,
        patience=PATIENCE,
    )


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
