"""The density of a table with columns of any kind, averaged over networks and orders."""

import abc
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Generator, Tensor, nn

from rnade.chunks import rows_at_a_time
from rnade.columns.links import UNAVAILABLE, Link
from rnade.columns.partition import CODE, LOG_WIDTH, N_FEATURES, ColumnCells
from rnade.nn.any_order import AbstractAnyOrderModule, links_by_column
from rnade.nn.column_density import ColumnDensity, Linked
from rnade.nn.distribution import TableDistribution, Values
from rnade.nn.ensemble import log_average, log_averages
from rnade.nn.gaussians import Components, Gaussians, Given
from rnade.nn.mixed_heads import FIRST_LINK, VALUE
from rnade.nn.walk import Walk
from rnade.typing import Array


class AbstractTableDensity(nn.Module, abc.ABC):
    """Density of a table with columns of any kind, of which cells may be missing.

    Parameters
    ----------
    columns : sequence of ColumnCells
    indicators : mapping of int to int, optional
        For columns whose missing cells are modelled, the column of two levels that tells them.
    """

    def __init__(
        self, columns: Sequence[ColumnCells], indicators: Mapping[int, int] | None = None
    ) -> None:
        super().__init__()
        self.indicators = dict(indicators or {})
        self.columns = tuple(columns)
        self.n_dimensions = len(self.columns)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the parameters."""
        return next(self.parameters()).dtype

    def cells(self, X: Array) -> Tensor:
        """Values as the networks take them.

        Parameters
        ----------
        X : array of shape (B, D)
            Numbers and codes of levels; NaN where a cell is not observed.

        Returns
        -------
        Tensor of shape (B, D, 6 + R)
            Features of each cell, its value, what R links say of it (in networks), and last
            whether it is observed.
        """
        return encoded(self.columns, X).to(self.device, self.dtype)

    @abc.abstractmethod
    def log_prob(self, x: Tensor) -> Tensor:
        """Log density of what is observed of each row, in nats; 0 where nothing is.

        Parameters
        ----------
        x : Tensor of shape (B, D, 6 + R)
            From `cells`.
        """

    def distribution(self, given: Values | None = None) -> TableDistribution:
        """The density as a `torch.distributions.Distribution`, of any columns given any others.

        Parameters
        ----------
        given : mapping of int to float or Tensor, optional
            Numbers and codes of levels by column; tensors of shape (B,) make a batch.
        """
        return TableDistribution(self, given)

    @abc.abstractmethod
    def column(self, d: int, x: Tensor, given: Tensor) -> ColumnDensity:
        """Density of one column of each row given any others.

        Parameters
        ----------
        d : int
        x : Tensor of shape (B, D, 6 + R)
            From `cells`.
        given : bool Tensor of shape (B, D)
            Cells that are known; those not observed, and the column itself, never are.
        """

    @abc.abstractmethod
    def sample(self, n: int, generator: Generator) -> Array:
        """Draw rows exactly: numbers and codes of levels.

        A draw never leaves the range of the table and has no level that is not in it. NaN where a
        cell is missing, of columns whose missing cells are modelled.

        Parameters
        ----------
        n : int
        generator : torch.Generator
            On the CPU.

        Returns
        -------
        array of shape (n, D)
        """

    def pit(self, X: Array, generator: Generator) -> Array:
        """Probability integral transform of the observed cells of each row; NaN elsewhere.

        Where values have a probability it is drawn evenly from their range of probabilities.

        Parameters
        ----------
        X : array of shape (B, D)
        generator : torch.Generator
            On the CPU.
        """
        size = self._rows_at_a_time()
        parts = [self._pit(X[at : at + size], generator) for at in range(0, len(X), size)]
        return np.concatenate(parts)

    @abc.abstractmethod
    def _pit(self, X: Array, generator: Generator) -> Array:
        """`pit` of a few rows."""

    @abc.abstractmethod
    def _rows_at_a_time(self) -> int:
        """Rows that are best computed together."""

    def impute(self, X: Array, how: str, generator: Generator) -> Array:
        """Fill missing cells, each from its distribution given what is observed of its row.

        Parameters
        ----------
        X : array of shape (B, D)
            NaN where a cell is missing.
        how : {"mean", "median", "likeliest", "draw"}
            Means of numbers; medians of numbers and of levels by their order; the likeliest level
            and the median of numbers. Columns of levels have their likeliest level with "mean"
            too. "draw" fills a row's cells one after the other in a random order, each given
            those before it: a draw of all of them together.
        generator : torch.Generator
            On the CPU.

        Returns
        -------
        array of shape (B, D)
        """
        filled, missing = X.copy(), np.isnan(X)
        order = torch.randperm(self.n_dimensions, generator=generator).tolist()
        for d in order:
            rows = np.flatnonzero(missing[:, d])
            size = self._rows_at_a_time()
            for start in range(0, len(rows), size):
                at = rows[start : start + size]
                # Only draws are given to one another: other fillings are of each cell alone.
                known = self.cells(filled[at] if how == "draw" else X[at])
                with torch.no_grad():
                    density = self.column(d, known, known[..., -1] > 0)
                draws = how == "draw"
                filled[at, d] = density.sample(generator) if draws else density.filling(how)
        return filled


class TableDensity(AbstractTableDensity):
    r"""Average of densities along several orders of the columns, by several networks.

    .. math:: p(x) = \frac{1}{R} \sum_r \prod_d p_{m_r}(x_d \mid x_{<d} \text{ in order } r)

    Each p_m gives any column from any others, so that a conditional of one column depends on no
    order. An average of densities is a density, and a draw is a draw along one of the orders.

    Parameters
    ----------
    columns : sequence of ColumnCells
    networks : AnyOrderModule or ColumnNetworks
        A bank of M networks that predict all columns, or one network for each column (M = 1).
    orders : Tensor of shape (R, D)
        Order r is gone along by network r modulo M.
    indicators : mapping of int to int, optional
        For columns whose missing cells are modelled, the column of two levels that tells them. It
        must come before the column in every order.
    gaussians : Gaussians, optional
        That have a share of every column's distribution, of tables of real numbers.
    """

    orders: Tensor

    def __init__(
        self,
        columns: Sequence[ColumnCells],
        networks: AbstractAnyOrderModule,
        orders: Tensor,
        indicators: Mapping[int, int] | None = None,
        gaussians: Gaussians | None = None,
    ) -> None:
        super().__init__(columns, indicators)
        self.networks, self.gaussians = networks, gaussians
        self.register_buffer("orders", orders)

    @property
    def n_orders(self) -> int:
        """R."""
        return len(self.orders)

    def cells(self, X: Array, counted: Array | float = 0.0) -> Tensor:
        """Values as the networks take them; `counted` as in `encoded`."""
        return encoded(self.columns, X, self.links, counted).to(self.device, self.dtype)

    @property
    def links(self) -> list[Link]:
        """Of all columns."""
        return [link for own in self.networks.links for link in own]

    def features_of(self, d: int, values: Array) -> Tensor:
        """Features and values of one column's cells, (B, 5), without what links say of them."""
        features = np.column_stack([self.columns[d].encode(values), values])
        return torch.as_tensor(features).to(self.device, self.dtype)

    # ---------------------------------------------------------------- densities

    def log_prob(self, x: Tensor) -> Tensor:
        return log_average(self.terms(x).sum(-1))

    def group_log_prob(self, x: Tensor, groups: Tensor) -> Tensor:
        """Log density of each row by the networks of each group alone.

        Orders that only networks in no group go along are not computed.

        Parameters
        ----------
        x : Tensor of shape (B, D, 6 + R)
            From `cells`.
        groups : bool Tensor of shape (G, M)

        Returns
        -------
        Tensor of shape (G, B)
        """
        along = groups[:, torch.arange(self.n_orders, device=groups.device) % groups.shape[1]]
        wanted = along.any(0).nonzero()[:, 0]
        joint = self.terms(x, wanted.tolist()).sum(-1)
        return log_averages(joint, torch.zeros_like(joint[:, 0]), along[:, wanted])

    def log_conditionals(self, x: Tensor) -> Tensor:
        """Terms of each row's columns, (B, D), that sum to `log_prob`.

        The mean of the terms along each order, weighted by how likely the row is along it, less an
        equal share of what this mean has too much; 0 where a cell is not observed.
        """
        terms = self.terms(x)
        joint = terms.sum(-1)
        mean = (joint.softmax(0)[..., None] * terms).sum(0)
        seen = x[..., -1]
        share = (log_average(joint) - mean.sum(-1)) / seen.sum(-1).clamp_min(1)
        return mean + share[:, None] * seen

    def terms(self, x: Tensor, along: Sequence[int] | None = None) -> Tensor:
        """Terms log p(x_d | observed before it) along each order, or some, of shape (R, B, D)."""
        parts, wanted = [], range(self.n_orders) if along is None else along
        orders = self.orders.tolist()
        for rows in torch.split(x, self._rows_at_a_time(), 0):
            cells, seen = rows[..., :-1], rows[..., -1] > 0
            each = [
                self.network(r).log_conditionals(cells, seen, orders[r], self.gaussians)[0]
                for r in wanted
            ]
            parts.append(torch.stack(each))
        return torch.cat(parts, 1)

    def network(self, r: int) -> AbstractAnyOrderModule:
        """What goes along order r, sharing its tensors with the bank."""
        return self.networks.walker(r % self.networks.n_walkers)

    def walk(self, r: int, order: Sequence[int], n: int) -> Walk:
        """Begin to go with n rows along an order, or a part of it, as order r is gone along."""
        return self.network(r).walk(order, n, self.gaussians)

    def _all(self) -> Iterator[tuple[int, list[int]]]:
        yield from enumerate(self.orders.tolist())

    def _rows_at_a_time(self) -> int:
        """So that neither all orders' terms nor the networks' inputs take much room."""
        M, n_inputs, H = self.networks.W.shape
        beside = 0 if self.gaussians is None else 4 * self.gaussians.numbers_of_a_row
        return max(1, min(8192, rows_at_a_time(M * (n_inputs + 8 * H) + beside)))

    # ---------------------------------------------------------------- one column given others

    def column(self, d: int, x: Tensor, given: Tensor) -> ColumnDensity:
        """Density of one column of each row given any others, averaged over the networks."""
        known = given & (x[..., -1] > 0)
        known = known.clone()
        known[:, d] = False
        size = self._rows_at_a_time()
        pieces = zip(torch.split(x, size, 0), torch.split(known, size, 0), strict=True)
        z = [self.networks.conditionals(rows, at, d) for rows, at in pieces]
        pieces = zip(torch.split(x, size, 0), torch.split(known, size, 0), strict=True)
        beside = [self.beside(rows, at) for rows, at in pieces]
        parts = [given.components(d) for given in beside if given is not None]
        components = Components.joined(parts) if parts else None
        return self.density_of(d, torch.cat(z, 1), x, known, components)

    def beside(self, cells: Tensor, known: Tensor) -> Given | None:
        """What the Gaussians say given the known cells of each row, if there are Gaussians."""
        return None if self.gaussians is None else self.gaussians.given(cells, known)

    def density_of(
        self, d: int, z: Tensor, x: Tensor, given: Tensor, beside: Components | None = None
    ) -> ColumnDensity:
        """Density of column d from its outputs, and from the values of given cells by links.

        Parameters
        ----------
        d : int
        z : Tensor of shape (M, B, P_d + R)
        x : Tensor of shape (B, D, 5 or more)
        given : bool Tensor of shape (B, D)
        beside : Components, optional
            Of the Gaussians.
        """
        z, linked = z.double().cpu(), []
        for link in self.networks.links[d]:
            sources = link.sources.astype(int).tolist()
            there = given[:, sources].all(-1).cpu().numpy()
            if link.is_table:
                code = x[:, sources[0], CODE].long().cpu().numpy()
                cells = link.cells(self.columns[d], code)
                linked.append(Linked(there, cells=cells))
            else:
                values = link.values(self.columns[d], x[..., VALUE].double().cpu().numpy())
                linked.append(Linked(there & ~np.isnan(values), values=values))
        return ColumnDensity(self.columns[d], z, self.networks.n_components, linked, beside)

    # ---------------------------------------------------------------- draws

    def sample(self, n: int, generator: Generator) -> Array:
        chosen = torch.randint(self.n_orders, (n,), generator=generator)
        X = np.empty((n, self.n_dimensions))
        for r, order in self._all():
            rows = (chosen == r).nonzero()[:, 0]
            for at in torch.split(rows, self._rows_at_a_time()):
                if len(at):
                    X[at.numpy()] = self._draw_along(r, order, len(at), generator)
        return X

    @torch.no_grad()
    def _draw_along(self, r: int, order: list[int], n: int, generator: Generator) -> Array:
        X = np.empty((n, self.n_dimensions))
        walk = self.walk(r, order, n)
        seen = torch.ones(n, dtype=torch.bool, device=self.device)
        x = torch.zeros(n, self.n_dimensions, FIRST_LINK, device=self.device, dtype=self.dtype)
        for d, z in walk:
            density = self.density_of(d, z, x, walk.given, walk.components(d))
            X[:, d] = density.sample(generator)
            x[:, d] = self.features_of(d, X[:, d])
            here = seen
            if d in self.indicators:
                gone = X[:, self.indicators[d]] == 1
                X[gone, d] = np.nan
                here = torch.as_tensor(~gone).to(self.device)
            walk.tell(x[:, d], here)
        return X

    @torch.no_grad()
    def _pit(self, X: Array, generator: Generator) -> Array:
        # Each row is judged along one order, drawn by how likely the row is along it, so that the
        # result is uniform if the density is right.
        x = self.cells(X)
        likely = self.terms(x).sum(-1).softmax(0).T.double().cpu()
        chosen = torch.multinomial(likely, 1, generator=generator)[:, 0]
        found = np.full(X.shape, np.nan)
        for r, order in self._all():
            at = (chosen == r).nonzero()[:, 0].numpy()
            if not len(at):
                continue
            walk, own = self.walk(r, order, len(at)), x[torch.as_tensor(at)]
            for d, z in walk:
                density = self.density_of(d, z, own, walk.given, walk.components(d))
                found[at, d] = density.transform(X[at, d], generator)
                walk.tell(own[:, d], own[:, d, -1] > 0)
        return found


def encoded(
    columns: Sequence[ColumnCells],
    X: Array,
    links: Sequence[Link] = (),
    counted: Array | float = 0.0,
) -> Tensor:
    """What networks are told of values, (B, D, 6 + R) in float64; see `TableDensity.cells`.

    Parameters
    ----------
    columns : sequence of ColumnCells
    X : array of shape (B, D)
    links : sequence of Link
    counted : array of shape (B,), or 0
        Weights of rows that the links have counted, and which must not predict themselves.
    """
    by_column = links_by_column(links, len(columns))
    x = np.zeros((*X.shape, FIRST_LINK + max(map(len, by_column)) + 1))
    x[..., CODE], x[..., LOG_WIDTH] = -1, -math.inf
    x[..., FIRST_LINK:-1] = UNAVAILABLE
    for d, column in enumerate(columns):
        seen = ~np.isnan(X[:, d])
        x[seen, d, :N_FEATURES] = column.encode(X[seen, d])
        x[seen, d, VALUE], x[seen, d, -1] = X[seen, d], 1.0
    for own in by_column:
        for r, link in enumerate(own):
            terms = link.terms(columns, X, x[..., :N_FEATURES], counted)
            x[:, link.target, FIRST_LINK + r] = terms
    return torch.as_tensor(x)
