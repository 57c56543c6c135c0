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

Arguments that all kernels share; every array is contiguous:

    functions : addresses of compiled functions, at the places that `calls` names
    x : (M or 1, B, D), the rows; one for all models, or each its own
    parameters : the next seven, in a tuple
    order : (M or 1, D), the dimension that comes i-th
    W : (M, D, H), in that order; c : (M, H)
    rho : (M, D), b : (M, D, P), log_floor : (M, D), by dimension
    V : (M, D, H, P or more), by dimension; columns beyond P do not count
    work : room for a thread's blocks, as much as the kernel's `..._size` says
    activation, flags : codes of `hidden` and `families`
    m, low, high : the model and the rows to compute
    block : rows in a block

Parts of `work` go by the number at which they begin.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# Numba, not Python, gives the arguments of compiled functions their types.

from rnade.backends.cpu.calls import ADVANCE, LAST, call, compiled, copy_bytes, inlined, zero_bytes
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
def at(array, i):
    """Address of the i-th number of an array."""
    return array.ctypes.data + i * array.itemsize


@inlined
def clear(work, begin, n):
    """Set n numbers of the workspace to 0."""
    zero_bytes(at(work, begin), n * work.itemsize)


@inlined
def copy_row(address, n, width, work, out):
    """Copy n numbers from an address and fill them up to `width` with zeros."""
    copy_bytes(at(work, out), address, n * work.itemsize)
    clear(work, out + n, width - n)


@inlined
def gather(x, m, order, low, R, n, work, xs):
    """The first n dimensions in order of R rows, each dimension's values side by side."""
    stride, model, sequence = up(R, LANES), m % x.shape[0], m % order.shape[0]
    for i in range(n):
        d = order[sequence, i]
        for r in range(R):
            work[xs + i * stride + r] = x[model, low + r, d]
        clear(work, xs + i * stride + R, stride - R)


@inlined
def output_stride(P):
    """Numbers from row to row of z, as the epilogues take it."""
    return up(P, LANES) if P > 1 else 1


@inlined
def outputs(functions, V, b, m, d, R, work, h, z, ahead):
    """Write z = h V_d + b_d; `ahead` is the address of what is needed next."""
    _, D, H, columns = V.shape
    P, one = b.shape[2], work.dtype.type(1)
    stride, V_at = output_stride(P), at(V, (m * D + d) * H * columns)
    copy_bytes(at(work, z), at(b, (m * D + d) * P), P * work.itemsize)
    rows, done = up(R, LANES), 1
    while done < rows:  # as many rows again as there are
        more = min(done, rows - done)
        copy_bytes(at(work, z + done * stride), at(work, z), more * stride * work.itemsize)
        done += more
    strides, sizes = (row_width(H), 1, columns, stride), (R, columns, H)
    multiply(functions, at(work, h), V_at, at(work, z), strides, sizes, one, ahead)


def density_size(D: int, H: int, P: int, block: int) -> int:
    """Numbers that `density` and `sample` need room for."""
    R, H, columns = (-(-n // LANES) * LANES for n in (block, H + LANES, P))
    return (1 + GROUP) * R * H + (D + columns + 4) * R + GROUP * H + SCRATCH * columns


@compiled
def density(functions, x, parameters, block, terms, work, activation, flags, m, low, high):
    """Algorithm 1: terms[m, low:high, d] = log p(x_d | x_<d).

    The h of several dimensions are made together, a few rows at a time, so that a is read from
    and written to the second-level cache once for all of them.
    """
    order, W, c, rho, V, b, log_floor = parameters
    epilogue, advance = functions[LAST], functions[ADVANCE]
    D, H, P = W.shape[1], W.shape[2], b.shape[2]
    sequence = m % order.shape[0]
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
        gather(x, m, order, start, R, D, work, xs)
        clear(work, a, R4 * width)
        for i in range(0, D, GROUP):
            n = min(GROUP, D - i)
            for t in range(n):
                # The first step takes a from 0 to c, as if c were the weights of a value of 1.
                row = at(c, m * H) if i + t == 0 else at(W, (m * D + i + t - 1) * H)
                copy_row(row, H, width, work, w + t * width)
            for r in range(0, R4, STRIP):
                for t in range(n):
                    before = ones if i + t == 0 else xs + (i + t - 1) * R16
                    call(
                        advance,
                        (
                            at(work, before + r),
                            at(work, w + t * width),
                            at(rho, m * D + order[sequence, i + t]),
                            at(work, a + r * width),
                            at(work, h + t * size + r * width),
                            min(STRIP, R4 - r),
                            width,
                            activation,
                        ),
                    )
            for t in range(n):
                d = order[sequence, i + t]
                following = order[sequence, min(i + t + 1, D - 1)]
                ahead = at(V, (m * D + following) * H * V.shape[3])
                outputs(functions, V, b, m, d, R, work, h + t * size, z, ahead)
                own = at(work, xs + (i + t) * R16)
                call(
                    epilogue,
                    (
                        at(work, z),
                        own,
                        own,
                        at(log_floor, m * D + d) if flags & FLOOR else 0,
                        at(work, log_p),
                        0,
                        0,
                        0,
                        at(work, scratch),
                        R16,
                        P,
                        output_stride(P),
                        flags,
                    ),
                )
                for r in range(R):
                    terms[m, start + r, d] = work[log_p + r]


@compiled
def sample(functions, uniform, noise, parameters, x, work, activation, flags, m, low, high):
    """x[m, low:high] drawn one dimension after the other from uniform and noise, (M, n, D)."""
    order, W, c, rho, V, b, log_floor = parameters
    draw, advance = functions[LAST], functions[ADVANCE]
    D, H, P = W.shape[1], W.shape[2], b.shape[2]
    sequence = m % order.shape[0]
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
    copy_row(at(c, m * H), H, width, work, w)
    for i in range(D):
        d = order[sequence, i]
        call(
            advance,
            (
                at(work, drawn),
                at(work, w),
                at(rho, m * D + d),
                at(work, a),
                at(work, h),
                R4,
                width,
                activation,
            ),
        )
        following = order[sequence, min(i + 1, D - 1)]
        ahead = at(V, (m * D + following) * H * V.shape[3])
        outputs(functions, V, b, m, d, R, work, h, z, ahead)
        for r in range(R):
            work[u + r] = uniform[m, low + r, d]
            work[e + r] = noise[m, low + r, d]
        call(
            draw,
            (
                at(work, z),
                at(work, u),
                at(work, e),
                at(log_floor, m * D + d) if flags & FLOOR else 0,
                at(work, drawn),
                at(work, scratch),
                R16,
                P,
                output_stride(P),
                flags,
            ),
        )
        for r in range(R):
            x[m, low + r, d] = work[drawn + r]
        copy_row(at(W, (m * D + i) * H), H, width, work, w)
