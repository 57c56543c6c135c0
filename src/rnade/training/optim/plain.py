"""Judge gradients and update parameters of M models in plain torch, on any device.

Nothing here looks at values on the device, so that an update can be captured in a CUDA graph.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from rnade.training.optim.forms import BETA_1, BETA_2, EPSILON, Counts, Rule, Step, Verdict


def serves(parameters: Sequence[Tensor]) -> bool:
    """Whether `judge` and `update` can take these parameters: any."""
    return True


def judge(
    gradients: Sequence[Tensor], loss: Float[Tensor, " M"], counts: Counts, clip_norm: float | None
) -> Verdict:
    """Factors that clip the gradients, and which models can use theirs; moves the counts on."""
    squares = [g.flatten(1).square().sum(1) for g in gradients]
    return counts.judge(torch.stack(squares).sum(0).sqrt(), loss, clip_norm)


def update(rule: Rule, gradients: Sequence[Tensor], step: Step) -> None:
    """Update parameters in place, with what the rule remembers, and averages if there are any."""
    for i, (p, g) in enumerate(zip(rule.parameters, gradients, strict=True)):
        decay = rule.decays[i]
        rate, usable = per_model(step.rate, p), per_model(step.usable, p)
        g = g * per_model(step.scale, p)
        decayed = 0.0 if decay is None else per_model(decay, p) * p
        if rule.name == "adam":
            mean, square = rule.first[i], rule.second[i]
            mean.copy_(torch.where(usable, mean.lerp(g, 1 - BETA_1), mean))
            square.copy_(torch.where(usable, BETA_2 * square + (1 - BETA_2) * g * g, square))
            size = (square / step.unbias[1]).sqrt_().add_(EPSILON)
            change = -rate * (mean / step.unbias[0] / size + decayed)
        elif rule.name == "momentum":
            assert rule.momentum is not None
            v = rule.first[i]
            moved = per_model(rule.momentum, v) * v - rate * (g + decayed)
            change = v.copy_(torch.where(usable, moved, v))
        else:
            change = -rate * (g + decayed)
        p.add_(torch.where(usable, change, 0.0))
    for mean, p in zip(rule.averages, rule.parameters, strict=False):
        mean.lerp_(p, step.forget)


def per_model(values: Shaped[Tensor, " M"], like: Tensor) -> Tensor:
    """Shape (M,) values so that they broadcast over the other axes of `like`."""
    return values.view(-1, *[1] * (like.ndim - 1))
