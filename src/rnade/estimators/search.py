"""Search over settings: all settings and folds train as banks."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import wraps
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, DensityMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid, ParameterSampler, check_cv
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from rnade import parallel
from rnade.batch import Batch
from rnade.checks import positive_int, unknown_name
from rnade.estimators.base import AbstractAutoregressiveEstimator, Planned
from rnade.estimators.density import make_batch
from rnade.estimators.inputs import check_weights
from rnade.estimators.parameters import estimator
from rnade.estimators.rnade import RNADE
from rnade.estimators.settings import make_rng, named_dtype, resolve_device
from rnade.exceptions import TrainingWarning, warn_caller
from rnade.progress import leaders
from rnade.training import Bank, Member, Trained
from rnade.typing import Array

# What is searched where nothing is said.
DEFAULT_GRID: dict[str, list[Any]] = {
    "n_components": [5, 10, 20],
    "learning_rate": [0.01, 0.03, 0.1],
    "weight_decay": [0.0, 0.1, 1.0],
}
REFITS = (True, False, "paper", "ensemble")
# Successive halving keeps one setting in so many, at one over so many times the epochs.
HALVING_FACTOR = 3


def of_best(name: str) -> Any:
    """Make a method that calls the best estimator's; a search without a refit does not have it."""
    original = getattr(RNADE, name)

    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._best(), name)(*args, **kwargs)

    return available_if(lambda search: search.refit is not False)(method)


@estimator
class RNADESearchCV(DensityMixin, MetaEstimatorMixin, BaseEstimator):
    """Search over an estimator's settings by cross-validation, training all of them as banks.

    The manner is that of scikit-learn's `GridSearchCV` and `RandomizedSearchCV`. What differs is
    that models of one shape train as one program, and that a fold's test rows also choose the
    epoch whose weights are kept, as in the paper.

    Parameters
    ----------
    estimator : RNADE, NADE or FVSBN, optional
        What is searched over; None for ``RNADE()``. Its own `ensemble` is not used.
    param_grid : dict or list of dict, optional
        Values to try by the name of the parameter; with `n_iter`, values or distributions.
        None for a grid of components, rates and decays.
    n_iter : int, optional
        Draw so many settings at random instead of trying all.
    cv : int, cross-validation generator or iterable
        How rows are split.
    refit : {True, False, "paper", "ensemble"}
        What is fitted to all rows afterwards: one model with the best settings; nothing; the same
        trained again on all rows to the training likelihood of its best epoch (the paper's rule);
        or the average of the `n_best` best settings, each in several orders.
    n_best : int
        Settings in the ensemble.
    halving : bool
        Successive halving: after a ninth and a third of the epochs only the best third of the
        settings goes on.
    memory : int, optional
        Bytes that a bank may take before it is split.
    engine : {"local", "ray"}, optional
        Where models are trained: on this machine, or in parts on a Ray cluster (extra ``ray``).
    checkpoint : path, optional
        A folder for checkpoints: a search that was killed goes on from there.
    random_state : int, RandomState instance or None
        Seed of the settings drawn, of starting weights and of minibatches.
    verbose : int
        1 shows a table of the leading settings as they train, on stderr.

    Attributes
    ----------
    cv_results_ : dict of arrays
        For each setting: params, param_NAME, splitI_test_score, mean_test_score, std_test_score,
        rank_test_score, mean_train_score, mean_best_epoch, n_diverged. Scores are in nats per row
        and in the data's units.
    best_index_, best_params_, best_score_
        The setting with the best mean test score.
    best_estimator_ : estimator
        Fitted to all rows, unless `refit` is False.
    n_splits_ : int
    search_seconds_, refit_time_ : float
    n_features_in_, feature_names_in_
        As of `best_estimator_`.

    Examples
    --------
    >>> import numpy as np
    >>> from rnade import RNADE, RNADESearchCV
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> grid = {"n_components": [1, 3], "learning_rate": [0.01, 0.1]}
    >>> search = RNADESearchCV(RNADE(epochs=3), grid, cv=2, random_state=0).fit(X)
    >>> sorted(search.best_params_)
    ['learning_rate', 'n_components']
    >>> search.score_samples(X).shape
    (200,)
    """

    estimator: AbstractAutoregressiveEstimator | None = field(default=None, kw_only=False)
    param_grid: Any = field(default=None, kw_only=False)
    n_iter: int | None = None
    cv: Any = 5
    refit: bool | str = True
    n_best: int = 3
    halving: bool = False
    memory: int | None = None
    engine: str | None = None
    checkpoint: Any = None
    random_state: Any = None
    verbose: int = 0

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Search, then fit what `refit` says to all rows.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
        y : ignored
        sample_weight : array-like of shape (N,), optional
            Weights of the rows, in training and in the scores of test rows.
        """
        if self.refit not in REFITS:
            raise unknown_name(self.refit, [str(r) for r in REFITS], "refit")
        positive_int(self.n_best, "n_best")
        base = self._base()
        rng = parallel.from_first(lambda: make_rng(self.random_state))
        candidates = self._candidates(base, rng)
        mixed = self._read(base, X)
        rows = base._encode(base._check_rows(X, fitting=True))
        weights = check_weights(sample_weight, rows)
        splits = list(check_cv(self.cv).split(rows))
        seed = int(rng.randint(2**31 - 1))
        began = time.perf_counter()
        make = self._table_members if mixed else self._members
        members, shifts = make(base, rows, weights, candidates, splits, seed)
        bank = Bank(members, memory=self.memory, checkpoint=self.checkpoint, engine=self.engine)
        self._train(bank, candidates, np.asarray(shifts))
        if bank.interrupted:
            warn_caller(
                "The search was stopped by Ctrl-C: settings are compared as far as they trained.",
                TrainingWarning,
            )
        self._record(candidates, bank.results(), shifts)
        self.search_seconds_ = time.perf_counter() - began
        self.n_splits_ = len(splits)
        self.n_features_in_ = base.n_features_in_
        if hasattr(base, "feature_names_in_"):
            self.feature_names_in_ = base.feature_names_in_
        if self.refit is not False:
            began = time.perf_counter()
            best = self._refitter(base).set_params(random_state=seed)
            self.best_estimator_ = best.fit(X, sample_weight=weights)
            self.refit_time_ = time.perf_counter() - began
        return self

    def _base(self) -> Any:
        base = RNADE() if self.estimator is None else clone(self.estimator)
        if not isinstance(base, AbstractAutoregressiveEstimator):
            raise TypeError(
                f"Expected an RNADE, NADE or FVSBN to search over; got {type(base).__name__}."
                " Use scikit-learn's GridSearchCV for other estimators."
            )
        return base.set_params(ensemble=None) if "ensemble" in base.get_params() else base

    def _read(self, base: Any, X: Any) -> bool:
        """Find out what the columns hold; whether they are other than complete real ones."""
        if not isinstance(base, RNADE):
            return False
        base._read(X)
        if not base._mixed:
            return False
        if self.refit == "ensemble":
            raise ValueError(
                "refit='ensemble' is for tables of complete real-valued columns; this one has"
                " others. Use refit=True: RNADE averages several networks there as it is."
            )
        reads = {"columns", "missing", "na", "recipe", "order", "ensemble"}
        grids = [self.param_grid] if isinstance(self.param_grid, Mapping) else self.param_grid
        fixed = sorted({name for grid in grids or () for name in grid if name in reads})
        if fixed:
            raise ValueError(
                f"{', '.join(fixed)} cannot be searched over on a table with other than complete"
                " real-valued columns: scores of different columns do not compare. Set them in"
                " the estimator."
            )
        if self.param_grid is None:
            raise ValueError(
                "The grid that is searched by default is for tables of complete real-valued"
                " columns; this one has others. Give a param_grid, such as"
                " {'learning_rate': [0.001, 0.002, 0.004], 'n_hidden': [128, 256]}."
            )
        return True

    def _table_members(
        self,
        base: Any,
        X: Array,
        weights: Array | None,
        candidates: Sequence[Mapping[str, Any]],
        splits: Sequence[Any],
        seed: int,
    ) -> tuple[list[Member], list[float]]:
        """As `_members`, of tables with columns of any kind: a network for each setting and fold.

        Test rows are scored by columns given random others, which estimates their log density.
        """
        device = resolve_device(base.device)
        folds = []
        for train, test in splits:
            train, test = (at if weights is None else at[weights[at] > 0] for at in (train, test))
            rows, judged = (
                base._as_batch(
                    X[at], None if weights is None else weights[at], device, torch.float64
                )
                for at in (train, test)
            )
            each = [base._changed(dict(params)) for params in candidates]
            folds.append([one.make_table_members(rows, judged, seed)[2][0] for one in each])
        members = [member for group in zip(*folds, strict=True) for member in group]
        return members, [0.0] * len(folds)

    def _candidates(self, base: Any, rng: np.random.RandomState) -> list[dict[str, Any]]:
        grid = DEFAULT_GRID if self.param_grid is None else self.param_grid
        if self.n_iter is None:
            candidates = list(ParameterGrid(grid))
        else:
            n = positive_int(self.n_iter, "n_iter")
            candidates = list(ParameterSampler(grid, n, random_state=rng))
        for params in candidates:
            base._changed(params)._check_settings()
        return candidates

    def _members(
        self,
        base: Any,
        X: Array,
        weights: Array | None,
        candidates: Sequence[Mapping[str, Any]],
        splits: Sequence[Any],
        seed: int,
    ) -> tuple[list[Member], list[float]]:
        """Models of all settings in all folds, settings first, and what standardising adds."""
        device, dtype = resolve_device(base.device), named_dtype(base.dtype, "dtype")
        folds, shifts = [], []
        for train, test in splits:
            # Rows of weight 0 are ignored.
            train, test = (at if weights is None else at[weights[at] > 0] for at in (train, test))
            if len(train) < 2 or not len(test):
                raise ValueError(
                    f"A fold of cv has {len(train)} training rows and {len(test)} test rows of"
                    " positive weight; at least 2 and 1 are needed. Leave out rows of weight 0, or"
                    " shuffle the rows."
                )
            own = None if weights is None else weights[train]
            base.standardiser_, base.resolution_ = base._prepare(X[train], own)
            plan = [
                Planned(_order(base._changed(dict(params)).order), dict(params))
                for params in candidates
            ]

            def tensors(at: Any) -> Batch:
                w = None if weights is None else weights[at]
                return make_batch(base.standardiser_.transform(X[at]), w, device, dtype)

            folds.append(base.make_members(tensors(train), tensors(test), seed, plan))
            shifts.append(float(base.standardiser_.log_determinant))
        return [member for group in zip(*folds, strict=True) for member in group], shifts

    def _train(self, bank: Bank, candidates: Sequence[Any], shifts: Array) -> None:
        n, k = len(candidates), len(shifts)

        def means() -> Array:
            return np.asarray((np.reshape(bank.best_scores(), (n, k)) + shifts).mean(1))

        shares = (1 / HALVING_FACTOR**2, 1 / HALVING_FACTOR, 1.0) if self.halving else (1.0,)
        with leaders(candidates, means, shown=self.verbose > 0) as on_epoch:
            kept = n
            for share in shares:
                if not bank.advance(share, on_epoch) or share == 1.0:
                    break
                kept = max(1, kept // HALVING_FACTOR)
                beaten = np.argsort(-means(), kind="stable")[kept:]
                bank.stop([c * k + fold for c in beaten for fold in range(k)])

    def _record(
        self,
        candidates: Sequence[Mapping[str, Any]],
        results: Sequence[Trained],
        shifts: Sequence[float],
    ) -> None:
        shape = len(candidates), len(shifts)

        def table(values: list[float]) -> Array:
            return np.reshape(np.asarray(values, dtype=np.float64), shape)

        scores = table([r.best_score for r in results]) + np.asarray(shifts)
        scores[~np.isfinite(scores)] = np.nan
        train = table([r.train_at_best for r in results]) + np.asarray(shifts)
        mean = scores.mean(1)
        if np.isnan(mean).all():
            raise ValueError("No setting gave a finite score in all folds.")
        order = np.argsort(np.argsort(-np.where(np.isnan(mean), -math.inf, mean), kind="stable"))
        found: dict[str, Any] = {"params": [dict(params) for params in candidates]}
        for name in sorted({name for params in candidates for name in params}):
            column: Any = np.ma.MaskedArray(np.empty(len(candidates), dtype=object), mask=True)
            for i, params in enumerate(candidates):
                if name in params:
                    column[i] = params[name]
            found[f"param_{name}"] = column
        found |= {f"split{i}_test_score": scores[:, i] for i in range(shape[1])}
        found |= {
            "mean_test_score": mean,
            "std_test_score": scores.std(1),
            "rank_test_score": (order + 1).astype(np.int32),
            "mean_train_score": train.mean(1),
            "mean_best_epoch": table([r.best_epoch for r in results]).mean(1),
            "n_diverged": table([r.diverged is not None for r in results]).sum(1).astype(int),
        }
        self.cv_results_ = found
        self.best_index_ = int(np.nanargmax(mean))
        self.best_params_ = dict(candidates[self.best_index_])
        self.best_score_ = float(mean[self.best_index_])

    def _refitter(self, base: Any) -> Any:
        """Give the estimator that is to be fitted to all rows."""
        best = clone(base)
        if self.refit == "ensemble":
            if "ensemble" not in best.get_params():
                raise ValueError(f"refit='ensemble' is for RNADE; got {type(best).__name__}.")
            ranked = np.argsort(self.cv_results_["rank_test_score"])[: self.n_best]
            return best.set_params(ensemble=[self.cv_results_["params"][i] for i in ranked])
        if getattr(base, "_mixed", False):
            # One network was searched; as many are fitted as the user's estimator says.
            best.set_params(ensemble=getattr(self.estimator, "ensemble", "auto"))
        best.set_params(**self.best_params_)
        return best.set_params(retrain=True) if self.refit == "paper" else best

    # ---------------------------------------------------------------- the estimator found

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Mean log density of the rows, in nats per row."""
        return float(self._best().score(X, sample_weight=sample_weight))

    score_samples = of_best("score_samples")
    log_conditionals = of_best("log_conditionals")
    pit = of_best("pit")
    conditional_quantiles = of_best("conditional_quantiles")
    pvalue = of_best("pvalue")
    judge = of_best("judge")
    outliers = of_best("outliers")
    surprise = of_best("surprise")
    expected = of_best("expected")
    held_out_score = of_best("held_out_score")
    sample = of_best("sample")
    impute = of_best("impute")
    explore = of_best("explore")
    save = of_best("save")

    def _best(self) -> Any:
        check_is_fitted(self)
        if self.refit is False:
            raise AttributeError("This search was made with refit=False: it has no estimator.")
        return self.best_estimator_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "cv_results_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags


def _order(order: Any) -> Any:
    return "raster" if isinstance(order, str) and order == "auto" else order
