"""FVBN as a scikit-learn estimator."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.model_selection import ParameterGrid
from torch import Generator

from rnade.batch import Batch
from rnade.checks import positive_int, unknown_name
from rnade.columns.partition import ColumnCells
from rnade.estimators.base import raise_if_diverged
from rnade.estimators.kinds import GAUSSIANS
from rnade.estimators.networks import AbstractNetworksEstimator
from rnade.estimators.parameters import RoundingParameters, estimator
from rnade.estimators.settings import changes_of_family, noise_width, scale_floors
from rnade.families import make_family
from rnade.nn import FVBNModule
from rnade.nn.columns_apart import ColumnNetworks
from rnade.nn.orders import make_order
from rnade.nn.table import TableDensity
from rnade.training import (
    PAPER_GRID,
    HistoryRow,
    Member,
    Outcome,
    Recipe,
    ShuffledRows,
    Trained,
)
from rnade.training.columns_apart import columns_member, plan_columns

# In which the settings of a search may differ.
_SIZES = ("n_hidden", "n_components")
_SEARCHED = (*_SIZES, "learning_rate", "weight_decay", "momentum")


@estimator
class FVBN(RoundingParameters, AbstractNetworksEstimator):
    """Fully visible Bayesian network: a separate mixture density network for each column.

    The same conditionals as RNADE's, but without shared weights: cost and parameters grow with
    the square of the number of columns. All networks of all settings train as one bank, and for
    each column the setting and the epoch that score best on the held-out rows are kept.

    Tables with other than complete real-valued columns (categories, integers, dates, single values
    that many rows share, missing cells) have a network for each column that predicts it from any
    of the others, and densities are averaged over orders of the columns, as of `RNADE`. Such a
    model answers questions too (`conditional`, `log_density`, `impute`, `sample` with `given`).
    There `n_hidden`, at its default, is chosen by the table; `n_hidden` and `n_components` are one
    number each; `search`, `recipe` and `retrain` must be left at their defaults; and `family`,
    `activation`, `sigma_floor`, `dequantize`, `momentum` and `dtype` have no effect.

    Parameters
    ----------
    family : {"gaussian", "laplace"}
        Components of each conditional mixture.
    n_components : int or list of int
        Components in each conditional mixture; of a list, the best for each column is taken.
    n_hidden : int or list of int
        Hidden units of each network; of a list, the best for each column is taken.
    activation : {"relu", "sigmoid"}
        Hidden units' non-linearity.
    order : {"auto", "raster", "random"} or permutation of the columns
        Which column comes first, second and so on. "auto" takes complete real-valued columns as
        they are ("raster"), and averages over random orders of other tables.
    search : "auto", "paper", None or list of dict
        Settings of which the best for each column is taken. "auto" tries weak and strong weight
        decay (with recipe "paper", or where learning_rate or weight_decay is given, it tries
        nothing), "paper" the paper's grid of 96 components, rates and decays. Or a list of
        settings, each a dict of n_hidden, n_components, learning_rate, weight_decay or momentum.
    {TableParameters}
    {RoundingParameters}
    {TrainingParameters}

    Attributes
    ----------
    module_ : rnade.nn.FVBNModule, or rnade.nn.table.TableDensity of other tables
        The fitted torch module, in float64, on standardised columns.
    chosen_ : list of dict
        For each column, the settings and the epoch that were kept, and their score on the
        held-out rows (of the standardised column).
    history_ : list of dict
        One row an epoch, as of `RNADE`, of the networks that were kept.
    retrain_history_ : list of dict
        The same of the second training, with `retrain`.
    best_epoch_ : int
        The latest epoch of which a network's weights were kept.
    schema_, network_
    standardiser_, resolution_, calibration_, validation_scores_, n_rows_, fit_seconds_
        As of `RNADE`.

    References
    ----------
    Uria, Murray and Larochelle (2013), section 4.1.

    Examples
    --------
    >>> import numpy as np
    >>> from rnade import FVBN
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = FVBN(epochs=5, n_hidden=[4, 8], random_state=0).fit(X)
    >>> model.score_samples(X[:3]).shape, len(model.chosen_)
    ((3,), 2)
    """

    _kept = ("chosen_", "n_hidden_", "n_components_", "network_")
    _without_networks: ClassVar[str] = (
        "An FVBN of complete real-valued columns answers no questions about some columns given"
        " others: each of its networks sees just the columns before its own. Use RNADE."
    )

    family: str = "gaussian"
    n_components: Any = 10
    n_hidden: Any = 50
    activation: str = "relu"
    order: Any = "auto"
    search: Any = "auto"

    def _check_settings(self) -> None:
        for setting in self._candidates():
            self._recipe_of(setting)
            for name in _SIZES:
                positive_int(setting[name], name)

    def _check_table_settings(self) -> None:
        super()._check_table_settings()
        only = "is for tables of complete real-valued columns; this one has others."
        for name in _SIZES:
            size = getattr(self, name)
            if not isinstance(size, int | np.integer):
                raise ValueError(f"{name}={size!r}, a choice of sizes, {only} Give one number.")
        if not (self.search is None or (isinstance(self.search, str) and self.search == "auto")):
            raise ValueError(
                f"search={self.search!r} {only} Leave search at 'auto', or pass columns='real'."
            )
        if self.retrain:
            raise ValueError(f"retrain=True {only} Leave it out, or pass columns='real'.")

    def _recipe_of(self, setting: Mapping[str, Any]) -> Recipe:
        own = {name: v for name, v in setting.items() if name not in _SIZES}
        return self._make_recipe(**own).with_changes(**changes_of_family(self.family))

    def _candidates(self) -> list[dict[str, Any]]:
        """All settings that are to be tried."""
        given = {name: getattr(self, name) for name in _SIZES}
        grid = {name: v if isinstance(v, Sequence) else [v] for name, v in given.items()}
        return [
            {**sizes, **changes}
            for sizes, changes in itertools.product(ParameterGrid(grid), self._searched())
            # A size that the search sets is tried once, not once for each that it replaces.
            if all(grid[name][0] == sizes[name] for name in _SIZES if name in changes)
        ]

    def _searched(self) -> list[dict[str, Any]]:
        """Changes that the search tries."""
        if self.search is None:
            return [{}]
        if isinstance(self.search, str) and self.search == "auto":
            by_hand = self.learning_rate is not None or self.weight_decay is not None
            return (
                [{}] if by_hand or self.recipe == "paper" else [kind.changes for kind in GAUSSIANS]
            )
        if isinstance(self.search, str) and self.search == "paper":
            return list(ParameterGrid(PAPER_GRID))
        if isinstance(self.search, str) or not all(isinstance(s, Mapping) for s in self.search):
            raise ValueError(
                f"search must be 'auto', 'paper', None or a list of settings; got {self.search!r}."
            )
        for name in itertools.chain(*self.search):
            if name not in _SEARCHED:
                raise unknown_name(name, list(_SEARCHED), "setting to search over")
        return [dict(setting) for setting in self.search]

    def _empty_module(self, n_dimensions: int) -> FVBNModule:
        return FVBNModule(
            n_dimensions,
            self.n_hidden_,
            make_family(self.family, self.n_components_),
            activation=self.activation,
        )

    def _train(
        self, training: Batch, held_out: Batch | None, seed: int, target: Any
    ) -> tuple[Any, Outcome]:
        """Train all networks of all settings; keep the best of each column.

        The second training is of those that the first one kept, each with its own target.
        """
        if self._mixed:
            assert held_out is not None
            return self._train_table(training, held_out, seed)
        x, first = training.x, held_out is not None
        automatic = isinstance(self.order, str) and self.order == "auto"
        named = "raster" if automatic else self.order
        order = make_order(named, 1, x.shape[1], Generator().manual_seed(seed))[0]
        width = noise_width(self.dequantize, self.resolution_, self.standardiser_)
        noise = None if width is None else torch.as_tensor(width).to(x)
        source = ShuffledRows(x, seed, weights=training.weights, noise_width=noise)
        starts = _Starts(self, source, held_out, order)
        if first:
            settings = self._candidates()
            members = [starts.member(setting) for setting in settings]
        else:
            settings = self.chosen_
            members = [
                starts.member(setting, column, target[column])
                for column, setting in enumerate(settings)
            ]
        bank = self._trained_bank(members, "train" if first else "retrain")
        places = bank.best_of_each_model(range(len(members))) if first else None
        kept = bank.results(places)
        raise_if_diverged(kept if not first else [t for t in kept if t.best_score == -np.inf])
        if places is not None:
            self.chosen_: list[dict[str, Any]] = [
                _described(settings[m], members[m].recipe, trained)
                for (m, _), trained in zip(places, kept, strict=True)
            ]
        module = FVBNModule.of([trained.module for trained in kept], order)
        self.n_hidden_ = module.networks.c.shape[-1]
        self.n_components_ = module.family.n_components
        return module, _outcome(kept, bank.interrupted)

    # ---------------------------------------------------------------- tables of other columns

    def _train_table(
        self, training: Batch, held_out: Batch, seed: int
    ) -> tuple[TableDensity, Outcome]:
        """Train a network for each column of a table that has other than complete real ones."""
        columns, links = self._cut_and_link(training)
        X, device = training.x.cpu().numpy(), training.x.device
        plan = plan_columns(
            len(X),
            columns,
            device.type,
            n_components=self.n_components,
            n_hidden=self._if_chosen("n_hidden"),
        )
        recipe = self._table_recipe(plan, 1)
        w = training.weights
        member = columns_member(columns, X, w, plan, recipe, seed, device, links, held_out)
        bank = self._trained_bank([member])
        kept = bank.results([(0, d) for d in member.models])
        raise_if_diverged([t for t in kept if t.best_score == -np.inf])
        self.network_ = plan.settings()
        self.n_hidden_, self.n_components_ = plan.n_hidden, plan.n_components
        self.chosen_ = [_described(self.network_, recipe, trained) for trained in kept]
        orders = self._orders(plan.n_orders, seed, 1)
        self.network_["n_orders"] = len(orders)
        networks: Any = ColumnNetworks.stack([trained.module for trained in kept])
        module = TableDensity(columns, networks, orders, self._indicators())
        return module.to(device), _outcome(kept, bank.interrupted)

    def _empty_networks(
        self, columns: Sequence[ColumnCells], shape: Mapping[str, Any], n_networks: int
    ) -> ColumnNetworks:
        return ColumnNetworks(columns, **shape)


class _Starts:
    """Members of a bank, of which those of one size start alike."""

    def __init__(
        self, estimator: FVBN, source: ShuffledRows, held_out: Batch | None, order: torch.Tensor
    ) -> None:
        self.estimator, self.order = estimator, order
        self.source, self.held_out = source, held_out
        self.modules: dict[tuple[int, int], FVBNModule] = {}

    def member(
        self, setting: Mapping[str, Any], column: int | None = None, target: float | None = None
    ) -> Member:
        """The networks of all columns, or of one."""
        recipe = self.estimator._recipe_of(
            {name: setting[name] for name in _SEARCHED if name in setting}
        )
        size = setting["n_hidden"], setting["n_components"]
        if size not in self.modules:
            self.modules[size] = self._start(*size, recipe)
        networks = self.modules[size].networks
        module = networks if column is None else networks[column]
        return Member(module, recipe, self.source, self.held_out, target)

    def _start(self, n_hidden: int, n_components: int, recipe: Recipe) -> FVBNModule:
        own, x = self.estimator, self.source.x
        assert own.resolution_ is not None
        module = FVBNModule(
            x.shape[1],
            n_hidden,
            make_family(own.family, n_components),
            activation=own.activation,
            order=self.order,
            generator=Generator().manual_seed(self.source.seed),
            weight_scale=recipe.weight_scale,
        ).to(x.device, x.dtype)
        module.start_from(x, weights=self.source.known().weights, spread=recipe.spread)
        floors = scale_floors(own.sigma_floor, own.resolution_, own.standardiser_)
        module.set_floor(torch.as_tensor(floors))
        return module


def _described(setting: Mapping[str, Any], recipe: Recipe, trained: Trained) -> dict[str, Any]:
    """Give an entry of `chosen_`."""
    sizes = {name: int(setting[name]) for name in _SIZES}
    own = {name: float(getattr(recipe, name)) for name in _SEARCHED if name not in _SIZES}
    return {**sizes, **own, "epoch": trained.best_epoch, "validation": trained.best_score}


def _outcome(kept: Sequence[Trained], interrupted: bool) -> Outcome:
    """What training gave of the networks that were kept, one for each column."""
    return Outcome(
        _summed([trained.history for trained in kept]),
        max(trained.best_epoch for trained in kept),
        sum(trained.best_score for trained in kept),
        [trained.train_at_best for trained in kept],
        interrupted,
    )


def _summed(histories: Sequence[list[HistoryRow]]) -> list[HistoryRow]:
    """One history of all columns: sums of scores, the last one of a network that has stopped."""
    rows = []
    for epoch in range(max(map(len, histories))):
        now = [history[min(epoch, len(history) - 1)] for history in histories]
        held_out = [row["validation"] for row in now]
        rows.append(
            {
                "epoch": epoch,
                "rate": max(row["rate"] for row in now),
                "train": sum(row["train"] for row in now),
                "validation": None if None in held_out else sum(held_out),
                "seconds": max(row["seconds"] for row in now),
                "skipped": sum(row["skipped"] for row in now),
            }
        )
    return rows
