r"""Densities of columns of any kind from a network's outputs: cells, and a mixture beside them.

With the logits z of a column's C cells and K components, the cell c of a value x and the value's
share v of it,

.. math::

    p(x) = q \, \frac{e^{z_c} v + \sum_k e^{z_{C+k}} f_k(x)}{\sum_{i < C + K} e^{z_i}}

where q is the probability of what the table holds and f_k a logistic density on the column's
smooth scale t, cut off at the ends of its range; of an integer the mass of the unit around it.
Logistic components have a distribution function in closed form, and with it masses, their
logarithms far out in the tails, and all gradients. A value outside the range, or a level not seen,
has what `ColumnCells` says. `rnade.columns.partition` has the rest of the mathematics.

This file has the layout of the outputs, the plain form in torch, and the choice of a fused kernel:
`backends.cpu.heads` and `backends.gpu.heads` have the same `weighted_log_likelihood`.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rnade.backends.gpu.launch import has_triton
from rnade.columns.partition import CODE, LOG_WIDTH, POSITION, WITHIN, ColumnCells, Measure

# Logarithms of the smallest and largest scale of a component, in units of the smooth scale.
SMALLEST_LOG_SCALE, LARGEST_LOG_SCALE = -7.0, 4.0


class Layout:
    """Which of a network's outputs belong to which column, and what a head must know of it.

    The outputs of a column stand side by side: C logits of cells, and for numbers K logits, K
    means and K logarithms of scales of components.

    Parameters
    ----------
    columns : sequence of ColumnCells
    n_components : int
        K.
    device : device of the tensors

    Attributes
    ----------
    n_outputs : int
        P, of all columns together.
    starts, n_cells, n_components, measures : int32 Tensor of shape (D,)
        Where a column's outputs begin, C, K (0 where there is no smooth scale), `Measure`.
    ends : Tensor of shape (D, 2)
        Of the range on the smooth scale, in float64.
    log_inside : Tensor of shape (D,)
        Log q, in float64.
    numbers : int64 Tensor
        Columns that have a smooth scale.
    inputs : int64 Tensor of shape (D,)
        Where a column's cells begin among those of all columns, side by side.
    """

    def __init__(
        self, columns: Sequence[ColumnCells], n_components: int, device: Any = "cpu"
    ) -> None:
        cells = np.array([column.n_cells for column in columns])
        components = np.array([n_components * column.has_smooth for column in columns])
        sizes = cells + 3 * components
        self.n_columns, self.n_outputs = len(columns), int(sizes.sum())
        self.most_cells, self.most_components = int(cells.max()), int(components.max())
        starts = np.cumsum(sizes) - sizes

        def whole(values: Any) -> Tensor:
            return torch.as_tensor(np.asarray(values), dtype=torch.int32, device=device)

        self.starts, self.n_cells, self.n_components = map(whole, (starts, cells, components))
        self.measures = whole([column.measure for column in columns])
        real = {"dtype": torch.float64, "device": device}
        self.ends = torch.tensor([column.ends for column in columns], **real)
        self.log_inside = torch.tensor([column.log_inside for column in columns], **real)
        self.numbers = torch.as_tensor(np.flatnonzero(components), device=device)
        self.inputs = torch.as_tensor(np.cumsum(cells) - cells, device=device)
        self.n_inputs = int(cells.sum()) + len(self.numbers) + self.n_columns
        self.device = torch.device(device)

    @cached_property
    def padded(self) -> Tensor:
        """Places of the outputs as if all columns had the most, (D, C + 3 K); P where none is."""
        C, K = self.most_cells, self.most_components
        places = torch.full((self.n_columns, C + 3 * K), self.n_outputs)
        sizes = torch.stack([self.starts, self.n_cells, self.n_components], 1).tolist()
        for d, (start, n_cells, n_components) in enumerate(sizes):
            places[d, :n_cells] = torch.arange(start, start + n_cells)
            for part in range(3 if n_components else 0):
                first = start + n_cells + part * K
                places[d, C + part * K : C + (part + 1) * K] = torch.arange(first, first + K)
        return places.to(self.device)

    def outputs_of(self, d: int) -> slice:
        """Where the outputs of a column are."""
        start = int(self.starts[d])
        return slice(start, start + int(self.n_cells[d]) + 3 * int(self.n_components[d]))


def log_mass(low: Tensor, high: Tensor) -> Tensor:
    r"""Log of the standard logistic mass between low and high, exact far out in both tails.

    .. math:: F(b) - F(a) = F(b) F(-a) (1 - e^{a - b})
    """
    between = torch.log(-torch.expm1((low - high).clamp_max(-1e-30)))
    return F.logsigmoid(high) + F.logsigmoid(-low) + between


def log_density(u: Tensor) -> Tensor:
    """Log of the standard logistic density."""
    return -u.abs() + 2 * F.logsigmoid(u.abs())


def log_densities(z: Tensor, cells: Tensor, layout: Layout) -> Tensor:
    """Log density of every cell of a table, of shape (M, B, D), without a gradient.

    By the fused kernels of the device where they serve, else by plain torch; z is (M, B, P), and
    cells are (B, D, 4) or (M, B, D, 4).
    """
    cells = cells.expand(*z.shape[:2], *cells.shape[-2:])
    kernels = _kernels(z)
    with torch.no_grad():
        found: Tensor = (kernels.log_prob if kernels else log_prob)(z, cells, layout)
    return found


def log_prob(z: Tensor, cells: Tensor, layout: Layout) -> Tensor:
    """Log density of every cell of a table, by plain torch.

    Parameters
    ----------
    z : Tensor of shape (..., P)
        Outputs.
    cells : Tensor of shape (..., D, 4)
        From `ColumnCells.encode`.
    layout : Layout

    Returns
    -------
    Tensor of shape (..., D)
    """
    C, K = layout.most_cells, layout.most_components
    lowest = torch.finfo(z.dtype).min / 16  # far below any logit, and finite for gradients
    z = F.pad(z, (0, 1), value=lowest)[..., layout.padded]
    code, within = cells[..., CODE], cells[..., WITHIN]
    inside = code >= 0
    at = code.clamp_min(0).long().expand(z.shape[:-1]).unsqueeze(-1)
    chosen = z[..., :C].gather(-1, at).squeeze(-1)
    core = chosen + torch.where(inside, within, 0.0)
    if K:
        smooth = torch.logsumexp(
            z[..., C : C + K] + component_log_densities(z[..., C + K :], cells, layout), -1
        )
        core = torch.where(_is_smooth(cells), torch.logaddexp(core, smooth), core)
    core = core - torch.logsumexp(z[..., : C + K], -1) + layout.log_inside.to(z)
    return torch.where(inside, core, within)


def _is_smooth(cells: Tensor) -> Tensor:
    return cells[..., LOG_WIDTH] > -math.inf


def component_log_densities(z: Tensor, cells: Tensor, layout: Layout) -> Tensor:
    """Log densities or masses of a value under each component, shape (..., D, K).

    Parameters
    ----------
    z : Tensor of shape (..., D, 2 K)
        Means and logarithms of scales.
    cells : Tensor of shape (..., D, 4 or more)
    layout : Layout
    """
    mu, log_scale = z.chunk(2, -1)
    log_scale = log_scale.clamp(SMALLEST_LOG_SCALE, LARGEST_LOG_SCALE)
    # Of columns without components the outputs are no numbers to compute with.
    there = (layout.n_components > 0)[:, None]
    mu, log_scale = torch.where(there, mu, 0.0), torch.where(there, log_scale, 0.0)
    t = torch.where(_is_smooth(cells), cells[..., POSITION], 0.0).unsqueeze(-1)
    log_width = torch.where(_is_smooth(cells), cells[..., LOG_WIDTH], 0.0).unsqueeze(-1)
    per_unit = torch.exp(-log_scale)
    u = (t - mu) * per_unit
    half = 0.5 * torch.exp(log_width) * per_unit
    whole = (layout.measures == Measure.INTEGER)[:, None]
    safe_half = torch.where(whole, half, 1.0)
    value = torch.where(
        whole, log_mass(u - safe_half, u + safe_half), log_density(u) - log_scale + log_width
    )
    first, last = layout.ends.to(z).unsqueeze(-1).unbind(1)
    return value - log_mass((first - mu) * per_unit, (last - mu) * per_unit)


def weighted_log_likelihood(z: Tensor, cells: Tensor, weights: Tensor, layout: Layout) -> Tensor:
    """Sum of weights times log densities over rows and columns, for each model.

    By the fused kernels of the device where they serve, else by plain torch.

    Parameters
    ----------
    z : Tensor of shape (M, B, P)
    cells : Tensor of shape (M, B, D, 4)
    weights : Tensor of shape (M, B, D)
        Of cells; 0 where a cell is not to count.
    layout : Layout

    Returns
    -------
    Tensor of shape (M,)
    """
    kernels = _kernels(z)
    if kernels is not None:
        value: Tensor = kernels.weighted_log_likelihood(z, cells, weights, layout)
        return value
    counted = weights != 0
    return torch.where(counted, weights * log_prob(z, cells, layout), 0.0).sum((1, 2))


def _kernels(z: Tensor) -> Any:
    """The module with a fused kernel for these outputs, or None; numba and Triton load late."""
    for name in ("cpu", "gpu"):
        if z.is_cuda == (name == "gpu"):
            if z.is_cuda and not has_triton():
                return None
            module = import_module(f"rnade.backends.{name}.heads")
            return module if module.supports(z) else None
    return None


def starting_biases(columns: Sequence[ColumnCells], n_components: int) -> Tensor:
    """Outputs that give each column the distribution of its values in the table, shape (P,).

    Cells have most of the mass, and components, spread over the range, the rest.
    """
    parts = []
    for column in columns:
        shares = np.log(column.shares)
        if column.has_smooth:
            K = n_components
            t = column.position(np.asarray(_spread(column, K)))
            shares = shares + math.log(0.7)
            scale = max(float(np.ptp(t)), 0.5) / K
            parts += [shares, np.full(K, math.log(0.3 / K)), t, np.full(K, math.log(scale))]
        else:
            parts.append(shares)
    return torch.as_tensor(np.concatenate(parts), dtype=torch.float32)


def _spread(column: ColumnCells, K: int) -> Any:
    """K values at evenly spaced shares of a column's intervals."""
    inner = column.shares[: column.n_intervals]
    ends = np.concatenate([[0.0], np.cumsum(inner) / inner.sum()])
    return np.interp((np.arange(K) + 0.5) / K, ends, column.edges)
