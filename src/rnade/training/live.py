"""The models of a run that still train: their weights, and all that moves with them.

Nothing is read back from the device within a block of updates, so that on a GPU a block is one
CUDA graph.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rnade import parallel
from rnade.batch import Batch
from rnade.nn.bank import AbstractTrainable
from rnade.training.graphs import CapturedUpdates
from rnade.training.optim import Optimiser
from rnade.training.recipe import Recipe
from rnade.training.scoring import mean_log_likelihoods, of_each_model


class Live:
    """M models of one shape, moved by one update at a time.

    Parameters
    ----------
    module : AbstractTrainable
        Worked on in place.
    recipes : sequence of Recipe
        One for each model; they differ in rate, decay and momentum only.
    source_of : Tensor of shape (M,)
        For each model, its source of minibatches.

    Attributes
    ----------
    rates : Tensor of shape (M,)
        Largest learning rates.
    optimiser : Optimiser
    """

    def __init__(
        self,
        module: AbstractTrainable,
        recipes: Sequence[Recipe],
        source_of: Int[Tensor, " M"],
    ) -> None:
        self.module, self.recipes, self.source_of = module, list(recipes), source_of
        named = dict(module.named_parameters())
        self._parameters = list(named.values())
        like, recipe = self._parameters[0], recipes[0]

        def own(setting: str) -> Tensor | None:
            values = [getattr(each, setting) for each in recipes]
            return like.new_tensor(values) if any(values) else None

        rates, decay, momentum = (own(s) for s in ("learning_rate", "weight_decay", "momentum"))
        assert rates is not None
        self.rates = rates
        self._ones = like.new_ones(len(recipes))
        averaged = self._parameters if recipe.averaging else []
        self._average = [p.detach().clone() for p in averaged]
        self.optimiser = Optimiser(
            recipe.optimiser,
            self._parameters,
            [decay if name in module.decayed() else None for name in named],
            self._average,
            between_layers=[name.rpartition(".")[2] == "U" for name in named],
            momentum=momentum,
            clip_norm=recipe.clip_norm,
        )
        self._captured = CapturedUpdates(self._one_update)

    def updates(
        self,
        batches: Batch,
        schedule: Float[Tensor, "n 4"],
        size: int,
        cancelled: Callable[[], bool],
    ) -> None:
        """Make one update for each line of the schedule, up to where it is cancelled.

        Parameters
        ----------
        batches : Batch
            n minibatches of R sources, x of shape (R, n, B, D): of several processes, those of
            their rows that this one takes.
        schedule : Tensor of shape (n, 4)
            Share of the largest rate, how far the average moves, and Adam's two unbiasing
            factors.
        size : int
            Rows of a minibatch, in all processes.
        """
        # The loss is minus the mean: with sign and mean in the weights the fused backends hand
        # over their gradients as they are.
        x, w = batches.x, batches.weights
        w = x.new_full(x.shape[:3], -1 / size) if w is None else w / -size
        self._captured.run(batches._replace(weights=w), schedule, cancelled)

    def _one_update(self, batch: Batch, schedule: Float[Tensor, " 4"]) -> None:
        """Move the weights of the models whose loss and gradient are finite."""
        batch = of_each_model(batch, self.source_of, self.module.n_models)
        loss = self.module.weighted_log_likelihood(
            batch, scale_mean_gradient=self.recipes[0].scale_mean_gradient
        )
        gradients = list(torch.autograd.grad(loss, self._parameters, self._ones))
        loss = loss.detach()
        if parallel.size() > 1:
            *gradients, loss = parallel.added_up([*gradients, loss])
        self.optimiser.step(
            gradients,
            loss,
            rate=schedule[0] * self.rates,
            unbias=schedule[2:],
            forget=schedule[1],
        )

    def evaluated(self) -> list[Tensor]:
        """The weights that are scored and kept: their running averages, where there are any."""
        return self._average or [p.detach() for p in self._parameters]

    def score(self, rows: Batch) -> Float[Tensor, " M"]:
        """Mean log-likelihood of each model, at the weights that are kept."""
        trained = [p.data for p in self._parameters]
        self._use(self.evaluated())
        try:
            return mean_log_likelihoods(self.module, rows, self.source_of)
        finally:
            self._use(trained)

    def _use(self, weights: Sequence[Tensor]) -> None:
        """Give the module these tensors for weights, without a copy."""
        for p, values in zip(self._parameters, weights, strict=True):
            p.data = values

    @torch.no_grad()
    def go_back(self, which: Bool[Tensor, " M"], weights: Sequence[Tensor]) -> None:
        """Give some models these weights and a quarter of the rate; their optimiser forgets."""
        self.rates[which] /= 4
        self.optimiser.counts.in_a_row[which] = 0
        for tensors in (self._parameters, self._average):
            for t, kept in zip(tensors, weights, strict=False):
                t.data[which] = kept
        self.optimiser.reset(which)

    def tensors(self) -> dict[str, Tensor]:
        """Tensors with the axis of the models that carry over to the next epoch."""
        counts = self.optimiser.counts
        groups = {
            "parameter": [p.data for p in self._parameters],
            "average": self._average,
            "optimiser": self.optimiser.state(),
            "member": [self.rates, counts.skipped, counts.in_a_row],
        }
        return {f"{name}.{i}": t for name, ts in groups.items() for i, t in enumerate(ts)}

    @torch.no_grad()
    def picked(self, keep: Int[Tensor, " n"]) -> "Live":
        """Some of the models as they are now, as copies; `keep` are their places."""
        before, here = self.tensors(), keep.to(self.module.device)
        places = keep.tolist()
        recipes = [self.recipes[i] for i in places]
        other = Live(self.module[places], recipes, self.source_of[here])
        for name, t in other.tensors().items():
            t.copy_(before[name][here])
        return other
