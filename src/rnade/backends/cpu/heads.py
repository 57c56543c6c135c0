"""Densities of mixed tables' columns on the CPU, with their gradient, around one fused kernel.

The same functions as `backends.heads`; `head_kernels` has the kernel and its mathematics.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rnade.backends import heads as plain
from rnade.backends.cpu import memory
from rnade.backends.cpu import threads as workers
from rnade.backends.cpu.head_kernels import GRADIENT, OUTPUTS, PLACES, TERMS, heads
from rnade.backends.cpu.lanes import LANES
from rnade.backends.heads import Layout
from rnade.backends.threads import kernel_threads
from rnade.columns.partition import N_FEATURES

# Rows of a block: enough that few vectors are half empty, few enough to share among threads.
FEWEST_ROWS, MOST_ROWS, BLOCKS = 128, 256, 8
TASKS_OF_A_THREAD = 4
# Bytes of outputs below which a second thread costs more than it saves: of 2 MB, 0.4 ms of work,
# it saves a twentieth, and with half of the cells skipped nothing.
SMALL = 3_000_000


def supports(z: Tensor) -> bool:
    """Whether the kernel takes outputs on this device and in this precision."""
    return z.is_cpu and z.dtype in (torch.float32, torch.float64)


def weighted_log_likelihood(z: Tensor, cells: Tensor, weights: Tensor, layout: Layout) -> Tensor:
    """Sum of weights times log densities over rows and columns, as in `backends.heads`.

    The gradient of z is computed along with the value, and the backward pass multiplies it by what
    comes from above, unless that is 1: put signs and factors into the weights.
    """
    if not (z.requires_grad and torch.is_grad_enabled()):
        return _launch(z, cells, weights, layout, 0)[0]
    value: Tensor = _Differentiable.apply(layout, cells, weights, z)  # type: ignore[no-untyped-call]
    return value


@torch.no_grad()
def log_prob(z: Tensor, cells: Tensor, layout: Layout) -> Tensor:
    """Log density (M, B, D) of every cell, without gradients, as in `backends.heads`."""
    return _launch(z, cells, None, layout, TERMS)[1]


class _Differentiable(torch.autograd.Function):
    """The weighted sum (M,), whose gradient comes along."""

    @staticmethod
    def forward(ctx: Any, layout: Layout, cells: Tensor, weights: Tensor, z: Tensor) -> Tensor:
        ctx.layout = layout
        ctx.save_for_backward(cells, weights, z)
        value, ctx.gradient = _launch(z, cells, weights, layout, GRADIENT)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        # Handed over and forgotten, so that autograd can keep it as .grad without a copy. A second
        # backward pass through the same graph computes it again.
        found, ctx.gradient = ctx.gradient, None
        if found is None or torch.is_grad_enabled():
            cells, weights, z = ctx.saved_tensors
            weights = upstream.view(-1, 1, 1) * weights
            found = _gradient(z, cells, weights, ctx.layout)
        elif any(factor != 1 for factor in upstream.tolist()):
            found.mul_(upstream.view(-1, 1, 1))
        return None, None, None, found


def _gradient(z: Tensor, cells: Tensor, weights: Tensor, layout: Layout) -> Tensor:
    """Gradient of z; by plain torch if it is to be differentiated again."""
    if not torch.is_grad_enabled():
        return _launch(z, cells, weights, layout, GRADIENT)[1]
    log_p = plain.log_prob(z, cells, layout)
    total = torch.where(weights != 0, weights * log_p, 0.0).sum()
    return torch.autograd.grad(total, z, create_graph=True)[0]


def _launch(
    z: Tensor, cells: Tensor, weights: Tensor | None, layout: Layout, want: int
) -> tuple[Tensor, Tensor]:
    """Weighted sums (M,), and what is wanted: the gradient (M, B, P) or the terms (M, B, D)."""
    M, B, P = z.shape
    D, dtype = layout.n_columns, z.dtype
    if (P, *cells.shape[-3:]) != (layout.n_outputs, B, D, N_FEATURES):
        raise ValueError(
            f"Expected z of shape (M, B, {layout.n_outputs}) and cells of shape "
            f"(M, B, {D}, {N_FEATURES}), as the layout has them; got {tuple(z.shape)} and "
            f"{tuple(cells.shape)}."
        )
    found = memory.room((M, B, D if want & TERMS else P), dtype) if want else z.new_empty(0)
    if z.numel() == 0:
        return z.new_zeros(M), found.zero_()
    z, cells = z.detach().contiguous(), _prepared(cells, dtype)
    weights = cells if weights is None else _prepared(weights, dtype)
    held = (z, cells, weights, found, found, *_tables(layout, dtype))
    arrays = tuple([t.data_ptr() for t in held])
    most = min(max(-(-M * B // BLOCKS // LANES) * LANES, FEWEST_ROWS), MOST_ROWS)
    blocks = M * -(-B // most)
    values = np.empty(blocks)
    sizes = (D, P, most, B, cells.shape[0], weights.shape[0])
    widest = layout.most_cells + 5 * layout.most_components

    def task(low: int, high: int) -> workers.Task:
        def compute(held: object = held) -> None:
            room = memory.workspace(OUTPUTS + widest * LANES, dtype)
            rows = memory.workspace(2 * most + PLACES, torch.int64)
            heads(arrays, sizes, room, rows, values, want, low, high)

        return compute

    threads = 1 if z.nbytes < SMALL else kernel_threads()
    n = min(blocks, threads * TASKS_OF_A_THREAD if threads > 1 else 1)
    workers.run([task(i * blocks // n, (i + 1) * blocks // n) for i in range(n)], threads)
    return torch.from_numpy(values).view(M, -1).sum(1).to(dtype), found


def _prepared(t: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor, contiguous and of that dtype; one that is the same for all models as one."""
    return (t[:1] if t.stride(0) == 0 else t).to(dtype).contiguous()


def _tables(layout: Layout, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """What the kernel must know of a layout, made once for each precision and kept with it."""
    kept: dict[torch.dtype, tuple[Tensor, Tensor]] = vars(layout).setdefault("_cpu_tables", {})
    if dtype not in kept:
        numbers = (layout.starts, layout.n_cells, layout.n_components, layout.measures)
        ends = layout.ends.double()
        real = torch.stack([*ends.T, ends[:, 1] - ends[:, 0], layout.log_inside.double()], 1)
        kept[dtype] = torch.stack(numbers, 1).long(), real.to(dtype)
    return kept[dtype]
