"""Residual layers on a GPU: h <- h + g(U[l]' h + u[l, d]) for the rows of all dimensions at once.

The products of a layer are one large matrix product each, left to the vendor's library; what
stands between them is one pass (`_gpu_residual`). With precision "bf16" hidden units and their
gradients are kept in bf16 between the layers, and the last ones in float32; weights, biases and
sums over rows are float32 always. Nothing here waits for the device or looks at values.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rnade.backends import _gpu_tiling as tiling
from rnade.backends._gpu_launch import Request, current
from rnade.backends.parameters import Activation, Parameters


class Tape(NamedTuple):
    """What the backward pass of the layers needs, each of shape (M, D, B, H)."""

    a: Tensor  # before the first activation, without rho
    states: list[Tensor]  # the input of each layer
    products: list[Tensor]  # U[l]' h of each layer, without its bias


class LayerGradients(NamedTuple):
    """What the backward pass gives: gradients of a, rho (partial sums), U and u."""

    a: Tensor  # (M, D, B, H)
    rho_parts: Tensor  # (M, D, parts)
    U: Tensor  # (M, L, H, H)
    u: Tensor  # (M, L, D, H)


def forward(
    a: Tensor, parameters: Parameters, request: Request, *, recorded: bool
) -> tuple[Tensor, Tape | None]:
    """Hidden units (M, D, B, H) after the last layer, from a; with what a gradient needs."""
    U, u = _layers(parameters)
    stored = request.product_dtype
    weights = U.detach().to(stored)
    h = _unit(a, request.activation, stored, rho=parameters.rho)
    tape = Tape(a, [], [])
    for layer in range(U.shape[1]):
        with _products_in(request.precision):
            product = torch.bmm(h.flatten(1, 2), weights[:, layer]).view_as(h)
        if recorded:
            tape.states.append(h)
            tape.products.append(product)
        last = layer == U.shape[1] - 1
        dtype = torch.float32 if last else stored
        h = _unit(product, request.activation, dtype, u=u[:, layer], before=h)
    return h, tape if recorded else None


def backward(dh: Tensor, tape: Tape, parameters: Parameters, request: Request) -> LayerGradients:
    """Gradients from that of the last hidden units, which may be written over."""
    U, u = _layers(parameters)
    stored = request.product_dtype
    weights = U.detach().to(stored)
    dU, du = torch.empty_like(U), torch.empty_like(u)
    for layer in reversed(range(U.shape[1])):
        dproduct, sums, dh = _unit_gradient(
            dh, tape.products[layer], request.activation, stored, u=u[:, layer]
        )
        du[:, layer] = sums.sum(2)
        flat = dproduct.flatten(1, 2)
        with _products_in(request.precision):
            dU[:, layer] = torch.bmm(tape.states[layer].flatten(1, 2).mT, flat)
            dh.flatten(1, 2).baddbmm_(flat, weights[:, layer].mT)
    da, sums, _ = _unit_gradient(dh, tape.a, request.activation, torch.float32, rho=parameters.rho)
    return LayerGradients(da, sums.flatten(2), dU, du)


def _layers(parameters: Parameters) -> tuple[Tensor, Tensor]:
    assert parameters.U is not None
    assert parameters.u is not None
    return parameters.U.contiguous(), parameters.u.contiguous()


def _unit(
    t: Tensor,
    activation: Activation,
    dtype: torch.dtype,
    *,
    rho: Tensor | None = None,
    u: Tensor | None = None,
    before: Tensor | None = None,
) -> Tensor:
    """Give g(rho t), or before + g(t + u)."""
    M, D, B, H = t.shape
    tiles = tiling.unit(B, H)
    y = torch.empty_like(t, dtype=dtype)
    with current(t.device):
        _kernels().unit_kernel[(M * D, tiling.cdiv(B, tiles.rows), tiling.cdiv(H, tiles.hidden))](
            t,
            t if rho is None else rho.contiguous(),
            t if u is None else u,
            t if before is None else before,
            y,
            B,
            D,
            H,
            0 if u is None else u.stride(0),
            BB=tiles.rows,
            HT=tiles.hidden,
            ACTIVATION=activation,
            RESIDUAL=before is not None,
            num_warps=tiles.warps,
        )
    return y


def _unit_gradient(
    dy: Tensor,
    t: Tensor,
    activation: Activation,
    dtype: torch.dtype,
    *,
    rho: Tensor | None = None,
    u: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient of t, partial sums of that of rho or u, and dy in the type of t's gradient."""
    M, D, B, H = t.shape
    tiles = tiling.unit(B, H)
    n_tiles = tiling.cdiv(H, tiles.hidden)
    run, parts = tiling.row_runs(B, tiles.rows, M * D * n_tiles)
    dt = torch.empty_like(t, dtype=dtype)
    copied = u is not None and dy.dtype != dtype
    copy = torch.empty_like(dt) if copied else dy
    sums = t.new_empty(M, D, parts, n_tiles if u is None else H, dtype=torch.float32)
    with current(t.device):
        _kernels().unit_gradient_kernel[(M * D, n_tiles, parts)](
            dy,
            t,
            t if rho is None else rho.contiguous(),
            t if u is None else u,
            dt,
            copy,
            sums,
            B,
            D,
            H,
            0 if u is None else u.stride(0),
            run,
            BB=tiles.rows,
            HT=tiles.hidden,
            ACTIVATION=activation,
            RESIDUAL=u is not None,
            COPIED=copied,
            num_warps=tiles.warps,
        )
    return dt, sums, copy


@contextmanager
def _products_in(precision: str) -> Iterator[None]:
    """Within it, torch's float32 products on a GPU are what was asked for, whatever is set."""
    settings: Any = torch.backends.cuda.matmul
    # The older name is the only one before torch 2.9, and must not be mixed with the newer.
    newer = hasattr(settings, "fp32_precision")
    name = "fp32_precision" if newer else "allow_tf32"
    coarse = precision == "tf32"
    before = getattr(settings, name)
    setattr(settings, name, ("tf32" if coarse else "ieee") if newer else coarse)
    try:
        yield
    finally:
        setattr(settings, name, before)


@functools.cache
def _kernels() -> Any:
    from rnade.backends import _gpu_residual

    return _gpu_residual
