"""Triton kernels behind the functions of `vectorised`: checks, choice of kernel, launch, autograd.

Three paths. Banks of small models take one program for each model and dimension, value and
gradient in one (`bank`). Else many rows are scored and drawn with the hidden state on chip
(`density`): nothing of size B x D x H exists. Few rows, and every gradient, store the hidden
state of a chunk of rows (`gradient`), at most `STORED_ELEMENTS` of it, so that all dimensions
are worked on at once; deeper networks go this way always, with their layers in between
(`layers`). Nothing here waits for the device or looks at values, so every function can
be captured in a CUDA graph, and sums are made in a fixed order, so that the same inputs give the
same bits.

Importing this module does not import Triton. With ``TRITON_INTERPRET=1`` in the environment before
the first call, the kernels run on CPU tensors through Triton's interpreter, slowly.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from rnade.backends import vectorised
from rnade.backends.gpu import bank_launch as bank
from rnade.backends.gpu import launch, tiling
from rnade.backends.gpu import stored_launch as stored
from rnade.backends.gpu.launch import Request
from rnade.backends.gpu.launch import has_triton as _has_triton
from rnade.backends.parameters import Activation, Parameters
from rnade.checks import unknown_name
from rnade.families.base import AbstractFamily
from rnade.families.mixture import AbstractMixture

PRECISIONS = ("exact", "tf32", "bf16")
FAMILIES = ("gaussian", "laplace", "bernoulli")

# Elements of hidden state that the stored path may keep: 256 MiB in float32.
STORED_ELEMENTS = 2**26
# Hidden units whose state for 16 rows still fits the registers of one multiprocessor.
ON_CHIP_HIDDEN = 2048
# Outputs of one dimension that the kernels hold in one tile.
LARGEST_OUTPUTS = 512
# Random numbers drawn ahead of the sampling kernel: 64 MiB in float32.
DRAWN_ELEMENTS = 2**24


def supports(parameters: Parameters, family: AbstractFamily, activation: Activation) -> str | None:
    """Say why these kernels cannot serve, in plain words, or None where they can."""
    W = parameters.W
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
    if family.name not in FAMILIES:
        return f"there is no kernel for the family {family.name!r}"
    if activation not in ("relu", "sigmoid", "identity"):
        return f"there is no kernel for the activation {activation!r}"
    if family.n_outputs > LARGEST_OUTPUTS:
        return (
            f"{family.n_outputs} outputs a dimension are more than the {LARGEST_OUTPUTS} of a tile"
        )
    return None


def log_conditionals(
    x: Float[Tensor, "M B D"],
    parameters: Parameters,
    family: AbstractFamily,
    activation: Activation,
    order: Int[Tensor, "M D"] | None = None,
    *,
    scale_mean_gradient: bool = False,
    precision: str = "exact",
) -> Float[Tensor, "M B D"]:
    """The D terms log p(x_d | x_<d) of each row, laid out by dimension whatever the order.

    Parameters
    ----------
    x : Tensor of shape (M, B, D)
    parameters : Parameters
    family : AbstractFamily
    activation : "relu", "sigmoid" or "identity"
    order : Tensor of shape (M, D), optional
        Dimension `order[m, 0]` comes first, and so on.
    scale_mean_gradient : bool
        Multiply the gradient of each component mean by its scale; the value is the same.
    precision : "exact", "tf32" or "bf16"
        Of the matrix products; everything else is float32.

    Returns
    -------
    Tensor of shape (M, B, D)
        In nats; can be differentiated once, with respect to x and the parameters.
    """
    request = _checked(x, parameters, family, activation, order, scale_mean_gradient, precision)
    if _wants_gradient(x, parameters):
        return _terms(request, x, parameters)
    return _value(request, x, parameters, summed=False)


def log_prob(
    x: Float[Tensor, "M B D"],
    parameters: Parameters,
    family: AbstractFamily,
    activation: Activation,
    order: Int[Tensor, "M D"] | None = None,
    *,
    scale_mean_gradient: bool = False,
    precision: str = "exact",
) -> Float[Tensor, "M B"]:
    """Log density of each row in nats: the sum of `log_conditionals`, made on chip."""
    request = _checked(x, parameters, family, activation, order, scale_mean_gradient, precision)
    if _wants_gradient(x, parameters):
        return _terms(request, x, parameters).sum(-1)
    return _value(request, x, parameters, summed=True)


def weighted_log_likelihood(
    x: Float[Tensor, "M B D"],
    weights: Float[Tensor, "M B"],
    parameters: Parameters,
    family: AbstractFamily,
    activation: Activation,
    order: Int[Tensor, "M D"] | None = None,
    *,
    scale_mean_gradient: bool = False,
    precision: str = "exact",
) -> Float[Tensor, " M"]:
    """Sum over rows of weight times log density, for each model: what training differentiates.

    The backward pass folds weights and upstream gradient into the kernels that make the
    parameters' gradients, so that these are written once.
    """
    request = _checked(x, parameters, family, activation, order, scale_mean_gradient, precision)
    if torch.is_grad_enabled() and (weights.requires_grad or x.shape[1] == 0):
        return (weights * _terms(request, x, parameters).sum(-1)).sum(-1)
    if (
        _wants_gradient(x, parameters)
        and not x.requires_grad
        and bank.fits(request, x, parameters)
    ):
        sums: Tensor = _DifferentiableBank.apply(request, weights, x, *parameters[:5])  # type: ignore[no-untyped-call]
        return sums
    if _wants_gradient(x, parameters):
        total: Tensor = _Differentiable.apply(request, weights, x, *parameters.weights)  # type: ignore[no-untyped-call]
        return total
    return (weights * _value(request, x, parameters, summed=True)).sum(-1)


@torch.no_grad()
def sample(
    n: int,
    parameters: Parameters,
    family: AbstractFamily,
    activation: Activation,
    order: Int[Tensor, "M D"] | None = None,
    *,
    generator: Generator,
    low: Float[Tensor, " D"] | None = None,
    high: Float[Tensor, " D"] | None = None,
    precision: str = "exact",
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
            n, parameters, family, activation, order, generator=generator, low=low, high=high
        )
    x = W.new_empty(M, n, D)
    request = _checked(x, parameters, family, activation, order, False, precision)
    packed = launch.Packed.of(parameters, request)
    largest = max(1, DRAWN_ELEMENTS // (M * D))
    for start in range(0, n, largest):
        rows = x[:, start : start + largest]
        uniform = torch.rand(M, D, rows.shape[1], device=W.device, generator=generator)
        noise = uniform
        if isinstance(family, AbstractMixture):
            noise = family._draw_kernel(uniform, generator)
        launch.sampling(packed, uniform, noise, rows)
    return x


def _terms(request: Request, x: Tensor, parameters: Parameters) -> Tensor:
    """Terms that can be differentiated."""
    if x.shape[1] == 0:  # nothing to launch
        return vectorised.log_conditionals(
            x, parameters, request.family, request.activation, request.order
        )
    terms: Tensor = _Differentiable.apply(request, None, x, *parameters.weights)  # type: ignore[no-untyped-call]
    return terms


class _Differentiable(torch.autograd.Function):
    """Terms (M, B, D), or with weights their weighted sum (M,), and first derivatives."""

    @staticmethod
    def forward(
        ctx: Any, request: Request, weights: Tensor | None, x: Tensor, *given: Tensor
    ) -> Any:
        parameters = _parameters(given, request)
        ctx.request, ctx.kept = request, None
        ctx.save_for_backward(weights, x, *given)
        M, B, D = x.shape
        if M * B * D * given[0].shape[2] <= STORED_ELEMENTS:
            # Small enough to keep: the backward pass starts from here.
            value, ctx.kept = stored.evaluate(
                request, x, parameters, weights, gradient=True, gradient_x=ctx.needs_input_grad[2]
            )
            return value
        value = _value(request, x, parameters, summed=weights is not None)
        return (weights * value).sum(-1) if weights is not None else value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        _refuse_second_derivatives()
        weights, x, *given = ctx.saved_tensors
        request: Request = ctx.request
        parameters = _parameters(given, request)
        needs = ctx.needs_input_grad
        scale = None
        if weights is not None:
            scale = upstream.contiguous()
            upstream = weights[:, :, None].expand(x.shape)
        collected = stored.Gradients.empty(parameters, x, inputs=any(needs[2:5]), x_too=needs[2])
        if ctx.kept is not None:
            collected.add(request, x, parameters, upstream, scale, ctx.kept)
        else:
            for rows in _row_chunks(x, parameters):
                _, kept = stored.evaluate(
                    request, x[:, rows], parameters, None, gradient=True, gradient_x=needs[2]
                )
                collected.add(request, x, parameters, upstream, scale, kept, rows)
        return None, None, *collected.finished()


class _DifferentiableBank(torch.autograd.Function):
    """Weighted sums (M,) of a bank of small models, and first derivatives to the parameters."""

    @staticmethod
    def forward(ctx: Any, request: Request, weights: Tensor, x: Tensor, *given: Tensor) -> Any:
        value, parts = bank.value_and_parts(request, x, weights, _parameters(given, request))
        ctx.request, ctx.parts = request, parts
        ctx.save_for_backward(*given)
        return value.sum(1)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        _refuse_second_derivatives()
        parameters = _parameters(ctx.saved_tensors, ctx.request)
        totals = bank.totals(ctx.parts, upstream.contiguous(), parameters)
        return None, None, None, *totals


def _refuse_second_derivatives() -> None:
    """Raise within a backward pass that was asked for with create_graph=True."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "The GPU kernels give first derivatives only; use backend='vectorised' to"
            " differentiate a gradient."
        )


def _parameters(given: Sequence[Tensor], request: Request) -> Parameters:
    W, c, rho, V, b, *layers = given
    return Parameters(W, c, rho, V, b, request.log_floor, *layers)


def _value(request: Request, x: Tensor, parameters: Parameters, *, summed: bool) -> Tensor:
    """Terms (M, B, D) or their sums (M, B), no gradient: on chip, or stored in chunks."""
    if bank.fits(request, x, parameters):
        terms = bank.terms(request, x, parameters)
        return terms.sum(-1) if summed else terms
    M, B, D = x.shape
    H = parameters.W.shape[2]
    blocks = M * tiling.cdiv(B, request.on_chip_tiles(H).rows)
    if parameters.U is None and H <= ON_CHIP_HIDDEN and blocks >= tiling.BLOCKS_TO_FILL:
        return launch.density(launch.Packed.of(parameters, request), x, summed=summed)
    out = x.new_empty((M, B) if summed else (M, B, D))
    for chunk in _row_chunks(x, parameters):
        terms, _ = stored.evaluate(
            request, x[:, chunk], parameters, None, gradient=False, gradient_x=False
        )
        out[:, chunk] = terms.sum(-1) if summed else terms
    return out


def _row_chunks(x: Tensor, parameters: Parameters) -> Iterator[slice]:
    """Slices of rows whose hidden state stays within `STORED_ELEMENTS`."""
    M, B, D = x.shape
    largest = max(16, STORED_ELEMENTS // (M * D * parameters.W.shape[2]))
    for start in range(0, B, largest):
        yield slice(start, min(B, start + largest))


def _checked(
    x: Tensor,
    parameters: Parameters,
    family: AbstractFamily,
    activation: Activation,
    order: Tensor | None,
    scale_mean_gradient: bool,
    precision: str,
) -> Request:
    """The request, after checks that look at shapes, devices and dtypes alone."""
    if precision not in PRECISIONS:
        raise unknown_name(precision, list(PRECISIONS), "precision")
    reason = supports(parameters, family, activation)
    if reason is not None:
        raise ValueError(f"The GPU kernels cannot serve: {reason}.")
    if x.dtype != torch.float32 or x.device != parameters.W.device:
        raise ValueError(
            f"Expected x in float32 on {parameters.W.device}; got {x.dtype} on {x.device}."
        )
    if order is not None:
        order = order.to(device=x.device, dtype=torch.int64).contiguous()
    return Request(family, activation, order, parameters.log_floor, scale_mean_gradient, precision)


def _wants_gradient(x: Tensor, parameters: Parameters) -> bool:
    return torch.is_grad_enabled() and (
        x.requires_grad or any(t.requires_grad for t in parameters.weights)
    )
