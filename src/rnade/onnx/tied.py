"""Densities of complete real or binary columns as ONNX graphs.

The same formulas as `rnade.backends.vectorised` and `rnade.families`, one dimension after the
other, so that nothing of size B x D x H is stored. Tests hold them to the torch modules.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from rnade.families import AbstractFamily, Bernoulli, GaussianMixture, LaplaceMixture
from rnade.families.mixture import LOG_SCALE_BOUND, U_BOUND
from rnade.nn import (
    AbstractAutoregressive,
    AbstractDensity,
    AbstractGaussianMixture,
    DecorrelatedModule,
    EnsembleModule,
)
from rnade.onnx.graph import Graph, Value
from rnade.typing import Array


def log_density(g: Graph, x: Value, module: AbstractDensity) -> Value:
    """Log density of each row, (B,), of what a module takes, (B, D)."""
    if isinstance(module, EnsembleModule):
        parts = [_of_bank(g, x, part) for part in module._banks()]
        joint = g.concat(parts) + _numbers(module.log_weights[0])[:, None]
        return joint.logsumexp(0)
    return _of_bank(g, x, module).take(0)


def _of_bank(g: Graph, x: Value, module: AbstractDensity) -> Value:
    """Log densities by each of M models, (M, B)."""
    own = type(module)._log_prob
    if isinstance(module, AbstractAutoregressive) and own is AbstractAutoregressive._log_prob:
        order = module.order.cpu().numpy()
        shape = np.array([-1, *order.shape], np.int64)
        ordered = g("Reshape", x.take(order.ravel(), 1), shape).transpose(1, 0, 2)
        return _of_tied(g, ordered, module)
    if isinstance(module, DecorrelatedModule):
        # Rows without their linear part, in the orders of the inner models.
        A, m = _numbers(module.A), _numbers(module.m)
        along = np.take_along_axis(A, module.order.cpu().numpy()[:, :, None], 1)
        inner = _of_tied(g, (x.unsqueeze(0) - m[:, None]) @ along.swapaxes(1, 2), module.inner)
        found: Value = inner + np.log(np.diagonal(A, axis1=1, axis2=2)).sum(1)[:, None]
        return found
    if isinstance(module, AbstractGaussianMixture):
        return _of_mixture(g, x, module)
    raise TypeError(
        f"{type(module).__name__} has no ONNX form: tied networks and averages of them (RNADE,"
        " NADE, FVSBN), mixtures of Gaussians and tables of any kind do."
    )


def _numbers(t: Tensor) -> Array:
    return np.asarray(t.detach().double().cpu().numpy())


def _of_tied(g: Graph, ordered: Value, module: AbstractAutoregressive) -> Value:
    """Log densities by tied networks, (M, B), of rows in the networks' orders, (M, B, D)."""
    arrays: list[Any] = [None if t is None else _numbers(t) for t in module.tied_parameters()]
    W, c, rho, V, b, floor, U, u = arrays
    order = module.order.cpu().numpy()
    members = np.arange(len(order))
    # The activations begin as c in every row.
    a = ordered.part(0, 1) * 0.0 + c[:, None]  # (M, B, H)
    total: Value = (a * 0.0).sum()
    for position, at in enumerate(order.T):
        own: Any = (members, at)
        x_d = ordered.part(position, position + 1)  # (M, B, 1)
        psi = a * rho[own][:, None, None]
        h = _hidden(g, psi, module.activation, U, None if u is None else u[members, :, at])
        z = h @ V[own] + b[own][:, None]
        log_floor = None if floor is None else floor[own][:, None, None]
        total = total + _family(module.family)(g, x_d, z, log_floor)
        a = a + x_d * W[own][:, None]
    return total


def _hidden(g: Graph, psi: Value, activation: str, U: Any, u: Any) -> Value:
    def units(value: Value) -> Value:
        names = {"relu": "Relu", "sigmoid": "Sigmoid"}
        return g(names[activation], value) if activation in names else value

    if U is None:
        return units(psi)
    s = psi
    for layer in range(U.shape[1]):
        s = s + units(s) @ U[:, layer] + u[:, layer, None]
    return s


def _family(family: AbstractFamily) -> Callable[[Graph, Value, Value, Any], Value]:
    """The function that gives log densities, (M, B), from values, outputs and a floor."""
    if isinstance(family, Bernoulli):
        return lambda g, x, z, _: (x * z - g("Softplus", z)).sum()
    kernels: Sequence[tuple[type, Callable[[Value], Value]]] = (
        (GaussianMixture, lambda u: u * u * -0.5 - 0.5 * math.log(2 * math.pi)),
        (LaplaceMixture, lambda u: -u.abs() - math.log(2)),
    )
    for kind, kernel in kernels:
        if isinstance(family, kind):
            return _mixture(family.n_components, kernel)
    raise TypeError(f"The family {family.name!r} has no ONNX form.")


def _mixture(
    K: int, kernel: Callable[[Value], Value]
) -> Callable[[Graph, Value, Value, Any], Value]:
    def log_prob(g: Graph, x: Value, z: Value, log_floor: Any) -> Value:
        log_alpha = g("LogSoftmax", z.part(0, K), axis=-1)
        log_sigma = z.part(2 * K, 3 * K).clip(-LOG_SCALE_BOUND, LOG_SCALE_BOUND)
        if log_floor is not None:
            log_sigma = g.logaddexp(log_sigma * 2.0, g.constant(2 * log_floor)) * 0.5
        u = ((x - z.part(K, 2 * K)) * (-log_sigma).exp()).clip(-U_BOUND, U_BOUND)
        return (log_alpha + kernel(u) - log_sigma).logsumexp()

    return log_prob


def _of_mixture(g: Graph, x: Value, module: AbstractGaussianMixture) -> Value:
    """Log densities by mixtures of Gaussians, (M, B)."""
    log_alpha, mu = _numbers(module.log_alpha), _numbers(module.mu)  # (M, K), (M, K, D)
    L = _numbers(module.covariance_factor())
    inverse = np.linalg.inv(L)
    log_scale = np.log(np.diagonal(L, axis1=2, axis2=3)).sum(-1)
    constant = log_alpha - log_scale - mu.shape[-1] * math.log(2 * math.pi) / 2
    y: Value = (x.unsqueeze(0).unsqueeze(0) - mu[:, :, None]) @ inverse.swapaxes(2, 3)
    joint: Value = (y * y).sum() * -0.5 + constant[..., None]  # (M, K, B)
    return joint.logsumexp(1)
