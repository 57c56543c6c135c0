"""Densities, gradients and draws on the CPU by fused numba kernels.

The same functions as `vectorised`, without its tensors of size M x D x B x H. Derivatives with
respect to x and to every parameter but `log_floor` go through torch.autograd; where a graph of
them is asked for, to differentiate again, they are left to `vectorised`.
`weighted_log_likelihood` computes value and gradient in one pass, so that a training step costs
three matrix products a dimension and nothing is computed twice.

The work is spread over `torch.get_num_threads()` threads (see `threads` and `_cpu_threads`).
Kernels are compiled when first used, one to three seconds for each, and kept on disk.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from rnade.backends import (
    _cpu_gradient,
    _cpu_hidden,
    _cpu_kernels,
    _cpu_memory,
    _cpu_threads,
    vectorised,
)
from rnade.backends._cpu_epilogues import (
    FAMILIES,
    FLOOR,
    GRADIENT,
    SCALE_MEAN,
    draw_address,
    epilogue_address,
)
from rnade.backends._cpu_gradient import WANT_HIDDEN, WANT_V, WANT_X
from rnade.backends._cpu_lanes import LANES
from rnade.backends.parameters import Activation, Parameters
from rnade.backends.threads import kernel_threads
from rnade.families.base import AbstractFamily
from rnade.families.mixture import AbstractMixture

# Numbers in one of the matrices (rows, H) that a kernel keeps in cache; it keeps four or five.
# 2**15 of them in float32 are 128 KiB, so that all fit a second-level cache of one megabyte beside
# the V_d of a dimension.
BLOCK_ELEMENTS = 2**15
MOST_BLOCK_ROWS = 256
# Numbers that a gradient may keep for joining chunks of dimensions, and random numbers that a
# draw may hold at a time: 64 MiB in float32.
MOST_ELEMENTS = 2**24
# Rows from which a density or a draw takes a copy of V whose columns are padded to whole vectors.
# Gradients were measured to be slower with it.
PADDED_ROWS = 1024
# Multiplications below which a second thread costs more than it saves.
SMALL = 3_000_000


def supports(parameters: Parameters, family: AbstractFamily, activation: Activation) -> str | None:
    """Say in plain words why these cannot be computed here, or None if they can."""
    if parameters.W.device.type != "cpu":
        return f"the parameters are on {parameters.W.device}, not on the CPU"
    if parameters.W.dtype not in (torch.float32, torch.float64):
        return f"the parameters are {parameters.W.dtype}, neither float32 nor float64"
    if any(t is not None and t.dtype != parameters.W.dtype for t in parameters):
        return "the parameters differ in dtype"
    if parameters.U is not None:
        return "the CPU kernels have one hidden layer and this network has more"
    if family.name not in FAMILIES:
        return f"there is no CPU kernel for the family {family.name!r}"
    if activation not in _cpu_hidden.CODES:
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
    setting = _Setting(family, activation, order, parameters.log_floor, scale_mean_gradient)
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
    setting = _Setting(family, activation, order, parameters.log_floor, scale_mean_gradient)
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
    setting = _Setting(family, activation, order, parameters.log_floor, False)
    with torch.no_grad():
        W = parameters.W
        M, D = W.shape[:2]
        problem = _Problem(setting, W.new_empty(1, 0, D), *parameters[:5], padded=n >= PADDED_ROWS)
        x = W.new_empty(M, n, D)
        rows = max(1, MOST_ELEMENTS // (M * D))
        for start in range(0, n, rows):
            _sample_into(problem, x[:, start : start + rows], generator)
    return x


@dataclass(frozen=True)
class _Setting:
    """What a computation depends on besides the tensors that have gradients."""

    family: AbstractFamily
    activation: Activation
    order: Tensor | None
    log_floor: Tensor | None
    scale_mean_gradient: bool


class _Problem:
    """Arrays and codes as the kernels take them; nothing is copied that need not be."""

    def __init__(
        self,
        setting: _Setting,
        x: Tensor,
        W: Tensor,
        c: Tensor,
        rho: Tensor,
        V: Tensor,
        b: Tensor,
        *,
        padded: bool = False,
    ) -> None:
        self.dtype = W.dtype
        self.family = setting.family
        # One set of rows for all models is passed as one.
        self.x = _array(x[:1] if x.stride(0) == 0 else x)
        order = setting.order
        self.order = _identity(x.shape[2]) if order is None else _array(order.long())
        # The products over earlier dimensions need the rows of W in order. V stays where it is.
        self.W = _array(W if order is None else torch.take_along_dim(W, order[:, :, None], 1))
        self.c, self.rho, self.b = _array(c), _array(rho), _array(b)
        self.V = _array(_padded(V.detach()) if padded else V)
        floor = setting.log_floor
        self.log_floor = self.rho if floor is None else _array(floor.to(self.dtype))
        self.flags = (0 if floor is None else FLOOR) | (
            SCALE_MEAN if setting.scale_mean_gradient else 0
        )
        self.activation = _cpu_hidden.CODES[setting.activation]
        sizes: tuple[int, ...] = V.shape
        self.models, self.dimensions, self.hidden, self.outputs = sizes

    @property
    def parameters(self) -> tuple[Any, ...]:
        return self.order, self.W, self.c, self.rho, self.V, self.b, self.log_floor

    def functions(self, last_step: Callable[[str, Any], int]) -> tuple[int, int, int, int]:
        """Addresses that the kernels call, with the epilogue or draw that `last_step` gives."""
        return _addresses(
            _cpu_threads.gemm_address(self.V.dtype), last_step, self.family.name, self.V.dtype
        )

    def workspace(self, size: Any, *more: int) -> Any:
        """Room for a kernel, as much as its function `size` says."""
        sizes = (self.dimensions, self.hidden, self.outputs, *more)
        return _cpu_memory.workspace(size(*sizes), self.dtype)

    def threads(self, rows: int) -> int:
        multiplications = self.models * rows * self.dimensions * self.hidden * self.outputs
        return 1 if multiplications < SMALL else kernel_threads()

    def block(self, rows: int) -> int:
        """Rows in a block, the same whatever the number of threads."""
        fitting = BLOCK_ELEMENTS // self.hidden // 16 * 16
        return min(max(fitting, 16), MOST_BLOCK_ROWS, max(rows, 1))


@cache
def _addresses(
    gemm: int, last_step: Callable[[str, Any], int], family: str, dtype: Any
) -> tuple[int, int, int, int]:
    hidden = _cpu_hidden.advance_address(dtype), _cpu_hidden.retreat_address(dtype)
    return gemm, last_step(family, dtype), *hidden


def _padded(V: Tensor) -> Tensor:
    """V with columns of zeros added, up to a multiple of 16; or V, if few would be filled.

    What they hold is ignored, but subnormal numbers, which unwritten memory may hold, are slow to
    multiply.
    """
    P = V.shape[3]
    if P % LANES == 0 or P <= LANES // 2:
        return V
    wide = _cpu_memory.room((*V.shape[:3], -(-P // LANES) * LANES), V.dtype)
    wide[..., :P] = V
    wide[..., P:] = 0
    return wide


def _array(t: Tensor) -> Any:
    return t.detach().contiguous().numpy()


@cache
def _identity(D: int) -> Any:
    return np.arange(D)[None]


@cache
def _unused(dtype: torch.dtype, n_axes: int) -> Tensor:
    """Stands in for an array that a kernel will not touch."""
    return torch.empty([0] * n_axes, dtype=dtype)


def _density(problem: _Problem, x: Tensor) -> Tensor:
    B = x.shape[1]
    terms = x.new_empty(problem.models, B, problem.dimensions)
    if terms.numel() == 0:
        return terms
    functions, out = problem.functions(epilogue_address), terms.numpy()
    threads = problem.threads(B)
    # Small enough for eight threads to share, and the same whatever their number.
    block = min(problem.block(B), max(16, -(-B // 8 // 16) * 16))
    stride = max(block, -(-B // (8 * threads) // block) * block)

    def task(m: int, low: int) -> _cpu_threads.Task:
        def compute() -> None:
            _cpu_kernels.density(
                functions,
                problem.x,
                *problem.parameters,
                out,
                problem.workspace(_cpu_kernels.density_size, block),
                problem.activation,
                problem.flags,
                m,
                low,
                min(low + stride, B),
                block,
            )

        return compute

    tasks = [task(m, low) for m in range(problem.models) for low in range(0, B, stride)]
    _cpu_threads.run(tasks, threads)
    return terms


def _gradient(
    setting: _Setting, weights: Tensor, tensors: Sequence[Tensor], needs: Sequence[bool]
) -> tuple[Tensor, list[Tensor | None]]:
    """Sum of `weights`, (M, B, D) or (M, B, 1), times the terms, and its gradients.

    `tensors` are x, W, c, rho, V and b, and `needs` says of which a gradient is wanted; for the
    others it is None.
    """
    x, *parameters = tensors
    W, c, rho, V, b = parameters
    B = x.shape[1]
    problem = _Problem(setting, x, *parameters)
    M, D, H, P = V.shape
    want_x, want_V, want_hidden = needs[0], needs[4], any(needs[1:4])
    want = WANT_V * want_V | WANT_X * want_x | WANT_HIDDEN * want_hidden

    dW, dc, drho, db = (
        torch.zeros_like(t, memory_format=torch.contiguous_format) for t in (W, c, rho, b)
    )
    dV = _cpu_memory.room(V.shape, W.dtype) if want_V else _unused(W.dtype, 4)
    dx = W.new_empty(M, B, D) if want_x else _unused(W.dtype, 3)
    threads = problem.threads(B)
    chunks = max(1, min(D, -(-threads // M)))
    block = problem.block(B)
    most = max(block, MOST_ELEMENTS // (M * chunks * H) // block * block) if chunks > 1 else B
    shape = M, chunks, min(most, B), H
    carried = (_cpu_memory.room(shape, W.dtype) if chunks > 1 else _unused(W.dtype, 4)).numpy()
    several = want_V and B >= 2 * block and P > 1
    turned = (_cpu_memory.room((M, D, P, H), W.dtype) if several else _unused(W.dtype, 4)).numpy()
    value = np.zeros((M, chunks))
    functions = problem.functions(epilogue_address)
    if B == 0 and want_V:
        dV.zero_()
    given = _array(weights[:1] if weights.stride(0) == 0 else weights)
    arrays = [t.numpy() for t in (dW, dc, drho, dV, db, dx)]

    for low in range(0, B, max(most, 1)):
        high = min(low + most, B)

        def task(m: int, chunk: int, low: int = low, high: int = high) -> _cpu_threads.Task:
            def compute() -> None:
                _cpu_gradient.gradient(
                    functions,
                    problem.x,
                    given,
                    *problem.parameters,
                    value,
                    *arrays,
                    turned,
                    carried,
                    problem.workspace(_cpu_gradient.gradient_size, block, chunks),
                    problem.activation,
                    problem.flags | GRADIENT,
                    want,
                    m,
                    low,
                    high,
                    block,
                    chunk,
                    chunks,
                )

            return compute

        def joining(m: int, low: int = low, high: int = high) -> _cpu_threads.Task:
            def compute() -> None:
                size = _cpu_gradient.join_size(D, H, high - low)
                _cpu_gradient.join(
                    functions,
                    problem.x,
                    problem.order,
                    problem.W,
                    arrays[0],
                    arrays[1],
                    arrays[5],
                    carried,
                    _cpu_memory.workspace(size, problem.dtype),
                    want,
                    m,
                    low,
                    high,
                )

            return compute

        _cpu_threads.run([task(m, j) for m in range(M) for j in range(chunks)], threads)
        if chunks > 1 and (want_hidden or want_x):
            _cpu_threads.run([joining(m) for m in range(M)], threads)

    if setting.order is not None and needs[1]:
        dW = torch.empty_like(dW).scatter_(1, setting.order.long()[:, :, None].expand_as(dW), dW)
    found = (dx, dW, dc, drho, dV, db)
    total = torch.from_numpy(value.sum(1)).to(W.dtype)
    return total, [t if need else None for t, need in zip(found, needs, strict=True)]


class _LogConditionals(torch.autograd.Function):
    """Terms by `density`; the backward pass computes activations again."""

    @staticmethod
    def forward(ctx: Any, setting: _Setting, x: Tensor, *parameters: Tensor) -> Tensor:
        ctx.setting = setting
        ctx.save_for_backward(x, *parameters)
        padded = x.shape[1] >= PADDED_ROWS
        return _density(_Problem(setting, x, *parameters, padded=padded), x.detach())

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        needs = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled():
            return None, *_differentiable_gradient(ctx.setting, upstream, ctx.saved_tensors, needs)
        return None, *_gradient(ctx.setting, upstream, ctx.saved_tensors, needs)[1]


class _WeightedLogLikelihood(torch.autograd.Function):
    """Value and gradient in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any, setting: _Setting, weights: Tensor, x: Tensor, *parameters: Tensor
    ) -> Tensor:
        ctx.setting = setting
        ctx.save_for_backward(weights, x, *parameters)
        needs = ctx.needs_input_grad[2:]
        value, ctx.gradients = _gradient(setting, weights[:, :, None], (x, *parameters), needs)
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
            _, found = _gradient(setting, weights[:, :, None], tensors, needs)
        if any(factor != 1 for factor in upstream.tolist()):
            for t in found:
                if t is not None:
                    t.mul_(upstream.view(-1, *[1] * (t.ndim - 1)))
        return None, None, *found


def _differentiable_gradient(
    setting: _Setting, upstream: Tensor, tensors: Sequence[Tensor], needs: Sequence[bool]
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


def _sample_into(problem: _Problem, x: Tensor, generator: Generator) -> None:
    """Fill x, (M, n, D), with draws."""
    uniform = torch.rand(x.shape, dtype=x.dtype, generator=generator)
    family = problem.family
    noise = family._draw_kernel(x, generator) if isinstance(family, AbstractMixture) else uniform
    n = x.shape[1]
    functions, out = problem.functions(draw_address), x.numpy()
    u, e = uniform.numpy(), noise.numpy()
    block = min(problem.block(n), 64)

    def task(m: int, low: int) -> _cpu_threads.Task:
        def compute() -> None:
            _cpu_kernels.sample(
                functions,
                u,
                e,
                *problem.parameters,
                out,
                problem.workspace(_cpu_kernels.density_size, block),
                problem.activation,
                problem.flags,
                m,
                low,
                min(low + block, n),
            )

        return compute

    tasks = [task(m, low) for m in range(problem.models) for low in range(0, n, block)]
    _cpu_threads.run(tasks, problem.threads(n))
