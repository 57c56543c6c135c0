"""Mean log-likelihoods of M models, each on its own rows."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rnade.batch import Batch
from rnade.chunks import rows_at_a_time
from rnade.nn.bank import AbstractTrainable
from rnade.nn.base import AbstractDensity
from rnade.training.sources import stack


def side_by_side(sets: Sequence[Batch]) -> Batch:
    """Sets of rows to be scored, x of shape (R, N, D).

    The weights of each set, of shape (R, N) in float64, sum to 1. A set that is shorter than the
    longest repeats its first row, with no weight.
    """
    longest = max(len(rows.x) for rows in sets)

    def padded(rows: Batch) -> Batch:
        missing = longest - len(rows.x)
        w = rows.weights
        w = rows.x.new_ones(len(rows.x), dtype=torch.float64) if w is None else w.double()
        longer = rows.map(lambda t: torch.cat([t, t[:1].expand(missing, *t.shape[1:])]))
        rows = longer if missing else rows
        return rows._replace(weights=torch.cat([w / w.sum(), w.new_zeros(missing)]))

    return stack([padded(rows) for rows in sets])


def of_each_model(batch: Batch, set_of: Int[Tensor, " M"], n_models: int) -> Batch:
    """Give each model its own of the R entries of a batch; one entry is shared, not copied."""
    if len(batch.x) == 1:
        return batch.map(lambda t: t.expand(n_models, *t.shape[1:]))
    return batch.map(lambda t: t[set_of])


@torch.no_grad()
def mean_log_likelihoods(
    module: AbstractDensity | AbstractTrainable, rows: Batch, set_of: Int[Tensor, " M"]
) -> Float[Tensor, " M"]:
    """Weighted mean log-likelihood of each model on the rows of its set, in float64.

    Parameters
    ----------
    module : AbstractDensity or AbstractTrainable
    rows : Batch
        From `side_by_side`, on any device: it passes through the module's in chunks.
    set_of : Tensor of shape (M,)
        For each model, its set of rows.

    A GPU that runs out of memory is given half as many rows at a time.
    """
    M, (_, N, D) = module.n_models, rows.x.shape[:3]
    size = rows_at_a_time(M * D)
    total = torch.zeros(M, dtype=torch.float64, device=module.device)
    start = 0
    while start < N:
        chunk = rows.rows(slice(start, start + size)).map(lambda t: t.to(module.device))
        x, weights, seen, _ = of_each_model(chunk, set_of, M)
        assert weights is not None
        try:
            scores = module.log_prob(x.to(module.dtype), seen=seen).double().view(M, -1)
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            size //= 2
            continue
        total += (scores * weights).sum(1)
        start += size
    return total
