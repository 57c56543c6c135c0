"""Launches of the kernels that store the hidden state: values with gradients, chunk by chunk.

Like `launch`, this waits for nothing and imports Triton only at the first launch.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rnade.backends.gpu import layers, tiling
from rnade.backends.gpu.launch import contiguous, flags_of, product_dtype, run, sizes_of
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec
from rnade.batch import Batch


class Kept(NamedTuple):
    """What the stored path hands from value to gradient, for one chunk of rows."""

    a: Tensor  # (M, D, B, H); h where there are layers
    dz: Tensor | None  # (M, D, B, P)
    dx: Tensor | None  # (M, B, D)
    tape: layers.Tape | None  # of the layers, if there are any


def evaluate(
    batch: Batch, parameters: Parameters, spec: Spec, *, gradient: bool, gradient_x: bool
) -> tuple[Tensor, Kept]:
    """Terms (M, B, D), or with weights their weighted sums (M,), and what a gradient needs."""
    x, weights, _, order = batch
    W, c, rho, b, log_floor = contiguous(
        *(parameters.W, parameters.c, parameters.rho, parameters.b, parameters.log_floor)
    )
    M, B, D = x.shape
    V, new = parameters.V, x.new_empty
    H, P = V.shape[2:]
    deep = parameters.U is not None
    a = new(M, D, B, H, dtype=layers.stream_dtype(spec) if deep else x.dtype)
    r = torch.empty_like(a, dtype=product_dtype(spec)) if deep else None
    ended = torch.empty(M, dtype=torch.int32, device=x.device)
    tiles = tiling.state(M, B, H)
    cut = tiling.cdiv(H, tiles.hidden), tiling.cdiv(B, tiles.rows)
    chunk, n_chunks = tiling.position_chunks(D, M * cut[0] * cut[1], tiling.STATE_PROGRAMS)
    run(
        "stored.state_kernel",
        (M * n_chunks, *cut),
        *(x, W, c, order, rho if deep else None, a, r, ended),
        *(B, D, H, chunk, n_chunks, *x.stride()),
        **tiles.options,
        DT=16,
        ACTIVATION=spec.activation,
    )
    tape, flags, sizes = None, flags_of(spec), sizes_of(spec.family)
    if r is not None:
        a, tape = layers.forward(a, r, parameters, spec, recorded=gradient)
        rho, flags = _read_as_it_is(rho, flags)
    tiles = tiling.output(M, B, D, H, sizes["NP"])
    blocks = tiling.cdiv(B, tiles.rows)
    value, total = new((M, B, D) if weights is None else (M, D, blocks)), new(M)
    dz = new(M, D, B, P) if gradient else None
    dx = new(M, B, D) if gradient_x else None
    weight_strides = (0, 0) if weights is None else weights.stride()
    run(
        "stored.output_kernel",
        (M * D, blocks),
        *(x, a, rho, V, b, log_floor, weights, value, total, ended, dz, dx),
        *(B, D, H, *x.stride(), *V.stride()[:2], *weight_strides, *V.stride()[2:]),
        **{**sizes, **flags, **tiles.options},
        SCALE_MEAN=spec.scale_mean_gradient,
    )
    return value if weights is None else total, Kept(a, dz, dx, tape)


def _read_as_it_is(rho: Tensor, flags: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """What makes h of the kernels' g(rho a), where layers have made h already.

    Bf16 is for the layers' products: rounded to 8 bits, h would move the means by much of a small
    scale, and this product is the smallest by far.
    """
    precision = "tf32" if flags["PRECISION"].startswith("bf16") else flags["PRECISION"]
    read = {**flags, "ACTIVATION": "identity", "PRECISION": precision}
    return torch.ones_like(rho), read


class Gradients:
    """Gradients of W, c, rho, V, b, x and the layers, summed over chunks of rows.

    Parameters
    ----------
    batch, parameters, spec
        Of all rows.
    upstream : Tensor of shape (M, B, D)
        The gradient of each term.
    scale : Tensor of shape (M,) or None
        Multiplies it.
    inputs, of_x : bool
        Whether the gradients of W, c or x are wanted, and whether that of x is.
    """

    def __init__(
        self,
        batch: Batch,
        parameters: Parameters,
        spec: Spec,
        upstream: Tensor,
        scale: Tensor | None,
        *,
        inputs: bool,
        of_x: bool,
    ) -> None:
        x = batch.x
        M, D, H, P = parameters.V.shape
        self._batch, self._parameters, self._spec = batch, parameters, spec
        self._upstream, self._scale, self._inputs = upstream, scale, inputs
        self._tiles = tiling.weight(x.shape[1], H, max(16, tiling.power_of_two(P)))
        n_tiles = tiling.cdiv(H, self._tiles.hidden)
        wanted = tiling.weight_programs(x.shape[1])
        self._run, parts = tiling.position_chunks(n_tiles, M * D, wanted)
        self._V, self._b = x.new_empty(M, D, H, P), x.new_empty(M, D, P)
        self._rho_parts = x.new_empty(M, D, parts)  # partial sums
        self._x = x.new_empty(x.shape) if of_x else None
        self._rho: Tensor | None = None
        self._sums: dict[str, Tensor] = {}  # of W, c and the layers
        self._begun = False

    def add(self, kept: Kept, rows: slice = slice(None)) -> None:
        """Add what the chunk `rows` gives."""
        parameters, spec, scale = self._parameters, self._spec, self._scale
        x, upstream = self._batch.x[:, rows], self._upstream[:, rows]
        rho, V, flags = parameters.rho.contiguous(), parameters.V, flags_of(spec)
        M, B, D = x.shape
        _, _, H, P = V.shape
        g, sums = torch.empty_like(kept.a), None
        if kept.tape is not None:
            rho, flags = _read_as_it_is(rho, flags)
            g = torch.empty_like(kept.a, dtype=product_dtype(spec))
            sums = x.new_empty(M, D, H)
        found = self._V, self._b, self._rho_parts if sums is None else None, sums, g
        run(
            "weight_gradient.weight_kernel",
            (M * D, self._rho_parts.shape[2]),
            *(kept.a, rho, V, kept.dz, upstream, scale, *found),
            *(B, D, H, self._run, *V.stride()[:2], *upstream.stride(), *V.stride()[2:]),
            *(P, sizes_of(spec.family)["NP"]),
            **{**flags, **self._tiles.options},
            ADDED=self._begun,
            ONE_BLOCK=self._tiles.rows >= B,
        )
        if kept.tape is not None and sums is not None:
            layer = layers.backward(g, sums, kept.tape, parameters, spec)
            g = layer.a
            self._add(rho=layer.rho, U=layer.U, u=layer.u)
        if self._inputs:
            self._add_inputs(x, g, rows)
        if self._x is not None:
            assert kept.dx is not None
            own = kept.dx * upstream
            self._x[:, rows] += own if scale is None else own * scale[:, None, None]
        self._begun = True

    def _add(self, **found: Tensor) -> None:
        for name, new in found.items():
            self._sums[name] = self._sums[name] + new if name in self._sums else new

    @property
    def _rho_sums(self) -> Tensor:
        """Partial sums (M, D, parts) of rho's gradient, which layers make themselves, as one."""
        rho = self._sums.get("rho")
        return self._rho_parts if rho is None else rho[:, :, None]

    def _add_inputs(self, x: Tensor, g: Tensor, rows: slice) -> None:
        """Add the gradients of W, c and x, from that of the hidden state."""
        M, D, B, H = g.shape
        tiles = tiling.inputs(B, H)
        n_tiles, n_blocks = tiling.cdiv(H, tiles.hidden), tiling.cdiv(B, tiles.rows)
        chunk, n_chunks = tiling.position_chunks(D, M * n_tiles * n_blocks, tiling.INPUT_PROGRAMS)
        rho_sums, new = self._rho_sums, x.new_empty
        parts = rho_sums.shape[2]
        self._rho, dW, dc = new(M, D), new(M, n_blocks, D, H), new(M, n_blocks, H)
        dx = None if self._x is None else new(M, n_tiles, B, D)
        given = x, self._parameters.W.contiguous(), self._batch.order, g, rho_sums
        run(
            "input_gradient.input_kernel",
            (M * n_chunks, n_tiles, n_blocks),
            *(*given, self._rho, dW, dc, dx),
            *(B, D, H, chunk, n_chunks, parts, *x.stride()),
            **tiles.options,
            CHUNK=tiling.power_of_two(chunk),
            PARTS=tiling.power_of_two(parts),
        )
        dW, dc = (t.squeeze(1) if n_blocks == 1 else t.sum(1) for t in (dW, dc))
        self._add(W=dW, c=dc)
        if self._x is not None and dx is not None:
            self._x[:, rows] = dx.sum(1)

    def finished(self) -> tuple[Tensor | None, ...]:
        """Gradients of x and of the parameters, in their order."""
        rho = self._rho_sums.sum(2) if self._rho is None else self._rho
        W, c, U, u = (self._sums.get(name) for name in ("W", "c", "U", "u"))
        return self._x, W, c, rho, self._V, self._b, None, U, u
