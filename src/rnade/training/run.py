"""The state of a training run of M models, and how it moves by one epoch.

Every number kept for a model has the leading axis M. Models that stop early leave the working
module, which is packed; the weights kept for each stay in tensors of the full size. Nothing is
read back from the device within a block of updates, so that on a GPU a block is one CUDA graph.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from rnade.backends.gpu.tiling import BANK_MODELS
from rnade.backends.threads import kernel_threads
from rnade.batch import Batch
from rnade.nn.bank import AbstractTrainable
from rnade.training.graphs import CapturedUpdates
from rnade.training.ledger import Ledger
from rnade.training.minibatches import AbstractMinibatches, draw_all
from rnade.training.optimisers import AbstractOptimiser, Adam, Sgd, Step
from rnade.training.recipe import Recipe
from rnade.training.scoring import ScoredRows, mean_log_likelihoods, of_each_model

# Updates skipped in a row after which a model goes back to its best weights.
MAX_SKIPPED_IN_A_ROW = 10
# Times it goes back, each time to a quarter of the rate, before it is given up.
MAX_RETURNS = 3
# Numbers of one source's minibatches that are drawn at a time: half a megabyte in float32.
BLOCK_ELEMENTS = 2**17
# Settings in which the members of a bank may differ.
OWN_SETTINGS = ("learning_rate", "weight_decay", "momentum")


HistoryRow = dict[str, Any]


class Diverged(NamedTuple):
    """Where a model was given up."""

    epoch: int
    rate: float
    skipped: int


class Run:
    """A run of M models of one shape: their weights, optimiser, scores and places.

    Parameters
    ----------
    module : AbstractTrainable
        M models. It is worked on in place, and `finish` leaves each model with the weights kept.
    sources : sequence of AbstractMinibatches
        R sources of minibatches.
    source_of : sequence of int
        For each model, its source.
    recipes : sequence of Recipe
        One for each model; they differ in `OWN_SETTINGS` only.
    n_rows : int
        Training rows, on which the length of an epoch depends.
    validation : ScoredRows, optional
        One set for each source. The weights of the epoch that scores best are kept; without them
        the last ones are.
    training : ScoredRows
        Rows on which the start is scored, and every epoch where there are targets.
    targets : Tensor of shape (M,), optional
        A model stops at the first epoch whose score on `training` is at least this.
    """

    def __init__(
        self,
        module: AbstractTrainable,
        sources: Sequence[AbstractMinibatches],
        source_of: Sequence[int],
        recipes: Sequence[Recipe],
        *,
        n_rows: int,
        training: ScoredRows,
        validation: ScoredRows | None = None,
        targets: Float[Tensor, " M"] | None = None,
    ) -> None:
        M = module.n_models
        self.module = self.live = module
        self.sources, self.recipes, self.recipe = list(sources), list(recipes), recipes[0]
        self.training, self.validation, self.targets = training, validation, targets
        self.batch_size = min(self.recipe.batch_size, n_rows)
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
        self.curves: dict[str, list[Tensor]] = {
            "train": [],
            "validation": [],
            "skipped": [],
        }
        self.marks: list[dict[str, Any]] = []
        self.best = [p.detach().clone() for p in module.parameters()]
        self.source_of = torch.as_tensor(list(source_of), device=module.device)
        # Of the models still training, on the device.
        self.ids = torch.arange(M)
        self._source_of = self.source_of
        self._n_active = M
        self._build_working_state()

    # ---------------------------------------------------------------- epochs

    def start(self) -> None:
        """Score the starting weights as epoch 0."""
        self._close_epoch(self.score(self.training))

    def one_epoch(self, cancelled: Callable[[], bool] = lambda: False) -> bool:
        """Make an epoch's updates, score the models and stop some; False if cancelled within."""
        began = time.perf_counter()
        self.epoch += 1
        self._optimiser.start_epoch(self.epoch)
        self._ledger.start_epoch()
        most = max(1, BLOCK_ELEMENTS // (self.batch_size * self.module.n_dimensions))
        n_blocks = math.ceil(self.updates_per_epoch / most)
        schedule = self._schedule()
        for block in range(n_blocks):
            first, last = (b * self.updates_per_epoch // n_blocks for b in (block, block + 1))
            self._run_block(schedule[first:last], cancelled)
            if cancelled():
                return False
        ledger = self._ledger
        train = (
            ledger.log_likelihood / ledger.counted if self.targets is None else self._train_score()
        )
        self.seconds += time.perf_counter() - began
        began = time.perf_counter()
        self._close_epoch(train)
        self.seconds += time.perf_counter() - began
        return True

    @property
    def n_torch_products(self) -> int:
        """Multiplications of an update that torch's own products make."""
        return self.module.n_torch_products(self.batch_size)

    @property
    def finished(self) -> bool:
        """Whether no model trains any more."""
        return self.epoch >= self.recipe.epochs or None not in self.stopped_at

    def stop(self, members: Sequence[int]) -> None:
        """Stop some models where they are; they keep their best weights."""
        for m in members:
            self._stop(m)
        self._freeze()

    @torch.no_grad()
    def finish(self) -> None:
        """Give the module the weights kept for each model."""
        for p, kept in zip(self.module.parameters(), self.best, strict=True):
            p.copy_(kept)

    def history(self, m: int) -> list[HistoryRow]:
        """One row an epoch of model m, up to where it stopped."""
        return self.histories([m])[0]

    def histories(self, members: Sequence[int]) -> list[list[HistoryRow]]:
        """One row an epoch of each of some models, up to where it stopped."""
        # Whole curves at a time: to take them apart number by number takes seconds for a bank.
        at = torch.as_tensor(list(members))
        curves = {name: torch.stack(rows)[:, at].T.tolist() for name, rows in self.curves.items()}
        seconds = [round(mark["seconds"], 3) for mark in self.marks]
        found = []
        for i, m in enumerate(members):
            last, rate = self.stopped_at[m], self.recipes[m].learning_rate
            n = len(self.marks) if last is None else last + 1
            train, validation, skipped = (curve[i] for curve in curves.values())
            found.append(
                [
                    {
                        "epoch": epoch,
                        "rate": self.marks[epoch]["share"] * rate,
                        "train": train[epoch],
                        "validation": None if self.validation is None else validation[epoch],
                        "seconds": seconds[epoch],
                        "skipped": int(skipped[epoch]),
                    }
                    for epoch in range(n)
                ]
            )
        return found

    def _stop(self, m: int) -> None:
        if self.stopped_at[m] is None:
            self.stopped_at[m] = self.epoch
            self._running[self.ids == m] = False

    def _train_score(self) -> Tensor:
        with self._evaluated_weights():
            return self.score(self.training)

    def _close_epoch(self, train: Tensor) -> None:
        """Score, keep what is best, stop who is done and go back where updates fail."""
        score = train
        if self.validation is not None:
            with self._evaluated_weights():
                score = self.score(self.validation)
        ledger = self._ledger
        # One copy from the device, which is waited for once.
        told = torch.stack([t.double() for t in (train, score, ledger.skipped, ledger.in_a_row)])
        train, score, skipped, in_a_row = told.cpu()
        self._record(train, score, skipped)
        self._keep(score)
        done = torch.zeros(len(self.ids), dtype=torch.bool)
        if self.targets is not None and self.epoch > 0:
            done |= train >= self.targets[self.ids]
        if self.recipe.patience is not None:
            done |= self.epoch - self.best_epoch[self.ids] >= self.recipe.patience
        for m in self.ids[done].tolist():
            self._stop(m)
        self._go_back_where_stuck(in_a_row)
        self._freeze()

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
        for kept, p in zip(self.best, self._average or self._parameters, strict=True):
            kept[there] = p.detach()[here]

    @torch.no_grad()
    def _go_back_where_stuck(self, in_a_row: Tensor) -> None:
        """Return models whose updates keep being skipped to their best weights, at lower rates."""
        limit = min(MAX_SKIPPED_IN_A_ROW, self.updates_per_epoch)
        stuck = (in_a_row >= limit) & self._running
        for i in stuck.nonzero().flatten().tolist():
            m = int(self.ids[i])
            if self.returns[m] == MAX_RETURNS:
                self._stop(m)
                self.diverged[m] = Diverged(self.epoch, self.rate_of(m), int(in_a_row[i]))
        if not stuck.any():
            return
        self.returns[self.ids[stuck]] += 1
        here = stuck.to(self.module.device)
        self._rates[here] /= 4
        self._ledger.in_a_row[here] = 0
        there = self.ids[stuck].to(self.module.device)
        for tensors in (self._parameters, self._average):
            for t, kept in zip(tensors, self.best, strict=False):
                t.data[here] = kept[there]
        self._optimiser.reset(here)

    def rate_of(self, m: int) -> float:
        """Give the learning rate of model m in the last update."""
        share = float(self.marks[-1]["share"]) if self.marks else 0.0
        return share * self.recipes[m].learning_rate * 0.25 ** int(self.returns[m])

    def _freeze(self) -> None:
        """Take note of who has stopped; pack the bank once that makes it half as large."""
        n = int(self._running.sum())
        # As many as the kernels need stay together: with fewer models these would share one
        # model's work in another way, and its last bits would depend on who else has stopped.
        fewest = BANK_MODELS if self.module.device.type == "cuda" else kernel_threads()
        if max(2, fewest) <= n <= len(self._running) // 2:
            self._pack(self._running.nonzero().flatten())
        elif n < self._n_active:
            self._ledger.active.copy_(self._running)
        self._n_active = n

    # ---------------------------------------------------------------- updates

    def _schedule(self) -> Float[Tensor, "n 4"]:
        """What changes from update to update of an epoch, in one copy to the device."""
        shares = [
            [
                self.recipe.share_at(t, self.n_updates),
                # A short memory at first, so that the start is soon forgotten.
                1 - min(self.recipe.averaging, (1 + t) / (10 + t)),
                *AbstractOptimiser.unbias(t + 1),
            ]
            for t in range(self.update, self.update + self.updates_per_epoch)
        ]
        given = torch.tensor(shares, dtype=torch.float64)
        return given.to(self.module.device, self.module.dtype)

    def _run_block(self, schedule: Float[Tensor, "n 4"], cancelled: Callable[[], bool]) -> None:
        """Make one update for each line of the schedule, with minibatches drawn beforehand."""
        n = len(schedule)
        x, w = draw_all(self.sources, n, self.batch_size)
        self._captured.run((x, -w / self.batch_size, schedule), cancelled)
        self.update += n

    def _one_update(
        self,
        x: Float[Tensor, "R B D"],
        w: Float[Tensor, "R B"],
        schedule: Float[Tensor, " 4"],
    ) -> None:
        """Move the weights of the models whose loss and gradient are finite."""
        M = self.live.n_models
        x, w = of_each_model(x, self._source_of, M), of_each_model(w, self._source_of, M)
        # With the sign in the weights the fused backends hand over their gradients as they are.
        loss = self.live.weighted_log_likelihood(
            Batch(x, w), scale_mean_gradient=self.recipe.scale_mean_gradient
        )
        gradients = torch.autograd.grad(loss, self._parameters, self._ones)
        with torch.no_grad():
            self._apply(gradients, loss.detach(), schedule)

    def _apply(self, gradients: Sequence[Tensor], loss: Tensor, schedule: Tensor) -> None:
        scale, usable = self._ledger.judge(gradients, loss, self.recipe.clip_norm)
        rate = schedule[0] * self._rates
        self._optimiser.step(gradients, Step(rate, scale, usable, schedule[2:], schedule[1]))

    @contextmanager
    def _evaluated_weights(self) -> Iterator[None]:
        """Within it, the working module has the weights that are scored and kept."""
        if not self._average:
            yield
            return
        trained = [p.data for p in self._parameters]
        _point(self._parameters, self._average)
        try:
            yield
        finally:
            _point(self._parameters, trained)

    def score(self, rows: ScoredRows) -> Float[Tensor, " M"]:
        """Mean log-likelihood of each model that still trains."""
        return mean_log_likelihoods(self.live, rows, self._source_of)

    # ---------------------------------------------------------------- packing, checkpoints

    def _build_working_state(self) -> None:
        """Tensors of the models still training, from the start."""
        module, ids = self.live, self.ids.tolist()
        named = dict(module.named_parameters())
        self._parameters = list(named.values())
        like = self._parameters[0]
        M = len(ids)

        def own(setting: str) -> Tensor:
            values = [getattr(self.recipes[m], setting) for m in ids]
            return torch.tensor(values, dtype=like.dtype, device=like.device)

        self._ones = like.new_ones(M)
        self._rates = own("learning_rate")
        decay = own("weight_decay") if any(r.weight_decay for r in self.recipes) else None
        decays = [decay if name in module.decayed() else None for name in named]
        averaged = self._parameters if self.recipe.averaging else []
        self._average = [p.detach().clone() for p in averaged]
        if self.recipe.optimiser == "adam":
            self._optimiser: AbstractOptimiser = Adam(self._parameters, decays, self._average)
        else:
            momentum = own("momentum") if any(r.momentum for r in self.recipes) else None
            self._optimiser = Sgd(
                self._parameters, decays, averages=self._average, momentum=momentum
            )
        self._ledger = Ledger(self._parameters)
        self._note_running()
        self._captured = CapturedUpdates(self._one_update)

    def _note_running(self) -> None:
        """Look up which models of the working module still train."""
        self._running = torch.tensor([self.stopped_at[m] is None for m in self.ids.tolist()])
        self._n_active = int(self._running.sum())
        self._ledger.active.copy_(self._running)

    def _moving(self) -> dict[str, Tensor]:
        """Tensors with an axis of the models still training that carry over to the next epoch."""
        groups = {
            "parameter": [p.data for p in self._parameters],
            "average": self._average,
            "optimiser": self._optimiser.state(),
            "member": [self._rates, self._ledger.skipped, self._ledger.in_a_row],
        }
        return {f"{name}.{i}": t for name, ts in groups.items() for i, t in enumerate(ts)}

    @torch.no_grad()
    def _pack(self, keep: Tensor) -> None:
        """Go on with some of the models only; `keep` are their places."""
        before = self._moving()
        here = keep.to(self.module.device)
        self.live = self.live[keep.tolist()]
        self.ids = self.ids[keep]
        self._source_of = self._source_of[here]
        self._build_working_state()
        for name, t in self._moving().items():
            t.copy_(before[name][here])

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next epoch depends on: tensors, and values that JSON holds."""
        tensors = {f"moving.{name}": t for name, t in self._moving().items()}
        tensors |= {f"best.{i}": t for i, t in enumerate(self.best)}
        for i, source in enumerate(self.sources):
            tensors |= {f"source.{i}.{name}": t for name, t in source.state().items()}
        for name in ("ids", "returns", "best_score", "best_epoch"):
            tensors[name] = getattr(self, name)
        none = self.best_score.new_empty(0, len(self.best_score))
        for name, rows in self.curves.items():
            tensors[f"curve.{name}"] = torch.stack(rows) if rows else none
        plain = {
            "epoch": self.epoch,
            "update": self.update,
            "seconds": self.seconds,
            "stopped_at": self.stopped_at,
            "diverged": {str(m): list(where) for m, where in self.diverged.items()},
            "marks": self.marks,
        }
        return {name: t.detach().cpu() for name, t in tensors.items()}, plain

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """Go on from where `state` was taken, in a run made in the same way."""
        if len(tensors["ids"]) < len(self.ids):
            self._pack(tensors["ids"])
        for name, t in self._moving().items():
            t.copy_(tensors[f"moving.{name}"])
        for i, kept in enumerate(self.best):
            kept.copy_(tensors[f"best.{i}"])
        for i, source in enumerate(self.sources):
            start = f"source.{i}."
            source.restore(
                {name[len(start) :]: t for name, t in tensors.items() if name.startswith(start)}
            )
        for name in ("returns", "best_score", "best_epoch"):
            getattr(self, name).copy_(tensors[name])
        self.curves = {name: list(tensors[f"curve.{name}"]) for name in self.curves}
        self.epoch, self.update, self.seconds = (plain[k] for k in ("epoch", "update", "seconds"))
        self.stopped_at, self.marks = list(plain["stopped_at"]), list(plain["marks"])
        self.diverged = {int(m): Diverged(*where) for m, where in plain["diverged"].items()}
        self._note_running()


def _point(parameters: Sequence[Tensor], data: Sequence[Tensor]) -> None:
    for p, values in zip(parameters, data, strict=True):
        p.data = values
