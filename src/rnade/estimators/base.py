"""What estimators share that are trained by gradients, alone or as a bank."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Generator

from rnade import parallel
from rnade.batch import Batch
from rnade.columns import Resolution
from rnade.estimators.density import AbstractDensityEstimator
from rnade.estimators.parameters import TrainingParameters, estimator
from rnade.estimators.scoring import Models
from rnade.estimators.weights import Left, member_weights
from rnade.exceptions import TrainingWarning, warn_caller
from rnade.nn import (
    AbstractAutoregressive,
    AbstractChain,
    AbstractDensity,
    DecorrelatedModule,
    EnsembleModule,
    MixtureOfGaussiansModule,
)
from rnade.progress import bank_bar
from rnade.training import (
    Bank,
    Member,
    Outcome,
    Recipe,
    ShuffledRows,
    Trained,
    diverged_error,
    make_recipe,
)
from rnade.training.em.members import fit_member
from rnade.training.folds import N_FOLDS, fold_rows, stop_themselves
from rnade.typing import Array

# Trainings of one fit, by the folders of their checkpoints, and what their bars say.
STAGES = {
    "train": "Training",
    "retrain": "Training on all rows",
    "questions": "Training for questions",
}


@dataclass(frozen=True)
class Planned:
    """One model of those that `fit` trains.

    Attributes
    ----------
    order : as the estimator's
    changes : dict
        Parameters of the estimator that it changes.
    fold : int or None
        Which part of the training rows it leaves out, to stop its training early; None for none,
        where the rows that `fit` held out stop it.
    n_folds : int
        How many parts there are.
    kind : int
        Models of one kind have one weight in the average, which they share.
    words : str
        What models of the kind are, for people.
    mixture : int or None
        Components, if it is a mixture of Gaussians and no network.
    """

    order: Any
    changes: dict[str, Any] = field(default_factory=dict)
    fold: int | None = None
    n_folds: int = N_FOLDS
    kind: int = 0
    words: str = ""
    mixture: int | None = None


class AbstractTrainedEstimator(TrainingParameters, AbstractDensityEstimator):
    """Density estimator trained by gradients: its recipe, its bank and its checkpoints."""

    def _make_recipe(self, **changes: Any) -> Recipe:
        """The recipe with the settings given as parameters, and then `changes`."""
        return make_recipe(
            self.recipe,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            epochs=self.epochs,
            batches_per_epoch=self.batches_per_epoch,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            patience=self.patience,
        ).with_changes(**changes)

    @property
    def _is_shown(self) -> bool:
        """Whether to draw bars: of several processes, the first one does."""
        return self.verbose > 0 and parallel.rank() == 0

    def _fed(self, members: Sequence[Member], stage: str) -> list[Member]:
        """Members with the sources of their minibatches; those of a streamed data set differ."""
        return list(members)

    def _trained_bank(
        self, members: Sequence[Member], stage: str = "train", n_told: int | None = None
    ) -> Bank:
        """Train members as a bank, with a bar and checkpoints of their own in each stage.

        The bar tells how good the first `n_told` are, by default all.
        """
        folder = None if self.checkpoint is None else Path(self.checkpoint) / stage
        bank = Bank(self._fed(members, stage), checkpoint=folder)
        with bank_bar(STAGES[stage], shown=self._is_shown, n_told=n_told) as on_epoch:
            bank.advance(on_epoch=on_epoch)
        if bank.interrupted:
            warn_caller(
                "Training was stopped by Ctrl-C; the best model so far was kept.", TrainingWarning
            )
        return bank


@estimator
class AutoregressiveParameters(TrainingParameters):
    """What estimators of autoregressive models with shared weights take.

    Parameters
    ----------
    {TrainingParameters}
    backend : {"auto", "cpu", "gpu", "gpu-tf32", "gpu-bf16", "vectorised"}
        Which backend trains; "auto" takes the fused kernels of the device. The last two of the
        GPU are faster and coarser. Scores have a precision of their own, `score_dtype`.
    """

    backend: str = "auto"


class AbstractAutoregressiveEstimator(AutoregressiveParameters, AbstractTrainedEstimator):
    """Density estimator over autoregressive modules with shared weights.

    Subclasses declare their parameters, build a module and say how columns are prepared; `_plan`
    says which models are trained, and their average is what is fitted.
    """

    order: Any  # a parameter of every subclass

    # Fitted attributes.
    module_: AbstractAutoregressive | EnsembleModule
    members_: list[dict[str, Any]]

    _kept_plan: list[Planned]  # of the members in the first of two trainings
    _kept_weights: Array

    _kept: ClassVar[tuple[str, ...]] = ("members_",)

    @abc.abstractmethod
    def _make_module(
        self, n_dimensions: int, recipe: Recipe, order: Any, generator: Generator | None
    ) -> AbstractAutoregressive | DecorrelatedModule:
        """Build an untrained module; raises on bad parameters."""

    def _plan(self, n_rows: int, n_dimensions: int, device: str) -> list[Planned]:
        """Say which models to train, networks first; the average of several is fitted."""
        return [Planned(self.order)]

    def _noise_width(self, resolution: Resolution | None) -> Array | None:
        """Width of the uniform noise on each standardised column, or None."""
        return None

    def _empty_module(self, n_dimensions: int) -> AbstractDensity:
        def one(member: dict[str, Any]) -> AbstractChain:
            if member.get("mixture"):
                return MixtureOfGaussiansModule(n_dimensions, member["mixture"])
            other = self._changed(member["changes"])
            return other._make_module(n_dimensions, other._make_recipe(), "raster", None)

        # Files of one model may say nothing of members.
        modules = [one(member) for member in self.members_ or [{"changes": {}}]]
        return modules[0] if len(modules) == 1 else EnsembleModule.of(modules)

    def _changed(self, changes: dict[str, Any]) -> Self:
        """Give an estimator with some parameters changed that knows what this one has measured."""
        other: Self = clone(self).set_params(**changes)
        for name in ("standardiser_", "resolution_"):
            if hasattr(self, name):
                setattr(other, name, getattr(self, name))
        return other

    def _check_settings(self) -> None:
        self._make_recipe()

    def _train(
        self, training: Batch, held_out: Batch | None, seed: int, target: Any
    ) -> tuple[AbstractDensity, Outcome]:
        """Train the models of the plan as one bank; the densities of several are averaged.

        The second training is of those that the first one kept, each with its own target.
        """
        first = held_out is not None
        N, D = training.x.shape
        plan = self._plan(N, D, training.x.device.type) if first else self._kept_plan
        networks = [planned for planned in plan if planned.mixture is None]
        results, interrupted = self._trained_networks(networks, training, held_out, seed, target)
        # Of several the curve is that of the network that did best.
        mixtures = [self._fitted_mixture(p, training, held_out, seed) for p in plan if p.mixture]
        sound = [r for r in results if r.diverged is None] or mixtures
        best = max(sound, key=lambda r: r.best_score)
        results += mixtures
        good = [i for i, r in enumerate(results) if r.diverged is None]
        modules: list[Any] = [results[i].module for i in good]
        if first:
            told = [Left(plan[i].kind, plan[i].fold, plan[i].n_folds) for i in good]
            weights = member_weights(told, modules, self._dequantised(training, seed))
        else:
            weights = self._kept_weights
        # As an ensemble has them: those of one shape side by side, and none without weight.
        order = [i for i in EnsembleModule.sorted_by_shape(modules) if weights[i] > 0]
        plan, results = [plan[good[i]] for i in order], [results[good[i]] for i in order]
        modules, weights = [modules[i] for i in order], weights[order]
        module = modules[0] if len(modules) == 1 else EnsembleModule.of(modules, weights.tolist())
        if first:
            self._kept_plan, self._kept_weights = plan, weights
            self.members_ = [
                _described(planned, result, float(weight), N)
                for planned, result, weight in zip(plan, results, weights, strict=True)
            ]
        return module, Outcome(
            best.history,
            best.best_epoch,
            best.best_score,
            [r.train_at_best for r in results],
            interrupted,
        )

    def _trained_networks(
        self,
        plan: Sequence[Planned],
        training: Batch,
        held_out: Batch | None,
        seed: int,
        target: Any,
    ) -> tuple[list[Trained], bool]:
        """The networks of a plan, trained as one bank, and whether Ctrl-C ended it."""
        if not plan:  # of the first training only mixtures were kept
            return [], False
        first = held_out is not None
        members = self.make_members(training, held_out, seed, plan, target)
        beside = self._members_beside() if first else []
        stage, n = "train" if first else "retrain", len(members)
        bank = self._trained_bank([*members, *beside], stage, n_told=n)
        results = bank.results()
        if beside:
            self._take_beside(results[n:])
        results = results[:n]
        if first:
            _check_results(results, bank.members[0].recipe)
        else:
            raise_if_diverged(results)
        return results, bank.interrupted

    def _members_beside(self) -> list[Member]:
        """What is trained in one bank with the networks, of an estimator that has such."""
        return []

    def _take_beside(self, results: list[Trained]) -> None:
        """Keep what `_members_beside` have become."""

    def _dequantised(self, rows: Batch, seed: int) -> Batch:
        """Rows with the noise that training adds to rounded columns, if it does."""
        width = self._noise_width(self.resolution_)
        if width is None:
            return rows
        drawn = torch.rand(rows.x.shape, generator=Generator().manual_seed(seed)) - 0.5
        return rows._replace(x=rows.x + (drawn * torch.as_tensor(width)).to(rows.x))

    def _fitted_mixture(
        self, planned: Planned, training: Batch, held_out: Batch | None, seed: int
    ) -> Trained:
        """A mixture of Gaussians of the average, fitted to the rows that it does not leave out."""
        rows, left = _rows_and_fold(training, held_out, planned)
        floor = torch.as_tensor(self._floors(self.resolution_)) if self.resolution_ else None
        if floor is None:
            floor = torch.zeros(training.x.shape[1])
        assert planned.mixture is not None
        module, outcome = fit_member(
            rows, left, planned.mixture, floor, seed + (planned.fold or 0)
        )
        module = module.to(training.x.dtype).requires_grad_(False)
        told = {name: getattr(outcome, name) for name in vars(outcome)}
        return Trained(**told, module=module, diverged=None)

    def make_members(
        self,
        training: Batch,
        held_out: Batch | None,
        seed: int,
        plan: Sequence[Planned],
        targets: Sequence[float] | None = None,
    ) -> list[Member]:
        """Make the models of a plan ready for a bank; those of one fold share minibatches."""
        x = training.x
        sets: dict[Any, tuple[ShuffledRows, Batch | None]] = {}
        members = []
        for i, planned in enumerate(plan):
            other = self._changed(planned.changes)
            recipe, resolution = other._make_recipe(), self.resolution_
            module = other._make_module(
                x.shape[1], recipe, planned.order, Generator().manual_seed(seed + i)
            ).to(x.device, x.dtype)
            width = other._noise_width(resolution)
            key = planned.fold, None if width is None else width.tobytes()
            if key not in sets:
                sets[key] = _split_rows(training, held_out, seed, planned, width)
            # By none of the rows that the model is to leave out.
            start = sets[key][0].known()
            module.start_from(start.x, weights=start.weights, spread=recipe.spread)
            if resolution is not None:
                module.set_floor(torch.as_tensor(other._floors(resolution)))
            target = None if targets is None else targets[i]
            members.append(Member(module, recipe, *sets[key], target))
        return members

    def _left_out(self, training: NDArray[np.int64]) -> list[tuple[NDArray[np.int64], Models]]:
        parts = [(member["fold"], member["n_folds"]) for member in self.members_]
        return [
            (training[fold_rows(len(training), *part)], np.array([own == part for own in parts]))
            for part in sorted({part for part in parts if part[0] is not None})
        ]

    def _floors(self, resolution: Resolution) -> Array:
        return resolution.floors(self.standardiser_.scale)


def raise_if_diverged(results: Sequence[Trained]) -> None:
    """Raise if any model has; in training again each stands for one of the first training's."""
    for trained in results:
        if trained.diverged is not None:
            raise diverged_error(trained.diverged)


def _check_results(results: Sequence[Trained], recipe: Recipe) -> None:
    """Raise if all have diverged; warn if none got better than it was at the start."""
    where = [r.diverged for r in results if r.diverged is not None]
    if len(where) == len(results):
        raise diverged_error(where[0])
    curves = [[row["train"] for row in r.history] for r in results]
    if not any(len(scores) == 1 or max(scores[1:]) > scores[0] for scores in curves):
        warn_caller(
            "Training did not improve on the untrained model, which was kept: learning_rate"
            f"={recipe.learning_rate:g} may be too large.",
            TrainingWarning,
        )


def _rows_and_fold(
    training: Batch, held_out: Batch | None, planned: Planned
) -> tuple[Batch, Batch | None]:
    """Rows to train on and rows that stop training: those held out, or a fold of the former.

    The second training, which holds out none, is on all rows.
    """
    rows, left = training, held_out
    fold = None if held_out is None else planned.fold
    if fold is not None:
        n = len(rows.x)
        here = torch.zeros(n, dtype=torch.bool, device=rows.x.device)
        here[fold_rows(n, fold, planned.n_folds)] = True
        rows = training.map(lambda t: t[~here])
        if stop_themselves(n, planned.n_folds):
            left = training.map(lambda t: t[here])
    return rows, left


def _split_rows(
    training: Batch, held_out: Batch | None, seed: int, planned: Planned, width: Array | None
) -> tuple[ShuffledRows, Batch | None]:
    """Minibatches of the rows to train on, and rows that stop training."""
    rows, left = _rows_and_fold(training, held_out, planned)
    noise_width = None if width is None else torch.as_tensor(width).to(rows.x)
    seed += 0 if held_out is None else planned.fold or 0
    return ShuffledRows(rows.x, seed, weights=rows.weights, noise_width=noise_width), left


def _described(planned: Planned, result: Trained, weight: float, n_rows: int) -> dict[str, Any]:
    """Give an entry of `members_`, of a model trained on so many rows and those it left out."""
    return {
        "kind": planned.words,
        "weight": weight,
        "mixture": planned.mixture,
        "changes": planned.changes,
        "fold": planned.fold,
        "n_folds": planned.n_folds,
        "stopped_by_fold": planned.fold is not None and stop_themselves(n_rows, planned.n_folds),
        "best_epoch": result.best_epoch,
        "epochs": result.history[-1]["epoch"],
        "validation": result.best_score,
        "train": result.train_at_best,
    }
