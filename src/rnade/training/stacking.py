"""Stacking: weights of an average of densities, by rows that none of them was trained on."""

import numpy as np
from numpy.typing import NDArray

from rnade.typing import Array

# Rows' worth of weight that all densities share evenly: none is ever left out altogether, since a
# row to come may be one that only it gives a usual density.
PRIOR_ROWS = 1.0
# EM ends where no other weights could gain as many nats a row.
TOLERANCE = 1e-3


def stacking_weights(log_densities: Array, weights: Array | None = None) -> Array:
    r"""Weights that maximise the likelihood of held-out rows, by EM.

    They maximise :math:`\sum_i \log \sum_c w_c p_c(x_i) + \frac{1}{C} \sum_c \log w_c`, whose
    second part is worth one row.

    Each round shares every row among the densities by w_c p_c(x_i), and then gives each density
    the weight of its shares, which multiplies w_c by a gain g_c, the gradient. The objective is
    concave, so that EM finds the best weights from anywhere, and none are better by more than
    :math:`\max_c g_c - 1` nats a row. :math:`\sum_c w_c p_c` is a density as the p_c are.

    Parameters
    ----------
    log_densities : array of shape (C, N)
        Log p_c(x_i) of rows that density c was not trained on, though they may have stopped its
        training; -inf is a density of 0.
    weights : array of shape (N,), optional
        Of the rows; their sum does not matter.

    Returns
    -------
    array of shape (C,)
        All positive, and 1 together.

    Raises
    ------
    ValueError
        If there is no density, a log density is NaN or +inf, or a row has a density of 0 by all.

    References
    ----------
    Smyth and Wolpert (1999), Linearly combining density estimators via stacking.

    Examples
    --------
    >>> import numpy as np
    >>> p = np.array([[0.9, 0.1]] * 200 + [[0.1, 0.9]] * 100)
    >>> stacking_weights(np.log(p.T)).round(2)
    array([0.71, 0.29])
    """
    C, N = log_densities.shape
    if not C:
        raise ValueError("Expected at least one density; got none. Add one that scores all rows.")
    largest = log_densities.max(0)
    _refuse(np.isnan(largest), "numbers", "NaN", "Leave out densities that diverged")
    _refuse(largest == np.inf, "finite densities", "+inf", "Give the densities' scales a floor")
    _refuse(largest == -np.inf, "a density above 0", "0 by all", "Add a broad density")
    p = np.exp(log_densities - largest).T
    n = np.ones(N) if weights is None else weights * (N / weights.sum())
    w = np.full(C, 1 / C)
    while True:
        gains = ((n / (p @ w)) @ p + PRIOR_ROWS / (C * w)) / (N + PRIOR_ROWS)
        if gains.max() <= 1 + TOLERANCE:
            return w
        w = w * gains


def _refuse(bad: NDArray[np.bool_], expected: str, came: str, advice: str) -> None:
    """Raise if any row is bad, and name the first."""
    rows = np.flatnonzero(bad)
    if len(rows):
        raise ValueError(
            f"Expected {expected} for every row; got {came} for {len(rows)} rows, the first of"
            f" which is row {rows[0]}. {advice}."
        )
