"""Mean log-likelihoods of M models, each on its own rows."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rnade.chunks import rows_at_a_time
from rnade.nn.bank import AbstractTrainable


class ScoredRows(NamedTuple):
    """Rows on which models are scored: one set for each source of minibatches.

    Attributes
    ----------
    x : Tensor of shape (R, N, D)
    weights : Tensor of shape (R, N)
        Of each set they sum to 1; 0 where a set is shorter than the longest.
    """

    x: Float[Tensor, "R N D"]
    weights: Float[Tensor, "R N"]

    @staticmethod
    def stack(sets: Sequence[Tensor], weights: Sequence[Tensor | None]) -> "ScoredRows":
        """Put sets of rows side by side; a shorter one repeats its first row, with no weight."""
        longest = max(len(x) for x in sets)
        xs, ws = [], []
        for x, given in zip(sets, weights, strict=True):
            w = x.new_ones(len(x), dtype=torch.float64) if given is None else given.double()
            missing = longest - len(x)
            xs.append(torch.cat([x, x[:1].expand(missing, -1)]) if missing else x)
            ws.append(torch.cat([w / w.sum(), w.new_zeros(missing)]))
        if len(xs) == 1:
            return ScoredRows(xs[0][None], ws[0][None])
        return ScoredRows(torch.stack(xs), torch.stack(ws))


def of_each_model(
    tensor: Tensor, set_of: Int[Tensor, " M"], n_models: int
) -> Float[Tensor, "M *rest"]:
    """Give each model its own of the R entries of `tensor`; one entry is shared, not copied."""
    if len(tensor) == 1:
        return tensor.expand(n_models, *tensor.shape[1:])
    return tensor[set_of]


@torch.no_grad()
def mean_log_likelihoods(
    module: AbstractTrainable, rows: ScoredRows, set_of: Int[Tensor, " M"]
) -> Float[Tensor, " M"]:
    """Weighted mean log-likelihood of each model on the rows of its set, in float64.

    A GPU that runs out of memory is given half as many rows at a time.
    """
    M, (_, N, D) = module.n_models, rows.x.shape
    size = rows_at_a_time(M * D)
    total = torch.zeros(M, dtype=torch.float64, device=rows.x.device)
    start = 0
    while start < N:
        x = of_each_model(rows.x[:, start : start + size], set_of, M)
        w = of_each_model(rows.weights[:, start : start + size], set_of, M)
        try:
            scores = module.log_prob(x).double().view(M, -1)
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            size //= 2
            continue
        total += (scores * w).sum(1)
        start += size
    return total
