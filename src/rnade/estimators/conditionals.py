"""Log conditionals of each column, for estimators whose module gives them."""

from typing import Any

from sklearn.utils.validation import check_is_fitted

from rnade.estimators.density import AbstractDensityEstimator
from rnade.estimators.inputs import check_rows
from rnade.families.base import Array


class AbstractConditionalsEstimator(AbstractDensityEstimator):
    """Density estimator that also tells the columns of a row apart."""

    # A density with `log_conditionals(x)` too.
    module_: Any

    def log_conditionals(self, X: Any) -> Array:
        """The D terms log p(x_d | x_<d) of each row, in nats; they sum to `score_samples`.

        A very negative term says that this column is what makes the row odd, given the columns
        before it in the model's order.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)

        Returns
        -------
        array of shape (N, D)
        """
        check_is_fitted(self)
        terms = self._in_chunks(
            self._encode(check_rows(self, X, fitting=False)), self.module_.log_conditionals
        )
        return terms + self.standardiser_.log_determinant_terms
