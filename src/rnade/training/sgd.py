"""The gradient loop, for one model or a bank of M.

Every number kept here (scores, counts, best weights) has the leading axis M, so that a bank is
the same loop. Nothing is read back from the device inside an epoch.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rnade.backends.threads import one_torch_thread
from rnade.exceptions import TrainingDivergedError
from rnade.nn import AbstractAutoregressive
from rnade.training.optimisers import AbstractOptimiser, Adam, Sgd, gradient_norms, per_model
from rnade.training.recipe import Recipe

HistoryRow = dict[str, Any]

# Training rows on which the training log-likelihood is measured at the end of each epoch.
N_MONITORED = 2000
# Updates skipped in a row after which training goes back to its best weights.
MAX_SKIPPED_IN_A_ROW = 10
# Times it goes back, each time to a quarter of the rate, before it gives up.
MAX_RETURNS = 3


@dataclass(frozen=True)
class Outcome:
    """What training gives besides the module's weights; for a bank, lists of M numbers.

    Attributes
    ----------
    history : list of dict
        One row an epoch: epoch, rate, train, validation, seconds, skipped. Epoch 0 is the start.
    best_epoch : int
        Epoch of the weights that were kept.
    best_score : float
        Their validation log-likelihood (training, where there are no validation rows).
    train_at_best : float
        Training log-likelihood at that epoch.
    """

    history: list[HistoryRow]
    best_epoch: Any
    best_score: Any
    train_at_best: Any


def train(
    module: AbstractAutoregressive,
    rows: Float[Tensor, "N D"],
    recipe: Recipe,
    *,
    generator: Generator,
    validation: Float[Tensor, "Nv D"] | None = None,
    weights: Float[Tensor, " N"] | None = None,
    validation_weights: Float[Tensor, " Nv"] | None = None,
    noise_width: Float[Tensor, " D"] | None = None,
    target: float | None = None,
    on_epoch: Callable[[HistoryRow], None] | None = None,
) -> Outcome:
    """Fit `module` to `rows` in place and keep the weights that score best.

    Parameters
    ----------
    module : AbstractAutoregressive
        One model, or a bank whose members all see the same minibatches.
    rows : Tensor of shape (N, D)
        Training rows, with the module's dtype and device.
    recipe : Recipe
    generator : torch.Generator
        On the module's device; orders the rows into minibatches.
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

    Raises
    ------
    TrainingDivergedError
        If gradients stay non-finite at smaller and smaller rates. The module is then left with
        its best weights so far.
    """
    run = _Run(module, rows, recipe, generator, weights, noise_width)
    history: list[HistoryRow] = []
    began = time.perf_counter()

    def record(epoch: int, rate: float) -> HistoryRow:
        with run.evaluated_weights():
            train_score = run.score(run.monitored, run.monitored_weights)
            score = train_score
            if validation is not None:
                score = run.score(validation, validation_weights)
        # Without validation rows every epoch counts as better than the one before.
        run.keep_where_better(score, train_score, epoch, always=validation is None)
        row = {
            "epoch": epoch,
            "rate": rate,
            "train": _plain(train_score),
            "validation": None if validation is None else _plain(score),
            "seconds": round(time.perf_counter() - began, 3),
            "skipped": int(run.skipped.sum()),
        }
        history.append(row)
        if on_epoch is not None:
            on_epoch(row)
        return row

    with one_torch_thread():
        record(0, 0.0)
        try:
            for epoch in range(1, recipe.epochs + 1):
                rate = run.one_epoch(epoch)
                row = record(epoch, rate)
                if target is not None and row["train"] >= target:
                    break
                if run.all_out_of_patience(epoch):
                    break
                run.go_back_if_stuck(epoch, rate)
        finally:
            run.load_best()
    return Outcome(
        history, _plain(run.best_epochs), _plain(run.best_scores), _plain(run.train_at_best)
    )


class _Run:
    """State of one training run."""

    def __init__(
        self,
        module: AbstractAutoregressive,
        rows: Tensor,
        recipe: Recipe,
        generator: Generator,
        weights: Tensor | None,
        noise_width: Tensor | None,
    ) -> None:
        self.module, self.rows, self.recipe, self.generator = module, rows, recipe, generator
        self.noise_width = noise_width
        M, N = module.n_models, rows.shape[0]
        ones = torch.ones(N, dtype=rows.dtype, device=rows.device)
        self.weights = ones if weights is None else weights / weights.mean()
        self.ones = torch.ones(M, dtype=rows.dtype, device=rows.device)
        self.batch_size = min(recipe.batch_size, N)
        self.updates_per_epoch = recipe.updates_per_epoch(N)
        self.batches = self._shuffled_batches()
        named = dict(module.named_parameters())
        self.parameters = list(named.values())
        decays = [recipe.weight_decay if n in module.decayed() else 0.0 for n in named]
        self.optimiser = _make_optimiser(recipe, self.parameters, decays)
        self.average = [p.detach().clone() for p in self.parameters] if recipe.averaging else []
        self.best = [p.detach().clone() for p in self.parameters]
        self.best_scores = torch.full((M,), -torch.inf, dtype=torch.float64, device=rows.device)
        self.train_at_best = self.best_scores.clone()
        self.best_epochs = torch.zeros(M, dtype=torch.int64, device=rows.device)
        self.active = torch.ones(M, dtype=torch.bool, device=rows.device)
        self.update = 0
        self.rate_factor = 1.0
        self.returns = 0
        self.skipped = torch.zeros(M, dtype=torch.int64, device=rows.device)
        self.in_a_row = torch.zeros_like(self.skipped)
        picked = self._permutation()[:N_MONITORED].sort().values
        self.monitored, self.monitored_weights = rows[picked], self.weights[picked]

    def one_epoch(self, epoch: int) -> float:
        """Make an epoch's updates and return the last rate."""
        self.optimiser.start_epoch(epoch)
        rate = 0.0
        n_updates = self.updates_per_epoch * self.recipe.epochs
        for _ in range(self.updates_per_epoch):
            rate = self.rate_factor * self.recipe.rate_at(self.update, n_updates)
            self._one_update(rate)
            self.update += 1
        return rate

    def _one_update(self, rate: float) -> None:
        index = next(self.batches)
        x = self.rows[index]
        if self.noise_width is not None:
            noise = torch.rand(x.shape, dtype=x.dtype, device=x.device, generator=self.generator)
            x = x + (noise - 0.5) * self.noise_width
        M, B = self.module.n_models, len(index)
        # With the sign in the weights the fused backends hand over their gradients as they are.
        w = (-self.weights[index] / B).expand(M, B)
        loss = self.module.weighted_log_likelihood(
            x.expand(M, *x.shape), w, scale_mean_gradient=self.recipe.scale_mean_gradient
        )
        gradients = torch.autograd.grad(loss, self.parameters, self.ones)
        self._apply(gradients, loss.detach(), rate)

    @torch.no_grad()
    def _apply(self, gradients: Sequence[Tensor], loss: Tensor, rate: float) -> None:
        """Move the weights of the models whose loss and gradient are finite."""
        norms = gradient_norms(gradients)
        finite = torch.isfinite(norms) & torch.isfinite(loss)
        usable = finite & self.active
        scale = torch.ones_like(norms)
        if self.recipe.clip_norm is not None:
            scale = (self.recipe.clip_norm / norms).clamp_max(1.0)
        self.optimiser.step(gradients, torch.full_like(norms, rate), scale, usable)
        failed = ~finite & self.active
        self.skipped += failed
        self.in_a_row = torch.where(failed, self.in_a_row + 1, torch.zeros_like(self.in_a_row))
        if self.average:
            # A short memory at first, so that the start is soon forgotten.
            decay = min(self.recipe.averaging, (1 + self.update) / (10 + self.update))
            for mean, p in zip(self.average, self.parameters, strict=True):
                mean.lerp_(p, 1 - decay)

    @contextmanager
    def evaluated_weights(self) -> Iterator[None]:
        """Within it, the module has the weights that are scored and kept."""
        if not self.average:
            yield
            return
        trained = [p.data for p in self.parameters]
        _point(self.parameters, self.average)
        try:
            yield
        finally:
            _point(self.parameters, trained)

    @torch.no_grad()
    def score(self, x: Tensor, weights: Tensor | None) -> Float[Tensor, " M"]:
        """Weighted mean log-likelihood of each model."""
        scores = self.module.log_prob(x).double().view(self.module.n_models, -1)
        if weights is None:
            return scores.mean(1)
        return (scores * weights.double()).sum(1) / weights.double().sum()

    @torch.no_grad()
    def keep_where_better(
        self,
        scores: Float[Tensor, " M"],
        train_scores: Float[Tensor, " M"],
        epoch: int,
        *,
        always: bool = False,
    ) -> None:
        """Copy the evaluated weights of the models whose score is the best so far."""
        better = self.active & torch.isfinite(scores) & ((scores > self.best_scores) | always)
        self.best_scores = torch.where(better, scores, self.best_scores)
        self.train_at_best = torch.where(better, train_scores, self.train_at_best)
        self.best_epochs[better] = epoch
        source = self.average or self.parameters
        for kept, p in zip(self.best, source, strict=True):
            kept.copy_(torch.where(per_model(better, p), p, kept))

    @torch.no_grad()
    def load_best(self) -> None:
        """Give the module its best weights."""
        for p, kept in zip(self.parameters, self.best, strict=True):
            p.copy_(kept)

    def all_out_of_patience(self, epoch: int) -> bool:
        """Freeze the models that have not got better for long; say whether all are frozen."""
        if self.recipe.patience is not None:
            self.active &= epoch - self.best_epochs < self.recipe.patience
        return not bool(self.active.any())

    def go_back_if_stuck(self, epoch: int, rate: float) -> None:
        """Return to the best weights at a quarter of the rate if updates keep being skipped."""
        limit = min(MAX_SKIPPED_IN_A_ROW, self.updates_per_epoch)
        if int(self.in_a_row.max()) < limit:
            return
        if self.returns == MAX_RETURNS:
            raise TrainingDivergedError(
                f"Training diverged in epoch {epoch} at learning rate {rate:.3g}: the gradient was"
                f" not finite in {int(self.in_a_row.max())} updates in a row, even after going"
                f" back to the best weights {MAX_RETURNS} times at lower rates. The likely cause"
                " is a learning rate that is too large, or data with extreme values: lower"
                " learning_rate, or look for outliers in the columns."
            )
        self.returns += 1
        self.rate_factor /= 4
        self.in_a_row.zero_()
        self.load_best()
        self.optimiser.reset()
        if self.average:
            self.average = [p.detach().clone() for p in self.parameters]

    def _permutation(self) -> Tensor:
        return torch.randperm(
            self.rows.shape[0], device=self.rows.device, generator=self.generator
        )

    def _shuffled_batches(self) -> Iterator[Tensor]:
        """Endless minibatches: all rows in random order, again and again."""
        index = self._permutation()
        while True:
            while len(index) < self.batch_size:
                index = torch.cat([index, self._permutation()])
            yield index[: self.batch_size]
            index = index[self.batch_size :]


def _make_optimiser(
    recipe: Recipe, parameters: Sequence[Tensor], decays: Sequence[float]
) -> AbstractOptimiser:
    if recipe.optimiser == "adam":
        return Adam(parameters, decays)
    return Sgd(parameters, decays, momentum=recipe.momentum)


def _point(parameters: Sequence[Tensor], data: Sequence[Tensor]) -> None:
    for p, values in zip(parameters, data, strict=True):
        p.data = values


def _plain(values: Tensor) -> Any:
    """One number for one model, a list for a bank."""
    return values.item() if len(values) == 1 else values.tolist()
