"""Judge gradients and update parameters of M models in three launches of Triton kernels.

Like `launch`, this waits for nothing and imports Triton only at the first launch.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from rnade.backends.gpu.launch import current, has_triton, interpreting
from rnade.training.optim.forms import BETA_1, BETA_2, EPSILON, Counts, Rule, Step, Verdict

# Parameters that one update takes, and models: what CUDA allows along the second axis of a grid.
MOST_PARAMETERS = 7
MOST_MODELS = 65_535
# Elements that a program of an update takes, and those whose squares a program sums.
UPDATE_BLOCK = 1024
SQUARES_BLOCK = 4096


def serves(parameters: Sequence[Tensor]) -> bool:
    """Whether `judge` and `update` can take these parameters."""
    return (
        has_triton()
        and 1 <= len(parameters) <= MOST_PARAMETERS
        and len(parameters[0]) <= MOST_MODELS
        and all(t.dtype == torch.float32 and t.is_contiguous() for t in parameters)
        and all(t.device.type == "cuda" or interpreting() for t in parameters)
    )


def judge(
    gradients: Sequence[Tensor], loss: Float[Tensor, " M"], counts: Counts, clip_norm: float | None
) -> Verdict:
    """Factors that clip the gradients, and which models can use theirs; moves the counts on."""
    gradients = _by_model(gradients)
    M = len(loss)
    cut = _Cut.of(gradients, SQUARES_BLOCK)
    parts = loss.new_empty(M, cut.firsts[-1])
    scale, usable = torch.empty_like(loss), torch.empty_like(counts.active)
    with current(loss.device):
        _kernels().squares_kernel[(cut.firsts[-1], M)](
            tuple(gradients),
            cut.sizes,
            cut.strides,
            cut.firsts,
            parts,
            N=len(gradients),
            BLOCK=SQUARES_BLOCK,
            num_warps=4,
        )
        _kernels().verdict_kernel[(M,)](
            parts,
            loss,
            counts.active.view(torch.uint8),
            0.0 if clip_norm is None else float(clip_norm),
            scale,
            usable.view(torch.uint8),
            *counts[1:],
            parts.shape[1],
            CLIPPED=clip_norm is not None,
            BLOCK=128,
            num_warps=1,
        )
    return scale, usable


def update(rule: Rule, gradients: Sequence[Tensor], step: Step) -> None:
    """Update up to 7 parameters in place, with what the rule remembers, and averages if any."""
    gradients = _by_model(gradients)
    cut = _Cut.of(gradients, UPDATE_BLOCK)
    rate = step.rate
    none = [rate] * len(gradients)
    with current(rate.device):
        _kernels().update_kernel[(cut.firsts[-1], len(rate))](
            tuple(rule.parameters),
            tuple(gradients),
            tuple(rule.first or none),
            tuple(rule.second or none),
            tuple(rule.averages or none),
            tuple(rate if decay is None else decay for decay in rule.decays),
            cut.sizes,
            cut.strides,
            cut.firsts,
            rate,
            step.scale,
            step.usable.view(torch.uint8),
            rate if rule.momentum is None else rule.momentum,
            step.unbias,
            step.forget,
            N=len(gradients),
            RULE=rule.name,
            DECAYED=tuple(decay is not None for decay in rule.decays),
            AVERAGED=bool(rule.averages),
            BETA_1=BETA_1,
            BETA_2=BETA_2,
            EPSILON=EPSILON,
            BLOCK=UPDATE_BLOCK,
            num_warps=4,
        )


class _Cut(NamedTuple):
    """How gradients are cut into programs."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    firsts: tuple[int, ...]

    @staticmethod
    def of(gradients: Sequence[Tensor], block: int) -> "_Cut":
        sizes = [g[0].numel() for g in gradients]
        firsts = itertools.accumulate((-(-n // block) for n in sizes), initial=0)
        return _Cut(tuple(sizes), tuple(g.stride(0) for g in gradients), tuple(firsts))


def _by_model(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Gradients whose models may be apart, but each of which is contiguous."""
    return [g if g[0].is_contiguous() else g.contiguous() for g in gradients]


@functools.cache
def _kernels() -> Any:
    from rnade.training.optim import _gpu_kernels

    return _gpu_kernels
