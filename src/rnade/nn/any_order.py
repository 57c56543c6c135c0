"""Networks that predict each column, of any kind, from any of the others; torch modules."""

import abc
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from rnade.backends import heads
from rnade.backends.heads import Layout
from rnade.batch import Batch
from rnade.checks import number_between, positive_int
from rnade.chunks import rows_at_a_time
from rnade.columns.links import Link
from rnade.columns.partition import CODE, POSITION, ColumnCells
from rnade.families.base import fresh_generator
from rnade.nn.autoregressive import drawn_by
from rnade.nn.bank import AbstractTrainable
from rnade.nn.gaussians import FARTHEST, Gaussians
from rnade.nn.mixed_heads import log_densities, weighted_log_likelihood
from rnade.nn.walk import Walk

# Last of a cell's features, what training tells of it: the weight of its log density, or GIVEN
# where the network sees it, or 0 where it is not observed (of `ColumnNetworks` its place in an
# order); and a number of its row, from which dropout is drawn.
ROLE, SEED = -2, -1
GIVEN = -1.0
# Shares of links before training, as logits beside that of the network, which is 0.
START_OF_TABLES, START_OF_EXACT = -1.5, 3.0


class AbstractAnyOrderModule(AbstractTrainable):
    r"""Networks that give p(x_d | any of the other columns), for columns of any kind.

    .. math::

        s = c + \sum_{d \in \text{given}} (E_{d, \text{cell}(x_d)} + t_d W_d + S_d), \quad
        s \leftarrow s + Q_l^\top g(U_l^\top g(s) + u_l) \; (l = 1 \ldots L), \quad
        z = V^\top g(s) + b

    with g(s) = s / (1 + exp(-s)), and from z the densities of all columns that are not given
    (`rnade.backends.heads`). What is given adds the embedding of its cell, its place on the smooth
    scale and a term for having been seen (Uria, Murray and Larochelle, 2014); what is missing adds
    nothing. A joint density is a product along any order of the columns.

    Beside the heads stand links, densities q of a column by single others (`rnade.columns.links`):

    .. math::

        p(x_d) = \frac{p_z(x_d) + \sum_r e^{\gamma_r} q_r(x_d)}{1 + \sum_r e^{\gamma_r}}, \quad
        \gamma = G^\top g(s) + g_0

    over the links r whose sources are given. Values outside the range of the table, and levels not
    seen, have the probability that p_z gives them.

    Parameters
    ----------
    columns : sequence of ColumnCells
    n_hidden : int
        H.
    n_layers : int
        L, residual layers.
    n_components : int
        K, of the mixture beside the cells of a number.
    dropout : float
        Share of hidden units left out of each row in training.
    links : sequence of Link
    n_models : int
        M, networks in the bank.
    generator : torch.Generator, optional
        Draws starting weights.

    References
    ----------
    Uria, Murray and Larochelle (2014), A deep and tractable density estimator.
    """

    V: Tensor
    G: Tensor
    g: Tensor

    def __init__(
        self,
        columns: Sequence[ColumnCells],
        n_hidden: int = 256,
        *,
        n_layers: int = 3,
        n_components: int = 8,
        dropout: float = 0.1,
        links: Sequence[Link] = (),
        n_models: int = 1,
        generator: Generator | None = None,
    ) -> None:
        super().__init__(len(columns), n_models)
        self.columns = tuple(columns)
        self.n_components = positive_int(n_components, "n_components")
        self.dropout = number_between(dropout, "dropout", 0, 0.95, open_low=False)
        H, L = positive_int(n_hidden, "n_hidden"), positive_int(n_layers, "n_layers")
        M, D = n_models, len(columns)
        self._layouts: dict[str, Any] = {"cpu": Layout(columns, self.n_components)}
        # Networks of columns that were cut otherwise are no bank, though they have one shape.
        cuts = [t.tobytes() for c in columns for t in (c.scale, c.edges, c.shares, c.log_share)]
        self.links = links_by_column(links, D)
        self.n_links = max(map(len, self.links))
        cuts += [t.tobytes() for link in links for t in link.arrays().values()]
        self._digest = hashlib.sha256(b"".join(cuts)).hexdigest()[:16]
        draw = drawn_by(generator or fresh_generator(), None)
        self.W = draw(D**-0.5, M, self._layouts["cpu"].n_inputs, H)
        self.c = draw(0.1, M, 1, H)
        self.U = draw(H**-0.5, M, L, H, H)
        self.Q = draw(0.5 * (H * L) ** -0.5, M, L, H, H)
        self.u = nn.Parameter(torch.zeros(M, L, 1, H))
        self._add_heads(draw, M, H)

    @abc.abstractmethod
    def _add_heads(self, draw: Callable[..., nn.Parameter], M: int, H: int) -> None:
        """Make weights and biases of the outputs, V and b, and of the links' shares, G and g."""

    def _starting_gates(self) -> Tensor:
        """Logits of the links' shares before training, of shape (D, R)."""
        found = torch.zeros(self.n_dimensions, self.n_links)
        for d, own in enumerate(self.links):
            for r, link in enumerate(own):
                odds = link.share / (1 - link.share)
                exact = min(np.log(max(odds, 1e-9)), START_OF_EXACT)
                found[d, r] = START_OF_TABLES if link.is_table else float(exact)
        return found

    # ---------------------------------------------------------------- as a bank that trains

    def decayed(self) -> list[str]:
        return ["W", "U", "Q", "V", *(["G"] if self.n_links else [])]

    def n_torch_products(self, n_rows: int) -> int:
        return n_rows * sum(t.numel() for t in (self.W, self.U, self.Q, self.V))

    def signature(self) -> list[str]:
        shapes = [f"{name} {t.dtype} {tuple(t.shape[1:])}" for name, t in self._tensors()]
        return [type(self).__name__, str(self.device), str(self.dropout), self._digest, *shapes]

    def _forget(self) -> None:
        pass

    def log_prob(self, x: Tensor, *, seen: Tensor | None = None) -> Tensor:
        """Weighted sum of the log densities of each row's cells to be predicted.

        Parameters
        ----------
        x : Tensor of shape (B, D, F + 2) or (M, B, D, F + 2)
            Cells with their roles, see `ROLE` and `rnade.training.any_order`.

        Returns
        -------
        Tensor of shape (B,), or (M, B) for a bank
        """
        x = x if x.ndim == 4 else x.expand(self.n_models, *x.shape)
        size = rows_at_a_time(self.n_models * 4 * (self.W.shape[1] + self.V.shape[2]))
        found = torch.cat([self._log_prob(rows) for rows in torch.split(x, size, 1)], 1)
        return found[0] if self.n_models == 1 else found

    @abc.abstractmethod
    def _log_prob(self, x: Tensor) -> Tensor:
        """`log_prob` of a few rows, (M, B)."""

    @abc.abstractmethod
    def _given(self, x: Tensor) -> Tensor:
        """Which cells the networks see in training, by their roles: bool, (M, B, D)."""

    def _sources(self, device: torch.device) -> Tensor:
        """Columns that each link goes by, (D, R, S); where there are fewer, one of them again."""
        name = f"sources {device}"
        if name not in self._layouts:
            most = max(len(link.sources) for own in self.links for link in own)
            found = torch.zeros(self.n_dimensions, self.n_links, most, dtype=torch.int64)
            for d, own in enumerate(self.links):
                for r, link in enumerate(own):
                    found[d, r] = int(link.sources[0])
                    found[d, r, : len(link.sources)] = torch.as_tensor(link.sources).long()
            self._layouts[name] = found.to(device)
        sources: Tensor = self._layouts[name]
        return sources

    @property
    def layout(self) -> Layout:
        """Of the outputs, on the parameters' device."""
        name = str(self.device)
        if name not in self._layouts:
            self._layouts[name] = Layout(self.columns, self.n_components, self.device)
        layout: Layout = self._layouts[name]
        return layout

    def layout_of(self, d: int) -> Layout:
        """The layout of one column's outputs alone."""
        name = f"{self.device} {d}"
        if name not in self._layouts:
            self._layouts[name] = Layout([self.columns[d]], self.n_components, self.device)
        layout: Layout = self._layouts[name]
        return layout

    def _hidden_units(self, x: Tensor, seed: Tensor | None) -> Tensor:
        s = torch.baddbmm(self.c, self._inputs(x, self._given(x)), self.W)
        return self._hidden(s, seed)

    def _inputs(self, cells: Tensor, given: Tensor) -> Tensor:
        """What the network sees of the given cells, shape (M, B, all cells + numbers + D)."""
        M, B, D = given.shape
        layout = self.layout
        numbers, n_seen = layout.numbers, layout.n_inputs - D
        n_cells = n_seen - len(numbers)
        seen, code = given.to(cells), cells[..., CODE]
        known = torch.where(code >= 0, seen, 0.0)
        x = cells.new_zeros(M, B, layout.n_inputs)
        x[..., :n_cells].scatter_(-1, layout.inputs + code.clamp_min(0).long(), known)
        t = cells[..., numbers, POSITION].clamp(-FARTHEST, FARTHEST)
        x[..., n_cells:n_seen] = t * seen[..., numbers]
        x[..., n_seen:] = seen
        return x

    def _hidden(self, s: Tensor, seed: Tensor | None) -> Tensor:
        """Hidden units after the residual layers; with a seed some are left out."""
        layer, bits = -1, s

        def units(values: Tensor) -> Tensor:
            nonlocal layer, bits
            layer += 1
            h = F.silu(values)
            if seed is None:
                return h
            if layer % 4 == 0:
                bits = _hashed(seed, h.shape[-1], layer)
            kept = bits[..., layer % 4] >= round(self.dropout * 2**8)
            return (h * kept).mul_(1 / (1 - self.dropout))

        # Unbound at once: the gradient of L slices would be L tensors of the size of all.
        for U, u, Q in zip(self.U.unbind(1), self.u.unbind(1), self.Q.unbind(1), strict=True):
            inner = torch.baddbmm(u, units(s), U)
            s = torch.baddbmm(s, units(inner), Q)
        return units(s)

    # ---------------------------------------------------------------- densities

    def one(self, m: int) -> Self:
        """Network m of the bank, sharing its tensors."""
        if self.n_models == 1:
            return self
        one = self._like(1)
        for name, t in self._tensors():
            one._put(name, t.detach()[m : m + 1])
        return one

    def in_single_precision(self) -> Self:
        """The same networks in float32: twice as fast, and near enough to draw by."""
        other = self._like(self.n_models)
        for name, t in self._tensors():
            other._put(name, t.detach().float() if t.is_floating_point() else t)
        return other

    @property
    @abc.abstractmethod
    def n_walkers(self) -> int:
        """How many networks, or banks of them, predict all columns."""

    @abc.abstractmethod
    def walker(self, m: int) -> Self:
        """One of those that predict all columns, sharing its tensors."""

    def conditionals(self, cells: Tensor, given: Tensor, d: int) -> Tensor:
        """Outputs for one column given any others.

        Parameters
        ----------
        cells : Tensor of shape (B, D, 4 or more) or (M, B, D, 4 or more)
        given : bool Tensor of shape (B, D) or (M, B, D)
            Cells that are known.
        d : int
            The column.

        Returns
        -------
        Tensor of shape (n_walkers, B, P_d + R)
            Outputs of the head, then logits of the shares of the links.
        """
        return self.head(self.hidden(cells, given), d)

    def hidden(self, cells: Tensor, given: Tensor) -> Tensor:
        """What the heads share given any cells, (M, B, H): with `head` outputs for any column."""
        return self._shared(self._told(cells, given))

    @abc.abstractmethod
    def _shared(self, s: Tensor) -> Tensor:
        """What the heads of all columns share, from what enters the residual layers."""

    @abc.abstractmethod
    def head(self, h: Tensor, d: int) -> Tensor:
        """Outputs for one column, (n_walkers, B, P_d + R), from what the heads share."""

    def _told(self, cells: Tensor, given: Tensor) -> Tensor:
        """What enters the residual layers once some cells are given, (M, B, H)."""
        cells = cells if cells.ndim == 4 else cells.expand(self.n_models, *cells.shape)
        given = given if given.ndim == 3 else given.expand(self.n_models, *given.shape)
        return torch.baddbmm(self.c, self._inputs(cells, given), self.W)

    def _outputs_of(self, s: Tensor, d: int) -> Tensor:
        return self.head(self._shared(s), d)

    def walk(self, order: Sequence[int], n: int, gaussians: Gaussians | None = None) -> Walk:
        """Begin to go along an order of the columns with n rows, none of whose cells is known."""
        return Walk(self, list(order), n, gaussians)

    def log_conditionals(
        self,
        cells: Tensor,
        seen: Tensor,
        order: Sequence[int],
        gaussians: Gaussians | None = None,
    ) -> Tensor:
        """Terms log p(x_d | those observed before it in the order); 0 where not observed.

        Parameters
        ----------
        cells : Tensor of shape (B, D, 4), or (B, D, 5 + R) where there are links
        seen : bool Tensor of shape (B, D)
        order : permutation of 0..D-1
        gaussians : Gaussians, optional
            Beside the networks.

        Returns
        -------
        Tensor of shape (n_walkers, B, D)
        """
        terms = cells.new_zeros(self.n_walkers, *seen.shape)
        walk = self.walk(order, len(cells), gaussians)
        for d, z in walk:
            column = walk.log_densities(z, cells[:, d])
            terms[..., d] = torch.where(seen[:, d], column, 0.0)
            walk.tell(cells[:, d], seen[:, d])
        return terms


class AnyOrderModule(AbstractAnyOrderModule):
    """A bank of networks, each of which predicts all columns (see `AbstractAnyOrderModule`)."""

    def _add_heads(self, draw: Callable[..., nn.Parameter], M: int, H: int) -> None:
        self.V = draw(0.01, M, H, self._layouts["cpu"].n_outputs)
        biases = heads.starting_biases(self.columns, self.n_components)
        self.b = nn.Parameter(biases.repeat(M, 1, 1))
        if self.n_links:
            self.G = draw(0.01, M, H, self.n_dimensions * self.n_links)
            self.g = nn.Parameter(self._starting_gates().flatten().repeat(M, 1, 1))

    def _given(self, x: Tensor) -> Tensor:
        return x[..., ROLE] == GIVEN

    def _log_prob(self, x: Tensor) -> Tensor:
        role = x[..., ROLE]
        terms = log_densities(*self._parts(x, None), self.layout)
        return torch.where(role > 0, role * terms, 0.0).sum(-1)

    def weighted_log_likelihood(
        self, batch: Batch, *, scale_mean_gradient: bool = False
    ) -> Tensor:
        x, weights = batch.x, batch.weights
        role = x[..., ROLE].clamp_min(0.0)
        role = role if weights is None else role * weights[..., None]
        z, gates, _, given = self._parts(x, x[..., :1, SEED] if self.dropout else None)
        return weighted_log_likelihood(z, gates, x, role, given, self.layout)

    def _parts(
        self, x: Tensor, seed: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Outputs, logits of the links' shares, cells and given sources, as densities take them.

        Parameters
        ----------
        x : Tensor of shape (M, B, D, ...)
            Cells with their roles.
        seed : Tensor of shape (M, B, 1), optional
            Of dropout.
        """
        h = self._hidden_units(x, seed)
        z = torch.baddbmm(self.b, h, self.V)
        if not self.n_links:
            return z, z, x, None
        gates = torch.baddbmm(self.g, h, self.G)
        gates = gates.view(*gates.shape[:-1], self.n_dimensions, self.n_links)
        return z, gates, x, self._given(x)[..., self._sources(x.device)].all(-1)

    @property
    def n_walkers(self) -> int:
        return self.n_models

    def walker(self, m: int) -> Self:
        return self.one(m)

    def _shared(self, s: Tensor) -> Tensor:
        return self._hidden(s, None)

    def head(self, h: Tensor, d: int) -> Tensor:
        at, R = self.layout.outputs_of(d), self.n_links
        z = torch.baddbmm(self.b[..., at], h, self.V[..., at])
        if not R:
            return z
        own = slice(d * R, (d + 1) * R)
        return torch.cat([z, torch.baddbmm(self.g[..., own], h, self.G[..., own])], -1)


def links_by_column(links: Sequence[Link], n_columns: int) -> tuple[tuple[Link, ...], ...]:
    """The links of each column."""
    return tuple(tuple(k for k in links if k.target == d) for d in range(n_columns))


def _hashed(seed: Tensor, H: int, which: int) -> Tensor:
    """Four bytes for each row and unit, uint8 of shape (..., H, 4), for dropout in four layers.

    As good as random, from the number of a row, so that the same rows leave out the same units on
    every device and nothing but the source of the rows has a random state.
    """
    unit = torch.arange(H, dtype=torch.int32, device=seed.device) + which * H
    bits = (seed * 2**24).to(torch.int32) * 668265263 + unit * 374761393
    bits = (bits ^ (bits >> 15)) * 739982445
    bits = (bits ^ (bits >> 12)) * 695872825
    return bits.view(torch.uint8).view(*bits.shape, 4)
