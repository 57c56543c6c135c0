"""What test rows share with training rows: whole rows, and values of columns."""

import numpy as np
from numpy.typing import NDArray

from rnade.typing import Array


def has_twin(rows: Array, others: Array) -> NDArray[np.bool_]:
    """Say of each row whether the very same one is among the others."""
    known = {row.tobytes() for row in others}
    return np.array([row.tobytes() in known for row in rows])


def has_common_value(rows: Array, others: Array, fewest: float) -> NDArray[np.bool_]:
    """Say of each value of each row whether at least `fewest` others have it in that column.

    Examples
    --------
    >>> import numpy as np
    >>> others = np.column_stack([np.arange(100), np.arange(100) // 10])
    >>> has_common_value(np.array([[7, 7], [3, 0.5]]), others, 2)
    array([[False,  True],
           [False, False]])
    """
    found = np.zeros(rows.shape, dtype=bool)
    for d, column in enumerate(others.T):
        values, counts = np.unique(column, return_counts=True)
        found[:, d] = np.isin(rows[:, d], values[counts >= fewest])
    return found


def split_by_value(terms: Array, is_common: NDArray[np.bool_]) -> tuple[float, float]:
    """Nats a row that common values give, as `has_common_value` tells them, and all others.

    An infinite term counts for its own part alone.

    Examples
    --------
    >>> import numpy as np
    >>> split_by_value(np.array([[2.0, -np.inf], [4.0, 1.0]]), np.array([[True, False]] * 2))
    (3.0, -inf)
    """
    common, others = (np.where(at, terms, 0.0).sum(1).mean() for at in (is_common, ~is_common))
    return float(common), float(others)
