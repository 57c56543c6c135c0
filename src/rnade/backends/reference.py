"""The paper's two algorithms as float64 NumPy loops: the oracle that everything else is held to.

Model after model, no tricks, never made faster. The printed algorithms have slips (the sign and
the exponential of phi, the use of a_{D+1} for psi_D, the order of the update of dW); here they are
mended, as finite differences show. A cell that is not seen adds nothing to a and counts nothing.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from torch import Tensor

from rnade.backends.parameters import Parameters
from rnade.backends.spec import Activation, Spec
from rnade.batch import Batch
from rnade.typing import Array


class Gradients(NamedTuple):
    """Gradients with respect to each parameter, and to x; each has the leading axis M."""

    W: Array
    c: Array
    rho: Array
    V: Array
    b: Array
    x: Array
    U: Array | None = None
    u: Array | None = None


class _Rows(NamedTuple):
    """The rows of one model."""

    x: Array  # (B, D), 0 where a cell is not seen
    seen: Array  # (B, D), 1 or 0
    weights: Array  # (B,)
    order: list[int]


def log_conditionals(batch: Batch, parameters: Parameters, spec: Spec) -> Array:
    """Algorithm 1: the D terms log p(x_d | x_<d) of each row, of shape (M, B, D)."""
    return np.stack([_terms(*one, spec) for one in _models(batch, parameters)])


def gradients(batch: Batch, parameters: Parameters, spec: Spec) -> Gradients:
    """Algorithm 2: gradient of the sum over rows of weight times log density."""
    found = [_gradients(*one, spec) for one in _models(batch, parameters)]
    stacked: Any = (None if g[0] is None else np.stack(g) for g in zip(*found, strict=True))
    return Gradients(*stacked)


def _models(batch: Batch, parameters: Parameters) -> Iterator[tuple[_Rows, Any]]:
    """Rows and parameters of one model after the other, as arrays."""

    def array(t: Tensor) -> Array:
        return np.array(t.detach().cpu().double().numpy())

    M, B, D = batch.x.shape
    for m in range(M):
        seen = np.ones((B, D)) if batch.seen is None else array(batch.seen[m])
        x = np.where(seen == 1, array(batch.x[m]), 0.0)
        weights = np.ones(B) if batch.weights is None else array(batch.weights[m])
        order = list(range(D)) if batch.order is None else batch.order[m].tolist()
        yield (
            _Rows(x, seen, weights, order),
            Parameters(*(None if t is None else array(t[m]) for t in parameters)),  # type: ignore[arg-type]
        )


def _terms(rows: _Rows, p: Any, spec: Spec) -> Array:
    x, seen, _, order = rows
    terms = np.empty_like(x)
    a = np.tile(p.c, (len(x), 1))
    for d in order:
        psi = p.rho[d] * a
        h = _stream(psi, d, p, spec.activation)[-1]
        floor = None if p.log_floor is None else p.log_floor[d]
        log_p = spec.family.reference_epilogue(x[:, d], h @ p.V[d] + p.b[d], floor).log_prob
        terms[:, d] = seen[:, d] * log_p
        a = a + x[:, d, None] * p.W[d]
    return terms


def _gradients(rows: _Rows, p: Any, spec: Spec) -> Gradients:
    x, seen, weights, order = rows
    dU, du = (None if t is None else np.zeros_like(t) for t in (p.U, p.u))
    dW, drho, dV, db, dx = (np.zeros_like(t) for t in (p.W, p.rho, p.V, p.b, x))
    a = np.tile(p.c, (len(x), 1))
    for d in order:
        a = a + x[:, d, None] * p.W[d]
    da = np.zeros_like(a)
    for d in reversed(order):
        # Here a is a_{d+1} and da its gradient: x_d entered it as x_d W_d.
        dW[d] = x[:, d] @ da
        dx[:, d] += seen[:, d] * (da @ p.W[d])
        a = a - x[:, d, None] * p.W[d]  # now a_d
        psi = p.rho[d] * a
        stream = _stream(psi, d, p, spec.activation)
        h = stream[-1]
        floor = None if p.log_floor is None else p.log_floor[d]
        _, dz, dx_own = spec.family.reference_epilogue(x[:, d], h @ p.V[d] + p.b[d], floor)
        counts = weights * seen[:, d]
        dz = counts[:, None] * dz
        dx[:, d] += counts * dx_own
        dV[d], db[d] = h.T @ dz, dz.sum(0)
        dpsi = dz @ p.V[d].T
        if dU is None or du is None:
            dpsi = dpsi * _slope(psi, h, spec.activation)
        else:
            for layer in reversed(range(len(p.U))):
                s = stream[layer]
                r = _activate(s, spec.activation)
                dU[layer] += r.T @ dpsi
                du[layer, d] = dpsi.sum(0)
                dpsi = dpsi + (dpsi @ p.U[layer].T) * _slope(s, r, spec.activation)
        drho[d] = (dpsi * a).sum()
        da = da + dpsi * p.rho[d]
    return Gradients(dW, da.sum(0), drho, dV, db, dx, dU, du)


def _stream(psi: Array, d: int, p: Any, activation: Activation) -> list[Array]:
    """The stream of dimension d before and after each residual layer; without them, g(psi)."""
    if p.U is None:
        return [_activate(psi, activation)]
    stream = [psi]
    for U_l, u_l in zip(p.U, p.u, strict=True):
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
