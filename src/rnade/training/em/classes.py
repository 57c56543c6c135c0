"""EM for latent classes: fractions, and each class's shares of the cells of every column."""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from rnade.batch import Batch
from rnade.chunks import rows_at_a_time
from rnade.columns.partition import ColumnCells
from rnade.nn.latent_classes import (
    LatentClassesModule,
    cell_slices,
    log_joint,
    places,
    within,
)
from rnade.training.em.progress import EMSettings, Progress
from rnade.training.em.starts import N_CLUSTERED
from rnade.training.em.steps import row_counts
from rnade.training.member import HistoryRow, Outcome

# How far a class starts from the margins, towards the cells of its row.
START = 0.5


@torch.no_grad()
def fit_classes(
    module: LatentClassesModule,
    rows: Batch,
    settings: EMSettings,
    *,
    prior: float,
    generator: Generator,
    n_models: int = 1,
    held_out: Batch | None = None,
    target: float | None = None,
    on_epoch: Callable[[HistoryRow], None] | None = None,
) -> Outcome:
    """Fit latent classes in place from several starts; the one that scores best is kept.

    Missing cells are left out of every sum. Each share is the largest a posteriori under a
    Dirichlet prior, so that an iteration never lowers the log-likelihood plus the log prior.

    Parameters
    ----------
    module : LatentClassesModule
    rows : Batch
        x of shape (N, D, 5), from the module's `cells`, on its device.
    settings : EMSettings
        Without minibatches.
    prior : float
        Above 0: how many rows' worth of the column's margin each class has besides its own rows.
    generator : torch.Generator
        On the rows' device; draws the rows at which classes start.
    n_models : int
        M, the number of starts.
    held_out : Batch, optional
        Rows on which the best parameters are chosen; without, the last are kept.
    target : float, optional
        Stop once the mean log-likelihood of the training rows is at least this.
    on_epoch : callable, optional
        Called with each row of the history, of the first start.
    """
    columns, device = module.columns, rows.x.device
    margins = torch.cat([torch.as_tensor(c.shares) for c in columns]).to(device)
    training = _Rows(columns, rows)
    left = None if held_out is None else _Rows(columns, held_out)
    M, K = n_models, len(module.log_alpha)
    picked = _spread_rows(training, len(margins), (M, K), generator)
    now = _start(picked.flatten(0, 1), columns, margins, (M, K))
    kept = now
    aim = torch.full((M,), math.inf if target is None else target, device=device).double()
    progress = Progress(settings, aim)
    for iteration in range(settings.max_iter + 1):
        train, n, counts = training.gather(*now)
        scores = None if left is None else left.gather(*now)[0]
        better = progress.look(iteration, train, scores, torch.zeros(M, dtype=torch.int64))
        at_best = better[:, None]
        kept = torch.where(at_best, now[0], kept[0]), torch.where(at_best, now[1], kept[1])
        if on_epoch is not None:
            on_epoch(progress.row(0))
        if not bool(progress.running.any()):
            break
        now = _maximised(n, counts, columns, margins, prior)
    best = int(progress.best_scores.argmax())
    module.log_alpha.copy_(kept[0][best])
    module.log_shares.copy_(kept[1][:, best])
    return progress.outcome(best)


class _Rows:
    """Rows as places of their cells, with the numbers of rows that they stand for."""

    def __init__(self, columns: Sequence[ColumnCells], rows: Batch) -> None:
        self.at: Int[Tensor, "N D"] = places(columns, rows.x)
        self.counts: Float[Tensor, " N"] = row_counts(rows)
        self.rest = (within(columns, rows.x).double().sum(-1) * self.counts).sum()

    def gather(
        self, log_alpha: Float[Tensor, "M K"], log_shares: Float[Tensor, "C M K"]
    ) -> tuple[Float[Tensor, " M"], Float[Tensor, "M K"], Float[Tensor, "C M K"]]:
        """Mean log-likelihood, and the classes' expected numbers of rows, in all and in cells."""
        C, M, K = log_shares.shape
        n, total = torch.zeros_like(log_alpha), self.rest.repeat(M)
        counts = log_alpha.new_zeros(C + 1, M * K)
        size = rows_at_a_time(4 * M * K)
        for at, w in zip(torch.split(self.at, size), torch.split(self.counts, size), strict=True):
            joint = log_joint(at, log_alpha, log_shares)
            log_p = joint.logsumexp(-1, keepdim=True)
            r = (joint - log_p).exp() * w[:, None, None]
            n, total = n + r.sum(0), total + (log_p[..., 0] * w[:, None]).sum(0)
            for own in at.T:
                counts.index_add_(0, own, r.flatten(1))
        return total / self.counts.sum(), n, counts[:C].view(C, M, K)


def _spread_rows(
    rows: _Rows, n_cells: int, shape: tuple[int, int], generator: Generator
) -> Int[Tensor, "M K D"]:
    """Cells of rows drawn one by one, each with odds by how little those before are like it.

    The odds are the square of the share of known cells in which the nearest row differs, as
    k-means++ has the squared distance: two classes that start on equal rows would stay equal.
    """
    N, (M, K) = len(rows.at), shape
    some = torch.randperm(N, device=rows.at.device, generator=generator)[:N_CLUSTERED]
    at, counts = rows.at[some], rows.counts[some].expand(M, -1)
    odds, nearest, picked = counts, torch.full_like(counts, math.inf), []
    for _ in range(K):
        picked.append(at[torch.multinomial(odds, 1, generator=generator)[:, 0]])
        other = picked[-1][:, None]  # (M, 1, D)
        known = (at < n_cells) & (other < n_cells)
        apart = ((at != other) & known).sum(-1) / known.sum(-1).clamp_min(1)
        nearest = torch.minimum(nearest, apart)
        odds = counts * nearest.square()
        # Where every row is like one before, any will do.
        odds = torch.where(odds.sum(1, keepdim=True) > 0, odds, counts)
    return torch.stack(picked, 1)


def _start(
    at: Int[Tensor, "MK D"],
    columns: Sequence[ColumnCells],
    margins: Float[Tensor, " C"],
    shape: tuple[int, int],
) -> tuple[Tensor, Tensor]:
    """Classes of equal fractions, each on the way from the margins to the cells of a row."""
    K = shape[1]
    shares = margins[:, None].repeat(1, len(at))
    classes = torch.arange(len(at), device=at.device)
    for own, cells in zip(at.T, cell_slices(columns), strict=True):
        known = own < len(margins)
        shares[cells][:, known] *= 1 - START
        shares[own[known], classes[known]] += START
    return margins.new_full(shape, -math.log(K)), shares.view(-1, *shape).log()


def _maximised(
    n: Float[Tensor, "M K"],
    counts: Float[Tensor, "C M K"],
    columns: Sequence[ColumnCells],
    margins: Float[Tensor, " C"],
    prior: float,
) -> tuple[Tensor, Tensor]:
    """Logarithms of fractions and shares, each with its prior; a class without rows keeps one."""
    alpha = (n + prior / n.shape[1]) / (n.sum(1, keepdim=True) + prior)
    shares = counts + prior * margins[:, None, None]
    for cells in cell_slices(columns):
        shares[cells] /= shares[cells].sum(0)
    return alpha.log(), shares.log()
