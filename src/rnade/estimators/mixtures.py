"""Mixtures of Gaussians and of factor analysers as scikit-learn estimators, with their search."""

import abc
import itertools
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Generator

from rnade.checks import number_between, positive_int, unknown_name
from rnade.estimators.conditionals import AbstractConditionalsEstimator
from rnade.estimators.density import Rows
from rnade.estimators.inputs import check_not_constant, warn_of_spikes
from rnade.families.base import Array
from rnade.nn import (
    AbstractGaussianMixture,
    MixtureOfFactorAnalyzersModule,
    MixtureOfGaussiansModule,
)
from rnade.preprocessing import Resolution, Standardiser
from rnade.progress import training_bar
from rnade.training import EMSettings, Outcome, fit_mixture
from rnade.training.starts import STARTS, starting_components

# The paper's ranges: even numbers of components up to this, even numbers of factors up to D.
MOST_COMPONENTS = 50


class AbstractMixtureEstimator(AbstractConditionalsEstimator):
    """Density estimator over one mixture, trained by EM, its size given or searched for."""

    # Parameters that every subclass has.
    n_components: Any
    init: str
    n_init: int
    max_iter: int
    tol: float
    patience: int | None
    batch_size: int | None
    step_size: float
    sigma_floor: str | float

    # Fitted attributes.
    module_: AbstractGaussianMixture
    n_components_: int
    search_: list[dict[str, Any]]

    # Names of the parameters that give the mixture's size, each an int, a list or "search".
    _sizes: ClassVar[tuple[str, ...]] = ("n_components",)
    _kept = ("n_components_", "search_")

    @abc.abstractmethod
    def _make_module(
        self, n_dimensions: int, sizes: dict[str, int], n_models: int = 1
    ) -> AbstractGaussianMixture:
        """Build an untrained module of these sizes."""

    @abc.abstractmethod
    def _search_range(self, name: str, n_rows: int, n_dimensions: int) -> range:
        """Values that "search" stands for."""

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
        self._settings()
        positive_int(self.n_init, "n_init")
        if self.init not in STARTS:
            raise unknown_name(self.init, STARTS, "init")
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
        if not (isinstance(self.sigma_floor, str) and self.sigma_floor == "auto"):
            number_between(self.sigma_floor, "sigma_floor", 0, math.inf, open_low=False)

    def _settings(self) -> EMSettings:
        return EMSettings(
            self.max_iter, self.tol, self.patience, self.batch_size, self.step_size
        )

    def _prepare(self, X: Array, weights: Array | None) -> tuple[Standardiser, Resolution]:
        check_not_constant(self, X)
        resolution = Resolution.measure(X)
        warn_of_spikes(self, resolution)
        return Standardiser.fit(X, weights), resolution

    def _candidates(self, n_rows: int, n_dimensions: int) -> list[dict[str, int]]:
        """All combinations of sizes that are to be tried."""
        choices = []
        for name in self._sizes:
            value = getattr(self, name)
            if isinstance(value, str):
                value = self._search_range(name, n_rows, n_dimensions)
            choices.append(list(value) if isinstance(value, Sequence) else [value])
        return [dict(zip(self._sizes, sizes, strict=True)) for sizes in itertools.product(*choices)]

    def _train(
        self, training: Rows, held_out: Rows | None, seed: int, target: float | None
    ) -> tuple[AbstractGaussianMixture, Outcome]:
        if held_out is None:
            sizes = {name: getattr(self, f"{name}_") for name in self._sizes}
            return self._train_one(training, None, seed, target, sizes)
        best: tuple[AbstractGaussianMixture, Outcome] | None = None
        self.search_ = []
        for sizes in self._candidates(*training.x.shape):
            trained = self._train_one(training, held_out, seed, target, sizes)
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

    def _train_one(
        self,
        training: Rows,
        held_out: Rows | None,
        seed: int,
        target: float | None,
        sizes: dict[str, int],
    ) -> tuple[AbstractGaussianMixture, Outcome]:
        """Train all restarts of one size as a bank; give the best of them."""
        x, settings = training.x, self._settings()
        generator = Generator(x.device).manual_seed(seed)
        bank = self._make_module(x.shape[1], sizes, self.n_init).to(x.device, x.dtype)
        floor = self._floor().to(x.device)
        start = starting_components(
            x,
            sizes["n_components"],
            self.init,
            generator,
            n_models=self.n_init,
            weights=training.weights,
            floor=floor,
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
                target=target,
                # Of a bank, the history holds lists.
                on_epoch=on_epoch if self.n_init == 1 else None,
            )
        if self.n_init == 1:
            return bank, outcome
        member = int(torch.tensor(outcome.best_score).argmax())
        module = self._make_module(x.shape[1], sizes).to(x.device, x.dtype)
        module.load_state_dict({k: t[member, None] for k, t in bank.state_dict().items()})
        return module, _of_member(outcome, member)

    def _floor(self) -> torch.Tensor:
        """Smallest variance of a component along each standardised column."""
        assert self.resolution_ is not None
        if isinstance(self.sigma_floor, str):
            return torch.as_tensor(self.resolution_.floors(self.standardiser_.scale) ** 2)
        return torch.full((self.n_features_in_,), float(self.sigma_floor) ** 2).double()


def _of_member(outcome: Outcome, member: int) -> Outcome:
    """What training gave for one member of a bank."""

    def own(value: Any) -> Any:
        return value[member] if isinstance(value, list) else value

    history = [{key: own(value) for key, value in row.items()} for row in outcome.history]
    return Outcome(
        history, own(outcome.best_epoch), own(outcome.best_score), own(outcome.train_at_best)
    )


def _even_numbers(most: int) -> range:
    """2, 4, ... up to `most`; 1 where that is below 2."""
    return range(2, most + 1, 2) if most >= 2 else range(1, 2)


class MixtureOfGaussians(AbstractMixtureEstimator):
    """Mixture of Gaussians with full covariances, fitted by EM.

    Columns are standardised inside; all densities are of the data as given. EM runs over all rows
    or, with `batch_size`, in minibatches as in the paper: 1,000 iterations of 20,000 random rows,
    each a step towards the parameters that fit those rows best, are
    ``MixtureOfGaussians(200, batch_size=20_000, max_iter=1000, patience=None)``.

    Parameters
    ----------
    n_components : int, list of int, or "search"
        Components. Of a list, the number that scores best on the held-out rows is taken;
        "search" is the paper's range, all even numbers from 2 to 50.
    init : {"k-means++", "random"}
        Where EM starts: clusters of rows, or random rows.
    n_init : int
        Starts; the best on the held-out rows is kept.
    max_iter : int
        Largest number of iterations.
    tol : float
        Stop once an iteration raises the mean log-likelihood by less (nats per row). Not used
        with minibatches.
    patience : int, optional
        Looks at the held-out rows without a better score after which EM stops: a look each
        iteration, or each tenth with minibatches.
    batch_size : int, optional
        Rows of a minibatch; by default all rows.
    step_size : float
        With minibatches, how far to go towards each minibatch's own parameters; it falls linearly
        to 0.
    sigma_floor : "auto" or float
        Smallest standard deviation of a component in any direction, in units of the columns' own.
        "auto" ties it to the column's resolution where values are rounded; 0 is none.
    validation_fraction : float
        Share of the rows held out, for early stopping, the search and p-values.
    retrain : bool
        Afterwards train again on all rows, until the training log-likelihood of the best
        iteration is reached.
    device : {"auto", "cpu", "cuda"}
        Where to compute.
    dtype : {"float64", "float32"}
        Precision of training; sums over rows are added up, and scores computed, in float64 always.
    random_state : int, RandomState instance or None
        Seed of starts, held-out rows and minibatches.
    verbose : int
        1 shows a progress bar on stderr.

    Attributes
    ----------
    module_ : rnade.nn.MixtureOfGaussiansModule
        The fitted torch module, in float64, on standardised columns.
    weights_, means_, covariances_ : array of shape (K,), (K, D), (K, D, D)
        In the data's units.
    n_components_ : int
        Components of the model kept.
    search_ : list of dict
        One row for each size tried, with its held-out score on standardised columns.
    history_ : list of dict
        One row a look, as of `RNADE`; `epoch` counts iterations, `revived` components that no row
        belonged to and that were given a new place.
    best_epoch_, n_features_in_, feature_names_in_, n_rows_, validation_scores_, fit_seconds_
        As of `RNADE`.

    Examples
    --------
    >>> import numpy as np
    >>> from rnade import MixtureOfGaussians
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> MixtureOfGaussians(3, random_state=0).fit(X).weights_.shape
    (3,)
    """

    def __init__(
        self,
        n_components: Any = 10,
        *,
        init: str = "k-means++",
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-4,
        patience: int | None = 10,
        batch_size: int | None = None,
        step_size: float = 0.1,
        sigma_floor: str | float = "auto",
        validation_fraction: float = 0.1,
        retrain: bool = False,
        device: str = "auto",
        dtype: str = "float64",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.patience = patience
        self.batch_size = batch_size
        self.step_size = step_size
        self.sigma_floor = sigma_floor
        self.validation_fraction = validation_fraction
        self.retrain = retrain
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def _make_module(
        self, n_dimensions: int, sizes: dict[str, int], n_models: int = 1
    ) -> MixtureOfGaussiansModule:
        return MixtureOfGaussiansModule(n_dimensions, **sizes, n_models=n_models)

    def _empty_module(self, n_dimensions: int) -> MixtureOfGaussiansModule:
        return MixtureOfGaussiansModule(n_dimensions, self.n_components_)

    def _search_range(self, name: str, n_rows: int, n_dimensions: int) -> range:
        return _even_numbers(min(MOST_COMPONENTS, n_rows // 2))


class MixtureOfFactorAnalyzers(AbstractMixtureEstimator):
    """Mixture of factor analysers, fitted by EM (Ghahramani and Hinton, 1996).

    Each component explains the columns by a few factors and independent noise. Columns are
    standardised inside; all densities are of the data as given.

    Parameters
    ----------
    n_components : int, list of int, or "search"
        Components. Of a list, the number that scores best on the held-out rows is taken;
        "search" is the paper's range, all even numbers from 2 to 50.
    n_factors : int, list of int, or "search"
        Factors of each component, at most the number of columns, which gives a mixture of
        Gaussians; "search" is the paper's range, all even numbers from 2 to that. With both
        searched for, all pairs are tried.
    init : {"k-means++", "random"}
        Where EM starts: clusters of rows, or random rows.
    n_init : int
        Starts; the best on the held-out rows is kept.
    max_iter : int
        Largest number of iterations.
    tol : float
        Stop once an iteration raises the mean log-likelihood by less (nats per row). Not used
        with minibatches.
    patience : int, optional
        Looks at the held-out rows without a better score after which EM stops: a look each
        iteration, or each tenth with minibatches.
    batch_size : int, optional
        Rows of a minibatch; by default all rows.
    step_size : float
        With minibatches, how far to go towards each minibatch's own parameters; it falls linearly
        to 0.
    sigma_floor : "auto" or float
        Smallest standard deviation of the noise, in units of the column's own. "auto" ties it to
        the column's resolution where values are rounded; 0 is none.
    validation_fraction : float
        Share of the rows held out, for early stopping, the search and p-values.
    retrain : bool
        Afterwards train again on all rows, until the training log-likelihood of the best
        iteration is reached.
    device : {"auto", "cpu", "cuda"}
        Where to compute.
    dtype : {"float64", "float32"}
        Precision of training; sums over rows are added up, and scores computed, in float64 always.
    random_state : int, RandomState instance or None
        Seed of starts, held-out rows and minibatches.
    verbose : int
        1 shows a progress bar on stderr.

    Attributes
    ----------
    module_ : rnade.nn.MixtureOfFactorAnalyzersModule
        The fitted torch module, in float64, on standardised columns.
    n_components_, n_factors_ : int
        Of the model kept.
    weights_, means_, covariances_, search_, history_, best_epoch_, validation_scores_
        As of `MixtureOfGaussians`.

    References
    ----------
    Ghahramani and Hinton (1996), The EM algorithm for mixtures of factor analyzers.

    Examples
    --------
    >>> import numpy as np
    >>> from rnade import MixtureOfFactorAnalyzers
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> model = MixtureOfFactorAnalyzers(2, n_factors=2, random_state=0).fit(X)
    >>> model.sample(3, random_state=0).shape
    (3, 5)
    """

    n_factors_: int
    _sizes = ("n_components", "n_factors")
    _kept = ("n_components_", "n_factors_", "search_")

    def __init__(
        self,
        n_components: Any = 10,
        n_factors: Any = 1,
        *,
        init: str = "k-means++",
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-4,
        patience: int | None = 10,
        batch_size: int | None = None,
        step_size: float = 0.1,
        sigma_floor: str | float = "auto",
        validation_fraction: float = 0.1,
        retrain: bool = False,
        device: str = "auto",
        dtype: str = "float64",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_factors = n_factors
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.patience = patience
        self.batch_size = batch_size
        self.step_size = step_size
        self.sigma_floor = sigma_floor
        self.validation_fraction = validation_fraction
        self.retrain = retrain
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def _make_module(
        self, n_dimensions: int, sizes: dict[str, int], n_models: int = 1
    ) -> MixtureOfFactorAnalyzersModule:
        return MixtureOfFactorAnalyzersModule(n_dimensions, **sizes, n_models=n_models)

    def _empty_module(self, n_dimensions: int) -> MixtureOfFactorAnalyzersModule:
        return MixtureOfFactorAnalyzersModule(n_dimensions, self.n_components_, self.n_factors_)

    def _search_range(self, name: str, n_rows: int, n_dimensions: int) -> range:
        if name == "n_factors":
            return _even_numbers(n_dimensions)
        return _even_numbers(min(MOST_COMPONENTS, n_rows // 2))
