"""What the autoregressive estimators share: a module trained by gradients."""

import abc
import warnings
from typing import Any

import torch
from torch import Generator

from rnade.estimators.conditionals import AbstractConditionalsEstimator
from rnade.estimators.density import Rows
from rnade.exceptions import TrainingWarning
from rnade.families.base import Array
from rnade.nn import AbstractAutoregressive
from rnade.preprocessing import Resolution
from rnade.progress import training_bar
from rnade.training import Outcome, Recipe, make_recipe, train


class AbstractAutoregressiveEstimator(AbstractConditionalsEstimator):
    """Density estimator over one autoregressive module, trained by gradients.

    Subclasses store their parameters, build the module and say how columns are prepared.
    """

    # Parameters that every subclass has.
    recipe: str
    learning_rate: float | None
    batch_size: int | None
    epochs: int | None
    batches_per_epoch: int | None
    momentum: float | None
    weight_decay: float | None
    patience: int | None
    order: Any
    backend: str

    # Fitted attributes.
    module_: AbstractAutoregressive

    @abc.abstractmethod
    def _make_module(
        self, n_dimensions: int, recipe: Recipe, generator: Generator | None
    ) -> AbstractAutoregressive:
        """Build an untrained module; raises on bad parameters."""

    def _noise_width(self, resolution: Resolution | None) -> Array | None:
        """Width of the uniform noise on each standardised column, or None."""
        return None

    def _empty_module(self, n_dimensions: int) -> AbstractAutoregressive:
        return self._make_module(n_dimensions, self._make_recipe(), None)

    def _check_settings(self) -> None:
        self._make_recipe()

    def _make_recipe(self) -> Recipe:
        return make_recipe(
            self.recipe,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            epochs=self.epochs,
            batches_per_epoch=self.batches_per_epoch,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            patience=self.patience,
        )

    def _train(
        self, training: Rows, held_out: Rows | None, seed: int, target: float | None
    ) -> tuple[AbstractAutoregressive, Outcome]:
        recipe, x = self._make_recipe(), training.x
        module = self._make_module(x.shape[1], recipe, Generator().manual_seed(seed))
        module = module.to(x.device, x.dtype)
        module.start_from(x, spread=recipe.spread)
        resolution = self.resolution_
        if resolution is not None:
            module.set_floor(torch.as_tensor(self._floors(resolution)))
        width = self._noise_width(resolution)
        noise_width = None if width is None else torch.as_tensor(width).to(x)
        description = "Training" if target is None else "Training on all rows"
        with training_bar(description, recipe.epochs, shown=self.verbose > 0) as on_epoch:
            outcome = train(
                module,
                x,
                recipe,
                generator=Generator(x.device).manual_seed(seed),
                validation=None if held_out is None else held_out.x,
                weights=training.weights,
                validation_weights=None if held_out is None else held_out.weights,
                noise_width=noise_width,
                target=target,
                on_epoch=on_epoch,
            )
        start, *rest = (row["train"] for row in outcome.history)
        if not any(score > start for score in rest):
            warnings.warn(
                "Training did not improve on the untrained model, which was kept: learning_rate"
                f"={recipe.learning_rate:g} may be too large.",
                TrainingWarning,
                stacklevel=3,
            )
        return module, outcome

    def _floors(self, resolution: Resolution) -> Array:
        return resolution.floors(self.standardiser_.scale)
