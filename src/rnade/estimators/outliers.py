"""Which rows are outliers: by a level, a false discovery rate, or as scikit-learn has it."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from rnade.checks import number_between
from rnade.evaluation import Calibration, benjamini_hochberg
from rnade.typing import Array

# The level of contamination="auto", and the one that is taken where none is given.
LEVEL = 0.01


class once_fitted:
    """Make a method that only a fitted estimator has: to ask for it before is a NotFittedError.

    Scikit-learn's checks demand of an estimator with `predict` or `decision_function` that rows
    with weights give the same labels as repeated rows, to the last digit. No estimator that holds
    out rows at random can do that, and so these checks, which look at unfitted estimators, must
    not find them.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is not None:
            check_is_fitted(owner)  # which raises what hasattr takes for an AttributeError
        return self.method.__get__(owner, kind)


class OutlierMethods:
    """Labels of rows from their log densities and p-values."""

    contamination: Any  # a parameter of every estimator
    calibration_: Calibration
    judge: Any
    judging: Any
    fit: Any
    _coarse_scores: Any
    _to_explain: Any

    def outliers(
        self, X: Any, *, level: float | None = None, fdr: float | None = None
    ) -> NDArray[np.bool_]:
        """Which rows are outliers by their p-values.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
            The rows of the fitted table are judged out of fold, by their ranks among all of them:
            a level names this share of them.
        level : float, optional
            Rows with a p-value of at most this are outliers: about this share of usual rows is.
            By default 0.01.
        fdr : float, optional
            False discovery rate instead: about this share, at most, of the rows that are named are
            usual ones (Benjamini and Hochberg). For new rows: ranks cannot tell how many of the
            rows that they rank are usual.

        Returns
        -------
        bool array of shape (N,)
        """
        return chosen(self.judge(X), level, fdr)

    @property
    def offset_(self) -> float:
        """The score below which `predict` takes a row for an outlier.

        A share `contamination` (0.01 for "auto") of rows like those fitted fall below. The score
        is the log density; of models that judge rows at two scales (`RNADE`), it is made of two
        log ranks among usual rows: by its log density, and by its coarse density, which tells how
        far from all others it lies. The smaller counts, and a share of the latter besides.
        """
        two_scales = getattr(self, "two_scales_", None)
        calibration = self.calibration_ if two_scales is None else two_scales.calibration
        return calibration.quantile(self._level)

    @property
    def _level(self) -> float:
        return LEVEL if isinstance(self.contamination, str) else float(self.contamination)

    @once_fitted
    def decision_function(self, X: Any) -> Array:
        """How far the score of each row is above `offset_`; below 0 are outliers.

        Every row is taken as a new one: for those of the fitted table see `fit_predict` and
        `pvalue`.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)

        Returns
        -------
        array of shape (N,)
        """
        return np.asarray(self._judging_scores(X) - self.offset_)

    def _judging_scores(self, X: Any) -> Array:
        """Scores of new rows, of which `offset_` is one: log densities, or at two scales."""
        scores: Array = self.judging.score_samples(X)
        two_scales = getattr(self, "two_scales_", None)
        if two_scales is None:
            return scores
        values = self._to_explain(X)
        (coarse,) = self._coarse_scores(values, 1)
        found: Array = two_scales.score(scores, coarse, np.isnan(values))
        return found

    @once_fitted
    def predict(self, X: Any) -> NDArray[np.int64]:
        """Label outliers among new rows: -1 where `decision_function` is below 0, and 1.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)

        Returns
        -------
        int array of shape (N,)
        """
        return np.where(self.decision_function(X) < 0, -1, 1)

    def fit_predict(self, X: Any, y: Any = None, **fitting: Any) -> NDArray[np.int64]:
        """Fit the model and label the outliers of the table itself, each row out of fold.

        A row is an outlier, -1, if its `fit_pvalues_` is at most `contamination` (0.01 for
        "auto"), so that this is about the share of rows labelled. `RNADE` leaves every row out of
        some model for it (`score_fitted`). Where one model is fitted, rows that it learned from
        are compared as new ones, and look more usual than they are.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
        y : ignored
        **fitting
            As of `fit`.

        Returns
        -------
        int array of shape (N,)
        """
        self._scores_fitted = True
        try:
            self.fit(X, y, **fitting)
        finally:
            del self._scores_fitted
        return np.where(self.judge(X).p_values <= self._level, -1, 1)

    # Whether `fit_predict` is fitting, which wants every row to be left out by some model.
    _scores_fitted = False


def chosen(judged: Any, level: float | None, fdr: float | None) -> NDArray[np.bool_]:
    """Which rows are outliers at a level (0.01 by default), or at a false discovery rate.

    Parameters
    ----------
    judged : rnade.estimators.scoring.Judged
    level, fdr : float, optional
    """
    if level is not None and fdr is not None:
        raise ValueError("Give a level or a false discovery rate (fdr), not both.")
    if fdr is None:
        level = LEVEL if level is None else number_between(level, "level", 0, 1, open_low=True)
        return np.asarray(judged.p_values <= level)
    if judged.left_out.any():
        raise ValueError(
            "These rows were fitted, and their p-values are ranks among themselves, which cannot"
            " tell how many of them are usual: a false discovery rate (fdr) is for new rows."
            " Choose a level, or fit the model to rows that are known to be usual and score the"
            " others."
        )
    return benjamini_hochberg(judged.p_values, fdr)
