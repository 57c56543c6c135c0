"""Value and gradient with a stored hidden state: minibatches, and batches in chunks of rows.

Computed, for a chunk of B rows, in four kernels of which the first two are here (the paper's
Algorithm 2, cut by dimension):

1. `state_kernel`: a_d = c + sum_{e<d} x_e W_e for every dimension, stored as A (M, D, B, H).
   Parallel over chunks of positions too: a chunk's first a is one small matrix product.
2. `output_kernel`: z_d = V_d' g(rho_d a_d) + b_d, then the family's epilogue: log p(x_d | x_<d)
   and, where a gradient will be asked for, d log p / dz_d (M, D, B, P). One program for each
   dimension and block of rows.
3. `weight_gradient`: from d log p / dz_d times the upstream gradient: dV_d, db_d, d rho_d, and
   d log p / da_d, stored as G (M, D, B, H). One program a dimension and run of tiles of H.
4. `input_gradient`: da_d summed over later dimensions gives dW_d, dc and dx. Parallel over chunks
   of positions, whose first sum each program makes for itself. It also ends the sums for d rho.

Fused: activation, product, bias, epilogue and weighting in 2; activation, both products and their
reductions over rows in 3. In registers: one (BB, HT) tile of state and one tile of sums.
Recomputed by the backward pass: h, and A itself where it was too large to keep.

Traffic, in elements for each model: A and G are written once and read once (G some 5 times, by the
chunks), V is read twice and its gradient written once: 3 D H P + 8 B D H. For B = 25, D = 63,
H = 512, P = 60 that is 12 million elements or 49 MB, nearly all of it in L2: some 10 us; 35 us
were measured on an H200, most of the rest being latency and the three products of the exact mode.
Plain torch moves A some 12 times.

A and G are of size B x D x H, which the on-chip kernels of `density` never store: so `api`
bounds them (`STORED_ELEMENTS`) by taking rows in chunks. Scoring many rows is better done there.

Every sum is made by one program in a fixed order, or left as partial sums in a fixed layout, so
the same inputs give the same bits. The one atomic is a counter, by which the last program of a
model to end knows that it is the last and adds up what all have left, which saves a launch.
"""

# mypy: ignore-errors
# Triton, not Python, gives the arguments of kernels their types.

import triton
import triton.language as tl

from rnade.backends.gpu.density import activate, dimension_at, product
from rnade.backends.gpu.families import epilogue
from rnade.backends.gpu.residual import as_stream

# Partial sums that the last program of a model adds at a time.
SUMMED = tl.constexpr(128)


@triton.jit
def state_kernel(
    x_ptr,  # (M, B, D) with the strides below
    W_ptr,  # (M, D, H)
    c_ptr,  # (M, H)
    order_ptr,  # (M, D) or None
    rho_ptr,  # (M, D), or None where r is not wanted
    a_ptr,  # (M, D, B, H), written
    r_ptr,  # (M, D, B, H), g(rho a), what layers start from, written, or None
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
    ACTIVATION: tl.constexpr,
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
        if order_ptr is not None:
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
        d = dimension_at(order_ptr, m, D, i)
        md = m * D + d
        x = tl.load(x_rows + d * x_stride_d, mask=row_ok, other=0.0)
        w = tl.load(W_ptr + md * H + h, mask=h_ok, other=0.0)
        tl.store(a_ptr + md * B * H + within, as_stream(a, a_ptr), mask=ok)
        if r_ptr is not None:
            r = activate(tl.load(rho_ptr + md) * a, ACTIVATION)
            tl.store(r_ptr + md * B * H + within, r.to(r_ptr.dtype.element_ty), mask=ok)
        a += x[:, None] * w[None, :]


@triton.jit
def output_kernel(
    x_ptr,  # (M, B, D) with the strides below
    a_ptr,  # (M, D, B, H)
    rho_ptr,  # (M, D)
    V_ptr,  # (M, D, H, P) with the strides below
    b_ptr,  # (M, D, P)
    floor_ptr,  # (M, D), logarithms, or None
    weight_ptr,  # (M, B) with the strides below, or None
    out_ptr,  # (M, B, D) terms; with weights (M, D, blocks), weighted sums over a block's rows
    total_ptr,  # (M,), written with weights: their sums
    ended_ptr,  # (M,) zeros: programs of a model that have ended
    dz_ptr,  # (M, D, B, P), written, or None
    dx_ptr,  # (M, B, D), a term's derivative to its own x_d, written, or None
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
        a = a.to(tl.float32)
        v = tl.load(
            V_here[None, :] + h[:, None] * V_stride_h,
            mask=h_ok[:, None] & (n < P)[None, :],
            other=0.0,
        )
        z = product(activate(rho * a, ACTIVATION), v, z, PRECISION)
    log_floor = floor_ptr
    if floor_ptr is not None:
        log_floor = tl.load(floor_ptr + md)
    dz_rows = dz_ptr
    if dz_ptr is not None:
        dz_rows = dz_ptr + (md * B + rows) * P
    term, dx = epilogue(x, z, log_floor, dz_rows, row_ok, FAMILY, K, KP, BB, SCALE_MEAN)
    if weight_ptr is not None:
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
    if dx_ptr is not None:
        tl.store(dx_ptr + (m * B + rows) * D + d, dx, mask=row_ok)
