"""Density and draws of many rows, with the hidden state kept on chip (the paper's Algorithm 1).

Computed: for a block of BB rows, walk along the D dimensions: h = g(rho_d a), z = V_d' h + b_d,
log p(x_d | z) or a draw of x_d, then a += x_d W_d.

Fused: all of it, the family's epilogue and the sum over dimensions included.

In registers: a, as S tiles of (BB, HT) in float32. A tuple of tiles rather than one (BB, H) tile,
because the matrix units take h a tile at a time (one tile of 64 x 512 spills hundreds of
registers and ran 4 times slower) and because H then need not be a power of two. z and everything
of the family is (BB, NP) or smaller.

Recomputed: nothing; there is no gradient here (see `stored`).

Traffic, in elements for each model: plain torch writes and reads a, psi and h, 6 B D H in all,
and z. These kernels read x (B D), write B or B D numbers, and read the weights once a block,
(B / BB) D H (NP + 1), from L2. At B = 1,000,000, D = 63, H = 512, K = 10, BB = 16 that is 131 GB
in bf16 and 260 GB in float32, where plain torch moves 770 GB through memory. At some 5 TB/s of L2
the bound is near 26 and 52 ms; 34 ms (bf16) and 55 ms (tf32) were measured on an H200. The exact
mode, 95 ms, is bound by splitting its operands; a draw, 93 ms, has three programs share a
multiprocessor (`tiling.drawing_registers`). Larger blocks would read less but compute columns
of z twice, see `tiling`.

Where it stops being the right choice: few rows (fewer blocks than multiprocessors leave the chip
idle, since a block's walk is sequential), and H past what the registers hold, `ON_CHIP_HIDDEN` in
`api`. There the path of `stored` serves.

Precision: "bf16" and "tf32" round h and V once; "exact" splits each into a part of TF32 precision
and a remainder and adds three products (tf32x3), which leaves float32's own error. "bf16
interpreted" is for Triton's interpreter, which multiplies the bits of bf16 tiles as integers.
"""

# mypy: ignore-errors
# Triton, not Python, gives the arguments of kernels their types.

import triton
import triton.language as tl

from rnade.backends.gpu.families import draw, epilogue


@triton.jit
def activate(psi, ACTIVATION: tl.constexpr):
    """Hidden units from psi; a NaN stays one."""
    h = psi
    if ACTIVATION == "relu":
        h = tl.maximum(psi, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif ACTIVATION == "sigmoid":
        h = tl.sigmoid(psi)
    return h


@triton.jit
def activate_back(dh, psi, h, ACTIVATION: tl.constexpr):
    """The gradient of psi from that of h = g(psi)."""
    if ACTIVATION == "relu":
        dh = tl.where(psi > 0, dh, 0.0)
    elif ACTIVATION == "sigmoid":
        dh = dh * h * (1 - h)
    return dh


@triton.jit
def product(left, right, total, PRECISION: tl.constexpr):
    """Give left @ right + total in the precision asked for."""
    if PRECISION == "bf16":
        total = tl.dot(left.to(tl.bfloat16), right.to(tl.bfloat16), total)
    elif PRECISION == "bf16 interpreted":
        left, right = left.to(tl.bfloat16), right.to(tl.bfloat16)
        total = tl.dot(left.to(tl.float32), right.to(tl.float32), total)
    elif PRECISION == "tf32":
        total = tl.dot(left, right, total, input_precision="tf32")
    else:
        total = tl.dot(left, right, total, input_precision="tf32x3")
    return total


@triton.jit
def dimension_at(order_ptr, m, D, i):
    """The dimension that comes i-th for model m; i itself where there is no order."""
    d = i
    if order_ptr is not None:
        d = tl.load(order_ptr + m * D + i)
    return d


@triton.jit
def _load_units(ptr, h, H, WHOLE: tl.constexpr):
    """Numbers of the units h, 0 beyond H; no mask where H is a WHOLE number of tiles."""
    if WHOLE:
        return tl.load(ptr + h)
    return tl.load(ptr + h, mask=h < H, other=0.0)


@triton.jit
def first_state(
    c_ptr, H, BB: tl.constexpr, HT: tl.constexpr, S: tl.constexpr, WHOLE: tl.constexpr
):
    """a_1 = c for every row, as S tiles of (BB, HT), zero beyond H."""
    h = tl.arange(0, HT)
    a = ()
    for t in tl.static_range(S):
        c = _load_units(c_ptr, t * HT + h, H, WHOLE)
        a = a + (tl.zeros((BB, HT), tl.float32) + c[None, :],)  # noqa: RUF005 (Triton has no *)
    return a


@triton.jit
def next_state(a, x, W_ptr, H, HT: tl.constexpr, S: tl.constexpr, WHOLE: tl.constexpr):
    """a_{d+1} = a_d + x_d W_d; W_ptr points to row d."""
    h = tl.arange(0, HT)
    following = ()
    for t in tl.static_range(S):
        w = _load_units(W_ptr, t * HT + h, H, WHOLE)
        following = following + (a[t] + x[:, None] * w[None, :],)  # noqa: RUF005
    return following


@triton.jit
def walk_kernel(
    x_ptr,  # (M, B, D) with the strides below; written where rows are drawn
    uniform_ptr,  # (M, D, B), what chooses the component of a draw; None for densities of rows
    noise_ptr,  # (M, D, B), draws of the standard component; not read for a Bernoulli
    W_ptr,  # (M, D, H)
    c_ptr,  # (M, H)
    rho_ptr,  # (M, D)
    V_ptr,  # (M, D, S HT, NP), packed: zero beyond H and P
    b_ptr,  # (M, D, P)
    floor_ptr,  # (M, D), logarithms, or None
    order_ptr,  # (M, D) or None
    out_ptr,  # (M, B) if SUMMED, else (M, B, D), densities; not written where rows are drawn
    B,
    D,
    H,
    x_stride_m,
    x_stride_b,
    x_stride_d,
    P: tl.constexpr,
    NP: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    BB: tl.constexpr,
    HT: tl.constexpr,
    S: tl.constexpr,
    WHOLE: tl.constexpr,
    FAMILY: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    SUMMED: tl.constexpr,
):
    """One program: BB rows of one model, scored or drawn one dimension after the other."""
    drawn: tl.constexpr = uniform_ptr is not None
    m = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0).to(tl.int64) * BB + tl.arange(0, BB)
    ok = rows < B
    x_rows = x_ptr + m * x_stride_m + rows * x_stride_b
    h, n = tl.arange(0, HT), tl.arange(0, NP)
    a = first_state(c_ptr + m * H, H, BB, HT, S, WHOLE)
    total = tl.zeros((BB,), tl.float32)
    for i in tl.range(0, D):
        d = dimension_at(order_ptr, m, D, i)
        md = m * D + d
        if drawn:
            uniform = tl.load(uniform_ptr + md * B + rows, mask=ok, other=0.5)
            noise = uniform
            if FAMILY != "bernoulli":
                noise = tl.load(noise_ptr + md * B + rows, mask=ok, other=0.0)
        else:
            x = tl.load(x_rows + d * x_stride_d, mask=ok, other=0.0)
        rho = tl.load(rho_ptr + md)
        log_floor = floor_ptr
        if floor_ptr is not None:
            log_floor = tl.load(floor_ptr + md)
        z = tl.zeros((BB, NP), tl.float32)
        z += tl.load(b_ptr + md * P + n, mask=n < P, other=0.0)[None, :]
        V_here = V_ptr + md * (S * HT * NP)
        for t in tl.static_range(S):
            hidden = activate(rho * a[t], ACTIVATION)
            v = tl.load(V_here + (t * HT + h)[:, None] * NP + n[None, :])
            z = product(hidden, v, z, PRECISION)
        if drawn:
            x = draw(z, log_floor, uniform, noise, FAMILY, K, KP, BB)
            tl.store(x_rows + d * x_stride_d, x, mask=ok)
        a = next_state(a, x, W_ptr + md * H, H, HT, S, WHOLE)
        if not drawn:
            term, _ = epilogue(x, z, log_floor, None, ok, FAMILY, K, KP, BB, False)
            if SUMMED:
                total += term
            else:
                tl.store(out_ptr + (m * B + rows) * D + d, term, mask=ok)
    if SUMMED:
        tl.store(out_ptr + m * B + rows, total, mask=ok)
