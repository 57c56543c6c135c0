"""How every density estimator is fitted: rows held out, a module trained, perhaps again."""

import abc
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from rnade import parallel
from rnade.batch import Batch
from rnade.checks import number_between, unknown_name
from rnade.columns import Resolution, Standardiser
from rnade.estimators.conditionals import AbstractConditionalsEstimator
from rnade.estimators.fitted_rows import FittedRows
from rnade.estimators.inputs import check_weights, prepare_real, warn_of_few_rows
from rnade.estimators.scoring import Models, for_scoring
from rnade.estimators.settings import DTYPES, make_rng, named_dtype, resolve_device
from rnade.estimators.two_scales import Scale, TwoScales, combined_rank
from rnade.evaluation import Calibration, left_out_pvalues
from rnade.exceptions import TrainingDivergedError, TrainingWarning, warn_caller
from rnade.nn import AbstractDensity
from rnade.nn.coarse import CoarseModule
from rnade.training import Outcome
from rnade.training.retraining import least_after_retraining, retraining_took
from rnade.typing import Array

_SECOND_FAILED = "Training again on all rows failed, so the first model was kept."


class Split(NamedTuple):
    """Rows of a fit, and which of them are trained on."""

    X: Array
    weights: Array | None
    training: NDArray[np.int64]  # places of rows
    held_out: NDArray[np.int64]
    seed: int
    device: torch.device

    def some(self, at: NDArray[np.int64]) -> tuple[Array, Array | None]:
        """The rows at these places, with their weights."""
        return self.X[at], None if self.weights is None else self.weights[at]


class AbstractDensityEstimator(AbstractConditionalsEstimator):
    """Scikit-learn estimator over one module that gives densities.

    Subclasses declare their parameters, say how columns are prepared, and train a module.
    """

    @abc.abstractmethod
    def _check_settings(self) -> None:
        """Raise on bad parameters, before any row is looked at."""

    def _prepare(self, X: Array, weights: Array | None) -> tuple[Standardiser, Resolution | None]:
        """Look at the rows to be fitted: how to standardise them and how they are rounded."""
        return prepare_real(self, X, weights)

    @property
    def _retrains(self) -> bool:
        """Whether to train again on all rows."""
        return bool(self.retrain)

    def _as_batch(
        self, X: Array, weights: Array | None, device: torch.device, dtype: torch.dtype
    ) -> Batch:
        """Rows with their weights, as `_train` takes them."""
        return make_batch(self.standardiser_.transform(X), weights, device, dtype)

    @abc.abstractmethod
    def _train(
        self, training: Batch, held_out: Batch | None, seed: int, target: Any
    ) -> tuple[AbstractDensity, Outcome]:
        """Train a fresh module; the same seed gives the same start.

        Without held-out rows, training ends once the training log-likelihood is `target`: what
        the first training gave as `train_at_best`.
        """

    @abc.abstractmethod
    def _empty_module(self, n_dimensions: int) -> AbstractDensity:
        """A module of the fitted shape, for the tensors of a model file."""

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model to the rows of X.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
            Rows. Names of a frame's columns are kept and checked on the next call.
        y : ignored
        sample_weight : array-like of shape (N,), optional
            Weights of the rows; a row of weight 0 is ignored.

        Returns
        -------
        self
        """
        self._check_settings()
        fraction = number_between(
            self.validation_fraction, "validation_fraction", 0, 0.9, open_low=True
        )
        if self.contamination != "auto":
            number_between(self.contamination, "contamination", 0, 0.5, open_low=True)
        device, dtype = resolve_device(self.device), named_dtype(self.dtype, "dtype")
        if self.score_dtype not in ("auto", *DTYPES):
            raise unknown_name(self.score_dtype, ["auto", *DTYPES], "score_dtype")
        given = self._check_rows(X, fitting=True)
        X = self._encode(given)
        place = np.arange(len(X))
        weights = check_weights(sample_weight, X)
        if weights is not None:
            place = np.flatnonzero(weights)
            X, weights = X[place], weights[place]
            if len(X) < 2:
                raise ValueError(
                    f"Found {len(X)} sample(s) of positive weight; at least 2 are needed."
                )
        warn_of_few_rows(len(X))
        self.standardiser_, self.resolution_ = self._prepare(X, weights)
        # Processes that train together agree on a fresh seed too.
        rng = parallel.from_first(lambda: make_rng(self.random_state))
        held_out, training = self._split(len(X), fraction, rng)
        rows = self._as_batch(X, weights, device, dtype)

        def some(at: NDArray[np.int64]) -> Batch:
            index = torch.as_tensor(at, device=device)
            return rows.map(lambda t: t[index])

        seed = int(rng.randint(2**31 - 1))
        began = time.perf_counter()
        split = Split(X, weights, training, held_out, seed, device)
        try:
            self._plan_beside(split)
            module, outcome = self._train(some(training), some(held_out), seed, target=None)
            self.module_ = for_scoring(module)
            self.n_rows_ = len(X)
            self.fitted_rows_ = FittedRows.of(given, place[held_out])
            self.__dict__.pop("origin_", None)  # of an earlier table
            self.best_epoch_ = outcome.best_epoch
            self.history_ = outcome.history
            self.coarse_ = self.two_scales_ = self.judges_ = None  # of an earlier fit
            found = np.full((3, len(given)), np.nan)
            found[:, place] = self._calibrate(split)
            self.fit_scores_, self.fit_pvalues_, self._fit_judged = found
            for name in ("retrain_history_", "_typical"):
                self.__dict__.pop(name, None)  # of an earlier fit
            interrupted = outcome.interrupted
            if self._retrains and not interrupted:
                target = outcome.train_at_best
                interrupted = self._train_again(split, rows, target)
            self._train_beside(split, interrupted=interrupted)
        finally:
            self._beside: Any = None
        self.fit_seconds_ = round(time.perf_counter() - began, 3)
        return self

    def _split(
        self, n_rows: int, fraction: float, rng: np.random.RandomState
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places of the rows to hold out and of those to train on, in random order."""
        shuffled = rng.permutation(n_rows).astype(np.int64)
        n_held_out = min(n_rows - 1, max(1, round(fraction * n_rows)))
        return shuffled[:n_held_out], shuffled[n_held_out:]

    def _left_out(self, training: NDArray[np.int64]) -> list[tuple[NDArray[np.int64], Models]]:
        """Which training rows some models of an average have left out, and which models did.

        Parameters
        ----------
        training : int array of shape (n,)
            Places of the training rows, in the order in which they were trained on.

        Returns
        -------
        list of (int array, bool array of shape (M,))
            Places, and models; none for one model.
        """
        return []

    def _left_out_scores(self, X: Array, counted: Array, models: Models) -> Array:
        """Log densities of training rows by the average of models that have left them out.

        Parameters
        ----------
        X : array of shape (N, D)
        counted : array of shape (N,)
            Weights of these rows, of which the mean over training rows is 1.
        models : bool array of shape (M,)
        """
        return np.asarray(self._group_scores(X, models[None])[0])

    def _calibrate(self, split: Split) -> Array:
        """Score every row by the models that left it out; keep what p-values of new rows need.

        Returns
        -------
        array of shape (3, N)
            Log densities, p-values, and the scores that these go by. NaN for rows that every model
            learned from.
        """
        X, weights, training, held_out, seed, device = split
        w = np.ones(len(X)) if weights is None else weights
        counted = w / w[training].mean()
        folds = self._left_out(training)
        models = None
        if folds:
            own = [models for _, models in folds]
            models = np.stack([np.ones_like(own[0]), *own])
        by_group = self._group_scores(X[held_out], models)
        groups = [held_out, *(at for at, _ in folds)]
        scores = [
            by_group[0],
            *(self._left_out_scores(X[at], counted[at], by) for at, by in folds),
        ]
        self.validation_scores_ = by_group[0]
        w_groups = [w[at] for at in groups]
        self.calibration_ = Calibration.from_groups(
            scores, w_groups, models, _shifts(by_group) if folds else None
        )
        found, placed = np.full((3, len(X)), np.nan), np.concatenate(groups)
        found[0, placed] = np.concatenate(scores)
        self.coarse_ = self._fit_coarse(
            *split.some(training),
            [np.flatnonzero(np.isin(training, at)) for at, _ in folds],
            seed,
            device,
        )
        if self.coarse_ is not None:
            missing = np.isnan(X)
            fine = Scale.of(np.concatenate(scores), missing[placed])
            by_coarse = self._coarse_scores(X[held_out], len(groups))
            each = [self._coarse_scores(X[at], len(groups)) for at, _ in folds]
            coarse_scores = [by_coarse[0], *(own[g] for g, own in enumerate(each, 1))]
            coarse = Scale.of(np.concatenate(coarse_scores), missing[placed])
            by_group = combined_rank(fine, coarse, by_group, by_coarse, missing[held_out])
            scores = [
                combined_rank(fine, coarse, own, far, missing[at])
                for own, far, at in zip(scores, coarse_scores, groups, strict=True)
            ]
            self.two_scales_ = TwoScales(
                fine,
                coarse,
                Calibration.from_groups(
                    scores, w_groups, models, _shifts(by_group) if folds else None
                ),
            )
        p_values = left_out_pvalues(scores, by_group, w_groups, _shifts(by_group))
        found[1, placed], found[2, placed] = p_values, np.concatenate(scores)
        # A row with nothing observed is as usual as can be.
        found[1, np.isnan(X).all(axis=1)] = 1.0
        return found

    def _fit_coarse(
        self,
        X: Array,
        weights: Array | None,
        left_out: Sequence[NDArray[np.int64]],
        seed: int,
        device: torch.device,
    ) -> CoarseModule | None:
        """Fit a coarse density, for estimators that judge rows at two scales; most do not.

        Parameters
        ----------
        X : array of shape (n, D)
            Training rows.
        weights : array of shape (n,), optional
        left_out : sequence of int arrays
            Places of the training rows that each group of models left out.
        seed : int
        device : torch.device
        """
        return None

    def _plan_beside(self, split: Split) -> None:
        """Make ready what can train at once with the module; most estimators have nothing."""

    def _train_beside(self, split: Split, *, interrupted: bool) -> None:
        """Keep what was trained at once with the module, or train it now unless Ctrl-C came."""

    def _train_again(self, split: Split, rows: Batch, target: Any) -> bool:
        """Train a fresh module on all rows; if that breaks, the one before is kept.

        Gives whether Ctrl-C ended it, which keeps the one before too.

        It broke if it gives all rows clearly less, by two standard errors of the held-out score,
        than the module before gives to either: the rows it was trained on, and those held out.
        """
        X, weights, training, held_out, seed, _ = split

        def mean(scores: Array, at: Any = slice(None)) -> float:
            return float(np.average(scores, weights=None if weights is None else weights[at]))

        before, slack = self.module_, 2 * self.held_out_score().standard_error
        unseen = mean(self.validation_scores_, held_out)
        trained_on = mean(self._score(X[training]), training)
        least = least_after_retraining(trained_on, unseen, slack)
        try:
            module, outcome = self._train(rows, None, seed, target)
        except TrainingDivergedError as error:
            warn_caller(f"{_SECOND_FAILED} {error}", TrainingWarning)
            return False
        if outcome.interrupted:
            return True
        self.module_ = for_scoring(module)
        reached = mean(self._score(X))
        if retraining_took(reached, least):
            self.retrain_history_ = outcome.history
            if self.calibration_.models is not None:
                # By folds, rows are compared under the models that have not learned them since.
                self.judges_ = before
            return False
        self.module_ = before
        warn_caller(
            f"{_SECOND_FAILED} It came to {reached:.4g} nats a row on the rows it was trained on,"
            f" where at least {least:.4g} was to be expected. A lower learning_rate may help.",
            TrainingWarning,
        )
        return False


def _shifts(by_group: Array) -> Array:
    """How much more all models give a typical held-out row than those of each group, (G,)."""
    some = np.isfinite(by_group).all(axis=0)
    if not some.any():
        return np.zeros(len(by_group))
    return np.asarray(np.median(by_group[0, some] - by_group[:, some], axis=1))


def make_batch(Z: Array, weights: Array | None, device: torch.device, dtype: torch.dtype) -> Batch:
    """Standardised rows with their weights, as modules take them."""
    rows = Batch(torch.as_tensor(Z), None if weights is None else torch.as_tensor(weights))
    return rows.map(lambda t: t.to(device, dtype))
