r"""Log densities of a table's cells, and their gradient to a network's outputs, in one launch.

Computed: what `rnade.backends.heads` has in plain torch, for ROWS rows and one column a program.
With g a cell's weight, s the softmax over the column's C + K logits, r the share of each term in
the sum over the chosen cell and the components (a value that is not smooth: r_c = 1), and f_k the
density or mass of component k,

.. math::

    \frac{d}{dz_i} = g (r_i - s_i), \quad
    \frac{d}{d\mu_k} = g r_k \frac{d \log f_k}{d\mu_k}, \quad
    \frac{d}{d\lambda_k} = g r_k \frac{d \log f_k}{d\lambda_k}

where lambda is the log scale, and the last is 0 where that is clamped. The log mass of the
standard logistic between a and b, with w = b - a and the softplus function S, is

.. math:: L(a, b) = -S(a) - S(-b) + \log(1 - e^{-w})

.. math::

    \frac{dL}{d\mu} = e^{-\lambda} (F(a) - F(-b)), \quad
    \frac{dL}{d\lambda} = a F(a) - b F(-b) - \frac{w}{e^w - 1}

(the terms 1 / (e^w - 1) of dL/da and dL/db cancel for mu). An integer has log f = L(a, b) -
L(first, last) of its unit and of the range. A real value is the unit of width w = 0, with log
dt/dx - lambda in place of the last logarithm, whose derivative to lambda is the limit, -1.

Guards: logits count from the largest of their sum, that of the chosen cell and the components
having one of its own. Far from a component's mean S(a) and S(first) may be huge and nearly equal;
as S(a) = max(a, 0) + log(1 + e^{-|a|}) and a F(a) = max(a, 0) - |a| F(-|a|), what is large in
their differences is a - first, which is known without the mean. So are the widths w. Outputs are
clamped with `where`, so that a NaN stays a NaN.

Fused: the whole value and gradient, for which plain torch pads all columns to the largest and
launches a kernel for each operation. In registers: one chunk (ROWS, CP) of a column's cell logits,
for whose softmax a running maximum is kept; and the components, three tiles (ROWS, KP).
Recomputed: the exponentials of the cells, from a second reading of their logits, which are still
in the cache. Columns that are narrower than a chunk leave lanes idle, but a table with one wide
column does not make the others wide.

Traffic, in elements for a row: P logits read and P derivatives written, and 6 D of cells, weights
and weighted log densities. The columns' outputs tile P, so that all derivatives are written and
none need to be set to 0 first. Nothing is waited for or read back, and all can be captured in a
CUDA graph, after one call that compiles the kernel. No sum depends on how many rows or models
there are, but for the last, over rows and columns, which torch makes.

Where it stops being the right choice: float64, and gradients of gradients; plain torch has both.

Unlike `launch`, this file imports Triton: ask `launch.has_triton` before importing it.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from rnade.backends.gpu import tiling
from rnade.backends.gpu.launch import current, interpreting
from rnade.backends.heads import LARGEST_LOG_SCALE, SMALLEST_LOG_SCALE, Layout
from rnade.columns.partition import CODE, LOG_WIDTH, POSITION, WITHIN, Measure

# Rows of a program, the most cells of a chunk, and warps, each with a row of a chunk at a time:
# four rows to a warp take some 75 registers a thread with 8 components, eight rows twice as many.
ROWS, CHUNK, WARPS = 16, 32, 4

# The same names for kernels, which see only constants of this type.
_SMALLEST, _LARGEST = tl.constexpr(SMALLEST_LOG_SCALE), tl.constexpr(LARGEST_LOG_SCALE)
_CODE, _WITHIN = tl.constexpr(CODE), tl.constexpr(WITHIN)
_POSITION, _LOG_WIDTH = tl.constexpr(POSITION), tl.constexpr(LOG_WIDTH)
_INTEGER = tl.constexpr(int(Measure.INTEGER))
_INFINITY = tl.constexpr(math.inf)

# Sizes that the kernel is not compiled anew for.
_SIZES = (
    *("N", "B", "D", "P"),
    *("cells_stride_m", "cells_stride_b", "cells_stride_d"),
    *("weight_stride_m", "weight_stride_b", "weight_stride_d"),
)


def supports(z: Tensor) -> bool:
    """Whether the kernel can take these outputs: float32 on a GPU."""
    return z.dtype == torch.float32 and (z.is_cuda or interpreting())


def log_prob(
    z: Float[Tensor, "M B P"], cells: Float[Tensor, "M B D 4"], layout: Layout
) -> Float[Tensor, "M B D"]:
    """Log density in nats of every cell of a table, as in `backends.heads`; no gradient.

    Outputs are in float32 and cells of any strides, all on the same device.
    """
    out, _ = _launch(z.detach(), cells, None, layout, gradient=False)
    return out


def weighted_log_likelihood(
    z: Float[Tensor, "M B P"],
    cells: Float[Tensor, "M B D 4"],
    weights: Float[Tensor, "M B D"],
    layout: Layout,
) -> Float[Tensor, " M"]:
    """Sum of weights times log densities over rows and columns, as in `backends.heads`.

    Can be differentiated once, to z, in float32. Cells and weights may have any strides.
    """
    if z.requires_grad and torch.is_grad_enabled():
        total: Tensor = _Differentiable.apply(z, cells, weights, layout)  # type: ignore[no-untyped-call]
        return total
    out, _ = _launch(z, cells, weights, layout, gradient=False)
    return out.sum((1, 2))


class _Differentiable(torch.autograd.Function):
    """Weighted sums (M,); their gradient is made on the way and kept."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, cells: Tensor, weights: Tensor, layout: Layout) -> Any:
        out, ctx.dz = _launch(z, cells, weights, layout, gradient=True)
        return out.sum((1, 2))

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("The GPU kernels give first derivatives only.")
        return ctx.dz * upstream.view(-1, 1, 1), None, None, None


def _launch(
    z: Tensor, cells: Tensor, weights: Tensor | None, layout: Layout, *, gradient: bool
) -> tuple[Tensor, Any]:
    """Log densities (M, B, D), times weights if there are any, and their gradient to z."""
    M, B, P = z.shape
    D = layout.n_columns
    for name, given, expected in (
        ("z", z, (M, B, layout.n_outputs)),
        ("cells", cells, (M, B, D, 4)),
        ("weights", weights, (M, B, D)),
    ):
        if given is not None and given.shape != expected:
            raise ValueError(f"Expected {name} of shape {expected}; got {tuple(given.shape)}.")
    z = z.contiguous()
    out = z.new_empty((M, B, D))
    dz = torch.empty_like(z) if gradient else None
    if M * B == 0:
        return out, dz
    with current(z.device):
        _heads_kernel[(D * tiling.cdiv(M * B, ROWS),)](
            *(z, cells, weights, layout.starts, layout.n_cells, layout.n_components),
            *(layout.measures, layout.ends, layout.log_inside, out, dz),
            *(M * B, B, D, P, *cells.stride()),
            *((0, 0, 0) if weights is None else weights.stride()),
            ROWS=ROWS,
            CP=min(CHUNK, tiling.power_of_two(layout.most_cells)),
            # Fewer than there are threads for would be held, and computed, several times.
            KP=max(WARPS * 32 // ROWS, tiling.power_of_two(layout.most_components)),
            num_warps=WARPS,
        )
    return out, dz


@triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
def _heads_kernel(  # type: ignore[no-untyped-def]
    z_ptr,  # (M, B, P)
    cells_ptr,  # (M, B, D, 4) with the strides below
    weight_ptr,  # (M, B, D) with the strides below, or None for 1 everywhere
    starts_ptr,  # (D,) and the next three too, int32: where a column's outputs begin
    n_cells_ptr,  # C
    n_components_ptr,  # K, or 0
    measures_ptr,  # `Measure`
    ends_ptr,  # (D, 2) of the range on the smooth scale, in float64
    log_inside_ptr,  # (D,), in float64
    out_ptr,  # (M, B, D) log densities times weights, written
    dz_ptr,  # (M, B, P) derivatives of what is in `out`, written, or None
    N,  # M B
    B,
    D,
    P,
    cells_stride_m,
    cells_stride_b,
    cells_stride_d,
    cells_stride_f,
    weight_stride_m,
    weight_stride_b,
    weight_stride_d,
    ROWS: tl.constexpr,
    CP: tl.constexpr,  # cells of a chunk, a power of two
    KP: tl.constexpr,  # a power of two at or above the largest K
):
    """One program: ROWS rows of one column; programs of the same rows stand side by side."""
    gradient: tl.constexpr = dz_ptr is not None
    d = tl.program_id(0) % D
    rows = tl.program_id(0) // D * ROWS + tl.arange(0, ROWS)
    row_ok = rows < N
    # Rows beyond the last are the last once more, and not stored: all numbers are sound ones.
    rows = tl.where(row_ok, rows, N - 1)
    m, b = (rows // B).to(tl.int64), (rows % B).to(tl.int64)
    rows, d = rows.to(tl.int64), d.to(tl.int64)
    C, K = tl.load(n_cells_ptr + d), tl.load(n_components_ptr + d)
    at_z = rows * P + tl.load(starts_ptr + d)
    cell = cells_ptr + m * cells_stride_m + b * cells_stride_b + d * cells_stride_d
    code = tl.load(cell + _CODE * cells_stride_f).to(tl.float32)
    within = tl.load(cell + _WITHIN * cells_stride_f).to(tl.float32)
    log_width = tl.load(cell + _LOG_WIDTH * cells_stride_f).to(tl.float32)
    inside, smooth = code >= 0, log_width > -_INFINITY
    weight = tl.full((ROWS,), 1.0, tl.float32)
    if weight_ptr is not None:
        at_weight = m * weight_stride_m + b * weight_stride_b + d * weight_stride_d
        weight = tl.load(weight_ptr + at_weight).to(tl.float32)
    counted = inside & (weight != 0)

    # The largest logit, the sum of exponentials from there, and the logit of the chosen cell.
    top = tl.full((ROWS,), -_INFINITY, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    chosen = tl.zeros((ROWS,), tl.float32)
    for first in tl.range(0, C, CP):
        c = first + tl.arange(0, CP)
        at = at_z[:, None] + c[None, :]
        logits = tl.load(z_ptr + at, mask=(c < C)[None, :], other=-_INFINITY)
        top, total = _further(top, total, logits)
        here = c.to(tl.float32)[None, :] == code[:, None]
        chosen += tl.sum(tl.where(here, logits, 0.0), 1)
    k = tl.arange(0, KP)
    k_ok = (k < K)[None, :]
    at_k = at_z[:, None] + C + k[None, :]
    logits_k = tl.load(z_ptr + at_k, mask=k_ok, other=-_INFINITY)
    top, total = _further(top, total, logits_k)

    base, log_p = chosen, tl.where(inside, within, 0.0)
    share = tl.full((ROWS,), 1.0, tl.float32)  # r of the chosen cell
    if K > 0:
        mu = tl.load(z_ptr + at_k + K, mask=k_ok, other=0.0)
        log_scale = tl.load(z_ptr + at_k + 2 * K, mask=k_ok, other=0.0)
        t = tl.load(cell + _POSITION * cells_stride_f).to(tl.float32)
        low, high = tl.load(ends_ptr + 2 * d), tl.load(ends_ptr + 2 * d + 1)
        log_f, d_mu, d_scale = _component(
            tl.where(smooth, t, 0.0)[:, None],
            tl.where(smooth, log_width, 0.0)[:, None],
            mu,
            log_scale,
            low.to(tl.float32),
            high.to(tl.float32),
            (high - low).to(tl.float32),
            tl.load(measures_ptr + d) == _INTEGER,
        )
        base = tl.maximum(chosen, tl.max(logits_k, 1))
        log_p = chosen - base + log_p
        joint = logits_k - base[:, None] + log_f  # -inf where there is no component
        most = tl.maximum(log_p, tl.max(joint, 1))
        cell_part = tl.exp(log_p - most)
        parts = tl.exp(joint - most[:, None])
        sum_of_parts = cell_part + tl.sum(parts, 1)
        log_p = tl.where(smooth, most + tl.log(sum_of_parts), log_p)
        if gradient:
            share = tl.where(smooth, cell_part / sum_of_parts, 1.0)
            r = tl.where(smooth[:, None], parts / sum_of_parts[:, None], 0.0)
            s_k = tl.exp(logits_k - top[:, None]) / total[:, None]
            g, keep = weight[:, None], counted[:, None]
            to, ok = dz_ptr + at_k, row_ok[:, None] & k_ok
            tl.store(to, tl.where(keep, g * (r - s_k), 0.0), mask=ok)
            tl.store(to + K, tl.where(keep, g * r * d_mu, 0.0), mask=ok)
            tl.store(to + 2 * K, tl.where(keep, g * r * d_scale, 0.0), mask=ok)
    log_p = base - top + log_p - tl.log(total) + tl.load(log_inside_ptr + d).to(tl.float32)
    log_p = tl.where(inside, log_p, within)
    # A weight of 0 hides any number, also an infinite one.
    value = tl.where(weight != 0, weight * log_p, 0.0)
    tl.store(out_ptr + rows * D + d, value, mask=row_ok)

    if gradient:
        for first in tl.range(0, C, CP):
            c = first + tl.arange(0, CP)
            at = at_z[:, None] + c[None, :]
            logits = tl.load(z_ptr + at, mask=(c < C)[None, :], other=-_INFINITY)
            s = tl.exp(logits - top[:, None]) / total[:, None]
            here = c.to(tl.float32)[None, :] == code[:, None]
            derivative = weight[:, None] * (tl.where(here, share[:, None], 0.0) - s)
            derivative = tl.where(counted[:, None], derivative, 0.0)
            tl.store(dz_ptr + at, derivative, mask=row_ok[:, None] & (c < C)[None, :])


@triton.jit
def _further(top, total, logits):  # type: ignore[no-untyped-def]
    """Largest logit so far and sum of exponentials from there, with a further chunk."""
    higher = tl.maximum(top, tl.max(logits, 1))
    more = tl.sum(tl.exp(logits - higher[:, None]), 1)
    return higher, total * tl.exp(top - higher) + more


@triton.jit
def _component(t, log_width, mu, z_scale, low, high, range_width, whole):  # type: ignore[no-untyped-def]
    """Log density or mass under each component, and its derivatives to mean and log scale.

    t, log_width: (ROWS, 1) place and log width of values. mu, z_scale: (ROWS, KP) means and log
    scales as the network gives them. low, high, range_width: scalars, of the range. whole: scalar,
    whether values are integers.
    """
    log_scale = tl.where(z_scale > _LARGEST, _LARGEST, z_scale)
    log_scale = tl.where(z_scale < _SMALLEST, _SMALLEST, log_scale)
    per_unit = tl.exp(-log_scale)
    width = tl.where(whole, tl.exp(log_width), 0.0)
    a, b = (t - 0.5 * width - mu) * per_unit, (t + 0.5 * width - mu) * per_unit
    first, last = (low - mu) * per_unit, (high - mu) * per_unit
    # max(a, 0) - max(first, 0) and max(-b, 0) - max(-last, 0), from the distances to the ends.
    below = tl.where(first > 0, (t - 0.5 * width - low) * per_unit, tl.where(a > 0, a, 0.0))
    above = tl.where(last < 0, (high - t - 0.5 * width) * per_unit, tl.where(b < 0, -b, 0.0))
    log_a, tail_a, slope_a = _side(a)
    log_b, tail_b, slope_b = _side(-b)
    log_first, tail_first, slope_first = _side(first)
    log_last, tail_last, slope_last = _side(-last)
    log_unit, shrink = _gap(tl.where(whole, width * per_unit, 1.0))
    log_range, range_shrink = _gap(range_width * per_unit)
    log_unit = tl.where(whole, log_unit, log_width - log_scale)
    shrink = tl.where(whole, shrink, 1.0)
    log_f = log_unit - log_range - below - above
    log_f += (log_first - log_a) + (log_last - log_b)
    d_mu = per_unit * ((slope_a - slope_first) - (slope_b - slope_last))
    d_scale = below + above + (tail_first - tail_a) + (tail_last - tail_b)
    d_scale += range_shrink - shrink
    return log_f, d_mu, tl.where(log_scale == z_scale, d_scale, 0.0)


@triton.jit
def _side(a):  # type: ignore[no-untyped-def]
    """log(1 + e^-|a|), |a| F(-|a|) and F(a)."""
    e = tl.exp(-tl.abs(a))
    return tl.log(1 + e), tl.abs(a) * e / (1 + e), tl.where(a > 0, 1.0, e) / (1 + e)


@triton.jit
def _gap(w):  # type: ignore[no-untyped-def]
    """log(1 - e^-w) and w / (e^w - 1), for w > 0."""
    w = tl.where(w < 1e-30, 1e-30, w)
    e = tl.exp(-w)
    # By its series where 1 and e^-w nearly cancel; the term left out is below 2e-8 of the sum.
    series = 1 - w / 5 * (1 - w / 6 * (1 - w / 7))
    series = w * (1 - w / 2 * (1 - w / 3 * (1 - w / 4 * series)))
    mass = tl.where(w < 0.35, series, 1 - e)
    return tl.log(mass), w * e / mass
