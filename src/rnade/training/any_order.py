"""Minibatches for networks that predict columns from any of the others."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from rnade.batch import Batch
from rnade.nn.any_order import GIVEN
from rnade.training.sources import ShuffledRows

# Gives cells, and which of them are observed, their roles.
Roles = Callable[[Tensor, Tensor, Generator], Tensor]


class AnyOrderRows(ShuffledRows):
    r"""Minibatches of a table's cells, each row with roles drawn afresh.

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
    roles : callable
        `with_roles` or `with_places`.
    """

    def __init__(
        self,
        cells: Tensor,
        seen: Tensor,
        generator: Generator,
        *,
        weights: Tensor | None = None,
        roles: Roles | None = None,
    ) -> None:
        self._roles = roles or with_roles
        # Cells with what is observed as a further feature, on the way to their roles.
        super().__init__(torch.cat([cells, seen.to(cells)[..., None]], -1), generator)
        relative = None if weights is None else weights / weights.mean()
        self._drawn_from = Batch(self.x, relative)
        known = self._roles(cells[:N_KNOWN], seen[:N_KNOWN], generator.clone_state())
        self._known = Batch(known, None if weights is None else weights[:N_KNOWN])

    def _take(self, index: Tensor, n: int, size: int) -> Batch:
        batch = super()._take(index, n, size)
        cells, seen = batch.x[..., :-1], batch.x[..., -1] > 0
        return batch._replace(x=self._roles(cells, seen, self.generator))


# Rows on which training is scored.
N_KNOWN = 2000
# Cuts that leave few columns to predict have few terms, which count much and vary most. They are
# drawn more often, and count the less: D u^POWER columns are left for an even u. With 1 every cut
# is as likely; large tables gain by 1.5 and 2, small ones lose by 2 (results/mixed/cuts.jsonl).
POWER = 1.5


def with_roles(
    cells: Tensor, seen: Tensor, generator: Generator, *, power: float = POWER
) -> Tensor:
    """Cells with a random cut of each row in an order of its own, of shape (..., D, F + 2).

    What comes before the cut is given, what comes after it is to be predicted, each column alone.
    Where j columns are left, which has probability q_j, a term counts 1 / (j q_j) times, so that
    the sum of a row's weighted terms is, on average over orders and cuts, its log density along
    an order.

    Parameters
    ----------
    cells : Tensor of shape (..., D, F)
    seen : bool Tensor of shape (..., D)
    generator : torch.Generator
    power : float
        See `POWER`.
    """
    D = cells.shape[-2]
    drawn = _uniform(cells, generator, *cells.shape[:-2], 1)
    left = (drawn**power * D).ceil().clamp(1, D)
    share = (left / D) ** (1 / power) - ((left - 1) / D) ** (1 / power)
    given = _places(cells, generator) >= left
    role = torch.where(given, GIVEN, 1 / (left * share)) * seen
    return _told(cells, role, generator)


def with_places(cells: Tensor, seen: Tensor, generator: Generator) -> Tensor:
    """Cells with their places in a random order of each row, 1 to D, of shape (..., D, F + 2).

    For networks of one column each: that of a column is given what comes before it. Parameters
    are those of `with_roles`.
    """
    return _told(cells, (_places(cells, generator) + 1) * seen, generator)


def _places(cells: Tensor, generator: Generator) -> Tensor:
    return _uniform(cells, generator, *cells.shape[:-1]).argsort(-1).argsort(-1)


def _told(cells: Tensor, role: Tensor, generator: Generator) -> Tensor:
    """Cells with their roles, and with a number of each row."""
    seed = _uniform(cells, generator, *cells.shape[:-2], 1).expand_as(role)
    return torch.cat([cells, torch.stack([role.to(cells), seed.to(cells)], -1)], -1)


def _uniform(like: Tensor, generator: Generator, *shape: int) -> Tensor:
    drawn = torch.rand(shape, dtype=torch.float32, device=generator.device, generator=generator)
    return drawn.to(like.device)
