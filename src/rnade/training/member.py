"""What a bank trains, and what it gives back."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from rnade.batch import Batch
from rnade.nn.bank import AbstractTrainable
from rnade.training.recipe import Recipe
from rnade.training.sources import AbstractMinibatches

HistoryRow = dict[str, Any]


class Diverged(NamedTuple):
    """Where a model was given up."""

    epoch: int
    rate: float
    skipped: int


@dataclass(frozen=True, eq=False)
class Member:
    """One model to be trained, or several that share rows and recipe.

    Attributes
    ----------
    module : AbstractTrainable
        One model with its starting weights, which are left as they are; or a bank of them, such
        as the networks of all columns, each of which stops and keeps its best weights alone.
    recipe : Recipe
    source : AbstractMinibatches
        Where its minibatches come from, such as `ShuffledRows`; it is left where it is. Members
        that are given the same source see the same minibatches.
    held_out : Batch, optional
        Held-out rows, x of shape (Nv, D): the weights of the epoch that scores best on them are
        kept. Without them the last weights are.
    target : float, optional
        Stop at the first epoch whose training log-likelihood is at least this.
    """

    module: AbstractTrainable
    recipe: Recipe
    source: AbstractMinibatches
    held_out: Batch | None = None
    target: float | None = None

    @property
    def models(self) -> range:
        """Places of its models in the module."""
        return range(self.module.n_models)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What training gives besides weights; of several models in lists, one number for each.

    Attributes
    ----------
    history : list of dict
        One row an epoch: epoch, rate, train, validation, seconds, skipped. Epoch 0 is the start.
        "train" is the mean log-likelihood of the epoch's minibatches, as they were trained on (or
        of all training rows, where there is a target).
    best_epoch : int
        Epoch of the weights that were kept.
    best_score : float
        Their validation log-likelihood (training, where there are no held-out rows); -inf if there
        never was a finite one.
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Trained(Outcome):
    """One model after training.

    Attributes
    ----------
    module : AbstractTrainable, or a mixture trained by EM
        With the weights that were kept.
    diverged : Diverged or None
        Where it was given up, if it was.
    """

    module: Any
    diverged: Diverged | None
