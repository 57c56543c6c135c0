"""Any-order networks beside a fixed-order model of real columns: how large and how long.

They answer questions about some columns given others. A fit should not take much longer for them,
so that they are smaller than those of a table that has nothing else (`rnade.training.table`).
"""

import math
from collections.abc import Sequence

from rnade.columns.partition import ColumnCells
from rnade.training.recipe import Recipe
from rnade.training.table import (
    EFFORTS,
    EPOCHS,
    TablePlan,
    orders_of,
    table_recipe,
    work_of_a_row,
)
from rnade.typing import Array

# Multiplications and additions that training may take: for each value of the table, and in all.
WORK_OF_A_VALUE, LEAST_WORK = 2e7, 1e10
MOST_WORK = {"cpu": 2.5e12, "cuda": 2e13}
# Of these there are always some, however wide the table.
FEWEST_UPDATES, MOST_UPDATES = 150, 10_000
# Units, layers and rows of a minibatch, from so many rows on.
SIZES = {3000: (256, 3, 256), 1000: (192, 2, 128), 500: (128, 2, 128), 0: (128, 2, 64)}
COMPONENTS = 8
# Share of units left out: so many times one over the rows, and at most.
DROPPED_ROWS, MOST_DROPPED = 120, 0.2
# Rows for each interval that a column is cut into: smooth columns need hardly any.
ROWS_OF_A_CELL, MOST_CELLS = 1000, 8


def cut_smoothly(X: Array, weights: Array | None) -> list[ColumnCells]:
    """Cut real columns, which have no atoms, into few intervals.

    With the intervals of `rnade.training.table`, log densities of hidden cells were up to 0.8 nats
    a row worse, from as many updates, on the paper's wines and on Gaussian rows.

    Parameters
    ----------
    X : array of shape (N, D)
    weights : array of shape (N,), optional
    """
    n_cells = min(max(len(X) // ROWS_OF_A_CELL, 1), MOST_CELLS)
    return [ColumnCells.of_numbers(x, whole=False, weights=weights, n_cells=n_cells) for x in X.T]


def plan_questions(
    n_rows: int, columns: Sequence[ColumnCells], device: str, effort: str = "default"
) -> TablePlan:
    """Sizes of one network and of its training, by the table.

    Parameters
    ----------
    n_rows : int
        Of training.
    columns : sequence of ColumnCells
    device : "cpu" or "cuda"
    effort : "fast", "default" or "best"
        How much may be trained.
    """
    H, L, batch = next(size for least, size in SIZES.items() if n_rows >= least)
    work = work_of_a_row(columns, H, L, COMPONENTS) * batch
    affordable = min(max(WORK_OF_A_VALUE * n_rows * len(columns), LEAST_WORK), MOST_WORK[device])
    affordable *= EFFORTS[effort]
    return TablePlan(
        n_networks=1,
        n_hidden=H,
        n_layers=L,
        n_components=COMPONENTS,
        dropout=min(DROPPED_ROWS / n_rows, MOST_DROPPED),
        n_orders=orders_of(len(columns)),
        batch_size=min(batch, n_rows),
        n_updates=math.floor(min(max(affordable / work, FEWEST_UPDATES), MOST_UPDATES)),
    )


def questions_recipe(plan: TablePlan, n_columns: int, epochs: int | None) -> Recipe:
    """How such a network is trained; at most for as many epochs as the user said."""
    return table_recipe(
        plan,
        n_columns,
        learning_rate=0.5 / plan.n_hidden,
        epochs=EPOCHS if epochs is None else min(epochs, EPOCHS),
    )
