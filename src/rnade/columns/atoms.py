"""Single values that hold an excess share of a column, and those that may mean "missing"."""

import numpy as np
from numpy.typing import NDArray

from rnade.typing import Array

# A value is an atom only if it holds this share of the observed rows and so many of them.
ATOM_SHARE = 0.02
ATOM_ROWS = 5
# How many times as often as other values an atom occurs.
ATOM_EXCESS = 4
# Distinct values on each side that a value is compared with; with fewer than this in all, a
# column is a coarse scale, where neighbouring values may well differ so much.
NEIGHBOURS = 10

# Numbers that people write where there is none.
CODES = [-1.0] + [sign * (10.0**n - 1) for n in range(1, 7) for sign in (-1, 1)]
CODE_SHARE = 0.005
CODE_ROWS = 3


def find_atoms(values: Array) -> tuple[float, ...]:
    """Values that hold an excess share of a column of real numbers, in ascending order.

    An atom occurs at least `ATOM_EXCESS` times as often as all values that are not atoms, or as
    the nearest ones that are not. Rounded columns, in which every value is repeated, have none:
    there the count of a value is much like that of the values beside it.

    Parameters
    ----------
    values : array of shape (N,)
        The observed cells.

    Examples
    --------
    >>> find_atoms(np.r_[np.zeros(30), np.linspace(0.1, 5, 70)])
    (0.0,)
    """
    distinct, counts = np.unique(values, return_counts=True)
    fewest = max(ATOM_ROWS, ATOM_SHARE * len(values))
    candidates = int((counts >= fewest).sum())
    if not candidates or len(distinct) <= NEIGHBOURS:
        return ()
    often = np.argsort(-counts, kind="stable")
    ranked = counts[often]
    # The last place in the ranking where the counts drop steeply parts atoms from the rest.
    last = min(candidates, len(distinct) - NEIGHBOURS)
    drops = np.flatnonzero(ranked[:last] >= ATOM_EXCESS * ranked[1 : last + 1])
    is_atom = np.zeros(len(distinct), dtype=bool)
    is_atom[often[: drops[-1] + 1 if len(drops) else 0]] = True
    for i in often[:candidates]:
        if not is_atom[i]:
            is_atom[i] = counts[i] >= ATOM_EXCESS * _most_nearby(i, counts, is_atom)
    # Adding 0 turns -0 into 0.
    return tuple(float(value) + 0.0 for value in distinct[is_atom])


def _most_nearby(i: int, counts: NDArray[np.int_], is_atom: NDArray[np.bool_]) -> float:
    """Largest count of the values next to value i that are not atoms; infinite if they are few."""
    others = np.flatnonzero(~is_atom)
    place = int(np.searchsorted(others, i))
    near = np.r_[others[max(place - NEIGHBOURS, 0) : place], others[place + 1 :][:NEIGHBOURS]]
    return float(counts[near].max()) if len(near) >= NEIGHBOURS else np.inf


def find_codes(values: Array) -> list[tuple[float, int]]:
    """Numbers that look like codes for missing cells, each with the number of its rows.

    Such a code lies further from all other values than these from each other, or is -999, -9999
    and so on where all others are 0 or more.
    """
    distinct, counts = np.unique(values, return_counts=True)
    may_be = np.isin(distinct, CODES) & (counts >= CODE_ROWS)
    found: list[tuple[float, int]] = []
    if not may_be.any():
        return found
    # The code furthest out first, so that a second one (-99 beside -999) shows once it is gone.
    centre = float(np.median(values))
    kept = np.ones(len(distinct), dtype=bool)
    for i in sorted(np.flatnonzero(may_be), key=lambda i: -abs(distinct[i] - centre)):
        others = distinct[kept & (np.arange(len(distinct)) != i)]
        if len(others) < 2:
            break
        value = float(distinct[i])
        gap = np.abs(others - value).min()
        apart = gap > np.ptp(others) and counts[i] >= CODE_SHARE * len(values)
        below_zero = value <= -999 and others[0] >= 0
        if apart or below_zero:
            kept[i] = False
            found.append((value, int(counts[i])))
    return sorted(found)
