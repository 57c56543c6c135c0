"""Minibatches for networks that predict columns from any of the others."""

import torch
from torch import Generator, Tensor

from rnade.batch import Batch
from rnade.nn.any_order import GIVEN
from rnade.training.sources import ShuffledRows


class AnyOrderRows(ShuffledRows):
    r"""Minibatches of a table's cells, each row cut somewhere in an order of its own.

    What comes before the cut is given, what comes after it is to be predicted, each column alone.
    Where j columns are left, which has probability q_j, a term counts 1 / (j q_j) times, so that
    the sum of a row's weighted terms is, on average over orders and cuts, its log density along
    an order.

    Parameters
    ----------
    cells : Tensor of shape (N, D, F)
        Features, as `rnade.nn.table.encoded` gives them
    seen : bool Tensor of shape (N, D)
        Which cells are observed; the others are neither given nor predicted.
    generator : torch.Generator
        Orders rows and columns.
    weights : Tensor of shape (N,), optional
        Row weights.
    """

    def __init__(
        self,
        cells: Tensor,
        seen: Tensor,
        generator: Generator,
        *,
        weights: Tensor | None = None,
    ) -> None:
        # Cells with what is observed as a further feature, on the way to their roles.
        super().__init__(torch.cat([cells, seen.to(cells)[..., None]], -1), generator)
        relative = None if weights is None else weights / weights.mean()
        self._drawn_from = Batch(self.x, relative)
        known = with_roles(cells[:N_KNOWN], seen[:N_KNOWN], generator.clone_state())
        self._known = Batch(known, None if weights is None else weights[:N_KNOWN])

    def _take(self, index: Tensor, n: int, size: int) -> Batch:
        batch = super()._take(index, n, size)
        cells, seen = batch.x[..., :-1], batch.x[..., -1] > 0
        return batch._replace(x=with_roles(cells, seen, self.generator))


# Rows on which training is scored.
N_KNOWN = 2000
# Cuts that leave few columns to predict have few terms, which count much and vary most. They are
# drawn more often, and count the less: D u^POWER columns are left for an even u. With 1 every cut
# is as likely; large tables gain by 1.5 and 2, small ones lose by 2 (results/mixed/cuts.jsonl).
POWER = 1.5


def with_roles(
    cells: Tensor, seen: Tensor, generator: Generator, *, power: float = POWER
) -> Tensor:
    """Cells with a random cut of each row, of shape (..., D, F + 2).

    Parameters
    ----------
    cells : Tensor of shape (..., D, F)
    seen : bool Tensor of shape (..., D)
    generator : torch.Generator
    power : float
        See `POWER`.
    """
    D = cells.shape[-2]

    def uniform(*shape: int) -> Tensor:
        drawn = torch.rand(
            shape, dtype=torch.float32, device=generator.device, generator=generator
        )
        return drawn.to(cells.device)

    left = (uniform(*cells.shape[:-2], 1) ** power * D).ceil().clamp(1, D)
    share = (left / D) ** (1 / power) - ((left - 1) / D) ** (1 / power)
    rank = uniform(*cells.shape[:-1]).argsort(-1).argsort(-1)
    role = torch.where(rank >= left, GIVEN, 1 / (left * share)) * seen
    seed = uniform(*cells.shape[:-2], 1).expand_as(role)
    return torch.cat([cells, torch.stack([role.to(cells), seed.to(cells)], -1)], -1)
