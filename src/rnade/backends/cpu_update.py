"""Judge gradients and update parameters of M models on the CPU by fused numba kernels.

Models are shared out over the kernels' threads. In plain torch an update of a small model took
longer than its gradient: a dozen passes over each tensor, each with a new tensor for its result.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from rnade.backends import _cpu_threads
from rnade.backends.threads import kernel_threads
from rnade.backends.updates import Counts, Rule

# Numbers of all models together below which a second thread costs more than it saves.
SMALL = 200_000


def serves(parameters: Sequence[Tensor]) -> bool:
    """Whether `judge` and `update` can take these parameters."""
    return all(
        t.device.type == "cpu"
        and t.dtype in (torch.float32, torch.float64)
        and t.dtype == parameters[0].dtype
        and t.is_contiguous()
        and t.numel() > 0
        for t in parameters
    )


def judge(
    gradients: Sequence[Tensor],
    loss: Float[Tensor, " M"],
    counts: Counts,
    clip_norm: float | None,
) -> tuple[Float[Tensor, " M"], Bool[Tensor, " M"]]:
    """Factors that clip the gradients, and which models can use theirs; moves the counts on."""
    arrays = [_by_model(g) for g in gradients]
    squares = np.zeros(len(loss))

    def task(low: int, high: int) -> None:
        for g in arrays:
            _kernels().add_squares(g, squares, low, high)

    _share_out(task, arrays)
    norms = np.sqrt(squares)
    finite = torch.from_numpy(np.isfinite(norms)) & torch.isfinite(loss)
    failed = counts.active & ~finite
    counts.skipped.add_(failed)
    counts.in_a_row.add_(1).mul_(failed)
    counts.log_likelihood.sub_(torch.where(finite, loss, 0.0))
    counts.counted.add_(finite)
    scale = torch.ones_like(loss)
    if clip_norm is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            factors = np.minimum(clip_norm / norms, 1.0)
        scale = torch.from_numpy(factors).to(loss.dtype)
    return scale, finite & counts.active


def update(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    rule: Rule,
    decays: Sequence[Tensor | None],
    averages: Sequence[Tensor],
    *,
    rate: Float[Tensor, " M"],
    scale: Float[Tensor, " M"],
    usable: Bool[Tensor, " M"],
    unbias: Float[Tensor, " 2"],
    forget: Shaped[Tensor, ""],
) -> None:
    """Update parameters in place, with what the rule remembers, and averages if there are any."""
    kernels = _kernels()
    code = {"sgd": kernels.SGD, "momentum": kernels.MOMENTUM, "adam": kernels.ADAM}[rule.name]
    p, g = [_by_model(t) for t in parameters], [_by_model(t) for t in gradients]
    first, second, average = (
        [_by_model(t) for t in tensors] or p for tensors in (rule.first, rule.second, averages)
    )
    own = [
        t.numpy() for t in (rate, scale, usable, rate if rule.momentum is None else rule.momentum)
    ]
    kind = p[0].dtype.type
    constants = tuple(kind(value) for value in (*rule.constants, *unbias.tolist(), forget.item()))

    def task(low: int, high: int) -> None:
        for i, decay in enumerate(decays):
            kernels.update(
                code,
                p[i],
                g[i],
                first[i],
                second[i],
                average[i],
                own[0] if decay is None else decay.numpy(),
                *own,
                constants,
                decay is not None,
                bool(averages),
                low,
                high,
            )

    _share_out(task, p)


def _share_out(task: Callable[[int, int], None], arrays: Sequence[Any]) -> None:
    """Run a task on ranges of models, on as many threads as are worth it."""
    M = len(arrays[0])
    threads = min(M, kernel_threads()) if sum(a.size for a in arrays) >= SMALL else 1
    cuts = [i * M // threads for i in range(threads + 1)]

    def piece(i: int) -> _cpu_threads.Task:
        return lambda: task(cuts[i], cuts[i + 1])

    _cpu_threads.run([piece(i) for i in range(threads)], threads)


def _by_model(t: Tensor) -> Any:
    """A tensor (M, ...) as an array (M, n) of the same numbers."""
    return t.detach().contiguous().numpy().reshape(len(t), -1)


def _kernels() -> Any:
    from rnade.backends import _cpu_update

    return _cpu_update
