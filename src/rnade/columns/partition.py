"""Columns of any kind as cells: what a network is told of a value, and what it may predict.

The values of a column are cut into cells: levels, single values that many rows share, intervals
that hold about as many rows each. Inside a cell values are spread as they are in the table, so
that a softmax over cells is a density of the column; heaps at round numbers cost nothing. Beside
the cells a number has a smooth scale t, on which a mixture says what cells are too coarse for.

Base measures: a level or an integer has a probability, an atom of a real column a probability, any
other real value a density per unit of the column.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rnade.columns.cutting import cut_real, cut_whole, distinct, smooth_scale
from rnade.typing import Array

# What is told of each value (see `ColumnCells.encode`), in this order on the last axis.
CODE, WITHIN, POSITION, LOG_WIDTH = range(4)
N_FEATURES = 4

# Intervals of a number: so many rows each, within these numbers of cells.
ROWS_OF_A_CELL, FEWEST_CELLS, MOST_CELLS = 40, 6, 32
# Larger tables have more, with more rows each: real columns, which have a mixture for what is
# finer, fewer than whole numbers, which may be heaped.
ROWS_OF_A_FURTHER_CELL, MOST_FURTHER_CELLS = {True: 100, False: 150}, {True: 128, False: 48}
# Levels with a cell of their own; rarer ones share one, by their counts.
MOST_LEVEL_CELLS = 200
# Probability of another level where there can be none: no density is 0.
SMALLEST_NEW = 1e-9
# Whole numbers beyond this are taken as real: float64 does not hold the halves between them.
LARGEST_WHOLE = 2.0**51
# How fast the density of numbers outside the range of the table falls, in units of t.
TAIL = 0.5


class Measure(IntEnum):
    """What a column's values are measured by."""

    LEVEL = 0
    INTEGER = 1
    REAL = 2


@dataclass(frozen=True, eq=False)
class ColumnCells:
    """One column cut into cells, with the smooth scale of a number.

    Attributes
    ----------
    measure : Measure
    scale : array of shape (4,)
        Centre and spread of a number, then location and scale after the inverse hyperbolic sine:
        t = (asinh((x - centre) / spread) - location) / scale. A logarithm for large values of
        either sign, and linear near the centre.
    edges : array of shape (I + 1,)
        Of the I intervals of a number; half a unit beside whole numbers.
    atoms : array of shape (A,)
        Single values of a real column that have a probability; cells I to I + A - 1.
    points : array of shape (n,)
        Whole numbers or levels of the table, ascending.
    cell_of_point, log_share : arrays of shape (n,)
        The cell of each, and the logarithm of its share of the cell.
    log_even : array of shape (I,)
        Logarithm of the share of a whole number of the interval that is not in the table.
    shares : array of shape (I + A,), or of the number of cells of levels
        Share of the table's rows in each cell, smoothed.
    outside : array of shape (3,)
        Logarithms of the probability kept for levels not seen, or for numbers outside the range of
        the table; and of its shares below and above the range.
    bounds : array of shape (2,)
        What no value can cross, as the user said; infinite if nothing was.
    """

    measure: int
    scale: Array
    edges: Array
    atoms: Array
    points: Array
    cell_of_point: NDArray[np.int64]
    log_share: Array
    log_even: Array
    shares: Array
    outside: Array
    bounds: Array

    # ---------------------------------------------------------------- measuring a table

    @classmethod
    def of_levels(
        cls,
        codes: Array,
        n_levels: int,
        *,
        closed: bool = False,
        weights: Array | None = None,
    ) -> "ColumnCells":
        """Cut a column of levels, given as codes 0, 1, ... of those that are known.

        Parameters
        ----------
        codes : array of shape (N,)
        n_levels : int
        closed : bool
            Whether no other level can ever come, as of true and false.
        weights : array of shape (N,), optional
            Of the rows; their mean counts as one row.
        """
        where = codes.astype(np.int64)
        own = None if weights is None else weights / weights.mean()
        counts = np.bincount(where, own, minlength=n_levels)[:n_levels]
        cell = np.arange(n_levels)
        smoothed = counts + 0.5
        log_share = np.zeros(n_levels)
        if n_levels > MOST_LEVEL_CELLS:
            by_count = np.argsort(-counts, kind="stable")
            cell[by_count] = np.minimum(cell, MOST_LEVEL_CELLS - 1)
            rare = by_count[MOST_LEVEL_CELLS - 1 :]
            log_share[rare] = np.log(smoothed[rare] / smoothed[rare].sum())
        shares = np.bincount(cell, smoothed)
        # Good and Turing: as many new levels are to come as there are levels seen once.
        once = int((np.bincount(where, minlength=n_levels)[:n_levels] == 1).sum())
        new = SMALLEST_NEW if closed else (once + 0.5) / (len(codes) + 1 + once)
        none = np.empty(0)
        return cls(
            Measure.LEVEL,
            np.array([0.0, 1.0, 0.0, 1.0]),
            none,
            none,
            np.arange(n_levels, dtype=np.float64),
            cell,
            log_share,
            none,
            shares / shares.sum(),
            np.log([new, 0.5, 0.5]),
            np.array([-np.inf, np.inf]),
        )

    @classmethod
    def of_numbers(
        cls,
        x: Array,
        *,
        whole: bool,
        atoms: Sequence[float] = (),
        low: float | None = None,
        high: float | None = None,
        weights: Array | None = None,
        n_cells: int | None = None,
    ) -> "ColumnCells":
        """Cut a column of numbers.

        Parameters
        ----------
        x : array of shape (N,)
            Observed values; a column without any is as if it had a 0.
        whole : bool
            Whether they are integers, which have probabilities.
        atoms : sequence of float
            Values of a real column that have a probability.
        low, high : float, optional
            What no value can cross.
        weights : array of shape (N,), optional
            Of the rows; their mean counts as one row.
        n_cells : int, optional
            Of the intervals, at most; by default it goes by the rows.
        """
        x = np.asarray(x, dtype=np.float64)
        bounds = np.array([-np.inf if low is None else low, np.inf if high is None else high])
        if not len(x):
            x, weights = np.clip(np.zeros(1), *bounds), None
        w = np.ones(len(x)) if weights is None else weights / weights.mean()
        whole = whole and float(np.abs(x).max()) < LARGEST_WHOLE
        N, own = len(x), np.asarray(sorted(atoms), dtype=np.float64)
        apart = ~np.isin(x, own)
        smooth = x[apart]
        scale = smooth_scale(smooth if len(smooth) else x)
        n_cells = n_cells or max(
            FEWEST_CELLS,
            min(N // ROWS_OF_A_CELL, MOST_CELLS),
            min(N // ROWS_OF_A_FURTHER_CELL[whole], MOST_FURTHER_CELLS[whole]),
        )
        none = np.empty(0)
        points, cell_of_point, log_share, log_even = none, none.astype(np.int64), none, none
        if whole:
            found = cut_whole(smooth, n_cells, w[apart])
            edges, points, cell_of_point, log_share, log_even = found
        else:
            edges = cut_real(smooth, max(1, round(n_cells * len(smooth) / N)), bounds)
            # Between an atom and the other values there may be some to come.
            edges = np.unique(np.concatenate([own[:1], edges, own[-1:]]))
            edges = distinct(edges, scale) if len(edges) > 1 else np.empty(0)
        n_intervals = max(0, len(edges) - 1)
        counts = np.zeros(n_intervals + len(own))
        if n_intervals:
            at = np.clip(np.searchsorted(edges, smooth, side="right") - 1, 0, n_intervals - 1)
            counts[:n_intervals] = np.bincount(at, w[apart], minlength=n_intervals)
        counts[n_intervals:] = [w[x == a].sum() for a in own]
        shares = counts + 0.5
        # Of N + 1 rows any is as likely to be the smallest or the largest as another.
        sides = np.array([bounds[0] < _end(edges, own, 0), bounds[1] > _end(edges, own, -1)])
        beyond = 2 / (N + 2) * sides.any()
        sides = sides / sides.sum() if sides.any() else np.array([0.5, 0.5])
        with np.errstate(divide="ignore"):
            outside = np.log(np.concatenate([[beyond], sides]))
        return cls(
            Measure.INTEGER if whole else Measure.REAL,
            scale,
            edges,
            own,
            points,
            cell_of_point,
            log_share,
            log_even,
            shares / shares.sum(),
            outside,
            bounds,
        )

    # ---------------------------------------------------------------- what it is

    @property
    def n_intervals(self) -> int:
        """I."""
        return max(0, len(self.edges) - 1)

    @property
    def n_cells(self) -> int:
        """Of all kinds."""
        return len(self.shares)

    @property
    def has_smooth(self) -> bool:
        """Whether a mixture on the smooth scale stands beside the cells."""
        return self.n_intervals > 0

    @property
    def log_inside(self) -> float:
        """Logarithm of the probability of what the table holds: known levels, its range."""
        return math.log(-math.expm1(self.outside[0]))

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the range on the smooth scale; (0, 1) where there is none."""
        if not self.has_smooth:
            return 0.0, 1.0
        first, last = self.position(self.edges[[0, -1]])
        return float(first), float(last)

    def position(self, x: Array) -> Array:
        """Where numbers are on the smooth scale."""
        centre, spread, location, scale = self.scale
        return np.asarray((np.arcsinh((x - centre) / spread) - location) / scale)

    def at_position(self, t: Array) -> Array:
        """Numbers at places of the smooth scale."""
        centre, spread, location, scale = self.scale
        return np.asarray(centre + spread * np.sinh(location + scale * t))

    def _log_slope(self, x: Array) -> Array:
        """Logarithm of dt / dx."""
        centre, spread, _, scale = self.scale
        return np.asarray(-np.log(scale * spread) - 0.5 * np.log1p(((x - centre) / spread) ** 2))

    # ---------------------------------------------------------------- values to features and back

    def encode(self, x: Array) -> Array:
        """What a network is told of values, and what their density depends on.

        Parameters
        ----------
        x : array of shape (N,)
            Numbers, or codes of levels (any other code is a level not seen).

        Returns
        -------
        array of shape (N, 4)
            The cell (-1 for none); the logarithm of the value's share of its cell, or, where it
            has none, of its probability or density; its place on the smooth scale; and the
            logarithm of its width there, of a real value that of dt / dx (-inf: not smooth).
        """
        x = np.asarray(x, dtype=np.float64)
        found = np.empty((len(x), N_FEATURES))
        if self.measure == Measure.LEVEL:
            known = (x >= 0) & (x < len(self.points))
            at = np.where(known, x, 0).astype(np.int64)
            found[:, CODE] = np.where(known, self.cell_of_point[at], -1)
            found[:, WITHIN] = np.where(known, self.log_share[at], self.outside[0])
            found[:, POSITION], found[:, LOG_WIDTH] = 0.0, -np.inf
            return found
        found[:, CODE], found[:, WITHIN] = -1, 0.0
        found[:, POSITION] = self.position(x)
        found[:, LOG_WIDTH] = -np.inf
        if self.has_smooth:
            self._encode_smooth(x, found)
        for i, atom in enumerate(self.atoms):
            here = x == atom
            found[here, CODE], found[here, WITHIN] = self.n_intervals + i, 0.0
            found[here, LOG_WIDTH] = -np.inf
        gone = found[:, CODE] < 0
        if gone.any():
            found[gone, WITHIN] = self._log_outside(x[gone])
        return found

    def _encode_smooth(self, x: Array, found: Array) -> None:
        inside = (x >= self.edges[0]) & (x <= self.edges[-1])
        cell = np.searchsorted(self.edges, x, side="right") - 1
        cell = np.clip(cell, 0, self.n_intervals - 1)
        if self.measure == Measure.INTEGER:
            low, high = self.position(x - 0.5), self.position(x + 0.5)
            found[:, POSITION] = (low + high) / 2
            with np.errstate(divide="ignore"):  # far outside, where it is not used
                log_width = np.log(high - low)
            at = np.clip(np.searchsorted(self.points, x), 0, len(self.points) - 1)
            known = self.points[at] == x
            within = np.where(known, self.log_share[at], self.log_even[cell])
        else:
            log_width = self._log_slope(x)
            width = np.diff(self.position(self.edges))
            within = log_width - np.log(width[cell])
        found[inside, CODE], found[inside, WITHIN] = cell[inside], within[inside]
        found[inside, LOG_WIDTH] = log_width[inside]

    @property
    def reach(self) -> tuple[float, float]:
        """Ends of the range of the table, atoms among it; of integers half a unit beside them."""
        return _end(self.edges, self.atoms, 0), _end(self.edges, self.atoms, -1)

    def tail_beyond(self, x: Array, *, above: bool) -> Array:
        """Share of the numbers on one side of the range that lie beyond x, away from the range.

        It falls exponentially on the smooth scale, from 1 at the end of the range to 0 at a bound.
        """
        edge, bound = self.reach[above], self.bounds[int(above)]
        t_edge = self.position(np.asarray(edge))
        room = np.abs(self.position(np.asarray(bound)) - t_edge)
        t = np.minimum(np.abs(self.position(x) - t_edge), room)
        with np.errstate(invalid="ignore"):
            left = np.exp(-t / TAIL) - np.exp(-room / TAIL)
            return np.asarray(np.where(room > 0, left / -np.expm1(-room / TAIL), 0.0))

    def _log_outside(self, x: Array) -> Array:
        """Log density or probability of numbers outside the range of the table."""
        found = np.empty(len(x))
        for above in (False, True):
            here = (x > self.reach[0]) == above
            own = x[here]
            t_edge = self.position(np.asarray(self.reach[above]))
            room = np.abs(self.position(self.bounds[int(above) : int(above) + 1]) - t_edge)
            if self.measure == Measure.INTEGER:
                away = 0.5 if above else -0.5
                near = np.abs(self.position(own - away) - t_edge)
                far = np.abs(self.position(own + away) - t_edge)
                # Far out a unit is too narrow for a difference, and even.
                narrow = far - near < 1e-9
                width = np.where(narrow, 1.0, far - near)
                exact = -near / TAIL + np.log(-np.expm1(-width / TAIL))
                even = -near / TAIL - math.log(TAIL) + self._log_slope(own)
                log_p = np.where(narrow, even, exact)
            else:
                log_p = -np.abs(self.position(own) - t_edge) / TAIL - math.log(TAIL)
                log_p += self._log_slope(own)
            # What a bound cuts off the tail goes to what is left of it.
            log_p -= np.log(-np.expm1(-np.where(room > 0, room, np.inf) / TAIL))
            allowed = (own >= self.bounds[0]) & (own <= self.bounds[1])
            log_side = self.outside[1 + int(above)]
            found[here] = np.where(allowed, self.outside[0] + log_side + log_p, -np.inf)
        return found

    def draw_within(self, cell: NDArray[np.int64], uniform: Array) -> Array:
        """Draw values of given cells, from one uniform number each."""
        x = np.empty(len(cell))
        if self.measure == Measure.REAL:
            smooth = cell < self.n_intervals
            x[~smooth] = self.atoms[cell[~smooth] - self.n_intervals]
            at, t = cell[smooth], self.position(self.edges)
            inside = self.at_position(t[at] + uniform[smooth] * (t[at + 1] - t[at]))
            x[smooth] = np.clip(inside, self.edges[at], self.edges[at + 1])
            return x
        for c in np.unique(cell):
            here = cell == c
            x[here] = self._quantile_within(int(c), uniform[here])
        return x

    def _quantile_within(self, cell: int, q: Array) -> Array:
        """Quantiles of the whole numbers or levels of a cell."""
        values, extra, even = self._inside(cell)
        # First the share that all whole numbers of the cell have alike, then the rest.
        first = self.edges[cell] + 0.5 if even else 0.0
        width = self.edges[cell + 1] - self.edges[cell] if even else 0.0
        spread, ends = even * width, np.cumsum(extra)
        total = spread + (ends[-1] if len(ends) else 0.0)
        mass = np.asarray(q) * total
        at = np.searchsorted(ends, mass - spread, side="right")
        chosen = values[np.minimum(at, len(values) - 1)] if len(values) else np.full(len(q), first)
        if not even:
            return np.asarray(chosen)
        evenly = first + np.minimum(np.floor(mass / even), width - 1)
        return np.where(mass < spread, evenly, chosen)

    def _inside(self, cell: int) -> tuple[Array, Array, float]:
        """Values of a cell in the table, what they hold beyond others, and what any holds."""
        own = self.cell_of_point == cell
        even = math.exp(self.log_even[cell]) if self.measure == Measure.INTEGER else 0.0
        return self.points[own], np.maximum(np.exp(self.log_share[own]) - even, 0.0), even

    def clipped(self, x: Array) -> Array:
        """Numbers from the smooth scale: whole where they must be, inside the range."""
        if self.measure == Measure.INTEGER:
            return np.clip(np.round(x), self.edges[0] + 0.5, self.edges[-1] - 0.5)
        return np.clip(x, self.edges[0], self.edges[-1])

    def cell_cdf(self, x: Array) -> Array:
        """Share of each cell that is at most x, (N, n_cells)."""
        x = np.asarray(x, dtype=np.float64)[:, None]
        if self.measure == Measure.REAL:
            parts = [(self.atoms <= x).astype(np.float64)]
            if self.has_smooth:
                t, edges = self.position(x), self.position(self.edges)
                parts.insert(0, np.clip((t - edges[:-1]) / np.diff(edges), 0, 1))
            return np.concatenate(parts, axis=1)
        found = np.empty((len(x), self.n_cells))
        for cell in range(self.n_cells):
            values, extra, even = self._inside(cell)
            ends = np.concatenate([[0.0], np.cumsum(extra)])
            found[:, cell] = ends[np.searchsorted(values, x[:, 0], side="right")]
            if even:
                first, last = self.edges[cell : cell + 2]
                found[:, cell] += even * np.floor(np.clip(x[:, 0] + 0.5, first, last) - first)
        return found

    def cell_means(self) -> Array:
        """Mean of the values of each cell of numbers, of shape (n_cells,)."""
        if self.measure == Measure.REAL:
            if not self.has_smooth:
                return self.atoms
            # Even on the smooth scale: the mean of a hyperbolic sine between the edges.
            centre, spread = self.scale[:2]
            a = np.arcsinh((self.edges - centre) / spread)
            means = centre + spread * np.diff(np.cosh(a)) / np.diff(a)
            return np.concatenate([np.clip(means, self.edges[:-1], self.edges[1:]), self.atoms])
        means = np.empty(self.n_cells)
        for cell in range(self.n_cells):
            values, extra, even = self._inside(cell)
            first, last = self.edges[cell : cell + 2] if even else (0.0, 0.0)
            means[cell] = values @ extra + even * (last - first) * (first + last) / 2
        return means

    # ---------------------------------------------------------------- files

    def arrays(self) -> dict[str, Array]:
        """All that it holds, as arrays."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> "ColumnCells":
        """What `arrays` gave."""
        return cls(**{**arrays, "measure": int(arrays["measure"])})


def _end(edges: Array, atoms: Array, at: int) -> float:
    """First or last value of the range: of the intervals and the atoms together."""
    ends = [values[at] for values in (edges, atoms) if len(values)]
    return float(min(ends) if at == 0 else max(ends))
