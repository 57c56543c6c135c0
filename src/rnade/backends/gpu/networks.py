"""Value and gradient of many separate networks, one program for each network.

Computed, for a network with inputs x_S (the columns that it sees) and one column x_d of its own,
over blocks of BB rows: a = c + x_S W, h = g(a), z = V' h + b, the family's epilogue, log p(x_d)
and d log p / dz, and from these at once dV, db, dc and dW.

Fused: the whole gradient, some forty launches of plain torch. Nothing of size B x H or B x P is
ever stored. The same cut as `bank` has for tied weights, less what only ties need: no rho,
and each program owns its W and writes that gradient whole.

In registers: V and dV as three tiles (HP, KP) for fractions, means and scales, W and dW (DP, HP).
Wide V is read again for the way back (REREAD), as in `bank`.

Traffic, in elements for each network: parameters and gradients once, 2 (D H + H + H P + P) (H P
more with REREAD), and B D of x.

Every sum is made in a fixed order: no atomics, and nothing depends on how many networks there are.

Where it stops being the right choice: sizes whose tiles leave the registers; see `serves` in
`networks_launch`.
"""

# mypy: ignore-errors
# Triton, not Python, gives the arguments of kernels their types.

import triton
import triton.language as tl

from rnade.backends.gpu.bank import conditional, load_outputs, outputs_back, store_outputs, zeros
from rnade.backends.gpu.density import activate, activate_back, product

# Sizes that kernels are not compiled anew for.
SIZES = (
    *("B", "D", "H", "K", "chunk"),
    *("x_stride_m", "x_stride_b", "weight_stride_m", "weight_stride_b"),
)


@triton.jit(do_not_specialize=SIZES)
def network_kernel(
    x_ptr,  # (M, B, D) with the strides below
    weight_ptr,  # (M, B) with the strides below, or None for no gradient
    W_ptr,  # (M, D, H)
    c_ptr,  # (M, H)
    V_ptr,  # (M, H, P)
    b_ptr,  # (M, P)
    floor_ptr,  # (M,), logarithms, or None
    own_ptr,  # (M,) int64: the column whose density it gives
    seen_ptr,  # (M, D), 0 or 1: the columns that it sees
    out_ptr,  # (M, B) log densities; with a gradient (M,), their weighted sums
    dW_ptr,  # as W, c, V and b, written with a gradient
    dc_ptr,
    dV_ptr,
    db_ptr,
    B,
    D,
    H,
    K,
    chunk,  # rows of a program: all of them with a gradient
    x_stride_m,
    x_stride_b,
    x_stride_d,
    weight_stride_m,
    weight_stride_b,
    BB: tl.constexpr,
    HP: tl.constexpr,  # powers of two, at least 16, at or above H, K and D
    KP: tl.constexpr,
    DP: tl.constexpr,
    FAMILY: tl.constexpr,
    ACTIVATION: tl.constexpr,
    SCALE_MEAN: tl.constexpr,
    REREAD: tl.constexpr,  # whether V is read again for the way back, to keep less on chip
):
    """One program: `chunk` rows of one network."""
    gradient: tl.constexpr = weight_ptr is not None
    m = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * chunk
    h, k, j = tl.arange(0, HP), tl.arange(0, KP), tl.arange(0, DP)
    h_ok, k_ok, j_ok = h < H, k < K, j < D
    P = 3 * K
    own = tl.load(own_ptr + m)
    seen = tl.load(seen_ptr + m * D + j, mask=j_ok, other=0) != 0
    at_W = (m * D + j)[:, None] * H + h[None, :]
    W = tl.load(W_ptr + at_W, mask=seen[:, None] & h_ok[None, :], other=0.0)
    c = tl.load(c_ptr + m * H + h, mask=h_ok, other=0.0)
    log_floor = floor_ptr
    if floor_ptr is not None:
        log_floor = tl.load(floor_ptr + m)
    V_here, b_here = V_ptr + m * H * P, b_ptr + m * P
    v, b = load_outputs(V_here, b_here, h, k, h_ok, k_ok, K, P, 1, 3)
    if gradient:
        total = tl.zeros((BB,), tl.float32)
        dc = tl.zeros((BB, HP), tl.float32)
        dW = tl.zeros((DP, HP), tl.float32)
        dV, db = zeros(HP, KP, 3), zeros(BB, KP, 3)
    for start in tl.range(first, tl.minimum(first + chunk, B), BB):
        rows = start + tl.arange(0, BB)
        row_ok = rows < B
        x_rows = x_ptr + m * x_stride_m + rows.to(tl.int64) * x_stride_b
        x = tl.load(x_rows + own * x_stride_d, mask=row_ok, other=0.0)
        inputs = tl.load(
            x_rows[:, None] + j[None, :] * x_stride_d,
            mask=row_ok[:, None] & seen[None, :],
            other=0.0,
        )
        a = product(inputs, W, tl.zeros((BB, HP), tl.float32), "exact") + c[None, :]
        hidden = activate(a, ACTIVATION)
        term, dz = conditional(
            x, hidden, v, b, k_ok, log_floor, FAMILY, "exact", gradient, SCALE_MEAN
        )
        if gradient:
            weight_rows = weight_ptr + m * weight_stride_m + rows * weight_stride_b
            weight = tl.load(weight_rows, mask=row_ok, other=0.0)
            total += tl.where(row_ok, weight * term, 0.0)
            v_back = v
            if REREAD:
                # An offset of 0 that the compiler does not know to be the same each time.
                again = V_here + start // B
                v_back, _ = load_outputs(again, b_here, h, k, h_ok, k_ok, K, P, 1, 3)
            dV, db, dh = outputs_back(hidden, dz, weight, v_back, dV, db, 3, "exact")
            da = activate_back(dh, a, hidden, ACTIVATION)
            dc += da
            dW = product(tl.trans(inputs), da, dW, "exact")
        else:
            tl.store(out_ptr + m * B + rows, term, mask=row_ok)
    if gradient:
        tl.store(out_ptr + m, tl.sum(total))
        # Columns that it does not see have a gradient of 0.
        tl.store(dW_ptr + at_W, dW, mask=j_ok[:, None] & h_ok[None, :])
        tl.store(dc_ptr + m * H + h, tl.sum(dc, 0), mask=h_ok)
        store_outputs(dV_ptr + m * H * P, db_ptr + m * P, dV, db, h, k, h_ok, k_ok, K, 3)
