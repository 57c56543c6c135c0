"""How long EM goes on: its settings, and the scores by which mixtures stop and are kept."""

import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rnade.checks import number_between, positive_int
from rnade.training.member import HistoryRow, Outcome


@dataclass(frozen=True)
class EMSettings:
    """Settings of EM: when it stops, and its minibatches.

    Attributes
    ----------
    max_iter : int
        Largest number of iterations.
    tol : float
        Convergence tolerance: stop once an iteration over all rows raises the mean
        log-likelihood by less.
    patience : int or None
        Early stopping: evaluations on the held-out rows without a better score after which
        training stops. Every iteration over all rows is evaluated, and every tenth on minibatches.
    batch_size : int or None
        Rows of a minibatch; None for all rows.
    step_size : float
        How far the first minibatch moves the parameters towards its own maximum-likelihood
        values, between 0 and 1; it decays linearly to 0 after the last.
    """

    max_iter: int = 200
    tol: float = 1e-4
    patience: int | None = 10
    batch_size: int | None = None
    step_size: float = 0.1

    def __post_init__(self) -> None:
        positive_int(self.max_iter, "max_iter")
        number_between(self.tol, "tol", 0, math.inf, open_low=False)
        number_between(self.step_size, "step_size", 0, 1, open_low=True)
        for name in ("patience", "batch_size"):
            if getattr(self, name) is not None:
                positive_int(getattr(self, name), name)

    @property
    def iterations_per_look(self) -> int:
        """Iterations between two looks at the held-out rows."""
        return 1 if self.batch_size is None else 10

    def step_size_at(self, iteration: int) -> float:
        """Share of the way that an iteration goes: all of it where it sees all rows."""
        if self.batch_size is None:
            return 1.0
        return self.step_size * (1 - iteration / self.max_iter)


PAPER_EM = EMSettings(max_iter=1000, batch_size=20_000, step_size=0.1, patience=None)
"""The paper's section 4.2."""


class Progress:
    """Which of some mixtures still train, and the best score of each so far.

    Each stops as it would alone: once an iteration over all rows gains less than the tolerance,
    out of patience, or at its target.

    Parameters
    ----------
    settings : EMSettings
    targets : Tensor of any shape
        For each mixture, the training log-likelihood at which it stops.

    Attributes
    ----------
    running : bool Tensor
    best_scores, train_at_best : Tensor
        Mean log-likelihood of the held-out rows (training rows where there are none) and of the
        training rows, of the parameters to keep.
    best_iterations : Tensor
    """

    def __init__(self, settings: EMSettings, targets: Float[Tensor, "*mixtures"]) -> None:
        self.settings, self._targets = settings, targets
        self.running = torch.ones_like(targets, dtype=torch.bool)
        self.best_scores = torch.full_like(targets, -math.inf)
        self.train_at_best, self._before = self.best_scores.clone(), self.best_scores.clone()
        self.best_iterations = torch.zeros_like(targets, dtype=torch.int64)
        self._last = self.best_iterations.clone()  # looks of each, while it trained
        self._rows: list[HistoryRow] = []
        self._began = time.perf_counter()

    def look(
        self,
        iteration: int,
        train: Float[Tensor, "*mixtures"],
        held_out: Float[Tensor, "*mixtures"] | None,
        revived: Int[Tensor, "*mixtures"],
    ) -> Bool[Tensor, "*mixtures"]:
        """Take note of mean log-likelihoods; give which mixtures are at their best so far.

        Without held-out rows that is every one that still trains. `revived` counts dead components
        that were put on new rows.
        """
        scores = train if held_out is None else held_out
        better = self.running & torch.isfinite(scores)
        if held_out is not None:
            better &= scores > self.best_scores
        self.best_scores = torch.where(better, scores, self.best_scores)
        self.train_at_best = torch.where(better, train, self.train_at_best)
        self.best_iterations[better] = iteration
        self._last[self.running] = len(self._rows)
        self._rows.append(
            {
                "epoch": iteration,
                "rate": self.settings.step_size_at(iteration),
                "train": train.cpu(),
                "validation": None if held_out is None else held_out.cpu(),
                "seconds": round(time.perf_counter() - self._began, 3),
                "skipped": 0,
                "revived": revived.clone().cpu(),
            }
        )
        done = train >= self._targets
        if self.settings.batch_size is None:
            done |= train - self._before < self.settings.tol
        if self.settings.patience is not None:
            longest = self.settings.patience * self.settings.iterations_per_look
            done |= iteration - self.best_iterations >= longest
        self.running &= ~done
        self._before = train
        return better

    def row(self, at: Any, look: int = -1) -> HistoryRow:
        """One look at one mixture; for an index of several, their scores are lists."""
        row = self._rows[look]
        return {k: v[at].tolist() if isinstance(v, Tensor) else v for k, v in row.items()}

    def outcome(self, at: Any) -> Outcome:
        """What training gave for one mixture, or for several in lists."""
        return Outcome(
            [self.row(at, look) for look in range(int(self._last[at].max()) + 1)],
            self.best_iterations[at].tolist(),
            self.best_scores[at].tolist(),
            self.train_at_best[at].tolist(),
        )
