"""The EM loop for mixtures: all rows at once or minibatches, with early stopping.

A bank of M mixtures (restarts) shares every pass over the rows.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from rnade.backends.threads import threads_for
from rnade.batch import Batch
from rnade.nn.mixture import AbstractGaussianMixture, patterns
from rnade.training.em.progress import EMSettings, Progress
from rnade.training.em.steps import (
    DEAD_ROWS,
    AbstractSteps,
    Patterns,
    Sums,
    row_counts,
    steps_for,
)
from rnade.training.member import HistoryRow, Outcome
from rnade.training.optim.plain import per_model
from rnade.training.scoring import mean_log_likelihoods, side_by_side
from rnade.training.sources import AbstractMinibatches, ShuffledRows

# Rows of which the most unlikely takes in a dead component.
N_CANDIDATES = 2000


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
    seen: Bool[Tensor, "N D"] | None = None,
    validation_seen: Bool[Tensor, "Nv D"] | None = None,
    target: float | None = None,
    on_epoch: Callable[[HistoryRow], None] | None = None,
) -> Outcome:
    """Fit a mixture, started already, in place, and keep the parameters that score best.

    Parameters
    ----------
    module : AbstractGaussianMixture
        One mixture, or a bank, each mixture of which stops and is kept as it would be alone.
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
        Row weights, all positive: a row of weight 2 is two rows.
    seen, validation_seen : bool Tensor of shape (N, D) and (Nv, D), optional
        Which cells are observed; None for all. Those of `AbstractMinibatches` come with them.
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
    known, source = _known_and_source(rows, weights, seen, settings, generator)
    counts, groups = row_counts(known), _patterns(known)
    held_out = None
    if validation is not None:
        held_out = side_by_side([Batch(validation, validation_weights, validation_seen)])
    steps = steps_for(module, floor, shrinkage)
    M, device, parameters = module.n_models, module.device, list(module.parameters())
    best = [p.detach().clone() for p in parameters]
    aim = math.inf if target is None else target
    progress = Progress(settings, torch.full((M,), aim, dtype=torch.float64, device=device))
    revived = torch.zeros_like(progress.best_iterations)
    same_rows = torch.zeros_like(revived)
    at = 0 if M == 1 else slice(None)
    with threads_for(n_products(module, len(known.x))):
        for iteration in range(settings.max_iter + 1):
            rows_now = (known.x, counts, groups) if source is None else source()
            sums = steps.gather(*rows_now)
            last = iteration == settings.max_iter
            if last or iteration % settings.iterations_per_look == 0:
                steps.check()
                scores = None
                if held_out is not None:
                    scores = mean_log_likelihoods(module, held_out, same_rows)
                train = sums["log_likelihood"] / sums["weight"]
                better = progress.look(iteration, train, scores, revived)
                for kept, p in zip(best, parameters, strict=True):
                    kept.copy_(torch.where(per_model(better, p), p, kept))
                if on_epoch is not None:
                    on_epoch(progress.row(at))
                if last or not bool(progress.running.any()):
                    break
            steps.move(sums, settings.step_size_at(iteration))
            if source is None:
                revived += _revived(steps, sums, known, float(counts.sum()), generator)
    for p, kept in zip(parameters, best, strict=True):
        p.copy_(kept)
    return progress.outcome(at)


def _known_and_source(
    rows: Tensor | AbstractMinibatches,
    weights: Tensor | None,
    seen: Tensor | None,
    settings: EMSettings,
    generator: Generator,
) -> tuple[Batch, Callable[[], tuple[Tensor, Tensor, Patterns | None]] | None]:
    """All rows that are known, and what draws the next minibatch, if any does."""
    size = settings.batch_size
    if isinstance(rows, Tensor):
        known = Batch(rows, weights, seen)
        if size is None:
            return known, None
        size = min(size, len(rows))
        rows = ShuffledRows(rows, generator, weights=weights, seen=seen)
    elif size is None:
        raise ValueError("Minibatches were given: expected a batch_size, got None.")
    else:
        known = rows.known()
    source, n = rows, size

    def draw() -> tuple[Tensor, Tensor, Patterns | None]:
        batch = source.draw(1, n).map(lambda t: t[0])
        x, w, *_ = batch
        return x, torch.ones_like(x[:, 0]) if w is None else w, _patterns(batch)

    return known, draw


def _patterns(rows: Batch) -> Patterns | None:
    return None if rows.seen is None else list(patterns(rows.seen))


def n_products(module: AbstractGaussianMixture, n_rows: int) -> int:
    """Multiplications in an iteration, about."""
    return n_rows * module.n_models * module.n_components * module.n_dimensions**2


def _revived(
    steps: AbstractSteps[Any], sums: Sums, rows: Batch, n_rows: float, generator: Generator
) -> Tensor:
    """Put one dead component of each model that has any on the most unlikely of some random rows.

    Gives which models had one.
    """
    dead = sums["n"] <= DEAD_ROWS
    if bool(dead.any()):
        picked = torch.randperm(len(rows.x), device=rows.x.device, generator=generator)
        module = steps.module
        some = rows.map(lambda t: t[picked[:N_CANDIDATES]].to(module.device))
        x = some.filled().to(module.dtype)
        scores = module.log_prob(x, seen=some.seen).view(module.n_models, -1)
        for model in dead.any(1).nonzero()[:, 0].tolist():
            component = int(dead[model].nonzero()[0])
            row = x[scores[model].argmin()].double()
            steps.revive(model, component, row, alpha=1 / n_rows)
    return dead.any(1)
