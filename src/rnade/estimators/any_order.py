"""Networks that predict any column from any others, as estimators of tables train them."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Generator, Tensor

from rnade.batch import Batch
from rnade.columns.partition import ColumnCells
from rnade.estimators.base import AbstractAutoregressiveEstimator, raise_if_diverged
from rnade.estimators.tables import AbstractTableEstimator
from rnade.nn.any_order import AnyOrderModule
from rnade.nn.table import TableDensity
from rnade.training import Member, Outcome
from rnade.training.table import (
    MOST_NETWORKS,
    TablePlan,
    plan_table,
    table_members,
    table_recipe,
)

# Rows below which each network's own part would be too few to stop its training.
FEWEST_ROWS_TO_PART = 5 * MOST_NETWORKS


class AbstractAnyOrderEstimator(AbstractTableEstimator, AbstractAutoregressiveEstimator):
    """Estimator of real-valued complete tables as ever, and of others by networks.

    Attributes
    ----------
    network_ : dict
        Sizes of the networks of a table that has other than complete real columns.
    """

    _kept = ("members_", "network_")
    network_: dict[str, Any]
    module_: Any
    n_components: int
    n_hidden: int
    n_layers: int
    ensemble: Any

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

    @property
    def _retrains(self) -> bool:
        # The networks of a mixed table learn from all training rows together as it is.
        return self.retrain and not self._mixed

    def _train(
        self, training: Batch, held_out: Batch | None, seed: int, target: Any
    ) -> tuple[Any, Outcome]:
        if not self._mixed:
            return super()._train(training, held_out, seed, target)
        assert held_out is not None
        few = len(training.x) < FEWEST_ROWS_TO_PART
        columns, plan, members = self.make_table_members(training, held_out if few else None, seed)
        device = training.x.device
        bank = self._trained_bank(members, first=True)
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
        orders = self._orders(plan.n_orders, seed)
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
        X, device = training.x.cpu().numpy(), training.x.device
        w = None if training.weights is None else training.weights.cpu().numpy()
        columns = self._cut(X, w)
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
        members = table_members(
            columns, X, training.weights, plan, recipe, seed, device, held_out=held_out
        )
        return columns, plan, members

    def _orders(self, n_orders: int, seed: int) -> Tensor:
        """Orders of the columns; indicators of missing cells come before what they tell of."""
        assert self.schema_ is not None
        told = [d for d, column in enumerate(self.schema_.columns) if column.indicates is None]
        rest = torch.arange(len(told), len(self.schema_.columns))
        generator = Generator().manual_seed(seed)

        def shuffled(places: Tensor) -> Tensor:
            return places[torch.randperm(len(places), generator=generator)]

        if isinstance(self.order, str) and self.order != "raster":
            n_orders = n_orders if self.order == "auto" else self.network_["n_networks"]
            own = torch.tensor(told)
            orders = [torch.cat([shuffled(rest), shuffled(own)]) for _ in range(n_orders)]
            return torch.stack(orders)
        given = told if isinstance(self.order, str) else [int(d) for d in self.order]
        order = torch.cat([rest, torch.tensor(given, dtype=torch.int64)])
        return order.repeat(self.network_["n_networks"], 1)

    def _empty_table(self, columns: Sequence[ColumnCells]) -> TableDensity:
        """A density of the fitted shape, for the tensors of a model file."""
        sizes: Mapping[str, Any] = self.network_
        networks = AnyOrderModule(
            columns,
            sizes["n_hidden"],
            n_layers=sizes["n_layers"],
            n_components=sizes["n_components"],
            dropout=sizes["dropout"],
            n_models=sizes["n_networks"],
        )
        orders = torch.zeros(sizes["n_orders"], len(columns), dtype=torch.int64)
        return TableDensity(columns, networks, orders, self._indicators())

    def _changed(self, changes: dict[str, Any]) -> Self:
        other = super()._changed(changes)
        other.schema_ = copy.copy(self.schema_)
        return other
