"""How much each column adds to a row's surprise, whatever the column's unit."""

from typing import Any

import numpy as np

from rnade.columns import as_fitted, as_values
from rnade.columns.names import is_mixed
from rnade.typing import Array

# Rows drawn from the model to see what is typical of each column. A log conditional varies by
# about 1 nat from row to row, so that 2,000 rows place its mean within about 0.02 nats. Wide
# tables, where a row takes longer, have fewer: 200 place it within 0.07.
_MOST_ROWS, _FEWEST_ROWS, _CELLS = 2000, 200, 400_000


def typical_log_conditionals(estimator: Any, draws: Array | None = None) -> Array:
    """Give the mean of each column's log conditional over rows drawn from the model.

    That is minus the column's entropy given those before it. A row's log conditionals minus these
    say how many nats each column adds to the row's surprise, whatever the column's unit; being
    the model's own, the yardstick is the same for every file, and serves a file of one row.

    Parameters
    ----------
    estimator : fitted estimator with `log_conditionals`
    draws : array of shape (n, D), optional
        Rows that were drawn from the model already.

    Returns
    -------
    array of shape (D,)
    """
    n = max(_FEWEST_ROWS, min(_MOST_ROWS, _CELLS // estimator.n_features_in_))
    draws = estimator.sample_values(n, random_state=0) if draws is None else draws[:n]
    rows = as_fitted(estimator, draws)
    terms: Array = estimator.log_conditionals(rows)
    if not is_mixed(estimator):
        return np.asarray(terms.mean(axis=0))
    # A drawn cell may be missing, where the model says so; its term is 0 and tells nothing.
    seen = ~np.isnan(as_values(estimator, rows))
    return np.asarray((terms * seen).sum(axis=0) / np.maximum(seen.sum(axis=0), 1))
