"""FVBN as a scikit-learn estimator."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Generator

from rnade.checks import positive_int, unknown_name
from rnade.estimators.conditionals import AbstractConditionalsEstimator
from rnade.estimators.density import Rows
from rnade.estimators.inputs import check_not_constant, warn_of_spikes
from rnade.estimators.settings import scale_floors
from rnade.families import make_family
from rnade.families.base import Array, fresh_generator
from rnade.nn import FVBNModule
from rnade.nn.autoregressive import make_order
from rnade.preprocessing import Resolution, Standardiser
from rnade.progress import training_bar
from rnade.training import HistoryRow, Outcome, Recipe, make_recipe, train

_RECIPE_SETTINGS = (
    "learning_rate",
    "batch_size",
    "epochs",
    "batches_per_epoch",
    "momentum",
    "weight_decay",
    "patience",
)


class FVBN(AbstractConditionalsEstimator):
    """Fully visible Bayesian network: a separate mixture density network for each column.

    The same conditionals as RNADE's, but without shared weights: cost and parameters grow with
    the square of the number of columns. All networks of all settings train together, and for
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
    sigma_floor : "auto" or float
        Smallest scale of a component, in units of the column's standard deviation. "auto" ties it
        to the column's resolution where values are rounded; 0 is the paper's.
    dequantize : bool
        Train with uniform noise as wide as the rounding interval added to rounded columns.
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
        For each column, the settings and the epoch that were kept.
    history_ : list of dict
        One row an epoch, as of `RNADE`, of the networks that were kept.
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

    retrain = False
    chosen_: list[dict[str, int]]
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
        recipe: str = "modern",
        learning_rate: float | None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        batches_per_epoch: int | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        patience: int | None = None,
        validation_fraction: float = 0.1,
        sigma_floor: str | float = "auto",
        dequantize: bool = False,
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
        self.recipe = recipe
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.epochs = epochs
        self.batches_per_epoch = batches_per_epoch
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.sigma_floor = sigma_floor
        self.dequantize = dequantize
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def _check_settings(self) -> None:
        self._make_recipe()
        self._candidates()

    def _make_recipe(self) -> Recipe:
        if self.family not in ("gaussian", "laplace"):
            raise unknown_name(self.family, ["gaussian", "laplace"], "family")
        changes = {name: getattr(self, name) for name in _RECIPE_SETTINGS}
        recipe = make_recipe(self.recipe, **changes)
        # The heuristic is for mixtures of Gaussians only.
        scaled = recipe.scale_mean_gradient and self.family == "gaussian"
        return recipe.with_changes(scale_mean_gradient=scaled)

    def _candidates(self) -> list[tuple[int, int]]:
        """All pairs of hidden units and components that are to be tried."""
        given = (self.n_hidden, self.n_components)
        choices = [list(v) if isinstance(v, Sequence) else [v] for v in given]
        for name, values in zip(("n_hidden", "n_components"), choices, strict=True):
            for value in values:
                positive_int(value, name)
        return list(itertools.product(*choices))

    def _prepare(self, X: Array, weights: Array | None) -> tuple[Standardiser, Resolution]:
        check_not_constant(self, X)
        resolution = Resolution.measure(X)
        warn_of_spikes(self, resolution)
        return Standardiser.fit(X, weights), resolution

    def _make_module(
        self,
        n_dimensions: int,
        candidates: list[tuple[int, int]],
        recipe: Recipe,
        generator: Generator | None,
    ) -> FVBNModule:
        generator = fresh_generator() if generator is None else generator
        return FVBNModule(
            n_dimensions,
            [H for H, _ in candidates],
            make_family(self.family, max(K for _, K in candidates)),
            n_components=[K for _, K in candidates],
            activation=self.activation,
            # One order for all: columns' best networks come from different candidates.
            order=make_order(self.order, 1, n_dimensions, generator)[0],
            n_models=len(candidates),
            generator=generator,
            weight_scale=recipe.weight_scale,
        )

    def _empty_module(self, n_dimensions: int) -> FVBNModule:
        largest = [(self.n_hidden_, self.n_components_)]
        return self._make_module(n_dimensions, largest, self._make_recipe(), None)

    def _train(
        self, training: Rows, held_out: Rows | None, seed: int, target: float | None
    ) -> tuple[FVBNModule, Outcome]:
        assert held_out is not None
        assert self.resolution_ is not None
        recipe, x, candidates = self._make_recipe(), training.x, self._candidates()
        D, n_candidates = x.shape[1], len(candidates)
        bank = self._make_module(D, candidates, recipe, Generator().manual_seed(seed))
        bank = bank.to(x.device, x.dtype)
        bank.start_from(x, spread=recipe.spread)
        floors = scale_floors(self.sigma_floor, self.resolution_, self.standardiser_)
        bank.set_floor(torch.as_tensor(floors))
        with training_bar("Training", recipe.epochs, shown=self.verbose > 0) as on_epoch:
            outcome = train(
                bank.networks,
                x,
                recipe,
                generator=Generator(x.device).manual_seed(seed),
                validation=held_out.x,
                weights=training.weights,
                validation_weights=held_out.weights,
                noise_width=self._noise_width(x),
                on_epoch=None if on_epoch is None else _summed(on_epoch, D),
            )
        scores = np.asarray(outcome.best_score).reshape(n_candidates, D)
        best = scores.argmax(0)
        epochs = np.asarray(outcome.best_epoch).reshape(n_candidates, D)[best, range(D)]
        self.chosen_ = [
            {"n_hidden": candidates[m][0], "n_components": candidates[m][1], "epoch": int(epoch)}
            for m, epoch in zip(best, epochs, strict=True)
        ]
        self.n_hidden_ = max(H for H, _ in candidates)
        self.n_components_ = max(K for _, K in candidates)
        at_best = np.asarray(outcome.train_at_best).reshape(n_candidates, D)[best, range(D)]
        return bank.pick(best.tolist()), Outcome(
            _of_chosen(outcome.history, best, n_candidates),
            int(epochs.max()),
            float(scores.max(0).sum()),
            float(at_best.sum()),
        )

    def _noise_width(self, x: torch.Tensor) -> torch.Tensor | None:
        assert self.resolution_ is not None
        if not self.dequantize or not self.resolution_.steps.any():
            return None
        return torch.as_tensor(self.resolution_.steps / self.standardiser_.scale).to(x)


def _of_chosen(history: list[HistoryRow], best: Any, n_candidates: int) -> list[HistoryRow]:
    """The history of the networks kept: sums over columns.

    A network that has stopped stands at its last score.
    """
    D = len(best)
    rows = []
    last: dict[str, Array] = {}
    for row in history:
        sums: HistoryRow = dict(row)
        for key in ("train", "validation"):
            scores = np.reshape(np.asarray(row[key], dtype=np.float64), (n_candidates, D))
            scores = scores[best, range(D)]
            last[key] = np.where(np.isnan(scores), last.get(key, scores), scores)
            sums[key] = float(last[key].sum())
        sums["rate"] = float(np.max(row["rate"]))
        sums["skipped"] = int(np.sum(row["skipped"]))
        rows.append(sums)
    return rows


def _summed(on_epoch: Callable[[HistoryRow], None], D: int) -> Callable[[HistoryRow], None]:
    """For a progress bar: sums over columns of the best candidate's last score."""
    last: dict[str, Array] = {}

    def on_row(row: HistoryRow) -> None:
        for key in ("train", "validation"):
            scores: Array = np.fmax.reduce(np.reshape(np.asarray(row[key], np.float64), (-1, D)))
            last[key] = np.where(np.isnan(scores), last.get(key, scores), scores)
        on_epoch(row | {key: float(scores.sum()) for key, scores in last.items()})

    return on_row
