"""Parameter updates for M models at once, each with its own rate, decay and momentum.

Every tensor has the leading axis M. A model whose gradient is not usable is left as it is, bit for
bit, and so is what its optimiser remembers. Nothing here looks at values on the device, so that an
update can be captured in a CUDA graph: what changes from one update to the next comes in tensors.
"""

import abc
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from rnade.backends.updates import Rule, fused_updates


def per_model(values: Shaped[Tensor, " M"], like: Tensor) -> Tensor:
    """Shape (M,) values so that they broadcast over the other axes of `like`."""
    return values.view(-1, *[1] * (like.ndim - 1))


class Step(NamedTuple):
    """What an update needs besides the gradients.

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
    forget: Float[Tensor, ""]


class AbstractOptimiser(abc.ABC):
    """Moves parameters along their gradients, downhill.

    Parameters
    ----------
    parameters : sequence of Tensor
        Updated in place.
    decays : sequence of Tensor of shape (M,), or None
        Weight decay of each parameter.
    averages : sequence of Tensor
        Running averages of the parameters, or empty.
    """

    BETA_1, BETA_2 = 0.9, 0.99

    def __init__(
        self,
        parameters: Sequence[Tensor],
        decays: Sequence[Tensor | None],
        averages: Sequence[Tensor] = (),
    ) -> None:
        self.parameters = list(parameters)
        self.decays = list(decays)
        self.averages = list(averages)
        self._fused = fused_updates(self.parameters)

    @classmethod
    def unbias(cls, n_updates: int) -> tuple[float, float]:
        """Give what `Step.unbias` holds after so many updates, this one included."""
        return 1 - cls.BETA_1**n_updates, 1 - cls.BETA_2**n_updates

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], step: Step) -> None:
        """Make one update of the models that are usable; the averages follow."""
        if self._fused is not None:
            self._fused.update(
                self.parameters,
                gradients,
                self._rule(),
                self.decays,
                self.averages,
                **step._asdict(),
            )
            return
        for i, (p, g, decay) in enumerate(
            zip(self.parameters, gradients, self.decays, strict=True)
        ):
            rate, usable = per_model(step.rate, p), per_model(step.usable, p)
            self._update(
                i,
                p,
                g * per_model(step.scale, p),
                rate,
                usable,
                None if decay is None else per_model(decay, p),
                step.unbias,
            )
        for mean, p in zip(self.averages, self.parameters, strict=False):
            mean.lerp_(p, step.forget)

    @abc.abstractmethod
    def start_epoch(self, epoch: int) -> None:
        """Say which epoch begins, counted from 1."""

    @abc.abstractmethod
    def state(self) -> list[Tensor]:
        """Tensors with leading axis M that the next update depends on."""

    @torch.no_grad()
    def reset(self, members: Bool[Tensor, " M"]) -> None:
        """Forget the state of some models, as after going back to earlier weights."""
        for t in self.state():
            t.masked_fill_(per_model(members, t), 0.0)

    @abc.abstractmethod
    def _rule(self) -> Rule:
        """Say the rule of `_update` to the fused kernel."""

    @abc.abstractmethod
    def _update(
        self,
        i: int,
        p: Tensor,
        g: Tensor,
        rate: Tensor,
        usable: Tensor,
        decay: Tensor | None,
        unbias: Tensor,
    ) -> None:
        """Update parameter i in place."""


class Sgd(AbstractOptimiser):
    """Gradient descent with momentum that starts in the second epoch: v = m v - rate g.

    Parameters
    ----------
    momentum : Tensor of shape (M,), or None
        None for none in any model.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        decays: Sequence[Tensor | None],
        *,
        averages: Sequence[Tensor] = (),
        momentum: Float[Tensor, " M"] | None,
    ) -> None:
        super().__init__(parameters, decays, averages)
        self.momentum = momentum
        self._active = None if momentum is None else torch.zeros_like(momentum)
        self._velocity = [] if momentum is None else [torch.zeros_like(p) for p in self.parameters]

    def start_epoch(self, epoch: int) -> None:
        """Switch momentum on from the second epoch."""
        if self._active is not None and self.momentum is not None:
            self._active.copy_(self.momentum * (epoch > 1))

    def state(self) -> list[Tensor]:
        """The velocities."""
        return self._velocity

    def _rule(self) -> Rule:
        name = "sgd" if self._active is None else "momentum"
        return Rule(name, self._velocity, momentum=self._active)

    def _update(
        self,
        i: int,
        p: Tensor,
        g: Tensor,
        rate: Tensor,
        usable: Tensor,
        decay: Tensor | None,
        unbias: Tensor,
    ) -> None:
        if decay is not None:
            g = g + decay * p
        if self._active is None:
            p.sub_(torch.where(usable, rate * g, 0.0))
            return
        v = self._velocity[i]
        v.copy_(torch.where(usable, per_model(self._active, v) * v - rate * g, v))
        p.add_(torch.where(usable, v, 0.0))


class Adam(AbstractOptimiser):
    """Adam (Kingma and Ba, 2015) with decoupled weight decay."""

    EPSILON = 1e-8

    def __init__(
        self,
        parameters: Sequence[Tensor],
        decays: Sequence[Tensor | None],
        averages: Sequence[Tensor] = (),
    ) -> None:
        super().__init__(parameters, decays, averages)
        self._mean = [torch.zeros_like(p) for p in self.parameters]
        self._square = [torch.zeros_like(p) for p in self.parameters]

    def start_epoch(self, epoch: int) -> None:
        """Nothing changes between epochs."""

    def state(self) -> list[Tensor]:
        """The moments."""
        return [*self._mean, *self._square]

    def _rule(self) -> Rule:
        constants = (self.BETA_1, self.BETA_2, self.EPSILON)
        return Rule("adam", self._mean, self._square, constants=constants)

    def _update(
        self,
        i: int,
        p: Tensor,
        g: Tensor,
        rate: Tensor,
        usable: Tensor,
        decay: Tensor | None,
        unbias: Tensor,
    ) -> None:
        mean, square = self._mean[i], self._square[i]
        mean.copy_(torch.where(usable, mean.lerp(g, 1 - self.BETA_1), mean))
        moved = self.BETA_2 * square + (1 - self.BETA_2) * g * g
        square.copy_(torch.where(usable, moved, square))
        change = rate * (mean / unbias[0]) / ((square / unbias[1]).sqrt_().add_(self.EPSILON))
        if decay is not None:
            change = change + rate * decay * p
        p.sub_(torch.where(usable, change, 0.0))
