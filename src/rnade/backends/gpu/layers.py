"""Residual layers on a GPU: s <- s + U[l]' g(s) + u[l, d] for the rows of all dimensions at once.

A layer is one kernel each way (`residual`); the gradient of U[l] is one large matrix product, left
to the vendor's library. With precision "bf16" what goes into the products is bf16, gradients too,
and the stream s is float16, whose 11 bits are those of the TF32 product that reads it in the end;
numbers beyond its range are kept at its largest. Weights, biases and sums over rows are float32
always. Nothing here waits for the device or looks at values.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rnade.backends.gpu import tiling
from rnade.backends.gpu.launch import flags_of, product_dtype, run
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec


class Tape(NamedTuple):
    """What the backward pass of the layers needs, each of shape (M, D, B, H)."""

    a: Tensor
    inputs: list[Tensor]  # r = g(s) before each layer


class LayerGradients(NamedTuple):
    """What the backward pass gives: gradients of a, rho, U and u."""

    a: Tensor  # (M, D, B, H)
    rho: Tensor  # (M, D)
    U: Tensor  # (M, L, H, H)
    u: Tensor  # (M, L, D, H)


def stream_dtype(spec: Spec) -> torch.dtype:
    """What a and the stream are stored in."""
    return torch.float16 if spec.precision == "bf16" else torch.float32


def forward(
    a: Tensor, r: Tensor, parameters: Parameters, spec: Spec, *, recorded: bool
) -> tuple[Tensor, Tape | None]:
    """The stream (M, D, B, H) after the last layer, from a and r = g(rho a).

    With it what a gradient needs, if that is to be recorded.
    """
    U, u = _layers(parameters)
    weights, rho = U.to(product_dtype(spec)), parameters.rho.contiguous()
    tape, s, L = Tape(a, []), a, U.shape[1]
    for layer in range(L):
        after = torch.empty_like(s)
        following = torch.empty_like(r) if layer < L - 1 else None
        _run(
            "residual.layer_kernel",
            *(r, s, rho if layer == 0 else None, weights[:, layer], u[:, layer]),
            *(after, following),
            strides=(weights.stride(0), u.stride(0)),
            spec=spec,
        )
        if recorded:
            tape.inputs.append(r)
        s = after
        if following is not None:
            r = following
    return s, tape if recorded else None


def backward(
    ds: Tensor, sums: Tensor, tape: Tape, parameters: Parameters, spec: Spec
) -> LayerGradients:
    """Gradients from that of the stream after the last layer, and its sums (M, D, H) over rows."""
    U, u = _layers(parameters)
    weights, rho = U.to(product_dtype(spec)), parameters.rho.contiguous()
    dU, du = torch.empty_like(U), torch.empty_like(u)
    du[:, -1] = sums
    M, D, B, H = ds.shape
    tiles = tiling.layer(B, H, spec.precision)
    blocks, n_tiles = tiling.cdiv(B, tiles.rows), tiling.cdiv(H, tiles.hidden)
    parts = u.new_empty(U.shape[1] - 1, M, D, blocks, H)  # those of all layers but the last
    rho_parts = u.new_empty(M, D, blocks, n_tiles)
    for layer in reversed(range(U.shape[1])):
        r = tape.inputs[layer]
        with _products_in(spec.precision):
            dU[:, layer] = torch.bmm(r.flatten(1, 2).mT, ds.flatten(1, 2))
        before, first = torch.empty_like(ds), layer == 0
        _run(
            "residual.layer_gradient_kernel",
            *(ds, r, weights[:, layer], tape.a if first else None, rho if first else None),
            *(before, rho_parts if first else parts[layer - 1]),
            strides=(weights.stride(0),),
            spec=spec,
        )
        ds = before
    du[:, :-1] = parts.sum(3).transpose(0, 1)
    return LayerGradients(ds, rho_parts.sum((2, 3)), dU, du)


def _run(kernel: str, first: Tensor, *others: Any, strides: tuple[int, ...], spec: Spec) -> None:
    """Launch a layer's kernel over the rows and units of `first`, (M, D, B, H)."""
    M, D, B, H = first.shape
    tiles = tiling.layer(B, H, spec.precision)
    run(
        kernel,
        (M * D * tiling.cdiv(B, tiles.rows) * tiling.cdiv(H, tiles.hidden),),
        *(first, *others, B, D, H, *strides),
        **{**tiles.options, **flags_of(spec)},
        KT=min(tiles.hidden, tiling.LAYER_UNITS),
        WHOLE=B % tiles.rows == 0 and H % tiles.hidden == 0,
    )


def _layers(parameters: Parameters) -> tuple[Tensor, Tensor]:
    assert parameters.U is not None
    assert parameters.u is not None
    return parameters.U.contiguous(), parameters.u.contiguous()


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
