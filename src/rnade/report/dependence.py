"""What each column owes to the columns before it."""

from dataclasses import dataclass

import numpy as np

from rnade.typing import Array


@dataclass(frozen=True)
class Gain:
    """What a column's log-likelihood gains from the columns before it in the model's order.

    Attributes
    ----------
    column : str
    position : int
        In the model's order, from 1; the first column has nothing before it. 0 where the model is
        an average over several orders: then the gain is one from other columns, on average.
    gain : float
        Mean over the judged rows of log p(x_d | x_<d) minus the log density of the column by
        itself, in nats.
    standard_error : float
    closest : str or None
        The other column with which this one shares the most information, by itself; None where
        there is none, and of columns beyond the `MOST_SHOWN` with the largest gains.
    shared : float
        How many nats that is.
    """

    column: str
    position: int
    gain: float
    standard_error: float
    closest: str | None
    shared: float


def gains(
    names: list[str],
    order: list[int] | None,
    difference: Array,
    closest: dict[int, tuple[int, float]],
) -> list[Gain]:
    """Say what each column gains, from its log conditionals less its log densities by itself.

    Parameters
    ----------
    names : list of str
    order : list of int, or None
        Which column comes first, second and so on in the model; None if it has no one order.
    difference : array of shape (n, D)
        Row by row; NaN where a cell is missing. Columns with fewer than two cells are left out.
    closest : dict of int to (int, float)
        For some columns the one that shares the most information with it, and how much.
    """
    found = []
    for place, d in enumerate(range(len(names)) if order is None else order, start=1):
        own = difference[~np.isnan(difference[:, d]), d]
        if len(own) < 2:
            continue
        partner, shared = closest.get(d, (None, 0.0))
        position = 0 if order is None else place
        nearest = None if partner is None else names[partner]
        error = float(own.std(ddof=1) / np.sqrt(len(own)))
        found.append(Gain(names[d], position, float(own.mean()), error, nearest, shared))
    return found
