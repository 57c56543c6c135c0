"""Densities, gradients and draws on the CPU by fused numba kernels.

The same functions as `vectorised`, without its tensors of size M x D x B x H. Derivatives with
respect to x and to every parameter but `log_floor` go through torch.autograd; where a graph of
them is asked for, to differentiate again, they are left to `vectorised`.
`weighted_log_likelihood` computes value and gradient in one pass, so that a training step costs
three matrix products a dimension and nothing is computed twice.

The work is spread over `torch.get_num_threads()` threads (see `backends.threads` and `threads`).
Kernels are compiled when first used, one to three seconds for each, and kept on disk.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from rnade.backends import vectorised
from rnade.backends.cpu import hidden, launch
from rnade.backends.cpu.families import FAMILIES
from rnade.backends.cpu.launch import MOST_ELEMENTS, Problem, Setting
from rnade.backends.parameters import Activation, Parameters
from rnade.families.base import AbstractFamily

# Rows from which a density or a draw takes a copy of V whose columns are padded to whole vectors.
# Gradients were measured to be slower with it.
PADDED_ROWS = 1024


def supports(parameters: Parameters, family: AbstractFamily, activation: Activation) -> str | None:
    """Say in plain words why these cannot be computed here, or None if they can."""
    W = parameters.W
    if not W.is_cpu:
        return f"the parameters are on {W.device}, not on the CPU"
    if W.dtype not in (torch.float32, torch.float64):
        return f"the parameters are {W.dtype}, neither float32 nor float64"
    if any(t is not None and t.dtype != W.dtype for t in parameters):
        return "the parameters differ in dtype"
    if parameters.U is not None:
        return "the CPU kernels have one hidden layer and this network has more"
    if family.name not in FAMILIES:
        return f"there is no CPU kernel for the family {family.name!r}"
    if activation not in hidden.CODES:
        return f"there is no CPU kernel for the activation {activation!r}"
    return None


def log_conditionals(
    x: Float[Tensor, "M B D"],
    parameters: Parameters,
    family: AbstractFamily,
    activation: Activation,
    order: Int[Tensor, "M D"] | None = None,
    *,
    scale_mean_gradient: bool = False,
) -> Float[Tensor, "M B D"]:
    """The D terms log p(x_d | x_<d) of each row, laid out by dimension whatever the order."""
    setting = Setting(family, activation, order, parameters.log_floor, scale_mean_gradient)
    terms: Tensor = _LogConditionals.apply(setting, x, *parameters[:5])  # type: ignore[no-untyped-call]
    return terms


def weighted_log_likelihood(
    x: Float[Tensor, "M B D"],
    weights: Float[Tensor, "M B"],
    parameters: Parameters,
    family: AbstractFamily,
    activation: Activation,
    order: Int[Tensor, "M D"] | None = None,
    *,
    scale_mean_gradient: bool = False,
) -> Float[Tensor, " M"]:
    """Sum over rows of weight times log density, for each model.

    The gradient is computed along with the value, and the backward pass multiplies it by what
    comes from above, unless that is 1: put signs and factors into the weights.
    """
    wanted = any(t.requires_grad for t in (x, *parameters[:5]))
    if weights.requires_grad or not (wanted and torch.is_grad_enabled()):
        terms = log_conditionals(
            x, parameters, family, activation, order, scale_mean_gradient=scale_mean_gradient
        )
        return (weights * terms.sum(-1)).sum(-1)
    setting = Setting(family, activation, order, parameters.log_floor, scale_mean_gradient)
    value: Tensor = _WeightedLogLikelihood.apply(setting, weights, x, *parameters[:5])  # type: ignore[no-untyped-call]
    return value


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
) -> Float[Tensor, "M n D"]:
    """Exact draws, one dimension after the other, in O(DH) a row.

    The numbers depend on the generator alone, not on the threads. Draws truncated to a range are
    left to the vectorised backend.
    """
    if low is not None or high is not None:
        return vectorised.sample(
            n, parameters, family, activation, order, generator=generator, low=low, high=high
        )
    setting = Setting(family, activation, order, parameters.log_floor, False)
    with torch.no_grad():
        W = parameters.W
        M, D = W.shape[:2]
        problem = Problem(setting, W.new_empty(1, 0, D), *parameters[:5], padded=n >= PADDED_ROWS)
        x = W.new_empty(M, n, D)
        rows = max(1, MOST_ELEMENTS // (M * D))
        for start in range(0, n, rows):
            launch.sample_into(problem, x[:, start : start + rows], generator)
    return x


class _LogConditionals(torch.autograd.Function):
    """Terms by `density`; the backward pass computes activations again."""

    @staticmethod
    def forward(ctx: Any, setting: Setting, x: Tensor, *parameters: Tensor) -> Tensor:
        ctx.setting = setting
        ctx.save_for_backward(x, *parameters)
        padded = x.shape[1] >= PADDED_ROWS
        return launch.density(Problem(setting, x, *parameters, padded=padded), x.detach())

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        needs = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled():
            return None, *_differentiable_gradient(ctx.setting, upstream, ctx.saved_tensors, needs)
        return None, *launch.gradient(ctx.setting, upstream, ctx.saved_tensors, needs)[1]


class _WeightedLogLikelihood(torch.autograd.Function):
    """Value and gradient in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any, setting: Setting, weights: Tensor, x: Tensor, *parameters: Tensor
    ) -> Tensor:
        ctx.setting = setting
        ctx.save_for_backward(weights, x, *parameters)
        needs = ctx.needs_input_grad[2:]
        value, ctx.gradients = launch.gradient(
            setting, weights.unsqueeze(2), (x, *parameters), needs
        )
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        weights, *tensors = ctx.saved_tensors
        setting, needs = ctx.setting, ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():
            above = (upstream[:, None] * weights)[:, :, None].expand_as(tensors[0])
            return None, None, *_differentiable_gradient(setting, above, tensors, needs)
        # Handed over and forgotten, so that autograd can keep these tensors as .grad without a
        # copy. A second backward pass through the same graph computes them again.
        found, ctx.gradients = ctx.gradients, None
        if found is None:
            _, found = launch.gradient(setting, weights[:, :, None], tensors, needs)
        if any(factor != 1 for factor in upstream.tolist()):
            for t in found:
                if t is not None:
                    t.mul_(upstream.view(-1, *[1] * (t.ndim - 1)))
        return None, None, *found


def _differentiable_gradient(
    setting: Setting, upstream: Tensor, tensors: Sequence[Tensor], needs: Sequence[bool]
) -> list[Tensor | None]:
    """Gradients of x, W, c, rho, V and b that can be differentiated again, by plain torch."""
    x, W, c, rho, V, b = tensors
    terms = vectorised.log_conditionals(
        x,
        Parameters(W, c, rho, V, b, setting.log_floor),
        setting.family,
        setting.activation,
        setting.order,
        scale_mean_gradient=setting.scale_mean_gradient,
    )
    wanted = [t for t, need in zip(tensors, needs, strict=True) if need]
    found = iter(torch.autograd.grad(terms, wanted, upstream, create_graph=True))
    return [next(found) if need else None for need in needs]
