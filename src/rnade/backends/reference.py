"""The paper's two algorithms as float64 NumPy loops: the oracle that everything else is held to.

One model, no tricks, never made faster. The printed algorithms have slips (the sign and the
exponential of phi, the use of a_{D+1} for psi_D, the order of the update of dW); here they are
mended, as finite differences show. All arrays are NumPy float64 without a model axis.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from rnade.backends.parameters import Activation
from rnade.families.base import AbstractFamily
from rnade.typing import Array


class ReferenceParameters(NamedTuple):
    """One model: W (D, H), c (H,), rho (D,), V (D, H, P), b (D, P), log_floor (D,) or None.

    With residual layers also U (L, H, H) and u (L, D, H).
    """

    W: Array
    c: Array
    rho: Array
    V: Array
    b: Array
    log_floor: Array | None = None
    U: Array | None = None
    u: Array | None = None


class Gradients(NamedTuple):
    """Gradient of the summed log density with respect to each parameter, and to x (B, D)."""

    W: Array
    c: Array
    rho: Array
    V: Array
    b: Array
    x: Array
    U: Array | None = None
    u: Array | None = None


def log_conditionals(
    x: Array,
    parameters: ReferenceParameters,
    family: AbstractFamily,
    activation: Activation,
    order: Sequence[int] | None = None,
) -> Array:
    """Algorithm 1: the D terms log p(x_d | x_<d) of each row, of shape (B, D)."""
    W, c, rho, V, b, log_floor = parameters[:6]
    B, D = x.shape
    terms = np.empty((B, D))
    a = np.tile(c, (B, 1))
    for d in range(D) if order is None else order:
        psi = rho[d] * a
        if parameters.U is None:
            h = _activate(psi, activation)
        else:
            h = _stream(psi, d, parameters, activation)[-1]
        z = h @ V[d] + b[d]
        floor = None if log_floor is None else log_floor[d]
        terms[:, d] = family.reference_epilogue(x[:, d], z, floor).log_prob
        a = a + x[:, d, None] * W[d]
    return terms


def gradients(
    x: Array,
    parameters: ReferenceParameters,
    family: AbstractFamily,
    activation: Activation,
    order: Sequence[int] | None = None,
) -> Gradients:
    """Algorithm 2: gradient of the log density summed over rows."""
    W, c, rho, V, b, log_floor, U, u = parameters
    B, D = x.shape
    dU, du = (None if t is None else np.zeros_like(t) for t in (U, u))
    dW, drho, dV, db, dx = (np.zeros_like(t) for t in (W, rho, V, b, x))
    dimensions = list(range(D)) if order is None else list(order)
    a = np.tile(c, (B, 1))
    for d in dimensions:
        a = a + x[:, d, None] * W[d]
    da = np.zeros_like(a)
    for d in reversed(dimensions):
        # Here a is a_{d+1} and da its gradient: x_d entered it as x_d W_d.
        dW[d] = x[:, d] @ da
        dx[:, d] += da @ W[d]
        a = a - x[:, d, None] * W[d]  # now a_d
        psi = rho[d] * a
        stream = _stream(psi, d, parameters, activation)
        h = _activate(psi, activation) if U is None else stream[-1]
        floor = None if log_floor is None else log_floor[d]
        _, dz, dx_own = family.reference_epilogue(x[:, d], h @ V[d] + b[d], floor)
        dx[:, d] += dx_own
        dV[d], db[d] = h.T @ dz, dz.sum(0)
        dh = dz @ V[d].T
        if U is not None and u is not None and dU is not None and du is not None:
            dpsi = dh
            for layer in reversed(range(len(U))):
                s = stream[layer]
                r = _activate(s, activation)
                dU[layer] += r.T @ dpsi
                du[layer, d] = dpsi.sum(0)
                dpsi = dpsi + (dpsi @ U[layer].T) * _slope(s, r, activation)
        else:
            dpsi = dh * _slope(psi, h, activation)
        drho[d] = (dpsi * a).sum()
        da = da + dpsi * rho[d]
    return Gradients(dW, da.sum(0), drho, dV, db, dx, dU, du)


def _stream(
    psi: Array, d: int, parameters: ReferenceParameters, activation: Activation
) -> list[Array]:
    """The stream of dimension d before and after each residual layer."""
    stream = [psi]
    U, u = parameters.U, parameters.u
    if U is not None and u is not None:
        for U_l, u_l in zip(U, u, strict=True):
            stream.append(stream[-1] + _activate(stream[-1], activation) @ U_l + u_l[d])
    return stream


def _activate(psi: Array, activation: Activation) -> Array:
    if activation == "relu":
        return np.maximum(psi, 0)
    if activation == "sigmoid":
        return np.asarray(expit(psi))
    return psi


def _slope(psi: Array, h: Array, activation: Activation) -> Array:
    """Return dh / dpsi."""
    if activation == "relu":
        return (psi > 0).astype(float)
    if activation == "sigmoid":
        return h * (1 - h)
    return np.ones_like(psi)
