"""A network that predicts each column, of any kind, from any of the others; a torch module."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from rnade.backends import heads
from rnade.backends.heads import Layout
from rnade.batch import Batch
from rnade.checks import number_between, positive_int
from rnade.chunks import rows_at_a_time
from rnade.columns.links import UNAVAILABLE, Link
from rnade.columns.partition import CODE, N_FEATURES, POSITION, ColumnCells
from rnade.families.base import fresh_generator
from rnade.nn.autoregressive import drawn_by
from rnade.nn.bank import AbstractTrainable

# Beyond a cell's own four features (`rnade.columns.partition`): its value, and what each link of
# its column says of it (`rnade.columns.links`).
VALUE, FIRST_LINK = N_FEATURES, N_FEATURES + 1
# Last, what training tells of it: the weight of its log density, or GIVEN where the network sees
# it, or 0 where it is not observed; and a number of its row, from which dropout is drawn.
ROLE, SEED = -2, -1
GIVEN = -1.0
# Shares of links before training, as logits beside that of the network, which is 0.
START_OF_TABLES, START_OF_EXACT = -1.5, 3.0
# Positions further out than this tell the network no more.
FARTHEST = 4.0


class AnyOrderModule(AbstractTrainable):
    r"""Network that gives p(x_d | any of the other columns), for columns of any kind.

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
    generator : torch.Generator, optional
        Draws starting weights.

    References
    ----------
    Uria, Murray and Larochelle (2014), A deep and tractable density estimator.
    """

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
        n_inputs, P = self._layouts["cpu"].n_inputs, self._layouts["cpu"].n_outputs
        draw = drawn_by(generator or fresh_generator(), None)
        self.W = draw(D**-0.5, M, n_inputs, H)
        self.c = draw(0.1, M, 1, H)
        self.U = draw(H**-0.5, M, L, H, H)
        self.Q = draw(0.5 * (H * L) ** -0.5, M, L, H, H)
        self.u = nn.Parameter(torch.zeros(M, L, 1, H))
        self.V = draw(0.01, M, H, P)
        self.b = nn.Parameter(heads.starting_biases(columns, n_components).repeat(M, 1, 1))
        if self.n_links:
            self.G = draw(0.01, M, H, D * self.n_links)
            self.g = nn.Parameter(self._starting_gates().repeat(M, 1, 1))

    def _starting_gates(self) -> Tensor:
        """Logits of the links' shares before training, of shape (D * R,)."""
        found = torch.zeros(self.n_dimensions, self.n_links)
        for d, own in enumerate(self.links):
            for r, link in enumerate(own):
                odds = link.share / (1 - link.share)
                exact = min(np.log(max(odds, 1e-9)), START_OF_EXACT)
                found[d, r] = START_OF_TABLES if link.is_table else float(exact)
        return found.flatten()

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
        x : Tensor of shape (M, B, D, 6)
            Cells with their roles, see `ROLE` and `rnade.training.any_order`.

        Returns
        -------
        Tensor of shape (B,), or (M, B) for a bank
        """
        x = x if x.ndim == 4 else x.expand(self.n_models, *x.shape)
        size = rows_at_a_time(self.n_models * 4 * (self.W.shape[1] + self.V.shape[2]))
        parts = []
        for rows in torch.split(x, size, 1):
            role = rows[..., ROLE]
            h = self._hidden_units(rows, None)
            z = torch.baddbmm(self.b, h, self.V)
            terms = heads.log_densities(z, rows[..., :N_FEATURES], self.layout)
            if self.n_links:
                terms = torch.logsumexp(self._parts(terms, h, rows)[0], -1)
            parts.append(torch.where(role > 0, role * terms, 0.0).sum(-1))
        found = torch.cat(parts, 1)
        return found[0] if self.n_models == 1 else found

    def weighted_log_likelihood(
        self, batch: Batch, *, scale_mean_gradient: bool = False
    ) -> Tensor:
        x, weights = batch.x, batch.weights
        role = x[..., ROLE].clamp_min(0.0)
        role = role if weights is None else role * weights[..., None]
        h = self._hidden_units(x, x[..., :1, SEED] if self.dropout else None)
        z, cells = torch.baddbmm(self.b, h, self.V), x[..., :N_FEATURES]
        if not self.n_links:
            return heads.weighted_log_likelihood(z, cells, role, self.layout)
        # The gradient of a mixture is that of its parts' logarithms, each weighted by the share
        # that the part has in the value; so the heads need no other kernels than without links.
        parts, log_shares = self._parts(heads.log_densities(z, cells, self.layout), h, x)
        parts = parts.detach()
        blame = parts.softmax(-1)
        of_heads = heads.weighted_log_likelihood(z, cells, role * blame[..., 0], self.layout)
        bound = of_heads + torch.einsum("mbd,mbdr,mbdr->m", role, blame, log_shares)
        value = torch.where(role > 0, role * torch.logsumexp(parts, -1), 0.0).sum((1, 2))
        return bound + (value - bound).detach()

    def _parts(self, of_heads: Tensor, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Log densities of the parts of each cell's mixture, and the parts' log shares.

        Parameters
        ----------
        of_heads : Tensor of shape (M, B, D)
            Log densities by the heads.
        h : Tensor of shape (M, B, H)
        x : Tensor of shape (M, B, D, ...)
            Cells with their roles.

        Returns
        -------
        two Tensors of shape (M, B, D, 1 + R)
            The heads first.
        """
        R = self.n_links
        gates = torch.baddbmm(self.g, h, self.G)
        gates = gates.view(*gates.shape[:-1], self.n_dimensions, R)
        given = (x[..., ROLE] == GIVEN)[..., self._sources(x.device)].all(-1)
        return with_links(of_heads, gates, x[..., FIRST_LINK : FIRST_LINK + R], given)

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

    def _hidden_units(self, x: Tensor, seed: Tensor | None) -> Tensor:
        s = torch.baddbmm(self.c, self._inputs(x, x[..., ROLE] == GIVEN), self.W)
        return self._hidden(s, seed)

    def _inputs(self, cells: Tensor, given: Tensor) -> Tensor:
        """What the network sees of the given cells, shape (M, B, all cells + numbers + D)."""
        M, B, D = given.shape
        layout = self.layout
        numbers = layout.numbers
        seen, code = given.to(cells), cells[..., CODE]
        known = torch.where(code >= 0, seen, 0.0)
        x = cells.new_zeros(M, B, layout.n_inputs - len(numbers) - D)
        x.scatter_(-1, layout.inputs + code.clamp_min(0).long(), known)
        t = cells[..., numbers, POSITION].clamp(-FARTHEST, FARTHEST)
        return torch.cat([x, t * seen[..., numbers], seen], -1)

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
            return h * _kept(bits, h, layer, self.dropout)

        for l in range(self.U.shape[1]):  # noqa: E741  the paper's letter of a layer
            inner = torch.baddbmm(self.u[:, l], units(s), self.U[:, l])
            s = torch.baddbmm(s, units(inner), self.Q[:, l])
        return units(s)

    # ---------------------------------------------------------------- densities

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
        Tensor of shape (M, B, P_d + R)
            Outputs of the head, then logits of the shares of the links.
        """
        return self.head(self.hidden(cells, given), d)

    def hidden(self, cells: Tensor, given: Tensor) -> Tensor:
        """Last hidden units given any cells, (M, B, H): with `head` the outputs for any column."""
        return self._hidden(self._told(cells, given), None)

    def head(self, h: Tensor, d: int) -> Tensor:
        """Outputs for one column, (M, B, P_d + R), from the last hidden units."""
        at, R = self.layout.outputs_of(d), self.n_links
        z = torch.baddbmm(self.b[..., at], h, self.V[..., at])
        if not R:
            return z
        own = slice(d * R, (d + 1) * R)
        return torch.cat([z, torch.baddbmm(self.g[..., own], h, self.G[..., own])], -1)

    def _told(self, cells: Tensor, given: Tensor) -> Tensor:
        """What enters the residual layers once some cells are given, (M, B, H)."""
        cells = cells if cells.ndim == 4 else cells.expand(self.n_models, *cells.shape)
        given = given if given.ndim == 3 else given.expand(self.n_models, *given.shape)
        return torch.baddbmm(self.c, self._inputs(cells, given), self.W)

    def _outputs_of(self, s: Tensor, d: int) -> Tensor:
        return self.head(self._hidden(s, None), d)

    def walk(self, order: Sequence[int], n: int) -> "Walk":
        """Begin to go along an order of the columns with n rows, none of whose cells is known."""
        return Walk(self, list(order), n)

    def log_conditionals(self, cells: Tensor, seen: Tensor, order: Sequence[int]) -> Tensor:
        """Terms log p(x_d | those observed before it in the order); 0 where not observed.

        Parameters
        ----------
        cells : Tensor of shape (B, D, 4), or (B, D, 5 + R) where there are links
        seen : bool Tensor of shape (B, D)
        order : permutation of 0..D-1

        Returns
        -------
        Tensor of shape (M, B, D)
        """
        terms = cells.new_zeros(self.n_models, *seen.shape)
        walk = self.walk(order, len(cells))
        for d, z in walk:
            column = walk.log_densities(z, cells[:, d])
            terms[..., d] = torch.where(seen[:, d], column, 0.0)
            walk.tell(cells[:, d], seen[:, d])
        return terms


class Walk:
    """Goes along an order of the columns, telling the network of one cell after the other.

    Iterating gives a column and its outputs, of shape (M, n, P_d + R); then `tell` says what it
    was.

    Attributes
    ----------
    given : bool Tensor of shape (n, D)
        Cells that have been told.
    """

    def __init__(self, module: AnyOrderModule, order: list[int], n: int) -> None:
        self.module, self.order, self.at = module, order, 0
        M, _, H = module.c.shape
        self.s = module.c.expand(M, n, H).clone()
        self.given = torch.zeros(n, module.n_dimensions, dtype=torch.bool, device=module.device)
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
        layout, R = self.layout_of(d), module.n_links
        z, gates = z[..., : layout.n_outputs], z[..., layout.n_outputs :]
        of_heads = heads.log_densities(z, cells[:, None, :N_FEATURES], layout)[..., 0]
        if not R:
            return of_heads
        given = self.given[:, module._sources(module.device)[d]].all(-1)
        terms = cells[:, FIRST_LINK : FIRST_LINK + R]
        return torch.logsumexp(with_links(of_heads, gates, terms, given)[0], -1)

    def layout_of(self, d: int) -> Layout:
        """The layout of one column's outputs alone."""
        module = self.module
        name = f"{module.device} {d}"
        if name not in module._layouts:
            module._layouts[name] = Layout([module.columns[d]], module.n_components, module.device)
        layout: Layout = module._layouts[name]
        return layout

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

    def know(self, cells: Tensor, given: Tensor) -> None:
        """Begin anew with some cells known.

        Parameters
        ----------
        cells : Tensor of shape (n, D, 4 or more)
        given : bool Tensor of shape (n, D)
        """
        self.s, self.given = self.module._told(cells, given), given.clone()

    def hidden(self, rows: Tensor | slice) -> Tensor:
        """Last hidden units of some rows, (M, k, H): with the module's `head` any outputs."""
        return self.module._hidden(self.s[:, rows], None)

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


def links_by_column(links: Sequence[Link], n_columns: int) -> tuple[tuple[Link, ...], ...]:
    """The links of each column."""
    return tuple(tuple(k for k in links if k.target == d) for d in range(n_columns))


def with_links(
    of_heads: Tensor, gates: Tensor, terms: Tensor, given: Tensor
) -> tuple[Tensor, Tensor]:
    """Log densities of a mixture's parts, heads first and then links, and their log shares.

    Parameters
    ----------
    of_heads : Tensor of shape (...)
    gates : Tensor of shape (..., R)
        Logits of the links' shares; that of the heads is 0.
    terms : Tensor of shape (..., R)
        What the links say (`Link.terms`).
    given : bool Tensor of shape (..., R)
        Whether all sources of a link are given.

    Returns
    -------
    two Tensors of shape (..., 1 + R)
    """
    there = given & (terms < UNAVAILABLE)
    lowest = torch.finfo(gates.dtype).min / 16  # finite, for gradients
    gates = torch.where(there, gates, lowest)
    log_shares = torch.cat([torch.zeros_like(gates[..., :1]), gates], -1).log_softmax(-1)
    terms = torch.where(there, terms, 0.0).expand(gates.shape)
    return torch.cat([of_heads[..., None], terms], -1) + log_shares, log_shares


def _kept(bits: Tensor, like: Tensor, layer: int, rate: float) -> Tensor:
    """Factors of dropout: 0 for a share `rate` of the units, else 1 / (1 - rate).

    From a hash of the row's number and the unit, eight bits of it for each of four layers, so that
    the same rows give the same factors on every device and nothing but the source of the rows has
    a random state.
    """
    kept = ((bits >> 8 * (layer % 4)) & 0xFF) >= round(rate * 2**8)
    return kept.to(like.dtype).mul_(1 / (1 - rate))


def _hashed(seed: Tensor, H: int, which: int) -> Tensor:
    """32 bits for each row and unit, as good as random, from the number of a row."""
    unit = torch.arange(H, dtype=torch.int32, device=seed.device) + which * H
    bits = (seed * 2**24).to(torch.int32) * 668265263 + unit * 374761393
    bits = (bits ^ (bits >> 15)) * 739982445
    return (bits ^ (bits >> 12)) * 695872825
