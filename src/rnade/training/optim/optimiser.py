"""The optimiser of M models: gradient descent, with momentum, Adam, or Muon."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from rnade.training.optim import muon
from rnade.training.optim.forms import BETA_1, BETA_2, Counts, Rule, Step, kernels_for
from rnade.training.optim.plain import per_model


class Optimiser:
    """Judges the gradients of M models and moves those whose gradient is finite, downhill.

    Each model has its own rate, decay and momentum. "adam" is Adam (Kingma and Ba, 2015) with
    decoupled weight decay; the momentum of "sgd" starts in the second epoch. "muon" is Muon for
    the matrices between hidden layers and Adam for all else.

    Parameters
    ----------
    name : "adam", "sgd" or "muon"
    parameters, decays, averages
        As of `Rule`; parameters and averages are updated in place.
    between_layers : sequence of bool, optional
        Which parameters are square matrices between hidden layers, (M, layers, H, H).
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
        between_layers: Sequence[bool] = (),
        momentum: Float[Tensor, " M"] | None = None,
        clip_norm: float | None = None,
    ) -> None:
        def rule(name: str, of: Sequence[int]) -> tuple[Sequence[int], Rule]:
            moved = [parameters[i] for i in of]
            n_kept = {"sgd": 0, "momentum": 1, "muon": 1, "adam": 2}[name]
            first, second = ([torch.zeros_like(p) for p in moved * (n_kept > n)] for n in (0, 1))
            followed = [averages[i] for i in of] if averages else []
            return of, Rule(name, moved, [decays[i] for i in of], followed, first, second)

        self.clip_norm, self._momentum = clip_norm, momentum
        self.counts = Counts.start(parameters[0])
        self._kernels = kernels_for(parameters)
        at = range(len(parameters))
        if name == "muon":
            own = [i for i in at if between_layers[i]]
            rest = [i for i in at if not between_layers[i]]
            self._rules = [rule(n, of) for n, of in (("adam", rest), ("muon", own)) if of]
        elif name == "sgd" and momentum is not None:
            of, with_momentum = rule("momentum", at)
            self._rules = [(of, with_momentum._replace(momentum=torch.zeros_like(momentum)))]
        else:
            self._rules = [rule(name, at)]

    @staticmethod
    def unbias(n_updates: int) -> tuple[float, float]:
        """Give what `Step.unbias` holds after `n_updates` updates, this one included."""
        return 1 - BETA_1**n_updates, 1 - BETA_2**n_updates

    def start_epoch(self, epoch: int) -> None:
        """Begin to sum the likelihood anew; momentum is on from epoch 2, counted from 1."""
        self.counts.log_likelihood.zero_()
        self.counts.counted.zero_()
        for _, rule in self._rules:
            if rule.momentum is not None and self._momentum is not None:
                rule.momentum.copy_(self._momentum * (epoch > 1))

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
        step = Step(rate, scale, usable, unbias, forget)
        for of, rule in self._rules:
            own, taken = [gradients[i] for i in of], step
            if rule.name == "muon":
                own = [
                    muon.direction(v, g * per_model(scale, g), usable)
                    for v, g in zip(rule.first, own, strict=True)
                ]
                rule = rule._replace(name="sgd")
                taken = step._replace(scale=torch.ones_like(scale))  # the direction is scaled
            self._kernels.update(rule, own, taken)

    def state(self) -> list[Tensor]:
        """Tensors with leading axis M that the next update depends on."""
        return [t for _, rule in self._rules for t in (*rule.first, *rule.second)]

    @torch.no_grad()
    def reset(self, members: Bool[Tensor, " M"]) -> None:
        """Forget the state of some models, as after going back to earlier weights."""
        for t in self.state():
            t.masked_fill_(per_model(members, t), 0.0)
