"""A mixture of classes in each of which the columns of a table are independent."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from rnade.checks import positive_int
from rnade.columns.partition import CODE, WITHIN, ColumnCells
from rnade.nn.column_density import ColumnDensity
from rnade.nn.table import AbstractTableDensity
from rnade.typing import Array

# Rows whose distributions of a column are looked at together.
ROWS_AT_A_TIME = 8192


class LatentClassesModule(AbstractTableDensity):
    r"""Mixture of K classes, :math:`\sum_k \alpha_k \prod_d p_{kd}(x_d)`, over observed cells.

    A class has a share of every cell of a column; inside a cell values are spread as in the table
    (`ColumnCells`). A missing cell has no factor, which is the exact marginal, and the density of
    any column given any others is a mixture of the classes' own.

    Parameters
    ----------
    columns : sequence of ColumnCells
    n_components : int
        K.
    indicators : mapping of int to int, optional
        For columns whose missing cells are modelled, the column of two levels that tells them.

    Attributes
    ----------
    log_alpha : Tensor of shape (K,)
        Logarithms of the classes' fractions.
    log_shares : Tensor of shape (C, K)
        Logarithms of each class's shares of the C cells of all columns, side by side.
    """

    def __init__(
        self,
        columns: Sequence[ColumnCells],
        n_components: int,
        indicators: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__(columns, indicators)
        K = positive_int(n_components, "n_components")
        self.slices = cell_slices(self.columns)
        self.log_alpha = nn.Parameter(torch.full((K,), 1 / K).log())
        margins = torch.cat([torch.as_tensor(column.shares) for column in self.columns])
        self.log_shares = nn.Parameter(margins.float().log()[:, None].repeat(1, K))

    def log_prob(self, x: Tensor) -> Tensor:
        joint = log_joint(places(self.columns, x), self.log_alpha, self.log_shares)
        return joint.logsumexp(-1) + within(self.columns, x).sum(-1)

    def log_conditionals(self, x: Tensor) -> Tensor:
        """Terms log p(x_d | observed columns before it), (B, D); 0 where a cell is missing."""
        at, table = places(self.columns, x), with_none(self.log_shares)
        joint = self.log_alpha.expand(len(x), -1)
        sums = [joint.logsumexp(-1)]
        for own in at.T:
            joint = joint + table[own]
            sums.append(joint.logsumexp(-1))
        return torch.stack(sums, 1).diff(dim=1) + within(self.columns, x)

    def column(self, d: int, x: Tensor, given: Bool[Tensor, "B D"]) -> ColumnDensity:
        known = given.clone()
        known[:, d] = False
        at = torch.where(known, places(self.columns, x), len(self.log_shares))
        return self._density(d, log_joint(at, self.log_alpha, self.log_shares))

    def _density(self, d: int, joint: Float[Tensor, "B K"]) -> ColumnDensity:
        """Density of a column from the classes' log joint densities with what is known."""
        shares = joint.softmax(-1) @ self.log_shares[self.slices[d]].T.exp()
        return ColumnDensity(self.columns[d], shares.log()[None].double().cpu(), 0)

    @torch.no_grad()
    def sample(self, n: int, generator: Generator) -> Array:
        alpha, log_shares = self.log_alpha.exp().cpu(), self.log_shares.cpu().double()
        k = torch.multinomial(alpha, n, replacement=True, generator=generator)
        X = np.empty((n, self.n_dimensions))
        for d, column in enumerate(self.columns):
            own = log_shares[self.slices[d]].T[k]
            X[:, d] = ColumnDensity(column, own[None], 0).sample(generator)
        for d, indicator in self.indicators.items():
            X[X[:, indicator] == 1, d] = np.nan
        return X

    @torch.no_grad()
    def _pit(self, X: Array, generator: Generator) -> Array:
        found, at = np.empty(X.shape), places(self.columns, self.cells(X))
        for d in range(self.n_dimensions):
            joint = log_joint(at[:, :d], self.log_alpha, self.log_shares)
            found[:, d] = self._density(d, joint).transform(X[:, d], generator)
        return found

    def _rows_at_a_time(self) -> int:
        return ROWS_AT_A_TIME


def cell_slices(columns: Sequence[ColumnCells]) -> list[slice]:
    """Where the cells of each column are among those of all, side by side."""
    ends = np.cumsum([column.n_cells for column in columns]).tolist()
    return [slice(e - c.n_cells, e) for e, c in zip(ends, columns, strict=True)]


def places(columns: Sequence[ColumnCells], x: Float[Tensor, "B D F"]) -> Int[Tensor, "B D"]:
    """Places of values among the cells of all columns; C where they are in none.

    Parameters
    ----------
    columns : sequence of ColumnCells
    x : Tensor of shape (B, D, 5)
        From `AbstractTableDensity.cells`.
    """
    slices = cell_slices(columns)
    starts = torch.tensor([s.start for s in slices], device=x.device)
    inside = (x[..., -1] > 0) & (x[..., CODE] >= 0)
    return torch.where(inside, starts + x[..., CODE].long(), slices[-1].stop)


def within(columns: Sequence[ColumnCells], x: Float[Tensor, "B D F"]) -> Float[Tensor, "B D"]:
    """Logarithm of what a value has of its cell, (B, D): the same in all classes; 0 if missing."""
    log_inside = torch.tensor([c.log_inside for c in columns], dtype=x.dtype, device=x.device)
    own = x[..., WITHIN] + torch.where(x[..., CODE] >= 0, log_inside, 0.0)
    return torch.where(x[..., -1] > 0, own, 0.0)


def log_joint(
    at: Int[Tensor, "B D"],
    log_alpha: Float[Tensor, "*models K"],
    log_shares: Float[Tensor, "C *models K"],
) -> Float[Tensor, "B *models K"]:
    """Log of each class's fraction times its shares of the cells at some places."""
    table = with_none(log_shares)
    joint = log_alpha.expand(len(at), *log_alpha.shape)
    for own in at.T:
        joint = joint + table[own]
    return joint


def with_none(log_shares: Tensor) -> Tensor:
    """Shares with an entry more, for values that are in no cell and tell nothing of the class."""
    return torch.cat([log_shares, torch.zeros_like(log_shares[:1])])
