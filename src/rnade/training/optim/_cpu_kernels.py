"""Kernels that judge gradients and update parameters of M models on the CPU, in one pass each.

Computed, for one parameter of some models: the sum of squares of a gradient; and p, what the
optimiser remembers and the running average after one update.

Fused: the dozen passes of plain torch over each tensor into one, in registers. Traffic, in
elements of a parameter: Adam with an average reads 5 and writes 4, where plain torch reads and
writes some 30. A model's tensors are in cache, so that time is near that of the arithmetic.
"""

from typing import Any

import numpy as np

from rnade.backends.cpu.calls import compiled

SGD, MOMENTUM, ADAM = 0, 1, 2


@compiled
def add_squares(g: Any, total: Any, low: int, high: int) -> None:
    """Add each model's sum of squares of `g`, (M, n), to `total`, (M,), in float64."""
    for m in range(low, high):
        row = g[m]
        found = row.dtype.type(0)
        for i in range(row.shape[0]):
            found += row[i] * row[i]
        total[m] += np.float64(found)


@compiled
def update(
    rule: int,
    p: Any,
    g: Any,
    first: Any,
    second: Any,
    average: Any,
    decay: Any,
    rate: Any,
    scale: Any,
    usable: Any,
    momentum: Any,
    constants: Any,
    decayed: bool,
    averaged: bool,
    low: int,
    high: int,
) -> None:
    """Update models `low` to `high`, in place.

    p, g : (M, n). first, second : (M, n) velocities, or means and squares; any array where the
    rule has none. average : (M, n), moved if `averaged`. decay, rate, scale, usable, momentum :
    (M,). constants : Adam's betas and epsilon, its two unbiasing factors, and how far the average
    moves.
    """
    beta_1, beta_2, epsilon, unbias_1, unbias_2, forget = constants
    one = p.dtype.type(1)
    for m in range(low, high):
        weights, slope = p[m], g[m]
        if usable[m]:
            r, s, d = rate[m], scale[m], decay[m]
            if not decayed:
                d = d * 0
            if rule == SGD:
                for i in range(weights.shape[0]):
                    weights[i] -= r * (s * slope[i] + d * weights[i])
            elif rule == MOMENTUM:
                v, keep = first[m], momentum[m]
                for i in range(weights.shape[0]):
                    v[i] = keep * v[i] - r * (s * slope[i] + d * weights[i])
                    weights[i] += v[i]
            else:
                mean, square = first[m], second[m]
                for i in range(weights.shape[0]):
                    slope_here = s * slope[i]
                    mean[i] += (one - beta_1) * (slope_here - mean[i])
                    square[i] = beta_2 * square[i] + (one - beta_2) * slope_here * slope_here
                    size = np.sqrt(square[i] / unbias_2) + epsilon
                    weights[i] -= r * (mean[i] / unbias_1 / size + d * weights[i])
        if averaged:
            kept = average[m]
            for i in range(weights.shape[0]):
                kept[i] += forget * (weights[i] - kept[i])
