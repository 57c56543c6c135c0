"""How much each column adds to a row's surprise, whatever the column's unit."""

from typing import TYPE_CHECKING, Any

from rnade.columns import as_fitted

if TYPE_CHECKING:
    from rnade.typing import Array

# Rows drawn from the model to see what is typical of each column: the mean of a log conditional
# varies by about 1 nat from row to row, so this many place it within about 0.02 nats.
_N_TYPICAL = 2000


def typical_log_conditionals(estimator: Any) -> "Array":
    """Give the mean of each column's log conditional over rows drawn from the model.

    That is minus the column's entropy given those before it. A row's log conditionals minus these
    say how many nats each column adds to the row's surprise, whatever the column's unit; being
    the model's own, the yardstick is the same for every file, and serves a file of one row.
    """
    draws = estimator.sample(_N_TYPICAL, random_state=0)
    typical: Array = estimator.log_conditionals(as_fitted(estimator, draws)).mean(axis=0)
    return typical
