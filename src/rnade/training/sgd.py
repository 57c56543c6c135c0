"""Gradient training of one module: the loop around a run, with Ctrl-C and checkpoints."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rnade.backends.threads import threads_for
from rnade.exceptions import TrainingDivergedError
from rnade.nn.bank import AbstractTrainable
from rnade.training.checkpoint import Checkpoint
from rnade.training.interrupt import interruptible
from rnade.training.minibatches import AbstractMinibatches, ShuffledRows
from rnade.training.recipe import Recipe
from rnade.training.run import MAX_RETURNS, Diverged, HistoryRow, Run
from rnade.training.scoring import ScoredRows, mean_log_likelihoods

# Training rows on which the starting weights are scored.
N_MONITORED = 2000


@dataclass(frozen=True)
class Outcome:
    """What training gives besides the module's weights; for a bank, lists of M numbers.

    Attributes
    ----------
    history : list of dict
        One row an epoch: epoch, rate, train, validation, seconds, skipped. Epoch 0 is the start.
        "train" is the mean log-likelihood of the epoch's minibatches, as they were trained on (or
        of all training rows, where there is a target).
    best_epoch : int
        Epoch of the weights that were kept.
    best_score : float
        Their validation log-likelihood (training, where there are no validation rows).
    train_at_best : float
        Their log-likelihood on all training rows (of fresh rows, on those drawn at the start).
    interrupted : bool
        Whether Ctrl-C ended it.
    """

    history: list[HistoryRow]
    best_epoch: Any
    best_score: Any
    train_at_best: Any
    interrupted: bool = False


def train(
    module: AbstractTrainable,
    rows: Float[Tensor, "N D"] | AbstractMinibatches,
    recipe: Recipe,
    *,
    generator: Generator | None = None,
    validation: Float[Tensor, "Nv D"] | None = None,
    weights: Float[Tensor, " N"] | None = None,
    validation_weights: Float[Tensor, " Nv"] | None = None,
    noise_width: Float[Tensor, " D"] | None = None,
    target: float | None = None,
    on_epoch: Callable[[HistoryRow], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Outcome:
    """Fit `module` to `rows` in place and keep the weights that score best.

    Ctrl-C ends training with the best weights so far; pressed again, it ends at once.

    Parameters
    ----------
    module : AbstractTrainable
        One model, or a bank whose members all see the same minibatches.
    rows : Tensor of shape (N, D), or AbstractMinibatches
        Training rows, with the module's dtype and device; or where minibatches come from, such as
        `FreshRows`. These have a generator, weights and noise of their own, and a recipe for fresh
        rows says how many `batches_per_epoch` it takes.
    recipe : Recipe
    generator : torch.Generator
        Orders the rows into minibatches. One on the CPU gives the same order on every device.
    validation : Tensor of shape (Nv, D), optional
        Held-out rows: the weights of the epoch that scores best on them are kept. Without them
        the last weights are.
    weights, validation_weights : Tensor of shape (N,) and (Nv,), optional
        Row weights, all positive.
    noise_width : Tensor of shape (D,), optional
        Width of uniform noise added afresh to every minibatch (dequantisation).
    target : float, optional
        Stop at the first epoch whose training log-likelihood is at least this.
    on_epoch : callable, optional
        Called with each row of the history.
    checkpoint : path, optional
        A file to go on from if it exists, and to write every 30 seconds.

    Raises
    ------
    TrainingDivergedError
        If gradients of the only model stay non-finite at smaller and smaller rates. The module is
        then left with its best weights so far. In a bank such a model is left alone.
    CheckpointError
    """
    M = module.n_models
    if isinstance(rows, AbstractMinibatches):
        source = rows
    else:
        if generator is None:
            raise TypeError("train() needs a generator, which orders the rows into minibatches.")
        source = ShuffledRows(rows, generator, weights=weights, noise_width=noise_width)
    known, weights = source.known()
    everything = ScoredRows.stack([known], [weights])
    sample = slice(None) if target is not None else slice(N_MONITORED)
    run = Run(
        module,
        [source],
        [0] * M,
        [recipe] * M,
        n_rows=len(known),
        training=ScoredRows.stack([known[sample]], [None if weights is None else weights[sample]]),
        validation=(
            None if validation is None else ScoredRows.stack([validation], [validation_weights])
        ),
        targets=None if target is None else torch.full((M,), target, dtype=torch.float64),
    )

    def report() -> None:
        if on_epoch is not None:
            on_epoch(_last_row(run))

    try:
        saved = None if checkpoint is None else Checkpoint(checkpoint, run)
        done = advance(run, checkpoint=saved, on_epoch=report)
    finally:
        run.finish()
    if M == 1 and run.diverged:
        raise diverged_error(run.diverged[0])
    with threads_for(run.n_torch_products):
        train_at_best = mean_log_likelihoods(module, everything, run.source_of)
    return Outcome(
        run.history(0) if M == 1 else _rows_of_lists(run),
        _plain(run.best_epoch),
        _plain(run.best_score),
        _plain(train_at_best),
        not done,
    )


def advance(
    run: Run,
    until: int | None = None,
    *,
    checkpoint: Checkpoint | None = None,
    on_epoch: Callable[[], None] | None = None,
) -> bool:
    """Move a run to its end, or to epoch `until`; False if Ctrl-C ended it before."""
    with threads_for(run.n_torch_products), interruptible() as cancelled:
        if not run.marks:
            run.start()
            if on_epoch is not None:
                on_epoch()
        while not run.finished and (until is None or run.epoch < until):
            if not run.one_epoch(cancelled):
                return False
            if on_epoch is not None:
                on_epoch()
            if checkpoint is not None:
                checkpoint.write_if_due()
        if checkpoint is not None:
            checkpoint.write_if_due(last=True)
    return True


def diverged_error(where: Diverged) -> TrainingDivergedError:
    """Say where a model diverged and what to do."""
    return TrainingDivergedError(
        f"Training diverged in epoch {where.epoch} at learning rate {where.rate:.3g}: the gradient"
        f" was not finite in {where.skipped} updates in a row, even after going back to the best"
        f" weights {MAX_RETURNS} times at lower rates. The likely cause is a learning rate that is"
        " too large, or data with extreme values: lower learning_rate, or look for outliers in"
        " the columns."
    )


def _last_row(run: Run) -> HistoryRow:
    return (
        run.history(0)[-1]
        if run.module.n_models == 1
        else _rows_of_lists(run, len(run.marks) - 1)[0]
    )


def _rows_of_lists(run: Run, first: int = 0) -> list[HistoryRow]:
    """Rows of a bank's history from an epoch on; a member that has left has NaN."""
    return [
        {
            "epoch": epoch,
            "rate": [mark["share"] * recipe.learning_rate for recipe in run.recipes],
            "train": run.curves["train"][epoch].tolist(),
            "validation": (
                None if run.validation is None else run.curves["validation"][epoch].tolist()
            ),
            "seconds": round(mark["seconds"], 3),
            "skipped": run.curves["skipped"][epoch].tolist(),
        }
        for epoch, mark in enumerate(run.marks[first:], first)
    ]


def _plain(values: Tensor) -> Any:
    """One number for one model, a list for a bank."""
    return values.item() if len(values) == 1 else values.tolist()
