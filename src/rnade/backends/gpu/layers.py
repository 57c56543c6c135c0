"""Residual layers on a GPU: s <- s + U[l]' g(s) + u[l, d] for the rows of all dimensions at once.

The products of a layer are one large matrix product each, left to the vendor's library; what
stands between them is one pass (`residual`). The stream s is float32. With precision "bf16"
what goes into the products and comes out of them is bf16, gradients too; weights, biases and sums
over rows are float32 always. Nothing here waits for the device or looks at values.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rnade.backends.gpu import tiling
from rnade.backends.gpu.launch import product_dtype, run
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec


class Tape(NamedTuple):
    """What the backward pass of the layers needs, each of shape (M, D, B, H)."""

    a: Tensor
    inputs: list[Tensor]  # r = g(s) before each layer


class LayerGradients(NamedTuple):
    """What the backward pass gives: gradients of a, rho (partial sums), U and u."""

    a: Tensor  # (M, D, B, H)
    rho_parts: Tensor  # (M, D, parts)
    U: Tensor  # (M, L, H, H)
    u: Tensor  # (M, L, D, H)


def forward(
    a: Tensor, parameters: Parameters, spec: Spec, *, recorded: bool
) -> tuple[Tensor, Tape | None]:
    """The stream (M, D, B, H) after the last layer, from a; with what a gradient needs."""
    U, u = _layers(parameters)
    weights = U.to(product_dtype(spec))
    rho = parameters.rho.contiguous()
    s, r = _stream(a, spec, rho=rho, activated=True)
    tape = Tape(a, [])
    for layer in range(U.shape[1]):
        with _products_in(spec.precision):
            product = torch.bmm(r.flatten(1, 2), weights[:, layer]).view_as(r)
        if recorded:
            tape.inputs.append(r)
        s, r = _stream(
            s,
            spec,
            rho=rho if layer == 0 else None,
            product=product,
            u=u[:, layer],
            activated=layer < U.shape[1] - 1,
        )
    return s, tape if recorded else None


def backward(ds: Tensor, tape: Tape, parameters: Parameters, spec: Spec) -> LayerGradients:
    """Gradients from that of the stream after the last layer."""
    U, u = _layers(parameters)
    weights = U.to(product_dtype(spec))
    dU, du = torch.empty_like(U), torch.empty_like(u)
    ds, sums = _stream_gradient(ds, spec)
    for layer in reversed(range(U.shape[1])):
        du[:, layer] = sums.sum(2)
        r, flat = tape.inputs[layer], ds.flatten(1, 2)
        with _products_in(spec.precision):
            dU[:, layer] = torch.bmm(r.flatten(1, 2).mT, flat)
            dr = torch.bmm(flat, weights[:, layer].mT).view_as(r)
        first = (tape.a, parameters.rho.contiguous()) if layer == 0 else None
        ds, sums = _stream_gradient(ds, spec, through=(dr, r), first=first)
    return LayerGradients(ds, sums.flatten(2), dU, du)


def _layers(parameters: Parameters) -> tuple[Tensor, Tensor]:
    assert parameters.U is not None
    assert parameters.u is not None
    return parameters.U.contiguous(), parameters.u.contiguous()


def _stream(
    before: Tensor,
    spec: Spec,
    *,
    rho: Tensor | None,
    product: Tensor | None = None,
    u: Tensor | None = None,
    activated: bool,
) -> tuple[Tensor, Any]:
    """The stream after a layer, and g of it where wanted.

    With `rho`, `before` is a. Without a product there is no layer yet, and it is left as it is.
    """
    M, D, B, H = before.shape
    tiles = tiling.unit(H)
    # Never in place: the compiler may load a tile twice, in the layouts of both stores.
    s = None if product is None else torch.empty_like(before)
    r = torch.empty_like(before, dtype=product_dtype(spec)) if activated else None
    run(
        "residual.stream_kernel",
        (M * D, tiling.cdiv(B, tiles.rows), tiling.cdiv(H, tiles.hidden)),
        *(before, rho, product, u, s, r),
        *(B, D, H, 0 if u is None else u.stride(0)),
        **tiles.options,
        ACTIVATION=spec.activation,
    )
    return before if s is None else s, r


def _stream_gradient(
    ds: Tensor,
    spec: Spec,
    *,
    through: tuple[Tensor, Tensor] | None = None,
    first: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """The stream's gradient before a layer and its partial sums over rows.

    `through` are dr and r of the layer. With `first`, which are a and rho, it is the gradient of a
    in float32, and the sums are those of rho's.
    """
    M, D, B, H = ds.shape
    tiles = tiling.unit(H)
    n_tiles = tiling.cdiv(H, tiles.hidden)
    rows, parts = tiling.row_runs(B, tiles.rows, M * D * n_tiles)
    dtype = product_dtype(spec) if first is None else torch.float32
    out = torch.empty_like(ds, dtype=dtype)  # never in place, see `_stream`
    sums = ds.new_empty(M, D, parts, H if first is None else n_tiles, dtype=torch.float32)
    dr_and_r, a_and_rho = through or (None, None), first or (None, None)
    run(
        "residual.stream_gradient_kernel",
        (M * D, n_tiles, parts),
        *(ds, *dr_and_r, *a_and_rho, out, sums),
        *(B, D, H, rows),
        **tiles.options,
        ACTIVATION=spec.activation,
    )
    return out, sums


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
