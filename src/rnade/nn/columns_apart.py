"""A network for each column of a table, of any kind, with no shared weights; a torch module."""

from collections.abc import Callable, Iterator, Sequence
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
        terms = [log_densities(*parts) for parts in self._parts(x, None)]
        return torch.where(self._own(x[..., ROLE]) > 0, torch.cat(terms)[..., 0], 0.0)

    def weighted_log_likelihood(
        self, batch: Batch, *, scale_mean_gradient: bool = False
    ) -> Tensor:
        x, weights = batch.x, batch.weights
        counts = (self._own(x[..., ROLE]) > 0).to(x)
        counts = counts if weights is None else counts * weights
        found = [
            weighted_log_likelihood(z, gates, cells, w[None, :, None], given, layout)
            for w, (z, gates, cells, given, layout) in zip(
                counts, self._parts(x, x[..., :1, SEED] if self.dropout else None), strict=True
            )
        ]
        return torch.cat(found)

    def _parts(
        self, x: Tensor, seed: Tensor | None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None, Layout]]:
        """What densities of each network's own column are computed from, as if of one network.

        Outputs of shape (1, B, P_d), logits of the links' shares (1, B, 1, R), cells
        (1, B, 1, ...), whether the sources of links are given (1, B, 1, R), and the layout.
        """
        h, seen = self._hidden_units(x, seed), self._given(x)
        outputs = torch.baddbmm(self.b, h, self.V)
        shares = torch.baddbmm(self.g, h, self.G) if self.n_links else outputs
        for m, (z, gates) in enumerate(zip(outputs.unbind(), shares.unbind(), strict=True)):
            d = self.predicted()[m]
            layout, given = self.layout_of(d), None
            if self.n_links:
                given = seen[m][:, None, self._sources(x.device)[d]].all(-1)[None]
            cells = x[m : m + 1, :, d : d + 1]
            yield z[None, :, : layout.n_outputs], gates[None, :, None], cells, given, layout

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
