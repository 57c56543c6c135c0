"""What the autoregressive estimators share: modules trained by gradients, alone or as a bank."""

import abc
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import torch
from torch import Generator, Tensor

from rnade.estimators.conditionals import AbstractConditionalsEstimator
from rnade.estimators.density import Rows
from rnade.exceptions import TrainingWarning
from rnade.families.base import Array
from rnade.nn import AbstractAutoregressive, AbstractDensity, EnsembleModule
from rnade.preprocessing import Resolution
from rnade.progress import bank_bar
from rnade.training import (
    Bank,
    Member,
    Outcome,
    Recipe,
    RowSet,
    Trained,
    diverged_error,
    make_recipe,
)


@dataclass(frozen=True)
class Planned:
    """One model of those that `fit` trains: its order and what it changes in the recipe."""

    order: Any
    changes: dict[str, Any] = field(default_factory=dict)


class AbstractAutoregressiveEstimator(AbstractConditionalsEstimator):
    """Density estimator over autoregressive modules, trained by gradients.

    Subclasses store their parameters, build a module and say how columns are prepared; `_plan`
    says which models are trained, and their average is what is fitted.
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
    checkpoint: str | os.PathLike[str] | None

    # Fitted attributes.
    module_: AbstractAutoregressive | EnsembleModule
    members_: list[dict[str, Any]]

    _kept_plan: list[Planned]  # of the members in the first of two trainings

    _kept: ClassVar[tuple[str, ...]] = ("members_",)

    @abc.abstractmethod
    def _make_module(
        self, n_dimensions: int, recipe: Recipe, order: Any, generator: Generator | None
    ) -> AbstractAutoregressive:
        """Build an untrained module; raises on bad parameters."""

    def _plan(self, n_rows: int, n_dimensions: int) -> list[Planned]:
        """Say which models to train; the average of several is fitted."""
        return [Planned(self.order)]

    def _noise_width(self, resolution: Resolution | None) -> Array | None:
        """Width of the uniform noise on each standardised column, or None."""
        return None

    def _empty_module(self, n_dimensions: int) -> AbstractDensity:
        one = self._make_module(n_dimensions, self._make_recipe(), "raster", None)
        n = len(self.members_ or ())  # files of one model may say nothing of members
        return one if n <= 1 else EnsembleModule([one.stack([one] * n)])

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
        self, training: Rows, held_out: Rows | None, seed: int, target: Any
    ) -> tuple[AbstractDensity, Outcome]:
        """Train the models of the plan as one bank; several are averaged by held-out weights.

        In the second training, of those kept in the first one, each has its own target.
        """
        first = held_out is not None
        plan = self._plan(*training.x.shape) if first else self._kept_plan
        members = self.bank_members(training, held_out, seed, plan, target)
        bank = Bank(members, checkpoint=self._checkpoint("train" if first else "retrain"))
        what = "Training" if first else "Training on all rows"
        with bank_bar(what, shown=self.verbose > 0) as on_epoch:
            bank.advance(on_epoch=on_epoch)
        results = bank.results()
        if bank.interrupted:
            _warn("Training was stopped by Ctrl-C; the best model so far was kept.")
        good = [i for i, r in enumerate(results) if r.diverged is None]
        if not good:
            _raise_diverged(results)
        plan, results = [plan[i] for i in good], [results[i] for i in good]
        if not any(_improved(r) for r in results):
            rate = members[0].recipe.learning_rate
            _warn(
                "Training did not improve on the untrained model, which was kept: learning_rate"
                f"={rate:g} may be too large."
            )
        if first:
            self._kept_plan = plan
        modules: list[Any] = [r.module for r in results]
        best = max(results, key=lambda r: r.best_score)
        outcome = Outcome(
            best.history,
            best.best_epoch,
            best.best_score,
            [r.train_at_best for r in results],
            bank.interrupted,
        )
        if len(modules) == 1:
            if first:
                self.members_ = [_described(plan[0], results[0], 1.0)]
            return modules[0], outcome
        ensemble = EnsembleModule([modules[0].stack(modules)])
        if held_out is not None:
            ensemble.fit_weights(held_out.x, held_out.weights)
            weights = ensemble.log_weights[0].exp().tolist()
            self.members_ = [
                _described(p, r, w) for p, r, w in zip(plan, results, weights, strict=True)
            ]
        else:
            kept = torch.tensor([member["weight"] for member in self.members_])
            ensemble.log_weights.copy_(kept.log()[None])
        return ensemble, outcome

    def bank_members(
        self,
        training: Rows,
        held_out: Rows | None,
        seed: int,
        plan: Sequence[Planned],
        targets: Sequence[float] | None = None,
    ) -> list[Member]:
        """Make the models of a plan ready for a bank; they share their minibatches."""
        x = training.x
        resolution = self.resolution_
        width = self._noise_width(resolution)
        rows = RowSet(
            x,
            seed,
            weights=training.weights,
            validation=None if held_out is None else held_out.x,
            validation_weights=None if held_out is None else held_out.weights,
            noise_width=None if width is None else torch.as_tensor(width).to(x),
        )
        floors = None if resolution is None else torch.as_tensor(self._floors(resolution))
        return [
            Member(
                self._started(x, planned, floors, seed + i),
                self._make_recipe().with_changes(**planned.changes),
                rows,
                None if targets is None else targets[i],
            )
            for i, planned in enumerate(plan)
        ]

    def _started(
        self, x: Tensor, planned: Planned, floors: Tensor | None, seed: int
    ) -> AbstractAutoregressive:
        recipe = self._make_recipe().with_changes(**planned.changes)
        generator = Generator().manual_seed(seed)
        module = self._make_module(x.shape[1], recipe, planned.order, generator)
        module = module.to(x.device, x.dtype)
        module.start_from(x, spread=recipe.spread)
        if floors is not None:
            module.set_floor(floors)
        return module

    def _checkpoint(self, stage: str) -> Path | None:
        return None if self.checkpoint is None else Path(self.checkpoint) / stage

    def _floors(self, resolution: Resolution) -> Array:
        return resolution.floors(self.standardiser_.scale)


def _warn(text: str) -> None:
    warnings.warn(text, TrainingWarning, stacklevel=4)


def _improved(result: Trained) -> bool:
    start, *rest = (row["train"] for row in result.history)
    return not rest or any(score > start for score in rest)


def _raise_diverged(results: Sequence[Trained]) -> NoReturn:
    where = results[0].diverged
    assert where is not None
    raise diverged_error(where)


def _described(planned: Planned, result: Trained, weight: float) -> dict[str, Any]:
    """Give an entry of `members_`."""
    return {
        **planned.changes,
        "weight": weight,
        "best_epoch": result.best_epoch,
        "epochs": result.history[-1]["epoch"],
        "validation": result.best_score,
        "train": result.train_at_best,
    }
