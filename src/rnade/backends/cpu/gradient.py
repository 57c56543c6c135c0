"""The CPU kernels of the gradient: one over a chunk of dimensions, one that joins the chunks.

See `density` for what is computed and for the arguments that all kernels share. A chunk
starts from its own a = c + x_<s W_<s; `join` then adds what a chunk's gradient of that a gives to
the dimensions before it. Both take the `addresses` and `sizes` from which `arrays_at` makes the
arrays: to pass twenty arrays takes time that shows in a step on a small model. Besides:

    weights : (M or 1, B, D or 1), what each row's or each term's log density is multiplied by
    dW (in order), dc, drho, dV, db : like the parameters, written by the first rows and added to
        by others
    dx : (M, B, D), written
    dV_turned : (M, D, P, H), or empty to do without it
        Room for dV transposed. In that form BLAS is half as fast again, which pays for transposing
        at the end if there are several blocks of rows.
    carried : (M, chunks, rows, H), each chunk's gradient of the a that it starts from
    total : (M,), written: sum of weights times log densities
    want : what a gradient is wanted of, codes WANT_...
    chunk, chunks : which of how many chunks of dimensions
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# Numba, not Python, gives the arguments of compiled functions their types.

from rnade.backends.cpu.calls import PRODUCT, array_at, call, compiled, copy_bytes, gemm, inlined
from rnade.backends.cpu.density import (
    at,
    clear,
    copy_row,
    gather,
    output_stride,
    outputs,
    row_width,
    up,
)
from rnade.backends.cpu.families import FLOOR, SCRATCH
from rnade.backends.cpu.hidden import ROWS
from rnade.backends.cpu.lanes import LANES
from rnade.backends.cpu.products import multiply

CHECKPOINT = 8  # dimensions between checkpoints of a
SUMMED_ROWS = 64  # rows whose gradients of W are added up before they are added to the others
WANT_V, WANT_HIDDEN, WANT_X = 1, 2, 4


@inlined
def arrays_at(addresses, sizes, work):
    """The arrays that the kernels take, from their addresses; those of address 0 are not there."""
    M, B, D, H, P, chunks, rows, x_models, w_models, w_terms, orders, several = sizes
    like = work.dtype.type(0)
    return (
        array_at(addresses[0], (x_models, B, D), like),
        array_at(addresses[1], (w_models, B, w_terms), like),
        array_at(addresses[2], (orders, D), 0),
        array_at(addresses[3], (M, D, H), like),
        array_at(addresses[4], (M, H), like),
        array_at(addresses[5], (M, D), like),
        array_at(addresses[6], (M, D, H, P), like),
        array_at(addresses[7], (M, D, P), like),
        array_at(addresses[8], (M, D), like),
        array_at(addresses[9], (M, D, H), like),
        array_at(addresses[10], (M, H), like),
        array_at(addresses[11], (M, D), like),
        array_at(addresses[12], (M, D, H, P), like),
        array_at(addresses[13], (M, D, P), like),
        array_at(addresses[14], (M, B, D), like),
        array_at(addresses[15], (M, D * several, P, H), like),
        array_at(addresses[16], (M, chunks, rows, H), like),
        array_at(addresses[17], (M,), like),
    )


@inlined
def chunk_begin(chunk, chunks, D):
    """First dimension of a chunk."""
    return chunk * D // chunks


@inlined
def checkpoint(product, W, c, m, begin, end, R, work, xs, states, size):
    """Write a at the last dimension of each stretch of a chunk, rows and units padded by 0."""
    _, D, H = W.shape
    width, R16, one = row_width(H), up(R, LANES), work.dtype.type(1)
    done, n = 0, 0
    for s in range(begin, end, CHECKPOINT):
        last = min(s + CHECKPOINT, end) - 1
        state = states + n * size
        if n == 0:
            clear(work, state, size)
            for r in range(R):
                copy_bytes(at(work, state + r * width), at(c, m * H), H * work.itemsize)
        else:
            copy_bytes(at(work, state), at(work, state - size), size * work.itemsize)
        if last > done:
            W_at, x_at = at(W, (m * D + done) * H), at(work, xs + done * R16)
            n_new, a_at = last - done, at(work, state)
            gemm(product, False, True, H, R, n_new, W_at, H, x_at, R16, one, a_at, width)
        done, n = last, n + 1


def gradient_size(D: int, H: int, P: int, block: int, chunks: int) -> int:
    """Numbers that `gradient` needs room for."""
    R, H, columns = (-(-n // LANES) * LANES for n in (block, H + LANES, P))
    matrices = 5 + (D // chunks + 1) // CHECKPOINT
    vectors = (D + 2 * columns + 4) * R + (2 + P) * H + (SCRATCH + LANES) * columns + LANES
    return matrices * R * H + vectors


@compiled
def gradient(
    functions, addresses, sizes, work, activation, flags, want, m, low, high, block, chunk
):
    """Algorithm 2 for the dimensions of one chunk and the rows from low to high.

    Returns the chunk's sum of weights times log densities.
    """
    product, narrow, turn, epilogue, advance, retreat = functions
    arrays = arrays_at(addresses, sizes, work)
    x, weights, order, W, c, rho, V, b, log_floor = arrays[:9]
    dW, dc, drho, dV, db, dx, dV_turned, carried, total = arrays[9:]
    _, D, H, P = V.shape
    chunks = sizes[5]
    sequence, weighting = m % order.shape[0], m % weights.shape[0]
    begin, end = chunk_begin(chunk, chunks, D), chunk_begin(chunk + 1, chunks, D)
    one, zero = work.dtype.type(1), work.dtype.type(0)
    back = want & (WANT_HIDDEN | WANT_X) != 0
    width, most, stride = row_width(H), up(block, LANES), output_stride(P)
    a = 0
    h = a + most * width
    dh = h + most * width
    da = dh + most * width
    xs = da + most * width
    z = xs + end * most
    dz = z + most * up(P, LANES)
    log_p = dz + most * up(P, LANES)
    own_dx = log_p + most
    weight = own_dx + most
    zeros = weight + most
    w = zeros + most
    dw = w + width
    parts = dw + width
    sums = parts + LANES
    scratch = sums + P * LANES
    V_turned = scratch + SCRATCH * up(P, LANES)
    states = V_turned + P * width
    clear(work, zeros, most)
    if low == 0:
        dW[m, begin:end] = 0
        for i in range(begin, end):
            drho[m, order[sequence, i]] = 0
            db[m, order[sequence, i]] = 0
        if chunk == 0:
            dc[m] = 0
    value = 0.0
    for start in range(low, high, block):
        R = min(block, high - start)
        R4, R16 = up(R, ROWS), up(R, LANES)
        size = R4 * width
        keep = zero if start == 0 else one
        gather(x, m, order, start, R, end, work, xs)
        checkpoint(product, W, c, m, begin, end, R, work, xs, states, size)
        clear(work, da, size)
        clear(work, dh, size)
        clear(work, weight, R16)
        for i in range(end - 1, begin - 1, -1):
            d = order[sequence, i]
            rho_at, V_at = at(rho, m * D + d), at(V, (m * D + d) * H * P)
            V_next = at(V, (m * D + order[sequence, max(i - 1, begin)]) * H * P)
            if i == end - 1 or (i - begin) % CHECKPOINT == CHECKPOINT - 1:
                state = states + (i - begin) // CHECKPOINT * size
                copy_bytes(at(work, a), at(work, state), size * work.itemsize)
                clear(work, w, width)
                still = (at(work, zeros), at(work, w), rho_at)
                call(advance, (*still, at(work, a), at(work, h), R4, width, activation))
            dV_at = at(dV, (m * D + d) * H * P) if want & WANT_V else V_at
            outputs(functions, V, b, m, d, R, work, h, z, dV_at)
            if i == end - 1 or weights.shape[2] > 1:
                for r in range(R):
                    work[weight + r] = weights[weighting, start + r, d % weights.shape[2]]
            clear(work, sums, P * LANES)
            call(
                epilogue,
                (
                    at(work, z),
                    at(work, xs + i * R16),
                    at(work, weight),
                    at(log_floor, m * D + d) if flags & FLOOR else 0,
                    at(work, log_p),
                    at(work, dz),
                    at(work, sums),
                    at(work, own_dx),
                    at(work, scratch),
                    R16,
                    P,
                    output_stride(P),
                    flags,
                ),
            )
            for r in range(R):
                value += work[weight + r] * work[log_p + r]
            for k in range(P):
                part = zero
                for t in range(LANES):
                    part += work[sums + k * LANES + t]
                db[m, d, k] += part
            h_at, dz_at = at(work, h), at(work, dz)
            if want & WANT_V and dV_turned.shape[1] == D:
                out = at(dV_turned, (m * D + d) * H * P)
                gemm(product, False, True, H, P, R, h_at, width, dz_at, stride, keep, out, H)
                if start + R == x.shape[1]:
                    call(turn, (out, at(dV, (m * D + d) * H * P), P, H, P))
            elif want & WANT_V:
                strides, shape = (1, width, stride, P), (H, P, R)
                multiply(functions, h_at, dz_at, dV_at, strides, shape, keep, V_next)
            if want & WANT_X:
                for r in range(R):
                    part = work[own_dx + r]
                    for j in range(H):
                        part += work[da + r * width + j] * W[m, i, j]
                    dx[m, start + r, d] = part
            # Then to the dimension before; before the chunk's first one, by a step of 0.
            j = i - 1 if i > begin else i
            values = xs + j * R16 if i > begin else zeros
            copy_row(at(W, (m * D + j) * H), H, width, work, w)
            rho_before = at(rho, m * D + order[sequence, j])
            if not back:
                for r in range(R16):
                    work[own_dx + r] = -work[values + r]
                step = (at(work, own_dx), at(work, w), rho_before)
                call(advance, (*step, at(work, a), at(work, h), R4, width, activation))
                continue
            dh_at = at(work, dh)
            if narrow != 0:
                V_turned_at = at(work, V_turned)
                call(turn, (V_at, V_turned_at, H, P, width))
                strides, shape = (stride, 1, width, width), (R, H, P)
                multiply(functions, dz_at, V_turned_at, dh_at, strides, shape, zero, V_next)
            else:
                gemm(product, True, False, H, R, P, V_at, P, dz_at, stride, zero, dh_at, width)
            clear(work, parts, LANES)
            for r in range(0, R4, SUMMED_ROWS):
                clear(work, dw, width)
                call(
                    retreat,
                    (
                        at(work, values + r),
                        at(work, w),
                        rho_at,
                        rho_before,
                        at(work, dh + r * width),
                        at(work, a + r * width),
                        at(work, da + r * width),
                        at(work, h + r * width),
                        at(work, dw),
                        at(work, parts),
                        min(R4 - r, SUMMED_ROWS),
                        width,
                        activation,
                    ),
                )
                if i > begin:
                    for t in range(H):
                        dW[m, j, t] += work[dw + t]
            for t in range(LANES):
                drho[m, d] += work[parts + t]
        if back and chunks > 1:
            for r in range(R):
                row = ((m * chunks + chunk) * carried.shape[2] + start - low + r) * H
                copy_bytes(at(carried, row), at(work, da + r * width), H * work.itemsize)
        elif back:
            for first in range(0, R, LANES):  # by sixteens, which keeps rounding errors small
                clear(work, dw, H)
                for r in range(first, min(first + LANES, R)):
                    for j in range(H):
                        work[dw + j] += work[da + r * width + j]
                for j in range(H):
                    dc[m, j] += work[dw + j]
    if chunks == 1:
        total[m] = value
    return value


def join_size(D: int, H: int, rows: int) -> int:
    """Numbers that `join` needs room for."""
    return 2 * D * -(-rows // LANES) * LANES + H


@compiled
def join(functions, addresses, sizes, work, want, m, low, high, value):
    """Add what the gradient of a at each chunk's start gives to the dimensions before it.

    `value` is the sum of what the chunks returned.
    """
    product = functions[PRODUCT]
    arrays = arrays_at(addresses, sizes, work)
    x, order, W, dW, dc = arrays[0], arrays[2], arrays[3], arrays[9], arrays[10]
    dx, carried, total = arrays[14], arrays[16], arrays[17]
    total[m] = value
    if want & (WANT_HIDDEN | WANT_X) == 0:
        return
    _, chunks, rows, H = carried.shape
    D, R, sequence = order.shape[1], high - low, m % order.shape[0]
    one, zero = work.dtype.type(1), work.dtype.type(0)
    R16 = up(R, LANES)
    xs, part = 0, D * R16
    gather(x, m, order, low, R, D, work, xs)
    for chunk in range(chunks - 1, 0, -1):
        begin, end = chunk_begin(chunk - 1, chunks, D), chunk_begin(chunk, chunks, D)
        n = end - begin
        da, x_at = at(carried, (m * chunks + chunk) * rows * H), at(work, xs + begin * R16)
        dW_at = at(dW, (m * D + begin) * H)
        gemm(product, False, False, H, n, R, da, H, x_at, R16, one, dW_at, H)
        if want & WANT_X:
            W_at, out = at(W, (m * D + begin) * H), at(work, part)
            gemm(product, True, False, n, R, H, W_at, H, da, H, zero, out, n)
            for r in range(R):
                for i in range(n):
                    dx[m, low + r, order[sequence, begin + i]] += work[part + r * n + i]
        for r in range(R):
            for j in range(H):
                carried[m, chunk - 1, r, j] += carried[m, chunk, r, j]
    for first in range(0, R, LANES):  # by sixteens, as above
        clear(work, part, H)
        for r in range(first, min(first + LANES, R)):
            for j in range(H):
                work[part + j] += carried[m, 0, r, j]
        for j in range(H):
            dc[m, j] += work[part + j]
