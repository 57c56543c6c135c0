"""Training a network for each column of a table: how large, how long, and on which rows."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from rnade.batch import Batch
from rnade.columns.links import Link
from rnade.columns.partition import ColumnCells
from rnade.nn.columns_apart import ColumnNetworks
from rnade.training.any_order import AnyOrderRows, with_places
from rnade.training.member import Member
from rnade.training.recipe import Recipe
from rnade.training.table import (
    TablePlan,
    dropout_of,
    judging_held_out,
    network_shape,
    orders_of,
    told,
    work_of_a_row,
)

# Multiplications and additions that a fit may take: fewer than of networks for all columns, since
# many small products take longer than few large ones.
WORK = {"cpu": 5e12, "cuda": 1e14}
# Of each network: there are as many as columns, and each sees all of them.
UNITS, LAYERS = 64, 1
FEWEST_UPDATES, MOST_UPDATES = 400, 3500


def plan_columns(
    n_rows: int,
    columns: Sequence[ColumnCells],
    device: str,
    *,
    n_components: int,
    n_hidden: int | None = None,
) -> TablePlan:
    """Choose sizes by the table, within the work that a fit may take.

    Parameters
    ----------
    n_rows : int
        Of training.
    columns : sequence of ColumnCells
    device : "cpu" or "cuda"
    n_components, n_hidden : int, optional
        Those that the user has chosen.
    """
    D, H, L = len(columns), n_hidden or UNITS, LAYERS
    batch = 128 if n_rows < 5000 else 256
    work = work_of_a_row(columns, H, L, n_components, apart=True) * batch
    wanted = min(max(25 * math.sqrt(n_rows), FEWEST_UPDATES), MOST_UPDATES)
    return TablePlan(
        n_networks=D,
        n_hidden=H,
        n_layers=L,
        n_components=n_components,
        dropout=dropout_of(n_rows),
        n_orders=orders_of(D),
        batch_size=min(batch, n_rows),
        n_updates=round(max(min(wanted, WORK[device] / work), FEWEST_UPDATES)),
    )


def columns_member(
    columns: Sequence[ColumnCells],
    X: Any,
    weights: Tensor | None,
    plan: TablePlan,
    recipe: Recipe,
    seed: int,
    device: torch.device,
    links: Sequence[Link],
    held_out: Batch,
) -> Member:
    """A network for each column, ready for a bank.

    Parameters
    ----------
    columns : sequence of ColumnCells
    X : array of shape (N, D)
        Training values, NaN where missing.
    weights : Tensor of shape (N,), optional
    plan, recipe
    seed : int
    device : torch.device
    links : sequence of Link
        Counted in X.
    held_out : Batch
        Values, x of shape (n, D): each network keeps the weights that predict its column best
        there.
    """
    cells, seen = told(columns, X, weights, links, device)
    generator = Generator(device).manual_seed(seed)
    source = AnyOrderRows(cells, seen, generator, weights=weights, roles=with_places)
    drawn, shape = Generator().manual_seed(seed), network_shape(plan.settings())
    module = ColumnNetworks(columns, **shape, links=links, generator=drawn).to(device)
    judged = judging_held_out(columns, held_out, links, device, seed, with_places)
    return Member(module, recipe, source, judged)
