"""Layers of a deeper network: product, bias, residual and activation in one kernel each way.

Computed, for the rows of every dimension:

- `layer_kernel`: the stream after a layer, s + U[l]' r + u[l, d], and r = g(s), which is the next
  layer's input. Before the first layer s is rho_d a_d.
- `layer_gradient_kernel`: the stream's gradient one layer earlier, ds + (U[l] ds) g'(s), and the
  sums over rows that make the gradients of u[l - 1, d] or rho_d.

Fused: everything but the product of r and ds that makes the gradient of U, which is the vendor's
(`layers`). The stream itself is not kept for the backward pass: the slope of g follows from r.

In registers: the (BB, HT) tile of the product. r, ds and U come through shared memory, KT units at
a time.

Traffic with precision "bf16", for each layer and B D H units: 8 bytes forward (s read and written
in float16, r in bf16) and 6 backward, beside 4 of the vendor's product. From L2 each row tile also
reads U, and each tile of units all of r or ds: at B = 512, D = 63, H = 512 some 360 MB each way,
more than twice what the product alone would take at the machine's rate. Wider layers do more with
what they read. To do better a tile of rows would have to stay on chip from layer to layer.

Sums over rows are left as partial sums in a fixed layout: no atomics, so the same inputs give the
same bits.
"""

# mypy: ignore-errors
# Triton, not Python, gives the arguments of kernels their types.

import triton
import triton.language as tl

from rnade.backends.gpu.density import activate, activate_back, product

# The largest number of float16, in which the stream is kept where products are in bf16.
LARGEST = tl.constexpr(65504.0)


@triton.jit
def as_stream(s, ptr):
    """Numbers of the stream as they are stored at `ptr`: no float16 is infinite; a NaN stays."""
    if ptr.dtype.element_ty == tl.float16:
        s = tl.clamp(s, -LARGEST, LARGEST, propagate_nan=tl.PropagateNan.ALL)
    return s.to(ptr.dtype.element_ty)


@triton.jit
def _place(tiles, blocks):
    """Which tile of units, block of rows and dimension of a model a program takes."""
    pid = tl.program_id(0)
    return pid % tiles, pid // tiles % blocks, pid // tiles // blocks


@triton.jit
def _load(ptr, at, ok, WHOLE: tl.constexpr):
    """Numbers at some places, 0 where not `ok`; no mask where tiles are WHOLE."""
    if WHOLE:
        return tl.load(ptr + at)
    return tl.load(ptr + at, mask=ok, other=0.0)


@triton.jit
def _product_of_tile(
    left_ptr,
    U_ptr,
    rows,
    row_ok,
    h,
    H,
    U_stride_k,
    U_stride_n,
    HT: tl.constexpr,
    BB: tl.constexpr,
    KT: tl.constexpr,
    PRECISION: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Rows (BB, H) at `left_ptr` times columns h of the matrix with these strides, (BB, HT)."""
    k = tl.arange(0, KT)
    # Places within a dimension's rows and within U fit 32 bits: `api` bounds what is stored.
    left_at, U_at = (
        rows[:, None] * H + k[None, :],
        k[:, None] * U_stride_k + h[None, :] * U_stride_n,
    )
    total = tl.zeros((BB, HT), tl.float32)
    for start in tl.range(0, H, KT):
        k_ok = start + k < H
        left = _load(left_ptr + start, left_at, row_ok[:, None] & k_ok[None, :], WHOLE)
        right = _load(U_ptr + start * U_stride_k, U_at, k_ok[:, None] & (h < H)[None, :], WHOLE)
        total = product(left, right, total, PRECISION)
    return total


@triton.jit
def layer_kernel(
    r_ptr,  # (M, D, B, H), g of the stream before the layer
    before_ptr,  # (M, D, B, H), that stream, or a if there is rho
    rho_ptr,  # (M, D) or None
    U_ptr,  # (M, H, H) with the stride below
    u_ptr,  # (M, D, H) with the stride below
    s_ptr,  # (M, D, B, H), the stream after the layer, written
    next_ptr,  # (M, D, B, H), g of it, written, or None
    B,
    D,
    H,
    U_stride_m,
    u_stride_m,
    BB: tl.constexpr,
    HT: tl.constexpr,
    KT: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    WHOLE: tl.constexpr,  # whether tiles cover rows and units without a rest
):
    """One program: BB rows and HT units of one dimension of one model."""
    tiles = tl.cdiv(H, HT)
    tile, block, md = _place(tiles, tl.cdiv(B, BB))
    m, here = md // D, md.to(tl.int64) * B * H
    rows, h = block * BB + tl.arange(0, BB), tile * HT + tl.arange(0, HT)
    row_ok, h_ok = rows < B, h < H
    total = _product_of_tile(
        *(r_ptr + here, U_ptr + m.to(tl.int64) * U_stride_m, rows, row_ok, h, H, H, 1),
        *(HT, BB, KT, PRECISION, WHOLE),
    )
    at, ok = rows[:, None] * H + h[None, :], row_ok[:, None] & h_ok[None, :]
    s = _load(before_ptr + here, at, ok, WHOLE).to(tl.float32)
    if rho_ptr is not None:
        s = s * tl.load(rho_ptr + md)
    u_here = u_ptr + m.to(tl.int64) * u_stride_m + md % D * H
    s += total + _load(u_here, h, h_ok, WHOLE)[None, :]
    tl.store(s_ptr + here + at, as_stream(s, s_ptr), mask=ok)
    if next_ptr is not None:
        r = activate(s, ACTIVATION)
        tl.store(next_ptr + here + at, r.to(next_ptr.dtype.element_ty), mask=ok)


@triton.jit
def layer_gradient_kernel(
    ds_ptr,  # (M, D, B, H), gradient of the stream after the layer
    r_ptr,  # (M, D, B, H), the layer's input
    U_ptr,  # (M, H, H) with the stride below
    a_ptr,  # (M, D, B, H) for the first layer, else None
    rho_ptr,  # (M, D), likewise
    out_ptr,  # (M, D, B, H), gradient of the stream before the layer, or of a, written
    sum_ptr,  # (M, D, blocks, H), sums of out; with a (M, D, blocks, tiles), drho; written
    B,
    D,
    H,
    U_stride_m,
    BB: tl.constexpr,
    HT: tl.constexpr,
    KT: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """One program: BB rows and HT units of one dimension of one model."""
    tiles = tl.cdiv(H, HT)
    tile, block, md = _place(tiles, tl.cdiv(B, BB))
    m, here = md // D, md.to(tl.int64) * B * H
    rows, h = block * BB + tl.arange(0, BB), tile * HT + tl.arange(0, HT)
    row_ok, h_ok = rows < B, h < H
    dr = _product_of_tile(
        *(ds_ptr + here, U_ptr + m.to(tl.int64) * U_stride_m, rows, row_ok, h, H, 1, H),
        *(HT, BB, KT, PRECISION, WHOLE),
    )
    at, ok = rows[:, None] * H + h[None, :], row_ok[:, None] & h_ok[None, :]
    r = _load(r_ptr + here, at, ok, WHOLE).to(tl.float32)
    ds = _load(ds_ptr + here, at, ok, WHOLE).to(tl.float32) + activate_back(dr, r, r, ACTIVATION)
    sums = md.to(tl.int64) * tl.cdiv(B, BB) + block
    if a_ptr is not None:
        a = _load(a_ptr + here, at, ok, WHOLE).to(tl.float32)
        tl.store(sum_ptr + sums * tiles + tile, tl.sum(ds * a))
        ds = ds * tl.load(rho_ptr + md)
    else:
        tl.store(sum_ptr + sums * H + h, tl.sum(ds, 0), mask=h_ok)
    tl.store(out_ptr + here + at, ds.to(out_ptr.dtype.element_ty), mask=ok)
