"""Networks that predict any column from any others, as estimators of tables train them."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor

from rnade.batch import Batch
from rnade.columns.partition import ColumnCells
from rnade.estimators.base import AbstractAutoregressiveEstimator, raise_if_diverged
from rnade.estimators.density import Split
from rnade.estimators.networks import AbstractNetworksEstimator
from rnade.estimators.parameters import estimator
from rnade.estimators.scoring import Models
from rnade.estimators.tables import ASKED_ROWS
from rnade.exceptions import TrainingWarning, warn_caller
from rnade.nn.any_order import AnyOrderModule
from rnade.nn.coarse import CoarseModule
from rnade.nn.ensemble import log_average
from rnade.nn.questions import log_densities
from rnade.nn.table import TableDensity, encoded
from rnade.training import Member, Outcome, Trained, diverged_error
from rnade.training.beside import can_share_cores
from rnade.training.em.coarse import fit_coarse
from rnade.training.folds import stop_themselves
from rnade.training.gaussians import fit_gaussians
from rnade.training.questions import cut_smoothly, plan_questions, questions_recipe
from rnade.training.table import (
    TablePlan,
    plan_table,
    table_members,
)
from rnade.typing import Array


@estimator
class QuestionParameters:
    """Whether models of real columns answer questions about any columns too.

    Parameters
    ----------
    questions : bool
        Whether to train, for tables of complete real-valued columns, a network that predicts any
        column from any others beside the model itself: it answers `conditional`, `log_density`,
        `impute` and the like, and scores rows with missing cells. It is not trained where
        `ensemble` is None or the recipe "paper". Tables with other columns need no such network.
    """

    questions: bool = True


@dataclass(eq=False)
class Beside:
    """The network that answers questions, as it is trained beside a model.

    Attributes
    ----------
    columns : list of ColumnCells
    plan : TablePlan
    members : list of Member
        It alone.
    rows, held_out : Batch
        Rows on which it trains, and those that stop it.
    result : Trained or None
        None until it has been trained.
    """

    columns: list[ColumnCells]
    plan: TablePlan
    members: list[Member]
    rows: Batch
    held_out: Batch
    result: Trained | None = None


class AbstractAnyOrderEstimator(
    QuestionParameters, AbstractNetworksEstimator, AbstractAutoregressiveEstimator
):
    """Estimator of real-valued complete tables as ever, and of others by networks.

    Attributes
    ----------
    network_ : dict
        Sizes of the networks of a table that has other than complete real columns.
    questions_ : rnade.nn.table.TableDensity or None
        Of a table of complete real columns: the networks that answer questions.
    questions_network_ : dict or None
        Their sizes.
    """

    questions_network_: dict[str, Any] | None = None
    _beside: Beside | None = None  # while it is fitted
    _stream: Any = None  # the data set in files that is being fitted, if it is streamed
    score_fitted: bool
    _kept: ClassVar[tuple[str, ...]] = ("members_", "network_", "questions_network_")
    module_: Any
    n_components: int
    n_hidden: int
    n_layers: int
    ensemble: Any

    @property
    def _effort(self) -> str:
        """How much is trained: "fast", "default" or "best"."""
        return "default"

    def _read(self, X: Any) -> None:
        self.questions_, self.questions_network_ = None, None  # of an earlier fit
        super()._read(X)

    def _check_table_settings(self) -> None:
        super()._check_table_settings()
        if not (self.ensemble is None or isinstance(self.ensemble, str)):
            raise ValueError(
                "A list of settings to average is for tables of complete real-valued columns;"
                " this one has others. Use ensemble='auto', or None for one network."
            )

    @property
    def _covers(self) -> bool:
        """Whether the models, if there are several, are to leave out all rows between them."""
        return self.score_fitted or self._scores_fitted

    def _train(
        self, training: Batch, held_out: Batch | None, seed: int, target: Any
    ) -> tuple[Any, Outcome]:
        if not self._mixed:
            return super()._train(training, held_out, seed, target)
        assert held_out is not None
        streamed, few = self._stream is not None, not stop_themselves(len(training.x))
        columns, plan, members = self.make_table_members(
            training, held_out if few or streamed else None, seed, cover=self._covers
        )
        device = training.x.device
        bank = self._trained_bank(members)
        trained = bank.results()
        good = [m for m, result in enumerate(trained) if result.diverged is None]
        results = [trained[m] for m in good]
        if not results:
            raise_if_diverged(trained)
        networks: Any = AnyOrderModule.stack([result.module for result in results])
        self.network_ = plan.settings() | {"n_networks": len(results)}
        self.members_ = [
            {
                "changes": {},
                "fold": m % plan.n_folds if plan.n_folds else None,
                "n_folds": plan.n_folds,
                "stopped_by_fold": not few and not streamed,
                "best_epoch": result.best_epoch,
                "epochs": result.history[-1]["epoch"],
                "validation": result.best_score,
                "train": result.train_at_best,
            }
            for m, result in zip(good, results, strict=True)
        ]
        best = max(results, key=lambda result: result.best_score)
        orders = self._orders(plan.n_orders, seed, len(results))
        self.network_["n_orders"] = len(orders)
        module = TableDensity(columns, networks, orders, self._indicators())
        outcome = Outcome(
            best.history, best.best_epoch, best.best_score, best.train_at_best, bank.interrupted
        )
        return module.to(device), outcome

    def _left_out_scores(self, X: Array, counted: Array, models: Models) -> Array:
        if not self._mixed:
            return super()._left_out_scores(X, counted, models)
        # Links have counted these rows, which must not predict themselves.
        groups = torch.as_tensor(models[None]).to(self.module_.device)
        parts = [
            self.module_.group_log_prob(self.module_.cells(X[at], counted[at]), groups)[0]
            for at in np.split(np.arange(len(X)), range(ASKED_ROWS, len(X), ASKED_ROWS))
        ]
        scores: Array = torch.cat(parts).double().cpu().numpy()
        return scores

    def make_table_members(
        self, training: Batch, held_out: Batch | None, seed: int, *, cover: bool = False
    ) -> tuple[list[ColumnCells], TablePlan, list[Member]]:
        """Cut the columns of training rows, plan networks and make them ready for a bank.

        Parameters
        ----------
        training : Batch
            Values, NaN where missing.
        held_out : Batch, optional
            Rows that stop the training of all networks; None for a part of the others each.
        seed : int
        cover : bool
            Whether the networks leave out all rows between them.
        """
        X, device = training.x.cpu().numpy(), training.x.device
        columns, links = self._cut_and_link(training)
        plan = plan_table(
            len(X),
            columns,
            device.type,
            n_components=self.n_components,
            n_hidden=self._if_chosen("n_hidden"),
            n_layers=self._if_chosen("n_layers"),
            # Of a streamed data set one network learns from all that passes by.
            n_networks=None if isinstance(self.ensemble, str) and self._stream is None else 1,
            cover=cover,
            effort=self._effort,
        )
        if held_out is not None and plan.n_networks < plan.n_folds:
            plan = replace(plan, n_folds=0)  # some rows would be left out by none, for nothing
        recipe = self._table_recipe(plan, len(columns))
        members = table_members(
            columns, X, training.weights, plan, recipe, seed, device, links, held_out
        )
        return columns, plan, members

    def _empty_networks(
        self, columns: Sequence[ColumnCells], shape: Mapping[str, Any], n_networks: int
    ) -> AnyOrderModule:
        return AnyOrderModule(columns, **shape, n_models=n_networks)

    # ---------------------------------------------------------------- outliers

    def _fit_coarse(
        self,
        X: Array,
        weights: Array | None,
        left_out: Sequence[NDArray[np.int64]],
        seed: int,
        device: torch.device,
    ) -> CoarseModule | None:
        if self.ensemble is None or self.recipe == "paper" or self._stream is not None:
            return None
        columns = self.schema_.columns if self._mixed and self.schema_ is not None else ()
        categories = [d for d, column in enumerate(columns) if column.kind == "category"]
        return fit_coarse(X, weights, left_out, categories, seed, device)

    # ---------------------------------------------------------------- questions to real columns

    def _plan_beside(self, split: Split) -> None:
        # Elsewhere it would only take memory meanwhile; streamed rows are paced for each training.
        if self._stream is None and can_share_cores(split.device):
            self._beside = self._make_beside(split)

    def _members_beside(self) -> list[Member]:
        return [] if self._beside is None else self._beside.members

    def _take_beside(self, results: list[Trained]) -> None:
        assert self._beside is not None
        (self._beside.result,) = results
        self._beside.members = []

    def _make_beside(self, split: Split) -> Beside | None:
        """The network that answers questions, ready to be trained, if there is to be one."""
        # One model, and the paper's recipe, are asked for by those who want just that.
        if self._mixed or not self.questions or self.ensemble is None or self.recipe == "paper":
            return None

        def batch(X: Array, weights: Array | None) -> Batch:
            w = None if weights is None else torch.as_tensor(weights, dtype=torch.float32)
            return Batch(torch.as_tensor(X), w).map(lambda t: t.to(split.device))

        trained_on = split.some(split.training)
        rows, apart = batch(*trained_on), batch(*split.some(split.held_out))
        columns = cut_smoothly(*trained_on)
        plan = plan_questions(len(rows.x), columns, split.device.type, self._effort)
        recipe = questions_recipe(plan, len(columns), self.epochs)
        members = table_members(
            columns,
            trained_on[0],
            rows.weights,
            plan,
            recipe,
            split.seed,
            split.device,
            held_out=apart,
        )
        return Beside(columns, plan, members, rows, apart)

    def _train_beside(self, split: Split, *, interrupted: bool) -> None:
        beside = self._beside
        begun = beside is not None and beside.result is not None and beside.result.best_epoch > 0
        if interrupted and not begun:
            return
        beside = beside or self._make_beside(split)
        if beside is None:
            return
        result = beside.result or self._trained_bank(beside.members, "questions").results()[0]
        if result.diverged is not None:
            warn_caller(
                "Training of the networks that answer questions failed; this model has none."
                f" {diverged_error(result.diverged)}",
                TrainingWarning,
            )
            return
        networks: Any = result.module
        columns, seed, device = beside.columns, split.seed, split.device
        orders = _random_orders(len(columns), beside.plan.n_orders, seed)
        own, apart = (
            b._replace(x=encoded(columns, b.x.cpu().numpy())[..., :-1].to(device))
            for b in (beside.rows, beside.held_out)
        )
        gaussians = fit_gaussians(columns, networks, own, apart, seed)
        module = TableDensity(columns, networks, orders, gaussians=gaussians).to(device)
        self.questions_ = module.double().requires_grad_(False)
        n_gaussians = 0 if gaussians is None else gaussians.n_components
        self.questions_network_ = beside.plan.settings() | {"n_gaussians": n_gaussians}

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

    def _changed(self, changes: dict[str, Any]) -> Self:
        other = super()._changed(changes)
        other.schema_ = copy.copy(self.schema_)
        return other


def _random_orders(n_columns: int, n_orders: int, seed: int) -> Tensor:
    generator = Generator().manual_seed(seed)
    return torch.stack([torch.randperm(n_columns, generator=generator) for _ in range(n_orders)])
