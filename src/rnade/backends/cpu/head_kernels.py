r"""The CPU kernel of densities of mixed tables' columns, with their gradient.

What is computed is `backends.heads`: of a value in the cell c, with its share v of the cell and
the logits z of C cells and K components,

.. math::

    \log p = \log q + \log \Big( e^{z_c} v + \sum_k e^{z_{C+k}} f_k \Big)
             - \log \sum_{i < C+K} e^{z_i} .

With the softmax s of all C + K logits, the responsibilities r_c and r_k, the shares of the cell
and of each component in the first sum, and the weight g of the value, the gradient of g log p is

- of logits: g (r_i - s_i), where r_i is 0 of all cells but c,
- of the mean and the log scale of a component: g r_k times those of log f_k.

With p = e^(-log scale) and the ends lo = hi = (t - mu) p of a real value, or lo and hi half its
width w = hi - lo before and behind that of an integer, and A and B those of the range, W = B - A,

.. math::

    f = \frac{m(lo, hi)}{m(A, B)}, \qquad
    m(a, b) = F(b) F(-a) (1 - e^{a - b}), \qquad
    \partial_a \log m = -F(a) - \frac{1}{e^{b-a} - 1}, \qquad
    \partial_b \log m = F(-b) + \frac{1}{e^{b-a} - 1}

with the logistic function F. The means move a and b alike, and the scale stretches both, so that

.. math::

    -\partial_\mu \log m / p = F(-b) - F(a), \qquad
    \partial_{\log scale} \log m = a F(a) - b F(-b) - \frac{b - a}{e^{b-a} - 1} .

Of a real value m is p times the logistic density and the last fraction is 1, what both are for
small widths. Written with e^(-|a|) and e^(-|b|), which cannot overflow, the density is

.. math::

    f = e^{-\min(lo - A, lo^+) - \min(B - hi, (-hi)^+)} \,
        \frac{(1 + e^{-|A|}) (1 + e^{-|B|}) (1 - e^{-w})}
             {(1 + e^{-|lo|}) (1 + e^{-|hi|}) (1 - e^{-W})}

in which no two large numbers are subtracted, however far away the mean is. The fraction is a
number of ordinary size: it multiplies e^(z - largest) and no logarithm of it is taken.

- Fused: everything from z to log p and dz, in one pass over z.
- In cache: the outputs of one column for 16 rows, 64 bytes each in float32, which turn into their
  gradients where they are. Rows go side by side in vectors, so that columns of any number of cells
  fill them.
- Skipped: cells of the table that do not count. Of a block of rows those that count are picked
  first, column by column, and of those first the ones with a smooth part.
- Recomputed on the way back: nothing; the backward pass hands over what the forward pass found.

Traffic: z is read and dz written once. An output that is a logit costs one exponential, a
component six (of an integer eight) and two divisions (three). Blocks of rows are the same whatever
the number of threads, and so are all results.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# Numba, not Python, gives the arguments of compiled functions their types.

import math

from rnade.backends.cpu.calls import (
    beyond,
    clear,
    compiled,
    inlined,
    pointer_to,
    pointers,
    whole_numbers,
)
from rnade.backends.cpu.lanes import (
    LANES,
    exp,
    expm1,
    like,
    load,
    log,
    splat,
    store,
    transpose,
    where_less,
)
from rnade.backends.heads import LARGEST_LOG_SCALE, SMALLEST_LOG_SCALE
from rnade.columns.partition import CODE, LOG_WIDTH, N_FEATURES, POSITION, WITHIN, Measure

# What a kernel is to write: the gradient of z; the log density of each cell, all with weight 1.
GRADIENT, TERMS = 1, 2
# Columns of the two tables of a layout.
_N_WHOLE, _N_REAL = 4, 4
# Whole numbers beside a block's rows: 16 places in z and 16 codes.
PLACES = 2 * LANES
# Numbers of a group of rows in the room, before the outputs: a square to transpose, then vectors.
_WEIGHT, _WITHIN, _POSITION, _LOG_WIDTH, _CHOSEN, _LOG_P = (LANES * (LANES + i) for i in range(6))
OUTPUTS = LANES * (LANES + 6)

_INTEGER = int(Measure.INTEGER)
_LOW, _HIGH = SMALLEST_LOG_SCALE, LARGEST_LOG_SCALE


# -------------------------------------------------------------------- sixteen values of one column


@inlined
def _least(x, y):
    return where_less(y, x, y, x)


@inlined
def _largest(x, y):
    return where_less(x, y, y, x)


@inlined
def _magnitude(x):
    return _largest(x, like(x, 0.0) - x)


@inlined
def _component(mu, z_scale, t, width, first, last, span, whole):
    """Density of 16 values under a component of theirs, on the smooth scale.

    Gives its exponent and the factor of the exponential, then the derivatives of its logarithm
    with respect to mu and z_scale. Of a real value the width is not read.
    """
    zero, one = like(mu, 0.0), like(mu, 1.0)
    low, high = like(mu, _LOW), like(mu, _HIGH)
    p = exp(zero - where_less(z_scale, low, low, where_less(high, z_scale, high, z_scale)))
    u, A, B = (t - mu) * p, (first - mu) * p, (last - mu) * p
    W = _largest(span * p, like(mu, 1e-30))
    e_A, e_B, between = (
        exp(zero - _magnitude(A)),
        exp(zero - _magnitude(B)),
        zero - expm1(zero - W),
    )
    if whole:
        w = _largest(width * p, like(mu, 1e-30))
        half = like(mu, 0.5) * w
        lo, hi = u - half, u + half
        e_lo, e_hi = exp(zero - _magnitude(lo)), exp(zero - _magnitude(hi))
        inside = zero - expm1(zero - w)
        ratio = w * (one - inside) / inside
    else:
        half, lo, hi, e_lo, inside, ratio = zero, u, u, exp(zero - _magnitude(u)), p, one
        e_hi = e_lo
    below = _least((t - first) * p - half, _largest(lo, zero))
    above = _least((last - t) * p - half, _largest(zero - hi, zero))
    # Four reciprocals by one division.
    n_A, n_B, n_lo, n_hi = one + e_A, one + e_B, one + e_lo, one + e_hi
    of_range, of_value = n_A * n_B, n_lo * n_hi
    inverse, per_between = one / (of_range * of_value), one / between
    per_range, per_value = of_value * inverse, of_range * inverse
    F_A = where_less(A, zero, e_A, one) * (n_B * per_range)
    F_B = where_less(B, zero, one, e_B) * (n_A * per_range)  # of -B, and so on
    F_lo = where_less(lo, zero, e_lo, one) * (n_hi * per_value)
    F_hi = where_less(hi, zero, one, e_hi) * (n_lo * per_value)
    d_mu = ((F_B - F_A) - (F_hi - F_lo)) * p
    d_scale = (lo * F_lo - hi * F_hi - ratio) - (
        A * F_A - B * F_B - W * (one - between) * per_between
    )
    d_scale = where_less(z_scale, low, zero, where_less(high, z_scale, zero, d_scale))
    factor = inside * of_range * per_value * per_between
    return (zero - below) - above, factor, d_mu, d_scale


@inlined
def _components(work, mu_at, K, terms_at, largest_logit, largest, real, whole):
    """Exponents and factors of 16 values' components, and the largest of all exponents.

    Exponents have the logits in them, less the largest. In the place of the means and log scales
    come the derivatives with respect to them.
    """
    n = K * LANES
    t, log_width = load(work, _POSITION), load(work, _LOG_WIDTH)
    width = exp(log_width) if whole else log_width
    offset = like(t, 0.0) if whole else log_width
    offset = offset - largest_logit
    first, last, span = splat(real[0]), splat(real[1]), splat(real[2])
    for k in range(0, n, LANES):
        mu, z_scale = load(work, mu_at + k), load(work, mu_at + n + k)
        found = _component(mu, z_scale, t, width, first, last, span, whole)
        exponent, factor, d_mu, d_scale = found
        exponent = load(work, mu_at - n + k) + offset + exponent
        largest = _largest(largest, exponent)
        store(work, terms_at + k, exponent)
        store(work, terms_at + n + k, factor)
        store(work, mu_at + k, d_mu)
        store(work, mu_at + n + k, d_scale)
    return largest


@inlined
def _log_p(work, C, K, codes, real, whole, smooth, want):
    """Log densities of 16 values; in the place of the outputs comes their gradient."""
    n_logits, n = (C + K) * LANES, K * LANES
    mu_at, terms_at = OUTPUTS + n_logits, OUTPUTS + n_logits + 2 * n
    largest_logit = load(work, OUTPUTS)
    for k in range(LANES, n_logits, LANES):
        largest_logit = _largest(largest_logit, load(work, OUTPUTS + k))
    core = load(work, _CHOSEN) - largest_logit + load(work, _WITHIN)
    largest = core
    zero, one = like(core, 0.0), like(core, 1.0)
    if smooth:
        if whole:
            largest = _components(work, mu_at, K, terms_at, largest_logit, core, real, True)
        else:
            largest = _components(work, mu_at, K, terms_at, largest_logit, core, real, False)
    # A value without a smooth part is in its cell alone, even where its share of it is 0.
    of_cell = one
    if smooth:
        of_cell = exp(core - largest)
    total, total_logits = of_cell, zero
    for k in range(0, n if smooth else 0, LANES):
        term = exp(load(work, terms_at + k) - largest) * load(work, terms_at + n + k)
        total = total + term
        store(work, terms_at + k, term)
    for k in range(OUTPUTS, OUTPUTS + n_logits, LANES):
        term = exp(load(work, k) - largest_logit)
        total_logits = total_logits + term
        store(work, k, term)
    found = largest + (log(total) - log(total_logits)) + splat(real[3])
    store(work, _LOG_P, found)
    if want & GRADIENT:
        weight = load(work, _WEIGHT)
        share, share_logits = weight / total, zero - weight / total_logits
        for k in range(OUTPUTS, OUTPUTS + n_logits, LANES):
            store(work, k, load(work, k) * share_logits)
        for k in range(0, n, LANES):
            alpha_at = mu_at - n + k
            r = load(work, terms_at + k) * share if smooth else zero
            store(work, alpha_at, load(work, alpha_at) + r)
            store(work, mu_at + k, load(work, mu_at + k) * r if smooth else zero)
            store(work, mu_at + n + k, load(work, mu_at + n + k) * r if smooth else zero)
        store(work, _CHOSEN, of_cell * share)
        for i in range(LANES):
            work[OUTPUTS + codes[i] * LANES + i] += work[_CHOSEN + i]


# -------------------------------------------------------------------- rows of one column


@inlined
def _fetch(z, places, size, work):
    """Copy the outputs of 16 rows so that the 16 values of each lie side by side."""
    if size < LANES:
        for i in range(LANES):
            for k in range(size):
                work[OUTPUTS + k * LANES + i] = z[places[i] + k]
        return
    for k in range(0, size, LANES):
        begin = min(k, size - LANES)  # the last square may overlap the one before
        for i in range(LANES):
            store(work, i * LANES, load(z, places[i] + begin))
        transpose(work, OUTPUTS + begin * LANES, LANES, work, 0, LANES)


@inlined
def _bring(work, places, size, n, dz):
    """Write the gradients of n rows back."""
    if size < LANES:
        for i in range(n):
            for k in range(size):
                dz[places[i] + k] = work[OUTPUTS + k * LANES + i]
        return
    for k in range(0, size, LANES):
        begin = min(k, size - LANES)
        transpose(work, 0, LANES, work, OUTPUTS + begin * LANES, LANES)
        for i in range(n):
            store(dz, places[i] + begin, load(work, i * LANES))


@inlined
def _group(
    z, cells, weights, dz, terms, whole, real, D, P, d, rows, n, places, work, smooth, want
):
    """Up to 16 rows of one column; returns the sum of weights times log densities."""
    start, C, K, measure = whole[0], whole[1], whole[2], whole[3]
    codes = beyond(places, LANES)
    for i in range(LANES):
        # Places without a row have the last one's numbers, and nothing of them is kept.
        row = rows[min(i, n - 1)]
        cell = (row * D + d) * N_FEATURES
        places[i] = row * P + start
        codes[i] = min(max(int(cells[cell + CODE]), 0), C - 1)
        work[_WITHIN + i] = cells[cell + WITHIN]
        work[_POSITION + i] = cells[cell + POSITION]
        work[_LOG_WIDTH + i] = cells[cell + LOG_WIDTH]
        work[_CHOSEN + i] = z[places[i] + codes[i]]
        work[_WEIGHT + i] = 1 if want & TERMS else weights[row * D + d]
    _fetch(z, places, C + 3 * K, work)
    _log_p(work, C, K, codes, real, measure == _INTEGER, smooth, want)
    if want & GRADIENT:
        _bring(work, places, C + 3 * K, n, dz)
    total = 0.0
    for i in range(n):
        if want & TERMS:
            terms[rows[i] * D + d] = work[_LOG_P + i]
        total += float(work[_WEIGHT + i]) * work[_LOG_P + i]
    return total


@inlined
def _column(z, cells, weights, dz, terms, whole, real, sizes, d, low, high, rows, work, want):
    """Rows low to high of one column; returns the sum of weights times log densities."""
    D, P, most = sizes[0], sizes[1], sizes[2]
    size, K = whole[1] + 3 * whole[2], whole[2]
    places, flat = beyond(rows, 2 * most), beyond(rows, most)
    n_smooth, n_flat, total = 0, 0, 0.0
    for row in range(low, high):
        at = row * D + d
        counts = want & TERMS != 0 or weights[at] != 0
        cell = at * N_FEATURES
        if counts and cells[cell + CODE] >= 0:
            if K > 0 and cells[cell + LOG_WIDTH] > -math.inf:
                rows[n_smooth] = row
                n_smooth += 1
            else:
                flat[n_flat] = row
                n_flat += 1
            continue
        if want & TERMS:
            terms[at] = cells[cell + WITHIN]
        elif counts:
            total += float(weights[at]) * cells[cell + WITHIN]
        if want & GRADIENT:
            clear(dz, row * P + whole[0], size)
    given = (z, cells, weights, dz, terms, whole, real, D, P, d)
    for smooth in (True, False):
        own, n = (rows, n_smooth) if smooth else (flat, n_flat)
        for i in range(0, n, LANES):
            left = min(n - i, LANES)
            total += _group(*given, beyond(own, i), left, places, work, smooth, want)
    return total


@compiled
def heads(arrays, sizes, room, rows, values, want, low, high):
    """Blocks low to high of the rows of all models, one model's after the other's.

    Parameters
    ----------
    arrays : addresses of these, contiguous and all of one precision but the first table
        z : (M, B, P)
        cells : (M or 1, B, D, 4)
        weights : (M or 1, B, D); not read with the flag TERMS
        dz : (M, B, P), written with the flag GRADIENT
        terms : (M, B, D), written with the flag TERMS
        whole : (D, 4), 64-bit whole numbers: where a column's outputs begin, C, K, its measure
        real : (D, 4), ends of a column's range, their distance, log q
    sizes : D, P, rows of a block, B, models of cells, models of weights
    room, rows : numbers and whole numbers that a thread needs room for
    values : (blocks,), sums of weights times log densities, written
    want : GRADIENT, TERMS
    """
    D, P, most, B, cell_models, weight_models = sizes
    z, cells, weights, dz, terms, whole, real = pointers(arrays, room)
    whole = whole_numbers(whole)
    work, picked = pointer_to(room), pointer_to(rows)
    blocks = (B + most - 1) // most
    for block in range(low, high):
        m, first = block // blocks, block % blocks * most
        here = (
            beyond(z, m * B * P),
            beyond(cells, m % cell_models * B * D * N_FEATURES),
            beyond(weights, m % weight_models * B * D),
            beyond(dz, m * B * P),
            beyond(terms, m * B * D),
        )
        total = 0.0
        for d in range(D):
            tables = (beyond(whole, d * _N_WHOLE), beyond(real, d * _N_REAL))
            last = min(first + most, B)
            total += _column(*here, *tables, (D, P, most), d, first, last, picked, work, want)
        values[block] = total
