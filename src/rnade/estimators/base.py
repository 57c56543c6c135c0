"""What the autoregressive estimators share: fitting, scoring, sampling, saving."""

import abc
import os
import time
import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
from torch import Generator, Tensor

from rnade.checks import number_between, positive_int, unknown_name
from rnade.estimators.calibrated import ConditionalsMixin
from rnade.estimators.fitted_rows import FittedRows
from rnade.estimators.inputs import check_rows
from rnade.estimators.settings import DTYPES, make_rng, resolve_device
from rnade.evaluation import Calibration, MeanScore, mean_score
from rnade.exceptions import TrainingWarning
from rnade.families.base import Array
from rnade.nn import AbstractAutoregressive
from rnade.preprocessing import Resolution, Standardiser
from rnade.progress import training_bar
from rnade.training import HistoryRow, Outcome, Recipe, make_recipe, train

# Rows scored at a time: what is moved to the device, and the largest array beyond the result.
CHUNK_ROWS = 50_000


@dataclass(frozen=True)
class _Rows:
    """Standardised rows as tensors, with their weights and their places in X."""

    x: Tensor
    weights: Tensor | None
    at: NDArray[np.int64]


class AbstractAutoregressiveEstimator(ConditionalsMixin, DensityMixin, BaseEstimator):
    """Scikit-learn estimator over one autoregressive module.

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
    validation_fraction: float
    retrain: bool
    order: Any
    device: str
    dtype: str
    backend: str
    random_state: Any
    verbose: int

    # Fitted attributes.
    module_: AbstractAutoregressive
    standardiser_: Standardiser
    resolution_: Resolution | None
    calibration_: Calibration
    validation_scores_: Array
    history_: list[HistoryRow]
    best_epoch_: int
    n_rows_: int
    fitted_rows_: FittedRows | None
    n_features_in_: int
    fit_seconds_: float

    @abc.abstractmethod
    def _make_module(
        self, n_dimensions: int, recipe: Recipe, generator: Generator | None
    ) -> AbstractAutoregressive:
        """Build an untrained module; raises on bad parameters."""

    @abc.abstractmethod
    def _prepare(self, X: Array, weights: Array | None) -> tuple[Standardiser, Resolution | None]:
        """Look at the rows to be fitted: how to standardise them and how they are rounded."""

    def _encode(self, X: Array) -> Array:
        """Values as the module's family takes them, before standardising."""
        return X

    def _noise_width(self, resolution: Resolution | None) -> Array | None:
        """Width of the uniform noise on each standardised column, or None."""
        return None

    # ---------------------------------------------------------------- fitting

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model to the rows of X.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
            Rows. Names of a frame's columns are kept and checked on the next call.
        y : ignored
        sample_weight : array-like of shape (N,), optional
            Weights of the rows; a row of weight 0 is as good as absent.

        Returns
        -------
        self
        """
        recipe = self._make_recipe()
        fraction = number_between(
            self.validation_fraction, "validation_fraction", 0, 0.9, open_low=True
        )
        device, dtype = resolve_device(self.device), self._training_dtype()
        given = check_rows(self, X, fitting=True)
        X = self._encode(given)
        place = np.arange(len(X))
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
            place = np.flatnonzero(weights)
            X, weights = X[place], weights[place]
            if len(X) < 2:
                raise ValueError(
                    f"Found {len(X)} sample(s) of positive weight; at least 2 are needed."
                )
        self.standardiser_, self.resolution_ = self._prepare(X, weights)
        rng = make_rng(self.random_state)
        shuffled = rng.permutation(len(X)).astype(np.int64)
        n_held_out = min(len(X) - 1, max(1, round(fraction * len(X))))
        Z = torch.as_tensor(self.standardiser_.transform(X)).to(device, dtype)
        w = None if weights is None else torch.as_tensor(weights).to(device, dtype)

        def rows(at: NDArray[np.int64]) -> _Rows:
            index = torch.as_tensor(at, device=device)
            return _Rows(Z[index], None if w is None else w[index], at)

        held_out, training = rows(shuffled[:n_held_out]), rows(shuffled[n_held_out:])
        seed = int(rng.randint(2**31 - 1))
        began = time.perf_counter()
        module, outcome = self._train(recipe, training, held_out, seed, target=None)
        self.module_ = module.double().requires_grad_(False)
        self.n_rows_ = len(X)
        self.fitted_rows_ = FittedRows.of(given, place[held_out.at])
        self.__dict__.pop("origin_", None)  # of an earlier table
        self.best_epoch_ = outcome.best_epoch
        self.history_ = outcome.history
        self.validation_scores_ = self._score(X[held_out.at])
        self.calibration_ = Calibration.from_scores(
            self.validation_scores_, None if weights is None else weights[held_out.at]
        )
        if self.retrain:
            everything = rows(np.sort(shuffled))
            module, outcome = self._train(
                recipe, everything, None, seed, target=outcome.train_at_best
            )
            self.module_ = module.double().requires_grad_(False)
            self.retrain_history_ = outcome.history
        self.fit_seconds_ = round(time.perf_counter() - began, 3)
        return self

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

    def _training_dtype(self) -> torch.dtype:
        if self.dtype not in DTYPES:
            raise unknown_name(self.dtype, list(DTYPES), "dtype")
        return DTYPES[self.dtype]

    def _train(
        self,
        recipe: Recipe,
        training: _Rows,
        held_out: _Rows | None,
        seed: int,
        target: float | None,
    ) -> tuple[AbstractAutoregressive, Outcome]:
        """Train a fresh module; the same seed gives the same starting weights."""
        x = training.x
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

    # ---------------------------------------------------------------- scoring

    def score_samples(self, X: Any) -> Array:
        """Log density of each row, in nats and in the data's own units.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)

        Returns
        -------
        array of shape (N,)
        """
        check_is_fitted(self)
        return self._score(self._encode(check_rows(self, X, fitting=False)))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log density of the rows, in nats per row.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
        y : ignored
        """
        return float(self.score_samples(X).mean())

    def log_conditionals(self, X: Any) -> Array:
        """The D terms log p(x_d | x_<d) of each row, in nats; they sum to `score_samples`.

        A very negative term says that this column is what makes the row odd, given the columns
        before it in the model's order.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)

        Returns
        -------
        array of shape (N, D)
        """
        check_is_fitted(self)
        return self._log_conditionals(self._encode(check_rows(self, X, fitting=False)))

    def pvalue(self, X: Any) -> Array:
        """Share of held-out rows at most as likely as each row: small for odd rows.

        The held-out rows are those that `fit` set aside for early stopping. A row with p <= 0.01
        is one of the oddest 1 % of rows like the training data. The smallest value possible is
        1 / (1 + number of held-out rows).

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)

        Returns
        -------
        array of shape (N,)
        """
        scores = self.score_samples(X)
        return self.calibration_.pvalue(scores)

    def held_out_score(self) -> MeanScore:
        """Mean log-likelihood of the rows that `fit` held out, with its standard error."""
        check_is_fitted(self)
        return mean_score(self.validation_scores_)

    def _log_conditionals(self, X: Array) -> Array:
        terms = np.empty_like(X)
        for start in range(0, len(X), CHUNK_ROWS):
            piece = self.standardiser_.transform(X[start : start + CHUNK_ROWS])
            with torch.no_grad():
                x = torch.as_tensor(piece).to(self.module_.device, self.module_.dtype)
                terms[start : start + CHUNK_ROWS] = self.module_.log_conditionals(x).cpu().numpy()
        return terms + self.standardiser_.log_determinant_terms

    def _score(self, X: Array) -> Array:
        return np.asarray(self._log_conditionals(X).sum(1))

    # ---------------------------------------------------------------- sampling

    def sample(
        self,
        n_samples: int = 1,
        random_state: Any = None,
        *,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
    ) -> Array:
        """Draw rows from the model, exactly.

        Parameters
        ----------
        n_samples : int
        random_state : int, RandomState instance or None
        low, high : array-like of shape (D,), optional
            Smallest and largest value of each column, in the data's units; infinite where a
            column is free. Each conditional is truncated to its range, without rejection.

        Returns
        -------
        array of shape (n_samples, D)
        """
        check_is_fitted(self)
        n_samples = positive_int(n_samples, "n_samples")
        seed = int(make_rng(random_state).randint(2**31 - 1))
        generator = Generator(self.module_.device).manual_seed(seed)
        Z = self.module_.sample(
            n_samples, generator, low=self._bound(low, "low"), high=self._bound(high, "high")
        )
        return self.standardiser_.inverse(Z.cpu().numpy())

    def _bound(self, bound: ArrayLike | None, name: str) -> Tensor | None:
        if bound is None:
            return None
        values = np.asarray(bound, dtype=np.float64)
        if values.shape != (self.n_features_in_,):
            raise ValueError(
                f"Expected {name} of shape ({self.n_features_in_},), one value a column;"
                f" got {values.shape}."
            )
        if np.isnan(values).any():
            raise ValueError(f"{name} holds NaN; use -inf or inf where a column is free.")
        return torch.as_tensor(self.standardiser_.transform(values))

    # ---------------------------------------------------------------- saving

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model to one safetensors file (by habit with suffix `.rnade`).

        Parameters
        ----------
        path : path
        overwrite : bool
            Replace a file that exists already.
        """
        from rnade.estimators.persistence import save

        check_is_fitted(self)
        save(self, path, overwrite=overwrite)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags
