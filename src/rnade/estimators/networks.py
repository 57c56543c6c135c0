"""What estimators share whose networks predict any column of a table from any others."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor

from rnade.batch import Batch
from rnade.columns.links import Link, find_links
from rnade.columns.partition import N_FEATURES, ColumnCells
from rnade.estimators.base import AbstractTrainedEstimator
from rnade.estimators.questions import QuestionsMixin
from rnade.estimators.tables import AbstractTableEstimator
from rnade.nn.any_order import AbstractAnyOrderModule
from rnade.nn.gaussians import Gaussians
from rnade.nn.table import TableDensity, encoded
from rnade.training import Recipe
from rnade.training.table import TablePlan, network_shape, table_recipe
from rnade.typing import Array


class AbstractNetworksEstimator(QuestionsMixin, AbstractTableEstimator, AbstractTrainedEstimator):
    """Estimator of real-valued complete tables as ever, and of others by a `TableDensity`.

    Attributes
    ----------
    network_ : dict
        Sizes of the networks of a table that has other than complete real columns.
    """

    network_: dict[str, Any]
    order: Any  # a parameter of every subclass

    def _check_table_settings(self) -> None:
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
        if self.recipe != "modern":
            raise ValueError(
                f"recipe={self.recipe!r} is for tables of complete real-valued columns; this one"
                " has others. Pass columns='real', or leave the recipe at 'modern'."
            )

    @property
    def _retrains(self) -> bool:
        # The networks of a mixed table learn from all training rows together as it is.
        return super()._retrains and not self._mixed

    def _cut_and_link(self, training: Batch) -> tuple[list[ColumnCells], list[Link]]:
        """Cut the columns of training rows (values, NaN where missing) and link them."""
        X = training.x.cpu().numpy()
        w = None if training.weights is None else training.weights.cpu().numpy()
        columns = self._cut(X, w)
        cells = encoded(columns, X)[..., :N_FEATURES].numpy()
        return columns, list(find_links(columns, X, cells, w))

    def _if_chosen(self, name: str) -> Any:
        """A parameter that the user has set, or None where it is at its default."""
        value = getattr(self, name)
        return None if value == getattr(type(self), name) else value

    @abc.abstractmethod
    def _empty_networks(
        self, columns: Sequence[ColumnCells], shape: Mapping[str, Any], n_networks: int
    ) -> AbstractAnyOrderModule:
        """Networks of the fitted shape.

        Parameters
        ----------
        columns : sequence of ColumnCells
        shape : mapping
            What each is made with, and links.
        n_networks : int
        """

    def _empty_table(
        self, columns: Sequence[ColumnCells], sizes: Mapping[str, Any], links: Sequence[Link]
    ) -> TableDensity:
        shape = {**network_shape(sizes), "links": links}
        networks = self._empty_networks(columns, shape, sizes["n_networks"])
        orders = torch.zeros(sizes["n_orders"], len(columns), dtype=torch.int64)
        K = sizes.get("n_gaussians", 0)
        gaussians = Gaussians(len(columns), K) if K else None
        return TableDensity(columns, networks, orders, self._indicators(), gaussians)

    def _table_recipe(self, plan: TablePlan, n_columns: int) -> Recipe:
        """The recipe of a table's networks with the settings given as parameters.

        Parameters
        ----------
        plan : TablePlan
        n_columns : int
            That one network predicts.
        """
        return table_recipe(
            plan,
            n_columns,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            batch_size=self.batch_size,
            epochs=self.epochs,
            batches_per_epoch=self.batches_per_epoch,
            patience=self.patience,
        )

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
        return super().sample_values(n_samples, random_state, low=low, high=high)
