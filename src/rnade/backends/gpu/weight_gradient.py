"""Gradients of V, b and rho and of the hidden state, from what `stored` has left.

Step 3 of the four that `stored` describes: activation, both products and their sums over rows in
one kernel.
"""

# mypy: ignore-errors
# Triton, not Python, gives the arguments of kernels their types.

import triton
import triton.language as tl

from rnade.backends.gpu.density import activate, activate_back, product


@triton.jit
def _load_dz(dz_ptr, upstream_ptr, stride, rows, row_ok, scale, P: tl.constexpr, NP: tl.constexpr):
    """The rows' d log p / dz times what comes from upstream, of shape (BB, NP)."""
    n = tl.arange(0, NP)
    upstream = tl.load(upstream_ptr + rows * stride, mask=row_ok, other=0.0)
    dz = tl.load(
        dz_ptr + rows[:, None] * P + n[None, :], mask=row_ok[:, None] & (n < P)[None, :], other=0.0
    )
    return dz * (upstream * scale)[:, None]


@triton.jit
def _through_hidden(
    a_ptr,
    g_ptr,
    at,
    ok,
    rho,
    dz,
    v,
    dV,
    sums,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    PLAIN: tl.constexpr,
):
    """Store d log p / da of a tile (BB, HT); add h' dz to dV, and to `sums` (HT,) over rows.

    These are sums of dpsi times a, or where they are PLAIN of dpsi alone.
    """
    a = tl.load(a_ptr + at, mask=ok, other=0.0).to(tl.float32)
    psi = rho * a
    hidden = activate(psi, ACTIVATION)
    dV = product(tl.trans(hidden), dz, dV, PRECISION)
    dh = product(dz, v, tl.zeros(a.shape, tl.float32), PRECISION)
    dpsi = activate_back(dh, psi, hidden, ACTIVATION)
    sums += tl.sum(dpsi if PLAIN else dpsi * a, 0)
    tl.store(g_ptr + at, (dpsi * rho).to(g_ptr.dtype.element_ty), mask=ok)
    return dV, sums


@triton.jit
def weight_kernel(
    a_ptr,  # (M, D, B, H)
    rho_ptr,  # (M, D)
    V_ptr,  # (M, D, H, P) with the strides below
    dz_ptr,  # (M, D, B, P)
    upstream_ptr,  # (M, B, D) with the strides below
    scale_ptr,  # (M,), multiplies the upstream gradient, or None
    dV_ptr,  # (M, D, H, P), written, or added to if ADDED
    db_ptr,  # (M, D, P), likewise
    drho_ptr,  # (M, D, programs of a dimension), likewise: partial sums; or None
    sum_ptr,  # (M, D, H), written in place of drho where layers follow: sums of g over rows
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
    if scale_ptr is not None:
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
        sums = tl.zeros((HT,), tl.float32)
        if ONE_BLOCK:
            at = (md * B + rows)[:, None] * H + h[None, :]
            ok = row_ok[:, None] & h_ok[None, :]
            dV, sums = _through_hidden(
                *(a_ptr, g_ptr, at, ok, rho, dz, v, dV, sums),
                *(ACTIVATION, PRECISION, sum_ptr is not None),
            )
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
                dV, sums = _through_hidden(
                    *(a_ptr, g_ptr, at, ok, rho, dz, v, dV, sums),
                    *(ACTIVATION, PRECISION, sum_ptr is not None),
                )
        if sum_ptr is not None:
            tl.store(sum_ptr + md * H + h, sums, mask=h_ok)
        else:
            drho += sums
        at = (md * H + h)[:, None] * P + n[None, :]
        ok = h_ok[:, None] & n_ok[None, :]
        if ADDED:
            dV += tl.load(dV_ptr + at, mask=ok, other=0.0)
        tl.store(dV_ptr + at, dV, mask=ok)
    if drho_ptr is not None:
        drho_at = drho_ptr + md * tl.num_programs(1) + part
        drho_total = tl.sum(drho)
        if ADDED:
            drho_total += tl.load(drho_at)
        tl.store(drho_at, drho_total)
    if part == 0:
        if ADDED:
            db += tl.load(db_ptr + md * P + n, mask=n_ok, other=0.0)
        tl.store(db_ptr + md * P + n, db, mask=n_ok)
