"""RNADE as a scikit-learn estimator."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Generator

from rnade.checks import unknown_name
from rnade.columns import Resolution, Standardiser
from rnade.estimators.base import N_FOLDS, AbstractAutoregressiveEstimator, Planned
from rnade.estimators.inputs import check_not_constant, warn_of_spikes
from rnade.estimators.settings import scale_floors
from rnade.families import make_family
from rnade.families.base import Array
from rnade.nn import RNADEModule
from rnade.training import Recipe

# What search="auto" trains: the settings and the number of orders that did best over the paper's
# five UCI tables (docs/decisions/0006-default-search.md), with fewer orders for larger tables, so
# that a fit takes a minute or so on two cores.
SETTINGS: list[dict[str, Any]] = [
    {"learning_rate": 0.03, "weight_decay": 0.0},
    {"learning_rate": 0.03, "weight_decay": 1.0},
]
MOST_ORDERS = 8
CELLS_OF_ONE_ORDER = 450_000
FEWEST_ROWS_TO_FOLD = 5 * N_FOLDS


class RNADE(AbstractAutoregressiveEstimator):
    r"""Real-valued neural autoregressive density estimator.

    Models the density of a row as a product of one-dimensional mixtures, each computed from the
    columns before it by a neural network with shared weights (Uria, Murray and Larochelle, 2013).
    Densities and samples are exact; cost is linear in the number of columns. Columns are
    standardised inside; all densities are of the data as given.

    Parameters
    ----------
    family : {"gaussian", "laplace"}
        Components of each conditional mixture.
    n_components : int
        Components in each conditional mixture.
    n_hidden : int
        Hidden units.
    n_layers : int
        Hidden layers; 1 is the paper's model. More layers, which all columns share, fit harder
        data better and take longer to train.
    activation : {"relu", "sigmoid"}
        Hidden units' non-linearity.
    order : {"auto", "raster", "random"} or permutation of the columns
        Which column comes first, second and so on. "auto" takes them as they are, and in a search
        gives every other model a random order.
    search : "auto", None or list of dict
        What is fitted. "auto" trains a small bank of models, two settings in up to eight orders,
        and averages their densities, which needs no tuning (with recipe "paper" it trains one
        model, and a learning_rate or weight_decay given here is that of all models). None trains
        one model. A list of settings, each a dict of parameters to change, is trained and averaged
        in as many orders. In an average, each model stops early by an eighth of the training rows
        of its own, and the held-out rows serve p-values and `held_out_score` alone.
    recipe : {"modern", "paper"}
        How to train. "modern" is Adam with a cosine rate, gradient clipping, averaged weights and
        early stopping; "paper" is the paper's section 4.1, with the momentum of its authors'
        code. The settings below change either.
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
        Epochs without a better held-out score after which training stops.
    validation_fraction : float
        Share of the rows held out, for p-values, and for early stopping where one model is fitted.
    retrain : bool
        Afterwards train again on all rows, until the training log-likelihood of the best epoch is
        reached (the paper's rule). P-values keep the held-out scores of the first training. Where
        it breaks, the first model is kept, with a warning.
    sigma_floor : "auto" or float
        Smallest scale of a component, in units of the column's standard deviation. "auto" ties it
        to the column's resolution where values are rounded; 0 is the paper's.
    dequantize : bool
        Train with uniform noise as wide as the rounding interval added to rounded columns.
    checkpoint : path, optional
        A folder for checkpoints, made if need be. Training that was killed goes on from the last
        one, at most 30 seconds back, and ends with the same numbers.
    device : {"auto", "cpu", "cuda"}
        Where to compute.
    dtype : {"float32", "float64"}
        Precision of training; scores are computed in float64 always.
    backend : str
        Which backend computes densities; "auto" chooses.
    random_state : int, RandomState instance or None
        Seed of starting weights, held-out rows and minibatches.
    verbose : int
        1 shows a progress bar on stderr.

    Attributes
    ----------
    module_ : rnade.nn.RNADEModule or rnade.nn.EnsembleModule
        The fitted torch module, in float64, on standardised columns.
    members_ : list of dict
        For each model what it changed, its epochs and its scores.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (D,)
        Names of the columns, if X was a data frame.
    history_ : list of dict
        One row an epoch of the model with the best held-out score: epoch, rate, train,
        validation, seconds, skipped; scores in nats on standardised columns.
    best_epoch_ : int
        Epoch of the weights kept.
    validation_scores_ : array
        Log densities of the held-out rows, in the data's units.
    standardiser_, resolution_, calibration_
        What was measured of the columns and of the held-out rows.
    n_rows_ : int
        Rows fitted, held-out rows included.
    fitted_rows_ : FittedRows
        Which rows were held out, each column's range, and a digest to know the table again.
    fit_seconds_ : float

    References
    ----------
    Uria, Murray and Larochelle (2013), RNADE: The real-valued neural autoregressive
    density-estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from rnade import RNADE
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = RNADE(epochs=5, random_state=0).fit(X)
    >>> model.score_samples(X[:3]).shape
    (3,)
    """

    def __init__(
        self,
        *,
        family: str = "gaussian",
        n_components: int = 10,
        n_hidden: int = 50,
        n_layers: int = 1,
        activation: str = "relu",
        order: Any = "auto",
        search: str | Sequence[Mapping[str, Any]] | None = "auto",
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
        checkpoint: Any = None,
        device: str = "auto",
        dtype: str = "float32",
        backend: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.family = family
        self.n_components = n_components
        self.n_hidden = n_hidden
        self.n_layers = n_layers
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
        self.backend = backend
        self.random_state = random_state
        self.verbose = verbose

    def _make_recipe(self) -> Recipe:
        if self.family not in ("gaussian", "laplace"):
            raise unknown_name(self.family, ["gaussian", "laplace"], "family")
        recipe = super()._make_recipe()
        # The heuristic is for mixtures of Gaussians only.
        return (
            recipe if self.family == "gaussian" else recipe.with_changes(scale_mean_gradient=False)
        )

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.search is None or (isinstance(self.search, str) and self.search == "auto"):
            return
        if isinstance(self.search, str) or not all(isinstance(s, Mapping) for s in self.search):
            raise ValueError(
                f"search must be 'auto', None or a list of settings; got {self.search!r}."
            )
        for settings in self.search:
            self._changed({**settings, "search": None})._check_settings()

    def _plan(self, n_rows: int, n_dimensions: int) -> list[Planned]:
        automatic = isinstance(self.order, str) and self.order == "auto"
        if self.search is None or (self.search == "auto" and self.recipe == "paper"):
            return [Planned("raster" if automatic else self.order)]
        settings = self.search
        if isinstance(settings, str):
            by_hand = self.learning_rate is not None or self.weight_decay is not None
            settings = [{}] if by_hand else SETTINGS
        orders = min(MOST_ORDERS, max(1, CELLS_OF_ONE_ORDER // (n_rows * n_dimensions)))
        # A table too small to give every fold rows has its held-out rows stop all models.
        folds = n_rows >= FEWEST_ROWS_TO_FOLD
        return [
            Planned(
                ("random" if i else "raster") if automatic else self.order,
                dict(changes),
                i % N_FOLDS if folds else None,
            )
            for changes in settings
            for i in range(orders)
        ]

    def _make_module(
        self, n_dimensions: int, recipe: Recipe, order: Any, generator: Generator | None
    ) -> RNADEModule:
        return RNADEModule(
            n_dimensions,
            self.n_hidden,
            make_family(self.family, self.n_components),
            activation=self.activation,
            n_layers=self.n_layers,
            order=order,
            generator=generator,
            backend=self.backend,
            weight_scale=recipe.weight_scale,
        )

    def _prepare(self, X: Array, weights: Array | None) -> tuple[Standardiser, Resolution]:
        check_not_constant(self, X)
        resolution = Resolution.measure(X)
        warn_of_spikes(self, resolution)
        return Standardiser.fit(X, weights), resolution

    def _floors(self, resolution: Resolution) -> Array:
        return scale_floors(self.sigma_floor, resolution, self.standardiser_)

    def _noise_width(self, resolution: Resolution | None) -> Array | None:
        if not self.dequantize or resolution is None or not resolution.steps.any():
            return None
        return resolution.steps / self.standardiser_.scale
