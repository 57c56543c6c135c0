"""Launches of the kernels that store the hidden state: values with gradients, chunk by chunk.

Like `launch`, this waits for nothing and imports Triton only at the first launch.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rnade.backends.gpu import layers, tiling
from rnade.backends.gpu.launch import current, flags_of, kernels_of, sizes_of
from rnade.backends.gpu.tiling import Tiles
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec
from rnade.batch import Batch


class Kept(NamedTuple):
    """What the stored path hands from value to gradient, for one chunk of rows."""

    a: Tensor  # (M, D, B, H); h where there are layers
    dz: Tensor  # (M, D, B, P)
    dx: Tensor | None  # (M, B, D)
    tape: layers.Tape | None  # of the layers, if there are any


def evaluate(
    batch: Batch, parameters: Parameters, spec: Spec, *, gradient: bool, gradient_x: bool
) -> tuple[Tensor, Kept]:
    """Terms (M, B, D), or with weights their weighted sums (M,), and what a gradient needs."""
    x, weights, _, order = batch
    W, c, rho, V, b, log_floor, _, _ = parameters
    M, B, D = x.shape
    H, P = V.shape[2:]
    W, c, rho, b = W.contiguous(), c.contiguous(), rho.contiguous(), b.contiguous()
    kernels = kernels_of("stored")
    a = x.new_empty(M, D, B, H)
    ended = torch.empty(M, dtype=torch.int32, device=x.device)
    tape, flags, sizes = None, flags_of(spec), sizes_of(spec.family)
    with current(x.device):
        tiles = tiling.state(M, B, H)
        cut = tiling.cdiv(H, tiles.hidden), tiling.cdiv(B, tiles.rows)
        chunk, n_chunks = tiling.position_chunks(D, M * cut[0] * cut[1], tiling.STATE_PROGRAMS)
        kernels.state_kernel[(M * n_chunks, *cut)](
            x,
            W,
            c,
            rho if order is None else order,
            a,
            ended,
            B,
            D,
            H,
            chunk,
            n_chunks,
            *x.stride(),
            **tiles.options,
            DT=16,
            ORDERED=order is not None,
        )
        if parameters.U is not None:
            a, tape = layers.forward(a, parameters, spec, recorded=gradient)
            rho, flags = _read_as_it_is(rho, flags)
        tiles = tiling.output(M, B, D, H, sizes["NP"])
        blocks = tiling.cdiv(B, tiles.rows)
        value = x.new_empty((M, B, D) if weights is None else (M, D, blocks))
        total = x.new_empty(M)
        dz = x.new_empty(M, D, B, P) if gradient else value
        dx = x.new_empty(M, B, D) if gradient_x else None
        kernels.output_kernel[(M * D, blocks)](
            x,
            a,
            rho,
            V,
            b,
            rho if log_floor is None else log_floor.contiguous(),
            rho if weights is None else weights,
            value,
            total,
            ended,
            dz,
            value if dx is None else dx,
            B,
            D,
            H,
            *x.stride(),
            V.stride(0),
            V.stride(1),
            *((0, 0) if weights is None else weights.stride()),
            V_stride_h=V.stride(2),
            V_stride_p=V.stride(3),
            **sizes,
            **flags,
            **tiles.options,
            FLOORED=log_floor is not None,
            WEIGHTED=weights is not None,
            GRADIENT=gradient,
            GRADIENT_X=gradient_x,
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


@dataclass
class Gradients:
    """Gradients of W, c, rho, V, b, x and the layers, summed over chunks of rows."""

    V: Tensor
    b: Tensor
    rho_parts: Tensor  # (M, D, parts), partial sums
    rho: Tensor | None
    W: Tensor | None
    c: Tensor | None
    x: Tensor | None
    deeper: layers.LayerGradients | None
    tiles: Tiles
    tiles_a_program: int
    inputs: bool  # whether W, c or x is wanted
    begun: bool = False

    @staticmethod
    def empty(parameters: Parameters, x: Tensor, *, inputs: bool, x_too: bool) -> "Gradients":
        """Room for the gradients that are wanted."""
        M, D, H, P = parameters.V.shape
        tiles = tiling.weight(x.shape[1], H, max(16, tiling.power_of_two(P)))
        n_tiles = tiling.cdiv(H, tiles.hidden)
        run, parts = tiling.position_chunks(n_tiles, M * D, tiling.WEIGHT_PROGRAMS)
        return Gradients(
            V=x.new_empty(M, D, H, P),
            b=x.new_empty(M, D, P),
            rho_parts=x.new_empty(M, D, parts),
            rho=None,
            W=None,
            c=None,
            x=x.new_empty(x.shape) if x_too else None,
            deeper=None,
            tiles=tiles,
            tiles_a_program=run,
            inputs=inputs,
        )

    def add(
        self,
        batch: Batch,
        parameters: Parameters,
        spec: Spec,
        upstream: Tensor,
        scale: Tensor | None,
        kept: Kept,
        rows: slice = slice(None),
    ) -> None:
        """Add what the chunk `rows` gives."""
        x, upstream, order = batch.x[:, rows], upstream[:, rows], batch.order
        rho, V, flags = parameters.rho.contiguous(), parameters.V, flags_of(spec)
        if kept.tape is not None:
            rho, flags = _read_as_it_is(rho, flags)
        M, B, D = x.shape
        H, tiles = V.shape[2], self.tiles
        sizes = sizes_of(spec.family)
        g = torch.empty_like(kept.a)
        with current(x.device):
            kernels_of("weight_gradient").weight_kernel[(M * D, self.rho_parts.shape[2])](
                kept.a,
                rho,
                V,
                kept.dz,
                upstream,
                rho if scale is None else scale,
                self.V,
                self.b,
                self.rho_parts,
                g,
                B,
                D,
                H,
                self.tiles_a_program,
                V.stride(0),
                V.stride(1),
                *upstream.stride(),
                V_stride_h=V.stride(2),
                V_stride_p=V.stride(3),
                P=sizes["P"],
                NP=sizes["NP"],
                **flags,
                **tiles.options,
                SCALED=scale is not None,
                ADDED=self.begun,
                ONE_BLOCK=tiles.rows >= B,
            )
        if kept.tape is not None:
            g = self._add_layers(layers.backward(g, kept.tape, parameters, spec))
        if self.inputs:
            self._add_inputs(x, order, parameters.W.contiguous(), g, rows)
        if self.x is not None:
            assert kept.dx is not None
            own = kept.dx * upstream
            self.x[:, rows] += own if scale is None else own * scale[:, None, None]
        self.begun = True

    def _add_layers(self, found: layers.LayerGradients) -> Tensor:
        """Add the layers' own, and give d log p / da."""
        before = self.deeper
        if before is not None:
            found = layers.LayerGradients(
                found.a, *(new + old for new, old in zip(found[1:], before[1:], strict=True))
            )
        self.deeper = found
        return found.a

    @property
    def _rho_sums(self) -> Tensor:
        """Partial sums (M, D, parts) of rho's gradient, which layers make themselves."""
        return self.rho_parts if self.deeper is None else self.deeper.rho_parts

    def _add_inputs(
        self, x: Tensor, order: Tensor | None, W: Tensor, g: Tensor, rows: slice
    ) -> None:
        M, B, D = x.shape
        H = W.shape[2]
        tiles = tiling.inputs(B, H)
        n_tiles, n_blocks = tiling.cdiv(H, tiles.hidden), tiling.cdiv(B, tiles.rows)
        chunk, n_chunks = tiling.position_chunks(D, M * n_tiles * n_blocks, tiling.INPUT_PROGRAMS)
        rho_sums = self._rho_sums
        parts = rho_sums.shape[2]
        self.rho = x.new_empty(M, D)
        dW = x.new_empty(M, n_blocks, D, H)
        dc = x.new_empty(M, n_blocks, H)
        dx = None if self.x is None else x.new_empty(M, n_tiles, B, D)
        with current(x.device):
            kernels_of("input_gradient").input_kernel[(M * n_chunks, n_tiles, n_blocks)](
                x,
                W,
                W if order is None else order,
                g,
                rho_sums,
                self.rho,
                dW,
                dc,
                dW if dx is None else dx,
                B,
                D,
                H,
                chunk,
                n_chunks,
                parts,
                *x.stride(),
                **tiles.options,
                CHUNK=tiling.power_of_two(chunk),
                PARTS=tiling.power_of_two(parts),
                ORDERED=order is not None,
                GRADIENT_X=dx is not None,
            )
        dW, dc = (t.squeeze(1) if n_blocks == 1 else t.sum(1) for t in (dW, dc))
        self.W = dW if self.W is None else self.W + dW
        self.c = dc if self.c is None else self.c + dc
        if self.x is not None and dx is not None:
            self.x[:, rows] = dx.sum(1)

    def finished(self) -> tuple[Tensor | None, ...]:
        """Gradients of x and of the parameters, in their order."""
        rho = self._rho_sums.sum(2) if self.rho is None else self.rho
        U, u = (None, None) if self.deeper is None else (self.deeper.U, self.deeper.u)
        return self.x, self.W, self.c, rho, self.V, self.b, None, U, u
