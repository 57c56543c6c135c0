"""Value and gradient of banks of small models, one program for each model and dimension.

Computed, for one dimension d of one model, over blocks of BB rows: a_d = c + sum_{e<d} x_e W_e,
h = g(rho_d a_d), z_d = V_d' h + b_d, the family's epilogue, log p(x_d | x_<d) and d log p / dz_d,
and from these at once dV_d, db_d, d rho_d, G = d log p / da_d, and what G gives to the weights of
all earlier dimensions, dW_e += x_e' G. `total_kernel` adds that up over d.

Fused: all of the paper's Algorithm 2, cut by dimension instead of walked along. For few dimensions
that is the better bargain: a_d is one small matrix product with the earlier columns of x, in which
c is the weight of one more column that is 1, and dW is another. So no program waits for another
dimension, V_d is read once and its gradient written once, and neither a, G nor dz is ever stored.
No sum is taken back either: subtracting x_d W_d on the way would cost float32's last digits.

In registers: V_d and dV_d, as three tiles of (HP, KP) for fractions, means and scales, each with
products of its own, so that no column has to move between threads; a (BB, HP), and the part of
dW, (HP, DP). Recomputed: a_d, at DP / (9 KP) of the cost of the products with V. Where V_d is wide
it is read again for the way back (REREAD): in shared memory, split for the exact mode and in the
layouts of both products, it would fill a multiprocessor.

Traffic, in elements for each model: V and its gradient, 2 D H P (3 with REREAD), the parts of dW,
D (D + 1) H, and x once for each dimension. For 240 models with B = 100, D = 11, H = 50, P = 60
that is 26 million elements, 100 MB, some 25 us of memory time. 740 us were measured on an H200,
and 400 us for P = 6: nearly all of it is latency and the exchange of tiles between threads. The
kernels of `stored`, which hand a, dz and G on through memory, took 1080 us for either.

Every sum is made in a fixed order: no atomics, and nothing depends on how many models there are.

Where it stops being the right choice: many dimensions (the products for a_d and dW grow with D
squared), and sizes whose tiles leave the registers; see `fits` in `bank_launch`.
"""

# mypy: ignore-errors
# Triton, not Python, gives the arguments of kernels their types.

import triton
import triton.language as tl

from rnade.backends.gpu.density import activate, activate_back, dimension_at, product
from rnade.backends.gpu.families import INFINITY, bernoulli, mixture

# Sizes that kernels are not compiled anew for.
SIZES = (
    *("B", "D", "H", "K"),
    *("x_stride_m", "x_stride_b", "weight_stride_m", "weight_stride_b"),
    *("V_stride_m", "V_stride_d", "V_stride_h"),
)


@triton.jit
def zeros(ROWS: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr):
    """A tile of zeros for each part of the outputs: fractions, means, scales."""
    tiles = ()
    for _ in tl.static_range(PARTS):
        tiles = tiles + (tl.zeros((ROWS, COLUMNS), tl.float32),)  # noqa: RUF005 (Triton has no *)
    return tiles


@triton.jit
def load_outputs(V_ptr, b_ptr, h, k, h_ok, k_ok, K, stride_h, stride_p, PARTS: tl.constexpr):
    """Tiles (HP, KP) of V and (KP,) of b for each part of the outputs."""
    v, b = (), ()
    for part in tl.static_range(PARTS):
        at = V_ptr + part * K * stride_p + h[:, None] * stride_h + k[None, :] * stride_p
        v_part = tl.load(at, mask=h_ok[:, None] & k_ok[None, :], other=0.0)
        v = v + (v_part,)  # noqa: RUF005
        b = b + (tl.load(b_ptr + part * K + k, mask=k_ok, other=0.0),)  # noqa: RUF005
    return v, b


@triton.jit
def conditional(
    x,
    hidden,
    v,
    b,
    k_ok,
    log_floor,
    FAMILY: tl.constexpr,
    PRECISION: tl.constexpr,
    GRADIENT: tl.constexpr,
    SCALE_MEAN: tl.constexpr,
):
    """Give log p of x (BB,) and, for each part of the outputs, a tile (BB, KP) of its gradient."""
    z_alpha = _output(hidden, v[0], b[0], PRECISION)
    if FAMILY == "bernoulli":
        log_p, d_alpha = bernoulli(x, tl.sum(tl.where(k_ok[None, :], z_alpha, 0.0), 1))
        dz = (tl.where(k_ok[None, :], d_alpha[:, None], 0.0),)
    else:
        mu = _output(hidden, v[1], b[1], PRECISION)
        z_sigma = _output(hidden, v[2], b[2], PRECISION)
        z_alpha = tl.where(k_ok[None, :], z_alpha, -INFINITY)
        log_p, _, d_alpha, d_mu, d_sigma = mixture(
            x, z_alpha, mu, z_sigma, log_floor, FAMILY, GRADIENT, SCALE_MEAN
        )
        dz = (d_alpha, d_mu, d_sigma)
    return log_p, dz


@triton.jit
def _output(hidden, v, b, PRECISION: tl.constexpr):
    z = tl.zeros((hidden.shape[0], v.shape[1]), tl.float32)
    return product(hidden, v, z, PRECISION) + b[None, :]


@triton.jit
def outputs_back(hidden, dz, weight, v, dV, db, PARTS: tl.constexpr, PRECISION: tl.constexpr):
    """Add weight times dz to db and its products with the hidden units to dV; give dh as well."""
    hidden_t = tl.trans(hidden)
    dh = tl.zeros(hidden.shape, tl.float32)
    dV_sums, db_sums = (), ()
    for part in tl.static_range(PARTS):
        d = dz[part] * weight[:, None]
        db_sums = db_sums + (db[part] + d,)  # noqa: RUF005
        dV_sums = dV_sums + (product(hidden_t, d, dV[part], PRECISION),)  # noqa: RUF005
        dh = product(d, tl.trans(v[part]), dh, PRECISION)
    return dV_sums, db_sums, dh


@triton.jit
def store_outputs(dV_ptr, db_ptr, dV, db, h, k, h_ok, k_ok, K, PARTS: tl.constexpr):
    """Store dV (HP, KP) and, from (BB, KP), db of each part of the outputs."""
    at = h[:, None] * (PARTS * K) + k[None, :]
    for part in tl.static_range(PARTS):
        tl.store(dV_ptr + part * K + at, dV[part], mask=h_ok[:, None] & k_ok[None, :])
        tl.store(db_ptr + part * K + k, tl.sum(db[part], 0), mask=k_ok)


@triton.jit(do_not_specialize=SIZES)
def bank_kernel(
    x_ptr,  # (M, B, D) with the strides below
    weight_ptr,  # (M, B) with the strides below, or None for no gradient
    W_ptr,  # (M, D, H)
    c_ptr,  # (M, H)
    rho_ptr,  # (M, D)
    V_ptr,  # (M, D, H, P) with the strides below
    b_ptr,  # (M, D, P)
    floor_ptr,  # (M, D), logarithms, or None
    order_ptr,  # (M, D) or None
    out_ptr,  # (M, B, D) terms; with a gradient (M, D), weighted sums over the rows
    own_ptr,  # (M, D + D H P + D P): drho, dV, db, written with a gradient
    early_ptr,  # (M, D, D + 1, H): by position, what it gives to W and c, likewise
    B,
    D,
    H,
    K,
    x_stride_m,
    x_stride_b,
    x_stride_d,
    weight_stride_m,
    weight_stride_b,
    V_stride_m,
    V_stride_d,
    V_stride_h,
    V_stride_p,
    BB: tl.constexpr,
    HP: tl.constexpr,  # powers of two, at least 16, at or above H, K and D + 1
    KP: tl.constexpr,
    DP: tl.constexpr,
    FAMILY: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    SCALE_MEAN: tl.constexpr,
    REREAD: tl.constexpr,  # whether V is read again for the way back, to keep less on chip
):
    """One program: all rows of the dimension that comes i-th in one model."""
    gradient: tl.constexpr = weight_ptr is not None
    parts: tl.constexpr = 1 if FAMILY == "bernoulli" else 3
    m, i = (tl.program_id(0) // D).to(tl.int64), tl.program_id(0) % D
    h, k, j = tl.arange(0, HP), tl.arange(0, KP), tl.arange(0, DP)
    h_ok, k_ok = h < H, k < K
    P = parts * K
    # Columns that come earlier, and for c one of ones at place D.
    d, column = dimension_at(order_ptr, m, D, i), j
    early, one = j < i, j == D
    if order_ptr is not None:
        column = tl.load(order_ptr + m * D + j, mask=early, other=0)
    md = m * D + d
    W = tl.load(
        W_ptr + (m * D + column)[:, None] * H + h[None, :],
        mask=early[:, None] & h_ok[None, :],
        other=0.0,
    )
    c = tl.load(c_ptr + m * H + h, mask=h_ok, other=0.0)
    W = tl.where(one[:, None], c[None, :], W)
    rho = tl.load(rho_ptr + md)
    log_floor = floor_ptr
    if floor_ptr is not None:
        log_floor = tl.load(floor_ptr + md)
    V_here, b_here = V_ptr + m * V_stride_m + d * V_stride_d, b_ptr + md * P
    v, b = load_outputs(V_here, b_here, h, k, h_ok, k_ok, K, V_stride_h, V_stride_p, parts)
    if gradient:
        total = tl.zeros((BB,), tl.float32)
        drho = tl.zeros((BB, HP), tl.float32)
        dW = tl.zeros((HP, DP), tl.float32)
        dV, db = zeros(HP, KP, parts), zeros(BB, KP, parts)
    for start in tl.range(0, B, BB):
        rows = start + tl.arange(0, BB)
        row_ok = rows < B
        x_rows = x_ptr + m * x_stride_m + rows.to(tl.int64) * x_stride_b
        x = tl.load(x_rows + d * x_stride_d, mask=row_ok, other=0.0)
        columns = tl.load(
            x_rows[:, None] + column[None, :] * x_stride_d,
            mask=row_ok[:, None] & early[None, :],
            other=0.0,
        )
        columns = tl.where(one[None, :], 1.0, columns)
        a = product(columns, W, tl.zeros((BB, HP), tl.float32), "exact")
        psi = rho * a
        hidden = activate(psi, ACTIVATION)
        term, dz = conditional(
            x, hidden, v, b, k_ok, log_floor, FAMILY, PRECISION, gradient, SCALE_MEAN
        )
        if gradient:
            weight_rows = weight_ptr + m * weight_stride_m + rows * weight_stride_b
            weight = tl.load(weight_rows, mask=row_ok, other=0.0)
            total += tl.where(row_ok, weight * term, 0.0)
            v_back = v
            if REREAD:
                # An offset of 0 that the compiler does not know to be the same each time.
                again = V_here + start // B
                v_back, _ = load_outputs(
                    again, b_here, h, k, h_ok, k_ok, K, V_stride_h, V_stride_p, parts
                )
            dV, db, dh = outputs_back(hidden, dz, weight, v_back, dV, db, parts, PRECISION)
            dpsi = activate_back(dh, psi, hidden, ACTIVATION)
            drho += dpsi * a
            dW = product(tl.trans(dpsi * rho), columns, dW, "exact")
        else:
            tl.store(out_ptr + (m * B + rows) * D + d, term, mask=row_ok)
    if gradient:
        tl.store(out_ptr + md, tl.sum(total))
        drho_ptr = own_ptr + m * D * (1 + (H + 1) * P)
        tl.store(drho_ptr + d, tl.sum(drho))
        dV_ptr = drho_ptr + D + d * H * P
        db_ptr = drho_ptr + D + D * H * P + d * P
        store_outputs(dV_ptr, db_ptr, dV, db, h, k, h_ok, k_ok, K, parts)
        at = ((m * D + i) * (D + 1) + j)[None, :] * H + h[:, None]
        tl.store(early_ptr + at, dW, mask=h_ok[:, None] & (early | one)[None, :])


@triton.jit(do_not_specialize=("D", "H", "n_own"))
def total_kernel(
    own_ptr,  # (M, n_own)
    early_ptr,  # (M, D, D + 1, H)
    order_ptr,  # (M, D) or None
    scale_ptr,  # (M,), what the gradient is multiplied by
    out_ptr,  # (M, (D + 1) H + n_own), written: dW, dc, drho, dV, db
    D,
    H,
    n_own,
    BLOCK: tl.constexpr,
):
    """One program: BLOCK elements of the gradient of one model."""
    m = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n_early = (D + 1) * H
    scale = tl.load(scale_ptr + m)
    out = out_ptr + m * (n_early + n_own)
    if tl.program_id(0) * BLOCK < n_early:
        ok = at < n_early
        j, d = at // H, at // H
        total = tl.zeros((BLOCK,), tl.float32)
        for i in tl.range(0, D):
            here = early_ptr + (m * D + i) * n_early + at
            total += tl.load(here, mask=ok & ((j < i) | (j == D)), other=0.0)
        if order_ptr is not None:
            d = tl.load(order_ptr + m * D + j, mask=ok & (j < D), other=D).to(tl.int32)
        tl.store(out + d * H + at % H, scale * total, mask=ok)
    ok = (at >= n_early) & (at < n_early + n_own)
    own = tl.load(own_ptr + m * n_own + at - n_early, mask=ok, other=0.0)
    tl.store(out + at, scale * own, mask=ok)
