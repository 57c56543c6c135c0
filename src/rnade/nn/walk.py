"""Going along an order of a table's columns with networks that predict any of them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rnade.columns.partition import CODE, POSITION
from rnade.nn.gaussians import FARTHEST, Components, Gaussians, Given
from rnade.nn.mixed_heads import log_densities

if TYPE_CHECKING:
    from rnade.nn.any_order import AbstractAnyOrderModule


class Walk:
    """Goes along an order of the columns, telling the network of one cell after the other.

    Iterating gives a column and its outputs, of shape (M, n, P_d + R); then `tell` says what it
    was.

    Attributes
    ----------
    given : bool Tensor of shape (n, D)
        Cells that have been told.
    """

    def __init__(
        self,
        module: "AbstractAnyOrderModule",
        order: list[int],
        n: int,
        gaussians: Gaussians | None = None,
    ) -> None:
        self.module, self.order, self.at = module, order, 0
        M, _, H = module.c.shape
        self.s = module.c.expand(M, n, H).clone()
        self.given = torch.zeros(n, module.n_dimensions, dtype=torch.bool, device=module.device)
        self._gaussians = gaussians
        self._beside = None if gaussians is None else gaussians.start(n)
        layout = module.layout
        self._first = layout.inputs.tolist()
        self._place = {int(d): i for i, d in enumerate(layout.numbers.tolist())}
        self._n_cells = layout.n_inputs - len(self._place) - module.n_dimensions

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        for at, d in enumerate(self.order):
            self.at = at
            yield d, self.module._outputs_of(self.s, d)

    def log_densities(self, z: Tensor, cells: Tensor) -> Tensor:
        """Log densities of the cells of the column last given, (M, n), from its outputs.

        Parameters
        ----------
        z : Tensor of shape (M, n, P_d + R)
        cells : Tensor of shape (n, 4), or (n, 5 + R) where there are links
        """
        module, d = self.module, self.order[self.at]
        layout, given = module.layout_of(d), None
        z, gates = z[..., : layout.n_outputs], z[..., None, layout.n_outputs :]
        if module.n_links:
            given = self.given[:, None, module._sources(module.device)[d]].all(-1)
        found = log_densities(z, gates, cells[:, None], given, layout)[..., 0]
        beside = self.components(d)
        return found if beside is None else beside.mixed(found, cells, layout)

    def components(self, d: int, rows: Tensor | slice | None = None) -> Components | None:
        """Components of Gaussians for a column of all rows, or of some, if there are Gaussians."""
        if self._beside is None:
            return None
        return (self._beside if rows is None else self._beside.rows(rows)).components(d)

    def tell(self, cells: Tensor, seen: Tensor) -> None:
        """Say what the column last given holds.

        Parameters
        ----------
        cells : Tensor of shape (n, 4 or more)
        seen : bool Tensor of shape (n,)
        """
        d = self.order[self.at]
        self.s = self.s + self._step(d, cells, seen)
        self.given[:, d] = seen
        if self._beside is not None:
            self._beside.tell(d, cells, seen, last=True)

    def know(self, cells: Tensor, given: Tensor, beside: Given | None = None) -> None:
        """Begin anew with some cells known.

        Parameters
        ----------
        cells : Tensor of shape (n, D, 4 or more)
        given : bool Tensor of shape (n, D)
        beside : Given, optional
            What Gaussians say given these cells, where that has been computed before.
        """
        self.s, self.given = self.module._told(cells, given), given.clone()
        if self._gaussians is not None:
            known = self._gaussians.given(cells, given) if beside is None else beside
            self._beside = known.copy()

    def hidden(self, rows: Tensor | slice) -> Tensor:
        """What the heads share of some rows, (M, k, H): with the module's `head` any outputs."""
        return self.module._shared(self.s[:, rows])

    def tell_of(self, d: int, rows: Tensor, cells: Tensor, *, forget: bool = False) -> None:
        """Say what any column of some rows holds, or take back what was said of it.

        Parameters
        ----------
        d : int
        rows : int64 Tensor of shape (k,)
        cells : Tensor of shape (k, 4 or more)
        forget : bool
        """
        step = self._step(d, cells, torch.ones(len(cells), dtype=torch.bool, device=cells.device))
        self.s[:, rows] += -step if forget else step
        self.given[rows, d] = not forget
        if self._beside is not None:
            self._beside.tell_of(d, rows, cells)

    def _step(self, d: int, cells: Tensor, seen: Tensor) -> Tensor:
        """What a column adds to what enters the residual layers, (M, n, H)."""
        module = self.module
        W, code = module.W, cells[:, CODE].long()
        known = (code >= 0) & seen
        step = W[:, self._first[d] + code.clamp_min(0)] * known[:, None]
        step = step + W[:, self._n_cells + len(self._place) + d, None] * seen[:, None]
        if d in self._place:
            t = cells[:, POSITION].clamp(-FARTHEST, FARTHEST) * seen
            step = step + W[:, self._n_cells + self._place[d], None] * t[:, None]
        return step
