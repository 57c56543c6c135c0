"""The CPU kernels: density and draws with the hidden state carried along the dimensions.

What is computed is the paper's Algorithm 1, and in `gradient` Algorithm 2, for a block of
rows at a time: a (R, H) is carried from dimension to dimension, h is made from it, z = h V_d + b_d
by one matrix product, and the family's epilogue turns z into log p and its gradient. Nothing of
size B x D x H exists.

- Fused: the update of a, h, and on the way back the gradients of a, rho and W, in one pass over
  the block (`hidden`); everything from z to dz in one pass (`families`).
- In cache: a, h, dh and da of a block of rows.
- Recomputed on the way back: a, by taking x_d W_d away again, from a checkpoint every few
  dimensions so that rounding does not build up; and h from a.
- Products: one for a density (z), three for a gradient (z, dV, dh).

Traffic: a gradient step moves V_d twice and dV_d once or twice for each block of rows, 3 to 4 H P
numbers, and does 6 R H P operations with them, so that even 25 rows are bound by arithmetic, if
barely. Plain torch moves some 10 R H numbers a dimension to and from memory besides.

The kernels are serial and run side by side: densities and draws over blocks of rows, gradients
over chunks of dimensions, both over models. They stop being the right choice for models so small
(below some 10^5 multiplications) that the call costs more than the work.

Arguments that all kernels share. Arrays are contiguous and given by their addresses: arrays proper
take longer to compile and, some twenty for a step on a small model, time in each call.

    functions : addresses of compiled functions, at the places that `calls` names
    parameters : addresses of these
        order : (M or 1, D), the dimension that comes i-th
        W : (M, D, H), in that order; c : (M, H)
        rho : (M, D)
        V : (M, D, H, P or more), by dimension; columns beyond P do not count
        b : (M, D, P), log_floor : (M, D), by dimension
    arrays : addresses of the kernel's own
    sizes : D, H, P, columns of V, models of `order`; then B and the kernel's own
    room : numbers for a thread's blocks, as many as the kernel's `..._size` says
    flags : codes of `families`
    m, low, high : the model and the rows to compute

A kernel sees its own model's part of each array. `work` points to the room, and its parts go by
the number at which they begin.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# Numba, not Python, gives the arguments of compiled functions their types.

from rnade.backends.cpu.calls import (
    ADVANCE,
    LAST,
    at,
    beyond,
    call,
    clear,
    compiled,
    copy,
    inlined,
    pointer_to,
    pointers,
    whole_numbers,
)
from rnade.backends.cpu.families import FLOOR, SCRATCH
from rnade.backends.cpu.hidden import ROWS
from rnade.backends.cpu.lanes import LANES
from rnade.backends.cpu.products import multiply

GROUP = 2  # dimensions whose h a density makes before it multiplies
STRIP = 8  # rows whose a stays in the first-level cache meanwhile


@inlined
def up(n, multiple):
    """Round n up to a multiple."""
    return (n + multiple - 1) // multiple * multiple


@inlined
def row_width(H):
    """Numbers from row to row of matrices (R, H).

    Whole vectors, and not a multiple of 256: rows that begin at equal places of a memory page
    would make the processor take what is written to one for what is read from another.
    """
    return up(H, LANES) + (LANES if up(H, LANES) % 256 == 0 else 0)


@inlined
def copy_row(address, n, width, work, out):
    """Copy n numbers from an address and fill them up to `width` with zeros."""
    copy(work, out, address, n)
    clear(work, out + n, width - n)


@inlined
def parameters_of(parameters, sizes, room, m):
    """Pointers to one model's order, W, c, rho, V, b and log_floor."""
    D, H, P, columns, orders = sizes[:5]
    order, W, c, rho, V, b, log_floor = pointers(parameters, room)
    return (
        beyond(whole_numbers(order), m % orders * D),
        beyond(W, m * D * H),
        beyond(c, m * H),
        beyond(rho, m * D),
        beyond(V, m * D * H * columns),
        beyond(b, m * D * P),
        beyond(log_floor, m * D),
    )


@inlined
def gather(x, D, order, low, R, n, work, xs):
    """The first n dimensions in order of R rows, each dimension's values side by side."""
    stride = up(R, LANES)
    for i in range(n):
        d = order[i]
        for r in range(R):
            work[xs + i * stride + r] = x[(low + r) * D + d]
        clear(work, xs + i * stride + R, stride - R)


@inlined
def output_stride(P):
    """Numbers from row to row of z, as the epilogues take it."""
    return up(P, LANES) if P > 1 else 1


@inlined
def outputs(functions, V, b, sizes, d, R, work, h, z, one, ahead):
    """Write z = h V_d + b_d; `ahead` is the address of what is needed next."""
    _, H, P, columns = sizes[:4]
    stride = output_stride(P)
    copy(work, z, at(b, d * P), P)
    rows, done = up(R, LANES), 1
    while done < rows:  # as many rows again as there are
        more = min(done, rows - done)
        copy(work, z + done * stride, at(work, z), more * stride)
        done += more
    strides, shape = (row_width(H), 1, columns, stride), (R, columns, H)
    V_d = at(V, d * H * columns)
    multiply(functions, at(work, h), V_d, at(work, z), strides, shape, one, ahead)


def density_size(D: int, H: int, P: int, block: int) -> int:
    """Numbers that `density` and `sample` need room for."""
    R, H, columns = (-(-n // LANES) * LANES for n in (block, H + LANES, P))
    return (1 + GROUP) * R * H + (D + columns + 4) * R + GROUP * H + SCRATCH * columns


@compiled
def density(functions, parameters, arrays, sizes, room, flags, m, low, high):
    """Algorithm 1: terms[m, low:high, d] = log p(x_d | x_<d).

    The h of several dimensions are made together, a few rows at a time, so that a is read from
    and written to the second-level cache once for all of them.

    arrays : x (M or 1, B, D), the rows, one for all models or each its own; terms (M, B, D)
    sizes : at the end, models of x and rows in a block
    """
    epilogue, advance = functions[LAST], functions[ADVANCE]
    D, H, P, columns, _, B, x_models, block = sizes
    order, W, c, rho, V, b, log_floor = parameters_of(parameters, sizes, room, m)
    x, terms = pointers(arrays, room)
    x, terms = beyond(x, m % x_models * B * D), beyond(terms, m * B * D)
    work, one = pointer_to(room), room.dtype.type(1)
    width, most = row_width(H), up(block, LANES)
    size = most * width
    a = 0
    h = a + size
    xs = h + GROUP * size
    z = xs + D * most
    log_p = z + most * up(P, LANES)
    ones = log_p + most
    w = ones + most
    scratch = w + GROUP * width
    for r in range(most):
        work[ones + r] = 1
    for start in range(low, high, block):
        R = min(block, high - start)
        R4, R16 = up(R, ROWS), up(R, LANES)
        gather(x, D, order, start, R, D, work, xs)
        clear(work, a, R4 * width)
        for i in range(0, D, GROUP):
            n = min(GROUP, D - i)
            for t in range(n):
                # The first step takes a from 0 to c, as if c were the weights of a value of 1.
                row = at(c, 0) if i + t == 0 else at(W, (i + t - 1) * H)
                copy_row(row, H, width, work, w + t * width)
            for r in range(0, R4, STRIP):
                for t in range(n):
                    before = ones if i + t == 0 else xs + (i + t - 1) * R16
                    step = (at(work, before + r), at(work, w + t * width), at(rho, order[i + t]))
                    state = (at(work, a + r * width), at(work, h + t * size + r * width))
                    call(advance, (*step, *state, min(STRIP, R4 - r), width))
            for t in range(n):
                d = order[i + t]
                ahead = at(V, order[min(i + t + 1, D - 1)] * H * columns)
                outputs(functions, V, b, sizes, d, R, work, h + t * size, z, one, ahead)
                own = at(work, xs + (i + t) * R16)
                given = (at(work, z), own, own, at(log_floor, d) if flags & FLOOR else 0)
                found = (at(work, log_p), 0, 0, 0, at(work, scratch))
                call(epilogue, (*given, *found, R16, P, output_stride(P), flags))
                for r in range(R):
                    terms[(start + r) * D + d] = work[log_p + r]


@compiled
def sample(functions, parameters, arrays, sizes, room, flags, m, low, high):
    """x[m, low:high] drawn one dimension after the other.

    arrays : uniform, noise and x, (M, B, D)
    sizes : at the end, numbers from model to model of x
    """
    draw, advance = functions[LAST], functions[ADVANCE]
    D, H, P, columns, _, B, x_stride = sizes
    order, W, c, rho, V, b, log_floor = parameters_of(parameters, sizes, room, m)
    uniform, noise, x = pointers(arrays, room)
    uniform, noise = beyond(uniform, (m * B + low) * D), beyond(noise, (m * B + low) * D)
    x = beyond(x, m * x_stride + low * D)
    work, one = pointer_to(room), room.dtype.type(1)
    R = high - low
    R4, R16, width = up(R, ROWS), up(R, LANES), row_width(H)
    a = 0
    h = a + R16 * width
    z = h + R16 * width
    drawn = z + R16 * up(P, LANES)
    u = drawn + R16
    e = u + R16
    w = e + R16
    scratch = w + width
    clear(work, a, R4 * width)
    clear(work, u, 2 * R16)
    for r in range(R16):
        work[drawn + r] = 1  # the first step takes a from 0 to c
    copy_row(at(c, 0), H, width, work, w)
    for i in range(D):
        d = order[i]
        step = (at(work, drawn), at(work, w), at(rho, d))
        call(advance, (*step, at(work, a), at(work, h), R4, width))
        ahead = at(V, order[min(i + 1, D - 1)] * H * columns)
        outputs(functions, V, b, sizes, d, R, work, h, z, one, ahead)
        for r in range(R):
            work[u + r] = uniform[r * D + d]
            work[e + r] = noise[r * D + d]
        given = (at(work, z), at(work, u), at(work, e), at(log_floor, d) if flags & FLOOR else 0)
        found = (at(work, drawn), at(work, scratch))
        call(draw, (*given, *found, R16, P, output_stride(P), flags))
        for r in range(R):
            x[r * D + d] = work[drawn + r]
        copy_row(at(W, i * H), H, width, work, w)
