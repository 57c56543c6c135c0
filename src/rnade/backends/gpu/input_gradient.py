"""Gradients of W, c and x, from those of the hidden state that `weight_gradient` has left.

Step 4 of the four that `stored` describes: sums of the hidden state's gradient over later
dimensions, and the last sums of rho's gradient.
"""

# mypy: ignore-errors
# Triton, not Python, gives the arguments of kernels their types.

import triton
import triton.language as tl

from rnade.backends.gpu.density import dimension_at


@triton.jit
def input_kernel(
    x_ptr,  # (M, B, D) with the strides below
    W_ptr,  # (M, D, H), read for the gradient of x
    order_ptr,  # (M, D) or None
    g_ptr,  # (M, D, B, H)
    drho_parts_ptr,  # (M, D, parts), summed here to spare a launch
    drho_ptr,  # (M, D), written
    dW_ptr,  # (M, blocks, D, H), written: partial sums over a block's rows
    dc_ptr,  # (M, blocks, H), likewise
    dx_ptr,  # (M, tiles of H, B, D), partial sums over a tile's units, written, or None
    B,
    D,
    H,
    chunk,  # positions a program writes
    n_chunks,
    parts,
    x_stride_m,
    x_stride_b,
    x_stride_d,
    BB: tl.constexpr,
    HT: tl.constexpr,
    CHUNK: tl.constexpr,  # powers of two at or above chunk and parts
    PARTS: tl.constexpr,
):
    """One program: BB rows and HT units over a chunk of positions, last position first."""
    m = (tl.program_id(0) // n_chunks).to(tl.int64)
    first = (tl.program_id(0) % n_chunks) * chunk
    beyond = tl.minimum(first + chunk, D)
    tile, block = tl.program_id(1), tl.program_id(2)
    h = tile * HT + tl.arange(0, HT)
    rows = (block * BB + tl.arange(0, BB)).to(tl.int64)
    row_ok, h_ok = rows < B, h < H
    ok = row_ok[:, None] & h_ok[None, :]
    within = rows[:, None] * H + h[None, :]
    m_block = m * tl.num_programs(2) + block
    da = tl.zeros((BB, HT), tl.float32)
    for i in tl.range(beyond, D, num_stages=4):
        d = dimension_at(order_ptr, m, D, i)
        da += tl.load(g_ptr + (m * D + d) * B * H + within, mask=ok, other=0.0)
    for step in tl.range(0, beyond - first, num_stages=4):
        # Here da is the gradient at a_{d+1}, which x_d entered as x_d W_d.
        d = dimension_at(order_ptr, m, D, beyond - 1 - step)
        md = m * D + d
        x = tl.load(
            x_ptr + m * x_stride_m + rows * x_stride_b + d * x_stride_d, mask=row_ok, other=0.0
        )
        g = tl.load(g_ptr + md * B * H + within, mask=ok, other=0.0)
        tl.store(dW_ptr + (m_block * D + d) * H + h, tl.sum(da * x[:, None], 0), mask=h_ok)
        if dx_ptr is not None:
            w = tl.load(W_ptr + md * H + h, mask=h_ok, other=0.0)
            at = ((m * tl.num_programs(1) + tile) * B + rows) * D + d
            tl.store(dx_ptr + at, tl.sum(da * w[None, :], 1), mask=row_ok)
        da += g
    if tile + block == 0:
        # Which dimensions of rho a program sums has nothing to do with the order.
        d = first + tl.arange(0, CHUNK)
        part = tl.arange(0, PARTS)
        d_ok = (d < beyond)[:, None] & (part < parts)[None, :]
        at = drho_parts_ptr + (m * D + d)[:, None] * parts + part[None, :]
        drho = tl.sum(tl.load(at, mask=d_ok, other=0.0), 1)
        tl.store(drho_ptr + m * D + d, drho, mask=d < beyond)
    if first == 0:
        tl.store(dc_ptr + m_block * H + h, tl.sum(da, 0), mask=h_ok)
