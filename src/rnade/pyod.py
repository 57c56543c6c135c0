"""A density estimator as a detector of PyOD, where its conventions differ from scikit-learn's.

Needs the package ``pyod`` (``pip install rnade[pyod]``).
"""

from typing import Any, Self

import numpy as np
from pyod.models.base import BaseDetector
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from rnade.estimators import RNADE
from rnade.typing import Array


class RNADEDetector(BaseDetector):  # type: ignore[misc]
    """Outlier detection by density, with the attributes and methods of PyOD's detectors.

    Scores are minus those of the estimator's `decision_function`, so that outliers have high ones.
    Those of the fitted table, `decision_scores_`, are by models that left the row out of training;
    by them `threshold_` and `labels_` are chosen.

    Parameters
    ----------
    contamination : float
        Share of outliers in the fitted table, at most 0.5.
    estimator : density estimator, optional
        What is fitted; None for ``RNADE()``.

    Attributes
    ----------
    estimator_ : density estimator
        Fitted; it has `pvalue`, `surprise` and all else.
    decision_scores_ : array of shape (N,)
    threshold_ : float
    labels_ : int array of shape (N,)
        1 for outliers, 0 for others.

    Examples
    --------
    >>> import numpy as np
    >>> from rnade import RNADE
    >>> from rnade.pyod import RNADEDetector
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> detector = RNADEDetector(estimator=RNADE(epochs=5, random_state=0)).fit(X)
    >>> int(detector.labels_.sum())
    20
    """

    def __init__(self, contamination: float = 0.1, estimator: Any = None) -> None:
        super().__init__(contamination=contamination)
        self.estimator = estimator

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the estimator and score the rows, each by models that left it out.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
        y : ignored
        """
        self._set_n_classes(y)
        self.estimator_ = RNADE() if self.estimator is None else clone(self.estimator)
        self.estimator_.fit_predict(X)
        self.decision_scores_ = self.estimator_.offset_ - self.estimator_._fit_judged
        self._process_decision_scores()
        return self

    def decision_function(self, X: Any) -> Array:
        """How odd each row is, which is taken as a new one.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
        """
        check_is_fitted(self, ["decision_scores_", "threshold_", "labels_"])
        return np.asarray(-self.estimator_.decision_function(X))
