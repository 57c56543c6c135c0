"""A model and the table it is asked about, with what every part of the study needs of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rnade.columns import Resolution, as_fitted, as_values, column_names
from rnade.report.fitted import is_binary
from rnade.report.references import IndependentBits, IndependentMixtures, gaussian_log_density
from rnade.report.rows import Rows
from rnade.typing import Array

# Fewer rows than this to fit a reference to, and there is none.
_LEAST_REFERENCE_ROWS = 10


@dataclass(frozen=True)
class ReferenceScores:
    """Log densities of the judged rows under the plain models.

    Attributes
    ----------
    gaussian : array of shape (n,), or None
        None for bits, and where the covariance of as many columns as rows would be singular.
    alone : array of shape (n, D)
        Of each column by itself.
    of_bits : bool
    """

    gaussian: Array | None
    alone: Array
    of_bits: bool


@dataclass(frozen=True)
class Asked:
    """A model and a table.

    Attributes
    ----------
    estimator : fitted estimator
    names : list of str
    X : array of shape (N, D)
        As given.
    values : array of shape (N, D)
        As the model takes it: thresholded to bits, where it thresholds.
    rows : Rows
    steps : array of shape (D,)
        To what each column is rounded, 0 where it is not; bits are rounded to 1.
    """

    estimator: Any
    names: list[str]
    X: Array
    values: Array
    rows: Rows
    steps: Array

    @classmethod
    def of(cls, estimator: Any, X: Any, random_state: int = 0) -> "Asked":
        """Look at a table as the model sees it; the seed is of `Rows`."""
        X = as_values(estimator, X)
        values = X
        if is_binary(estimator):
            steps = np.ones(X.shape[1])
            if estimator.binarize is not None:
                values = np.where(X > estimator.binarize, 1.0, 0.0)
        else:
            resolution = getattr(estimator, "resolution_", None)
            steps = (Resolution.measure(X) if resolution is None else resolution).steps
        rows = Rows.of(estimator, X, seed=random_state)
        return cls(estimator, column_names(estimator), X, values, rows, steps)

    @property
    def given(self) -> Any:
        """All rows, with the column names that the model knows."""
        return as_fitted(self.estimator, self.X)

    @property
    def order(self) -> list[int] | None:
        """Which column comes first, second and so on in the model; None if it has no one order."""
        module = getattr(self.estimator, "module_", None)
        order = getattr(module, "order", None)
        return None if order is None else list(map(int, order[0]))

    def scored(self) -> tuple[Array | None, Array]:
        """Each column's terms, if the model has them, and each row's log density: all, once."""
        if not hasattr(self.estimator, "log_conditionals"):
            return None, np.asarray(self.estimator.score_samples(self.given))
        terms = np.asarray(self.estimator.log_conditionals(self.given))
        return terms, terms.sum(axis=1)

    def reference_scores(self) -> ReferenceScores | None:
        """Fit the plain models and score the judged rows; None if there are too few rows."""
        folds, judged, values = self.rows.folds, self.rows.judged, self.values
        enough = all(len(learned) >= _LEAST_REFERENCE_ROWS for learned, _ in folds)
        if not folds or not enough or len(judged) < 2:
            return None
        alone, joint = np.empty_like(values), np.empty(len(values))
        if is_binary(self.estimator):
            for learned, scored in folds:
                alone[scored] = IndependentBits.fit(values[learned]).log_densities(values[scored])
            return ReferenceScores(None, alone[judged], of_bits=True)
        floors = self._floors()
        regular = all(len(learned) > len(self.names) for learned, _ in folds)
        for learned, scored in folds:
            mixtures = IndependentMixtures.fit(values[learned], floors)
            alone[scored] = mixtures.log_densities(values[scored])
            if regular:
                joint[scored] = gaussian_log_density(values[learned], values[scored])
        return ReferenceScores(joint[judged] if regular else None, alone[judged], of_bits=False)

    def _floors(self) -> Array:
        """Smallest deviation of a component, in units of the column's, as in the model."""
        floor = getattr(self.estimator, "sigma_floor", "auto")
        if isinstance(floor, str):
            deviation = self.values.std(axis=0)
            return Resolution(self.steps).floors(np.where(deviation > 0, deviation, 1.0))
        return np.full(len(self.names), float(floor))
