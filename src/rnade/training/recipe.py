"""How a model is trained: the paper's recipe and a modern one, as plain settings."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from rnade.checks import number_between, positive_int, unknown_name


@dataclass(frozen=True)
class Recipe:
    """Settings of gradient training.

    Attributes
    ----------
    optimiser : "adam", "sgd" or "muon"
        "muon" is for deeper networks: Adam, but for the square matrices between hidden layers,
        whose momentum is made orthogonal (Muon; Jordan and others, 2024). Both take one rate.
    learning_rate : float
        Peak learning rate.
    batch_size : int
    epochs : int
    batches_per_epoch : int or None
        Minibatches per epoch; None for one pass over the rows, but at least 20.
    schedule : "linear" or "cosine"
        How the learning rate decays to 0 by the end of the last epoch.
    warmup : float
        Fraction of all updates over which the learning rate first rises from 0.
    momentum : float
        Momentum of "sgd", used from the second epoch on.
    weight_decay : float
        On the input-to-hidden weights only. "sgd" adds weight_decay * W to the gradient; the
        others shrink W by rate * weight_decay (decoupled).
    clip_norm : float or None
        Largest gradient norm; longer gradients are scaled down to it.
    averaging : float
        Decay of the moving average of the weights, which is what is evaluated and kept; 0 for
        the weights themselves.
    scale_mean_gradient : bool
        Multiply the gradient of each component mean by its scale (mixtures of Gaussians only).
    patience : int or None
        Early stopping: epochs without a better validation score after which training stops.
    spread : "quantile" or "range"
        Initial component means: at quantiles of each column, or evenly over its range.
    weight_scale : float or None
        Standard deviation of the initial weights; None for the module's own default.
    """

    optimiser: Literal["adam", "sgd", "muon"] = "adam"
    learning_rate: float = 0.03
    batch_size: int = 100
    epochs: int = 200
    batches_per_epoch: int | None = None
    schedule: Literal["linear", "cosine"] = "cosine"
    warmup: float = 0.02
    momentum: float = 0.9
    weight_decay: float = 0.0
    clip_norm: float | None = 10.0
    averaging: float = 0.99
    scale_mean_gradient: bool = False
    patience: int | None = 20
    spread: Literal["quantile", "range"] = "quantile"
    weight_scale: float | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs"):
            positive_int(getattr(self, name), name)
        for name in ("batches_per_epoch", "patience"):
            if getattr(self, name) is not None:
                positive_int(getattr(self, name), name)
        number_between(self.learning_rate, "learning_rate", 0, math.inf, open_low=True)
        number_between(self.weight_decay, "weight_decay", 0, math.inf, open_low=False)
        for name in ("momentum", "averaging", "warmup"):
            number_between(getattr(self, name), name, 0, 1, open_low=False)
        if self.clip_norm is not None:
            number_between(self.clip_norm, "clip_norm", 0, math.inf, open_low=True)
        known_names = {"optimiser": ["adam", "sgd", "muon"], "schedule": ["linear", "cosine"]}
        for name, known in known_names.items():
            if getattr(self, name) not in known:
                raise unknown_name(getattr(self, name), known, name)

    def with_changes(self, **changes: Any) -> "Recipe":
        """Return the same recipe with some settings changed; None leaves a setting as it is."""
        return replace(self, **{name: v for name, v in changes.items() if v is not None})

    def updates_per_epoch(self, n_rows: int) -> int:
        """Minibatches in an epoch over `n_rows` training rows."""
        if self.batches_per_epoch is not None:
            return self.batches_per_epoch
        return max(20, math.ceil(n_rows / self.batch_size))

    def share_at(self, update: int, n_updates: int) -> float:
        """Share of the largest learning rate in update 0, 1, ... of `n_updates`."""
        progress = update / n_updates
        fall = (
            1 - progress if self.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
        )
        rise = min(1.0, (update + 1) / (self.warmup * n_updates)) if self.warmup else 1.0
        return fall * rise


PAPER = Recipe(
    optimiser="sgd",
    learning_rate=0.025,
    batch_size=100,
    epochs=500,
    batches_per_epoch=10,
    schedule="linear",
    warmup=0.0,
    momentum=0.9,
    clip_norm=None,
    averaging=0.0,
    patience=None,
    scale_mean_gradient=True,
    spread="range",
    weight_scale=0.01,
)
"""The paper's section 4.1 (low-dimensional data).

Momentum stands in its section 4.2 only, but is the default of the authors' script, and without it
Table 1 does not come out (docs/decisions/0010).
"""

PAPER_GRID: dict[str, list[Any]] = {
    "n_components": [2, 5, 10, 20],
    "learning_rate": [0.1, 0.05, 0.025, 0.0125],
    "weight_decay": [2.0, 1.0, 0.1, 0.01, 0.001, 0.0],
}
"""What section 4.1 chooses from, by validation: 96 settings."""

MODERN = Recipe()
"""The estimators' default."""

RECIPES = {"modern": MODERN, "paper": PAPER}


def make_recipe(name: str, **changes: Any) -> Recipe:
    """Return the recipe called `name` with the settings in `changes` that are not None."""
    if name not in RECIPES:
        raise unknown_name(name, list(RECIPES), "recipe")
    return RECIPES[name].with_changes(**changes)
