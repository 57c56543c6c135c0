"""The optimiser of M models: gradient descent, with momentum, or Adam."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from rnade.training.optim.forms import BETA_1, BETA_2, Counts, Rule, Step, kernels_for
from rnade.training.optim.plain import per_model


class Optimiser:
    """Judges the gradients of M models and moves those whose gradient is finite, downhill.

    Each model has its own rate, decay and momentum. "adam" is Adam (Kingma and Ba, 2015) with
    decoupled weight decay; the momentum of "sgd" starts in the second epoch.

    Parameters
    ----------
    name : "adam" or "sgd"
    parameters, decays, averages
        As of `Rule`; parameters and averages are updated in place.
    momentum : Tensor of shape (M,), optional
        Of "sgd"; None for none in any model.
    clip_norm : float, optional
        Longest gradient; a longer one is shortened to this norm.

    Attributes
    ----------
    counts : Counts
        What became of the gradients so far.
    """

    def __init__(
        self,
        name: str,
        parameters: Sequence[Tensor],
        decays: Sequence[Tensor | None],
        averages: Sequence[Tensor] = (),
        *,
        momentum: Float[Tensor, " M"] | None = None,
        clip_norm: float | None = None,
    ) -> None:
        def zeros() -> list[Tensor]:
            return [torch.zeros_like(p) for p in parameters]

        self.clip_norm, self._momentum = clip_norm, momentum
        self.counts = Counts.start(parameters[0])
        self._kernels = kernels_for(parameters)
        self._rule = Rule(name, parameters, decays, averages)
        if name == "adam":
            self._rule = self._rule._replace(first=zeros(), second=zeros())
        elif momentum is not None:
            active = torch.zeros_like(momentum)
            self._rule = self._rule._replace(name="momentum", first=zeros(), momentum=active)

    @staticmethod
    def unbias(n_updates: int) -> tuple[float, float]:
        """Give what `Step.unbias` holds after `n_updates` updates, this one included."""
        return 1 - BETA_1**n_updates, 1 - BETA_2**n_updates

    def start_epoch(self, epoch: int) -> None:
        """Begin to sum the likelihood anew; momentum is on from epoch 2, counted from 1."""
        self.counts.log_likelihood.zero_()
        self.counts.counted.zero_()
        if self._rule.momentum is not None and self._momentum is not None:
            self._rule.momentum.copy_(self._momentum * (epoch > 1))

    @torch.no_grad()
    def step(
        self,
        gradients: Sequence[Tensor],
        loss: Float[Tensor, " M"],
        *,
        rate: Float[Tensor, " M"],
        unbias: Float[Tensor, " 2"],
        forget: Shaped[Tensor, ""],
    ) -> None:
        """Make one update of the models with a finite loss and gradient; the averages follow.

        Nothing is read back from the device. `Step` says what the arguments are.
        """
        scale, usable = self._kernels.judge(gradients, loss, self.counts, self.clip_norm)
        self._kernels.update(self._rule, gradients, Step(rate, scale, usable, unbias, forget))

    def state(self) -> list[Tensor]:
        """Tensors with leading axis M that the next update depends on."""
        return [*self._rule.first, *self._rule.second]

    @torch.no_grad()
    def reset(self, members: Bool[Tensor, " M"]) -> None:
        """Forget the state of some models, as after going back to earlier weights."""
        for t in self.state():
            t.masked_fill_(per_model(members, t), 0.0)
