"""NADE and FVSBN, for binary data, as scikit-learn estimators."""

from typing import Any

import numpy as np
from torch import Generator

from rnade.checks import number_between
from rnade.columns import Standardiser
from rnade.estimators.base import AbstractAutoregressiveEstimator
from rnade.estimators.parameters import estimator
from rnade.nn import AbstractAutoregressive, FVSBNModule, NADEModule
from rnade.training import Recipe
from rnade.typing import Array


class AbstractBinaryEstimator(AbstractAutoregressiveEstimator):
    """Binary columns: thresholded if asked, never standardised."""

    binarize: float | None  # a parameter of every subclass
    _binary = True

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


@estimator
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
    {AutoregressiveParameters}

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

    n_hidden: int = 50
    activation: str = "sigmoid"
    tied_weights: bool = False
    binarize: float | None = 0.0
    order: Any = "raster"

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


@estimator
class FVSBN(AbstractBinaryEstimator):
    """Fully visible sigmoid belief network: logistic regression of each column on those before.

    Parameters
    ----------
    binarize : float or None
        Values above this are 1, others 0; None expects 0 and 1 only.
    order : {"raster", "random"} or permutation of the columns
        Which column comes first, second and so on.
    {AutoregressiveParameters}

    References
    ----------
    Frey, Hinton and Dayan (1996), Does the wake-sleep algorithm produce good density estimators?
    """

    binarize: float | None = 0.0
    order: Any = "raster"

    def _make_module(
        self, n_dimensions: int, recipe: Recipe, order: Any, generator: Generator | None
    ) -> AbstractAutoregressive:
        return FVSBNModule(n_dimensions, order=order, generator=generator, backend=self.backend)
