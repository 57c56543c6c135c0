"""Which gradients can be used, and what is counted of M models' updates."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rnade.backends.updates import Counts, fused_updates


class Ledger:
    """Judges every update's gradients and counts what became of them.

    Parameters
    ----------
    parameters : sequence of Tensor
        With leading axis M.

    Attributes
    ----------
    active : Tensor of shape (M,)
        Whether a model still trains.
    skipped : Tensor of shape (M,)
        Updates without a finite gradient so far.
    in_a_row : Tensor of shape (M,)
        Those since the last good one.
    log_likelihood, counted : Tensor of shape (M,)
        Sum over the good updates since `start_epoch`, and how many there were.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        like = parameters[0]
        M = len(like)
        self.active = torch.ones(M, dtype=torch.bool, device=like.device)
        self.skipped = torch.zeros(M, dtype=torch.int64, device=like.device)
        self.in_a_row = torch.zeros_like(self.skipped)
        self.log_likelihood, self.counted = like.new_zeros(M), like.new_zeros(M)
        self._fused = fused_updates(parameters)

    def start_epoch(self) -> None:
        """Begin to sum the likelihood anew."""
        self.log_likelihood.zero_()
        self.counted.zero_()

    def judge(
        self, gradients: Sequence[Tensor], loss: Float[Tensor, " M"], clip_norm: float | None
    ) -> tuple[Float[Tensor, " M"], Bool[Tensor, " M"]]:
        """Factors that clip the gradients, and which models are to move.

        Nothing is read back from the device.
        """
        if self._fused is not None:
            counts = Counts(
                self.active, self.skipped, self.in_a_row, self.log_likelihood, self.counted
            )
            verdict: tuple[Tensor, Tensor] = self._fused.judge(gradients, loss, counts, clip_norm)
            return verdict
        norms = gradient_norms(gradients)
        finite = torch.isfinite(norms) & torch.isfinite(loss)
        scale = torch.ones_like(norms)
        if clip_norm is not None:
            scale = (clip_norm / norms).clamp_max(1.0)
        failed = ~finite & self.active
        self.skipped += failed
        self.in_a_row.copy_((self.in_a_row + 1) * failed)
        self.log_likelihood -= torch.where(finite, loss, 0.0)
        self.counted += finite
        return scale, finite & self.active


def gradient_norms(gradients: Sequence[Tensor]) -> Float[Tensor, " M"]:
    """Norm of each model's whole gradient."""
    squares = [g.flatten(1).square().sum(1) for g in gradients]
    return torch.stack(squares).sum(0).sqrt()
