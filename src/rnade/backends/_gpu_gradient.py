"""Value and gradient with a stored hidden state: minibatches, and batches in chunks of rows.

Computed, in four kernels, for a chunk of B rows (the paper's Algorithm 2, cut by dimension):

1. `state_kernel`: a_d = c + sum_{e<d} x_e W_e for every dimension, stored as A (M, D, B, H).
   Parallel over chunks of positions too: a chunk's first a is one small matrix product.
2. `output_kernel`: z_d = V_d' g(rho_d a_d) + b_d, then the family's epilogue: log p(x_d | x_<d)
   and, where a gradient will be asked for, d log p / dz_d (M, D, B, P). One program for each
   dimension and block of rows.
3. `weight_kernel`: from d log p / dz_d times the upstream gradient: dV_d, db_d, d rho_d, and
   d log p / da_d, stored as G (M, D, B, H). One program a dimension and run of tiles of H.
4. `input_kernel`: da_d summed over later dimensions gives dW_d, dc and dx. Parallel over chunks of
   positions, whose first sum each program makes for itself. It also ends the sums for d rho.

Fused: activation, product, bias, epilogue and weighting in 2; activation, both products and their
reductions over rows in 3. In registers: one (BB, HT) tile of state and one tile of sums.
Recomputed by the backward pass: h, and A itself where it was too large to keep.

Traffic, in elements for each model: A and G are written once and read once (G some 5 times, by the
chunks), V is read twice and its gradient written once: 3 D H P + 8 B D H. For B = 25, D = 63,
H = 512, P = 60 that is 12 million elements or 49 MB, nearly all of it in L2: some 10 us; 35 us
were measured on an H200, most of the rest being latency and the three products of the exact mode.
Plain torch moves A some 12 times.

A and G are of size B x D x H, which the on-chip kernels of `_gpu_kernels` never store: so `gpu`
bounds them (`STORED_ELEMENTS`) by taking rows in chunks. Scoring many rows is better done there.

Every sum is made by one program in a fixed order, or left as partial sums in a fixed layout, so
the same inputs give the same bits. The one atomic is a counter, by which the last program of a
model to end knows that it is the last and adds up what all have left, which saves a launch.
"""

from typing import no_type_check

import triton
import triton.language as tl

from rnade.backends._gpu_families import epilogue
from rnade.backends._gpu_kernels import activate, product

# Partial sums that the last program of a model adds at a time.
SUMMED = tl.constexpr(128)


@triton.jit
@no_type_check
def dimension_at(order_ptr, m, D, i, ORDERED: tl.constexpr):
    """The dimension that comes i-th for model m."""
    d = i
    if ORDERED:
        d = tl.load(order_ptr + m * D + i)
    return d


@triton.jit
@no_type_check
def state_kernel(
    x_ptr,  # (M, B, D) with the strides below
    W_ptr,  # (M, D, H)
    c_ptr,  # (M, H)
    order_ptr,  # (M, D), read if ORDERED
    a_ptr,  # (M, D, B, H), written
    ended_ptr,  # (M,), set to 0
    B,
    D,
    H,
    chunk,  # positions a program stores
    n_chunks,
    x_stride_m,
    x_stride_b,
    x_stride_d,
    BB: tl.constexpr,
    HT: tl.constexpr,
    DT: tl.constexpr,  # positions taken at a time by the product that starts a chunk
    ORDERED: tl.constexpr,
):
    """One program: the hidden state of BB rows and HT units over a chunk of positions."""
    m = (tl.program_id(0) // n_chunks).to(tl.int64)
    first = (tl.program_id(0) % n_chunks) * chunk
    h = tl.program_id(1) * HT + tl.arange(0, HT)
    rows = tl.program_id(2) * BB + tl.arange(0, BB)
    row_ok, h_ok = rows < B, h < H
    ok = row_ok[:, None] & h_ok[None, :]
    if (first == 0) & (tl.program_id(1) == 0) & (tl.program_id(2) == 0):
        tl.store(ended_ptr + m, 0)
    x_rows = x_ptr + m * x_stride_m + rows.to(tl.int64) * x_stride_b
    within = rows.to(tl.int64)[:, None] * H + h[None, :]
    a = tl.zeros((BB, HT), tl.float32)
    a += tl.load(c_ptr + m * H + h, mask=h_ok, other=0.0)[None, :]
    for start in tl.range(0, first, DT):
        i = start + tl.arange(0, DT)
        d = i
        if ORDERED:
            d = tl.load(order_ptr + m * D + i, mask=i < first, other=0)
        before = i < first
        x = tl.load(
            x_rows[:, None] + d[None, :] * x_stride_d,
            mask=row_ok[:, None] & before[None, :],
            other=0.0,
        )
        w = tl.load(
            W_ptr + (m * D + d)[:, None] * H + h[None, :],
            mask=before[:, None] & h_ok[None, :],
            other=0.0,
        )
        a = tl.dot(x, w, a, input_precision="tf32x3")
    for i in tl.range(first, tl.minimum(first + chunk, D)):
        d = dimension_at(order_ptr, m, D, i, ORDERED)
        md = m * D + d
        x = tl.load(x_rows + d * x_stride_d, mask=row_ok, other=0.0)
        w = tl.load(W_ptr + md * H + h, mask=h_ok, other=0.0)
        tl.store(a_ptr + md * B * H + within, a, mask=ok)
        a += x[:, None] * w[None, :]


@triton.jit
@no_type_check
def output_kernel(
    x_ptr,  # (M, B, D) with the strides below
    a_ptr,  # (M, D, B, H)
    rho_ptr,  # (M, D)
    V_ptr,  # (M, D, H, P) with the strides below
    b_ptr,  # (M, D, P)
    floor_ptr,  # (M, D), logarithms, read if FLOORED
    weight_ptr,  # (M, B) with the strides below, read if WEIGHTED
    out_ptr,  # (M, B, D) terms; if WEIGHTED (M, D, blocks), weighted sums over a block's rows
    total_ptr,  # (M,), written if WEIGHTED: their sums
    ended_ptr,  # (M,) zeros: programs of a model that have ended
    dz_ptr,  # (M, D, B, P), written if GRADIENT
    dx_ptr,  # (M, B, D), a term's derivative to its own x_d, written if GRADIENT_X
    B,
    D,
    H,
    x_stride_m,
    x_stride_b,
    x_stride_d,
    V_stride_m,
    V_stride_d,
    weight_stride_m,
    weight_stride_b,
    V_stride_h: tl.constexpr,  # fixed when compiled, so that rows of P are read 16 bytes at a time
    V_stride_p: tl.constexpr,
    P: tl.constexpr,
    NP: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    BB: tl.constexpr,
    HT: tl.constexpr,
    FAMILY: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    FLOORED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    GRADIENT: tl.constexpr,
    GRADIENT_X: tl.constexpr,
    SCALE_MEAN: tl.constexpr,
):
    """One program: BB rows of one dimension of one model."""
    md = tl.program_id(0).to(tl.int64)
    m, d = md // D, md % D
    rows = (tl.program_id(1) * BB + tl.arange(0, BB)).to(tl.int64)
    row_ok = rows < B
    n = tl.arange(0, NP)
    x = tl.load(
        x_ptr + m * x_stride_m + rows * x_stride_b + d * x_stride_d, mask=row_ok, other=0.0
    )
    rho = tl.load(rho_ptr + md)
    a_rows = a_ptr + (md * B + rows) * H
    V_here = V_ptr + m * V_stride_m + d * V_stride_d + n * V_stride_p
    z = tl.zeros((BB, NP), tl.float32)
    z += tl.load(b_ptr + md * P + n, mask=n < P, other=0.0)[None, :]
    for start in tl.range(0, H, HT):
        h = start + tl.arange(0, HT)
        h_ok = h < H
        a = tl.load(a_rows[:, None] + h[None, :], mask=row_ok[:, None] & h_ok[None, :], other=0.0)
        v = tl.load(
            V_here[None, :] + h[:, None] * V_stride_h,
            mask=h_ok[:, None] & (n < P)[None, :],
            other=0.0,
        )
        z = product(activate(rho * a, ACTIVATION), v, z, PRECISION)
    log_floor = 0.0
    if FLOORED:
        log_floor = tl.load(floor_ptr + md)
    dz_rows = dz_ptr + (md * B + rows) * P
    term, dx = epilogue(
        x,
        z,
        log_floor,
        dz_rows,
        row_ok,
        FAMILY,
        K,
        KP,
        BB,
        FLOORED,
        GRADIENT,
        SCALE_MEAN,
    )
    if WEIGHTED:
        at = weight_ptr + m * weight_stride_m + rows * weight_stride_b
        weight = tl.load(at, mask=row_ok, other=0.0)
        blocks = tl.num_programs(1)
        tl.store(
            out_ptr + md * blocks + tl.program_id(1), tl.sum(tl.where(row_ok, weight * term, 0.0))
        )
        tl.debug_barrier()  # the sum is written before the counter says so
        if tl.atomic_add(ended_ptr + m, 1, sem="acq_rel") == D * blocks - 1:
            total = tl.zeros((SUMMED,), tl.float32)
            for start in tl.range(0, D * blocks, SUMMED):
                i = start + tl.arange(0, SUMMED)
                part = out_ptr + m * D * blocks + i
                total += tl.load(part, mask=i < D * blocks, other=0.0, cache_modifier=".cg")
            tl.store(total_ptr + m, tl.sum(total))
    else:
        tl.store(out_ptr + (m * B + rows) * D + d, term, mask=row_ok)
    if GRADIENT_X:
        tl.store(dx_ptr + (m * B + rows) * D + d, dx, mask=row_ok)


@triton.jit
@no_type_check
def _load_dz(dz_ptr, upstream_ptr, stride, rows, row_ok, scale, P: tl.constexpr, NP: tl.constexpr):
    """The rows' d log p / dz times what comes from upstream, of shape (BB, NP)."""
    n = tl.arange(0, NP)
    upstream = tl.load(upstream_ptr + rows * stride, mask=row_ok, other=0.0)
    dz = tl.load(
        dz_ptr + rows[:, None] * P + n[None, :],
        mask=row_ok[:, None] & (n < P)[None, :],
        other=0.0,
    )
    return dz * (upstream * scale)[:, None]


@triton.jit
@no_type_check
def _through_hidden(a, rho, dz, v, dV, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr):
    """Add h' dz to dV; give d log p / dpsi (BB, HT) and its sum with a over the rows (HT,)."""
    psi = rho * a
    hidden = activate(psi, ACTIVATION)
    dV = product(tl.trans(hidden), dz, dV, PRECISION)
    dpsi = product(dz, v, tl.zeros(a.shape, tl.float32), PRECISION)
    if ACTIVATION == "relu":
        dpsi = tl.where(psi > 0, dpsi, 0.0)
    elif ACTIVATION == "sigmoid":
        dpsi = dpsi * hidden * (1 - hidden)
    return dV, dpsi, tl.sum(dpsi * a, 0)


@triton.jit
@no_type_check
def weight_kernel(
    a_ptr,  # (M, D, B, H)
    rho_ptr,  # (M, D)
    V_ptr,  # (M, D, H, P) with the strides below
    dz_ptr,  # (M, D, B, P)
    upstream_ptr,  # (M, B, D) with the strides below
    scale_ptr,  # (M,), multiplies the upstream gradient if SCALED
    dV_ptr,  # (M, D, H, P), written, or added to if ADDED
    db_ptr,  # (M, D, P), likewise
    drho_ptr,  # (M, D, programs of a dimension), likewise: partial sums
    g_ptr,  # (M, D, B, H), written: d log p / da_d of this term alone
    B,
    D,
    H,
    tiles,  # of H that a program takes one after the other
    V_stride_m,
    V_stride_d,
    upstream_stride_m,
    upstream_stride_b,
    upstream_stride_d,
    V_stride_h: tl.constexpr,  # fixed when compiled, as above
    V_stride_p: tl.constexpr,
    P: tl.constexpr,
    NP: tl.constexpr,
    BB: tl.constexpr,
    HT: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    SCALED: tl.constexpr,
    ADDED: tl.constexpr,
    ONE_BLOCK: tl.constexpr,  # whether BB rows are all: then dz is read once
):
    """One program: all rows of one dimension of one model, for some tiles of hidden units."""
    # Last dimension first: its V is what `output_kernel` left in the cache.
    md = (tl.num_programs(0) - 1 - tl.program_id(0)).to(tl.int64)
    m, d = md // D, md % D
    part = tl.program_id(1)
    n = tl.arange(0, NP)
    n_ok = n < P
    V_here = V_ptr + m * V_stride_m + d * V_stride_d
    dz_here = dz_ptr + md * B * P
    upstream_here = upstream_ptr + m * upstream_stride_m + d * upstream_stride_d
    rho = tl.load(rho_ptr + md)
    scale = 1.0
    if SCALED:
        scale = tl.load(scale_ptr + m)
    rows = tl.arange(0, BB).to(tl.int64)
    row_ok = rows < B
    dz = tl.zeros((BB, NP), tl.float32)
    db = tl.zeros((NP,), tl.float32)
    drho = tl.zeros((HT,), tl.float32)
    if ONE_BLOCK:
        dz = _load_dz(dz_here, upstream_here, upstream_stride_b, rows, row_ok, scale, P, NP)
        db = tl.sum(dz, 0)
    for start in tl.range(part * tiles * HT, tl.minimum((part + 1) * tiles * HT, H), HT):
        h = start + tl.arange(0, HT)
        h_ok = h < H
        v = tl.load(
            V_here + n[:, None] * V_stride_p + h[None, :] * V_stride_h,
            mask=n_ok[:, None] & h_ok[None, :],
            other=0.0,
        )
        dV = tl.zeros((HT, NP), tl.float32)
        if ONE_BLOCK:
            at = (md * B + rows)[:, None] * H + h[None, :]
            ok = row_ok[:, None] & h_ok[None, :]
            a = tl.load(a_ptr + at, mask=ok, other=0.0)
            dV, dpsi, drho_here = _through_hidden(a, rho, dz, v, dV, ACTIVATION, PRECISION)
            drho += drho_here
            tl.store(g_ptr + at, dpsi * rho, mask=ok)
        else:
            db = tl.zeros((NP,), tl.float32)
            for first in tl.range(0, B, BB):
                rows = (first + tl.arange(0, BB)).to(tl.int64)
                row_ok = rows < B
                dz = _load_dz(
                    dz_here, upstream_here, upstream_stride_b, rows, row_ok, scale, P, NP
                )
                db += tl.sum(dz, 0)
                at = (md * B + rows)[:, None] * H + h[None, :]
                ok = row_ok[:, None] & h_ok[None, :]
                a = tl.load(a_ptr + at, mask=ok, other=0.0)
                dV, dpsi, drho_here = _through_hidden(a, rho, dz, v, dV, ACTIVATION, PRECISION)
                drho += drho_here
                tl.store(g_ptr + at, dpsi * rho, mask=ok)
        at = (md * H + h)[:, None] * P + n[None, :]
        ok = h_ok[:, None] & n_ok[None, :]
        if ADDED:
            dV += tl.load(dV_ptr + at, mask=ok, other=0.0)
        tl.store(dV_ptr + at, dV, mask=ok)
    drho_at = drho_ptr + md * tl.num_programs(1) + part
    drho_total = tl.sum(drho)
    if ADDED:
        drho_total += tl.load(drho_at)
    tl.store(drho_at, drho_total)
    if part == 0:
        if ADDED:
            db += tl.load(db_ptr + md * P + n, mask=n_ok, other=0.0)
        tl.store(db_ptr + md * P + n, db, mask=n_ok)


@triton.jit
@no_type_check
def input_kernel(
    x_ptr,  # (M, B, D) with the strides below
    W_ptr,  # (M, D, H), read if GRADIENT_X
    order_ptr,  # (M, D), read if ORDERED
    g_ptr,  # (M, D, B, H)
    drho_parts_ptr,  # (M, D, parts), summed here to spare a launch
    drho_ptr,  # (M, D), written
    dW_ptr,  # (M, blocks, D, H), written: partial sums over a block's rows
    dc_ptr,  # (M, blocks, H), likewise
    dx_ptr,  # (M, tiles of H, B, D), partial sums over a tile's units, written if GRADIENT_X
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
    ORDERED: tl.constexpr,
    GRADIENT_X: tl.constexpr,
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
        d = dimension_at(order_ptr, m, D, i, ORDERED)
        da += tl.load(g_ptr + (m * D + d) * B * H + within, mask=ok, other=0.0)
    for step in tl.range(0, beyond - first, num_stages=4):
        # Here da is the gradient at a_{d+1}, which x_d entered as x_d W_d.
        d = dimension_at(order_ptr, m, D, beyond - 1 - step, ORDERED)
        md = m * D + d
        x = tl.load(
            x_ptr + m * x_stride_m + rows * x_stride_b + d * x_stride_d, mask=row_ok, other=0.0
        )
        g = tl.load(g_ptr + md * B * H + within, mask=ok, other=0.0)
        tl.store(dW_ptr + (m_block * D + d) * H + h, tl.sum(da * x[:, None], 0), mask=h_ok)
        if GRADIENT_X:
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
