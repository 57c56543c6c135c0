"""Launches of the CPU kernels: how work is cut into tasks, what is allocated around them.

A step of training on a small model takes a few tenths of a millisecond, and each operation of
torch some microseconds, more where the step before has driven its code out of the caches. So the
gradient's kernels are given addresses and sizes, and tensors are made only for what is returned.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from rnade.backends.cpu import density as density_kernels
from rnade.backends.cpu import gradient as gradient_kernels
from rnade.backends.cpu import hidden, memory, products
from rnade.backends.cpu import threads as workers
from rnade.backends.cpu.calls import NARROW
from rnade.backends.cpu.families import FLOOR, GRADIENT, SCALE_MEAN, draw_address, epilogue_address
from rnade.backends.cpu.gradient import WANT_HIDDEN, WANT_V, WANT_X
from rnade.backends.cpu.lanes import LANES
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Activation, Spec
from rnade.backends.threads import kernel_threads
from rnade.batch import Batch
from rnade.chunks import rows_at_a_time

# Numbers in one of the matrices (rows, H) that a kernel keeps in cache; it keeps four or five.
# 2**15 of them in float32 are 128 KiB, so that all fit a second-level cache of one megabyte beside
# the V_d of a dimension.
BLOCK_ELEMENTS = 2**15
MOST_BLOCK_ROWS = 256
# Rows from which a density or a draw takes a copy of V whose columns are padded to whole vectors.
# Gradients were measured to be slower with it.
PADDED_ROWS = 1024
# Multiplications below which a second thread costs more than it saves.
SMALL = 3_000_000


class Problem:
    """Tensors and codes as the kernels take them; nothing is copied that need not be."""

    def __init__(
        self, batch: Batch, parameters: Parameters, spec: Spec, *, padded: bool = False
    ) -> None:
        x, order = batch.x, batch.order
        W, c, rho, V, b, log_floor, _, _ = parameters
        self.dtype = W.dtype
        if any(t.dtype != W.dtype for t in (c, rho, V, b)):
            raise TypeError(
                "Expected parameters of one dtype; got "
                + ", ".join(str(t.dtype) for t in (W, c, rho, V, b))
                + ". Convert them to that of W."
            )
        self.family = spec.family
        # One set of rows for all models is passed as one.
        self.x = _converted(_one_for_all(x), W.dtype)
        self.order = _identity(x.shape[2]) if order is None else _contiguous(order.long())
        # The products over earlier dimensions need the rows of W in order. V stays where it is.
        self.W = _contiguous(W if order is None else torch.take_along_dim(W, order[:, :, None], 1))
        self.c, self.rho, self.b = _contiguous(c), _contiguous(rho), _contiguous(b)
        self.V = _contiguous(_padded(V.detach()) if padded else V)
        self.log_floor = self.rho if log_floor is None else _converted(log_floor, W.dtype)
        self.flags = (0 if log_floor is None else FLOOR) | (
            SCALE_MEAN if spec.scale_mean_gradient else 0
        )
        self.activation = spec.activation
        sizes: tuple[int, ...] = V.shape
        self.models, self.dimensions, self.hidden, self.outputs = sizes

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """Tensors in the order in which the kernels take them."""
        return self.order, self.W, self.c, self.rho, self.V, self.b, self.log_floor

    def addresses(self) -> tuple[int, ...]:
        """Where the parameters lie. Addresses keep nothing alive: tasks hold the tensors."""
        return tuple([t.data_ptr() for t in self.parameters])

    def sizes(self, *more: int) -> tuple[int, ...]:
        """What the kernels call sizes, with some of the kernel's own at the end."""
        return *self.V.shape[1:3], self.outputs, self.V.shape[3], self.order.shape[0], *more

    def functions(
        self, last_step: Callable[[str, Any], int], *, back: bool = False
    ) -> tuple[int, ...]:
        """Addresses that the kernels call, with the epilogue or draw that `last_step` gives.

        What only the way back calls is compiled only for it, and else 0.
        """
        kind = _kind(self.dtype)
        gemm = workers.gemm_address(kind)
        narrow = products.narrow_pays(self.outputs)
        return _addresses(gemm, narrow, last_step, self.family.name, self.activation, kind, back)

    def workspace(self, size: Any, *more: int) -> Any:
        """Room for a kernel, as much as its function `size` says."""
        sizes = (self.dimensions, self.hidden, self.outputs, *more)
        return memory.workspace(size(*sizes), self.dtype)

    def threads(self, rows: int) -> int:
        """How many threads are worth it for so many rows."""
        multiplications = self.models * rows * self.dimensions * self.hidden * self.outputs
        return 1 if multiplications < SMALL else kernel_threads()

    def by_rows(
        self,
        kernel: Any,
        functions: tuple[int, ...],
        tensors: tuple[Tensor, ...],
        sizes: tuple[int, ...],
        stride: int,
        block: int,
    ) -> None:
        """Have a kernel fill the last tensor, (M, n, D), `stride` rows at a time, side by side."""
        n = tensors[-1].shape[1]
        arrays = tuple([t.data_ptr() for t in tensors])
        given = functions, self.addresses(), arrays, self.sizes(n, *sizes)

        def task(m: int, low: int) -> workers.Task:
            def compute(held: object = tensors) -> None:
                room = self.workspace(density_kernels.density_size, block)
                kernel(*given, room, self.flags, m, low, min(low + stride, n))

            return compute

        tasks = [task(m, low) for m in range(self.models) for low in range(0, n, stride)]
        workers.run(tasks, self.threads(n))

    def block(self, rows: int) -> int:
        """Rows in a block, the same whatever the number of threads."""
        fitting = BLOCK_ELEMENTS // self.hidden // 16 * 16
        return min(max(fitting, 16), MOST_BLOCK_ROWS, max(rows, 1))


@cache
def _kind(dtype: torch.dtype) -> np.dtype[Any]:
    return np.dtype(str(dtype).removeprefix("torch."))


@cache
def _addresses(
    gemm: int,
    narrow: bool,
    last_step: Callable[[str, Any], int],
    family: str,
    activation: Activation,
    kind: np.dtype[Any],
    back: bool,
) -> tuple[int, ...]:
    return (
        gemm,
        products.narrow_address(kind) if narrow else 0,
        products.turn_address(kind) if back else 0,
        last_step(family, kind),
        hidden.advance_address(activation, kind),
        hidden.retreat_address(activation, kind) if back else 0,
    )


def _padded(V: Tensor) -> Tensor:
    """V with columns of zeros added, up to a multiple of 16; or V, if few would be filled.

    What they hold is ignored, but subnormal numbers, which unwritten memory may hold, are slow to
    multiply.
    """
    P = V.shape[3]
    if P % LANES == 0 or P <= LANES // 2:
        return V
    wide = memory.room((*V.shape[:3], -(-P // LANES) * LANES), V.dtype)
    wide[..., :P] = V
    wide[..., P:] = 0
    return wide


def _contiguous(t: Tensor) -> Tensor:
    return t if t.is_contiguous() else t.contiguous()


def _converted(t: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor, contiguous and of that dtype; no operation of torch where it is so already."""
    return _contiguous(t if t.dtype == dtype else t.to(dtype))


def _one_for_all(t: Tensor) -> Tensor:
    """A tensor (M, ...) that is the same for all models as one of (1, ...)."""
    return t[:1] if t.stride(0) == 0 else t


@cache
def _identity(D: int) -> Tensor:
    return torch.arange(D)[None]


def density(batch: Batch, parameters: Parameters, spec: Spec) -> Tensor:
    """The terms (M, B, D)."""
    B = batch.x.shape[1]
    problem = Problem(batch, parameters, spec, padded=B >= PADDED_ROWS)
    terms = torch.empty(problem.models, B, problem.dimensions, dtype=problem.dtype)
    if terms.numel() == 0:
        return terms.to(batch.x.dtype)
    # Small enough for eight threads to share, and the same whatever their number.
    block = min(problem.block(B), max(16, -(-B // 8 // 16) * 16))
    stride = max(block, -(-B // (8 * problem.threads(B)) // block) * block)
    functions, sizes = problem.functions(epilogue_address), (problem.x.shape[0], block)
    problem.by_rows(density_kernels.density, functions, (problem.x, terms), sizes, stride, block)
    return terms.to(batch.x.dtype)


def gradient(
    batch: Batch, parameters: Parameters, spec: Spec, needs: Sequence[bool]
) -> tuple[Tensor, list[Tensor | None]]:
    """Sum of the batch's weights, of rows or cells, times the terms, and its gradients.

    `needs` says of x and of each of the parameters whether a gradient is wanted; the gradients
    come in the same order, with None for the others.
    """
    want_x, *others = needs
    wanted: Any = Parameters(*others)  # type: ignore[arg-type]
    B = batch.x.shape[1]
    problem = Problem(batch, parameters, spec)
    M, D, H, P = problem.models, problem.dimensions, problem.hidden, problem.outputs
    dtype = problem.dtype
    want_V, want_hidden = wanted.V, wanted.W or wanted.c or wanted.rho
    want = WANT_V * want_V | WANT_X * want_x | WANT_HIDDEN * want_hidden
    threads = problem.threads(B)
    chunks = max(1, min(D, -(-threads // M)))
    block = problem.block(B)
    most = max(block, rows_at_a_time(M * chunks * H) // block * block) if chunks > 1 else B
    functions = problem.functions(epilogue_address, back=True)
    several = want_V and B >= 2 * block and P > 1 and functions[NARROW] == 0

    # Without rows no kernel runs.
    make, make_like = (torch.empty, torch.empty_like) if B else (torch.zeros, torch.zeros_like)
    total = make(M, dtype=dtype)
    dW, dc, drho, db = map(make_like, (problem.W, problem.c, problem.rho, problem.b))
    dV = memory.room((M, D, H, P), dtype) if want_V else None
    dx = torch.empty(M, B, D, dtype=dtype) if want_x else None
    carried = memory.room((M, chunks, min(most, B), H), dtype) if chunks > 1 else None
    turned = memory.room((M, D, P, H), dtype) if several else None
    if B == 0 and dV is not None:
        dV.zero_()
    assert batch.weights is not None
    weights = batch.weights if batch.weights.ndim == 3 else batch.weights.unsqueeze(2)
    given = _converted(_one_for_all(weights), dtype)
    held = (problem.x, given, dW, dc, drho, dV, db, dx, turned, carried, total)
    arrays = tuple([0 if t is None else t.data_ptr() for t in held])
    addresses, x_models = problem.addresses(), problem.x.shape[0]
    sizes = problem.sizes(B, x_models, *given.shape[::2], chunks, min(most, B), int(several))

    values, ended = [[0.0] * chunks for _ in range(M)], [count(1) for _ in range(M)]
    for low in range(0, B, max(most, 1)):
        high = min(low + most, B)

        def task(m: int, chunk: int, low: int = low, high: int = high) -> workers.Task:
            def compute(held: object = (problem, held)) -> None:
                values[m][chunk] += gradient_kernels.gradient(
                    functions,
                    addresses,
                    arrays,
                    sizes,
                    problem.workspace(gradient_kernels.gradient_size, block, chunks),
                    problem.flags | GRADIENT,
                    want,
                    m,
                    low,
                    high,
                    block,
                    chunk,
                )
                if chunks > 1 and next(ended[m]) % chunks == 0:  # the model's last chunk
                    size = gradient_kernels.join_size(D, H, high - low)
                    work, value = memory.workspace(size, dtype), sum(values[m])
                    gradient_kernels.join(
                        functions, addresses, arrays, sizes, work, want, m, low, high, value
                    )

            return compute

        workers.run([task(m, j) for m in range(M) for j in range(chunks)], threads)

    if batch.order is not None and wanted.W:
        dW = torch.empty_like(dW).scatter_(1, batch.order.long()[:, :, None].expand_as(dW), dW)
    found = (dx, *Parameters(dW, dc, drho, dV, db))  # type: ignore[arg-type]
    return total, [t if need else None for t, need in zip(found, needs, strict=True)]


def sample(
    n: int, parameters: Parameters, spec: Spec, order: Tensor | None, generator: Generator
) -> Tensor:
    """Draws of shape (M, n, D)."""
    M, D, _ = parameters.W.shape
    no_rows = Batch(parameters.W.new_empty(1, 0, D), order=order)
    problem = Problem(no_rows, parameters, spec, padded=n >= PADDED_ROWS)
    x = parameters.W.new_empty(M, n, D)
    size = rows_at_a_time(M * D)
    for start in range(0, n, size):
        _sample_into(problem, x[:, start : start + size], generator)
    return x


def _sample_into(problem: Problem, x: Tensor, generator: Generator) -> None:
    """Fill x, (M, n, D), with draws."""
    uniform = torch.rand(x.shape, dtype=x.dtype, generator=generator)
    noise = problem.family.noise(x, generator)
    noise = uniform if noise is None else noise
    block = min(problem.block(x.shape[1]), 64)
    functions, sizes = problem.functions(draw_address), (x.stride(0),)
    problem.by_rows(density_kernels.sample, functions, (uniform, noise, x), sizes, block, block)
