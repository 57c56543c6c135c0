"""The models of Table 3, each fitted to all folds of a data set."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from rnade.batch import Batch
from rnade.families import make_family
from rnade.nn import AbstractDensity, MixtureOfGaussiansModule, RNADEModule
from rnade.reproduce.banks import trained_bank
from rnade.reproduce.residuals import Residuals
from rnade.reproduce.speech_data import FoldWindows
from rnade.reproduce.statistics import log_mean_density
from rnade.training import EMSettings, Member, Recipe, ShuffledRows, Trained, fit_mixture
from rnade.training.em import starting_components
from rnade.typing import Array

Settings = dict[str, Any]
# Rows that are scored at a time.
CHUNK = 10_000


@dataclass(frozen=True, eq=False)
class SpeechDensity:
    """A fitted density of windows: one model, or the average of several in other orders.

    Attributes
    ----------
    modules : list of AbstractDensity
    residuals : list of Residuals, or empty
        For each module, what its rows are made by; empty where they are the windows themselves.
    """

    modules: list[AbstractDensity]
    residuals: list[Residuals]

    @torch.no_grad()
    def log_prob(self, rows: Tensor) -> Array:
        """Log density of each row in nats."""
        return np.concatenate(
            [self._log_prob(piece).cpu().numpy() for piece in torch.split(rows, CHUNK)]
        )

    def _log_prob(self, rows: Tensor) -> Tensor:
        scores = []
        for i, module in enumerate(self.modules):
            if self.residuals:
                residuals = self.residuals[i]
                log_p = module.log_prob(residuals.of(rows)).double() + residuals.log_determinant
            else:
                log_p = module.log_prob(rows).double()
            scores.append(log_p)
        return log_mean_density(torch.stack(scores))

    @torch.no_grad()
    def sample(self, n: int, seed: int) -> Tensor:
        """Draw windows, each from a model chosen at random."""
        device = self.modules[0].device
        generator = Generator(device).manual_seed(seed)
        chosen = torch.randint(len(self.modules), (n,), device=device, generator=generator)
        drawn = torch.empty(n, self.modules[0].n_dimensions, device=device)
        for i, module in enumerate(self.modules):
            mine = chosen == i
            if not bool(mine.any()):
                continue
            x = module.sample(int(mine.sum()), generator)
            drawn[mine] = self.residuals[i].undo(x) if self.residuals else x
        return drawn

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a model file must hold."""
        found = {
            f"{i}.{name}": tensor
            for i, module in enumerate(self.modules)
            for name, tensor in module.state_dict().items()
        }
        for i, r in enumerate(self.residuals):
            found |= {f"residuals.{i}.{f.name}": getattr(r, f.name) for f in dataclasses.fields(r)}
        return found

    @classmethod
    def from_tensors(
        cls, tensors: dict[str, Tensor], settings: Settings, device: torch.device
    ) -> "SpeechDensity":
        """Build what a model file holds, for the settings that it was trained with."""
        modules, residuals = [], []
        for i in range(settings.get("n_orders", 1)):
            own = {n.removeprefix(f"{i}."): t for n, t in tensors.items() if n.startswith(f"{i}.")}
            D = own["mu"].shape[-1] if "mu" in own else own["W"].shape[1]
            module = make_module(settings, D, Generator())
            module.load_state_dict(own)
            modules.append(module.to(device))
            if settings.get("residuals"):
                start = f"residuals.{i}."
                names = [f.name for f in dataclasses.fields(Residuals)]
                residuals.append(Residuals(*[tensors[start + n].to(device) for n in names]))
        return cls(modules, residuals)


def make_module(
    settings: Settings, D: int, generator: Generator, order: Tensor | None = None
) -> AbstractDensity:
    """Make an untrained model; of residuals the order is theirs."""
    if settings["model"] == "mog":
        return MixtureOfGaussiansModule(D, settings["n_components"])
    return RNADEModule(
        D,
        settings["n_hidden"],
        make_family(settings["family"], settings["n_components"]),
        order=None if settings["residuals"] else order,
        weight_scale=Recipe(**settings["recipe"]).weight_scale,
        generator=generator,
    )


def natural_orders(D: int, n_features: int) -> list[Tensor]:
    """Orders of a window's dimensions: its own, and backwards in time, in frequency, in both.

    >>> [order.tolist() for order in natural_orders(4, 2)]
    [[0, 1, 2, 3], [3, 2, 1, 0], [2, 3, 0, 1], [1, 0, 3, 2]]
    """
    own = torch.arange(D).view(-1, n_features)
    return [order.flatten() for order in (own, own.flip(0, 1), own.flip(0), own.flip(1))]


@dataclass(frozen=True, eq=False)
class Fitted:
    """A density fitted to one fold, and what else is worth recording."""

    density: SpeechDensity
    details: dict[str, Any]


def fit(settings: Settings, folds: Sequence[FoldWindows]) -> Iterator[Fitted]:
    """Fit one setting to several folds; gives them in their order."""
    return (
        _fit_mixtures(settings, folds)
        if settings["model"] == "mog"
        else _fit_rnade(settings, folds)
    )


def _fit_mixtures(settings: Settings, folds: Sequence[FoldWindows]) -> Iterator[Fitted]:
    """One fold after the other: each fills the device by itself."""
    em, K = EMSettings(**settings["em"]), settings["n_components"]
    for fold in folds:
        rows = fold.train
        D = rows.shape[1]
        generator = Generator(rows.device).manual_seed(settings["seed"] + fold.number)
        module = MixtureOfGaussiansModule(D, K).to(rows.device)
        module.set_components(*starting_components(rows, K, "k-means++", generator))
        outcome = fit_mixture(
            module,
            rows,
            em,
            floor=torch.zeros(D),
            shrinkage=settings["shrinkage"],
            generator=generator,
            validation=fold.validation,
        )
        n_iterations = outcome.history[-1]["epoch"]
        details = {"best_epoch": outcome.best_epoch, "n_epochs": n_iterations}
        yield Fitted(SpeechDensity([module], []), details)


def _fit_rnade(settings: Settings, folds: Sequence[FoldWindows]) -> Iterator[Fitted]:
    """All folds, and all orders of an average, as one bank."""
    made = [_members(settings, fold) for fold in folds]
    bank = trained_bank([member for members, _ in made for member in members])
    results = iter(bank.results())
    for members, residuals in made:
        trained = [next(results) for _ in members]
        modules: list[AbstractDensity] = [_rnade(t) for t in trained]
        yield Fitted(SpeechDensity(modules, residuals), _details(trained))


def _members(settings: Settings, fold: FoldWindows) -> tuple[list[Member], list[Residuals]]:
    """Models of one fold in the windows' own order and, for an average, in others."""
    recipe = Recipe(**settings["recipe"])
    members, all_residuals = [], []
    D = fold.train.shape[1]
    for i, order in enumerate(natural_orders(D, fold.n_features)[: settings["n_orders"]]):
        train, validation = fold.train, fold.validation
        if settings["residuals"]:
            residuals = Residuals.fit(train, order)
            train, validation = residuals.of(train), residuals.of(validation)
            all_residuals.append(residuals)
        seed = settings["seed"] + 100 * i + fold.number
        module = make_module(settings, D, Generator().manual_seed(seed), order).to(train.device)
        assert isinstance(module, RNADEModule)
        module.start_from(train, spread=recipe.spread)
        members.append(Member(module, recipe, ShuffledRows(train, seed), Batch(validation)))
    return members, all_residuals


def _rnade(trained: Trained) -> RNADEModule:
    assert isinstance(trained.module, RNADEModule)
    return trained.module


def _details(trained: Sequence[Trained]) -> dict[str, Any]:
    """Where training stood when its best weights were kept; of an average, for each model."""
    found = {
        "best_epoch": [t.best_epoch for t in trained],
        "n_epochs": [len(t.history) - 1 for t in trained],
        "skipped": [sum(row["skipped"] for row in t.history) for t in trained],
    }
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}
