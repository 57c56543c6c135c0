"""The CPU kernels of the gradient: one over a chunk of dimensions, one that joins the chunks.

See `density` for what is computed and for the arguments that all kernels share. A chunk
starts from its own a = c + x_<s W_<s; `join` then adds what a chunk's gradient of that a gives to
the dimensions before it. Both take

    arrays : addresses of these, 0 where not needed
        x : (M or 1, B, D), the rows; one for all models, or each its own
        weights : (M or 1, B, D or 1), what each row's or each term's log density is multiplied by
        dW (in order), dc, drho, dV, db : like the parameters, written by the first rows and added
            to by others
        dx : (M, B, D), written
        dV_turned : (M, D, P, H)
            Room for dV transposed. In that form BLAS is half as fast again, which pays for
            transposing at the end if there are several blocks of rows.
        carried : (M, chunks, rows, H), each chunk's gradient of the a that it starts from
        total : (M,), written: sum of weights times log densities
    sizes : at the end, models of x, models and columns of weights, chunks, rows of carried,
        whether there is dV_turned
    want : what a gradient is wanted of, codes WANT_...
    block : rows in a block
    chunk, chunks : which of how many chunks of dimensions
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# Numba, not Python, gives the arguments of compiled functions their types.

from rnade.backends.cpu.calls import (
    PRODUCT,
    at,
    beyond,
    call,
    clear,
    compiled,
    copy,
    gemm,
    inlined,
    pointer_to,
    pointers,
)
from rnade.backends.cpu.density import (
    copy_row,
    gather,
    output_stride,
    outputs,
    parameters_of,
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
def arrays_of(arrays, sizes, room, m):
    """Pointers to one model's part of each of the arrays."""
    D, H, P, _, _, B, x_models, w_models, w_terms, chunks, rows, _ = sizes
    x, weights, dW, dc, drho, dV, db, dx, dV_turned, carried, total = pointers(arrays, room)
    return (
        beyond(x, m % x_models * B * D),
        beyond(weights, m % w_models * B * w_terms),
        beyond(dW, m * D * H),
        beyond(dc, m * H),
        beyond(drho, m * D),
        beyond(dV, m * D * H * P),
        beyond(db, m * D * P),
        beyond(dx, m * B * D),
        beyond(dV_turned, m * D * H * P),
        beyond(carried, m * chunks * rows * H),
        beyond(total, m),
    )


@inlined
def chunk_begin(chunk, chunks, D):
    """First dimension of a chunk."""
    return chunk * D // chunks


@inlined
def checkpoint(product, W, c, H, begin, end, R, work, xs, states, size, one):
    """Write a at the last dimension of each stretch of a chunk, rows and units padded by 0."""
    width, R16 = row_width(H), up(R, LANES)
    done, n = 0, 0
    for s in range(begin, end, CHECKPOINT):
        last = min(s + CHECKPOINT, end) - 1
        state = states + n * size
        if n == 0:
            clear(work, state, size)
            for r in range(R):
                copy(work, state + r * width, at(c, 0), H)
        else:
            copy(work, state, at(work, state - size), size)
        if last > done:
            W_at, x_at = at(W, done * H), at(work, xs + done * R16)
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
def gradient(functions, parameters, arrays, sizes, room, flags, want, m, low, high, block, chunk):
    """Algorithm 2 for the dimensions of one chunk and the rows from low to high.

    Returns the chunk's sum of weights times log densities.
    """
    product, narrow, turn, epilogue, advance, retreat = functions
    D, H, P, _, _, B, _, _, w_terms, chunks, rows, turned = sizes
    order, W, c, rho, V, b, log_floor = parameters_of(parameters, sizes, room, m)
    own = arrays_of(arrays, sizes, room, m)
    x, weights, dW, dc, drho, dV, db, dx, dV_turned, carried, total = own
    work, one, zero = pointer_to(room), room.dtype.type(1), room.dtype.type(0)
    begin, end = chunk_begin(chunk, chunks, D), chunk_begin(chunk + 1, chunks, D)
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
        clear(dW, begin * H, (end - begin) * H)
        for i in range(begin, end):
            d = order[i]
            drho[d] = 0
            clear(db, d * P, P)
        if chunk == 0:
            clear(dc, 0, H)
    value = 0.0
    for start in range(low, high, block):
        R = min(block, high - start)
        R4, R16 = up(R, ROWS), up(R, LANES)
        size = R4 * width
        keep = zero if start == 0 else one
        gather(x, D, order, start, R, end, work, xs)
        checkpoint(product, W, c, H, begin, end, R, work, xs, states, size, one)
        clear(work, da, size)
        clear(work, dh, size)
        clear(work, weight, R16)
        for i in range(end - 1, begin - 1, -1):
            d = order[i]
            rho_at, V_at = at(rho, d), at(V, d * H * P)
            V_next = at(V, order[max(i - 1, begin)] * H * P)
            if i == end - 1 or (i - begin) % CHECKPOINT == CHECKPOINT - 1:
                state = states + (i - begin) // CHECKPOINT * size
                copy(work, a, at(work, state), size)
                clear(work, w, width)
                still = (at(work, zeros), at(work, w), rho_at)
                call(advance, (*still, at(work, a), at(work, h), R4, width))
            dV_at = at(dV, d * H * P) if want & WANT_V else V_at
            outputs(functions, V, b, sizes, d, R, work, h, z, one, dV_at)
            if i == end - 1 or w_terms > 1:
                for r in range(R):
                    work[weight + r] = weights[(start + r) * w_terms + d % w_terms]
            clear(work, sums, P * LANES)
            floor = at(log_floor, d) if flags & FLOOR else 0
            given = (at(work, z), at(work, xs + i * R16), at(work, weight), floor)
            found = (at(work, log_p), at(work, dz), at(work, sums), at(work, own_dx))
            call(epilogue, (*given, *found, at(work, scratch), R16, P, output_stride(P), flags))
            for r in range(R):
                value += work[weight + r] * work[log_p + r]
            for k in range(P):
                part = zero
                for t in range(LANES):
                    part += work[sums + k * LANES + t]
                db[d * P + k] += part
            h_at, dz_at = at(work, h), at(work, dz)
            if want & WANT_V and turned != 0:
                out = at(dV_turned, d * H * P)
                gemm(product, False, True, H, P, R, h_at, width, dz_at, stride, keep, out, H)
                if start + R == B:
                    call(turn, (out, dV_at, P, H, P))
            elif want & WANT_V:
                strides, shape = (1, width, stride, P), (H, P, R)
                multiply(functions, h_at, dz_at, dV_at, strides, shape, keep, V_next)
            if want & WANT_X:
                for r in range(R):
                    part = work[own_dx + r]
                    for j in range(H):
                        part += work[da + r * width + j] * W[i * H + j]
                    dx[(start + r) * D + d] = part
            # Then to the dimension before; before the chunk's first one, by a step of 0.
            j = i - 1 if i > begin else i
            values = xs + j * R16 if i > begin else zeros
            copy_row(at(W, j * H), H, width, work, w)
            rho_before = at(rho, order[j])
            if not back:
                for r in range(R16):
                    work[own_dx + r] = -work[values + r]
                step = (at(work, own_dx), at(work, w), rho_before)
                call(advance, (*step, at(work, a), at(work, h), R4, width))
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
                before = (at(work, values + r), at(work, w), rho_at, rho_before)
                row, n = r * width, min(R4 - r, SUMMED_ROWS)
                state = (
                    at(work, dh + row),
                    at(work, a + row),
                    at(work, da + row),
                    at(work, h + row),
                )
                call(retreat, (*before, *state, at(work, dw), at(work, parts), n, width))
                if i > begin:
                    for t in range(H):
                        dW[j * H + t] += work[dw + t]
            for t in range(LANES):
                drho[d] += work[parts + t]
        if back and chunks > 1:
            for r in range(R):
                row = (chunk * rows + start - low + r) * H
                copy(carried, row, at(work, da + r * width), H)
        elif back:
            for first in range(0, R, LANES):  # by sixteens, which keeps rounding errors small
                clear(work, dw, H)
                for r in range(first, min(first + LANES, R)):
                    for j in range(H):
                        work[dw + j] += work[da + r * width + j]
                for j in range(H):
                    dc[j] += work[dw + j]
    if chunks == 1:
        total[0] = value
    return value


def join_size(D: int, H: int, rows: int) -> int:
    """Numbers that `join` needs room for."""
    return 2 * D * -(-rows // LANES) * LANES + H


@compiled
def join(functions, parameters, arrays, sizes, room, want, m, low, high, value):
    """Add what the gradient of a at each chunk's start gives to the dimensions before it.

    `value` is the sum of what the chunks returned.
    """
    product = functions[PRODUCT]
    D, H, _, _, _, _, _, _, _, chunks, rows, _ = sizes
    order, W = parameters_of(parameters, sizes, room, m)[:2]
    x, _, dW, dc, _, _, _, dx, _, carried, total = arrays_of(arrays, sizes, room, m)
    work, one, zero = pointer_to(room), room.dtype.type(1), room.dtype.type(0)
    total[0] = value
    if want & (WANT_HIDDEN | WANT_X) == 0:
        return
    R = high - low
    R16 = up(R, LANES)
    xs, part = 0, D * R16
    gather(x, D, order, low, R, D, work, xs)
    for chunk in range(chunks - 1, 0, -1):
        begin, end = chunk_begin(chunk - 1, chunks, D), chunk_begin(chunk, chunks, D)
        n = end - begin
        da, x_at = at(carried, chunk * rows * H), at(work, xs + begin * R16)
        dW_at = at(dW, begin * H)
        gemm(product, False, False, H, n, R, da, H, x_at, R16, one, dW_at, H)
        if want & WANT_X:
            W_at, out = at(W, begin * H), at(work, part)
            gemm(product, True, False, n, R, H, W_at, H, da, H, zero, out, n)
            for r in range(R):
                for i in range(n):
                    dx[(low + r) * D + order[begin + i]] += work[part + r * n + i]
        for r in range(R):
            for j in range(H):
                carried[((chunk - 1) * rows + r) * H + j] += carried[(chunk * rows + r) * H + j]
    for first in range(0, R, LANES):  # by sixteens, as above
        clear(work, part, H)
        for r in range(first, min(first + LANES, R)):
            for j in range(H):
                work[part + j] += carried[r * H + j]
        for j in range(H):
            dc[j] += work[part + j]
