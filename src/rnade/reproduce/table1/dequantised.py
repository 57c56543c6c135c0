"""Table 1 on data that let no density score without bound: no duplicate rows, no rounded values.

    rnade reproduce table1-dequantised --data-dir FOLDER

Rows that occur twice are kept once, and every value is spread over its rounding interval. What is
left of a model's lead over a Gaussian is not owed to spikes on repeated values.
"""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from rnade.data import DataStore, UciSet, load_uci
from rnade.reproduce.core.experiment import Settings
from rnade.reproduce.table1.columns import COLUMNS
from rnade.reproduce.table1.table import PLAN, AbstractUciTable
from rnade.typing import Array

# Of the columns of Table 1.
LEFT_OUT = ("mfa", "fvbn", "rnade-mol", "zuko-maf")
NOISE_SEED = 0
# Share of a column's values that must be multiples of its step; wine's alcohol has a few thirds.
MOSTLY = 0.99
COARSEST_DIGIT, FINEST_DIGIT = -6, 8


class Table1Dequantised(AbstractUciTable):
    """The data without duplicate rows, dequantised."""

    name = "table1-dequantised"
    words = PLAN["tables"]["dequantised"]
    title = words["title"]
    models = tuple(name for name in COLUMNS if name not in LEFT_OUT)
    extra_settings: ClassVar[Settings] = {"noise_seed": NOISE_SEED}

    def load(self, dataset: str, store: DataStore) -> UciSet:
        """Read a data set and dequantise it."""
        return dequantised(load_uci(dataset, store), NOISE_SEED)


def dequantised(table: UciSet, seed: int) -> UciSet:
    """Drop rows that are there already, and spread each value over its rounding interval.

    Uniform noise as wide as a column's rounding step makes rounded values what they were rounded
    from, as far as anyone can tell; a density on them is bounded by the probabilities of the
    rounded values.
    """
    _, first = np.unique(table.X, axis=0, return_index=True)
    kept = np.sort(first)
    X = table.X[kept]
    noise = np.random.default_rng(seed).uniform(-0.5, 0.5, X.shape)
    blocks, row_order = table.blocks, table.row_order
    if blocks is not None and row_order is not None:
        place = np.full(len(table.X), -1)
        place[kept] = np.arange(len(kept))
        moved = place[row_order]
        blocks, row_order = blocks[kept], moved[moved >= 0]
    return replace(table, X=X + noise * rounding_steps(X), blocks=blocks, row_order=row_order)


def rounding_steps(X: Array) -> Array:
    """Give the largest power of ten that nearly all values of each column are multiples of.

    Examples
    --------
    >>> import numpy as np
    >>> rounding_steps(np.array([[0.25, 300.0], [1.5, 210.0], [2.0, 120.0]]))
    array([ 0.01, 10.  ])
    """
    return np.array([_step(column) for column in X.T])


def _step(column: Array) -> float:
    for digit in range(COARSEST_DIGIT, FINEST_DIGIT + 1):
        in_steps = column * 10.0**digit
        if np.ptp(in_steps) < 1:
            continue
        # Decimal fractions are not exact in binary: a millionth of a step is no difference.
        whole = np.abs(in_steps - np.round(in_steps)) < 1e-6
        if whole.mean() >= MOSTLY:
            return float(10.0**-digit)
    return 0.0


EXPERIMENT = Table1Dequantised()
