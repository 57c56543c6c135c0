"""Questions to the density of a table: of some columns given others, of missing cells, of ranges.

Values are numbers and codes of levels as `TableDensity` takes them, NaN where a cell is not known.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from rnade.columns.partition import ColumnCells, Measure
from rnade.nn.column_density import ColumnDensity
from rnade.nn.ensemble import log_average
from rnade.nn.mixed_heads import FIRST_LINK
from rnade.nn.table import TableDensity
from rnade.typing import Array

# Values of ranges that are looked at one by one, and otherwise the draws that stand for a range.
MOST_VALUES, RANGE_DRAWS = 512, 512
# Draws, for each row, of several ranges given the row.
DRAWS_OF_A_ROW = 32
# Candidates for each row drawn given several ranges, of which as many are kept by their weights.
CANDIDATES = 8
# So near to 0 and 1 quantiles are taken.
_SMALLEST = 1e-12

Range = tuple[float, float]


@torch.no_grad()
def log_densities(table: TableDensity, X: Array, given: NDArray[np.bool_]) -> Tensor:
    """Log density along each order of what is observed of a row, given some of its cells.

    The given cells come first in every order.

    Parameters
    ----------
    table : TableDensity
    X : array of shape (B, D)
    given : bool array that broadcasts to (B, D)
        Cells; where they are missing nothing is given.

    Returns
    -------
    Tensor of shape (R, B)
        In float64, on the CPU.
    """
    parts, size = [], table._rows_at_a_time()
    where = torch.as_tensor(np.array(np.broadcast_to(given, X.shape)))
    for x, first in zip(torch.split(table.cells(X), size), torch.split(where, size), strict=True):
        cells, seen, known = x[..., :-1], x[..., -1] > 0, first.to(table.device)
        asked = seen & ~known
        some = asked.any(0).tolist()
        beside = table.beside(cells, seen & known)
        along = []
        for r, order in table._all():
            walk = table.walk(r, [d for d in order if some[d]], len(x))
            walk.know(cells, seen & known, beside)
            total = cells.new_zeros(len(x))
            for d, z in walk:
                term = walk.log_densities(z, cells[:, d])[0]
                total += torch.where(asked[:, d], term, 0.0)
                walk.tell(cells[:, d], asked[:, d])
            along.append(total.double().cpu())
        parts.append(torch.stack(along))
    return torch.cat(parts, 1)


@torch.no_grad()
def draw(table: TableDensity, X: Array, generator: Generator, *, complete: bool) -> Array:
    """Draw the missing cells of each row together, given those that are known.

    A row follows one of the orders, drawn for it, so that it is a draw from the average of
    `log_densities` over orders.

    Parameters
    ----------
    table : TableDensity
    X : array of shape (B, D)
    generator : torch.Generator
        On the CPU.
    complete : bool
        Whether to fill every cell. Otherwise cells that an indicator says are missing stay so.

    Returns
    -------
    array of shape (B, D)
    """
    filled = X.copy()
    chosen = torch.randint(table.n_orders, (len(X),), generator=generator)
    orders = table.orders.cpu()[chosen].numpy()
    # Rows of one network go along their orders side by side, so that its layers see many at once.
    network = chosen % table.networks.n_walkers
    for m in range(table.networks.n_walkers):
        rows = (network == m).nonzero()[:, 0]
        for at in torch.split(rows, table._rows_at_a_time()):
            if len(at):
                own = at.numpy()
                filled[own] = _drawn_by(table, m, orders[own], X[own], generator, complete)
    return filled


def _drawn_by(
    table: TableDensity,
    m: int,
    orders: NDArray[np.int64],
    X: Array,
    generator: Generator,
    complete: bool,
) -> Array:
    """Draw missing cells by one network, each row along its own order."""
    filled, missing = X.copy(), np.isnan(X)
    module, x = table.network(m).in_single_precision(), table.cells(X)
    gaussians = None if table.gaussians is None else table.gaussians.in_single_precision()
    walk = module.walk([], len(X), gaussians)
    walk.know(x.float(), x[..., -1] > 0)

    def index(places: NDArray[np.int64]) -> Tensor:
        return torch.as_tensor(places).to(table.device)

    for column in orders.T:
        asked = missing[np.arange(len(X)), column]
        for d, indicator in table.indicators.items():
            own = asked & (column == d)
            if complete:
                # That a cell is missing is no longer so, and its value was never seen with it.
                told = index(np.flatnonzero(own & ~missing[:, indicator]))
                walk.tell_of(indicator, told, x[told, indicator], forget=True)
            else:
                asked = asked & ~(own & (filled[:, indicator] == 1))
        places = np.flatnonzero(asked)
        if not len(places):
            continue
        h = walk.hidden(slice(None) if len(places) == len(X) else index(places))
        for d in np.unique(column[places]).tolist():
            among = np.flatnonzero(column[places] == d)
            rows, z = index(places[among]), module.head(h[:, index(among)], d)
            beside = walk.components(d, rows)
            density = table.density_of(d, z, x[rows], walk.given[rows], beside)
            values = density.sample(generator)
            filled[places[among], d] = values
            x[rows, d, :FIRST_LINK] = table.features_of(d, values)
            walk.tell_of(d, rows, x[rows, d])
    return filled


# -------------------------------------------------------------------- one column


@torch.no_grad()
def column_given(table: TableDensity, d: int, X: Array) -> ColumnDensity:
    """Distribution of one column of each row given all its other known cells, in one pass.

    The indicator that tells of this column's missing cells is not given.
    """
    x = table.cells(X)
    given = x[..., -1] > 0
    if d in table.indicators:
        given[:, table.indicators[d]] = False
    return table.column(d, x, given)


@torch.no_grad()
def fill(table: TableDensity, X: Array, how: str) -> Array:
    """Fill missing cells, each from its own distribution given what is known of its row.

    One pass of the networks serves all missing cells of a row.

    Parameters
    ----------
    table : TableDensity
    X : array of shape (B, D)
    how : {"mean", "median", "likeliest"}
        Means of numbers; medians of numbers and of levels by their order; the likeliest level
        and the median of numbers. Columns of levels have their likeliest level with "mean" too.

    Returns
    -------
    array of shape (B, D)
    """
    filled = X.copy()
    rows = np.flatnonzero(np.isnan(X).any(1))
    size = table._rows_at_a_time()
    for at in np.split(rows, range(size, len(rows), size)):
        x = table.cells(X[at])
        given = x[..., -1] > 0
        h = table.networks.hidden(x, given)
        beside = table.beside(x, given)
        for d in np.flatnonzero(np.isnan(X[at]).any(0)).tolist():
            own = np.flatnonzero(np.isnan(X[at, d]))
            index = torch.as_tensor(own).to(table.device)
            known = given[index]
            if d in table.indicators:
                # That this cell is missing is not given where its value is asked for.
                known[:, table.indicators[d]] = False
                z = table.networks.conditionals(x[index], known, d)
            else:
                z = table.networks.head(h[:, index], d)
            components = None if beside is None else beside.rows(index).components(d)
            density = table.density_of(d, z, x[index], known, components)
            filled[at[own], d] = density.filling(how)
    return filled


# -------------------------------------------------------------------- ranges


def truncated(density: ColumnDensity, bounds: Range, u: Array) -> tuple[Array, Array]:
    """Draws from distributions cut off to a range, from one uniform number each.

    Returns
    -------
    values : array of shape (B,)
    log_mass : array of shape (B,)
        Logarithm of the probability of the range.
    """
    low, high = _inner(density.column, bounds)
    first = density.cdf(np.full(len(density), low), strictly=True)
    last = density.cdf(np.full(len(density), high))
    mass = np.maximum(last - first, 0.0)
    q = np.clip(first + u * mass, _SMALLEST, 1 - _SMALLEST)
    with np.errstate(divide="ignore"):
        return np.clip(density.quantile(q), low, high), np.log(mass)


def _inner(column: ColumnCells, bounds: Range) -> Range:
    """The part of a range that the table reaches, without what draws never are."""
    if column.measure == Measure.LEVEL:
        return max(bounds[0], 0.0), min(bounds[1], len(column.points) - 1.0)
    first, last = column.reach
    low, high = max(bounds[0], first), min(bounds[1], last)
    whole = column.measure == Measure.INTEGER
    return (float(math.ceil(low)), float(math.floor(high))) if whole else (low, high)


def is_empty(column: ColumnCells, bounds: Range) -> bool:
    """Whether no value in the range of the table lies between the bounds."""
    low, high = _inner(column, bounds)
    return low > high or (
        low == high and column.measure == Measure.REAL and low not in column.atoms
    )


def _values_of(column: ColumnCells, bounds: Range) -> Array | None:
    """All values of a range, or None where they are too many or not countable."""
    low, high = _inner(column, bounds)
    if column.measure == Measure.REAL or high - low >= MOST_VALUES:
        return None
    return np.arange(low, high + 1)


def spread_over_ranges(
    table: TableDensity, x: Array, ranges: Mapping[int, Range], generator: Generator
) -> tuple[Array, Array, bool]:
    """Rows that stand for one row some of whose columns are known to lie in ranges.

    Levels and whole numbers are all taken, each with its probability, while they are few. Other
    ranges are stood for by draws from the column cut off to its range, given what comes before;
    where there are several, each row is weighted by the probability of the ranges.

    Parameters
    ----------
    table : TableDensity
    x : array of shape (D,)
    ranges : mapping of int to (low, high)
    generator : torch.Generator

    Returns
    -------
    rows : array of shape (J, D)
    weights : array of shape (J,)
        Sum to 1.
    exact : bool
        Whether all values of the ranges are among the rows.
    """
    rows, log_weights, exact = x[None].copy(), np.zeros(1), True
    listed = {d: _values_of(table.columns[d], bounds) for d, bounds in ranges.items()}
    sizes = {d: math.inf if values is None else len(values) for d, values in listed.items()}
    for d in sorted(ranges, key=sizes.__getitem__):
        values = listed[d]
        if values is not None and len(rows) * len(values) <= MOST_VALUES:
            density = column_given(table, d, rows)
            each = [density.log_prob(np.full(len(rows), value)) for value in values]
            log_weights = (log_weights[:, None] + np.stack(each, 1)).ravel()
            rows = np.repeat(rows, len(values), axis=0)
            rows[:, d] = np.tile(values, len(rows) // len(values))
            continue
        if exact:
            times = -(-RANGE_DRAWS // len(rows))
            rows, log_weights = np.repeat(rows, times, 0), np.repeat(log_weights, times)
        # The middles of equal shares of the range; of a second range in another order.
        u = (np.arange(len(rows)) + 0.5) / len(rows)
        if not exact or len(rows) > RANGE_DRAWS:
            u = u[torch.randperm(len(u), generator=generator).numpy()]
        exact = False
        rows[:, d], log_mass = truncated(column_given(table, d, rows), ranges[d], u)
        log_weights = log_weights + log_mass
    weights = np.exp(log_weights - log_weights.max())
    return rows, weights / weights.sum(), exact


def log_probability(
    table: TableDensity, X: Array, ranges: Mapping[int, Range], generator: Generator
) -> Array:
    """Log probability that columns lie in ranges, given the known cells of each row.

    Of one range exact, in one pass; of several by draws of all but the last.

    Returns
    -------
    array of shape (B,)
    """
    times = 1 if len(ranges) == 1 else DRAWS_OF_A_ROW
    _, log_weights = _through(table, np.repeat(X, times, axis=0), ranges, generator)
    each = torch.as_tensor(log_weights.reshape(len(X), times).T)
    return np.asarray(log_average(each).numpy())


def draw_in_ranges(
    table: TableDensity, x: Array, n: int, ranges: Mapping[int, Range], generator: Generator
) -> Array:
    """Draw the columns of one row that lie in ranges, given its known cells, n times.

    Of one range exact. Of several, draws are kept by their weights among more candidates.

    Returns
    -------
    array of shape (n, D)
    """
    if len(ranges) == 1:
        return _through(table, np.tile(x, (n, 1)), ranges, generator)[0]
    candidates = np.tile(x, (max(CANDIDATES * n, RANGE_DRAWS), 1))
    rows, log_weights = _through(table, candidates, ranges, generator)
    weights = torch.as_tensor(np.exp(log_weights - log_weights.max()))
    kept = torch.multinomial(weights, n, replacement=True, generator=generator)
    return np.asarray(rows[kept.numpy()])


def _through(
    table: TableDensity, rows: Array, ranges: Mapping[int, Range], generator: Generator
) -> tuple[Array, Array]:
    """Draw columns cut off to their ranges, one given the other, with logarithms of weights."""
    log_weights = np.zeros(len(rows))
    for d, bounds in ranges.items():
        u = torch.rand(len(rows), dtype=torch.float64, generator=generator).numpy()
        rows[:, d], log_mass = truncated(column_given(table, d, rows), bounds, u)
        log_weights += log_mass
    return rows, log_weights
