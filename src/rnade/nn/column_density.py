"""The distribution of one column of any kind, one for each row, as an object to ask."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from rnade.backends import heads
from rnade.backends.heads import LARGEST_LOG_SCALE, SMALLEST_LOG_SCALE, Layout
from rnade.columns.partition import CODE, WITHIN, ColumnCells, Measure
from rnade.nn.gaussians import Components
from rnade.typing import Array

# Halvings of a range: of whole numbers until one is left, of real ones down to 1e-14 of it.
_HALVINGS, _HALVINGS_OF_REALS = 60, 46
# Points of the smooth scale at which a mean is added up.
_POINTS = 64


@dataclass(frozen=True)
class Linked:
    """What a link (`rnade.columns.links`) says of one column, for each of B rows.

    Attributes
    ----------
    there : bool array of shape (B,)
        Whether it says anything.
    cells : array of shape (B, C), optional
        Shares of the column's cells.
    values : array of shape (B,), optional
        Or the very values.
    """

    there: NDArray[np.bool_]
    cells: Array | None = None
    values: Array | None = None

    def take(self, rows: NDArray[np.int64]) -> "Linked":
        """What it says of some rows."""
        parts = (None if part is None else part[rows] for part in (self.cells, self.values))
        return Linked(self.there[rows], *parts)


class ColumnDensity:
    """Distributions of one column, one for each of B rows; averages over M networks.

    Parameters
    ----------
    column : ColumnCells
    z : Tensor of shape (M, B, P or more)
        Outputs of the networks, in float64 on the CPU; beyond P the logits of the links' shares.
    n_components : int
    linked : sequence of Linked
    beside : Components, optional
        That have a share of each distribution.
    """

    def __init__(
        self,
        column: ColumnCells,
        z: Tensor,
        n_components: int,
        linked: Sequence[Linked] = (),
        beside: Components | None = None,
    ) -> None:
        self._n_components = n_components
        self._beside = beside = None if beside is None else beside.take(slice(None))
        C, K = column.n_cells, n_components * column.has_smooth
        self._outputs, self._links = z, tuple(linked)
        P = C + 3 * K
        z, gates = z[..., :P], z[..., P : P + len(linked)]
        self.column, self._z = column, z
        self.inside = math.exp(column.log_inside)
        there = torch.as_tensor(
            np.array([k.there for k in linked], bool).reshape(len(linked), len(self))
        )
        gates = torch.where(there.T, gates, -math.inf)
        parts = torch.cat([torch.zeros(*z.shape[:2], 1, dtype=z.dtype), gates], -1).softmax(-1)
        self._log_heads = parts[..., 0].log()
        shares = z[..., : C + K].softmax(-1) * parts[..., :1]
        # Averages over the networks; components stay apart, as a mixture of all of them.
        self.cells = shares[..., :C].mean(0).numpy()
        self._linked = np.zeros((len(self), C))
        exact, values = [], []
        for link, share in zip(linked, parts[..., 1:].mean(0).T.numpy(), strict=True):
            if link.cells is not None:
                self._linked += share[:, None] * link.cells
            elif link.values is not None:
                exact.append(share)
                values.append(np.where(link.there, link.values, 0.0))
        self.cells = self.cells + self._linked
        self._exact = np.array(exact).reshape(len(exact), len(self)).T
        self._values = np.array(values).reshape(len(exact), len(self)).T
        self._fractions = (shares[..., C:] / len(z)).permute(1, 0, 2).flatten(1).numpy()
        mu, log_scale = z[..., C + K : C + 3 * K].permute(1, 0, 2).chunk(2, -1)
        self._mu = mu.flatten(1).numpy()
        clamped = log_scale.clamp(SMALLEST_LOG_SCALE, LARGEST_LOG_SCALE)
        self._scale = clamped.flatten(1).exp().numpy()
        if beside is not None:
            rest, own = 1 - beside.share, beside.share * beside.log_weight.exp().numpy()
            self.cells, self._linked = rest * self.cells, rest * self._linked
            self._exact = rest * self._exact
            self._fractions = np.concatenate([rest * self._fractions, own], 1)
            self._mu = np.concatenate([self._mu, beside.mu.numpy()], 1)
            self._scale = np.concatenate([self._scale, beside.log_scale.exp().numpy()], 1)

    @cached_property
    def _layout(self) -> Layout:
        return Layout([self.column], self._n_components)

    def __len__(self) -> int:
        return self._z.shape[1]

    def take(self, rows: NDArray[np.int64]) -> "ColumnDensity":
        """The distributions of some rows, any of them also more than once."""
        index = torch.as_tensor(rows)
        linked = [link.take(rows) for link in self._links]
        beside = None if self._beside is None else self._beside.take(index)
        return ColumnDensity(
            self.column, self._outputs[:, index], self._n_components, linked, beside
        )

    def log_prob(self, x: Array) -> Array:
        """Log density, or log probability, of one value for each row."""
        encoded = self.column.encode(x)
        cells = torch.as_tensor(encoded)[:, None]
        inside = encoded[:, CODE] >= 0
        of_each = heads.log_prob(self._z, cells, self._layout)[..., 0]
        of_each = of_each + torch.where(torch.as_tensor(inside), self._log_heads, 0.0)
        of_all = torch.logsumexp(of_each, 0) - math.log(len(of_each))
        if self._beside is not None:
            of_all = self._beside.mixed(of_all, cells[:, 0], self._layout)
        of_heads = of_all.numpy()
        code = np.where(inside, encoded[:, CODE], 0).astype(np.int64)
        with np.errstate(divide="ignore"):
            of_links = self._linked[np.arange(len(self)), code] * np.exp(encoded[:, WITHIN])
            of_links += (self._exact * (self._values == np.asarray(x)[:, None])).sum(1)
            log_links = np.where(inside, np.log(self.inside * of_links), -np.inf)
        return np.asarray(np.logaddexp(of_heads, log_links))

    def probabilities(self) -> Array:
        """Probability of each level, (B, number of levels): those of a column of levels."""
        return np.asarray(
            self.inside
            * self.cells[:, self.column.cell_of_point]
            * np.exp(self.column.log_share)[None]
        )

    def cdf(self, x: Array, *, strictly: bool = False) -> Array:
        """Probability of a value of at most x, one for each row; of levels by their order.

        Parameters
        ----------
        x : array of shape (B,)
        strictly : bool
            Of a value below x instead.
        """
        column, x = self.column, np.asarray(x, dtype=np.float64)
        if column.measure != Measure.REAL and strictly:
            x = x - 1.0
        shares = column.cell_cdf(x)
        if strictly and column.measure == Measure.REAL:
            shares[:, column.n_intervals :] = column.atoms < x[:, None]
        total = (self.cells * shares).sum(1)
        if column.has_smooth:
            edge = column.position(x + 0.5 * (column.measure == Measure.INTEGER))
            total += (self._fractions * self._component_cdf(edge)).sum(1)
        total += (self._exact * (self._values <= x[:, None])).sum(1)
        if column.measure == Measure.LEVEL:
            known = len(column.points)
            return np.where(x >= known, 1.0, self.inside * total)
        return np.asarray(self.inside * total + self._outside_below(x))

    def transform(self, x: Array, generator: Generator) -> Array:
        """Probability integral transform of one value for each row; NaN stays NaN.

        A value that has a probability is given a random place in its range of probabilities.
        """
        values = np.where(np.isnan(x), 0.0, x)
        low, high = self.cdf(values, strictly=True), self.cdf(values)
        drawn = torch.rand(len(x), dtype=torch.float64, generator=generator).numpy()
        return np.where(np.isnan(x), np.nan, low + drawn * (high - low))

    def _component_cdf(self, t: Array) -> Array:
        """Distribution function of each component, cut off at the ends of the range."""
        first, last = self.column.ends
        low, high = ((end - self._mu) / self._scale for end in (first, last))
        at = (np.clip(t, first, last)[:, None] - self._mu) / self._scale
        # In logarithms: a component may lie far outside the range.
        with np.errstate(divide="ignore"):
            return np.asarray(np.exp(_log_mass(low, at) - _log_mass(low, high)).clip(max=1))

    def _outside_below(self, x: Array) -> Array:
        """Probability of numbers outside the range of the table that are at most x."""
        column = self.column
        whole = column.measure == Measure.INTEGER
        first, last = column.reach
        log_all, log_below, log_above = column.outside
        # Real tails have no atoms: there "at most x" and "below x" are the same.
        edge = x + 0.5 if whole else x
        below = np.where(edge < first, column.tail_beyond(edge, above=False), 1.0)
        above = np.where(edge > last, 1 - column.tail_beyond(edge, above=True), 0.0)
        return np.asarray(
            math.exp(log_all) * (np.exp(log_below) * below + np.exp(log_above) * above)
        )

    def quantile(self, q: float | Array) -> Array:
        """Smallest value with a distribution function of at least q, one for each row.

        Of levels the code. Values outside the range of the table are not given: a share that lies
        there gives its nearer end.
        """
        q = np.broadcast_to(np.asarray(q, dtype=np.float64), len(self))
        if not ((q > 0) & (q < 1)).all():
            raise ValueError(f"Expected q strictly between 0 and 1; got {q!r}.")
        column = self.column
        if column.measure == Measure.LEVEL:
            reached = np.cumsum(self.probabilities(), axis=1) >= q[:, None]
            last_level = len(column.points) - 1
            return np.asarray(np.where(reached.any(1), reached.argmax(1), last_level), np.float64)
        return quantile_of(self.cdf, column, q)

    def filling(self, how: str) -> Array:
        """One value for each row, to stand for it.

        Parameters
        ----------
        how : {"mean", "median", "likeliest"}
            Means of numbers; medians of numbers and of levels by their order; the likeliest level
            and the median of numbers. Levels have their likeliest with "mean" too.
        """
        if self.column.measure == Measure.LEVEL and how != "median":
            return self.mode()
        return self.mean() if how == "mean" else self.quantile(0.5)

    def mode(self) -> Array:
        """The likeliest level of each row, as its code."""
        return np.asarray(self.probabilities().argmax(1), np.float64)

    def mean(self) -> Array:
        """Mean of each row's number, given that it lies in the range of the table."""
        column = self.column
        total = self.cells @ column.cell_means()
        if column.has_smooth:
            # At the middles of equal shares of each component, mapped back to numbers.
            shares = (np.arange(_POINTS) + 0.5) / _POINTS
            t = _draw(column.ends, self._mu[..., None], self._scale[..., None], shares)
            x = column.at_position(t)
            if column.measure == Measure.INTEGER:  # a place stands for the number around it
                x = column.clipped(x)
            x = x.mean(-1)
            total = total + (self._fractions * x).sum(1)
        return np.asarray(total + (self._exact * self._values).sum(1))

    def sample(self, generator: Generator) -> Array:
        """One value for each row: a level of the table, a number of its range."""
        B, C = self.cells.shape
        column = self.column

        def uniform() -> Array:
            return np.asarray(torch.rand(B, dtype=torch.float64, generator=generator).numpy())

        shares = np.concatenate([self.cells, self._fractions, self._exact], axis=1)
        ends = np.cumsum(shares, axis=1)
        entry = (ends < (uniform() * ends[:, -1])[:, None]).sum(1).clip(max=shares.shape[1] - 1)
        v = uniform()
        x = np.empty(B)
        in_cell = entry < C
        x[in_cell] = column.draw_within(entry[in_cell], v[in_cell])
        n_smooth = C + self._fractions.shape[1]
        rows = np.flatnonzero(entry >= n_smooth)
        x[rows] = self._values[rows, entry[rows] - n_smooth]
        rows = np.flatnonzero(~in_cell & (entry < n_smooth))
        if len(rows):
            k = entry[rows] - C
            mu, scale = self._mu[rows, k], self._scale[rows, k]
            x[rows] = column.clipped(column.at_position(_draw(column.ends, mu, scale, v[rows])))
        return x


def quantile_of(cdf: Callable[[Array], Array], column: ColumnCells, q: Array) -> Array:
    """Smallest numbers with a distribution function of at least q, by halving the range.

    Parameters
    ----------
    cdf : callable
        Of arrays of shape (B,), one value for each distribution.
    column : ColumnCells
        Of numbers.
    q : array of shape (B,)
    """
    first, last = column.reach
    whole = column.measure == Measure.INTEGER
    low = np.full(len(q), math.ceil(first) if whole else first)
    high = np.full(len(q), math.floor(last) if whole else last)
    for _ in range(_HALVINGS if whole else _HALVINGS_OF_REALS):
        middle = np.floor((low + high) / 2) if whole else (low + high) / 2
        below = cdf(middle) < q
        low = np.where(below, np.minimum(middle + 1, high) if whole else middle, low)
        high = np.where(below, high, middle)
        if whole and (low >= high).all():
            break
    # Halving comes near an atom, never to it.
    for atom in column.atoms:
        near = np.isclose(high, atom, rtol=1e-12, atol=1e-12 * max(1.0, last - first))
        high = np.where(near, atom, high)
    return np.asarray(high)


def _log_logistic(u: Array) -> Array:
    """Log of the standard logistic distribution function."""
    return -np.logaddexp(0.0, -u)


def _log_mass(low: Array, high: Array) -> Array:
    """Log of the standard logistic mass between low and high (`heads.log_mass` in NumPy)."""
    between = np.log(-np.expm1(np.minimum(low - high, 0.0)))
    return np.asarray(_log_logistic(high) + _log_logistic(-low) + between)


def _draw(ends: tuple[float, float], mu: Array, scale: Array, share: Array) -> Array:
    """Places at given shares of logistic components that are cut off at the ends.

    In logarithms, and seen from the side on which the component is a left tail, so that it holds
    for components far outside the ends.
    """
    first, last = ends
    low, high = (first - mu) / scale, (last - mu) / scale
    turned = low + high > 0
    a, b = np.where(turned, -high, low), np.where(turned, -low, high)
    v = np.where(turned, 1 - share, share)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_u = np.logaddexp(_log_logistic(a) + np.log1p(-v), _log_logistic(b) + np.log(v))
        u = log_u - np.log(-np.expm1(np.minimum(log_u, 0.0)))
    u = np.clip(u, a, b)
    return np.asarray(np.clip(mu + scale * np.where(turned, -u, u), first, last))
