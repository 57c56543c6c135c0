"""A mixture of classes with independent columns of any kind, as a scikit-learn estimator."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Generator

from rnade.batch import Batch
from rnade.checks import number_between, unknown_name
from rnade.columns.filling import fill_cells
from rnade.columns.links import Link
from rnade.columns.partition import ColumnCells
from rnade.estimators.mixtures import AbstractSizedEstimator
from rnade.estimators.parameters import estimator
from rnade.estimators.questions import IMPUTATIONS
from rnade.estimators.settings import make_generator
from rnade.estimators.tables import AbstractTableEstimator
from rnade.nn.latent_classes import LatentClassesModule
from rnade.nn.table import encoded
from rnade.progress import training_bar
from rnade.training import Outcome
from rnade.training.em.classes import fit_classes
from rnade.typing import Array


@estimator
class MixtureOfColumns(AbstractTableEstimator, AbstractSizedEstimator):
    """Latent classes: a mixture of classes, in each of which the columns are independent.

    Takes tables of any kind, as `RNADE` does: categories, integers, dates, real numbers, missing
    cells. Each column is cut into cells (levels, or intervals with about as many rows each), and a
    class has a share of every cell, fitted by EM; a missing cell is left out. The simplest model
    of such a table that knows of dependence, and exact throughout: `column_density`, `impute` and
    `conditional_quantiles` give the density of any column given any others.

    Parameters
    ----------
    n_components : int, sequence of int, or "search"
        Classes. Of several numbers, the one that scores best on the held-out rows is taken;
        "search" is all even numbers from 2 to 50.
    prior : float
        Above 0: how many rows' worth of the column's overall distribution each class has besides
        its own rows.
    {TableParameters}
    {EMParameters}

    Attributes
    ----------
    module_ : rnade.nn.latent_classes.LatentClassesModule
        The fitted torch module.
    weights_ : array of shape (K,)
        Fraction of each class.
    n_components_ : int
        Classes of the model kept.
    search_ : list of dict
        One row for each number tried, with its held-out score.
    schema_ : rnade.columns.Schema
        What the columns hold, what was left out and why.
    history_, best_epoch_, n_features_in_, feature_names_in_, n_rows_, validation_scores_
        As of `MixtureOfGaussians`.

    References
    ----------
    Goodman (1974), Exploratory latent structure analysis using both identifiable and
    unidentifiable models.

    Examples
    --------
    >>> import pandas as pd
    >>> from rnade import MixtureOfColumns
    >>> table = pd.DataFrame({"city": ["Oslo", "Rome"] * 50, "rooms": [1, 4] * 50})
    >>> model = MixtureOfColumns(2, random_state=0).fit(table)
    >>> model.impute(pd.DataFrame({"city": ["Rome", None], "rooms": [None, 1]}))["city"].tolist()
    ['Rome', 'Oslo']
    """

    dtype = "float64"
    _cuts_all = True
    _takes_missing = True

    n_components: Any = field(default=(1, 2, 4, 8, 16, 32), kw_only=False)
    prior: float = 3.0
    n_init: int = 3

    @property
    def weights_(self) -> Array:
        """Fraction of each class, of shape (K,)."""
        fractions: Array = self.module_.log_alpha.exp().cpu().numpy()
        return fractions

    def _check_settings(self) -> None:
        super()._check_settings()
        number_between(self.prior, "prior", 0, math.inf, open_low=True)

    def _empty_table(
        self, columns: Sequence[ColumnCells], sizes: Mapping[str, Any], links: Sequence[Link]
    ) -> LatentClassesModule:
        return LatentClassesModule(columns, self.n_components_, self._indicators())

    def _empty_module(self, n_dimensions: int) -> Any:
        raise ValueError("a MixtureOfColumns has cells for its columns, and there are none")

    def _train(
        self, training: Batch, held_out: Batch | None, seed: int, target: float | None
    ) -> tuple[Any, Outcome]:
        X, w = (None if t is None else t.cpu().numpy() for t in training[:2])
        assert X is not None
        self._cells = self._cut(X, w)

        def told(rows: Batch) -> Batch:
            return rows._replace(x=encoded(self._cells, rows.x.cpu().numpy()).to(rows.x.device))

        left = None if held_out is None else told(held_out)
        return super()._train(told(training), left, seed, target)

    def _train_one(
        self,
        training: Batch,
        held_out: Batch | None,
        seed: int,
        target: float | None,
        sizes: dict[str, int],
    ) -> tuple[LatentClassesModule, Outcome]:
        module = LatentClassesModule(self._cells, **sizes, indicators=self._indicators())
        module = module.to(training.x.device, torch.float64)
        what = f"n_components={sizes['n_components']}"
        with training_bar(what, self.max_iter, shown=self.verbose > 0) as on_epoch:
            outcome = fit_classes(
                module,
                training,
                self._settings(),
                prior=self.prior,
                generator=Generator(training.x.device).manual_seed(seed),
                n_models=self.n_init,
                held_out=held_out,
                target=target,
                on_epoch=on_epoch,
            )
        return module, outcome

    def impute(self, X: Any, how: str = "mean", random_state: Any = None) -> Any:
        """Fill missing cells, each given all cells of its row that are observed.

        Parameters
        ----------
        X : data frame or array-like of shape (N, D)
        how : {"mean", "median", "likeliest", "draw"}
            "mean" gives means of numbers (rounded where they are integers) and likeliest levels;
            "median" medians, of levels by their order; "likeliest" medians of numbers and
            likeliest levels; "draw" draws all missing cells of a row together, for multiple
            imputation with several seeds.
        random_state : int, RandomState instance or None
            Of draws.

        Returns
        -------
        table like X
            Observed cells, index, types and columns that the model left out are as they were.
        """
        check_is_fitted(self)
        if how not in IMPUTATIONS:
            raise unknown_name(how, list(IMPUTATIONS), "how")
        assert self.schema_ is not None
        values = self._check_rows(X)
        filled = self.module_.impute(values, how, make_generator(random_state))
        return fill_cells(X, self.schema_, filled, np.isnan(values))
