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
        The other column with which this one shares the most information, by itself.
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
    names: list[str], order: list[int] | None, terms: Array, alone: Array, shared: Array
) -> list[Gain]:
    """Compare the model's terms with those of independent columns, row by row.

    Parameters
    ----------
    names : list of str
    order : list of int, or None
        Which column comes first, second and so on in the model; None if it has no one order.
    terms, alone : array of shape (n, D)
        Log conditionals of the model, and log densities of columns by themselves, for the same
        rows.
    shared : array of shape (D, D)
        Mutual information of pairs of columns.

    Returns
    -------
    list of Gain
        In the model's order, or that of the columns.
    """
    difference = terms - alone
    mean = difference.mean(axis=0)
    error = difference.std(axis=0, ddof=1) / np.sqrt(len(difference))
    found = []
    for place, d in enumerate(range(len(names)) if order is None else order, start=1):
        position = 0 if order is None else place
        partner = int(shared[d].argmax())
        has_partner = shared[d, partner] > 0
        found.append(
            Gain(
                column=names[d],
                position=position,
                gain=float(mean[d]),
                standard_error=float(error[d]),
                closest=names[partner] if has_partner else None,
                shared=float(shared[d, partner]) if has_partner else 0.0,
            )
        )
    return found
