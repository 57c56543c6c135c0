"""Where columns of numbers are cut into cells, and the smooth scale beside the cells."""

import numpy as np
from numpy.typing import NDArray

from rnade.typing import Array

# Edges nearer to each other than this, on the smooth scale and relative to the range, are one.
SMALLEST_WIDTH = 1e-9
# What is tried for the share of a cell's mass that is spread evenly over all its whole numbers.
_EVEN_SHARES = np.array([0.002, 0.005, 0.01, 0.02, 0.05, *np.arange(1, 10) / 10, 0.95, 0.98, 1.0])


def smooth_scale(x: Array) -> Array:
    """Centre, spread, location and scale of `ColumnCells.scale`."""
    q10, q25, centre, q75, q90 = np.quantile(x, [0.1, 0.25, 0.5, 0.75, 0.9])
    # Of a normal column both ranges give its standard deviation; else the larger counts.
    spread = max((q75 - q25) / 1.349, (q90 - q10) / 2.563)
    if q75 == q25:  # mostly one value
        spread = max(spread, float(np.std(x)))
    spread = spread if spread > 0 else 1.0
    t = np.arcsinh((x - centre) / spread)
    deviation = float(np.std(t))
    return np.array([centre, spread, t.mean(), deviation if deviation > 0 else 1.0])


def distinct(edges: Array, scale: Array) -> Array:
    """Edges without those that hardly differ from the one before, on the smooth scale."""
    centre, spread = scale[:2]
    t = np.arcsinh((edges - centre) / spread)
    least, kept = SMALLEST_WIDTH * max(t[-1] - t[0], 1e-300), [0]
    for i in range(1, len(edges)):
        if t[i] - t[kept[-1]] > least:
            kept.append(i)
    kept[-1] = len(edges) - 1  # the last one is the end of the range
    return edges[kept] if len(kept) > 1 else edges[[0, -1]]


def cut_real(x: Array, n_cells: int, bounds: Array) -> Array:
    """Edges of intervals with about as many rows each; around a single value, a narrow one."""
    if len(x) == 0:
        return x
    edges = np.unique(np.quantile(x, np.linspace(0, 1, n_cells + 1)))
    if len(edges) > 1:
        return edges
    around = max(abs(float(edges[0])), 1.0) * 1e-6
    return np.asarray(np.clip([edges[0] - around, edges[0] + around], *bounds))


def cut_whole(
    x: Array, n_cells: int, weights: Array
) -> tuple[Array, Array, NDArray[np.int64], Array, Array]:
    """Edges, points, their cells and log shares, and the log share of other whole numbers.

    A number that holds the share of a whole cell has one of its own.
    """
    points, place = np.unique(x, return_inverse=True)
    counts = np.bincount(place, weights)
    edges, held, enough = [points[0] - 0.5], 0.0, len(x) / n_cells
    for value, count in zip(points, counts, strict=True):
        if count >= enough and held:
            edges.append(value - 0.5)
            held = 0.0
        held += float(count)
        if held >= enough and value < points[-1]:
            edges.append(value + 0.5)
            held = 0.0
    cuts = np.unique([*edges, points[-1] + 0.5])
    cell = np.searchsorted(cuts, points, side="right") - 1
    width, total = np.diff(cuts), np.bincount(cell, counts, minlength=len(cuts) - 1)
    # How much of a cell to spread evenly: what predicts each row best from the others.
    less = np.maximum(counts - 1, 0.0)
    others = np.where(total[cell] > 1, less / np.maximum(total[cell] - 1, 1e-9), 0.0).clip(max=1)
    even = 1 / width[cell]
    scores = np.log(np.outer(1 - _EVEN_SHARES, others) + np.outer(_EVEN_SHARES, even)) @ counts
    share = float(_EVEN_SHARES[np.argmax(scores)])
    log_share = np.log((1 - share) * counts / total[cell] + share * even)
    with np.errstate(divide="ignore"):
        log_even = np.where(total > 0, np.log(share / width), -np.log(width))
    return cuts, points, cell.astype(np.int64), log_share, log_even
