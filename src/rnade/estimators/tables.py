"""Tables with columns of any kind: how an estimator reads, fits and gives them back."""

import copy
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self

import narwhals.stable.v1 as nw
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor

from rnade.batch import Batch
from rnade.checks import positive_int
from rnade.columns import Column, Resolution, Schema, Standardiser
from rnade.columns.links import Link, find_links
from rnade.columns.partition import N_FEATURES, ColumnCells
from rnade.columns.sources import as_frame
from rnade.estimators.base import AbstractAutoregressiveEstimator, raise_if_diverged
from rnade.estimators.inputs import check_rows, some
from rnade.estimators.parameters import estimator
from rnade.estimators.questions import QuestionsMixin
from rnade.estimators.settings import make_rng
from rnade.exceptions import SpikeWarning, TableWarning, TrainingWarning, warn_caller
from rnade.nn.any_order import AnyOrderModule
from rnade.nn.ensemble import log_average
from rnade.nn.questions import log_densities
from rnade.nn.table import TableDensity, encoded
from rnade.training import Member, Outcome, diverged_error
from rnade.training.questions import cut_smoothly, plan_questions, questions_recipe
from rnade.training.table import (
    MOST_NETWORKS,
    TablePlan,
    cut_columns,
    plan_table,
    table_members,
    table_recipe,
)
from rnade.typing import Array

# Rows below which each network's own part would be too few to stop its training.
FEWEST_ROWS_TO_PART = 5 * MOST_NETWORKS
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
    questions : bool
        Whether to train, for tables of complete real-valued columns, a network that predicts any
        column from any others beside the model itself: it answers `conditional`, `log_density`,
        `impute` and the like, and scores rows with missing cells. It is not trained where
        `ensemble` is None or the recipe "paper". Tables with other columns need no such network.
    """

    columns: Any = "auto"
    missing: str = "ignore"
    na: Sequence[Any] = ()
    questions: bool = True


class AbstractTableEstimator(QuestionsMixin, TableParameters, AbstractAutoregressiveEstimator):
    """Estimator that takes a table as it is: real-valued complete ones as ever, others in cells.

    Attributes
    ----------
    schema_ : Schema or None
        What the columns hold; None with ``columns="real"``.
    network_ : dict
        Sizes of the networks of a table that has other than complete real columns.
    questions_ : rnade.nn.table.TableDensity or None
        Of a table of complete real columns: the networks that answer questions.
    questions_network_ : dict or None
        Their sizes.
    """

    schema_: Schema | None = None
    questions_network_: dict[str, Any] | None = None
    _kept = ("members_", "network_", "questions_network_")
    network_: dict[str, Any]
    module_: Any
    n_components: int
    n_hidden: int
    n_layers: int
    ensemble: Any

    @property
    def _mixed(self) -> bool:
        """Whether the fitted table has anything but complete columns of real numbers."""
        return self.schema_ is not None and not self.schema_.is_plain

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
        if not (isinstance(self.columns, str) and self.columns == "real"):
            X, sample_weight = _rows_that_count(X, sample_weight)
        self._read(X)
        self.questions_, self.questions_network_ = None, None  # of an earlier fit
        return super().fit(X, y, sample_weight)

    def _read(self, X: Any) -> None:
        """Find out what the columns of a table hold, and say it."""
        self.schema_ = None
        if not (isinstance(self.columns, str) and self.columns == "real"):
            self.schema_ = schema = self._infer(X)
            if schema is not None and self._mixed:
                self._check_mixed_settings()
                if self.verbose:
                    _say(schema)
                for text in schema.suspicions:
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
            return None if complete else _refuse_left_out(schema)
        return schema

    def _check_rows(self, X: Any, *, fitting: bool = False, missing: bool = False) -> Array:
        schema = self.schema_
        if schema is None:
            return super()._check_rows(X, fitting=fitting, missing=missing)
        frame = nw.from_native(X, pass_through=True)
        if not self._mixed:
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

    def _check_mixed_settings(self) -> None:
        assert self.schema_ is not None
        D = sum(column.indicates is None for column in self.schema_.columns)
        named = isinstance(self.order, str)
        if (named and self.order not in ("auto", "raster", "random")) or (
            not named and sorted(np.asarray(self.order).tolist()) != list(range(D))
        ):
            raise ValueError(
                f"order must be 'auto', 'raster', 'random' or a permutation of 0 to {D - 1};"
                f" got {self.order!r}."
            )
        if not (self.ensemble is None or isinstance(self.ensemble, str)):
            raise ValueError(
                "A list of settings to average is for tables of complete real-valued columns;"
                " this one has others. Use ensemble='auto', or None for one network."
            )
        if self.recipe != "modern":
            raise ValueError(
                f"recipe={self.recipe!r} is for tables of complete real-valued columns; this one"
                " has others. Pass columns='real', or leave the recipe at 'modern'."
            )

    # ---------------------------------------------------------------- fitting

    @property
    def _retrains(self) -> bool:
        # The networks of a mixed table learn from all training rows together as it is.
        return self.retrain and not self._mixed

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
        return Batch(torch.as_tensor(X), w).map(lambda t: t.to(device))

    def _train(
        self, training: Batch, held_out: Batch | None, seed: int, target: Any
    ) -> tuple[Any, Outcome]:
        if not self._mixed:
            return super()._train(training, held_out, seed, target)
        assert held_out is not None
        few = len(training.x) < FEWEST_ROWS_TO_PART
        columns, plan, members = self.make_table_members(training, held_out if few else None, seed)
        device = training.x.device
        bank = self._trained_bank(members)
        trained = bank.results()
        results = [result for result in trained if result.diverged is None]
        if not results:
            raise_if_diverged(trained)
        networks: Any = AnyOrderModule.stack([result.module for result in results])
        self.network_ = plan.settings() | {"n_networks": len(results)}
        self.members_ = [
            {
                "changes": {},
                "fold": None if few else i,
                "best_epoch": result.best_epoch,
                "epochs": result.history[-1]["epoch"],
                "validation": result.best_score,
                "train": result.train_at_best,
            }
            for i, result in enumerate(results)
        ]
        best = max(results, key=lambda result: result.best_score)
        orders = self._orders(plan.n_orders, seed, len(results))
        self.network_["n_orders"] = len(orders)
        module = TableDensity(columns, networks, orders, self._indicators())
        outcome = Outcome(
            best.history, best.best_epoch, best.best_score, best.train_at_best, bank.interrupted
        )
        return module.to(device), outcome

    def make_table_members(
        self, training: Batch, held_out: Batch | None, seed: int
    ) -> tuple[list[ColumnCells], TablePlan, list[Member]]:
        """Cut the columns of training rows, plan networks and make them ready for a bank.

        Parameters
        ----------
        training : Batch
            Values, NaN where missing.
        held_out : Batch, optional
            Rows that stop the training of all networks; None for a part of the others each.
        seed : int
        """
        assert self.schema_ is not None
        X, device = training.x.cpu().numpy(), training.x.device
        w = None if training.weights is None else training.weights.cpu().numpy()
        columns = cut_columns([_cutter(column) for column in self.schema_.columns], X, w)
        plan = plan_table(
            len(X),
            columns,
            device.type,
            n_components=self.n_components,
            n_hidden=None if self.n_hidden == type(self).n_hidden else self.n_hidden,
            n_layers=None if self.n_layers == type(self).n_layers else self.n_layers,
            n_networks=None if isinstance(self.ensemble, str) else 1,
        )
        recipe = table_recipe(
            plan,
            len(columns),
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            batch_size=self.batch_size,
            epochs=self.epochs,
            batches_per_epoch=self.batches_per_epoch,
            patience=self.patience,
        )
        cells = encoded(columns, X)[..., :N_FEATURES].numpy()
        links = find_links(columns, X, cells, w)
        members = table_members(
            columns, X, training.weights, plan, recipe, seed, device, links, held_out
        )
        return columns, plan, members

    def _orders(self, n_orders: int, seed: int, n_networks: int) -> Tensor:
        """Orders of the columns; indicators of missing cells come before what they tell of."""
        assert self.schema_ is not None
        told = [d for d, column in enumerate(self.schema_.columns) if column.indicates is None]
        rest = torch.arange(len(told), len(self.schema_.columns))
        generator = Generator().manual_seed(seed)

        def shuffled(places: Tensor) -> Tensor:
            return places[torch.randperm(len(places), generator=generator)]

        if isinstance(self.order, str) and self.order != "raster":
            n_orders = n_orders if self.order == "auto" else n_networks
            own = torch.tensor(told, dtype=torch.int64)
            orders = [torch.cat([shuffled(rest), shuffled(own)]) for _ in range(n_orders)]
            return torch.stack(orders)
        given = told if isinstance(self.order, str) else [int(d) for d in self.order]
        order = torch.cat([rest, torch.tensor(given, dtype=torch.int64)])
        return order.repeat(n_networks, 1)

    def _indicators(self) -> dict[int, int]:
        """For columns whose missing cells are modelled, the place of what tells them."""
        columns = () if self.schema_ is None else self.schema_.columns
        places = {column.name: d for d, column in enumerate(columns)}
        told = {places[c.name]: c.indicates for c in columns if c.indicates}
        return {places[name]: d for d, name in told.items() if name in places}

    def _empty_table(
        self, columns: Sequence[ColumnCells], sizes: Mapping[str, Any], links: Sequence[Link]
    ) -> TableDensity:
        """A density of the fitted shape, for the tensors of a model file."""
        networks = AnyOrderModule(
            columns,
            sizes["n_hidden"],
            n_layers=sizes["n_layers"],
            n_components=sizes["n_components"],
            dropout=sizes["dropout"],
            links=links,
            n_models=sizes["n_networks"],
        )
        orders = torch.zeros(sizes["n_orders"], len(columns), dtype=torch.int64)
        return TableDensity(columns, networks, orders, self._indicators())

    # ---------------------------------------------------------------- questions to real columns

    def _train_beside(
        self,
        X: Array,
        weights: Array | None,
        training: NDArray[np.int64],
        held_out: NDArray[np.int64],
        seed: int,
        device: torch.device,
    ) -> None:
        # One model, and the paper's recipe, are asked for by those who want just that.
        if self._mixed or not self.questions or self.ensemble is None or self.recipe == "paper":
            return

        def some(at: NDArray[np.int64]) -> Batch:
            w = None if weights is None else torch.as_tensor(weights[at], dtype=torch.float32)
            return Batch(torch.as_tensor(X[at]), w).map(lambda t: t.to(device))

        rows = some(training)
        columns = cut_smoothly(X[training], None if weights is None else weights[training])
        plan = plan_questions(len(rows.x), columns, device.type)
        recipe = questions_recipe(plan, len(columns), self.epochs)
        members = table_members(
            columns,
            X[training],
            rows.weights,
            plan,
            recipe,
            seed,
            device,
            held_out=some(held_out),
        )
        result = self._trained_bank(members, "questions").results()[0]
        if result.diverged is not None:
            warn_caller(
                "Training of the networks that answer questions failed; this model has none."
                f" {diverged_error(result.diverged)}",
                TrainingWarning,
            )
            return
        networks: Any = result.module
        orders = _random_orders(len(columns), plan.n_orders, seed)
        module = TableDensity(columns, networks, orders).to(device)
        self.questions_ = module.double().requires_grad_(False)
        self.questions_network_ = plan.settings()

    # ---------------------------------------------------------------- asking

    def score_samples(self, X: Any) -> Array:
        """Log density of what is observed of each row, in nats and in the data's own units.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
            Rows with missing cells, of a model fitted to complete real-valued columns, are scored
            by the networks that answer questions (`questions`), others by the model itself.

        Returns
        -------
        array of shape (N,)
        """
        check_is_fitted(self)
        if self._mixed or self.questions_ is None:
            return super().score_samples(X)
        values = self._check_rows(X, missing=True)
        gaps = np.isnan(values).any(axis=1)
        if not gaps.any():
            return self._score(values)
        scores, none = np.empty(len(values)), np.zeros(values.shape[1], dtype=bool)
        scores[gaps] = log_average(log_densities(self.questions_, values[gaps], none)).numpy()
        if not gaps.all():
            scores[~gaps] = self._score(values[~gaps])
        return scores

    def _standardised(self, module: Any, X: Array) -> Tensor:
        return module.cells(X) if self._mixed else super()._standardised(module, X)

    def pvalue(self, X: Any) -> Array:
        """Share of held-out rows at most as likely as each row: small for outliers.

        As of all models; 1 for a row with nothing observed, of which there is nothing to say.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)

        Returns
        -------
        array of shape (N,)
        """
        p_values = super().pvalue(X)
        if self._mixed:
            p_values[np.isnan(self._check_rows(X)).all(1)] = 1.0
        return p_values

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
        seed = int(make_rng(random_state).randint(2**31 - 1))
        found: Array = self.module_.pit(values, Generator().manual_seed(seed))
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
        shares = np.atleast_1d(np.asarray(q, dtype=np.float64))
        wanted = np.ones(values.shape, bool) if where is None else np.asarray(where)
        if wanted.dtype != bool or wanted.shape != values.shape or np.ndim(q) > 1:
            raise ValueError(
                f"Expected `where` to be an array of bool of shape {values.shape} and q to be a"
                f" number or a list of them; got {wanted.dtype} of shape {wanted.shape} and {q!r}."
            )
        found = np.full((len(shares), *values.shape), np.nan)
        for d in range(values.shape[1]):
            rows = np.flatnonzero(wanted[:, d])
            for at in np.split(rows, range(ASKED_ROWS, len(rows), ASKED_ROWS)):
                if len(at):
                    density = self.column_density(values[at], d)
                    found[:, at, d] = [density.quantile(share) for share in shares]
        return found if np.ndim(q) else np.asarray(found[0])

    def column_density(self, values: Array, d: int) -> Any:
        """Density of column d of each row given all other cells that are observed.

        Parameters
        ----------
        values : array of shape (N, D)
            Numbers and codes of levels, NaN where missing (`schema_` reads and writes tables).
        d : int

        Returns
        -------
        rnade.nn.column_density.ColumnDensity
        """
        x = self.module_.cells(values)
        with torch.no_grad():
            return self.module_.column(d, x, x[..., -1] > 0)

    def sample(
        self,
        n_samples: int = 1,
        random_state: Any = None,
        *,
        given: Any = None,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
    ) -> Any:
        """Draw rows from the model, exactly.

        Parameters
        ----------
        n_samples : int
            Rows; with a table as `given`, draws for each of its rows.
        random_state : int, RandomState instance or None
        given : dict, data frame or array-like, optional
            Values of some columns by name, a tuple (low, high) for a range, both ends included:
            all rows have them. Draws given several ranges are weighted, and kept by their
            weights; all others are exact. Or a table with missing cells: these are drawn, given
            the others of their row.
        low, high : array-like of shape (D,), optional
            Smallest and largest value of each column, in the data's units; infinite where a
            column is free. Each conditional is truncated to its range, without rejection. For
            tables of complete real-valued columns, without `given`.

        Returns
        -------
        array of shape (n_samples, D), or a frame of the kind that was fitted
        """
        return self._as_given(
            self.sample_values(n_samples, random_state, given=given, low=low, high=high)
        )

    def sample_values(
        self,
        n_samples: int = 1,
        random_state: Any = None,
        *,
        given: Any = None,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
    ) -> Array:
        """Draw rows as `sample` does, always as an array of shape (n_samples, D) of numbers."""
        if given is not None:
            if low is not None or high is not None:
                raise ValueError(
                    "low and high do not go with given: give a range there, as in"
                    " given={'name': (0, 1)}."
                )
            return self._sample_given(n_samples, random_state, given)
        if not self._mixed:
            return super().sample_values(n_samples, random_state, low=low, high=high)
        check_is_fitted(self)
        if low is not None or high is not None:
            raise ValueError(
                "low and high are for tables of complete real-valued columns. Say what no value"
                " may cross when fitting: columns={'name': Real(low=0)}."
            )
        seed = int(make_rng(random_state).randint(2**31 - 1))
        n_samples = positive_int(n_samples, "n_samples")
        found: Array = self.module_.sample(n_samples, Generator().manual_seed(seed))
        return found

    def _as_given(self, values: Array) -> Any:
        schema = self.schema_
        if schema is None or (schema.frame == "array" and schema.is_plain):
            return values
        return schema.decode(np.nan_to_num(values), ~np.isnan(values))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags

    def _changed(self, changes: dict[str, Any]) -> Self:
        other = super()._changed(changes)
        other.schema_ = copy.copy(self.schema_)
        return other


def _random_orders(n_columns: int, n_orders: int, seed: int) -> Tensor:
    generator = Generator().manual_seed(seed)
    return torch.stack([torch.randperm(n_columns, generator=generator) for _ in range(n_orders)])


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


def _rows_that_count(X: Any, sample_weight: Any) -> tuple[Any, Any]:
    """Rows and weights without those of weight 0; what is no table is left to the checks."""
    frame = as_frame(X)
    weights = np.asarray(sample_weight if sample_weight is not None else [1.0])
    if weights.ndim != 1 or weights.dtype.kind not in "fiub" or not (weights == 0).any():
        return X, sample_weight
    kept = np.flatnonzero(weights)
    is_frame = isinstance(frame, nw.DataFrame)
    rows = frame if is_frame else check_array_like(X)
    if rows is None or len(rows) != len(weights) or len(kept) < 2:
        return X, sample_weight
    return nw.to_native(frame[kept.tolist()]) if is_frame else rows[kept], weights[kept]


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
