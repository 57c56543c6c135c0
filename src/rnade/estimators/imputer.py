"""Missing cells filled as a step of a pipeline."""

from typing import Any, Self

import narwhals.stable.v1 as nw
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from rnade.checks import positive_int, unknown_name
from rnade.estimators.parameters import estimator
from rnade.estimators.questions import IMPUTATIONS
from rnade.estimators.rnade import RNADE


@estimator
class RNADEImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Missing value imputation by `RNADE`, for scikit-learn pipelines.

    Each missing cell is filled given all observed cells of its row, by one model of the whole
    table. Tables come back as they came, with their names, types and index, and with columns that
    the model leaves out (ids, free text, constants) as they are.

    Parameters
    ----------
    estimator : RNADE, optional
        What is fitted; None for ``RNADE()``.
    how : {"mean", "median", "likeliest", "draw"}
        As of `RNADE.impute`.
    n_draws : int, optional
        With ``how="draw"``: `transform` gives a list of so many tables, for multiple imputation
        outside of a pipeline.
    random_state : int, RandomState instance or None
        Of the fit, unless `estimator` has one of its own, and of draws.

    Attributes
    ----------
    model_ : RNADE
        The fitted model.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array
        Their names, if X was a data frame.

    Examples
    --------
    >>> import numpy as np
    >>> from rnade import RNADE, RNADEImputer
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> X[::9, 1] = np.nan
    >>> imputer = RNADEImputer(estimator=RNADE(epochs=2), random_state=0)
    >>> bool(np.isnan(imputer.fit_transform(X)).any())
    False
    """

    estimator: RNADE | None = None
    how: str = "mean"
    n_draws: int | None = None
    random_state: Any = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model to the rows of a table.

        Parameters
        ----------
        X : data frame or array-like of shape (N, D)
        y : ignored

        Returns
        -------
        self
        """
        if self.how not in IMPUTATIONS:
            raise unknown_name(self.how, list(IMPUTATIONS), "how")
        if self.n_draws is not None:
            positive_int(self.n_draws, "n_draws")
        model = RNADE() if self.estimator is None else clone(self.estimator)
        if model.random_state is None:
            model.set_params(random_state=self.random_state)
        self.model_ = model.fit(X)
        if not self.model_.answers_questions:
            raise ValueError(self.model_._without_networks)
        self._check(X, reset=True)
        return self

    def transform(self, X: Any) -> Any:
        """Fill the missing cells of a table.

        Parameters
        ----------
        X : data frame or array-like of shape (N, D)

        Returns
        -------
        table like X, or a list of `n_draws` of them
        """
        check_is_fitted(self)
        self._check(X, reset=False)
        if self.n_draws is not None and getattr(self, "_sklearn_output_config", None):
            raise ValueError("n_draws gives a list of tables, which set_output does not change.")
        return self.model_.impute(
            X, how=self.how, n_draws=self.n_draws, random_state=self.random_state
        )

    def _check(self, X: Any, *, reset: bool) -> None:
        """Keep the number and the names of the columns, or check them; the model checks cells."""
        if isinstance(nw.from_native(X, pass_through=True), nw.DataFrame):
            validate_data(self, X, reset=reset, skip_check_array=True)
        else:
            validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.target_tags.required = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
