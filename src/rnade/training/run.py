"""The state of a training run of M models, and how it moves by one epoch.

Every number kept for a model has the leading axis M. Models that stop early leave the working
module, which is packed; the weights kept for each stay in tensors of the full size.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rnade import parallel
from rnade.backends.gpu.tiling import BANK_MODELS
from rnade.backends.threads import kernel_threads
from rnade.nn.bank import AbstractTrainable
from rnade.training.live import Live
from rnade.training.member import Diverged, HistoryRow, Member
from rnade.training.optim import Optimiser
from rnade.training.scoring import side_by_side
from rnade.training.sources import draw_all

# Updates skipped in a row after which a model goes back to its best weights.
MAX_SKIPPED_IN_A_ROW = 10
# Times it goes back, each time to a quarter of the rate, before it is given up.
MAX_RETURNS = 3
# Numbers of one source's minibatches that are drawn at a time: half a megabyte in float32.
BLOCK_ELEMENTS = 2**17
# Training rows on which the starting weights are scored.
N_MONITORED = 2000
# Settings in which the members of a bank may differ.
OWN_SETTINGS = ("learning_rate", "weight_decay", "momentum")
# What a checkpoint holds of a run: tensors with a number for each model, and plain values.
_OF_MODELS = ("returns", "best_score", "best_epoch")
_PLAIN = ("epoch", "update", "seconds", "stopped_at", "marks")


class Run:
    """A run of M models of one shape: their weights, optimiser, scores and places.

    Parameters
    ----------
    members : sequence of Member
        Alike in shape and recipe, but for `OWN_SETTINGS`.

    Attributes
    ----------
    module : AbstractTrainable
        The M models of all members. It is worked on in place, and `finish` leaves each model with
        the weights kept.
    sources, source_of
        R sources of minibatches, and for each model its source.
    known, training, validation : Batch
        Training rows, those on which the start is scored (and every epoch where there are
        targets), and held-out rows or None; one set for each source.
    targets : Tensor of shape (M,) or None
    """

    def __init__(self, members: Sequence[Member]) -> None:
        # Members with the same source and the same held-out rows share minibatches and scores.
        keys = [(id(each.source), *(id(t) for t in each.held_out or ())) for each in members]
        sets = dict(zip(keys, members, strict=True))
        place = {key: i for i, key in enumerate(sets)}
        known = [member.source.known() for member in sets.values()]
        held_out = [each.held_out for each in sets.values() if each.held_out is not None]
        self.known = side_by_side(known)
        self.validation = side_by_side(held_out) if held_out else None
        of_models = [(m, key) for m, key in zip(members, keys, strict=True) for _ in m.models]
        self.recipes = [member.recipe for member, _ in of_models]
        targets = [member.target for member, _ in of_models]
        if targets[0] is None:
            self.targets = None
            self.training = side_by_side([rows.map(lambda t: t[:N_MONITORED]) for rows in known])
        else:
            self.targets = torch.tensor(targets, dtype=torch.float64)
            self.training = self.known
        self.module = module = AbstractTrainable.stack([member.module for member in members])
        self.sources = [member.source.fork() for member in sets.values()]
        self.recipe, M = self.recipes[0], module.n_models
        n_rows = len(known[0].x)
        self.batch_size = min(self.recipe.batch_size, n_rows)
        if self.batch_size < parallel.size():
            raise ValueError(
                f"Minibatches of {self.batch_size} rows cannot be shared by {parallel.size()}"
                " processes: raise batch_size, or start fewer."
            )
        self.updates_per_epoch = self.recipe.updates_per_epoch(n_rows)
        self.n_updates = self.updates_per_epoch * self.recipe.epochs
        self.epoch = self.update = 0
        self.seconds = 0.0
        # Of all models, on the CPU.
        self.stopped_at: list[int | None] = [None] * M  # the epoch
        self.diverged: dict[int, Diverged] = {}
        self.returns = torch.zeros(M, dtype=torch.int64)
        self.best_score = torch.full((M,), -torch.inf, dtype=torch.float64)
        self.best_epoch = torch.zeros(M, dtype=torch.int64)
        self.curves: dict[str, list[Tensor]] = {"train": [], "validation": [], "skipped": []}
        self.marks: list[dict[str, Any]] = []
        self.best = [p.detach().clone() for p in module.parameters()]
        source_of = [place[key] for _, key in of_models]
        self.source_of = torch.as_tensor(source_of, device=module.device)
        # Of the models still training: which they are, and whether each has not stopped.
        self.ids = torch.arange(M)
        self._running = torch.ones(M, dtype=torch.bool)
        self._n_active = M
        self.live = Live(module, self.recipes, self.source_of)

    @property
    def n_torch_products(self) -> int:
        """Multiplications of an update that torch's own products make."""
        return self.module.n_torch_products(self.batch_size)

    @property
    def finished(self) -> bool:
        """Whether no model trains any more."""
        return self.epoch >= self.recipe.epochs or None not in self.stopped_at

    def rate_of(self, m: int) -> float:
        """Give the learning rate of model m in the last update."""
        share = float(self.marks[-1]["share"]) if self.marks else 0.0
        return share * self.recipes[m].learning_rate * 0.25 ** int(self.returns[m])

    @torch.no_grad()
    def finish(self) -> None:
        """Give the module the weights kept for each model."""
        for p, kept in zip(self.module.parameters(), self.best, strict=True):
            p.copy_(kept)

    # ---------------------------------------------------------------- epochs

    def start(self) -> None:
        """Score the starting weights as epoch 0."""
        self._close_epoch(self.live.score(self.training))

    def one_epoch(self, cancelled: Callable[[], bool] = lambda: False) -> bool:
        """Make an epoch's updates, score the models and stop some; False if cancelled within."""
        began = time.perf_counter()
        self.epoch += 1
        self.live.optimiser.start_epoch(self.epoch)
        parallel.aligned(list(self.live.tensors().values()))
        most = max(1, BLOCK_ELEMENTS // (self.batch_size * self.module.n_dimensions))
        n_blocks = math.ceil(self.updates_per_epoch / most)
        schedule = self._schedule()
        for block in range(n_blocks):
            first, last = (b * self.updates_per_epoch // n_blocks for b in (block, block + 1))
            batches = draw_all(self.sources, last - first, self.batch_size)
            self.live.updates(batches, schedule[first:last], self.batch_size, cancelled)
            self.update += last - first
            if cancelled():
                return False
        counts = self.live.optimiser.counts
        train = counts.log_likelihood / counts.counted
        if self.targets is not None:
            train = self.live.score(self.training)
        self.seconds += time.perf_counter() - began
        began = time.perf_counter()
        self._close_epoch(train)
        self.seconds += time.perf_counter() - began
        return True

    def _schedule(self) -> Float[Tensor, "n 4"]:
        """What changes from update to update of an epoch, in one copy to the device."""
        shares = [
            [
                self.recipe.share_at(t, self.n_updates),
                # A short memory at first, so that the start is soon forgotten.
                1 - min(self.recipe.averaging, (1 + t) / (10 + t)),
                *Optimiser.unbias(t + 1),
            ]
            for t in range(self.update, self.update + self.updates_per_epoch)
        ]
        given = torch.tensor(shares, dtype=torch.float64)
        return given.to(self.module.device, self.module.dtype)

    def _close_epoch(self, train: Tensor) -> None:
        """Score, keep what is best, stop who is done and go back where updates fail."""
        score = train if self.validation is None else self.live.score(self.validation)
        counts = self.live.optimiser.counts
        # One copy from the device, which is waited for once.
        told = torch.stack([t.double() for t in (train, score, counts.skipped, counts.in_a_row)])
        parallel.aligned([told])  # so that all processes stop the same models
        train, score, skipped, in_a_row = told.cpu()
        self._record(train, score, skipped)
        self._keep(score)
        done = torch.zeros(len(self.ids), dtype=torch.bool)
        if self.targets is not None and self.epoch > 0:
            done |= train >= self.targets[self.ids]
        if self.recipe.patience is not None:
            done |= self.epoch - self.best_epoch[self.ids] >= self.recipe.patience
        self._mark_stopped(self.ids[done].tolist())
        self._go_back_where_stuck(in_a_row)
        self._note_running()

    def _record(self, train: Tensor, score: Tensor, skipped: Tensor) -> None:
        for name, values in (("train", train), ("validation", score), ("skipped", skipped)):
            everyone = torch.full((len(self.stopped_at),), torch.nan, dtype=torch.float64)
            everyone[self.ids] = values
            self.curves[name].append(everyone)
        share = self.recipe.share_at(self.update - 1, self.n_updates) if self.update else 0.0
        self.marks.append({"share": share, "seconds": self.seconds})

    @torch.no_grad()
    def _keep(self, score: Tensor) -> None:
        """Keep the evaluated weights of the models whose score is the best so far."""
        better = self._running & torch.isfinite(score)
        if self.validation is not None:
            better &= score > self.best_score[self.ids]
        at = better.nonzero().flatten()
        if not len(at):
            return
        ids = self.ids[at]
        self.best_score[ids] = score[at]
        self.best_epoch[ids] = self.epoch
        here, there = at.to(self.module.device), ids.to(self.module.device)
        for kept, p in zip(self.best, self.live.evaluated(), strict=True):
            kept[there] = p[here]

    def _go_back_where_stuck(self, in_a_row: Tensor) -> None:
        """Return models whose updates keep being skipped to their best weights, at lower rates."""
        limit = min(MAX_SKIPPED_IN_A_ROW, self.updates_per_epoch)
        stuck = (in_a_row >= limit) & self._running
        if not stuck.any():
            return
        for i in stuck.nonzero().flatten().tolist():
            m = int(self.ids[i])
            if self.returns[m] == MAX_RETURNS:
                self._mark_stopped([m])
                self.diverged[m] = Diverged(self.epoch, self.rate_of(m), int(in_a_row[i]))
        ids = self.ids[stuck]
        self.returns[ids] += 1
        there = ids.to(self.module.device)
        self.live.go_back(stuck.to(self.module.device), [kept[there] for kept in self.best])

    # ---------------------------------------------------------------- who goes on

    def stop(self, models: Sequence[int]) -> None:
        """Stop some models where they are; they keep their best weights."""
        self._mark_stopped(models)
        self._note_running()

    def _mark_stopped(self, models: Sequence[int]) -> None:
        for m in models:
            if self.stopped_at[m] is None:
                self.stopped_at[m] = self.epoch
                self._running[self.ids == m] = False

    def _note_running(self) -> None:
        """Tell the optimiser who has stopped; pack the models once half of them have."""
        n = int(self._running.sum())
        # As many as the kernels need stay together: with fewer models these would share one
        # model's work in another way, and its last bits would depend on who else has stopped.
        fewest = BANK_MODELS if self.module.device.type == "cuda" else kernel_threads()
        if max(2, fewest) <= n <= len(self._running) // 2:
            self._pack(self._running.nonzero().flatten())
        elif n < self._n_active:
            self.live.optimiser.counts.active.copy_(self._running)
        self._n_active = n

    def _pack(self, keep: Tensor) -> None:
        """Go on with some of the models only; `keep` are their places."""
        self.live = self.live.picked(keep)
        self.ids, self._running = self.ids[keep], self._running[keep]

    # ---------------------------------------------------------------- what it tells

    def rows_of_lists(self, models: Sequence[int], first: int = 0) -> list[HistoryRow]:
        """Rows of some models' history from epoch `first` on; a model that has left has NaN."""
        # Whole curves at a time: to take them apart number by number takes seconds for a bank.
        at = torch.as_tensor(list(models))
        curves = (torch.stack(rows[first:])[:, at].tolist() for rows in self.curves.values())
        rates = [self.recipes[m].learning_rate for m in models]
        scores = zip(self.marks[first:], *curves, strict=True)
        return [
            {
                "epoch": epoch,
                "rate": [mark["share"] * rate for rate in rates],
                "train": train,
                "validation": None if self.validation is None else validation,
                "seconds": round(mark["seconds"], 3),
                "skipped": skipped,
            }
            for epoch, (mark, train, validation, skipped) in enumerate(scores, first)
        ]

    def histories(self, models: Sequence[int], first: int = 0) -> list[list[HistoryRow]]:
        """One row an epoch of each of some models, from epoch `first` to where it stopped."""
        rows, found = self.rows_of_lists(models, first), []
        for i, m in enumerate(models):
            last = self.stopped_at[m]
            lived = rows if last is None else rows[: last + 1 - first]
            own = [{k: v[i] if isinstance(v, list) else v for k, v in r.items()} for r in lived]
            found.append([row | {"skipped": int(row["skipped"])} for row in own])
        return found

    # ---------------------------------------------------------------- checkpoints

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next epoch depends on: tensors, and values that JSON holds."""
        tensors = {**self._in_place(), "ids": self.ids}
        for i, source in enumerate(self.sources):
            tensors |= {f"source.{i}.{name}": t for name, t in source.state().items()}
        none = self.best_score.new_empty(0, len(self.best_score))
        for name, rows in self.curves.items():
            tensors[f"curve.{name}"] = torch.stack(rows) if rows else none
        plain = {name: getattr(self, name) for name in _PLAIN}
        plain["diverged"] = {str(m): list(where) for m, where in self.diverged.items()}
        return {name: t.detach().cpu() for name, t in tensors.items()}, plain

    def _in_place(self) -> dict[str, Tensor]:
        """Tensors that move in place: weights, those that are kept, and numbers of each model."""
        tensors = {f"live.{name}": t for name, t in self.live.tensors().items()}
        tensors |= {f"best.{i}": t for i, t in enumerate(self.best)}
        return tensors | {name: getattr(self, name) for name in _OF_MODELS}

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """Go on from where `state` was taken, in a run made in the same way."""

        def under(start: str) -> dict[str, Tensor]:
            return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}

        if len(tensors["ids"]) < len(self.ids):
            self._pack(tensors["ids"])
        for name, t in self._in_place().items():
            t.copy_(tensors[name])
        for i, source in enumerate(self.sources):
            source.restore(under(f"source.{i}."))
        self.curves = {name: list(tensors[f"curve.{name}"]) for name in self.curves}
        for name in _PLAIN:
            setattr(self, name, plain[name])
        self.diverged = {int(m): Diverged(*where) for m, where in plain["diverged"].items()}
        self._running = torch.tensor([self.stopped_at[m] is None for m in self.ids.tolist()])
        self._n_active = int(self._running.sum())
        self.live.optimiser.counts.active.copy_(self._running)
