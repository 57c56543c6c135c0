"""What the estimators of mixtures share: EM with restarts, and the search for their size."""

import abc
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Generator

from rnade.backends.threads import threads_for
from rnade.batch import Batch
from rnade.checks import positive_int, unknown_name
from rnade.estimators.density import AbstractDensityEstimator
from rnade.estimators.missing import AbstractMissingEstimator
from rnade.estimators.parameters import EMParameters, MixtureParameters
from rnade.estimators.settings import scale_floors
from rnade.nn import AbstractGaussianMixture
from rnade.progress import training_bar
from rnade.training import EMSettings, Outcome, fit_mixture
from rnade.training.em import STARTS, starting_components
from rnade.training.em.loop import n_products
from rnade.typing import Array

# The paper's ranges: even numbers of components up to this, even numbers of factors up to D.
MOST_COMPONENTS = 50


class AbstractSizedEstimator(EMParameters, AbstractDensityEstimator):
    """Density estimator trained by EM, the size of its mixture given or searched for."""

    n_components: Any  # a parameter of every subclass

    # Fitted attributes.
    module_: Any
    n_components_: int
    search_: list[dict[str, Any]]

    # Names of the parameters that give the mixture's size, each an int, a list or "search".
    _sizes: ClassVar[tuple[str, ...]] = ("n_components",)
    _kept: ClassVar[tuple[str, ...]] = ("n_components_", "search_")

    def _chosen_sizes(self) -> dict[str, int]:
        """Sizes of the model kept."""
        return {name: getattr(self, f"{name}_") for name in self._sizes}

    def _check_settings(self) -> None:
        self._settings()
        positive_int(self.n_init, "n_init")
        for name in self._sizes:
            value = getattr(self, name)
            if isinstance(value, str):
                if value != "search":
                    raise ValueError(
                        f"{name} must be a whole number, a list of them or 'search';"
                        f" got {value!r}."
                    )
            else:
                for one in value if isinstance(value, Sequence) else [value]:
                    positive_int(one, name)

    def _settings(self) -> EMSettings:
        return EMSettings(self.max_iter, self.tol, self.patience)

    def _candidates(self, n_rows: int, n_dimensions: int) -> list[dict[str, int]]:
        """All combinations of sizes that are to be tried."""
        choices = []
        for name in self._sizes:
            value = getattr(self, name)
            if isinstance(value, str):  # "search"
                most = {
                    "n_components": min(MOST_COMPONENTS, n_rows // 2),
                    "n_factors": n_dimensions,
                }
                value = _even_numbers(most[name])
            choices.append(list(value) if isinstance(value, Sequence) else [value])
        return [
            dict(zip(self._sizes, sizes, strict=True)) for sizes in itertools.product(*choices)
        ]

    def _train(
        self, training: Batch, held_out: Batch | None, seed: int, target: float | None
    ) -> tuple[Any, Outcome]:
        if held_out is None:
            return self._train_one(training, None, seed, target, self._chosen_sizes())
        best: tuple[Any, Outcome] | None = None
        self.search_ = []
        candidates = self._candidates(*training.x.shape[:2])
        everything = self._train_sizes(training, held_out, seed, candidates)
        for sizes, trained in zip(candidates, everything, strict=True):
            outcome = trained[1]
            self.search_.append(
                sizes
                | {
                    "validation": outcome.best_score,
                    "train": outcome.train_at_best,
                    "best_epoch": outcome.best_epoch,
                }
            )
            if best is None or outcome.best_score > best[1].best_score:
                best = trained
                for name in self._sizes:
                    setattr(self, f"{name}_", sizes[name])
        assert best is not None
        return best

    def _train_sizes(
        self, training: Batch, held_out: Batch, seed: int, candidates: Sequence[dict[str, int]]
    ) -> Iterator[tuple[Any, Outcome]]:
        """Train a mixture of each size: here one after the other."""
        for sizes in candidates:
            yield self._train_one(training, held_out, seed, None, sizes)

    @abc.abstractmethod
    def _train_one(
        self,
        training: Batch,
        held_out: Batch | None,
        seed: int,
        target: float | None,
        sizes: dict[str, int],
    ) -> tuple[Any, Outcome]:
        """Train all starts of one size; give the best of them."""


class AbstractMixtureEstimator(
    MixtureParameters, AbstractSizedEstimator, AbstractMissingEstimator
):
    """Density estimator over one mixture of Gaussians."""

    module_: AbstractGaussianMixture

    @abc.abstractmethod
    def _make_module(
        self, n_dimensions: int, sizes: dict[str, int], n_models: int = 1
    ) -> AbstractGaussianMixture:
        """Build an untrained module of these sizes."""

    def _empty_module(self, n_dimensions: int) -> AbstractGaussianMixture:
        return self._make_module(n_dimensions, self._chosen_sizes())

    @property
    def weights_(self) -> Array:
        """Fraction of each component, of shape (K,)."""
        fractions: Array = self.module_.log_alpha[0].exp().cpu().numpy()
        return fractions

    @property
    def means_(self) -> Array:
        """Mean of each component, of shape (K, D), in the data's units."""
        return self.standardiser_.inverse(self.module_.mu[0].cpu().numpy())

    @property
    def covariances_(self) -> Array:
        """Covariance of each component, of shape (K, D, D), in the data's units."""
        scale = self.standardiser_.scale
        C: Array = self.module_.covariances()[0].cpu().numpy()
        return C * scale[:, None] * scale

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.init not in STARTS:
            raise unknown_name(self.init, STARTS, "init")

    def _settings(self) -> EMSettings:
        settings = super()._settings()
        return replace(settings, batch_size=self.batch_size, step_size=self.step_size)

    def _train_one(
        self,
        training: Batch,
        held_out: Batch | None,
        seed: int,
        target: float | None,
        sizes: dict[str, int],
    ) -> tuple[AbstractGaussianMixture, Outcome]:
        """Train all restarts of one size as a bank; give the best of them."""
        x, settings = training.x, self._settings()
        generator = Generator(x.device).manual_seed(seed)
        bank = self._make_module(x.shape[1], sizes, self.n_init).to(x.device, x.dtype)
        floor = self._floor().to(x.device)
        with threads_for(n_products(bank, len(x))):
            start = starting_components(
                x,
                sizes["n_components"],
                self.init,
                generator,
                n_models=self.n_init,
                weights=training.weights,
                floor=floor,
                seen=training.seen,
            )
        bank.set_components(*start)
        description = ", ".join(f"{name}={value}" for name, value in sizes.items())
        with training_bar(description, settings.max_iter, shown=self.verbose > 0) as on_epoch:
            outcome = fit_mixture(
                bank,
                x,
                settings,
                floor=floor,
                generator=generator,
                validation=None if held_out is None else held_out.x,
                weights=training.weights,
                validation_weights=None if held_out is None else held_out.weights,
                seen=training.seen,
                validation_seen=None if held_out is None else held_out.seen,
                target=target,
                # Of a bank, the history holds lists.
                on_epoch=on_epoch if self.n_init == 1 else None,
            )
        if self.n_init == 1:
            return bank, outcome
        member = int(torch.tensor(outcome.best_score).argmax())
        return bank[member], _of_member(outcome, member)

    def _floor(self) -> torch.Tensor:
        """Smallest variance of a component along each standardised column."""
        assert self.resolution_ is not None
        floors = scale_floors(self.sigma_floor, self.resolution_, self.standardiser_)
        return torch.as_tensor(floors**2)


def _of_member(outcome: Outcome, member: int) -> Outcome:
    """What training gave for one member of a bank."""

    def own(value: Any) -> Any:
        return value[member] if isinstance(value, list) else value

    history = [{key: own(value) for key, value in row.items()} for row in outcome.history]
    return Outcome(
        history, own(outcome.best_epoch), own(outcome.best_score), own(outcome.train_at_best)
    )


def _even_numbers(most: int) -> range:
    """Give 2, 4, ... up to `most`; 1 where that is below 2."""
    return range(2, most + 1, 2) if most >= 2 else range(1, 2)
