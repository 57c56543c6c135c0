"""What is asked of a fitted density: scores, p-values, draws, a file; and in which precision."""

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin, OutlierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from rnade.checks import positive_int
from rnade.columns import Resolution, Standardiser
from rnade.estimators.distribution import DistributionMixin
from rnade.estimators.fitted_rows import FittedRows
from rnade.estimators.inputs import check_rows, check_weights, column_labels
from rnade.estimators.outliers import OutlierMethods
from rnade.estimators.parameters import FitParameters
from rnade.estimators.settings import make_generator, named_dtype
from rnade.estimators.table_scores import TableScoresMixin
from rnade.estimators.two_scales import TwoScales
from rnade.evaluation import Calibration, MeanScore, mean_score
from rnade.nn import AbstractDensity
from rnade.nn.coarse import CoarseModule
from rnade.nn.ensemble import log_average
from rnade.training import HistoryRow
from rnade.typing import Array

# Numbers of X that are scored at a time: what is moved to the device, and the largest array
# beyond the result.
CHUNK_ELEMENTS = {"cpu": 2**22, "cuda": 2**25}
# With score_dtype="auto": rows from which a GPU computes in float32, how many of them are first
# scored in float64 too, and the largest difference that is allowed, in nats.
SINGLE_ROWS = 4096
COMPARED_ROWS = 256
LARGEST_DIFFERENCE = 1e-4

# Rows that coarse densities look at together.
COARSE_ROWS = 16_384

# Which models of an average are meant, or groups of them, of shape (M,) or (G, M).
Models = NDArray[np.bool_]


@dataclass(frozen=True)
class Judged:
    """What a model says of rows, each judged by models that did not learn from it if possible.

    Attributes
    ----------
    scores : array of shape (N,)
        Log densities.
    p_values : array of shape (N,)
    left_out : bool array of shape (N,)
        Which rows are of the fitted table, with the log density and p-value that `fit` gave them
        by models that left them out.
    learned : bool array of shape (N,)
        Which rows are of the fitted table and were left out by no model, so that they look more
        usual than they are; or had a weight of 0 there.
    """

    scores: Array
    p_values: Array
    left_out: NDArray[np.bool_]
    learned: NDArray[np.bool_]


# DensityMixin first: scikit-learn takes estimators of type "outlier_detector" to give the same
# labels by fit_predict as by fit and predict, and those of fit_predict are out of fold here.
class AbstractScoringEstimator(
    FitParameters,
    OutlierMethods,
    TableScoresMixin,
    DistributionMixin,
    DensityMixin,
    OutlierMixin,
    BaseEstimator,
):
    """Scikit-learn estimator over one module that gives densities, once it is fitted."""

    # Of training and of scores; a parameter of those subclasses that have a choice.
    dtype: str
    score_dtype: str = "float64"

    # Fitted attributes.
    module_: AbstractDensity
    standardiser_: Standardiser
    resolution_: Resolution | None
    calibration_: Calibration
    # Of averages that were trained again on all rows: the average before, whose models each left
    # out some, by which new rows are judged.
    judges_: AbstractDensity | None = None
    # Of estimators that judge rows at two scales.
    coarse_: CoarseModule | None = None
    two_scales_: TwoScales | None = None
    validation_scores_: Array
    history_: list[HistoryRow]
    best_epoch_: int
    n_rows_: int
    fitted_rows_: FittedRows | None
    fit_scores_: Array | None
    fit_pvalues_: Array | None
    origin_: dict[str, Any]
    n_features_in_: int
    fit_seconds_: float

    # Whether cells of real-valued columns may be missing; what columns hold, for messages.
    _takes_missing: ClassVar[bool] = False
    _columns_of: ClassVar[str] = "numbers"

    # Names of further fitted attributes that a model file keeps, as JSON holds them.
    _kept: ClassVar[tuple[str, ...]] = ()

    def _check_rows(self, X: Any, *, fitting: bool = False, missing: bool = False) -> Array:
        """X as a matrix of numbers, or an error that says what is wrong with it and where."""
        return check_rows(self, X, fitting=fitting, missing=missing)

    def _encode(self, X: Array) -> Array:
        """Values as the module takes them, before standardising."""
        return X

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
        return self._score(self._encode(self._check_rows(X)))

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Mean log density of the rows, in nats per row.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
        y : ignored
        sample_weight : array-like of shape (N,), optional
            Weights of the rows.
        """
        scores = self.score_samples(X)
        return float(np.average(scores, weights=check_weights(sample_weight, scores)))

    def pvalue(self, X: Any) -> Array:
        """Share of fitted rows that are at most as likely as each row: small for outliers.

        A row with p <= 0.01 is among the 1 % most unusual of rows like the training data. The
        p-values are cross-conformal: each row is compared with fitted rows under models that left
        these out of training, at two scales in models that have a coarse density too (`RNADE`):
        how unlikely it is, and how far from all others. Those are the rows that `fit` held out
        and, of an average, the fold that each model left out; where one model is fitted, the
        held-out rows alone, which also choose its epoch. The smallest value possible is
        1 / (1 + number of such rows), `calibration_.smallest`.

        The table that was fitted is known again: its rows get `fit_pvalues_`, for which no model
        is asked that learned from the row; only rows that no model left out are compared as new
        ones, and look more usual than they are. 1 for a row with nothing observed, of which there
        is nothing to say.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)

        Returns
        -------
        array of shape (N,)
        """
        return self._judge(X, scored=False).p_values

    def judge(self, X: Any) -> Judged:
        """Log densities and p-values of rows in one pass: those of the fitted table out of fold.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)

        Returns
        -------
        Judged
            `scores` of rows that `left_out` marks are `fit_scores_`, all others those of
            `score_samples`.
        """
        return self._judge(X, scored=True)

    def _judge(self, X: Any, *, scored: bool) -> Judged:
        """As `judge`; log densities of new rows may be those of `judging` unless `scored`."""
        check_is_fitted(self)
        values = self._comparable(X)
        scores, p_values = np.full((2, len(values)), np.nan)
        kept = self._kept_of(values)
        known = kept is not None
        if kept is not None:
            scores, p_values = kept[0].copy(), kept[1].copy()
        rest = np.flatnonzero(np.isnan(p_values))
        if len(rest):
            own = self._encode(values[rest])
            by_group = self.judging._group_scores(own, self.calibration_.models)
            again = scored and self.judges_ is not None
            scores[rest] = self._score(own) if again else by_group[0]
            p_values[rest] = self._pvalues(values[rest], by_group)
        p_values[np.isnan(values).all(axis=1)] = 1.0
        left_out = np.full(len(values), known)
        left_out[rest] = False
        return Judged(scores, p_values, left_out, known & ~left_out)

    @property
    def judging(self) -> Self:
        """This estimator with the models that left rows out; itself, if it has no others.

        They differ in an average that was trained again on all rows (`retrain`).
        """
        if self.judges_ is None:
            return self
        before = copy.copy(self)
        before.module_, before.judges_ = self.judges_, None
        before.__dict__.pop("_typical", None)  # measured of the other models
        return before

    def _pvalues(self, values: Array, by_group: Array) -> Array:
        """P-values of rows, whose log densities by the models of each group are known."""
        if self.two_scales_ is None:
            return self.calibration_.pvalue(by_group)
        coarse = self._coarse_scores(values, len(by_group))
        judged = self.two_scales_.score(by_group, coarse, np.isnan(values))
        return self.two_scales_.calibration.pvalue(judged)

    def _coarse_scores(self, values: Array, n_groups: int) -> Array:
        """Log densities of rows by the coarse density of each group, of shape (G, N).

        The first group are all mixtures together; each further one is what one of them left out.
        """
        assert self.coarse_ is not None
        device = self.coarse_.mean.device
        each = torch.cat(
            [
                self.coarse_.log_prob(torch.as_tensor(some).to(device)).cpu()
                for some in np.array_split(values, max(1, len(values) // COARSE_ROWS))
            ],
            1,
        )
        together = log_average(each)[None]
        groups = each.expand(n_groups - 1, -1) if len(each) == 1 else each[: n_groups - 1]
        return torch.cat([together, groups]).numpy()

    def _comparable(self, X: Any) -> Array:
        """X as a matrix of numbers, if its rows can be compared with those that calibrate."""
        return self._check_rows(X)

    def _kept_of(self, values: Array) -> tuple[Array, Array] | None:
        """Log densities and p-values that `fit` kept of the fitted table, if this is it."""
        fitted, scores, p_values = self.fitted_rows_, self.fit_scores_, self.fit_pvalues_
        if fitted is None or scores is None or p_values is None:
            return None
        n_digested = len(scores) if fitted.at is None else len(fitted.at)
        if len(values) not in (len(scores), n_digested):
            return None  # without a look at all the values
        if fitted.at is not None and len(values) == len(scores):
            # With rows of weight 0, of which no more is known.
            return (scores, p_values) if fitted.are(values[fitted.at]) else None
        at = slice(None) if fitted.at is None else fitted.at
        return (scores[at], p_values[at]) if fitted.are(values) else None

    def held_out_score(self) -> MeanScore:
        """Mean log-likelihood of the rows that `fit` held out, with its standard error."""
        check_is_fitted(self)
        return mean_score(*self.calibration_.group(0))

    def _score(self, X: Array) -> Array:
        scores = self._in_chunks(X, lambda module, x: module.log_prob(x))
        return scores + self.standardiser_.log_determinant

    def _group_scores(self, X: Array, models: Models | None) -> Array:
        """Log densities by the average of each group of models, of shape (G, N).

        Parameters
        ----------
        X : array of shape (N, D)
        models : bool array of shape (G, M), or None
            None for the model itself alone.
        """
        if models is None or models.shape[1] == 1:
            return np.repeat(self._score(X)[None], 1 if models is None else len(models), axis=0)

        def of_groups(module: Any, x: Tensor) -> Tensor:
            found: Tensor = module.group_log_prob(x, torch.as_tensor(models).to(x.device))
            return found.T

        return self._in_chunks(X, of_groups).T + self.standardiser_.log_determinant

    def _in_chunks(self, X: Array, function: Callable[[Any, Tensor], Tensor]) -> Array:
        """What `function` gives of a module and the standardised rows of X, chunk by chunk."""
        module = self._module_for(X, function)
        size = max(1, self._chunk_elements(module) // X.shape[1])
        parts = [
            self._computed(module, X[start : start + size], function)
            for start in range(0, len(X), size)
        ]
        return np.concatenate(parts)

    def _chunk_elements(self, module: AbstractDensity) -> int:
        return CHUNK_ELEMENTS[module.device.type]

    def _computed(
        self, module: AbstractDensity, X: Array, function: Callable[[Any, Tensor], Tensor]
    ) -> Array:
        with torch.no_grad():
            result: Array = function(module, self._standardised(module, X)).double().cpu().numpy()
        return result

    def _standardised(self, module: AbstractDensity, X: Array) -> Tensor:
        """Rows as the module takes them; on its device, which is faster than NumPy."""
        # Torch warns of memory that it may not write to, as of memory-mapped files.
        rows = torch.as_tensor(X if X.flags.writeable else X.copy()).to(module.device)
        mean, scale = (torch.as_tensor(t).to(rows.device) for t in self._mean_and_scale())
        return ((rows - mean) / scale).to(module.dtype)

    def _module_for(self, X: Array, function: Callable[[Any, Tensor], Tensor]) -> AbstractDensity:
        """The module in the precision in which it is to compute `function` of X."""
        single = self._module_in(self._score_dtype(len(X)))
        if single is self.module_ or self.score_dtype != "auto":
            return single
        some = X[:: -(-len(X) // COMPARED_ROWS)]
        ours, exact = (self._computed(module, some, function) for module in (single, self.module_))
        difference = np.abs(ours - exact)
        return single if (difference < LARGEST_DIFFERENCE).all() else self.module_

    def _score_dtype(self, n_rows: int) -> torch.dtype:
        """Precision for so many rows."""
        if self.score_dtype != "auto":
            return named_dtype(self.score_dtype, "score_dtype")
        fast = self.module_.device.type == "cuda" and n_rows >= SINGLE_ROWS
        return torch.float32 if fast else torch.float64

    def _module_in(self, dtype: torch.dtype) -> AbstractDensity:
        """The fitted module, or a copy of it in another precision."""
        same = dtype == self.module_.dtype
        return self.module_ if same else copy.deepcopy(self.module_).to(dtype)

    # ---------------------------------------------------------------- sampling

    def sample(
        self,
        n_samples: int = 1,
        random_state: Any = None,
        *,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
    ) -> Any:
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
        array of shape (n_samples, D), or a frame of the kind that was fitted
            Of models that keep the types of a frame's columns.
        """
        return self._as_given(self.sample_values(n_samples, random_state, low=low, high=high))

    def _as_given(self, values: Array) -> Any:
        """Rows in the form of the table that was fitted."""
        return values

    def sample_values(
        self,
        n_samples: int = 1,
        random_state: Any = None,
        *,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
    ) -> Array:
        """Draw rows as `sample` does, always as an array of shape (n_samples, D) of numbers."""
        check_is_fitted(self)
        n_samples = positive_int(n_samples, "n_samples")
        generator = make_generator(random_state, self.module_.device)
        ends = self._bound(low, "low"), self._bound(high, "high")
        if ends[0] is not None and ends[1] is not None and (ends[0] >= ends[1]).any():
            at = int((ends[0] >= ends[1]).argmax())
            raise ValueError(
                f"Expected low < high in every column; got {ends[0][at]:g} and {ends[1][at]:g} in"
                f" {column_labels(self)[at]}."
            )
        bounds = (
            None if t is None else torch.as_tensor(self.standardiser_.transform(t)) for t in ends
        )
        module = self._module_in(self._score_dtype(n_samples))
        Z = module.sample(n_samples, generator, **dict(zip(("low", "high"), bounds, strict=True)))
        # On its device, which is faster than NumPy.
        mean, scale = (torch.as_tensor(t).to(Z.device) for t in self._mean_and_scale())
        rows: Array = (Z.double() * scale + mean).cpu().numpy()
        # A bound may have been rounded on its way through other units and float32.
        return rows if low is None and high is None else np.clip(rows, *ends)

    def _mean_and_scale(self) -> tuple[Array, Array]:
        return self.standardiser_.mean, self.standardiser_.scale

    def _bound(self, bound: ArrayLike | None, name: str) -> Array | None:
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
        return values

    # ---------------------------------------------------------------- exploring

    def explore(self, rows: Any = None, *, title: str | None = None) -> Any:
        """Raise: only models that answer questions about any columns have a page to explore.

        Parameters
        ----------
        rows, title : ignored
        """
        raise ValueError(
            f"{type(self).__name__} models do not answer questions about some columns given"
            " others, of which a page to explore is made. RNADE models do, and FVBN models of"
            " tables with other than complete real-valued columns."
        )

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


def for_scoring(module: AbstractDensity) -> AbstractDensity:
    """A trained module in float64, with a backend that has it: those of the GPU do not."""
    for part in module.modules():
        if str(getattr(part, "backend", "")).startswith("gpu"):
            part.backend = "auto"  # type: ignore[assignment]
    return module.double().requires_grad_(False)
