"""What a family adds to the CPU kernels: densities, gradients and draws from the outputs z.

Each family has two C functions, compiled when first asked for; `KERNELS` lists them by its name.

An *epilogue* takes one dimension's z and x for R rows and gives log p, and where flags say so the
gradients with respect to z and x, times each row's weight.

    z : (R, P) row-major, `stride` numbers from row to row: P rounded up to a multiple of 16, but
        1 for P = 1
    x, weight : (R,)
    log_floor : one number, read only with the flag FLOOR
    log_p, dx : (R,), written; dx only with the flag GRADIENT
    dz : like z, written with the flag GRADIENT
    sums : (P, 16), added to with the flag GRADIENT: parts that sum to the gradient of b
    scratch : SCRATCH * stride numbers
    R, P, stride, flags : whole numbers; R is a multiple of 16.

A *draw* takes z and two random numbers for each row, uniform on [0, 1) and from the family's
standard component (`AbstractFamily.noise`), and writes one value of x for each row.

Sixteen rows at a time go side by side. Of their z a transposed copy is made, 64 P bytes in
float32, which stays in the first-level cache; everything else of one component is in registers.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# Numba, not Python, gives the arguments of compiled functions their types.

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rnade.backends.cpu.calls import address_of, inlined
from rnade.backends.cpu.lanes import (
    LANES,
    exp,
    like,
    load,
    log,
    root,
    splat,
    store,
    transpose,
    where_less,
)
from rnade.families.gaussian import LOG_SQRT_2PI
from rnade.families.laplace import LOG_2
from rnade.families.mixture import LOG_SCALE_BOUND, U_BOUND

GRADIENT, SCALE_MEAN, FLOOR = 1, 2, 4
_GAUSSIAN, _LAPLACE = 0, 1
SCRATCH = 2 * LANES  # numbers that an epilogue or a draw needs room for, for each column of z


@inlined
def _clamp(x, bound):
    """Bring x between -bound and bound; a NaN stays."""
    high, low = like(x, bound), like(x, -bound)
    return where_less(x, low, low, where_less(high, x, high, x))


@inlined
def _magnitude(x):
    return where_less(x, like(x, 0.0), like(x, 0.0) - x, x)


@inlined
def _log_1_plus(t):
    """log(1 + t) for t from 0 to 1, with a term for what 1 + t rounds away."""
    one = like(t, 1.0)
    w = one + t
    return log(w) + (t - (w - one)) / w


@inlined
def _columns(z, s, stride, scratch):
    """Copy rows s to s+15 of z so that the 16 values of one output lie side by side."""
    for k in range(0, stride, LANES):
        transpose(scratch, k * LANES, LANES, z, s * stride + k, stride)


@inlined
def _rows(scratch, dz, s, stride):
    """Write rows s to s+15 of dz from such columns."""
    for k in range(0, stride, LANES):
        transpose(dz, s * stride + k, stride, scratch, k * LANES, LANES)


@inlined
def _put(dz, at, scratch, sums):
    """Keep the gradients of one output for 16 rows, and add them to its sums."""
    store(scratch, at, dz)
    store(sums, at, load(sums, at) + dz)


@inlined
def _scale(z_sigma, log_floor, flags):
    """Give log sigma, 1 / sigma and d log sigma / d z_sigma."""
    bound = like(z_sigma, LOG_SCALE_BOUND)
    one, zero = like(z_sigma, 1.0), like(z_sigma, 0.0)
    bounded = _clamp(z_sigma, LOG_SCALE_BOUND)
    slope = where_less(bound, _magnitude(z_sigma), zero, one)
    if flags & FLOOR:
        # log sqrt(exp(2 z) + floor^2), with the larger of the two taken out of the root.
        floor = splat(log_floor[0])
        t = exp(like(floor, -2.0) * _magnitude(bounded - floor))
        larger = where_less(bounded, floor, floor, bounded)
        slope = slope * where_less(bounded, floor, t, one) / (one + t)
        log_sigma = larger + like(t, 0.5) * _log_1_plus(t)
        return log_sigma, exp(zero - larger) / root(one + t), slope
    return bounded, exp(zero - bounded), slope


@inlined
def _log_kernel(u, shape):
    """Log density of the standard component, less its constant."""
    if shape == _GAUSSIAN:
        return like(u, -0.5) * u * u
    return like(u, 0.0) - _magnitude(u)


@inlined
def _slope_of_kernel(u, shape):
    """Derivative of `_log_kernel`, 0 where u was clamped."""
    zero, bound = like(u, 0.0), like(u, U_BOUND)
    if shape == _GAUSSIAN:
        slope = zero - u
    else:
        slope = where_less(u, zero, like(u, 1.0), where_less(zero, u, like(u, -1.0), u))
    return where_less(_magnitude(u), bound, slope, zero * u)


def _mixture_epilogue(shape: int, constant: float) -> Callable[..., None]:
    """The epilogue of mixtures of one shape: `constant` is what `_log_kernel` leaves out."""

    def epilogue(z, x, weight, log_floor, log_p, dz, sums, dx, scratch, R, P, stride, flags):
        """The paper's appendix, with its slips mended."""
        K = P // 3
        # Scratch holds, 16 numbers for each component: z_alpha, then u in the place of mu,
        # 1 / sigma in that of z_sigma, then d log sigma / d z_sigma and the log of alpha times
        # density.
        n = K * LANES
        mu_at, sigma_at, slope_at, term_at = n, 2 * n, 3 * n, 4 * n
        for s in range(0, R, LANES):
            _columns(z, s, stride, scratch)
            x_s = load(x, s)
            largest_alpha = like(x_s, -math.inf)
            for k in range(0, n, LANES):
                z_alpha = load(scratch, k)
                largest_alpha = where_less(largest_alpha, z_alpha, z_alpha, largest_alpha)
            largest = like(x_s, -math.inf)
            for k in range(0, n, LANES):
                # Without its largest, which could be large enough to swallow the rest of a term.
                z_alpha = load(scratch, k) - largest_alpha
                log_sigma, precision, slope = _scale(load(scratch, sigma_at + k), log_floor, flags)
                u = _clamp((x_s - load(scratch, mu_at + k)) * precision, U_BOUND)
                term = z_alpha + _log_kernel(u, shape) - log_sigma
                largest = where_less(largest, term, term, largest)
                store(scratch, k, z_alpha)
                store(scratch, mu_at + k, u)
                store(scratch, sigma_at + k, precision)
                store(scratch, slope_at + k, slope)
                store(scratch, term_at + k, term)
            total, total_alpha = like(x_s, 0.0), like(x_s, 0.0)
            for k in range(0, n, LANES):
                term = exp(load(scratch, term_at + k) - largest)
                alpha = exp(load(scratch, k))
                total = total + term
                total_alpha = total_alpha + alpha
                store(scratch, term_at + k, term)
                store(scratch, k, alpha)
            store(log_p, s, largest + (log(total) - log(total_alpha)) - like(x_s, constant))
            if flags & GRADIENT:
                share, share_alpha = load(weight, s) / total, load(weight, s) / total_alpha
                dx_s = like(x_s, 0.0)
                for k in range(K):
                    at = k * LANES
                    u, precision = load(scratch, mu_at + at), load(scratch, sigma_at + at)
                    pi = load(scratch, term_at + at) * share  # responsibility, times the weight
                    d_log_kernel = _slope_of_kernel(u, shape)
                    dx_k = pi * d_log_kernel * precision
                    dx_s = dx_s + dx_k
                    d_mu = like(x_s, 0.0) - (pi * d_log_kernel if flags & SCALE_MEAN else dx_k)
                    d_log_sigma = (like(x_s, -1.0) - u * d_log_kernel) * pi
                    _put(pi - load(scratch, at) * share_alpha, at, scratch, sums)
                    _put(d_mu, mu_at + at, scratch, sums)
                    _put(d_log_sigma * load(scratch, slope_at + at), sigma_at + at, scratch, sums)
                _rows(scratch, dz, s, stride)
                store(dx, s, dx_s)

    return epilogue


def _bernoulli_epilogue(
    z, x, weight, log_floor, log_p, dz, sums, dx, scratch, R, P, stride, flags
):
    for s in range(0, R, LANES):
        z_s, x_s = load(z, s), load(x, s)
        zero, one = like(z_s, 0.0), like(z_s, 1.0)
        t = exp(zero - _magnitude(z_s))
        softplus = where_less(z_s, zero, zero, z_s) + _log_1_plus(t)
        store(log_p, s, x_s * z_s - softplus)
        if flags & GRADIENT:
            weight_s = load(weight, s)
            p = where_less(z_s, zero, t, one) / (one + t)
            _put((x_s - p) * weight_s, 0, scratch, sums)
            store(dz, s, load(scratch, 0))
            store(dx, s, z_s * weight_s)


def _mixture_draw(z, uniform, noise, log_floor, x, scratch, R, P, stride, flags):
    """A component by its share of the summed fractions, then a value from it."""
    K = P // 3
    mu_at, sigma_at = K * LANES, 2 * K * LANES
    for s in range(0, R, LANES):
        _columns(z, s, stride, scratch)
        largest = load(scratch, 0)
        for k in range(LANES, K * LANES, LANES):
            z_alpha = load(scratch, k)
            largest = where_less(largest, z_alpha, z_alpha, largest)
        total = like(largest, 0.0)
        for k in range(0, K * LANES, LANES):
            total = total + exp(load(scratch, k) - largest)
            store(scratch, k, total)  # sum of the fractions up to this one
        wanted = load(uniform, s) * total
        mu, z_sigma = load(scratch, mu_at), load(scratch, sigma_at)
        for k in range(LANES, K * LANES, LANES):
            before = load(scratch, k - LANES)
            mu = where_less(before, wanted, load(scratch, mu_at + k), mu)
            z_sigma = where_less(before, wanted, load(scratch, sigma_at + k), z_sigma)
        _, precision, _ = _scale(z_sigma, log_floor, flags)
        store(x, s, mu + load(noise, s) / precision)


def _bernoulli_draw(z, uniform, noise, log_floor, x, scratch, R, P, stride, flags):
    for s in range(0, R, LANES):
        z_s = load(z, s)
        zero, one = like(z_s, 0.0), like(z_s, 1.0)
        p = one / (one + exp(zero - z_s))
        store(x, s, where_less(load(uniform, s), p, one, zero))


class Kernels(NamedTuple):
    """The two C functions of a family."""

    epilogue: Callable[..., None]
    draw: Callable[..., None]


# The families that have kernels, by name.
KERNELS = {
    "gaussian": Kernels(_mixture_epilogue(_GAUSSIAN, LOG_SQRT_2PI), _mixture_draw),
    "laplace": Kernels(_mixture_epilogue(_LAPLACE, LOG_2), _mixture_draw),
    "bernoulli": Kernels(_bernoulli_epilogue, _bernoulli_draw),
}
# Those of the library that have none, and why.
WITHOUT: dict[str, str] = {}


def epilogue_address(family: str, dtype: np.dtype[Any]) -> int:
    """Address of a family's epilogue for one precision."""
    return address_of(KERNELS[family].epilogue, "pppppppppiiii", dtype)


def draw_address(family: str, dtype: np.dtype[Any]) -> int:
    """Address of a family's draw for one precision."""
    return address_of(KERNELS[family].draw, "ppppppiiii", dtype)
