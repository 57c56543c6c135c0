"""Between the products of a deeper network: activation, bias and residual, one pass each way.

Computed, for every dimension d, row and unit, of a layer whose input is t:

- `unit_kernel`: g(rho_d t), or with a bias y = before + g(t + u_d).
- `unit_gradient_kernel`: from dy the gradient of t, and the sums over rows that make the gradients
  of rho_d or u_d.

Fused: activation, bias, residual and conversion between float32 and bf16; the products themselves
are the vendor's (`_gpu_layers`). Recomputed by the backward pass: the activation, from t.

Traffic, in elements for each layer: forward, t and `before` are read and y written, 3 B D H;
backward, dy and t are read and dt written, 3 B D H; the three products of a layer read and write
7 B D H more. For B = 512, D = 63, H = 512 in bf16 a pass moves 99 MB, some 25 us at 4 TB/s.

Sums over rows are made by one program in a fixed order, or left as partial sums in a fixed layout:
no atomics, so the same inputs give the same bits.
"""

from typing import no_type_check

import triton
import triton.language as tl

from rnade.backends._gpu_kernels import activate


@triton.jit
@no_type_check
def unit_kernel(
    t_ptr,  # (M, D, B, H)
    rho_ptr,  # (M, D), read unless RESIDUAL
    u_ptr,  # (M, D, H) with the stride below, read if RESIDUAL
    before_ptr,  # (M, D, B, H), likewise
    y_ptr,  # (M, D, B, H), written
    B,
    D,
    H,
    u_stride_m,
    BB: tl.constexpr,
    HT: tl.constexpr,
    ACTIVATION: tl.constexpr,
    RESIDUAL: tl.constexpr,
):
    """One program: BB rows and HT units of one dimension of one model."""
    md = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * BB + tl.arange(0, BB)
    h = tl.program_id(2) * HT + tl.arange(0, HT)
    ok = (rows < B)[:, None] & (h < H)[None, :]
    at = (md * B + rows)[:, None] * H + h[None, :]
    t = tl.load(t_ptr + at, mask=ok, other=0.0).to(tl.float32)
    if RESIDUAL:
        u = tl.load(u_ptr + md // D * u_stride_m + md % D * H + h, mask=h < H, other=0.0)
        before = tl.load(before_ptr + at, mask=ok, other=0.0).to(tl.float32)
        y = before + activate(t + u[None, :], ACTIVATION)
    else:
        y = activate(t * tl.load(rho_ptr + md), ACTIVATION)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=ok)


@triton.jit
@no_type_check
def unit_gradient_kernel(
    dy_ptr,  # (M, D, B, H)
    t_ptr,  # (M, D, B, H)
    rho_ptr,  # (M, D), read unless RESIDUAL
    u_ptr,  # (M, D, H) with the stride below, read if RESIDUAL
    dt_ptr,  # (M, D, B, H), written
    copy_ptr,  # (M, D, B, H), dy in this pointer's type, written if COPIED
    sum_ptr,  # RESIDUAL: (M, D, parts, H), du; else (M, D, parts, tiles), drho; written
    B,
    D,
    H,
    u_stride_m,
    run,  # rows that a program takes
    BB: tl.constexpr,
    HT: tl.constexpr,
    ACTIVATION: tl.constexpr,
    RESIDUAL: tl.constexpr,
    COPIED: tl.constexpr,
):
    """One program: a run of rows and HT units of one dimension of one model."""
    md = tl.program_id(0).to(tl.int64)
    tile, part = tl.program_id(1), tl.program_id(2)
    h = tile * HT + tl.arange(0, HT)
    h_ok = h < H
    rho = 1.0
    u = tl.zeros((HT,), tl.float32)
    if RESIDUAL:
        u = tl.load(u_ptr + md // D * u_stride_m + md % D * H + h, mask=h_ok, other=0.0)
    else:
        rho = tl.load(rho_ptr + md)
    total = tl.zeros((HT,), tl.float32)
    for start in tl.range(part * run, tl.minimum((part + 1) * run, B), BB):
        rows = start + tl.arange(0, BB)
        ok = ((rows < B) & (rows < (part + 1) * run))[:, None] & h_ok[None, :]
        at = (md * B + rows)[:, None] * H + h[None, :]
        dy = tl.load(dy_ptr + at, mask=ok, other=0.0).to(tl.float32)
        t = tl.load(t_ptr + at, mask=ok, other=0.0).to(tl.float32)
        psi = rho * t + u[None, :]
        dpsi = dy
        if ACTIVATION == "relu":
            dpsi = tl.where(psi > 0, dy, 0.0)
        elif ACTIVATION == "sigmoid":
            y = tl.sigmoid(psi)
            dpsi = dy * y * (1 - y)
        if COPIED:
            tl.store(copy_ptr + at, dy.to(copy_ptr.dtype.element_ty), mask=ok)
        tl.store(dt_ptr + at, (dpsi * rho).to(dt_ptr.dtype.element_ty), mask=ok)
        if RESIDUAL:
            total += tl.sum(dpsi, 0)
        else:
            total += tl.sum(dpsi * t, 0)
    sums = md * tl.num_programs(2) + part
    if RESIDUAL:
        tl.store(sum_ptr + sums * H + h, total, mask=h_ok)
    else:
        tl.store(sum_ptr + sums * tl.num_programs(1) + tile, tl.sum(total))
