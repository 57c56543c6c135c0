"""Columns cut into cells as ONNX graphs: what networks are told of values, and their densities.

The same formulas as `rnade.columns.partition`, `rnade.columns.links` and `rnade.backends.heads`,
to which tests hold them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnade.backends.heads import LARGEST_LOG_SCALE, SMALLEST_LOG_SCALE
from rnade.columns.links import Link
from rnade.columns.partition import TAIL, ColumnCells, Measure
from rnade.onnx.graph import Graph, Value

# A logit of what is not there: far below any other, and finite.
NOWHERE = -1e30


@dataclass(frozen=True)
class Cells:
    """What is told of the values of one column, each of shape (B,); see `ColumnCells.encode`.

    Attributes
    ----------
    value : Value
    code, within, position, log_width : Value
        Code as float64, -1 for none. Log width 0 where the value is not smooth.
    smooth, seen : Value
        Of bool: whether it is on the smooth scale; whether the cell is observed.
    """

    value: Value
    code: Value
    within: Value
    position: Value
    log_width: Value
    smooth: Value
    seen: Value


def encode(g: Graph, x: Value, column: ColumnCells) -> Cells:
    """What networks are told of values, (B,); NaN is a cell that is not observed."""
    seen = ~g("IsNaN", x)
    x = g.where(seen, x, 0.0)
    zero = x * 0.0
    if column.measure == Measure.LEVEL:
        known = (x >= 0.0) & (x < float(len(column.points)))
        at = g.where(known, x, 0.0).whole()
        code = g.where(known, _looked_up(g, column.cell_of_point, at), -1.0)
        within = g.where(known, _looked_up(g, column.log_share, at), column.outside[0])
        return Cells(x, code, within, zero, zero, zero > 1.0, seen)
    code, within, log_width = zero - 1.0, zero, zero
    position, smooth = _position(g, x, column), zero > 1.0
    if column.has_smooth:
        smooth = (x >= column.edges[0]) & (x <= column.edges[-1])
        position, own_within, own_width, cell = _smooth(g, x, column)
        code = g.where(smooth, cell, -1.0)
        within = g.where(smooth, own_within, 0.0)
        log_width = g.where(smooth, own_width, 0.0)
    for i, atom in enumerate(column.atoms):
        here = x.equals(np.float64(atom))
        code = g.where(here, float(column.n_intervals + i), code)
        within = g.where(here, 0.0, within)
        smooth = smooth & ~here
    outside = _log_outside(g, x, column)
    within = g.where(code < 0.0, outside, within)
    return Cells(x, code, within, position, log_width, smooth, seen)


def _looked_up(g: Graph, table: Any, at: Value) -> Value:
    return g("Gather", np.asarray(table, np.float64), at, axis=0)


def _position(g: Graph, x: Value, column: ColumnCells) -> Value:
    centre, spread, location, scale = column.scale
    y: Value = (x - float(centre)) / float(spread)
    # The inverse hyperbolic sine, which runtimes do not have in float64.
    size = y.abs()
    return (g("Sign", y) * (size + g("Sqrt", size * size + 1.0)).log() - float(location)) / float(
        scale
    )


def _log_slope(g: Graph, x: Value, column: ColumnCells) -> Value:
    centre, spread, _, scale = column.scale
    y: Value = (x - float(centre)) / float(spread)
    return (y * y + 1.0).log() * -0.5 - math.log(scale * spread)


def _smooth(g: Graph, x: Value, column: ColumnCells) -> tuple[Value, Value, Value, Value]:
    """Place, log share of the cell, log width and cell of numbers inside the range."""
    below = (x.unsqueeze(-1) >= column.edges).real().sum()
    cell = (below - 1.0).clip(0.0, column.n_intervals - 1.0)
    if column.measure == Measure.REAL:
        log_width = _log_slope(g, x, column)
        widths = np.log(np.diff(column.position(column.edges)))
        within = log_width - _looked_up(g, widths, cell.whole())
        return _position(g, x, column), within, log_width, cell
    low, high = _position(g, x - 0.5, column), _position(g, x + 0.5, column)
    before = (x.unsqueeze(-1) > column.points).real().sum()
    at = before.clip(0.0, len(column.points) - 1.0).whole()
    known = _looked_up(g, column.points, at).equals(x)
    share = _looked_up(g, column.log_share, at)
    within = g.where(known, share, _looked_up(g, column.log_even, cell.whole()))
    return (low + high) * 0.5, within, (high - low).log(), cell


def _log_outside(g: Graph, x: Value, column: ColumnCells) -> Value:
    """Log density or probability of numbers outside the range of the table."""
    sides = []
    for above in (False, True):
        t_edge = float(column.position(np.asarray(column.reach[above])))
        room = abs(float(column.position(column.bounds[int(above)])) - t_edge)
        slope = _log_slope(g, x, column)
        if column.measure == Measure.INTEGER:
            away = 0.5 if above else -0.5
            near = (_position(g, x - away, column) - t_edge).abs()
            far = (_position(g, x + away, column) - t_edge).abs()
            narrow = (far - near) < 1e-9
            width = g.where(narrow, 1.0, far - near)
            exact = near * (-1 / TAIL) + _log_1m_exp(g, width / TAIL)
            log_p = g.where(narrow, near * (-1 / TAIL) - math.log(TAIL) + slope, exact)
        else:
            far = (_position(g, x, column) - t_edge).abs()
            log_p = far * (-1 / TAIL) - math.log(TAIL) + slope
        cut = math.log(-math.expm1(-room / TAIL)) if room > 0 else 0.0
        sides.append(log_p - cut + float(column.outside[0] + column.outside[1 + int(above)]))
    found = g.where(x > column.reach[0], sides[1], sides[0])
    allowed = (x >= column.bounds[0]) & (x <= column.bounds[1])
    return g.where(allowed, found, -np.inf)


def _log_1m_exp(g: Graph, d: Value) -> Value:
    """log(1 - exp(-d)) of d > 0; by its series where the difference would lose digits."""
    series = d * (1.0 - d * (0.5 - d * (1 / 6 - d / 24.0)))
    return g.where(d < 1e-3, series, 1.0 - (-d).exp()).log()


def _log_mass(g: Graph, low: Value, high: Value) -> Value:
    """Log of the standard logistic mass between low and high."""
    difference = g("Max", high - low, np.float64(1e-30))
    return -(g("Softplus", -high) + g("Softplus", low)) + _log_1m_exp(g, difference)


def log_terms(
    g: Graph, z: Value, cells: Sequence[Cells], columns: Sequence[ColumnCells], K: int
) -> Value:
    """Log densities by heads, (R, B): of R columns, each by its own outputs.

    Parameters
    ----------
    z : Value of shape (R, B, C + 3 K)
        C logits of cells, and K logits, means and log scales of components: as many as the
        largest column has, `NOWHERE` where there are fewer.
    cells : sequence of R Cells
    columns : sequence of R ColumnCells
    K : int
        0 where no column has a smooth scale.
    """
    C = max(column.n_cells for column in columns)

    def each(values: Any) -> Any:
        return np.asarray(list(values), np.float64)[:, None]

    code, within = g.stack([c.code for c in cells]), g.stack([c.within for c in cells])
    inside = code >= 0.0
    at = g("Max", code, 0.0).whole().unsqueeze(-1)
    chosen = g("GatherElements", z.part(0, C), at, axis=2).sum()
    core = chosen + g.where(inside, within, 0.0)
    if K:
        smooth = g.stack([c.smooth for c in cells])
        t = g.stack([c.position for c in cells]).unsqueeze(-1)
        log_width = g.stack([c.log_width for c in cells]).unsqueeze(-1)
        parts = z.part(C, C + K) + component_log_terms(
            g, z.part(C + K, C + 3 * K), t, log_width, columns, K
        )
        core = g.where(smooth, g.logaddexp(core, parts.logsumexp()), core)
    core = core - z.part(0, C + K).logsumexp() + each(c.log_inside for c in columns)
    return g.where(inside, core, within)


def component_log_terms(
    g: Graph, z: Value, t: Value, log_width: Value, columns: Sequence[ColumnCells], K: int
) -> Value:
    """Log densities or masses of values under each component, (R, B, K)."""

    def each(values: Any, kind: Any = np.float64) -> Any:
        return g.constant(np.asarray(list(values), kind)[:, None, None])

    there = each((column.has_smooth for column in columns), np.bool_)
    whole = each((column.measure == Measure.INTEGER for column in columns), np.bool_)
    mu = g.where(there, z.part(0, K), 0.0)
    log_scale = g.where(there, z.part(K, 2 * K).clip(SMALLEST_LOG_SCALE, LARGEST_LOG_SCALE), 0.0)
    per_unit = (-log_scale).exp()
    u = (t - mu) * per_unit
    half = g.where(whole, log_width.exp() * per_unit * 0.5, 1.0)
    mass = _log_mass(g, u - half, u + half)
    size = u.abs()
    density = -size - g("Softplus", -size) * 2.0 - log_scale + log_width
    first, last = (each(column.ends[end] for column in columns) for end in (0, 1))
    kept = _log_mass(g, (first - mu) * per_unit, (last - mu) * per_unit)
    return g.where(whole, mass, density) - kept


def link_terms(
    g: Graph, link: Link, cells: Sequence[Cells], columns: Sequence[ColumnCells]
) -> tuple[Value, Value]:
    """Log densities that a link gives its column's values, and where it says anything, (B,)."""
    column, own = columns[link.target], cells[link.target]
    sources = [int(d) for d in link.sources]
    there = own.seen & (own.code >= 0.0)
    for d in sources:
        there = there & cells[d].seen
    if link.is_table:
        # The first row is of values that are in no cell of the source.
        counts = np.concatenate([np.zeros((1, link.counts.shape[1])), link.counts])
        shares = (counts + link.prior * column.shares) / (
            counts.sum(1, keepdims=True) + link.prior
        )
        at = (cells[sources[0]].code + 1.0) * float(shares.shape[1]) + g("Max", own.code, 0.0)
        term = _looked_up(g, np.log(shares).ravel(), at.whole()) + own.within
    else:
        x: Any = 0.0
        for d, sign in zip(sources, link.signs, strict=True):
            x = cells[d].value * float(sign) + x
        first, last = column.reach
        there = there & (x > first) & (x < last) & x.equals(g("Round", x))
        term = g.where(x.equals(own.value), 0.0, -np.inf)
    return g.where(there, term + column.log_inside, 0.0), there
