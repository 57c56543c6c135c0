"""A network for each column of a table, of any kind, with no shared weights; a torch module."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rnade.backends import heads
from rnade.backends.heads import Layout
from rnade.batch import Batch
from rnade.columns.partition import ColumnCells
from rnade.nn.any_order import ROLE, SEED, AbstractAnyOrderModule
from rnade.nn.mixed_heads import log_densities, weighted_log_likelihood


class ColumnNetworks(AbstractAnyOrderModule):
    """A bank of networks, one for each column, which it predicts from any of the others.

    To the gradient loop each network is a model of its own: all train together, and each keeps the
    weights that are best for its own column. In training the role of a cell (`ROLE`) is its place
    in an order of its row's columns, from 1 on, or 0 where it is not observed: the network of a
    column sees what comes before it, so that the terms of all networks sum to a log density along
    that order.

    Parameters
    ----------
    columns : sequence of ColumnCells
    settings
        As of `AbstractAnyOrderModule`, but for the number of networks.

    Attributes
    ----------
    own : int64 Tensor of shape (M,)
        The column that each network predicts.
    """

    own: Tensor
    _columns: list[int] | None = None

    def __init__(self, columns: Sequence[ColumnCells], *sizes: Any, **settings: Any) -> None:
        super().__init__(columns, *sizes, n_models=len(columns), **settings)

    def _add_heads(self, draw: Callable[..., nn.Parameter], M: int, H: int) -> None:
        starts = [heads.starting_biases([column], self.n_components) for column in self.columns]
        P = max(map(len, starts))  # of columns with fewer outputs, the last ones mean nothing
        self.V = draw(0.01, M, H, P)
        self.b = nn.Parameter(torch.stack([F.pad(b, (0, P - len(b))) for b in starts])[:, None])
        if self.n_links:
            self.G = draw(0.01, M, H, self.n_links)
            self.g = nn.Parameter(self._starting_gates()[:, None])
        self.register_buffer("own", torch.arange(M))

    def _forget(self) -> None:
        self._columns = None

    def predicted(self) -> list[int]:
        """The column that each network predicts."""
        if self._columns is None:
            self._columns = self.own.tolist()
        return self._columns

    # ---------------------------------------------------------------- training

    def _given(self, x: Tensor) -> Tensor:
        place = x[..., ROLE]
        return (place > 0) & (place < self._own(place)[..., None])

    def _own(self, of_cells: Tensor) -> Tensor:
        """What each network's own cells have, (M, B) of (M, B, D)."""
        return of_cells.gather(-1, self.own[:, None, None].expand(*of_cells.shape[:2], 1))[..., 0]

    def _log_prob(self, x: Tensor) -> Tensor:
        z, gates, cells, given = self._parts(x, None)
        terms = log_densities(z, gates, cells, given, self._own_layouts())[..., 0]
        return torch.where(self._own(x[..., ROLE]) > 0, terms, 0.0)

    def weighted_log_likelihood(
        self, batch: Batch, *, scale_mean_gradient: bool = False
    ) -> Tensor:
        x, weights = batch.x, batch.weights
        counts = (self._own(x[..., ROLE]) > 0).to(x)[..., None]
        counts = counts if weights is None else counts * weights[..., None]
        z, gates, cells, given = self._parts(x, x[..., :1, SEED] if self.dropout else None)
        return weighted_log_likelihood(z, gates, cells, counts, given, self._own_layouts())

    def _own_layouts(self) -> list[Layout]:
        return [self.layout_of(d) for d in self.predicted()]

    def _parts(
        self, x: Tensor, seed: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """What densities of the networks' own columns are computed from, one column each.

        Parameters
        ----------
        x : Tensor of shape (M, B, D, ...)
            Cells with their roles.
        seed : Tensor of shape (M, B, 1), optional
            Of dropout.

        Returns
        -------
        outputs of shape (M, B, P), logits of the links' shares (M, B, 1, R), cells
        (M, B, 1, ...) and whether the sources of links are given (M, B, 1, R)
        """
        h = self._hidden_units(x, seed)
        z = torch.baddbmm(self.b, h, self.V)
        cells = x[torch.arange(self.n_models, device=x.device), :, self.own][:, :, None]
        if not self.n_links:
            return z, z, cells, None
        gates = torch.baddbmm(self.g, h, self.G)[:, :, None]
        sources, (M, B) = self._sources(x.device)[self.own], x.shape[:2]
        places = sources.view(M, 1, -1).expand(M, B, -1)
        given = self._given(x).gather(-1, places).view(M, B, *sources.shape[1:]).all(-1)
        return z, gates, cells, given[:, :, None]

    # ---------------------------------------------------------------- densities

    @property
    def n_walkers(self) -> int:
        return 1

    def walker(self, m: int) -> Self:
        return self

    def conditionals(self, cells: Tensor, given: Tensor, d: int) -> Tensor:
        network = self.one(self.predicted().index(d))
        return network.head(network.hidden(cells, given), d)

    def _shared(self, s: Tensor) -> Tensor:
        return s  # networks share no layers

    def head(self, h: Tensor, d: int) -> Tensor:
        m = self.predicted().index(d)
        network = self.one(m)
        h = network._hidden(h[m : m + 1], None)
        z = torch.baddbmm(network.b, h, network.V)[..., : self.layout_of(d).n_outputs]
        if not self.n_links:
            return z
        return torch.cat([z, torch.baddbmm(network.g, h, network.G)], -1)
