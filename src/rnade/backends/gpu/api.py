"""Triton kernels behind the functions of `vectorised`: checks, choice of kernel, launch, autograd.

Three paths. Banks of small models take one program for each model and dimension, value and
gradient in one (`bank`). Else many rows are scored and drawn with the hidden state on chip
(`density`): nothing of size B x D x H exists. Few rows, and every gradient, store the hidden
state of a chunk of rows (`stored`), at most `chunks.STORED_ELEMENTS` of it, so that all dimensions
are worked on at once; deeper networks go this way always, with their layers in between (`layers`).
Nothing here waits for the device or looks at values, so every function can be captured in a CUDA
graph, and sums are made in a fixed order, so that the same inputs give the same bits.

Importing this module does not import Triton. With ``TRITON_INTERPRET=1`` in the environment before
the first call, the kernels run on CPU tensors through Triton's interpreter, slowly.
"""

import functools
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from rnade import chunks
from rnade.backends import vectorised
from rnade.backends.gpu import bank_launch as bank
from rnade.backends.gpu import launch, tiling
from rnade.backends.gpu import stored_launch as stored
from rnade.backends.gpu.launch import has_triton as _has_triton
from rnade.backends.parameters import Parameters
from rnade.backends.spec import PRECISIONS, Spec
from rnade.batch import Batch
from rnade.checks import unknown_name

# Hidden units whose state for 16 rows still fits the registers of one multiprocessor.
ON_CHIP_HIDDEN = 2048
# Outputs of one dimension that the kernels hold in one tile.
LARGEST_OUTPUTS = 512


def supports(parameters: Parameters, spec: Spec) -> str | None:
    """Say why these kernels cannot serve, in plain words, or None where they can."""
    W, family, activation = parameters.W, spec.family, spec.activation
    if not _has_triton():
        return "Triton is not installed"
    if not launch.interpreting():
        if not torch.cuda.is_available():
            return "there is no CUDA device"
        if W.device.type != "cuda":
            return f"the parameters are on the {W.device.type} device"
        if torch.cuda.get_device_capability(W.device) < (8, 0):
            return "the CUDA device is older than compute capability 8.0"
    if any(t is not None and t.device != W.device for t in parameters):
        return "the parameters are on several devices"
    for name, t in parameters._asdict().items():
        if t is not None and t.dtype != torch.float32:
            return f"the kernels compute in float32 and {name} is {t.dtype}"
    if family.name not in launch.FAMILIES:
        return f"there is no kernel for the family {family.name!r}"
    if activation not in ("relu", "sigmoid", "identity"):
        return f"there is no kernel for the activation {activation!r}"
    if family.n_outputs > LARGEST_OUTPUTS:
        return (
            f"{family.n_outputs} outputs a dimension are more than the {LARGEST_OUTPUTS} of a tile"
        )
    return None


def log_conditionals(batch: Batch, parameters: Parameters, spec: Spec) -> Float[Tensor, "M B D"]:
    """The D terms log p(x_d | x_<d) of each row, laid out by dimension whatever the order.

    In nats; they can be differentiated once, with respect to x and the parameters.
    """
    batch = _checked(batch, parameters, spec)
    if parameters.wants_gradient(batch.x):
        return _terms(batch, parameters, spec)
    return _value(batch, parameters, spec, summed=False)


def log_prob(batch: Batch, parameters: Parameters, spec: Spec) -> Float[Tensor, "M B"]:
    """Log density of each row in nats: the sum of `log_conditionals`, made on chip."""
    batch = _checked(batch, parameters, spec)
    if parameters.wants_gradient(batch.x):
        return _terms(batch, parameters, spec).sum(-1)
    return _value(batch, parameters, spec, summed=True)


def weighted_log_likelihood(
    batch: Batch, parameters: Parameters, spec: Spec
) -> Float[Tensor, " M"]:
    """Sum over rows of weight times log density, for each model: what training differentiates.

    The backward pass folds weights and upstream gradient into the kernels that make the
    parameters' gradients, so that these are written once.
    """
    batch = _checked(batch, parameters, spec)
    x, weights, _, order = batch
    if weights is None:
        weights = x.new_ones(x.shape[:2])
    differentiated = parameters.wants_gradient(x)
    # The kernels that add up in one pass take weights of rows. Those of cells multiply the terms,
    # whose backward pass takes any upstream gradient.
    if weights.ndim == 3 or (torch.is_grad_enabled() and weights.requires_grad) or x.shape[1] == 0:
        terms = _terms if differentiated else functools.partial(_value, summed=False)
        return vectorised.weighted_sum(terms(batch, parameters, spec), weights)
    if not differentiated:
        return (weights * _value(batch, parameters, spec, summed=True)).sum(-1)
    total: Tensor = _Differentiable.apply(spec, order, weights, x, *parameters)  # type: ignore[no-untyped-call]
    return total


@torch.no_grad()
def sample(
    n: int,
    parameters: Parameters,
    spec: Spec,
    *,
    order: Int[Tensor, "M D"] | None = None,
    generator: Generator,
    low: Float[Tensor, " D"] | None = None,
    high: Float[Tensor, " D"] | None = None,
) -> Float[Tensor, "M n D"]:
    """Exact draws, one dimension after the other, with the hidden state on chip.

    Truncated draws (`low`, `high`), networks past `ON_CHIP_HIDDEN` units and deeper ones are left
    to `vectorised`. The same generator state gives the same draws.
    """
    W = parameters.W
    M, D, H = W.shape
    truncated = low is not None or high is not None
    if truncated or parameters.U is not None or H > ON_CHIP_HIDDEN:
        return vectorised.sample(
            n, parameters, spec, order=order, generator=generator, low=low, high=high
        )
    x, _, _, order = _checked(Batch(W.new_empty(M, n, D), order=order), parameters, spec)
    packed = launch.Packed.of(parameters, spec, order)
    largest = chunks.rows_at_a_time(M * D)  # their random numbers are drawn ahead
    for start in range(0, n, largest):
        rows = x[:, start : start + largest]
        uniform = torch.rand(M, D, rows.shape[1], device=W.device, generator=generator)
        noise = spec.family.noise(uniform, generator)
        launch.sampling(packed, uniform, uniform if noise is None else noise, rows)
    return x


def _terms(batch: Batch, parameters: Parameters, spec: Spec) -> Tensor:
    """Terms that can be differentiated."""
    if batch.x.shape[1] == 0:  # nothing to launch
        return vectorised.log_conditionals(batch, parameters, spec)
    terms: Tensor = _Differentiable.apply(spec, batch.order, None, batch.x, *parameters)  # type: ignore[no-untyped-call]
    return terms


class _Differentiable(torch.autograd.Function):
    """Terms (M, B, D), or with weights of rows their weighted sum (M,), and first derivatives."""

    @staticmethod
    def forward(
        ctx: Any,
        spec: Spec,
        order: Tensor | None,
        weights: Tensor | None,
        x: Tensor,
        *given: Tensor,
    ) -> Any:
        batch, parameters = Batch(x, weights, None, order), Parameters(*given)
        ctx.spec, ctx.kept, ctx.parts = spec, None, None
        ctx.save_for_backward(order, weights, x, *given)
        needs_x = ctx.needs_input_grad[3]
        if weights is not None and not needs_x and bank.fits(batch, parameters, spec):
            sums, ctx.parts = bank.value_and_parts(batch, parameters, spec)
            return sums.sum(1)
        if x.numel() * parameters.W.shape[2] <= chunks.STORED_ELEMENTS:
            # Small enough to keep: the backward pass starts from here.
            value, ctx.kept = stored.evaluate(
                batch, parameters, spec, gradient=True, gradient_x=needs_x
            )
            return value
        value = _value(batch, parameters, spec, summed=weights is not None)
        return (weights * value).sum(-1) if weights is not None else value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        if torch.is_grad_enabled():  # asked for with create_graph=True
            raise RuntimeError(
                "The GPU kernels give first derivatives only; use backend='vectorised' to"
                " differentiate a gradient."
            )
        order, weights, x, *given = ctx.saved_tensors
        batch, parameters, spec = Batch(x, order=order), Parameters(*given), ctx.spec
        if ctx.parts is not None:
            found = bank.totals(ctx.parts, upstream.contiguous(), parameters)
            return None, None, None, None, *Parameters(*found)
        needs_x, *others = ctx.needs_input_grad[3:]
        needs: Any = Parameters(*others)
        scale = None
        if weights is not None:
            scale = upstream.contiguous()
            upstream = weights[:, :, None].expand(x.shape)
        inputs = needs_x or needs.W or needs.c
        collected = stored.Gradients(
            batch, parameters, spec, upstream, scale, inputs=inputs, of_x=needs_x
        )
        if ctx.kept is not None:
            collected.add(ctx.kept)
        else:
            for rows in _row_chunks(batch, parameters):
                _, kept = stored.evaluate(
                    batch.rows(rows), parameters, spec, gradient=True, gradient_x=needs_x
                )
                collected.add(kept, rows)
        return None, None, None, *collected.finished()


def _value(batch: Batch, parameters: Parameters, spec: Spec, *, summed: bool) -> Tensor:
    """Terms (M, B, D) or their sums (M, B), no gradient: on chip, or stored in chunks."""
    batch = batch._replace(weights=None)
    if bank.fits(batch, parameters, spec):
        terms = bank.terms(batch, parameters, spec)
        return terms.sum(-1) if summed else terms
    M, B, D = batch.x.shape
    H = parameters.W.shape[2]
    blocks = M * tiling.cdiv(B, launch.on_chip_tiles(spec, H).rows)
    if parameters.U is None and H <= ON_CHIP_HIDDEN and blocks >= tiling.BLOCKS_TO_FILL:
        return launch.density(batch, parameters, spec, summed=summed)
    out = batch.x.new_empty((M, B) if summed else (M, B, D))
    for rows in _row_chunks(batch, parameters):
        terms, _ = stored.evaluate(
            batch.rows(rows), parameters, spec, gradient=False, gradient_x=False
        )
        out[:, rows] = terms.sum(-1) if summed else terms
    return out


def _row_chunks(batch: Batch, parameters: Parameters) -> Iterator[slice]:
    """Slices of rows whose hidden state stays within `chunks.STORED_ELEMENTS`."""
    M, B, D = batch.x.shape
    largest = max(16, chunks.STORED_ELEMENTS // (M * D * parameters.W.shape[2]))
    for start in range(0, B, largest):
        yield slice(start, min(B, start + largest))


def _checked(batch: Batch, parameters: Parameters, spec: Spec) -> Batch:
    """The batch, after checks that look at shapes, devices and dtypes alone."""
    if spec.precision not in PRECISIONS:
        raise unknown_name(spec.precision, list(PRECISIONS), "precision")
    reason = supports(parameters, spec)
    if reason is not None:
        raise ValueError(f"The GPU kernels cannot serve: {reason}.")
    x, order = batch.x, batch.order
    if x.dtype != torch.float32 or x.device != parameters.W.device:
        raise ValueError(
            f"Expected x in float32 on {parameters.W.device}; got {x.dtype} on {x.device}."
        )
    if order is None:
        return batch
    return batch._replace(order=order.to(device=x.device, dtype=torch.int64).contiguous())
