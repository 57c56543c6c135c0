"""The momentum update of all parameters of M models in one kernel.

Computed: g' = scale g + decay p, v = momentum v - rate g', p += v, for up to five tensors with a
leading model axis. A model that is not usable takes g' = decay p and rate 0: its velocity runs on.

Fused: the passes of plain torch (scaling, decay, velocity, parameter: some 12 reads and 8 writes
of each tensor, a launch each) into 3 reads and 2 writes and one launch. That is the bound: 5 times
the parameters' bytes over the bandwidth of L2, or of memory where they do not fit it.

Nothing is kept or recomputed. For any other rule of update, plain torch is the right choice.
"""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check
def _update(p_ptr, g_ptr, v_ptr, n, block, m, rate, scale, usable, momentum, decay, BLOCK):
    at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = at < n
    at += m * n
    p = tl.load(p_ptr + at, mask=ok)
    g = tl.load(g_ptr + at, mask=ok)
    v = tl.load(v_ptr + at, mask=ok)
    g = tl.where(usable, g * scale, 0.0) + decay * p
    v = momentum * v - rate * g
    tl.store(v_ptr + at, v, mask=ok)
    tl.store(p_ptr + at, p + v, mask=ok)


@triton.jit
@no_type_check
def momentum_kernel(
    p0,  # five parameters, each (M, n), updated in place
    p1,
    p2,
    p3,
    p4,
    g0,  # their gradients
    g1,
    g2,
    g3,
    g4,
    v0,  # their velocities, updated in place
    v1,
    v2,
    v3,
    v4,
    n0,  # elements of each for one model
    n1,
    n2,
    n3,
    n4,
    first1,  # the block at which each but the first begins
    first2,
    first3,
    first4,
    rate_ptr,  # (M,)
    scale_ptr,  # (M,)
    usable_ptr,  # (M,), 0 or 1
    momentum,
    decay0,
    decay1,
    decay2,
    decay3,
    decay4,
    BLOCK: tl.constexpr,
):
    """One program: BLOCK elements of one tensor of one model."""
    block, m = tl.program_id(0), tl.program_id(1).to(tl.int64)
    usable = tl.load(usable_ptr + m) != 0
    rate = tl.where(usable, tl.load(rate_ptr + m), 0.0)
    scale = tl.load(scale_ptr + m)
    if block < first1:
        _update(p0, g0, v0, n0, block, m, rate, scale, usable, momentum, decay0, BLOCK)
    elif block < first2:
        _update(p1, g1, v1, n1, block - first1, m, rate, scale, usable, momentum, decay1, BLOCK)
    elif block < first3:
        _update(p2, g2, v2, n2, block - first2, m, rate, scale, usable, momentum, decay2, BLOCK)
    elif block < first4:
        _update(p3, g3, v3, n3, block - first3, m, rate, scale, usable, momentum, decay3, BLOCK)
    else:
        _update(p4, g4, v4, n4, block - first4, m, rate, scale, usable, momentum, decay4, BLOCK)
