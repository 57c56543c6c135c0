"""NADE and FVSBN, for binary data, as scikit-learn estimators."""

from typing import Any, ClassVar

import narwhals.stable.v1 as nw
import numpy as np
from torch import Generator

from rnade.checks import number_between
from rnade.columns import Schema, Standardiser
from rnade.columns.bits import read_bits, with_codes
from rnade.columns.sources import as_frame
from rnade.estimators.base import AbstractAutoregressiveEstimator
from rnade.estimators.inputs import TAKE_ALL, column_labels, takes
from rnade.estimators.parameters import estimator
from rnade.nn import AbstractAutoregressive, FVSBNModule, NADEModule
from rnade.training import Recipe
from rnade.typing import Array


class AbstractBinaryEstimator(AbstractAutoregressiveEstimator):
    """Columns of two levels: numbers are thresholded if asked, and none is standardised.

    Attributes
    ----------
    schema_ : Schema or None
        Of a frame, what its columns hold; None for an array.
    """

    schema_: Schema | None = None
    binarize: float | None  # a parameter of every subclass
    _binary = True
    _columns_of: ClassVar[str] = "two levels"

    def _check_rows(self, X: Any, *, fitting: bool = False, missing: bool = False) -> Array:
        is_frame = isinstance(as_frame(X), nw.DataFrame)
        if fitting:
            self.schema_ = read_bits(X, self._refused) if is_frame else None
        if is_frame and self.schema_ is not None:
            X = with_codes(X, self.schema_, self._refused)
        return super()._check_rows(X, fitting=fitting, missing=missing)

    def _refused(self, held: str) -> ValueError:
        """An error that says what is no column of two levels, and which models take it."""
        return ValueError(takes(self, held))

    def _encode(self, X: Array) -> Array:
        if self.binarize is not None:
            threshold = number_between(self.binarize, "binarize", -np.inf, np.inf, open_low=False)
            bits = np.where(X > threshold, 1.0, 0.0)
            return bits if self.schema_ is None else np.where(self._has_levels(), X, bits)
        wrong = np.argwhere((X != 0) & (X != 1))
        if len(wrong):
            row, column = wrong[0]
            raise ValueError(
                f"Expected only values 0 and 1 with binarize=None; got {X[row, column]:g} in row"
                f" {row}, {column_labels(self)[column]} ({len(wrong)} such values). Give binarize"
                f" a threshold; {TAKE_ALL} take tables of any kind."
            )
        return X

    def _has_levels(self) -> Any:
        """Which columns have levels of their own, and no numbers to threshold."""
        assert self.schema_ is not None
        return np.array([column.kind == "category" for column in self.schema_.columns])

    def _as_given(self, values: Array) -> Any:
        return values if self.schema_ is None else self.schema_.decode(values)

    def _prepare(self, X: Array, weights: Array | None) -> tuple[Standardiser, None]:
        return Standardiser.identity(X.shape[1]), None


@estimator
class NADE(AbstractBinaryEstimator):
    """Neural autoregressive distribution estimator for binary data.

    Columns have two levels: 0 and 1, or of a frame also booleans, categories and text. Draws are
    given back in them, with the types of the frame's columns.

    Parameters
    ----------
    n_hidden : int
        Hidden units.
    activation : {"sigmoid", "relu"}
        Hidden units' non-linearity.
    tied_weights : bool
        Use the input weights as output weights too, as NADE was first proposed.
    binarize : float or None
        Numbers above this are 1, others 0; None expects 0 and 1 only. Booleans, categories and
        text, of two levels, are taken as they are.
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

    Takes the same columns of two levels as `NADE`.

    Parameters
    ----------
    binarize : float or None
        Numbers above this are 1, others 0; None expects 0 and 1 only. Booleans, categories and
        text, of two levels, are taken as they are.
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
