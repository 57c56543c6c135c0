"""Densities of image patches: made from settings, trained on fresh patches, kept in files."""

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from rnade.data.patches import Bsds300, PatchSource, fixed_patches, turned
from rnade.exceptions import ModelFileError
from rnade.families import make_family
from rnade.nn import MixtureOfGaussiansModule, RNADEModule
from rnade.nn.base import AbstractDensity
from rnade.reproduce.residuals import factor_of_covariance
from rnade.serialisation import read_model, write_model
from rnade.training import EMSettings, FreshRows, Outcome, fit_mixture, make_recipe, train
from rnade.training.em import starting_components

Settings = dict[str, Any]

# The paper's early stopping looks at so many patches.
N_VALIDATION = 1000
# Patches from which a model starts and its columns' units are measured.
N_START = 50_000
# Patches scored at a time.
CHUNK = 50_000


@dataclass(frozen=True, eq=False)
class Columns:
    """An affine map of patches to the columns that a model sees, y = A (x - mean).

    Attributes
    ----------
    mean : Tensor of shape (D,)
    A : Tensor of shape (D, D)
        Triangular along the model's order, so that each y_d is x_d less something that the
        pixels before it tell, in units of its own: conditionals keep their form.
    """

    mean: Tensor
    A: Tensor

    @staticmethod
    def of(kind: str, x: Tensor, order: Tensor) -> "Columns":
        """Measure the map on some patches.

        Parameters
        ----------
        kind : "raw", "standardised" or "decorrelated"
            As they are; each with mean 0 and deviation 1; or also less the best linear prediction
            from the pixels before.
        x : Tensor of shape (N, D)
        order : Tensor of shape (D,)
        """
        if kind == "raw":
            return Columns.raw(x.shape[1], x.device)
        x = x.double()
        eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        if kind == "standardised":
            A = torch.diag(1 / x.std(0, correction=0))
        elif kind == "decorrelated":
            L = factor_of_covariance(x[:, order])
            A = torch.zeros_like(eye)
            A[order[:, None], order] = torch.linalg.solve_triangular(L, eye, upper=False)
        else:
            raise ValueError(f"Unknown kind of columns {kind!r}.")
        return Columns(x.mean(0), A)

    @staticmethod
    def raw(n_dimensions: int, device: torch.device) -> "Columns":
        """Give the map that changes nothing."""
        eye = torch.eye(n_dimensions, dtype=torch.float64, device=device)
        return Columns(torch.zeros_like(eye[0]), eye)

    @property
    def log_determinant(self) -> float:
        """What the map adds to the log density of a patch."""
        return float(self.A.diagonal().log().sum())

    def of_patches(self, x: Tensor) -> Tensor:
        """Columns of patches, in float32 after float64 arithmetic."""
        return ((x.double() - self.mean) @ self.A.T).float()

    def to_patches(self, y: Tensor) -> Tensor:
        """Patches that have these columns."""
        x: Tensor = torch.linalg.solve(self.A, y.double().T).T + self.mean
        return x.float()


@dataclass(frozen=True, eq=False)
class ColumnSource:
    """Columns of fresh patches, some of them turned.

    Attributes
    ----------
    patches : PatchSource
    columns : Columns
    n_symmetries : int
        Of the square, in equal shares: 1 leaves all patches as they are.
    """

    patches: PatchSource
    columns: Columns
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
        return self.columns.of_patches(x)


@dataclass(frozen=True, eq=False)
class PatchModel:
    """A density of patches.

    Attributes
    ----------
    module : AbstractDensity
        Of the columns.
    columns : Columns
    """

    module: AbstractDensity
    columns: Columns

    @staticmethod
    def raw(module: AbstractDensity) -> "PatchModel":
        """Take patches as they are."""
        return PatchModel(module, Columns.raw(module.n_dimensions, module.device))

    @property
    def n_parameters(self) -> int:
        """Numbers that were fitted."""
        return sum(p.numel() for p in self.module.parameters())

    @torch.no_grad()
    def log_prob(self, x: Tensor) -> Tensor:
        """Log density of patches in float64; of a bank, one row a model."""
        pieces = [
            self.module.log_prob(self.columns.of_patches(rows).to(self.module.dtype)).double()
            for rows in torch.split(x, CHUNK)
        ]
        return torch.cat(pieces, -1) + self.columns.log_determinant

    def sample(self, n: int, generator: Generator) -> Tensor:
        """Draw patches."""
        return self.columns.to_patches(self.module.sample(n, generator))


def make_module(settings: Settings, n_dimensions: int) -> AbstractDensity:
    """Make the untrained module of some settings."""
    if settings["kind"] == "mixture":
        return MixtureOfGaussiansModule(n_dimensions, settings["n_components"])
    generator = Generator().manual_seed(settings["seed"])
    optional = {name: settings[name] for name in ("n_layers", "backend") if name in settings}
    start = settings.get("start")
    module = RNADEModule(
        n_dimensions,
        settings["n_hidden"],
        make_family(settings["family"], settings["n_components"]),
        activation=settings["activation"],
        order=settings["order"],
        weight_scale=None if start is None else start["W"],
        generator=generator,
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


def _for_device(settings: Settings, device: torch.device) -> Settings:
    """Settings without the backends that this device does not have."""
    if device.type == "cuda":
        return settings
    return {k: v for k, v in settings.items() if k not in ("backend", "scoring")}


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model and how its training went."""

    model: PatchModel
    details: Settings


def fit(settings: Settings, data: Bsds300) -> Fitted:
    """Train a model on fresh patches of the training images."""
    began = time.perf_counter()
    device = data.train.device
    generator = Generator(device).manual_seed(settings["seed"])
    module = make_module(_for_device(settings, device), data.train.n_dimensions).to(device)
    start = data.train.draw(N_START, generator)
    validation = fixed_patches(data.validation, N_VALIDATION)
    if isinstance(module, MixtureOfGaussiansModule):
        columns = Columns.raw(module.n_dimensions, device)
        outcome = _fit_mixture(module, settings, data, start, validation, generator)
    else:
        assert isinstance(module, RNADEModule)
        columns = Columns.of(settings["columns"], start, module.order[0])
        outcome = _fit_rnade(module, settings, data, columns, start, validation, generator)
        module.backend = _for_device(settings, device).get("scoring", "auto")
    model = PatchModel(module, columns)
    shift = columns.log_determinant
    details = {
        "fit_seconds": round(time.perf_counter() - began, 3),
        "train_seconds": outcome.history[-1]["seconds"],
        "best_epoch": outcome.best_epoch,
        "n_epochs": outcome.history[-1]["epoch"],
        "skipped": outcome.history[-1]["skipped"],
        "validation": outcome.best_score + shift,
        "n_parameters": model.n_parameters,
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
    return Fitted(model, details)


def _fit_mixture(
    module: MixtureOfGaussiansModule,
    settings: Settings,
    data: Bsds300,
    start: Tensor,
    validation: Tensor,
    generator: Generator,
) -> Outcome:
    K, init = settings["n_components"], settings["init"]
    module.set_components(*starting_components(start, K, init, generator))
    return fit_mixture(
        module,
        FreshRows(data.train, generator),
        EMSettings(**settings["em"]),
        floor=torch.zeros(module.n_dimensions),
        generator=generator,
        validation=validation,
    )


def _fit_rnade(
    module: RNADEModule,
    settings: Settings,
    data: Bsds300,
    columns: Columns,
    start: Tensor,
    validation: Tensor,
    generator: Generator,
) -> Outcome:
    given = dict(settings["recipe"])
    recipe = make_recipe(given.pop("base"), **given)
    start_biases(module, settings, columns.of_patches(start))
    if "floor" in settings:
        module.set_floor(torch.full((module.n_dimensions,), settings["floor"]))
    source = ColumnSource(data.train, columns, settings.get("n_symmetries", 1))
    return train(
        module,
        FreshRows(source, generator),
        recipe,
        validation=columns.of_patches(validation),
    )


def fitted_or_stored(name: str, settings: Settings, data: Bsds300, folder: Path) -> Fitted:
    """Give the model that a file in `folder` holds; where there is none, fit it and write one."""
    path = folder / f"{name}.safetensors"
    stored = _read(path, settings, data.train.device)
    if stored is not None:
        return stored
    fitted = fit(settings, data)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = dict(fitted.model.module.state_dict())
    tensors |= {"columns.mean": fitted.model.columns.mean, "columns.A": fitted.model.columns.A}
    write_model(path, tensors, {"patches": settings, "details": fitted.details}, overwrite=True)
    return fitted


def _read(path: Path, settings: Settings, device: torch.device) -> Fitted | None:
    """A stored model, if there is one of these very settings."""
    try:
        tensors, found = read_model(path)
    except (FileNotFoundError, ModelFileError):
        return None
    if json.dumps(found.get("patches"), sort_keys=True) != json.dumps(settings, sort_keys=True):
        return None
    columns = Columns(*(tensors.pop(f"columns.{name}").to(device) for name in ("mean", "A")))
    backend = _for_device(settings, device).get("scoring", "auto")
    module = make_module({**settings, "backend": backend}, len(columns.mean))
    module.load_state_dict(tensors)
    return Fitted(PatchModel(module.to(device), columns), found["details"])
