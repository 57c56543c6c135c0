"""What an update of M models is told, in the same form by plain torch and by the fused kernels.

`plain`, `cpu` and `gpu` are three modules with the same three functions: `serves` says whether it
can take some parameters, `judge` looks at gradients, `update` moves the weights. Every tensor has
the leading axis M. A model whose gradient is not usable is left as it is, bit for bit, and so is
what its optimiser remembers; its running average goes on.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

# Factors of the gradients of M models, and which of these are to move.
Verdict = tuple[Float[Tensor, " M"], Bool[Tensor, " M"]]

# Adam's decay of its mean and of its square, and what keeps it from dividing by 0.
BETA_1, BETA_2, EPSILON = 0.9, 0.99, 1e-8


class Counts(NamedTuple):
    """What became of the gradients so far, counted for each model.

    Attributes
    ----------
    active : Tensor of shape (M,)
        Whether a model still trains; read alone.
    skipped : Tensor of shape (M,)
        Updates without a finite gradient so far.
    in_a_row : Tensor of shape (M,)
        Those since the last good one.
    log_likelihood, counted : Tensor of shape (M,)
        Sum over the good updates of this epoch, and how many there were.
    """

    active: Bool[Tensor, " M"]
    skipped: Int[Tensor, " M"]
    in_a_row: Int[Tensor, " M"]
    log_likelihood: Float[Tensor, " M"]
    counted: Float[Tensor, " M"]

    @staticmethod
    def start(like: Float[Tensor, "M *rest"]) -> "Counts":
        """Nothing counted yet of models with such parameters."""
        active = torch.ones(len(like), dtype=torch.bool, device=like.device)
        none = torch.zeros_like(active, dtype=torch.int64)
        nothing = like.new_zeros(len(like))
        return Counts(active, none, none.clone(), nothing, nothing.clone())

    def judge(
        self, norms: Float[Tensor, " M"], loss: Float[Tensor, " M"], clip_norm: float | None
    ) -> Verdict:
        """Count one gradient of each model, of such a norm; give factors, and who is to move."""
        scale = torch.ones_like(loss)
        if clip_norm is not None:
            scale = (clip_norm / norms).clamp_max(1.0).to(loss.dtype)
        finite = torch.isfinite(norms) & torch.isfinite(loss)
        failed = self.active & ~finite
        self.skipped.add_(failed)
        self.in_a_row.add_(1).mul_(failed)
        self.log_likelihood.sub_(torch.where(finite, loss, 0.0))
        self.counted.add_(finite)
        return scale, finite & self.active


class Rule(NamedTuple):
    """A rule of update with the tensors that it moves.

    Attributes
    ----------
    name : "sgd", "momentum", "adam" or "muon"
        The kernels know the first three; of "muon" they are given the direction, as of "sgd".
    parameters : sequence of Tensor
    decays : sequence of Tensor of shape (M,), or None
        Weight decay of each parameter: decoupled in "adam", part of the gradient in the others.
    averages : sequence of Tensor
        Running averages of the parameters, or empty.
    first, second : sequence of Tensor
        Velocities, or Adam's means and squares; empty where the rule has none.
    momentum : Tensor of shape (M,), optional
        Of "momentum": v = momentum v - rate g.
    """

    name: str
    parameters: Sequence[Tensor]
    decays: Sequence[Tensor | None]
    averages: Sequence[Tensor] = ()
    first: Sequence[Tensor] = ()
    second: Sequence[Tensor] = ()
    momentum: Float[Tensor, " M"] | None = None


class Step(NamedTuple):
    """What changes from one update to the next: in tensors, so that it can be captured in a graph.

    Attributes
    ----------
    rate : Tensor of shape (M,)
        Learning rates.
    scale : Tensor of shape (M,)
        Factors of the gradients, from clipping their norms.
    usable : Tensor of shape (M,)
        Which models are to move.
    unbias : Tensor of shape (2,)
        Adam's 1 - beta ** t of the mean and of the square.
    forget : Tensor of shape ()
        How far the running average moves to the new weights.
    """

    rate: Float[Tensor, " M"]
    scale: Float[Tensor, " M"]
    usable: Bool[Tensor, " M"]
    unbias: Float[Tensor, " 2"]
    forget: Shaped[Tensor, ""]


def kernels_for(parameters: Sequence[Tensor]) -> Any:
    """Give the first of `gpu`, `cpu` and `plain` that serves these parameters.

    Loaded on first use: numba and Triton are slow to import.
    """
    for name in ("gpu", "cpu", "plain"):
        kernels = import_module(f"rnade.training.optim.{name}")
        if kernels.serves(parameters):
            return kernels
    raise AssertionError("plain torch serves all parameters")
