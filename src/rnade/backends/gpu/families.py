"""What each family adds to the GPU kernels: z_d and x_d in, log p, its gradient or a draw out.

The same few lines as in `rnade.families`, for a block of BB rows held in registers. `z` comes as a
(BB, NP) tile whose first P columns count; the columns of a mixture's fractions, means and scales
are gathered from it into (BB, KP) tiles, where KP is the next power of two at or above K and
columns beyond K carry no mass. Guards are those of `rnade.families.mixture`, written with `where`
so that a NaN stays a NaN (a plain minimum or maximum would drop it).

A family is added here by its `FAMILY` name in `epilogue` and `draw`.
"""

# mypy: ignore-errors
# Triton, not Python, gives the arguments of kernels their types.

import math

import triton
import triton.language as tl

from rnade.families.gaussian import LOG_SQRT_2PI as _LOG_SQRT_2PI
from rnade.families.laplace import LOG_2 as _LOG_2
from rnade.families.mixture import LOG_SCALE_BOUND as _LOG_SCALE_BOUND
from rnade.families.mixture import U_BOUND as _U_BOUND

LOG_SQRT_2PI = tl.constexpr(_LOG_SQRT_2PI)
LOG_2 = tl.constexpr(_LOG_2)
LOG_SCALE_BOUND = tl.constexpr(_LOG_SCALE_BOUND)
U_BOUND = tl.constexpr(_U_BOUND)
INFINITY = tl.constexpr(math.inf)


@triton.jit
def epilogue(
    x,
    z,
    log_floor,
    dz_ptr,
    row_ok,
    FAMILY: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    BB: tl.constexpr,
    SCALE_MEAN: tl.constexpr,
):
    """Give log p and, with dz_ptr, store d log p / dz and give d log p / dx.

    x: (BB,) values. z: (BB, NP) outputs of the network. log_floor: scalar, or None for no floor.
    dz_ptr: (BB,) pointers to where each row's P derivatives go, or None for no derivatives.
    row_ok: (BB,) rows that exist.
    """
    if FAMILY == "bernoulli":
        dx = _first_column(z)  # the outputs enter log p as x z
        log_p, dz = bernoulli(x, dx)
        if dz_ptr is not None:
            tl.store(dz_ptr, dz, mask=row_ok)
    else:
        gradient: tl.constexpr = dz_ptr is not None
        z_alpha, mu, z_sigma = _columns(z, K, KP, BB)
        log_p, dx, d_alpha, d_mu, d_sigma = mixture(
            x, z_alpha, mu, z_sigma, log_floor, FAMILY, gradient, SCALE_MEAN
        )
        if gradient:
            k = tl.arange(0, KP)
            at = dz_ptr[:, None] + k[None, :]
            ok = row_ok[:, None] & (k < K)[None, :]
            tl.store(at, d_alpha, mask=ok)
            tl.store(at + K, d_mu, mask=ok)
            tl.store(at + 2 * K, d_sigma, mask=ok)
    return log_p, dx


@triton.jit
def draw(
    z,
    log_floor,
    uniform,
    noise,
    FAMILY: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    BB: tl.constexpr,
):
    """Give one value for each row.

    uniform: (BB,) in [0, 1), chooses the component. noise: (BB,) draws of the standard component.
    """
    if FAMILY == "bernoulli":
        return (uniform < tl.sigmoid(_first_column(z))).to(tl.float32)
    z_alpha, mu, z_sigma = _columns(z, K, KP, BB)
    log_sigma = _log_sigma(z_sigma, log_floor)
    p = tl.exp(z_alpha - tl.max(z_alpha, 1)[:, None])
    cumulative = tl.cumsum(p, 1)
    target = uniform * tl.max(cumulative, 1)
    chosen = tl.sum((cumulative < target[:, None]).to(tl.int32), 1)
    chosen = tl.minimum(chosen, K - 1)
    here = tl.arange(0, KP)[None, :] == chosen[:, None]
    mu = tl.sum(tl.where(here, mu, 0.0), 1)
    log_sigma = tl.sum(tl.where(here, log_sigma, 0.0), 1)
    return mu + tl.exp(log_sigma) * noise


@triton.jit
def mixture(
    x,
    z_alpha,
    mu,
    z_sigma,
    log_floor,
    FAMILY: tl.constexpr,
    GRADIENT: tl.constexpr,
    SCALE_MEAN: tl.constexpr,
):
    """Give log p and, with GRADIENT, its derivatives to x and to the three tiles of outputs.

    x: (BB,) values. z_alpha, mu, z_sigma: (BB, KP); z_alpha is -inf where there is no component,
    and the derivatives there are 0.
    """
    log_sigma = _log_sigma(z_sigma, log_floor)
    inverse_sigma = tl.exp(-log_sigma)
    u_free = (x[:, None] - mu) * inverse_sigma
    u = tl.where(u_free > U_BOUND, U_BOUND, tl.where(u_free < -U_BOUND, -U_BOUND, u_free))
    gaussian: tl.constexpr = FAMILY == "gaussian"
    log_kernel = -0.5 * u * u - LOG_SQRT_2PI if gaussian else -tl.abs(u) - LOG_2
    # Without its largest, which could be large enough to swallow the rest of a sum. Fractions are
    # normalised at the end, so that the two sums need not wait for each other.
    z_alpha = z_alpha - tl.max(z_alpha, 1)[:, None]
    log_total = tl.log(tl.sum(tl.exp(z_alpha), 1))
    joint = z_alpha + log_kernel - log_sigma  # -inf where there is no component
    top = tl.max(joint, 1)
    log_joint = top + tl.log(tl.sum(tl.exp(joint - top[:, None]), 1))
    log_p = log_joint - log_total
    dx, d_alpha, d_mu, d_sigma = log_p, z_alpha, mu, z_sigma
    if GRADIENT:
        pi = tl.exp(joint - log_joint[:, None])  # responsibilities
        d_kernel = -u if gaussian else tl.where(u > 0, -1.0, tl.where(u < 0, 1.0, 0.0))
        d_kernel = tl.where(u == u_free, d_kernel, 0.0)  # no slope beyond the bound
        d_location = -pi * d_kernel
        d_mu = d_location * inverse_sigma
        dx = -tl.sum(d_mu, 1)
        if SCALE_MEAN:
            d_mu = d_location
        slope = tl.where(tl.abs(z_sigma) > LOG_SCALE_BOUND, 0.0, 1.0)
        if log_floor is not None:
            slope = slope * tl.exp(2 * (_bounded(z_sigma) - log_sigma))
        d_sigma = -pi * (u * d_kernel + 1) * slope
        d_alpha = pi - tl.exp(z_alpha - log_total[:, None])
    return log_p, dx, d_alpha, d_mu, d_sigma


@triton.jit
def bernoulli(x, z):
    """Give log p and its derivative to z; x and z are (BB,)."""
    softplus = tl.where(z > 0, z, 0.0) + tl.log(1 + tl.exp(-tl.abs(z)))
    return x * z - softplus, x - tl.sigmoid(z)


@triton.jit
def _columns(z, K: tl.constexpr, KP: tl.constexpr, BB: tl.constexpr):
    """Fractions, means and scales, each (BB, KP); fractions beyond K are -inf."""
    k = tl.arange(0, KP)
    at = tl.broadcast_to(tl.minimum(k, K - 1)[None, :], (BB, KP))
    z_alpha = tl.where((k < K)[None, :], tl.gather(z, at, 1), -INFINITY)
    return z_alpha, tl.gather(z, at + K, 1), tl.gather(z, at + 2 * K, 1)


@triton.jit
def _first_column(z):
    return tl.sum(tl.where(tl.arange(0, z.shape[1])[None, :] == 0, z, 0.0), 1)


@triton.jit
def _bounded(z_sigma):
    return tl.where(
        z_sigma > LOG_SCALE_BOUND,
        LOG_SCALE_BOUND,
        tl.where(z_sigma < -LOG_SCALE_BOUND, -LOG_SCALE_BOUND, z_sigma),
    )


@triton.jit
def _log_sigma(z_sigma, log_floor):
    """Log scale, bounded; with a floor the logarithm of sqrt(exp(2 z) + floor^2)."""
    log_sigma = _bounded(z_sigma)
    if log_floor is not None:
        # log_floor is -inf where a dimension has none: then the difference is inf, its exp 0.
        apart = tl.abs(log_sigma - log_floor)
        higher = tl.where(log_sigma > log_floor, log_sigma, log_floor)
        # A NaN must win the comparison above.
        higher = tl.where(log_sigma == log_sigma, higher, log_sigma)
        log_sigma = higher + 0.5 * tl.log(1 + tl.exp(-2 * apart))
    return log_sigma
