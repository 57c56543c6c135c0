"""Fitted densities of an experiment: their rows with the linear part taken out, their files."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor

from rnade.columns.linear import LinearPart
from rnade.exceptions import ModelFileError
from rnade.nn import AbstractDensity, MixtureOfGaussiansModule
from rnade.reproduce.core.experiment import Settings
from rnade.serialisation import read_model, write_model
from rnade.training import EMSettings, FreshRows, Outcome, RowSource, fit_mixture
from rnade.training.em import starting_components

# Rows that are scored at a time.
CHUNK = 10_000


@dataclass(frozen=True, eq=False)
class Density:
    """A density of rows.

    Attributes
    ----------
    module : AbstractDensity
    linear : LinearPart or None
        What is taken out of the rows before the module sees them.
    order : int Tensor of shape (D,), or None
        In which linear part and module take the columns; None for their own.
    """

    module: AbstractDensity
    linear: LinearPart | None = None
    order: Tensor | None = None

    @property
    def n_parameters(self) -> int:
        """Numbers that were fitted."""
        return sum(p.numel() for p in self.module.parameters())

    @property
    def log_determinant(self) -> float:
        """What taking the linear part out adds to the log density of a row."""
        return 0.0 if self.linear is None else self.linear.log_determinant

    def columns_of(self, x: Tensor) -> Tensor:
        """Rows as the module sees them."""
        ordered = x if self.order is None else x[:, self.order]
        return ordered if self.linear is None else self.linear.transform(ordered)

    @torch.no_grad()
    def log_prob(self, x: Tensor) -> Tensor:
        """Log density of rows in float64; of a bank, one row a model."""
        pieces = [
            self.module.log_prob(self.columns_of(rows).to(self.module.dtype)).double()
            for rows in torch.split(x, CHUNK)
        ]
        return torch.cat(pieces, -1) + self.log_determinant

    def sample(self, n: int, generator: Generator) -> Tensor:
        """Draw rows."""
        y = self.module.sample(n, generator)
        ordered = y if self.linear is None else self.linear.inverse(y)
        return ordered if self.order is None else ordered[:, self.order.argsort()]


@dataclass(frozen=True, eq=False)
class Fitted:
    """A density, and what its record says of its training."""

    density: Density
    details: Settings


def store(fitted: Fitted, settings: Settings, path: Path) -> None:
    """Write a density to a file, with the settings that it was fitted with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = dict(fitted.density.module.state_dict())
    linear = fitted.density.linear
    if linear is not None:
        tensors |= {"columns.mean": linear.mean, "columns.A": linear.A}
    facts = {"settings": settings, "details": fitted.details}
    write_model(path, tensors, facts, overwrite=True)


def stored(
    path: Path,
    settings: Settings,
    make_module: Callable[[], AbstractDensity],
    device: torch.device,
) -> Fitted | None:
    """Give the density that a file holds, if there is one of these very settings."""
    try:
        tensors, found = read_model(path)
        known = found.get("settings", found.get("patches"))  # what older files call them
        if json.dumps(known, sort_keys=True) != json.dumps(settings, sort_keys=True):
            return None
        names = ("columns.mean", "columns.A")
        parts = [tensors.pop(name).to(device) for name in names if name in tensors]
        module = make_module()
        module.load_state_dict(tensors)
    except (FileNotFoundError, ModelFileError, KeyError, RuntimeError):
        return None  # none, or one of another version
    linear = LinearPart(*parts) if parts else None
    return Fitted(Density(module.to(device), linear), found["details"])


def fit_gaussians(
    settings: Settings,
    rows: Tensor | RowSource,
    start: Tensor,
    validation: Tensor,
    generator: Generator,
) -> tuple[MixtureOfGaussiansModule, Outcome]:
    """Fit a mixture of Gaussians by EM, to rows or to fresh ones, starting from those of `start`.

    Settings are n_components, em and, if any, init and shrinkage.
    """
    D, K = start.shape[1], settings["n_components"]
    module = MixtureOfGaussiansModule(D, K).to(start.device)
    init = settings.get("init", "k-means++")
    module.set_components(*starting_components(start, K, init, generator))
    outcome = fit_mixture(
        module,
        # It draws at once, so it comes after the start: the seed gives these rows in this order.
        rows if isinstance(rows, Tensor) else FreshRows(rows, generator),
        EMSettings(**settings["em"]),
        floor=torch.zeros(D),
        shrinkage=settings.get("shrinkage", 0.0),
        generator=generator,
        validation=validation,
    )
    return module, outcome
