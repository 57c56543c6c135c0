"""Densities of image patches: made from settings, and trained on fresh patches."""

import math
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Generator, Tensor

from rnade.columns.linear import LinearPart
from rnade.data.patches import Bsds300, PatchSource, fixed_patches, turned
from rnade.families import make_family
from rnade.nn import AbstractDensity, MixtureOfGaussiansModule, RNADEModule
from rnade.reproduce.core.density import Density, Fitted, fit_gaussians, store, stored
from rnade.reproduce.core.experiment import Settings
from rnade.training import FreshRows, Recipe, make_recipe, train

# The paper's early stopping looks at so many patches.
N_VALIDATION = 1000
# Patches from which a model starts and its columns' units are measured.
N_START = 50_000


@dataclass(frozen=True, eq=False)
class ColumnSource:
    """Fresh patches in the columns of the density that is trained on them.

    They are turned by so many symmetries of the square, in equal shares: 1 leaves them as they
    are.
    """

    patches: PatchSource
    density: Density
    n_symmetries: int = 1

    @property
    def device(self) -> torch.device:
        """Where patches are drawn."""
        return self.patches.device

    def draw(self, n: int, generator: Generator) -> Tensor:
        """Draw columns of n patches."""
        x = self.patches.draw(n, generator)
        for g in range(1, self.n_symmetries):
            # Every so many rows, so that each minibatch has its share of all.
            x[g :: self.n_symmetries] = turned(x[g :: self.n_symmetries], g)
        return self.density.columns_of(x)


def make_module(settings: Settings, n_dimensions: int) -> AbstractDensity:
    """Make the untrained module of some settings."""
    if settings["kind"] == "mixture":
        return MixtureOfGaussiansModule(n_dimensions, settings["n_components"])
    return make_rnade(settings, n_dimensions)


def make_rnade(settings: Settings, n_dimensions: int) -> RNADEModule:
    """Make an untrained RNADE, whose weights start where the settings say."""
    optional = {name: settings[name] for name in ("n_layers", "backend") if name in settings}
    start = settings.get("start")
    module = RNADEModule(
        n_dimensions,
        settings["n_hidden"],
        make_family(settings["family"], settings["n_components"]),
        activation=settings["activation"],
        order=settings["order"],
        weight_scale=None if start is None else start["W"],
        generator=Generator().manual_seed(settings["seed"]),
        **optional,
    )
    if start is not None:
        with torch.no_grad():
            module.V.mul_(start["V"] / start["W"])
            module.c.mul_(start.get("c", start["W"]) / start["W"]).add_(start.get("c_mean", 0.0))
    return module


@torch.no_grad()
def start_biases(module: RNADEModule, settings: Settings, columns: Tensor) -> None:
    """Set the output biases as the settings say, else so that they resemble the columns."""
    start, K = settings.get("start"), settings["n_components"]
    if start is None:
        module.start_from(columns)
        return
    means = torch.linspace(-start["mean"], start["mean"], K)
    scales = torch.full((K,), math.log(start["scale"]))
    module.b.copy_(torch.cat([torch.zeros(K), means, scales]).expand_as(module.b))


def recipe_of(settings: Settings) -> Recipe:
    """Give the recipe that settings hold as changes of a known one."""
    changes = dict(settings["recipe"])
    return make_recipe(changes.pop("base"), **changes)


def _for_device(settings: Settings, device: torch.device) -> Settings:
    """Settings without the backends that this device does not have."""
    if device.type == "cuda":
        return settings
    return {k: v for k, v in settings.items() if k not in ("backend", "scoring")}


def fit(settings: Settings, data: Bsds300) -> Fitted:
    """Train a model on fresh patches of the training images."""
    began = time.perf_counter()
    device, D = data.train.device, data.train.n_dimensions
    own = _for_device(settings, device)
    generator = Generator(device).manual_seed(settings["seed"])
    start = data.train.draw(N_START, generator)
    validation = fixed_patches(data.validation, N_VALIDATION)
    if settings["kind"] == "mixture":
        mixture, outcome = fit_gaussians(settings, data.train, start, validation, generator)
        density = Density(mixture)
    else:
        module = make_rnade(own, D).to(device)
        decorrelated = settings["columns"] == "decorrelated"
        density = Density(module, LinearPart.fit(start, module.order[0]) if decorrelated else None)
        start_biases(module, settings, density.columns_of(start))
        if "floor" in settings:
            module.set_floor(torch.full((D,), settings["floor"]))
        source = ColumnSource(data.train, density, settings.get("n_symmetries", 1))
        outcome = train(
            module,
            FreshRows(source, generator),
            recipe_of(settings),
            validation=density.columns_of(validation),
        )
        module.backend = own.get("scoring", "auto")
    shift, last = density.log_determinant, outcome.history[-1]
    details = {
        "fit_seconds": round(time.perf_counter() - began, 3),
        "train_seconds": last["seconds"],
        "best_epoch": outcome.best_epoch,
        "n_epochs": last["epoch"],
        "skipped": last["skipped"],
        "validation": outcome.best_score + shift,
        "n_parameters": density.n_parameters,
        "history": [
            [
                row["epoch"],
                *(round(row[part] + shift, 3) for part in ("train", "validation")),
                row["seconds"],
            ]
            for row in outcome.history[:: max(1, len(outcome.history) // 20)]
            if math.isfinite(row["train"])
        ],
    }
    return Fitted(density, details)


def fitted_or_stored(name: str, settings: Settings, data: Bsds300, folder: Path) -> Fitted:
    """Give the model that a file in `folder` holds; where there is none, fit it and write one."""
    path, device = folder / f"{name}.safetensors", data.train.device
    scoring = {"backend": _for_device(settings, device).get("scoring", "auto")}
    make = partial(make_module, {**settings, **scoring}, data.train.n_dimensions)
    found = stored(path, settings, make, device)
    if found is None:
        found = fit(settings, data)
        store(found, settings, path)
    return found
