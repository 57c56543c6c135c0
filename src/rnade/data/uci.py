"""The five UCI tables of the paper's Table 1, with its choice of columns."""

from dataclasses import dataclass
from io import StringIO

import numpy as np

from rnade.checks import unknown_name
from rnade.data.splits import Fold, Rows, folds_from_blocks, make_folds
from rnade.data.store import DataStore
from rnade.typing import Array

# A column with fewer distinct values counts as discrete; 27 to 46 choose the same columns.
MIN_DISTINCT = 40
MAX_CORRELATION = 0.98


_HOUSING = "CRIM ZN INDUS CHAS NOX RM AGE DIS RAD TAX PTRATIO B LSTAT MEDV"
# File, separator (None for blanks), and the names of columns where no header has them.
_LAYOUTS: dict[str, tuple[str, str | None, tuple[str, ...]]] = {
    "red-wine": ("uci/winequality-red.csv", ";", ()),
    "white-wine": ("uci/winequality-white.csv", ";", ()),
    "parkinsons": ("uci/parkinsons_updrs.data", ",", ()),
    # The 35th column is the class, a letter.
    "ionosphere": ("uci/ionosphere.data", ",", tuple(f"V{i}" for i in range(34))),
    "boston": ("uci/housing.data", None, tuple(_HOUSING.split())),
}
UCI_SETS = tuple(_LAYOUTS)


@dataclass(frozen=True)
class UciSet:
    """A table with the columns that the paper's rule leaves.

    Attributes
    ----------
    name : str
    columns : tuple of str
        Names of the kept columns.
    X : array of shape (N, D)
        In the file's units and row order.
    dropped : dict of str to str
        The other columns, and why each was dropped.
    blocks : array of shape (N,), or None
        The test fold, 0 to 9, that the authors put each row in (red wine only).
    row_order : array of shape (N,), or None
        The authors' order of the rows (red wine only).
    """

    name: str
    columns: tuple[str, ...]
    X: Array
    dropped: dict[str, str]
    blocks: Rows | None = None
    row_order: Rows | None = None

    def folds(self, n_folds: int = 10, *, seed: int = 0) -> list[Fold]:
        """Ten folds: the authors' own for red wine, random ones by `seed` for the others."""
        if self.blocks is None or self.row_order is None or n_folds != 10:
            return make_folds(len(self.X), n_folds, seed=seed)
        ordered = [self.row_order[self.blocks[self.row_order] == k] for k in range(10)]
        return folds_from_blocks(ordered, validation="last")


def load_uci(name: str, store: DataStore) -> UciSet:
    """Read one of `UCI_SETS`; drop its discrete and redundant columns, as the paper does."""
    if name not in _LAYOUTS:
        raise unknown_name(name, list(UCI_SETS), "data set")
    path, separator, names = _LAYOUTS[name]
    text = store.read(path).decode("ascii")
    if not names:
        header, text = text.split("\n", 1)
        names = tuple(cell.strip('"') for cell in header.strip().split(separator))
    values = np.loadtxt(StringIO(text), delimiter=separator, usecols=range(len(names)), ndmin=2)
    kept, dropped = choose_columns(values, names)
    blocks, row_order = _authors_folds(store) if name == "red-wine" else (None, None)
    return UciSet(name, tuple(names[d] for d in kept), values[:, kept], dropped, blocks, row_order)


def choose_columns(values: Array, names: tuple[str, ...]) -> tuple[list[int], dict[str, str]]:
    """Choose columns by the paper's rule: no discrete ones, and one of each correlated pair.

    A column is discrete if all its values are whole numbers or if it has fewer than
    `MIN_DISTINCT` distinct ones. Then, from left to right, a column is dropped if a later one
    that is not discrete has an absolute Pearson correlation above `MAX_CORRELATION` with it.

    Returns
    -------
    kept : list of int
    dropped : dict of str to str
        Why each other column was dropped.
    """
    dropped: dict[str, str] = {}
    continuous = []
    for d, name in enumerate(names):
        column = values[:, d]
        if (column == np.round(column)).all():
            dropped[name] = "whole numbers"
        elif (n := len(np.unique(column))) < MIN_DISTINCT:
            dropped[name] = f"{n} distinct values"
        else:
            continuous.append(d)
    correlation = np.abs(np.corrcoef(values[:, continuous], rowvar=False))
    kept = []
    for i, d in enumerate(continuous):
        later = np.flatnonzero(correlation[i, i + 1 :] > MAX_CORRELATION)
        if len(later):
            twin = names[continuous[i + 1 + int(later[0])]]
            dropped[names[d]] = f"correlates with {twin}"
        else:
            kept.append(d)
    return kept, dropped


def _authors_folds(store: DataStore) -> tuple[Rows, Rows]:
    """Fold of each row of the red-wine file, and the authors' order of the rows."""
    text = store.read("uci/red_wine_paper_folds.csv").decode("ascii")
    order, fold = np.loadtxt(StringIO(text), delimiter=",", skiprows=1, dtype=np.int64).T
    blocks = np.empty(len(order), dtype=np.int64)
    blocks[order] = fold - 1
    return blocks, order
