"""Densities, gradients and draws on the CPU by fused numba kernels.

The same functions as `vectorised`, without its tensors of size M x D x B x H. Derivatives with
respect to x and to every parameter but `log_floor` go through torch.autograd; where a graph of
them is asked for, to differentiate again, they are left to `vectorised`.
`weighted_log_likelihood` computes value and gradient in one pass, so that a training step costs
three matrix products a dimension and nothing is computed twice.

The work is spread over `torch.get_num_threads()` threads (see `backends.threads` and `threads`).
Kernels are compiled when first used, each in a second or less, and kept on disk.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from rnade.backends import vectorised
from rnade.backends.cpu import hidden, launch
from rnade.backends.cpu.families import KERNELS
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec
from rnade.batch import Batch


def supports(parameters: Parameters, spec: Spec) -> str | None:
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
    if spec.family.name not in KERNELS:
        return f"there is no CPU kernel for the family {spec.family.name!r}"
    if spec.activation not in hidden.CODES:
        return f"there is no CPU kernel for the activation {spec.activation!r}"
    return None


def log_conditionals(batch: Batch, parameters: Parameters, spec: Spec) -> Float[Tensor, "M B D"]:
    """The D terms log p(x_d | x_<d) of each row, laid out by dimension whatever the order."""
    if not parameters.wants_gradient(batch.x):
        return launch.density(batch, parameters, spec)
    terms: Tensor = _Differentiable.apply(spec, batch.order, None, batch.x, *parameters)  # type: ignore[no-untyped-call]
    return terms


def log_prob(batch: Batch, parameters: Parameters, spec: Spec) -> Float[Tensor, "M B"]:
    """Log density of each row in nats: the sum of `log_conditionals`."""
    return log_conditionals(batch, parameters, spec).sum(-1)


def weighted_log_likelihood(
    batch: Batch, parameters: Parameters, spec: Spec
) -> Float[Tensor, " M"]:
    """Sum over rows of weight times log density, for each model; weights may be of cells.

    The gradient is computed along with the value, and the backward pass multiplies it by what
    comes from above, unless that is 1: put signs and factors into the weights.
    """
    x, weights, _, order = batch
    if weights is None:
        weights = x.new_ones(x.shape[:2])
    if weights.requires_grad or not parameters.wants_gradient(x):
        return vectorised.weighted_sum(log_conditionals(batch, parameters, spec), weights)
    value: Tensor = _Differentiable.apply(spec, order, weights, x, *parameters)  # type: ignore[no-untyped-call]
    return value


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
    """Exact draws, one dimension after the other, in O(DH) a row.

    The numbers depend on the generator alone, not on the threads. Draws truncated to a range are
    left to the vectorised backend.
    """
    if low is not None or high is not None:
        return vectorised.sample(
            n, parameters, spec, order=order, generator=generator, low=low, high=high
        )
    return launch.sample(n, parameters, spec, order, generator)


class _Differentiable(torch.autograd.Function):
    """Terms (M, B, D); with weights their weighted sum (M,), whose gradient comes along."""

    @staticmethod
    def forward(
        ctx: Any,
        spec: Spec,
        order: Tensor | None,
        weights: Tensor | None,
        x: Tensor,
        *given: Tensor,
    ) -> Tensor:
        batch, parameters = Batch(x, weights, None, order), Parameters(*given)
        ctx.spec, ctx.gradients = spec, None
        ctx.save_for_backward(order, weights, x, *given)
        if weights is None:
            return launch.density(batch, parameters, spec)
        needs = ctx.needs_input_grad[3:]
        value, ctx.gradients = launch.gradient(batch, parameters, spec, needs)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        # Handed over and forgotten, so that autograd can keep these tensors as .grad without a
        # copy. A second backward pass through the same graph computes them again.
        found, ctx.gradients = ctx.gradients, None
        if found is None or torch.is_grad_enabled():
            order, weights, x, *given = ctx.saved_tensors
            if weights is not None:
                upstream = upstream.view(-1, *[1] * (weights.ndim - 1)) * weights
            batch, needs = Batch(x, upstream, None, order), ctx.needs_input_grad[3:]
            found = _gradient(batch, Parameters(*given), ctx.spec, needs)
        elif any(factor != 1 for factor in upstream.tolist()):
            for t in found:
                if t is not None:
                    t.mul_(upstream.view(-1, *[1] * (t.ndim - 1)))
        return None, None, None, *found


def _gradient(
    batch: Batch, parameters: Parameters, spec: Spec, needs: Sequence[bool]
) -> list[Tensor | None]:
    """Gradients of x and the parameters; by plain torch if they are to be differentiated again."""
    if not torch.is_grad_enabled():
        return launch.gradient(batch, parameters, spec, needs)[1]
    total = vectorised.weighted_log_likelihood(batch, parameters, spec).sum()
    wanted = [t for t, need in zip((batch.x, *parameters), needs, strict=True) if need]
    found = iter(torch.autograd.grad(total, wanted, create_graph=True))  # type: ignore[arg-type]
    return [next(found) if need else None for need in needs]
