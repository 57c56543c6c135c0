"""Tables with columns of any kind: how an estimator reads, fits and gives them back."""

import abc
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import narwhals.stable.v1 as nw
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from rnade.batch import Batch
from rnade.checks import positive_int
from rnade.columns import Column, Resolution, Schema, Standardiser
from rnade.columns.links import Link
from rnade.columns.partition import ColumnCells
from rnade.columns.sources import as_frame
from rnade.estimators.conditional import Conditional
from rnade.estimators.conditionals import check_asked
from rnade.estimators.density import AbstractDensityEstimator
from rnade.estimators.inputs import check_rows, is_of_numbers, some
from rnade.estimators.parameters import estimator
from rnade.estimators.settings import make_generator
from rnade.exceptions import SpikeWarning, TableWarning, warn_caller
from rnade.nn.table import AbstractTableDensity
from rnade.training.table import cut_columns
from rnade.typing import Array

# Rows whose distributions of a column are looked at together.
ASKED_ROWS = 4096


@estimator
class TableParameters:
    """What estimators take that read tables with columns of any kind.

    Parameters
    ----------
    columns : "auto", "real" or dict
        What the columns hold. "auto" goes by their types: strings, booleans and categories are
        levels, integers are integers, dates are dates, floats are real numbers, with atoms where
        single values hold an excess share of the rows. A dict of names gives the kinds of single
        columns, e.g. ``{"rings": "integer", "income": Real(atoms=[0])}``. "real" takes every
        column as real numbers, which is what published log-likelihoods compare.
    missing : {"ignore", "informative"}
        Missing cells are left out of a row's log density. With "informative" the model also
        learns which cells are missing: that counts in log densities, and draws have missing cells.
    na : sequence of str or float
        Marks that mean a missing cell, such as ``["?", -999]``, beside NaN, None and null.
    """

    columns: Any = "auto"
    missing: str = "ignore"
    na: Sequence[Any] = ()


class AbstractTableEstimator(TableParameters, AbstractDensityEstimator):
    """Estimator that takes a table as it is, its columns cut into cells.

    Attributes
    ----------
    schema_ : Schema or None
        What the columns hold; None for real-valued complete tables that are not cut into cells.
    """

    schema_: Schema | None = None
    module_: Any

    # Whether complete columns of real numbers are cut into cells too.
    _cuts_all: ClassVar[bool] = False

    @property
    def _mixed(self) -> bool:
        """Whether the fitted table was cut into cells: `module_` is an `AbstractTableDensity`."""
        return self.schema_ is not None and (self._cuts_all or not self.schema_.is_plain)

    # ---------------------------------------------------------------- reading

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model to the rows of a table.

        Parameters
        ----------
        X : data frame or array-like of shape (N, D)
            Rows. What the columns hold is found by their types (`columns`); names and types of a
            frame's columns are kept, and draws are given back in them.
        y : ignored
        sample_weight : array-like of shape (N,), optional
            Weights of the rows; a row of weight 0 is ignored.

        Returns
        -------
        self
        """
        self.__dict__.pop("network_", None)
        *counted, kept = _rows_that_count(X, sample_weight)
        self._read(counted[0])
        if not self._mixed or kept is None:
            return super().fit(X, y, sample_weight)
        # What rows without a weight hold need not be readable.
        super().fit(counted[0], y, counted[1])
        assert self.fitted_rows_ is not None
        self.fitted_rows_ = replace(self.fitted_rows_, at=kept)
        for name in ("fit_scores_", "fit_pvalues_"):
            own, of_all = getattr(self, name), np.full(len(np.asarray(sample_weight)), np.nan)
            of_all[kept] = own
            setattr(self, name, of_all)
        return self

    def _read(self, X: Any) -> None:
        """Find out what the columns of a table hold, and say it."""
        self.schema_ = None
        if self._cuts_all or not (isinstance(self.columns, str) and self.columns == "real"):
            self.schema_ = schema = self._infer(X)
            if schema is not None and self._mixed:
                self._check_table_settings()
                if self.verbose:
                    _say(schema)
                for text in schema.suspicions:
                    warn_caller(text, TableWarning)
            for text in () if schema is None else schema.misread:
                warn_caller(text, TableWarning)

    def _infer(self, X: Any) -> Schema | None:
        """The schema of a table; None for what is no table, which the checks will refuse."""
        frame = as_frame(X)
        if isinstance(frame, nw.LazyFrame):
            return None
        if not isinstance(frame, nw.DataFrame):
            checked = check_array_like(X)
            if checked is None:
                return None
            X = checked
        try:
            schema = Schema.infer(X, self.columns, self.missing, self.na)
        except ValueError:
            if not isinstance(frame, nw.DataFrame):
                check_rows(self, X, fitting=True)  # in scikit-learn's own words, where it has some
            raise
        if schema.frame == "array" and schema.left_out:
            # An array's columns have no names to leave one out by.
            values = np.ma.asarray(X)
            complete = values.dtype.kind == "f" and not np.ma.getmaskarray(values).any()
            complete = complete and bool(np.isfinite(values.data).all())
            return None if complete and not self._cuts_all else _refuse_left_out(schema)
        return schema

    def _check_rows(self, X: Any, *, fitting: bool = False, missing: bool = False) -> Array:
        schema = self.schema_
        if schema is None:
            return super()._check_rows(X, fitting=fitting, missing=missing)
        frame = nw.from_native(X, pass_through=True)
        if schema.is_plain:
            if isinstance(frame, nw.DataFrame) and schema.frame != "array":
                wanted = [str(n) for n in schema.inputs if str(n) not in schema.left_out]
                absent = [name for name in wanted if name not in frame.columns]
                if not absent and (fitting or len(frame.columns) > len(wanted)):
                    X = nw.to_native(frame.select(wanted))
            return super()._check_rows(X, fitting=fitting, missing=missing)
        if isinstance(frame, nw.LazyFrame):
            check_rows(self, X, fitting=fitting)  # says what to do
        values, seen = schema.encode(X)
        if not len(values):
            raise ValueError(
                f"Found array with 0 sample(s) (shape={values.shape}) while a minimum of 1 is"
                " required."
            )
        if fitting:
            names = [c.name for c in schema.columns if c.indicates is None]
            self.n_features_in_ = len(names)
            self.__dict__.pop("feature_names_in_", None)
            if schema.frame != "array":
                self.feature_names_in_ = np.asarray(names, dtype=object)
            if len(values) < 2:
                raise ValueError(f"Found array with {len(values)} sample(s); at least 2 needed.")
        return np.where(seen, values, np.nan)

    def _check_table_settings(self) -> None:
        """Raise on parameters that are not for tables in cells."""

    # ---------------------------------------------------------------- fitting

    def _prepare(self, X: Array, weights: Array | None) -> tuple[Standardiser, Resolution | None]:
        if self._mixed:
            self._warn_of_rounding(X)
            return Standardiser.identity(X.shape[1]), None
        return super()._prepare(X, weights)

    def _warn_of_rounding(self, X: Array) -> None:
        assert self.schema_ is not None
        rounded = []
        for column, x in zip(self.schema_.columns, X.T, strict=True):
            if column.kind == "real" and column.step is None:
                smooth = x[~np.isnan(x) & ~np.isin(x, column.atoms)]
                if Resolution.measure(smooth[:, None]).steps[0] > 0:
                    rounded.append(f"column {column.name!r}")
        if rounded:
            warn_caller(
                f"Heavily repeated values in {some(rounded)}, which are taken as real numbers: a"
                " density can spike on them, so log-likelihoods there say little. Where values"
                " are counts pass columns={name: 'integer'}.",
                SpikeWarning,
            )

    def _as_batch(
        self, X: Array, weights: Array | None, device: torch.device, dtype: torch.dtype
    ) -> Batch:
        if not self._mixed:
            return super()._as_batch(X, weights, device, dtype)
        # Values as they are: cells are cut by training rows alone.
        w = None if weights is None else torch.as_tensor(weights, dtype=torch.float32)
        # Torch warns of memory that it may not write to, as of memory-mapped files.
        x = torch.as_tensor(X if X.flags.writeable else X.copy())
        return Batch(x, w).map(lambda t: t.to(device))

    def _cut(self, X: Array, weights: Array | None) -> list[ColumnCells]:
        """The columns of training rows (NaN where missing) in cells."""
        assert self.schema_ is not None
        return cut_columns([_cutter(column) for column in self.schema_.columns], X, weights)

    @abc.abstractmethod
    def _empty_table(
        self, columns: Sequence[ColumnCells], sizes: Mapping[str, Any], links: Sequence[Link]
    ) -> AbstractTableDensity:
        """A density of the fitted shape, for the tensors of a model file."""

    def _indicators(self) -> dict[int, int]:
        """For columns whose missing cells are modelled, the place of what tells them."""
        columns = () if self.schema_ is None else self.schema_.columns
        places = {column.name: d for d, column in enumerate(columns)}
        told = {places[c.name]: c.indicates for c in columns if c.indicates}
        return {places[name]: d for d, name in told.items() if name in places}

    # ---------------------------------------------------------------- asking

    def _standardised(self, module: Any, X: Array) -> Tensor:
        return module.cells(X) if self._mixed else super()._standardised(module, X)

    def _comparable(self, X: Any) -> Array:
        answers = getattr(self, "questions_", None) is not None
        values = self._check_rows(X, missing=answers)
        gaps = np.isnan(values)
        if gaps.any() and not self._mixed:
            raise ValueError(
                f"Row {np.argmax(gaps.any(1))} has missing cells, and p-values compare a row with"
                " held-out rows, which had none: this model was fitted to complete columns. Fit"
                " it to a table that has missing cells, or use score_samples."
            )
        return values

    def pit(self, X: Any, random_state: Any = None) -> Array:
        """Probability integral transform: where each value falls in its conditional, from 0 to 1.

        Uniform over rows like those fitted, if the model is right. Where values have a probability
        (levels, integers, atoms) or are rounded, it is drawn evenly from their range of
        probabilities (the randomised transform). NaN where a cell is missing.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
        random_state : int, RandomState instance or None
            Of those draws, and of the model of an average by which a row is judged.

        Returns
        -------
        array of shape (N, D)
        """
        if not self._mixed:
            return super().pit(X, random_state)
        check_is_fitted(self)
        values = self._check_rows(X)
        found: Array = self.module_.pit(values, make_generator(random_state))
        return found

    def conditional_quantiles(
        self, X: Any, q: ArrayLike, *, where: ArrayLike | None = None
    ) -> Array:
        """The values below which the model puts the shares `q` of each conditional.

        Of complete real-valued tables given the columns before it in the order of one model; of
        others given all other cells of the row that are observed.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
        q : float or array-like of floats
            Strictly between 0 and 1.
        where : array of bool, shape (N, D), optional
            Cells to compute, all by default; the others are NaN.

        Returns
        -------
        array of shape (N, D), or (len(q), N, D) for several
            Numbers, and codes of levels (places in the column's `levels` in `schema_`).
        """
        if not self._mixed:
            return super().conditional_quantiles(X, q, where=where)
        check_is_fitted(self)
        values = self._check_rows(X)
        shares, wanted = check_asked(q, where, values.shape)
        found = np.full((len(shares), *values.shape), np.nan)
        for d in range(values.shape[1]):
            for at in _some_rows(wanted[:, d]):
                density = self.column_density(values[at], d)
                found[:, at, d] = [density.quantile(share) for share in shares]
        return found if np.ndim(q) else np.asarray(found[0])

    @property
    def _asked_schema(self) -> Schema:
        """What the columns hold; of models that were told that all are real, just that."""
        if self.schema_ is not None:
            return self.schema_
        names = getattr(self, "feature_names_in_", None)
        count = self.n_features_in_
        known = [f"x{d}" for d in range(1, count + 1)] if names is None else list(map(str, names))
        return Schema(
            columns=tuple(Column(name, "real") for name in known),
            frame="array" if names is None else "pyarrow",
            inputs=tuple(known),
        )

    @property
    def _explaining(self) -> AbstractTableDensity | None:
        """What gives the density of any column given all others; None if nothing does."""
        beside: AbstractTableDensity | None = getattr(self, "questions_", None)
        return self.module_ if self._mixed else beside

    def _to_explain(self, X: Any) -> Array:
        return self._check_rows(X, missing=self._explaining is not None)

    def _cell_terms(self, X: Array) -> Array:
        if self._explaining is None:
            return super()._cell_terms(X)
        found = np.full(X.shape, np.nan)
        for d in range(X.shape[1]):
            for at in _some_rows(~np.isnan(X[:, d])):
                found[at, d] = self.column_density(X[at], d).log_prob(X[at, d])
        return found

    def _expected(self, X: Any, level: float, where: ArrayLike | None) -> tuple[Any, Any]:
        if self._explaining is None:
            return super()._expected(X, level, where)
        values, schema = self._to_explain(X), self._asked_schema
        _, wanted = check_asked(level, where, values.shape)
        low, high = np.full((2, *values.shape), None, dtype=object)
        for d, column in enumerate(schema.columns):
            for at in _some_rows(wanted[:, d]):
                found = Conditional(column, self.column_density(values[at], d))
                if column.levels is not None and not column.ordered:
                    low[at, d] = high[at, d] = found.mode()
                else:
                    low[at, d], high[at, d] = found.interval(level)
        if schema.is_plain:
            return low.astype(np.float64), high.astype(np.float64)
        return low, high

    def column_density(self, values: Array, d: int) -> Any:
        """Density of column d of each row given all other cells that are observed.

        What tells whether a cell is missing is not given for the cell, nor the cell for it.

        Parameters
        ----------
        values : array of shape (N, D)
            Numbers and codes of levels, NaN where missing (`schema_` reads and writes tables).
        d : int

        Returns
        -------
        rnade.nn.column_density.ColumnDensity
        """
        table = self._explaining
        assert table is not None
        x = table.cells(values)
        given = x[..., -1] > 0
        for told, indicator in table.indicators.items():
            if d in (told, indicator):
                given[:, [told, indicator]] = False
        with torch.no_grad():
            return table.column(d, x, given)

    def sample_values(
        self,
        n_samples: int = 1,
        random_state: Any = None,
        *,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
    ) -> Array:
        """Draw rows as `sample` does, always as an array of shape (n_samples, D) of numbers."""
        if not self._mixed:
            return super().sample_values(n_samples, random_state, low=low, high=high)
        check_is_fitted(self)
        if low is not None or high is not None:
            raise ValueError(
                "low and high are for tables of complete real-valued columns. Say what no value"
                " may cross when fitting: columns={'name': Real(low=0)}."
            )
        n_samples = positive_int(n_samples, "n_samples")
        found: Array = self.module_.sample(n_samples, make_generator(random_state))
        return found

    def _as_given(self, values: Array) -> Any:
        schema = self.schema_
        if schema is None or (schema.frame == "array" and schema.is_plain):
            return values
        return schema.decode(np.nan_to_num(values), ~np.isnan(values))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        of_numbers = is_of_numbers(self)
        tags.input_tags.allow_nan = self._takes_missing or not of_numbers
        tags.input_tags.categorical = not of_numbers
        return tags


def _some_rows(wanted: NDArray[np.bool_]) -> Iterator[NDArray[np.int64]]:
    """Places of the rows that are wanted, so many at a time as are looked at together."""
    rows = np.flatnonzero(wanted)
    for start in range(0, len(rows), ASKED_ROWS):
        yield rows[start : start + ASKED_ROWS]


def check_array_like(X: Any) -> Any:
    """X as an array, or None for what the checks of arrays are to refuse."""
    if isinstance(X, str | bytes | dict) or hasattr(X, "toarray"):
        return None
    if isinstance(X, np.ma.MaskedArray):
        return X if X.ndim == 2 and X.size else None
    try:
        array = np.asarray(X)
    except ValueError:
        return None
    if array.ndim != 2 or len(array) < 2 or not array.size or array.dtype.kind not in "fiubOUST":
        return None
    return array


def _rows_that_count(X: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Rows and weights without those of weight 0, and the places of the others, if there are any.

    What is no table is left to the checks.
    """
    frame = as_frame(X)
    weights = np.asarray(sample_weight if sample_weight is not None else [1.0])
    if weights.ndim != 1 or weights.dtype.kind not in "fiub" or not (weights == 0).any():
        return X, sample_weight, None
    kept = np.flatnonzero(weights)
    is_frame = isinstance(frame, nw.DataFrame)
    rows = frame if is_frame else check_array_like(X)
    if rows is None or len(rows) != len(weights) or len(kept) < 2:
        return X, sample_weight, None
    return nw.to_native(frame[kept.tolist()]) if is_frame else rows[kept], weights[kept], kept


def _refuse_left_out(schema: Schema) -> Schema:
    name, reason = next(iter(schema.left_out.items()))
    raise ValueError(
        f"Column {name} of X cannot be used: {reason}. Leave it out of the array, or pass a data"
        " frame, whose columns have names to leave out by."
    )


def _cutter(column: Column) -> Any:
    """The function that cuts a column of this kind."""
    if column.kind == "category":
        assert column.levels is not None
        closed = set(map(type, column.levels)) == {bool}
        return partial(ColumnCells.of_levels, n_levels=len(column.levels), closed=closed)
    whole = column.kind == "integer" or (column.kind == "date" and column.unit == "day")
    return partial(
        ColumnCells.of_numbers, whole=whole, atoms=column.atoms, low=column.low, high=column.high
    )


def _say(schema: Schema) -> None:
    """Print the kinds of the columns and what is left out, on stderr."""
    for name, kind, more in schema.describe():
        print(f"{name}: {kind}" + (f" ({more})" if more else ""), file=sys.stderr)
