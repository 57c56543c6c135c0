"""A fitted table as a scikit-learn classifier or regressor of one of its columns."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import narwhals.stable.v1 as nw
import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone

from rnade.columns import Column
from rnade.columns.frames import arrow_type
from rnade.columns.values import own_terms
from rnade.estimators.conditional import Conditional
from rnade.estimators.given import find_column
from rnade.nn.questions import column_given
from rnade.typing import Array

# Rows whose distributions are looked at together.
ASKED_ROWS = 4096


class AbstractColumnPredictor(BaseEstimator):
    """Predicts one column of a table from any of the others.

    Parameters
    ----------
    model : RNADE
        Fitted; `fit` trains a fresh copy of it.
    column : str
        Its name.
    place : int, optional
        Of a model fitted to an array, the column's position in it.
    width : int, optional
        Of a model fitted to an array, its number of columns.
    """

    def __init__(
        self, model: Any, column: str, place: int | None = None, width: int | None = None
    ) -> None:
        self.model = model
        self.column = column
        self.place = place
        self.width = width

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit a fresh copy of the model to X with y as the column.

        What `RNADE.as_predictor` gives is fitted already; cross-validation fits copies of it.

        Parameters
        ----------
        X : data frame or array-like
            With the column or without it.
        y : array-like of shape (N,), optional
            The column; by default that of X.

        Returns
        -------
        self
        """
        model = clone(self.model)
        if y is not None:
            X = self._with_column(X, y)
            model.set_params(columns=self._kinds(model.columns, y))
        self.model_ = model.fit(X)
        return self

    def _kinds(self, columns: Any, y: Any) -> Any:
        """What the columns of the copy hold, if y does not tell."""
        return columns

    def _with_column(self, X: Any, y: Any) -> Any:
        """X with y as the column, in its place where X has it."""
        frame = nw.from_native(X, pass_through=True)
        if not isinstance(frame, nw.DataFrame):
            rows = X if isinstance(X, np.ndarray) else np.asarray(X)
            first, rest = self._beside(rows)
            return np.column_stack([first, np.asarray(y), rest])
        name = next((n for n in frame.columns if str(n) == self.column), self.column)
        if frame.implementation.is_pandas():
            table = X.copy()
            table[name] = y.array if hasattr(y, "array") else np.asarray(y)
            return table
        cells = y.to_list() if hasattr(y, "to_list") else np.asarray(y).tolist()
        new = nw.new_series(self.column, cells, backend=frame.implementation)
        return nw.to_native(frame.with_columns(new))

    def _beside(self, rows: Any) -> tuple[Any, Any]:
        """What an array with or without the column has before and after it."""
        place = 0 if self.place is None else self.place
        return rows[:, :place], rows[:, place + (rows.shape[1] == self.width) :]

    @property
    def _fitted(self) -> Any:
        return getattr(self, "model_", self.model)

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self._fitted.__sklearn_is_fitted__())

    def _asked(self, X: Any, answer: Callable[[Conditional], Array]) -> Array:
        """What is asked of the distributions of the column given all other cells of each row."""
        model = self._fitted
        networks, schema = model._answering, model._asked_schema
        if self.width is not None and not isinstance(
            nw.from_native(X, pass_through=True), nw.DataFrame
        ):
            X = self._with_width(X)
        values = model._read_some(X)
        d = find_column(schema, self.column)
        parts = [
            answer(Conditional(schema.columns[d], column_given(networks, d, some)))
            for some in np.split(values, range(ASKED_ROWS, len(values), ASKED_ROWS))
        ]
        return np.concatenate(parts)

    def _with_width(self, X: Any) -> Any:
        """An array with the column, which is not looked at, where it came without."""
        rows = X if isinstance(X, np.ndarray) else np.asarray(X)
        if rows.ndim != 2 or rows.shape[1] + 1 != self.width:
            return X
        first, rest = self._beside(rows)
        none = np.full(len(rows), None if rows.dtype == object else np.nan)
        return np.column_stack([first, none, rest])

    def predict_quantiles(self, X: Any, q: ArrayLike = (0.05, 0.5, 0.95)) -> Any:
        """Quantiles of the column given all other cells that are observed.

        Parameters
        ----------
        X : data frame or array-like
            With the column, which is not looked at, or without it.
        q : float or sequence of floats
            Strictly between 0 and 1.

        Returns
        -------
        array of shape (N,), or (N, len(q)) for several
        """
        return self._asked(X, lambda each: each.quantile(q))

    def _own(self, X: Any, y: Any) -> Any:
        """The column of X itself, where y is not given."""
        if y is not None:
            return y
        model = self._fitted
        d = find_column(model._asked_schema, self.column)
        values = model._read_some(X)[:, d]
        if np.isnan(values).all():
            raise ValueError(f"Pass y, or X with the column {self.column!r}.")
        return own_terms(model._asked_schema.columns[d], values)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.target_tags.required = False
        return tags


class ColumnClassifier(ClassifierMixin, AbstractColumnPredictor):
    """Predicts a column of levels; made by `RNADE.as_predictor`.

    Attributes
    ----------
    classes_ : array
        The levels.
    """

    @property
    def classes_(self) -> Any:
        """The levels, in the order of `predict_proba`."""
        schema = self._fitted._asked_schema
        column: Column = schema.columns[find_column(schema, self.column)]
        return own_terms(column, np.arange(len(column.levels or ()), dtype=np.float64))

    def _kinds(self, columns: Any, y: Any) -> Any:
        # Numbers would be read as numbers.
        named = columns if isinstance(columns, Mapping) else {}
        if self.column in named or self.place in named or np.asarray(y).dtype.kind not in "iuf":
            return columns
        return {**named, self.column: "category"}

    def predict(self, X: Any) -> Any:
        """The likeliest level of each row.

        Parameters
        ----------
        X : data frame or array-like
            With the column, which is not looked at, or without it.

        Returns
        -------
        array of shape (N,)
        """
        return self.classes_[self.predict_proba(X).argmax(1)]

    def predict_proba(self, X: Any) -> Array:
        """Probability of each level, in the order of `classes_`.

        Parameters
        ----------
        X : as of `predict`

        Returns
        -------
        array of shape (N, number of levels)
        """
        return self._asked(X, Conditional.probabilities)

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`."""
        return np.log(self.predict_proba(X))

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Share of rows whose level is predicted right; y is by default the column of X."""
        return float(super().score(X, self._own(X, y), sample_weight))


class ColumnRegressor(RegressorMixin, AbstractColumnPredictor):
    """Predicts a column of numbers; made by `RNADE.as_predictor`."""

    def predict(self, X: Any) -> Array:
        """Mean of the column given all other cells that are observed.

        Parameters
        ----------
        X : data frame or array-like
            With the column, which is not looked at, or without it.

        Returns
        -------
        array of shape (N,)
        """
        return self._asked(X, Conditional.mean)

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Coefficient of determination of `predict`; y is by default the column of X."""
        return float(super().score(X, self._own(X, y), sample_weight))


def make_predictor(model: Any, column: Column) -> AbstractColumnPredictor:
    """View of a fitted model as a predictor of one column.

    Raises
    ------
    ValueError
        If the column holds neither levels nor numbers.
    """
    schema = model._asked_schema
    place, width = None, None
    if schema.frame == "array":
        width = len(schema.inputs)
        place = [str(name) for name in schema.inputs].index(column.name)
    if column.levels is not None:
        return ColumnClassifier(model, column.name, place, width)
    kind = arrow_type(column.dtype)
    numbers = pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal
    if column.kind == "date" or not any(test(kind) for test in numbers):
        raise ValueError(
            f"Column {column.name!r} holds dates or times; scikit-learn's regressors predict"
            " numbers. Use model.conditional, which gives dates."
        )
    return ColumnRegressor(model, column.name, place, width)
