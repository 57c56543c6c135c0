"""Parameter updates for M models at once, each with its own rate.

Every tensor has the leading axis M. A model whose gradient is not finite is left as it is: its
gradient is taken as 0 and its rate as 0 for that update.
"""

import abc
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor


def per_model(values: Shaped[Tensor, " M"], like: Tensor) -> Tensor:
    """Shape (M,) values so that they broadcast over the other axes of `like`."""
    return values.view(-1, *[1] * (like.ndim - 1))


def gradient_norms(gradients: Sequence[Tensor]) -> Float[Tensor, " M"]:
    """Norm of each model's whole gradient."""
    squares = [g.flatten(1).square().sum(1) for g in gradients]
    return torch.stack(squares).sum(0).sqrt()


class AbstractOptimiser(abc.ABC):
    """Moves parameters along their gradients, downhill.

    Parameters
    ----------
    parameters : sequence of Tensor
        Updated in place.
    decays : sequence of float
        Weight decay of each parameter.
    """

    def __init__(self, parameters: Sequence[Tensor], decays: Sequence[float]) -> None:
        self.parameters = list(parameters)
        self.decays = list(decays)

    @torch.no_grad()
    def step(
        self,
        gradients: Sequence[Tensor],
        rate: Float[Tensor, " M"],
        scale: Float[Tensor, " M"],
        usable: Bool[Tensor, " M"],
    ) -> None:
        """Make one update, with each model's gradient times `scale`, where it is `usable`."""
        rate = torch.where(usable, rate, torch.zeros_like(rate))
        for i, (p, g, decay) in enumerate(
            zip(self.parameters, gradients, self.decays, strict=True)
        ):
            g = torch.where(per_model(usable, g), g * per_model(scale, g), torch.zeros_like(g))
            self._update(i, p, g, per_model(rate, g), decay)

    @abc.abstractmethod
    def start_epoch(self, epoch: int) -> None:
        """Say which epoch begins, counted from 1."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Forget all state, as after going back to earlier weights."""

    @abc.abstractmethod
    def _update(self, i: int, p: Tensor, g: Tensor, rate: Tensor, decay: float) -> None:
        """Update parameter i in place."""


class Sgd(AbstractOptimiser):
    """Gradient descent with momentum that starts in the second epoch: v = m v - rate g."""

    def __init__(
        self, parameters: Sequence[Tensor], decays: Sequence[float], *, momentum: float
    ) -> None:
        super().__init__(parameters, decays)
        self.momentum = momentum
        self._active = 0.0
        self._velocity = [torch.zeros_like(p) for p in self.parameters] if momentum else []

    def start_epoch(self, epoch: int) -> None:
        """Switch momentum on from the second epoch."""
        self._active = 0.0 if epoch == 1 else self.momentum

    def reset(self) -> None:
        """Forget the velocities."""
        for v in self._velocity:
            v.zero_()

    def _update(self, i: int, p: Tensor, g: Tensor, rate: Tensor, decay: float) -> None:
        if decay:
            g = g + decay * p
        if not self._velocity:
            p.sub_(rate * g)
            return
        v = self._velocity[i]
        v.mul_(self._active).sub_(rate * g)
        p.add_(v)


class Adam(AbstractOptimiser):
    """Adam (Kingma and Ba, 2015) with decoupled weight decay."""

    BETA_1, BETA_2, EPSILON = 0.9, 0.99, 1e-8

    def __init__(self, parameters: Sequence[Tensor], decays: Sequence[float]) -> None:
        super().__init__(parameters, decays)
        self._mean = [torch.zeros_like(p) for p in self.parameters]
        self._square = [torch.zeros_like(p) for p in self.parameters]
        self._updates = 0

    def start_epoch(self, epoch: int) -> None:
        """Nothing changes between epochs."""

    def reset(self) -> None:
        """Forget the moments."""
        self._updates = 0
        for t in (*self._mean, *self._square):
            t.zero_()

    def _update(self, i: int, p: Tensor, g: Tensor, rate: Tensor, decay: float) -> None:
        self._updates += i == 0
        mean, square = self._mean[i], self._square[i]
        mean.lerp_(g, 1 - self.BETA_1)
        square.mul_(self.BETA_2).addcmul_(g, g, value=1 - self.BETA_2)
        unbias_mean = 1 - self.BETA_1**self._updates
        unbias_square = 1 - self.BETA_2**self._updates
        if decay:
            p.mul_(1 - rate * decay)
        denominator = (square / unbias_square).sqrt_().add_(self.EPSILON)
        p.sub_(rate / unbias_mean * mean / denominator)
