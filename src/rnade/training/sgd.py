"""Gradient training of one module: a bank of one member, whose weights go back to the module."""

import os
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rnade.batch import Batch
from rnade.exceptions import TrainingDivergedError
from rnade.nn.bank import AbstractTrainable
from rnade.training.bank import Bank
from rnade.training.checkpoint import Checkpoint
from rnade.training.member import Diverged, HistoryRow, Member, Outcome
from rnade.training.recipe import Recipe
from rnade.training.run import MAX_RETURNS
from rnade.training.sources import AbstractMinibatches, ShuffledRows


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
        A file to resume from if it exists, and to write every 30 seconds.

    Raises
    ------
    TrainingDivergedError
        If gradients of the only model stay non-finite at smaller and smaller rates. The module is
        then left with its best weights so far. In a bank such a model is left alone.
    CheckpointError
        If there is a checkpoint that is damaged, or of another run.
    """
    if isinstance(rows, AbstractMinibatches):
        source = rows
    elif generator is None:
        raise TypeError("train() needs a generator, which orders the rows into minibatches.")
    else:
        source = ShuffledRows(rows, generator, weights=weights, noise_width=noise_width)
    held_out = None if validation is None else Batch(validation, validation_weights)
    bank = Bank([Member(module, recipe, source, held_out, target)])
    run = bank.parts[0].run
    alone = module.n_models == 1

    def history(first: int = 0) -> list[HistoryRow]:
        models = range(module.n_models)
        return run.histories([0], first)[0] if alone else run.rows_of_lists(models, first)

    def report(_: Bank) -> None:
        if on_epoch is not None:
            on_epoch(history(run.epoch)[-1])

    try:
        if checkpoint is not None:
            bank.parts[0].checkpoint = Checkpoint(checkpoint, run)
        bank.advance(on_epoch=report)
    finally:
        with torch.no_grad():
            for p, kept in zip(module.parameters(), run.best, strict=True):
                p.copy_(kept)
    # The caller's generator ends where it would if the minibatches had been drawn by hand.
    source.restore(run.sources[0].state())
    if alone and run.diverged:
        raise diverged_error(run.diverged[0])
    results = bank.results([(0, m) for m in range(module.n_models)])
    numbers = [[t.best_epoch, t.best_score, t.train_at_best] for t in results]
    found = numbers[0] if alone else [list(values) for values in zip(*numbers, strict=True)]
    return Outcome(history(), found[0], found[1], found[2], bank.interrupted)


def diverged_error(where: Diverged) -> TrainingDivergedError:
    """Say where a model diverged and what to do."""
    return TrainingDivergedError(
        f"Training diverged in epoch {where.epoch} at learning rate {where.rate:.3g}: the gradient"
        f" was not finite in {where.skipped} updates in a row, even after going back to the best"
        f" weights {MAX_RETURNS} times at lower rates. The likely cause is a learning rate that is"
        " too large, or data with extreme values: lower learning_rate, or look for outliers in"
        " the columns."
    )
