"""NADE and FVSBN, for binary data, as scikit-learn estimators."""

from typing import Any

import numpy as np
from torch import Generator

from rnade.checks import number_between
from rnade.columns import Standardiser
from rnade.estimators.base import AbstractAutoregressiveEstimator
from rnade.families.base import Array
from rnade.nn import AbstractAutoregressive, FVSBNModule, NADEModule
from rnade.training import Recipe


class AbstractBinaryEstimator(AbstractAutoregressiveEstimator):
    """Binary columns: thresholded if asked, never standardised."""

    binarize: float | None

    def _encode(self, X: Array) -> Array:
        if self.binarize is not None:
            threshold = number_between(self.binarize, "binarize", -np.inf, np.inf, open_low=False)
            return np.where(X > threshold, 1.0, 0.0)
        wrong = np.argwhere((X != 0) & (X != 1))
        if len(wrong):
            row, column = wrong[0]
            raise ValueError(
                f"Expected only values 0 and 1 with binarize=None; got {X[row, column]:g} in row"
                f" {row}, column {column} ({len(wrong)} such values). Give binarize a threshold."
            )
        return X

    def _prepare(self, X: Array, weights: Array | None) -> tuple[Standardiser, None]:
        return Standardiser.identity(X.shape[1]), None


class NADE(AbstractBinaryEstimator):
    """Neural autoregressive distribution estimator for binary data.

    Parameters
    ----------
    n_hidden : int
        Hidden units.
    activation : {"sigmoid", "relu"}
        Hidden units' non-linearity.
    tied_weights : bool
        Use the input weights as output weights too, as NADE was first proposed.
    binarize : float or None
        Values above this are 1, others 0; None expects 0 and 1 only.
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
        Epochs without a better held-out score after which training stops.
    validation_fraction : float
        Share of the rows held out, for early stopping and for p-values.
    retrain : bool
        Afterwards train again on all rows, until the training log-likelihood of the best epoch is
        reached (the paper's rule).
    checkpoint : path, optional
        A folder for checkpoints; see `RNADE`.
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

    References
    ----------
    Larochelle and Murray (2011), The neural autoregressive distribution estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from rnade import NADE
    >>> X = np.random.default_rng(0).integers(0, 2, size=(200, 4))
    >>> NADE(epochs=5, random_state=0).fit(X).sample(2, random_state=0).shape
    (2, 4)
    """

    def __init__(
        self,
        *,
        n_hidden: int = 50,
        activation: str = "sigmoid",
        tied_weights: bool = False,
        binarize: float | None = 0.0,
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
        retrain: bool = False,
        checkpoint: Any = None,
        device: str = "auto",
        dtype: str = "float32",
        backend: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_hidden = n_hidden
        self.activation = activation
        self.tied_weights = tied_weights
        self.binarize = binarize
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
        self.retrain = retrain
        self.checkpoint = checkpoint
        self.device = device
        self.dtype = dtype
        self.backend = backend
        self.random_state = random_state
        self.verbose = verbose

    def _make_module(
        self, n_dimensions: int, recipe: Recipe, order: Any, generator: Generator | None
    ) -> AbstractAutoregressive:
        return NADEModule(
            n_dimensions,
            self.n_hidden,
            activation=self.activation,
            tied_weights=self.tied_weights,
            order=order,
            generator=generator,
            backend=self.backend,
            weight_scale=recipe.weight_scale,
        )


class FVSBN(AbstractBinaryEstimator):
    """Fully visible sigmoid belief network: logistic regression of each column on those before.

    Parameters
    ----------
    binarize : float or None
        Values above this are 1, others 0; None expects 0 and 1 only.
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
        Decay of the regression weights.
    patience : int, optional
        Epochs without a better held-out score after which training stops.
    validation_fraction : float
        Share of the rows held out, for early stopping and for p-values.
    retrain : bool
        Afterwards train again on all rows, until the training log-likelihood of the best epoch is
        reached (the paper's rule).
    checkpoint : path, optional
        A folder for checkpoints; see `RNADE`.
    device : {"auto", "cpu", "cuda"}
        Where to compute.
    dtype : {"float32", "float64"}
        Precision of training; scores are computed in float64 always.
    backend : str
        Which backend computes densities; "auto" chooses.
    random_state : int, RandomState instance or None
        Seed of held-out rows and minibatches.
    verbose : int
        1 shows a progress bar on stderr.

    References
    ----------
    Frey, Hinton and Dayan (1996), Does the wake-sleep algorithm produce good density estimators?
    """

    def __init__(
        self,
        *,
        binarize: float | None = 0.0,
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
        retrain: bool = False,
        checkpoint: Any = None,
        device: str = "auto",
        dtype: str = "float32",
        backend: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.binarize = binarize
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
        self.retrain = retrain
        self.checkpoint = checkpoint
        self.device = device
        self.dtype = dtype
        self.backend = backend
        self.random_state = random_state
        self.verbose = verbose

    def _make_module(
        self, n_dimensions: int, recipe: Recipe, order: Any, generator: Generator | None
    ) -> AbstractAutoregressive:
        return FVSBNModule(n_dimensions, order=order, generator=generator, backend=self.backend)
