"""The EM loop for mixtures: all rows at once or minibatches, with early stopping.

A bank of M mixtures (restarts) shares every pass over the rows.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rnade.backends.threads import threads_for
from rnade.checks import number_between, positive_int
from rnade.nn.mixture import AbstractGaussianMixture
from rnade.training.em_steps import DEAD_ROWS, AbstractSteps, Sums, steps_for
from rnade.training.optim.plain import per_model
from rnade.training.run import HistoryRow
from rnade.training.sgd import Outcome
from rnade.training.sources import AbstractMinibatches, ShuffledRows

# Minibatch iterations between two looks at the held-out rows.
ITERATIONS_PER_LOOK = 10
# Rows of which the most unlikely takes in a dead component.
N_CANDIDATES = 2000


@dataclass(frozen=True)
class EMSettings:
    """How long, and in which steps.

    Attributes
    ----------
    max_iter : int
        Largest number of iterations.
    tol : float
        Stop once an iteration over all rows raises the mean log-likelihood by less.
    patience : int or None
        Looks at the held-out rows without a better score after which training stops. Each
        iteration over all rows ends in a look; of minibatch iterations each tenth does.
    batch_size : int or None
        Rows of a minibatch; None for all rows.
    step_size : float
        Share of the way towards a minibatch's own best parameters in the first iteration; it
        falls linearly, to 0 after the last.
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


PAPER_EM = EMSettings(max_iter=1000, batch_size=20_000, step_size=0.1, patience=None)
"""The paper's section 4.2."""


@torch.no_grad()
def fit_mixture(
    module: AbstractGaussianMixture,
    rows: Float[Tensor, "N D"] | AbstractMinibatches,
    settings: EMSettings,
    *,
    floor: Float[Tensor, " D"],
    generator: Generator,
    shrinkage: float = 0.0,
    validation: Float[Tensor, "Nv D"] | None = None,
    weights: Float[Tensor, " N"] | None = None,
    validation_weights: Float[Tensor, " Nv"] | None = None,
    target: float | None = None,
    on_epoch: Callable[[HistoryRow], None] | None = None,
) -> Outcome:
    """Fit a mixture, started already, in place, and keep the parameters that score best.

    Parameters
    ----------
    module : AbstractGaussianMixture
        One mixture, or a bank.
    rows : Tensor of shape (N, D), or AbstractMinibatches
        On any device: they pass through the module's in chunks. Or where minibatches come from,
        such as `FreshRows`.
    settings : EMSettings
    floor : Tensor of shape (D,)
        Smallest variance of a component along each column; 0 for none.
    generator : torch.Generator
        On the rows' device; draws minibatches and looks for rows for dead components.
    shrinkage : float
        Rows' worth of the average covariance within components that each covariance is made of
        besides its own rows; full covariances only. See `GaussianSteps`.
    validation : Tensor of shape (Nv, D), optional
        Held-out rows: the parameters that score best on them are kept; without, the last.
    weights, validation_weights : Tensor of shape (N,) and (Nv,), optional
        Row weights, all positive.
    target : float, optional
        Stop once the mean log-likelihood of the training rows is at least this.
    on_epoch : callable, optional
        Called with each row of the history.

    Returns
    -------
    Outcome
        Its history has a row for each look; `epoch` counts iterations. The training score of a
        minibatch iteration is that of its own rows, before they are used.
    """
    run = _Run(module, rows, settings, steps_for(module, floor, shrinkage), generator, weights)
    with threads_for(n_products(module, len(run.rows))):
        return _looped(run, validation, validation_weights, target, on_epoch)


def n_products(module: AbstractGaussianMixture, n_rows: int) -> int:
    """Multiplications in an iteration, about."""
    return n_rows * module.n_models * module.n_components * module.n_dimensions**2


def _looped(
    run: "_Run",
    validation: Tensor | None,
    validation_weights: Tensor | None,
    target: float | None,
    on_epoch: Callable[[HistoryRow], None] | None,
) -> Outcome:
    module, settings = run.module, run.settings
    began = time.perf_counter()
    history: list[HistoryRow] = []

    def look(iteration: int, sums: Sums) -> Tensor:
        run.steps.check()
        train_scores = sums.log_likelihood / sums.weight
        scores = train_scores
        if validation is not None:
            scores = _score(module, validation, validation_weights)
        run.keep_where_better(scores, train_scores, iteration, always=validation is None)
        row = {
            "epoch": iteration,
            "rate": run.step_size(iteration),
            "train": _plain(train_scores),
            "validation": None if validation is None else _plain(scores),
            "seconds": round(time.perf_counter() - began, 3),
            "skipped": 0,
            "revived": run.revived,
        }
        history.append(row)
        if on_epoch is not None:
            on_epoch(row)
        return train_scores

    before = torch.full_like(run.best_scores, -torch.inf)
    for iteration in range(settings.max_iter + 1):
        sums = run.expectation()
        last = iteration == settings.max_iter
        if last or settings.batch_size is None or iteration % ITERATIONS_PER_LOOK == 0:
            now = look(iteration, sums)
            slow = settings.batch_size is None and bool((now - before < settings.tol).all())
            reached = target is not None and bool((now >= target).all())
            if last or slow or reached or run.out_of_patience():
                break
            before = now
        run.maximisation(sums, iteration)
    run.load_best()
    return Outcome(
        history, _plain(run.best_iterations), _plain(run.best_scores), _plain(run.train_at_best)
    )


class _Run:
    """State of one run."""

    def __init__(
        self,
        module: AbstractGaussianMixture,
        rows: Tensor | AbstractMinibatches,
        settings: EMSettings,
        steps: AbstractSteps[Any, Any],
        generator: Generator,
        weights: Tensor | None,
    ) -> None:
        self.module, self.settings = module, settings
        self.steps, self.generator = steps, generator
        self.batches: AbstractMinibatches | None = None
        self.batch_size = settings.batch_size or 0
        if isinstance(rows, AbstractMinibatches):
            if settings.batch_size is None:
                raise ValueError("Minibatches were given: expected a batch_size, got None.")
            self.batches = rows
            self.rows, weights, *_ = rows.known()
        else:
            self.rows = rows
            if settings.batch_size is not None:
                self.batches = ShuffledRows(rows, generator, weights=weights)
                self.batch_size = min(settings.batch_size, len(rows))
        ones = torch.ones(len(self.rows), dtype=self.rows.dtype, device=self.rows.device)
        self.weights = ones if weights is None else weights / weights.mean()
        self.parameters = list(module.parameters())
        self.best = [p.detach().clone() for p in self.parameters]
        M = module.n_models
        self.best_scores = torch.full((M,), -torch.inf, dtype=torch.float64, device=module.device)
        self.train_at_best = self.best_scores.clone()
        self.best_iterations = torch.zeros(M, dtype=torch.int64, device=module.device)
        self.looks_since_best = torch.zeros_like(self.best_iterations)
        self.revived = 0

    def step_size(self, iteration: int) -> float:
        if self.settings.batch_size is None:
            return 1.0
        return self.settings.step_size * (1 - iteration / self.settings.max_iter)

    def expectation(self) -> Any:
        """Sums over all rows, or over the next minibatch."""
        if self.batches is None:
            return self.steps.gather(self.rows, self.weights)
        x, w, *_ = self.batches.draw(1, self.batch_size)
        return self.steps.gather(x[0], x.new_ones(x.shape[1]) if w is None else w[0])

    def maximisation(self, sums: Any, iteration: int) -> None:
        """Move the parameters; over all rows, also bring a dead component back to life."""
        self.steps.move(sums, self.step_size(iteration))
        if self.batches is None:
            self._revive(sums)

    def _revive(self, sums: Any) -> None:
        """Put one dead component of each model on the most unlikely of some random rows."""
        dead = (sums.n <= DEAD_ROWS).cpu()
        if not bool(dead.any()):
            return
        picked = self._permutation()[:N_CANDIDATES]
        x = self.rows[picked].to(self.module.device, self.module.dtype)
        scores = self.module.log_prob(x).view(self.module.n_models, -1)
        for model in dead.any(1).nonzero()[:, 0].tolist():
            component = int(dead[model].nonzero()[0])
            row = x[scores[model].argmin()].double()
            self.steps.revive(model, component, row, alpha=1 / len(self.rows))
            self.revived += 1

    def keep_where_better(
        self,
        scores: Float[Tensor, " M"],
        train_scores: Float[Tensor, " M"],
        iteration: int,
        *,
        always: bool,
    ) -> None:
        """Copy the parameters of the models whose score is the best so far."""
        better = torch.isfinite(scores) & ((scores > self.best_scores) | always)
        self.best_scores = torch.where(better, scores, self.best_scores)
        self.train_at_best = torch.where(better, train_scores, self.train_at_best)
        self.best_iterations[better] = iteration
        self.looks_since_best = torch.where(better, 0, self.looks_since_best + 1)
        for kept, p in zip(self.best, self.parameters, strict=True):
            kept.copy_(torch.where(per_model(better, p), p, kept))

    def out_of_patience(self) -> bool:
        """Whether no model has got better for long."""
        patience = self.settings.patience
        return patience is not None and bool((self.looks_since_best >= patience).all())

    def load_best(self) -> None:
        """Give the module its best parameters."""
        for p, kept in zip(self.parameters, self.best, strict=True):
            p.copy_(kept)

    def _permutation(self) -> Tensor:
        return torch.randperm(len(self.rows), device=self.rows.device, generator=self.generator)


def _score(module: AbstractGaussianMixture, rows: Tensor, weights: Tensor | None) -> Tensor:
    """Weighted mean log-likelihood of each model."""
    x = rows.to(module.device, module.dtype)
    scores = module.log_prob(x).double().view(module.n_models, -1)
    if weights is None:
        return scores.mean(1)
    w = weights.to(scores)
    return (scores * w).sum(1) / w.sum()


def _plain(values: Tensor) -> Any:
    """One number for one model, a list for a bank."""
    return values.item() if len(values) == 1 else values.tolist()
