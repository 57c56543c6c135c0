"""Judge gradients and update parameters of M models on the CPU by fused numba kernels.

Models are shared out over the kernels' threads, and a model that is alone in pieces. In plain
torch an update of a small model took longer than its gradient: a dozen passes over each tensor,
each with a new tensor for its result.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from rnade.backends.cpu import threads as workers
from rnade.backends.threads import kernel_threads
from rnade.training.optim.forms import BETA_1, BETA_2, EPSILON, Counts, Rule, Step, Verdict

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
    gradients: Sequence[Tensor], loss: Float[Tensor, " M"], counts: Counts, clip_norm: float | None
) -> Verdict:
    """Factors that clip the gradients, and which models can use theirs; moves the counts on."""
    arrays = [_by_model(g) for g in gradients]
    shares = _shares(arrays)
    squares = np.zeros((shares[0].pieces, len(loss)))

    def task(share: _Share) -> None:
        for g in arrays:
            _kernels().add_squares(share.of(g), squares[share.piece], share.low, share.high)

    _do(task, shares)
    return counts.judge(torch.from_numpy(np.sqrt(squares.sum(0))), loss, clip_norm)


def update(rule: Rule, gradients: Sequence[Tensor], step: Step) -> None:
    """Update parameters in place, with what the rule remembers, and averages if there are any."""
    kernels = _kernels()
    code = {"sgd": kernels.SGD, "momentum": kernels.MOMENTUM, "adam": kernels.ADAM}[rule.name]
    p, g = ([_by_model(t) for t in tensors] for tensors in (rule.parameters, gradients))
    first, second, average = (
        [_by_model(t) for t in tensors] or p
        for tensors in (rule.first, rule.second, rule.averages)
    )
    momentum = step.rate if rule.momentum is None else rule.momentum
    own = [t.numpy() for t in (step.rate, step.scale, step.usable, momentum)]
    kind = p[0].dtype.type
    changing = (*step.unbias.tolist(), step.forget.item())
    constants = tuple(kind(value) for value in (BETA_1, BETA_2, EPSILON, *changing))

    def task(share: _Share) -> None:
        for i, decay in enumerate(rule.decays):
            kernels.update(
                code,
                *(share.of(arrays[i]) for arrays in (p, g, first, second, average)),
                own[0] if decay is None else decay.numpy(),
                *own,
                constants,
                decay is not None,
                bool(rule.averages),
                share.low,
                share.high,
            )

    _do(task, _shares(p))


class _Share(NamedTuple):
    """What a thread takes: models `low` to `high`, or a piece of the only one."""

    low: int
    high: int
    piece: int = 0
    pieces: int = 1

    def of(self, array: Any) -> Any:
        """This piece of an array (M, n)."""
        n = array.shape[1]
        return array[:, self.piece * n // self.pieces : (self.piece + 1) * n // self.pieces]


def _shares(arrays: Sequence[Any]) -> list[_Share]:
    """Share the numbers of all models out over as many threads as are worth it."""
    M = len(arrays[0])
    threads = kernel_threads() if sum(a.size for a in arrays) >= SMALL else 1
    if M == 1:
        return [_Share(0, 1, i, threads) for i in range(threads)]
    threads = min(M, threads)
    return [_Share(i * M // threads, (i + 1) * M // threads) for i in range(threads)]


def _do(task: Callable[[_Share], None], shares: Sequence[_Share]) -> None:
    workers.run([functools.partial(task, share) for share in shares], len(shares))


def _by_model(t: Tensor) -> Any:
    """A tensor (M, ...) as an array (M, n) of the same numbers."""
    return t.detach().contiguous().numpy().reshape(len(t), -1)


def _kernels() -> Any:
    from rnade.training.optim import _cpu_kernels

    return _cpu_kernels
