"""Folds: which rows train, which choose settings, which test."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rnade.checks import positive_int

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Fold:
    """Row numbers of one fold; the three parts are disjoint and together are all rows."""

    train: Rows
    validation: Rows
    test: Rows

    @property
    def all_training(self) -> Rows:
        """Rows that are not for testing: what a model is trained on once settings are chosen."""
        return np.concatenate([self.train, self.validation])


def make_folds(n_rows: int, n_folds: int = 10, *, seed: int = 0) -> list[Fold]:
    """Cut rows into random folds; of the rows left for training, a part chooses settings.

    With ten folds a tenth of the rows tests, and a ninth of the others validates: the next tenth,
    so that every row validates once.

    Parameters
    ----------
    n_rows : int
    n_folds : int
        At least 3.
    seed : int
        Of the rows' order. The same seed gives the same folds everywhere.
    """
    if positive_int(n_folds, "n_folds") < 3 or n_folds > n_rows:
        raise ValueError(f"n_folds must be from 3 to the number of rows, {n_rows}; got {n_folds}.")
    order = np.random.default_rng(seed).permutation(n_rows)
    return folds_from_blocks(np.array_split(order, n_folds), validation="next")


def folds_from_blocks(
    blocks: Sequence[Rows], *, validation: Literal["next", "last"]
) -> list[Fold]:
    """Make a fold of each block of rows, which tests; of the others, one validates.

    It is the next after the test block, round to the first; or the last of the others, as in the
    authors' released script.
    """
    folds = []
    for k, test in enumerate(blocks):
        others = [i for i in range(len(blocks)) if i != k]
        chosen = (k + 1) % len(blocks) if validation == "next" else others[-1]
        train = np.concatenate([blocks[i] for i in others if i != chosen])
        folds.append(Fold(train, blocks[chosen], test))
    return folds
