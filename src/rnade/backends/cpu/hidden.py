"""What an activation adds to the CPU kernels: the two passes over the hidden units.

`advance` carries a one dimension on and makes h. `retreat` takes the gradient dh that reached h,
adds it to the gradient of a, and carries a and h one dimension back: it reads dh, a and da and
writes a, da and h, once each, so that the passes stay small beside the three matrix products.

Every matrix is row-major, (R, H), with R a multiple of 4 and H one of 16. Padding is all zeros (x
and dh in rows of padding, w and dh in columns of padding) and so changes nothing.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
# Numba, not Python, gives the arguments of compiled functions their types.

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from rnade.backends.cpu.calls import address_of, inlined
from rnade.backends.cpu.lanes import LANES, exp, like, load, splat, store, where_less
from rnade.backends.spec import Activation

_RELU, _SIGMOID, _IDENTITY = 0, 1, 2
CODES: dict[Activation, int] = {"relu": _RELU, "sigmoid": _SIGMOID, "identity": _IDENTITY}
ROWS = 4  # rows taken together, so that w is loaded once for all of them


@inlined
def _unit(psi, activation):
    """Hidden units h of psi."""
    if activation == _RELU:
        zero = like(psi, 0.0)
        return where_less(psi, zero, zero, psi)  # a NaN is not less than zero: it stays
    if activation == _SIGMOID:
        one = like(psi, 1.0)
        return one / (one + exp(like(psi, 0.0) - psi))
    return psi


@inlined
def _through(dh, psi, h, activation):
    """Gradient of psi from that of h."""
    if activation == _RELU:
        zero = like(psi, 0.0)
        return where_less(zero, psi, dh, zero * psi)  # a NaN in psi stays one
    if activation == _SIGMOID:
        return dh * h * (like(h, 1.0) - h)
    return dh


@cache
def _advance(activation: int) -> Callable[..., None]:
    """Step on for one activation; the others are not compiled with it."""

    def advance(x, w, rho, a, h, R, H):
        """Carry a one dimension on, a += x w, and make h = g(rho a).

        Parameters
        ----------
        x : (R,)
        w : (H,)
        rho : one number
        a, h : (R, H), changed
        """
        r = splat(rho[0])
        for i in range(0, R, ROWS):
            x0, x1, x2, x3 = splat(x[i]), splat(x[i + 1]), splat(x[i + 2]), splat(x[i + 3])
            i0, i1, i2, i3 = i * H, (i + 1) * H, (i + 2) * H, (i + 3) * H
            for j in range(0, H, LANES):
                # All is read before anything is written: what a write might change must wait.
                w_j = load(w, j)
                a0, a1, a2, a3 = load(a, i0 + j), load(a, i1 + j), load(a, i2 + j), load(a, i3 + j)
                a0, a1, a2, a3 = a0 + x0 * w_j, a1 + x1 * w_j, a2 + x2 * w_j, a3 + x3 * w_j
                store(a, i0 + j, a0)
                store(a, i1 + j, a1)
                store(a, i2 + j, a2)
                store(a, i3 + j, a3)
                store(h, i0 + j, _unit(r * a0, activation))
                store(h, i1 + j, _unit(r * a1, activation))
                store(h, i2 + j, _unit(r * a2, activation))
                store(h, i3 + j, _unit(r * a3, activation))

    return advance


@inlined
def _retreat_at(at, x, w, rho, rho_before, dh, a, da, h, activation):
    """One step back for 16 units; returns what they add to the gradients of rho and of w."""
    a_at = load(a, at)
    dpsi = _through(load(dh, at), rho * a_at, load(h, at), activation)
    da_at = load(da, at) + rho * dpsi
    store(da, at, da_at)
    a_before = a_at - x * w
    store(a, at, a_before)
    store(h, at, _unit(rho_before * a_before, activation))
    return dpsi * a_at, x * da_at


@cache
def _retreat(activation: int) -> Callable[..., None]:
    """Step back for one activation."""

    def retreat(x, w, rho, rho_before, dh, a, da, h, dw, drho, R, H):
        """Gradient through one dimension's hidden units, then back to the dimension before.

        Parameters
        ----------
        x : (R,)
            Values of the dimension before.
        w : (H,)
            Its weights.
        rho, rho_before : one number each
        dh : (R, H)
            Gradient of h.
        a, da, h : (R, H), changed
            On entry a and h are this dimension's, and da the gradient of the a that comes after.
        dw : (H,), added to
            Gradient of w.
        drho : (16,), added to
            Parts that sum to the gradient of rho.
        """
        r, s = splat(rho[0]), splat(rho_before[0])
        total = load(drho, 0)
        for i in range(0, R, ROWS):
            x0, x1, x2, x3 = splat(x[i]), splat(x[i + 1]), splat(x[i + 2]), splat(x[i + 3])
            rows = like(r, 0.0)  # summed by rows first, which keeps rounding errors small
            for j in range(0, H, LANES):
                w_j, at = load(w, j), i * H + j
                t0, d0 = _retreat_at(at, x0, w_j, r, s, dh, a, da, h, activation)
                t1, d1 = _retreat_at(at + H, x1, w_j, r, s, dh, a, da, h, activation)
                t2, d2 = _retreat_at(at + 2 * H, x2, w_j, r, s, dh, a, da, h, activation)
                t3, d3 = _retreat_at(at + 3 * H, x3, w_j, r, s, dh, a, da, h, activation)
                rows = rows + ((t0 + t1) + (t2 + t3))
                store(dw, j, load(dw, j) + ((d0 + d1) + (d2 + d3)))
            total = total + rows
        store(drho, 0, total)

    return retreat


def advance_address(activation: Activation, dtype: np.dtype[Any]) -> int:
    """Address of the step on for one activation and precision."""
    return address_of(_advance(CODES[activation]), "pppppii", dtype)


def retreat_address(activation: Activation, dtype: np.dtype[Any]) -> int:
    """Address of the step back for one activation and precision."""
    return address_of(_retreat(CODES[activation]), "ppppppppppii", dtype)
