"""FVBN as a scikit-learn estimator."""

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import ParameterGrid
from torch import Generator

from rnade.checks import positive_int, unknown_name
from rnade.columns import Resolution, Standardiser
from rnade.estimators.base import raise_if_diverged
from rnade.estimators.conditionals import AbstractConditionalsEstimator
from rnade.estimators.density import Rows, warn_of_training
from rnade.estimators.inputs import check_not_constant, warn_of_spikes
from rnade.estimators.rnade import SETTINGS
from rnade.estimators.settings import scale_floors
from rnade.families import make_family
from rnade.families.base import Array
from rnade.nn import FVBNModule
from rnade.nn.autoregressive import make_order
from rnade.progress import bank_bar
from rnade.training import (
    PAPER_GRID,
    Bank,
    HistoryRow,
    Member,
    Outcome,
    Recipe,
    RowSet,
    Trained,
    make_recipe,
)

_RECIPE_SETTINGS = (
    "learning_rate",
    "batch_size",
    "epochs",
    "batches_per_epoch",
    "momentum",
    "weight_decay",
    "patience",
)
# In which the settings of a search may differ.
_SIZES = ("n_hidden", "n_components")
_SEARCHED = (*_SIZES, "learning_rate", "weight_decay", "momentum")


class FVBN(AbstractConditionalsEstimator):
    """Fully visible Bayesian network: a separate mixture density network for each column.

    The same conditionals as RNADE's, but without shared weights: cost and parameters grow with
    the square of the number of columns. All networks of all settings train as one bank, and for
    each column the setting and the epoch that score best on the held-out rows are kept.

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
    order : {"raster", "random"} or permutation of the columns
        Which column comes first, second and so on.
    search : "auto", "paper", None or list of dict
        Settings of which the best for each column is taken. "auto" tries weak and strong weight
        decay (with recipe "paper", or where learning_rate or weight_decay is given, it tries
        nothing), "paper" the paper's grid of 96 components, rates and decays. Or a list of
        settings, each a dict of n_hidden, n_components, learning_rate, weight_decay or momentum.
    recipe : {"modern", "paper"}
        How to train; see `RNADE`. The settings below change either.
    learning_rate : float, optional
        Largest learning rate.
    batch_size : int, optional
        Rows in a minibatch.
    epochs : int, optional
        Largest number of epochs.
    batches_per_epoch : int, optional
        Minibatches that make an epoch; by default one pass over the rows, but at least 20.
    momentum : float, optional
        Momentum of plain gradient descent (the paper's recipe), from the second epoch on.
    weight_decay : float, optional
        Decay of the input-to-hidden weights.
    patience : int, optional
        Epochs without a better held-out score after which a network's training stops.
    validation_fraction : float
        Share of the rows held out, for early stopping, the choice of settings and p-values.
    retrain : bool
        Afterwards train again on all rows, each network until its training log-likelihood is
        that of its best epoch.
    sigma_floor : "auto" or float
        Smallest scale of a component, in units of the column's standard deviation. "auto" ties it
        to the column's resolution where values are rounded; 0 is the paper's.
    dequantize : bool
        Train with uniform noise as wide as the rounding interval added to rounded columns.
    checkpoint : path, optional
        A folder of checkpoints to go on from, if there are any, and to write.
    device : {"auto", "cpu", "cuda"}
        Where to compute.
    dtype : {"float32", "float64"}
        Precision of training; scores are computed in float64 always.
    random_state : int, RandomState instance or None
        Seed of starting weights, held-out rows and minibatches.
    verbose : int
        1 shows a progress bar on stderr.

    Attributes
    ----------
    module_ : rnade.nn.FVBNModule
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

    chosen_: list[dict[str, Any]]
    n_hidden_: int
    n_components_: int
    _kept = ("chosen_", "n_hidden_", "n_components_")

    def __init__(
        self,
        *,
        family: str = "gaussian",
        n_components: Any = 10,
        n_hidden: Any = 50,
        activation: str = "relu",
        order: Any = "raster",
        search: Any = "auto",
        recipe: str = "modern",
        learning_rate: float | None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        batches_per_epoch: int | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        patience: int | None = None,
        validation_fraction: float = 0.1,
        retrain: bool = False,
        sigma_floor: str | float = "auto",
        dequantize: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        device: str = "auto",
        dtype: str = "float32",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.family = family
        self.n_components = n_components
        self.n_hidden = n_hidden
        self.activation = activation
        self.order = order
        self.search = search
        self.recipe = recipe
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.epochs = epochs
        self.batches_per_epoch = batches_per_epoch
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.retrain = retrain
        self.sigma_floor = sigma_floor
        self.dequantize = dequantize
        self.checkpoint = checkpoint
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def _check_settings(self) -> None:
        for setting in self._candidates():
            self._make_recipe(setting)
            for name in _SIZES:
                positive_int(setting[name], name)

    def _make_recipe(self, setting: Mapping[str, Any]) -> Recipe:
        if self.family not in ("gaussian", "laplace"):
            raise unknown_name(self.family, ["gaussian", "laplace"], "family")
        changes = {name: getattr(self, name) for name in _RECIPE_SETTINGS}
        own = {name: v for name, v in setting.items() if name not in _SIZES}
        recipe = make_recipe(self.recipe, **changes).with_changes(**own)
        # The heuristic is for mixtures of Gaussians only.
        scaled = recipe.scale_mean_gradient and self.family == "gaussian"
        return recipe.with_changes(scale_mean_gradient=scaled)

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
            return [{}] if by_hand or self.recipe == "paper" else SETTINGS
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

    def _prepare(self, X: Array, weights: Array | None) -> tuple[Standardiser, Resolution]:
        check_not_constant(self, X)
        resolution = Resolution.measure(X)
        warn_of_spikes(self, resolution)
        return Standardiser.fit(X, weights), resolution

    def _empty_module(self, n_dimensions: int) -> FVBNModule:
        return FVBNModule(
            n_dimensions,
            self.n_hidden_,
            make_family(self.family, self.n_components_),
            activation=self.activation,
        )

    def _train(
        self, training: Rows, held_out: Rows | None, seed: int, target: Any
    ) -> tuple[FVBNModule, Outcome]:
        """Train all networks of all settings; keep the best of each column.

        The second training is of those that the first one kept, each with its own target.
        """
        x, first = training.x, held_out is not None
        order = make_order(self.order, 1, x.shape[1], Generator().manual_seed(seed))[0]
        rows = RowSet(
            x,
            seed,
            weights=training.weights,
            validation=None if held_out is None else held_out.x,
            validation_weights=None if held_out is None else held_out.weights,
            noise_width=self._noise_width(x),
        )
        starts = _Starts(self, rows, order)
        if first:
            settings = self._candidates()
            members = [starts.member(setting) for setting in settings]
        else:
            settings = self.chosen_
            members = [
                starts.member(setting, column, target[column])
                for column, setting in enumerate(settings)
            ]
        bank = Bank(members, checkpoint=self._checkpoint("train" if first else "retrain"))
        what = "Training" if first else "Training on all rows"
        with bank_bar(what, shown=self.verbose > 0) as on_epoch:
            bank.advance(on_epoch=on_epoch)
        if bank.interrupted:
            warn_of_training("Training was stopped by Ctrl-C; the best model so far was kept.")
        places = bank.best_of_each_model(range(len(members))) if first else None
        kept = bank.results(places)
        raise_if_diverged(kept if not first else [t for t in kept if t.best_score == -np.inf])
        if places is not None:
            self.chosen_ = [
                _described(settings[m], members[m].recipe, trained)
                for (m, _), trained in zip(places, kept, strict=True)
            ]
        module = FVBNModule.of([trained.module for trained in kept], order)  # type: ignore[misc]
        self.n_hidden_ = module.networks.c.shape[-1]
        self.n_components_ = module.family.n_components
        return module, Outcome(
            _summed([trained.history for trained in kept]),
            max(trained.best_epoch for trained in kept),
            sum(trained.best_score for trained in kept),
            [trained.train_at_best for trained in kept],
            bank.interrupted,
        )

    def _checkpoint(self, stage: str) -> Path | None:
        return None if self.checkpoint is None else Path(self.checkpoint) / stage

    def _noise_width(self, x: torch.Tensor) -> torch.Tensor | None:
        assert self.resolution_ is not None
        if not self.dequantize or not self.resolution_.steps.any():
            return None
        return torch.as_tensor(self.resolution_.steps / self.standardiser_.scale).to(x)


class _Starts:
    """Members of a bank, of which those of one size start alike."""

    def __init__(self, estimator: FVBN, rows: RowSet, order: torch.Tensor) -> None:
        self.estimator, self.rows, self.order = estimator, rows, order
        self.modules: dict[tuple[int, int], FVBNModule] = {}

    def member(
        self, setting: Mapping[str, Any], column: int | None = None, target: float | None = None
    ) -> Member:
        """The networks of all columns, or of one."""
        recipe = self.estimator._make_recipe(
            {name: setting[name] for name in _SEARCHED if name in setting}
        )
        size = setting["n_hidden"], setting["n_components"]
        if size not in self.modules:
            self.modules[size] = self._start(*size, recipe)
        networks = self.modules[size].networks
        return Member(networks if column is None else networks[column], recipe, self.rows, target)

    def _start(self, n_hidden: int, n_components: int, recipe: Recipe) -> FVBNModule:
        own, x = self.estimator, self.rows.x
        assert own.resolution_ is not None
        module = FVBNModule(
            x.shape[1],
            n_hidden,
            make_family(own.family, n_components),
            activation=own.activation,
            order=self.order,
            generator=Generator().manual_seed(self.rows.seed),
            weight_scale=recipe.weight_scale,
        ).to(x.device, x.dtype)
        module.start_from(x, spread=recipe.spread)
        floors = scale_floors(own.sigma_floor, own.resolution_, own.standardiser_)
        module.set_floor(torch.as_tensor(floors))
        return module


def _described(setting: Mapping[str, Any], recipe: Recipe, trained: Trained) -> dict[str, Any]:
    """Give an entry of `chosen_`."""
    sizes = {name: int(setting[name]) for name in _SIZES}
    own = {name: float(getattr(recipe, name)) for name in _SEARCHED if name not in _SIZES}
    return {**sizes, **own, "epoch": trained.best_epoch, "validation": trained.best_score}


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
