"""Between the products of a deeper network: bias, residual and activation, one pass each way.

Computed, for every dimension d, row and unit:

- `stream_kernel`: the stream s, which is rho_d a_d at first and s + U[l]' r + u[l, d] after layer
  l, and r = g(s), which is the next layer's input.
- `stream_gradient_kernel`: the stream's gradient ds + dr g'(s) one layer earlier, and the sums
  over rows that make the gradients of u[l, d] and rho_d.

Fused: bias, residual, activation, their derivatives, sums over rows and conversion between float32
and bf16; the products themselves are the vendor's (`layers`). The stream itself is not kept
for the backward pass: the slope of g follows from r.

Traffic for each layer where r, its gradient and the products are in bf16 and s in float32:
12 bytes forward and 8 backward for each of the B D H units, beside 14 of the three products. For
B = 512, D = 63, H = 512 that is 0.56 GB, some 140 us at 4 TB/s.

Sums over rows are made by one program in a fixed order, or left as partial sums in a fixed layout:
no atomics, so the same inputs give the same bits.
"""

# mypy: ignore-errors
# Triton, not Python, gives the arguments of kernels their types.

import triton
import triton.language as tl

from rnade.backends.gpu.density import activate, activate_back


@triton.jit
def stream_kernel(
    before_ptr,  # (M, D, B, H), s before the layer, or a if there is rho
    rho_ptr,  # (M, D) or None
    product_ptr,  # (M, D, B, H), U' r, or None where there is no layer yet
    u_ptr,  # (M, D, H) with the stride below, likewise
    s_ptr,  # (M, D, B, H), written, likewise
    r_ptr,  # (M, D, B, H), g(s), written, or None
    B,
    D,
    H,
    u_stride_m,
    BB: tl.constexpr,
    HT: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """One program: BB rows and HT units of one dimension of one model."""
    md = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * BB + tl.arange(0, BB)
    h = tl.program_id(2) * HT + tl.arange(0, HT)
    ok = (rows < B)[:, None] & (h < H)[None, :]
    at = (md * B + rows)[:, None] * H + h[None, :]
    s = tl.load(before_ptr + at, mask=ok, other=0.0)
    if rho_ptr is not None:
        s = s * tl.load(rho_ptr + md)
    if product_ptr is not None:
        u = tl.load(u_ptr + md // D * u_stride_m + md % D * H + h, mask=h < H, other=0.0)
        s += tl.load(product_ptr + at, mask=ok, other=0.0).to(tl.float32) + u[None, :]
        tl.store(s_ptr + at, s, mask=ok)
    if r_ptr is not None:
        r = activate(s, ACTIVATION)
        tl.store(r_ptr + at, r.to(r_ptr.dtype.element_ty), mask=ok)


@triton.jit
def stream_gradient_kernel(
    ds_ptr,  # (M, D, B, H), gradient of s after the layer
    dr_ptr,  # (M, D, B, H), gradient of the layer's input r, or None after the last layer
    r_ptr,  # (M, D, B, H), likewise
    a_ptr,  # (M, D, B, H) before the first layer, else None
    rho_ptr,  # (M, D), likewise
    out_ptr,  # (M, D, B, H), gradient of s before the layer, or of a
    sum_ptr,  # (M, D, parts, H), sums of out; with a (M, D, parts, tiles), drho; written
    B,
    D,
    H,
    run,  # rows that a program takes
    BB: tl.constexpr,
    HT: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """One program: a run of rows and HT units of one dimension of one model."""
    md = tl.program_id(0).to(tl.int64)
    tile, part = tl.program_id(1), tl.program_id(2)
    h = tile * HT + tl.arange(0, HT)
    h_ok = h < H
    rho = 1.0
    if a_ptr is not None:
        rho = tl.load(rho_ptr + md)
    total = tl.zeros((HT,), tl.float32)
    for start in tl.range(part * run, tl.minimum((part + 1) * run, B), BB):
        rows = start + tl.arange(0, BB)
        ok = (rows < B)[:, None] & h_ok[None, :]
        at = (md * B + rows)[:, None] * H + h[None, :]
        ds = tl.load(ds_ptr + at, mask=ok, other=0.0).to(tl.float32)
        if dr_ptr is not None:
            dr = tl.load(dr_ptr + at, mask=ok, other=0.0).to(tl.float32)
            r = tl.load(r_ptr + at, mask=ok, other=0.0).to(tl.float32)
            ds += activate_back(dr, r, r, ACTIVATION)
        if a_ptr is not None:
            total += tl.sum(ds * tl.load(a_ptr + at, mask=ok, other=0.0), 0)
            ds = ds * rho
        else:
            total += tl.sum(ds, 0)
        tl.store(out_ptr + at, ds.to(out_ptr.dtype.element_ty), mask=ok)
    sums = md * tl.num_programs(2) + part
    if a_ptr is not None:
        tl.store(sum_ptr + sums * tl.num_programs(1) + tile, tl.sum(total))
    else:
        tl.store(sum_ptr + sums * H + h, total, mask=h_ok)
