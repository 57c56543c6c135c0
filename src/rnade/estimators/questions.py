"""Questions to a fitted table: any columns given any others."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Generator

from rnade.checks import positive_int, unknown_name
from rnade.columns import Schema
from rnade.columns.filling import fill_cells
from rnade.estimators.conditional import Conditional
from rnade.estimators.exploration import explore
from rnade.estimators.given import Given, find_column, read_given
from rnade.estimators.settings import make_generator
from rnade.explore import Exploration
from rnade.nn.ensemble import log_average
from rnade.nn.questions import (
    column_given,
    draw,
    draw_in_ranges,
    fill,
    log_densities,
    log_probability,
    spread_over_ranges,
)
from rnade.nn.table import TableDensity
from rnade.typing import Array

IMPUTATIONS = ("mean", "median", "likeliest", "draw")
NO_NETWORKS = (
    "This model was fitted without the networks that answer questions about some columns given"
    " others. Fit it again with questions=True, recipe='modern' and ensemble='auto' (their"
    " defaults)."
)


class QuestionsMixin:
    """Conditional densities, distributions and draws, imputation and prediction.

    For estimators that have a `TableDensity`: as `module_`, or beside it as `questions_`.
    """

    schema_: Schema | None
    questions_: TableDensity | None = None
    module_: Any
    _mixed: Any  # whether `module_` is a `TableDensity` itself

    # Why a fitted model does not answer, and what to do.
    _without_networks: ClassVar[str] = NO_NETWORKS

    # ---------------------------------------------------------------- what answers

    @property
    def _answering(self) -> TableDensity:
        """The networks that predict any column from any others, or an error that says why not."""
        check_is_fitted(self)
        networks: TableDensity | None = self.module_ if self._mixed else self.questions_
        if networks is None:
            raise ValueError(self._without_networks)
        return networks

    @property
    def answers_questions(self) -> bool:
        """Whether the fitted model can be asked about some columns given others."""
        check_is_fitted(self)
        return bool(self._mixed) or self.questions_ is not None

    @property
    def _drawing(self) -> TableDensity:
        """A copy in the precision of training, which is enough for draws.

        Values that links copy from other columns need more digits than that.
        """
        table = self._answering
        return table if any(table.networks.links) else copy.deepcopy(table).float()

    _asked_schema: Any  # what the columns hold

    def _read_some(self, X: Any) -> Array:
        """A table with some of the columns as numbers; NaN where a cell is missing or absent."""
        values, seen = self._asked_schema.encode(X, partial=True)
        return np.where(seen, values, np.nan)

    def _read_given(self, given: Mapping[Any, Any], *, least: int = 1) -> Given:
        return read_given(self._asked_schema, self._answering.columns, given, least=least)

    # ---------------------------------------------------------------- densities

    def log_density(
        self,
        X: Any,
        given: Iterable[Any] | Mapping[Any, Any] | None = None,
        *,
        return_spread: bool = False,
    ) -> Any:
        """Log density of some columns of each row given others, in nats.

        The density of several columns is averaged over the model's orders, each with the given
        columns first.

        Parameters
        ----------
        X : data frame or array-like
            What is observed of it and not given is what the density is of; columns may be absent
            from a frame.
        given : list of names, dict, bool array of shape (N, D), or None
            Columns of X that are given; or values that are given for all rows, by name, where a
            tuple (low, high) is a range, both ends included; or which cells are given, in the
            model's order of columns. X need not have columns of a dict, and what it has there is
            ignored. With one range the probability of the range is computed exactly; of several
            it is estimated by draws.
        return_spread : bool
            Whether to give the standard deviation over orders too: how much the answer depends
            on the order.

        Returns
        -------
        array of shape (N,), or two of them
            0 for rows with nothing observed that is not given.
        """
        values = self._read_some(X)
        ranges: Mapping[int, Any] = {}
        known: Any = np.zeros(values.shape[1], dtype=bool)
        if isinstance(given, Mapping):
            fixed = self._read_given(given)
            ranges = fixed.ranges
            known[sorted(fixed.columns)] = True
            values[:, known] = fixed.values[known]
        elif isinstance(given, np.ndarray) and given.dtype == bool:
            known = _cells_of(given, values)
        else:
            known[[find_column(self._asked_schema, name) for name in _listed(given)]] = True
        along = log_densities(self._answering, values, known).numpy()
        if ranges:
            along = along + self._log_probability(values, ranges)
            along = along - self._log_probability(np.where(known, values, np.nan)[:1], ranges)
        found = log_average(torch.as_tensor(along)).numpy()
        return (found, along.std(0)) if return_spread else found

    def _log_probability(self, values: Array, ranges: Mapping[int, Any]) -> Array:
        return log_probability(self._answering, values, ranges, Generator().manual_seed(0))

    # ---------------------------------------------------------------- one column

    def conditional(self, column: Any, given: Any = None) -> Conditional:
        """Distribution of one column given others.

        Each is computed in one pass of the networks, and depends on no order of the columns.

        Parameters
        ----------
        column : str
            Its name; of a model fitted to an array also its position.
        given : dict, data frame or array-like, optional
            Values of other columns by name, a tuple (low, high) for a range, both ends included;
            all other columns are unknown, and so is everything with None. Or a table, with missing
            cells where nothing is known: a distribution for each row. The column itself is not
            looked at there.

        Returns
        -------
        Conditional
            With `method` "exact"; or "weighted" where ranges are given that have too many values
            to look at each, and which are therefore stood for by draws.
        """
        table, schema = self._answering, self._asked_schema
        d = find_column(schema, column)
        if given is not None and not isinstance(given, Mapping):
            return Conditional(schema.columns[d], column_given(table, d, self._read_some(given)))
        known = self._read_given({}, least=0) if given is None else self._read_given(given)
        name = schema.columns[d].name
        if d in known.columns and name in {str(key) for key in given or ()}:
            raise ValueError(
                f"Column {name!r} is asked for and given at once. Leave it out of given."
            )
        if not known.ranges:
            density = column_given(table, d, known.values[None])
            return Conditional(schema.columns[d], density)
        rows, weights, exact = spread_over_ranges(
            table, known.values, known.ranges, Generator().manual_seed(0)
        )
        method = "exact" if exact else "weighted"
        return Conditional(schema.columns[d], column_given(table, d, rows), weights, method)

    # ---------------------------------------------------------------- draws

    def _sample_given(self, n_samples: int, random_state: Any, given: Any) -> Array:
        table = self._drawing
        n = positive_int(n_samples, "n_samples")
        generator = make_generator(random_state)
        if not isinstance(given, Mapping):
            values = np.repeat(self._read_some(given), n, axis=0)
            return draw(table, values, generator, complete=True)
        known = self._read_given(given)
        values = np.tile(known.values, (n, 1))
        if known.ranges:
            values = draw_in_ranges(table, known.values, n, known.ranges, generator)
        return draw(table, values, generator, complete=False)

    # ---------------------------------------------------------------- missing cells

    def impute(
        self,
        X: Any,
        how: str = "mean",
        n_draws: int | None = None,
        random_state: Any = None,
    ) -> Any:
        """Fill missing cells, each given all cells of its row that are observed.

        Parameters
        ----------
        X : data frame or array-like of shape (N, D)
        how : {"mean", "median", "likeliest", "draw"}
            "mean" gives means of numbers (rounded where they are integers) and likeliest levels;
            "median" medians, of levels by their order; "likeliest" medians of numbers and
            likeliest levels; "draw" draws all missing cells of a row together.
        n_draws : int, optional
            With ``how="draw"``, how many tables to give, for multiple imputation.
        random_state : int, RandomState instance or None
            Of draws.

        Returns
        -------
        table like X, or a list of `n_draws` of them
            Observed cells, index, types and columns that the model left out are as they were.
        """
        table = self._drawing if how == "draw" else self._answering
        if how not in IMPUTATIONS:
            raise unknown_name(how, list(IMPUTATIONS), "how")
        if n_draws is not None and how != "draw":
            raise ValueError(
                f"n_draws is for how='draw', which gives different tables; got how={how!r}."
            )
        schema = self._asked_schema
        values, seen = schema.encode(X)
        values = np.where(seen, values, np.nan)
        generator = make_generator(random_state)

        def filled() -> Any:
            found = values
            if not seen.all():
                found = (
                    draw(table, values, generator, complete=True)
                    if how == "draw"
                    else fill(table, values, how)
                )
            return fill_cells(X, schema, found, ~seen)

        if n_draws is None:
            return filled()
        return [filled() for _ in range(positive_int(n_draws, "n_draws"))]

    # ---------------------------------------------------------------- prediction

    def as_predictor(self, column: Any) -> Any:
        """Give the fitted model as a scikit-learn classifier or regressor of one column.

        Parameters
        ----------
        column : str
            Its name; of a model fitted to an array also its position. Levels make a classifier,
            numbers a regressor.

        Returns
        -------
        rnade.estimators.predictor.ColumnClassifier or ColumnRegressor
            Fitted. It takes tables with or without the column, and missing cells.
        """
        from rnade.estimators.predictor import make_predictor

        if not self.answers_questions:
            raise ValueError(self._without_networks)
        d = find_column(self._asked_schema, column)
        return make_predictor(self, self._asked_schema.columns[d])

    # ---------------------------------------------------------------- a page to explore

    def explore(self, rows: Any = None, *, title: str | None = None) -> Exploration:
        """Make one self-contained page on which the model can be explored in a browser.

        Set some columns, and every other one shows its exact distribution given these; with the
        log density and p-value of what is set, draws, and two columns together. The page computes
        all of it by itself, offline.

        Parameters
        ----------
        rows : data frame or array-like of shape (N, D), optional
            Rows to put into the page, to start from: whoever has the page can read them. By
            default it has none.
        title : str, optional
            By default the name of the file that was fitted, or of the model's class.

        Returns
        -------
        rnade.explore.Exploration
            Its `save(path)` writes the page; a notebook shows it.
        """
        return explore(self, rows, title)


def _cells_of(given: Any, values: Array) -> Any:
    """Which cells are given, checked."""
    if given.shape != values.shape:
        raise ValueError(
            f"Expected given to be an array of bool of shape {values.shape}; got {given.shape}."
        )
    return given


def _listed(given: Iterable[Any] | None) -> list[Any]:
    """Names of given columns; none is none."""
    if given is None:
        return []
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(
            "Expected given to be a list of column names, a dict of values by name, or None; got"
            f" {given!r}."
        )
    names = list(given)
    if not names:
        raise ValueError("given is empty: name at least one column, or pass None.")
    return names
