"""The models of Table 3, each fitted to all folds of a data set."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Generator, Tensor

from rnade.batch import Batch
from rnade.columns.linear import LinearPart
from rnade.families import make_family
from rnade.nn import AbstractDensity, MixtureOfGaussiansModule, RNADEModule
from rnade.nn.ensemble import log_average
from rnade.reproduce.core.banks import train_all
from rnade.reproduce.core.density import Density, Fitted, fit_gaussians, store, stored
from rnade.reproduce.core.experiment import Settings
from rnade.reproduce.core.runner import Job
from rnade.reproduce.speech.data import FoldWindows
from rnade.reproduce.speech.rows import shown
from rnade.training import Member, Recipe, ShuffledRows, Trained
from rnade.typing import Array


@dataclass(frozen=True, eq=False)
class SpeechDensity:
    """A fitted density of windows: one model, or the average of several in other orders."""

    members: list[Density]

    @torch.no_grad()
    def log_prob(self, rows: Tensor) -> Array:
        """Log density of each row in nats."""
        scores = torch.stack([member.log_prob(rows) for member in self.members])
        return np.asarray(log_average(scores).cpu().numpy())

    @torch.no_grad()
    def sample(self, n: int, seed: int) -> Tensor:
        """Draw windows, each from a model chosen at random."""
        module = self.members[0].module
        generator = Generator(module.device).manual_seed(seed)
        chosen = torch.randint(len(self.members), (n,), device=module.device, generator=generator)
        drawn = torch.empty(n, module.n_dimensions, device=module.device)
        for i, member in enumerate(self.members):
            mine = chosen == i
            if mine.any():
                drawn[mine] = member.sample(int(mine.sum()), generator)
        return drawn


def make_module(settings: Settings, D: int, seed: int = 0) -> AbstractDensity:
    """Make an untrained model."""
    if settings["model"] == "mog":
        return MixtureOfGaussiansModule(D, settings["n_components"])
    return make_rnade(settings, D, seed)


def make_rnade(settings: Settings, D: int, seed: int) -> RNADEModule:
    """Make an untrained RNADE that takes the dimensions as they come."""
    return RNADEModule(
        D,
        settings["n_hidden"],
        make_family(settings["family"], settings["n_components"]),
        n_layers=settings.get("n_layers", 1),
        weight_scale=Recipe(**settings["recipe"]).weight_scale,
        generator=Generator().manual_seed(seed),
    )


def natural_orders(D: int, n_features: int) -> list[Tensor]:
    """Orders of a window's dimensions: its own, and backwards in time, in frequency, in both.

    >>> [order.tolist() for order in natural_orders(4, 2)]
    [[0, 1, 2, 3], [3, 2, 1, 0], [2, 3, 0, 1], [1, 0, 3, 2]]
    """
    own = torch.arange(D).view(-1, n_features)
    return [order.flatten() for order in (own, own.flip(0, 1), own.flip(0), own.flip(1))]


def fit(
    settings: Settings, folds: Sequence[FoldWindows]
) -> Iterator[tuple[SpeechDensity, Settings]]:
    """Fit one setting to several folds; gives densities and what to record, in their order."""
    return (
        _fit_mixtures(settings, folds)
        if settings["model"] == "mog"
        else _fit_rnade(settings, folds)
    )


def _fit_mixtures(
    settings: Settings, folds: Sequence[FoldWindows]
) -> Iterator[tuple[SpeechDensity, Settings]]:
    """One fold after the other: each fills the device by itself."""
    for fold in folds:
        rows = fold.train
        generator = Generator(rows.device).manual_seed(settings["seed"] + fold.number)
        module, outcome = fit_gaussians(settings, rows, rows, fold.validation, generator)
        details = {"best_epoch": outcome.best_epoch, "n_epochs": outcome.history[-1]["epoch"]}
        yield SpeechDensity([Density(module)]), details


def _fit_rnade(
    settings: Settings, folds: Sequence[FoldWindows]
) -> Iterator[tuple[SpeechDensity, Settings]]:
    """All folds, and all orders of an average, as one bank."""
    made = [list(_started(settings, fold)) for fold in folds]
    results = iter(train_all([member for models in made for member, _ in models]))
    for models in made:
        trained = [next(results) for _ in models]
        members = [
            replace(density, module=cast(AbstractDensity, t.module))
            for t, (_, density) in zip(trained, models, strict=True)
        ]
        yield SpeechDensity(members), _details(trained)


def _started(settings: Settings, fold: FoldWindows) -> Iterator[tuple[Member, Density]]:
    """Models of one fold in the windows' own order and, for an average, in others."""
    recipe = Recipe(**settings["recipe"])
    D, device = fold.train.shape[1], fold.train.device
    for i, own in enumerate(natural_orders(D, fold.n_features)[: settings["n_orders"]]):
        order = own.to(device)
        linear = LinearPart.fit(fold.train[:, order]) if settings["residuals"] else None
        seed = settings["seed"] + 100 * i + fold.number
        module = make_rnade(settings, D, seed).to(device)
        density = Density(module, linear, order)
        train, validation = (density.columns_of(rows) for rows in (fold.train, fold.validation))
        module.start_from(train, spread=recipe.spread)
        yield Member(module, recipe, ShuffledRows(train, seed), Batch(validation)), density


def _details(trained: Sequence[Trained]) -> Settings:
    """Where training stood when its best weights were kept; of an average, for each model."""
    found = {
        "best_epoch": [t.best_epoch for t in trained],
        "n_epochs": [len(t.history) - 1 for t in trained],
        "skipped": [sum(row["skipped"] for row in t.history) for t in trained],
    }
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def file_of(job: Job, folder: Path) -> Path:
    """Where a job's model is kept: a job with other settings has another file."""
    digest = hashlib.sha256(job.identity.encode()).hexdigest()[:12]
    return folder / f"{job.key['model']}-{digest}.safetensors"


def keep(density: SpeechDensity, job: Job, folder: Path) -> None:
    """Write a model to its file, if it is of a row that Figure 2 shows and of the first fold."""
    if job.key["model"] in shown(job.key["dataset"]) and not job.key["fold"]:
        (member,) = density.members
        store(Fitted(member, {}), job.settings, file_of(job, folder))


def kept_or_fitted(job: Job, fold: FoldWindows, folder: Path) -> SpeechDensity:
    """Give a job's model from its file; where there is none, fit it and write one."""
    D, device = fold.train.shape[1], fold.train.device
    make = partial(make_module, job.settings, D)
    found = stored(file_of(job, folder), job.settings, make, device)
    if found is not None:
        return SpeechDensity([found.density])
    ((density, _),) = fit(job.settings, [fold])
    keep(density, job, folder)
    return density
