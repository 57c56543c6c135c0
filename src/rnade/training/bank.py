"""Many models trained as one program: a grid of settings, folds, orders and seeds.

Members of one shape and one kind of recipe are stacked into one module and trained by one `Run`;
others form runs of their own, one after the other. Members are independent: each ends as it would
have ended alone, whoever trains beside it.
"""

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Generator, Tensor

from rnade.backends.threads import threads_for
from rnade.nn.bank import AbstractTrainable
from rnade.training.checkpoint import Checkpoint
from rnade.training.minibatches import ShuffledRows
from rnade.training.recipe import Recipe
from rnade.training.run import OWN_SETTINGS, Diverged, HistoryRow, Run
from rnade.training.scoring import ScoredRows, mean_log_likelihoods
from rnade.training.sgd import N_MONITORED, advance

# Copies of the parameters that a run holds: the weights, their gradients, what the optimiser
# remembers (two), the running average, the best so far, and two for what is made on the way.
PARAMETER_COPIES = 8

V = TypeVar("V")


@dataclass(frozen=True, eq=False)
class RowSet:
    """Rows that some members share, and with them the minibatches.

    Attributes
    ----------
    x : Tensor of shape (N, D)
        Training rows, with the modules' dtype and device.
    seed : int
        Orders the rows into minibatches.
    weights : Tensor of shape (N,), optional
        Row weights, all positive.
    validation : Tensor of shape (Nv, D), optional
        Held-out rows: the weights of the epoch that scores best on them are kept. Without them
        the last weights are.
    validation_weights : Tensor of shape (Nv,), optional
    noise_width : Tensor of shape (D,), optional
        Width of uniform noise added afresh to every minibatch (dequantisation).
    """

    x: Tensor
    seed: int
    weights: Tensor | None = None
    validation: Tensor | None = None
    validation_weights: Tensor | None = None
    noise_width: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Member:
    """One model to be trained, or several that share rows and recipe.

    Attributes
    ----------
    module : AbstractTrainable
        One model with its starting weights, which are left as they are; or a bank of them, such
        as the networks of all columns, each of which stops and keeps its best weights alone.
    recipe : Recipe
    rows : RowSet
    target : float, optional
        Stop at the first epoch whose training log-likelihood is at least this.
    """

    module: AbstractTrainable
    recipe: Recipe
    rows: RowSet
    target: float | None = None


@dataclass(frozen=True, eq=False)
class Trained:
    """One model after training.

    Attributes
    ----------
    module : AbstractTrainable
        With the weights that were kept.
    history : list of dict
        One row an epoch: epoch, rate, train, validation, seconds, skipped.
    best_epoch : int
        Epoch of the weights that were kept.
    best_score : float
        Their validation log-likelihood; -inf if there never was a finite one.
    train_at_best : float
        Their log-likelihood on all training rows.
    diverged : Diverged or None
        Where it was given up, if it was.
    """

    module: AbstractTrainable
    history: list[HistoryRow]
    best_epoch: int
    best_score: float
    train_at_best: float
    diverged: Diverged | None


class Bank:
    """Members in training, as one or more runs.

    Parameters
    ----------
    members : sequence of Member
        Their modules are on one device.
    memory : int, optional
        Bytes that a run may take; a larger one is split in several, one after the other. None for
        half of what the device has free.
    checkpoint : path, optional
        A folder of checkpoints to go on from and to write, one file a run.
    checkpoint_every : float
        Seconds between two checkpoints of a run; 0 for one each epoch.

    Attributes
    ----------
    interrupted : bool
        Whether Ctrl-C ended `advance`.
    """

    def __init__(
        self,
        members: Sequence[Member],
        *,
        memory: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 30.0,
    ) -> None:
        self.members = list(members)
        self.interrupted = False
        self._folder = None if checkpoint is None else Path(checkpoint)
        self._every = checkpoint_every
        budget = _free_memory(members[0].module.device) // 2 if memory is None else memory
        self._parts = [
            _Part(self.members, piece, f"bank-{i:03d}")
            for i, piece in enumerate(
                piece
                for group in _grouped(self.members)
                for piece in _split(group, self.members, budget)
            )
        ]

    @property
    def epochs_done(self) -> int:
        """Epochs of all runs so far."""
        return sum(part.run.epoch for part in self._parts)

    @property
    def epochs_left(self) -> int:
        """Epochs still to come, at most."""
        return sum(
            0 if part.run.finished else part.run.recipe.epochs - part.run.epoch
            for part in self._parts
        )

    @property
    def rate(self) -> float:
        """Learning rate of the best member in its last update."""
        scores = self.best_scores()
        best = scores.index(max(scores))
        part = next(part for part in self._parts if best in part.first)
        return part.run.rate_of(part.first[best])

    def advance(
        self,
        share: float = 1.0,
        on_epoch: Callable[["Bank"], None] | None = None,
    ) -> bool:
        """Train all members up to a `share` of their epochs; False if Ctrl-C ended it before."""
        waiting = list(self._parts)
        while waiting:
            part = waiting.pop(0)
            try:
                done = self._advance_part(part, share, on_epoch)
            except torch.OutOfMemoryError:
                if len(part.at) == 1:
                    raise
                done = None
            if done is None:
                # Half of the members at a time, from their start: they end as they would have.
                place = self._parts.index(part)
                pieces = part.halves()
                del self._parts[place], part  # gives the memory back first
                halves = [_Part(self.members, at, name) for at, name in pieces]
                self._parts[place:place] = halves
                waiting[:0] = halves
            elif not done:
                self.interrupted = True
                return False
        return True

    def _advance_part(
        self, part: "_Part", share: float, on_epoch: Callable[["Bank"], None] | None
    ) -> bool:
        if self._folder is not None and part.checkpoint is None:
            path = self._folder / f"{part.name}.safetensors"
            part.checkpoint = Checkpoint(path, part.run, every=self._every)
        return advance(
            part.run,
            max(1, round(share * part.run.recipe.epochs)),
            checkpoint=part.checkpoint,
            on_epoch=None if on_epoch is None else lambda: on_epoch(self),
        )

    def stop(self, members: Sequence[int]) -> None:
        """Stop some members where they are; they keep their best weights."""
        for part in self._parts:
            part.run.stop(
                [
                    part.first[m] + model
                    for m in members
                    if m in part.first
                    for model in range(self.members[m].module.n_models)
                ]
            )

    def best_scores(self) -> list[float]:
        """Best validation score of each member so far: of several models, their sum."""
        scores = [float("-inf")] * len(self.members)
        for part in self._parts:
            for m, score in zip(part.at, part.sums(part.run.best_score).tolist(), strict=True):
                scores[m] = score
        return scores

    def scores_of_models(self) -> list[Tensor]:
        """Best validation score of each model of each member so far, each of shape (n_models,)."""
        scores: dict[int, Tensor] = {}
        for part in self._parts:
            own = torch.split(part.run.best_score, part.sizes)
            scores.update(zip(part.at, own, strict=True))
        return [scores[m] for m in range(len(self.members))]

    def best_of_each_model(self, members: Sequence[int]) -> list[tuple[int, int]]:
        """For each model of some members, which have as many, the member in which it scores best.

        Gives pairs of member and model, as `results` takes them.
        """
        scores = self.scores_of_models()
        best = torch.stack([scores[m] for m in members]).argmax(0)
        return [(members[i], model) for model, i in enumerate(best.tolist())]

    def results(self, wanted: Sequence[tuple[int, int]] | None = None) -> list[Trained]:
        """Each member with the weights kept for it.

        Parameters
        ----------
        wanted : sequence of (member, model), optional
            The models to give; by default the first of each member, which has no others.
        """
        wanted = [(m, 0) for m in range(len(self.members))] if wanted is None else list(wanted)
        found: dict[tuple[int, int], Trained] = {}
        for part in self._parts:
            run = part.run
            run.finish()
            here = [pair for pair in wanted if pair[0] in part.first]
            if not here:
                continue
            at = [part.first[m] + model for m, model in here]
            module = run.module if at == list(range(run.module.n_models)) else run.module[at]
            with threads_for(run.n_torch_products):
                train = mean_log_likelihoods(module, part.everything, run.source_of[at])
            histories = run.histories(at)
            for i, (pair, place) in enumerate(zip(here, at, strict=True)):
                found[pair] = Trained(
                    module[i],
                    histories[i],
                    int(run.best_epoch[place]),
                    float(run.best_score[place]),
                    float(train[i]),
                    run.diverged.get(place),
                )
        return [found[pair] for pair in wanted]


class _Part:
    """Some members (`at`, their places) as one run."""

    def __init__(self, members: Sequence[Member], at: Sequence[int], name: str) -> None:
        self.at, self.name = list(at), name
        self.checkpoint: Checkpoint | None = None  # made before the run begins
        mine = [members[m] for m in at]
        self.sizes = [member.module.n_models for member in mine]
        # Where in the run each member's models begin.
        self.first = dict(zip(at, itertools.accumulate(self.sizes, initial=0), strict=False))
        sets = list({id(member.rows): member.rows for member in mine}.values())
        place = {id(rows): i for i, rows in enumerate(sets)}
        self.everything = ScoredRows.stack([s.x for s in sets], [s.weights for s in sets])
        module = AbstractTrainable.stack([member.module for member in mine])
        has_target = mine[0].target is not None
        held_out = [s.validation for s in sets if s.validation is not None]
        monitored = ScoredRows.stack(
            [s.x[:N_MONITORED] for s in sets],
            [None if s.weights is None else s.weights[:N_MONITORED] for s in sets],
        )
        self.run = Run(
            module,
            [
                ShuffledRows(
                    s.x,
                    Generator().manual_seed(s.seed),
                    weights=s.weights,
                    noise_width=s.noise_width,
                )
                for s in sets
            ],
            self._each([place[id(member.rows)] for member in mine]),
            self._each([member.recipe for member in mine]),
            n_rows=len(sets[0].x),
            training=self.everything if has_target else monitored,
            validation=(
                ScoredRows.stack(held_out, [s.validation_weights for s in sets])
                if held_out
                else None
            ),
            targets=(
                torch.tensor(self._each([m.target for m in mine]), dtype=torch.float64)
                if has_target
                else None
            ),
        )

    def _each(self, values: Sequence[V]) -> list[V]:
        """Give every model what its member has."""
        return [v for v, n in zip(values, self.sizes, strict=True) for _ in range(n)]

    def sums(self, values: Tensor) -> Tensor:
        """Sum over each member's models."""
        owner = torch.as_tensor(self._each(range(len(self.at))))
        return values.new_zeros(len(self.at)).index_add_(0, owner, values)

    def halves(self) -> list[tuple[list[int], str]]:
        """Places and names of two parts that are this one together."""
        middle = len(self.at) // 2
        return [(self.at[:middle], f"{self.name}-0"), (self.at[middle:], f"{self.name}-1")]


def _grouped(members: Sequence[Member]) -> list[list[int]]:
    """Places of the members that can be one run, group by group."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for m, member in enumerate(members):
        recipe, n = member.recipe, len(member.rows.x)
        common = recipe.with_changes(**dict.fromkeys(OWN_SETTINGS, 0.5))
        key = (
            *member.module.signature(),
            common,
            min(recipe.batch_size, n),
            recipe.updates_per_epoch(n),
            member.rows.validation is None,
            member.target is None,
        )
        groups.setdefault(key, []).append(m)
    return list(groups.values())


def _split(group: Sequence[int], members: Sequence[Member], memory: int) -> list[list[int]]:
    """Cut a group into pieces that fit the memory, of nearly equal sizes."""
    module = max((members[m].module for m in group), key=lambda module: module.n_models)
    one = PARAMETER_COPIES * sum(p.numel() * p.element_size() for p in module.parameters())
    most = max(1, memory // max(one, 1))
    n_pieces = -(-len(group) // most)
    cuts = [i * len(group) // n_pieces for i in range(n_pieces + 1)]
    return [list(group[low:high]) for low, high in itertools.pairwise(cuts)]


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    try:
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # not told by this system
        return 2**32
