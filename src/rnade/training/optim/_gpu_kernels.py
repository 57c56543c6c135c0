"""An update of all parameters of M models in three kernels: judge the gradients, then move.

Computed: `squares_kernel`, partial sums of squares of up to 7 gradients; `verdict_kernel`, from
these each model's norm, whether it can be used, the factor that clips it, and the counts that
training keeps; `update_kernel`, one step of gradient descent, of descent with momentum or of Adam,
and the running average of the weights. A model that is not usable keeps its weights and what its
optimiser remembers, bit for bit; its average goes on.

Fused: the passes of plain torch (norms, scaling, decay, state, parameter, average: some 60
launches an update) into three launches. Traffic of a step with momentum: g is read twice, p and v
read and written once; that is the bound, 6 times the parameters' bytes over the bandwidth of L2,
or of memory where they do not fit it.

Every sum is made in a fixed order whatever M is. Nothing is kept or recomputed. For any other rule
of update, plain torch is the right choice.
"""

import math
from typing import no_type_check

import triton
import triton.language as tl

INFINITY = tl.constexpr(math.inf)


@triton.jit
@no_type_check
def squares_kernel(
    gradients,  # N tensors (M, n) whose models are `strides` apart
    sizes,  # n of each
    strides,
    firsts,  # the program at which each begins, and at the end how many there are
    parts_ptr,  # (M, programs of a model), written
    N: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program: the sum of squares of BLOCK elements of one gradient of one model."""
    block, m = tl.program_id(0), tl.program_id(1).to(tl.int64)
    for t in tl.static_range(N):
        if (block >= firsts[t]) & (block < firsts[t + 1]):
            at = (block - firsts[t]) * BLOCK + tl.arange(0, BLOCK)
            g = tl.load(gradients[t] + m * strides[t] + at, mask=at < sizes[t], other=0.0)
            tl.store(parts_ptr + m * tl.num_programs(0) + block, tl.sum(g * g))


@triton.jit(do_not_specialize=("n_parts",))
@no_type_check
def verdict_kernel(
    parts_ptr,  # (M, n_parts) sums of squares
    loss_ptr,  # (M,)
    active_ptr,  # (M,), 0 or 1: whether it still trains
    clip_norm,  # largest norm, if CLIPPED
    scale_ptr,  # (M,), written: factor of the gradient
    usable_ptr,  # (M,), written: 0 or 1
    skipped_ptr,  # (M,) int64, counts failed updates
    in_a_row_ptr,  # (M,) int64, failed updates since the last good one
    log_likelihood_ptr,  # (M,), minus the losses
    counted_ptr,  # (M,), how many of them
    n_parts,
    CLIPPED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program: one model."""
    m = tl.program_id(0).to(tl.int64)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, n_parts, BLOCK):
        at = start + tl.arange(0, BLOCK)
        squares += tl.load(parts_ptr + m * n_parts + at, mask=at < n_parts, other=0.0)
    norm = tl.sqrt(tl.sum(squares))
    loss = tl.load(loss_ptr + m)
    finite = (norm < INFINITY) & (tl.abs(loss) < INFINITY)  # a NaN is below nothing
    active = tl.load(active_ptr + m) != 0
    scale = 1.0
    if CLIPPED:
        scale = tl.where(norm > clip_norm, clip_norm / norm, 1.0)
    tl.store(scale_ptr + m, scale)
    tl.store(usable_ptr + m, (finite & active).to(tl.uint8))
    failed = ((finite == 0) & active).to(tl.int64)
    tl.store(skipped_ptr + m, tl.load(skipped_ptr + m) + failed)
    tl.store(in_a_row_ptr + m, (tl.load(in_a_row_ptr + m) + 1) * failed)
    if finite:
        tl.store(log_likelihood_ptr + m, tl.load(log_likelihood_ptr + m) - loss)
        tl.store(counted_ptr + m, tl.load(counted_ptr + m) + 1.0)


@triton.jit
@no_type_check
def update_kernel(
    parameters,  # N tensors (M, n), updated in place
    gradients,  # likewise, whose models are `strides` apart
    first,  # velocities, or Adam's means, updated in place
    second,  # Adam's squares, likewise
    averages,  # running averages, updated if AVERAGED
    decays,  # N tensors (M,), read where DECAYED
    sizes,  # n of each
    strides,
    firsts,  # the program at which each begins, and at the end how many there are
    rate_ptr,  # (M,)
    scale_ptr,  # (M,)
    usable_ptr,  # (M,), 0 or 1
    momentum_ptr,  # (M,), read by "momentum"
    unbias_ptr,  # (2,), read by "adam"
    forget_ptr,  # (), read if AVERAGED
    N: tl.constexpr,
    RULE: tl.constexpr,  # "sgd", "momentum" or "adam"
    DECAYED: tl.constexpr,  # N flags
    AVERAGED: tl.constexpr,
    BETA_1: tl.constexpr,
    BETA_2: tl.constexpr,
    EPSILON: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program: BLOCK elements of one tensor of one model."""
    block, m = tl.program_id(0), tl.program_id(1).to(tl.int64)
    usable = tl.load(usable_ptr + m) != 0
    rate, scale = tl.load(rate_ptr + m), tl.load(scale_ptr + m)
    momentum = 0.0
    if RULE == "momentum":
        momentum = tl.load(momentum_ptr + m)
    for t in tl.static_range(N):
        if (block >= firsts[t]) & (block < firsts[t + 1]):
            at = (block - firsts[t]) * BLOCK + tl.arange(0, BLOCK)
            ok = at < sizes[t]
            moves = at < tl.where(usable, sizes[t], 0)
            g = scale * tl.load(gradients[t] + m * strides[t] + at, mask=moves, other=0.0)
            at = m * sizes[t] + at
            p = tl.load(parameters[t] + at, mask=ok, other=0.0)
            decay = 0.0
            if DECAYED[t]:
                decay = tl.load(decays[t] + m)
            first_ptr, second_ptr = first[t] + at, second[t] + at
            if RULE == "adam":
                mean = tl.load(first_ptr, mask=moves, other=0.0)
                square = tl.load(second_ptr, mask=moves, other=0.0)
                mean += (1 - BETA_1) * (g - mean)
                square = BETA_2 * square + (1 - BETA_2) * g * g
                tl.store(first_ptr, mean, mask=moves)
                tl.store(second_ptr, square, mask=moves)
                spread = tl.sqrt(square / tl.load(unbias_ptr + 1)) + EPSILON
                moved = p - (rate * (mean / tl.load(unbias_ptr)) / spread + rate * decay * p)
            elif RULE == "momentum":
                v = momentum * tl.load(first_ptr, mask=moves, other=0.0) - rate * (g + decay * p)
                tl.store(first_ptr, v, mask=moves)
                moved = p + v
            else:
                moved = p - rate * (g + decay * p)
            tl.store(parameters[t] + at, moved, mask=moves)
            if AVERAGED:
                average = tl.load(averages[t] + at, mask=ok, other=0.0)
                average += tl.load(forget_ptr) * (tl.where(usable, moved, p) - average)
                tl.store(averages[t] + at, average, mask=ok)
