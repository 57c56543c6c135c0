"""Training the networks of a table: how large, how many, how long, and on which rows."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from rnade.batch import Batch
from rnade.columns.links import Link
from rnade.columns.partition import ColumnCells
from rnade.nn.any_order import AnyOrderModule
from rnade.nn.table import encoded
from rnade.training.any_order import AnyOrderRows, Roles, with_roles
from rnade.training.folds import N_FOLDS, covering, fold_rows
from rnade.training.member import Member
from rnade.training.recipe import MODERN, Recipe

# Networks at most; each leaves out another part of the rows, which stop its training.
MOST_NETWORKS = N_FOLDS
# Multiplications and additions that a fit may take, so that it lasts a minute or so.
WORK = {"cpu": 1.1e13, "cuda": 2e14}
# How many times as many by effort.
EFFORTS = {"fast": 0.05, "default": 1.0, "best": 10.0}
# Updates that a network has at least, where the work is not enough for more.
FEWEST_UPDATES = 400
UNITS = {"cpu": 256, "cuda": 512}
# Tables of so many rows have more units on a CPU too, and so have wide ones.
MANY_ROWS, MORE_UNITS = 8000, 320
UNITS_OF_WIDE = 384
# Times an epoch's share of the updates is looked at, and looks without a better score to stop at.
EPOCHS, PATIENCE = 25, 8
# Rows with which the left-out rows are scored, each cut in several ways if they are fewer.
SCORED_ROWS, MOST_CUTS = 8000, 8
# Orders of the columns over which a density is averaged; fewer in wide tables.
ORDERS, WIDE, ORDERS_OF_WIDE = 16, 40, 8


@dataclass(frozen=True)
class TablePlan:
    """Sizes of the networks of a table and of their training; deterministic, kept in the file.

    Attributes
    ----------
    n_networks, n_hidden, n_layers, n_components : int
    dropout : float
    n_orders : int
        Of the columns, over which densities are averaged.
    batch_size, n_updates : int
    n_folds : int
        Parts of the training rows, of which each network leaves one out; 0 for none.
    """

    n_networks: int
    n_hidden: int
    n_layers: int
    n_components: int
    dropout: float
    n_orders: int
    batch_size: int
    n_updates: int
    n_folds: int = 0

    def settings(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)


def plan_table(
    n_rows: int,
    columns: Sequence[ColumnCells],
    device: str,
    *,
    n_components: int,
    n_hidden: int | None = None,
    n_layers: int | None = None,
    n_networks: int | None = None,
    cover: bool = False,
    effort: str = "default",
) -> TablePlan:
    """Choose sizes by the table: more for more rows, within the work that a fit may take.

    Parameters
    ----------
    n_rows : int
        Of training.
    columns : sequence of ColumnCells
    device : "cpu" or "cuda"
    n_components, n_hidden, n_layers, n_networks : int, optional
        Those that the user has chosen.
    cover : bool
        Whether the networks, if there are several, leave out all rows between them.
    effort : "fast", "default" or "best"
        How much may be trained; "fast" is one network.
    """
    units = max(UNITS[device], MORE_UNITS) if n_rows >= MANY_ROWS else UNITS[device]
    units = max(units, UNITS_OF_WIDE) if len(columns) > WIDE else units
    H, L = n_hidden or units, n_layers or 3
    batch = 128 if n_rows < 1000 else 256 if n_rows < 5000 else 512
    updates = round(min(max(25 * math.sqrt(n_rows), FEWEST_UPDATES), 3500))
    affordable = EFFORTS[effort] * WORK[device] / work_of_a_row(columns, H, L, n_components)
    affordable /= batch * updates
    if affordable < 1 and n_networks is None:
        fewest = FEWEST_UPDATES if effort != "fast" else FEWEST_UPDATES // 4
        updates = max(fewest, int(updates * affordable))
    most = 1 if effort == "fast" else MOST_NETWORKS
    networks = n_networks or min(most, max(1, int(affordable)))
    n_folds = N_FOLDS if n_rows >= N_FOLDS else 0
    if cover and n_networks is None:
        networks, share = covering(networks)
        n_folds = min(networks, n_rows) if n_rows > 1 else 0
        updates = max(1, round(share * updates))
    orders = orders_of(len(columns))
    return TablePlan(
        networks,
        H,
        L,
        n_components,
        dropout_of(n_rows),
        math.ceil(orders / networks) * networks,
        min(batch, n_rows),
        updates,
        n_folds,
    )


def work_of_a_row(
    columns: Sequence[ColumnCells],
    n_hidden: int,
    n_layers: int,
    n_components: int,
    *,
    apart: bool = False,
) -> int:
    """Multiplications and additions that a row of a minibatch takes, forward and backward.

    Parameters
    ----------
    columns : sequence of ColumnCells
    n_hidden, n_layers, n_components : int
        Of a network.
    apart : bool
        Of a network for each column, which has outputs for the widest, rather than of one network.
    """
    inputs = sum(column.n_cells + 2 for column in columns)
    outputs = [column.n_cells + 3 * n_components * column.has_smooth for column in columns]
    networks, heads = (len(columns), max(outputs)) if apart else (1, sum(outputs))
    return 6 * networks * (n_hidden * (inputs + heads) + 2 * n_layers * n_hidden**2)


def dropout_of(n_rows: int) -> float:
    """Share of units left out in training: more for fewer rows."""
    return min(max(1500 / n_rows, 0.05), 0.5)


def orders_of(n_columns: int) -> int:
    """Orders of the columns over which a density is averaged."""
    return ORDERS if n_columns <= WIDE else ORDERS_OF_WIDE


def network_shape(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a network is made with, of the settings of a plan (`TablePlan.settings`)."""
    return {name: settings[name] for name in ("n_hidden", "n_layers", "n_components", "dropout")}


def table_recipe(plan: TablePlan, n_columns: int, **changes: Any) -> Recipe:
    """How the networks of a table are trained; `changes` that are not None are the user's."""
    recipe = MODERN.with_changes(
        learning_rate=0.002,
        weight_decay=0.3,
        batch_size=plan.batch_size,
        epochs=EPOCHS,
        batches_per_epoch=max(1, plan.n_updates // EPOCHS),
        patience=PATIENCE,
        averaging=0.998,
        # The gradient of a row grows with its columns.
        clip_norm=float(n_columns),
    )
    return recipe.with_changes(**changes)


def cut_columns(
    kinds: Sequence[Callable[..., ColumnCells]], X: Any, weights: Any = None
) -> list[ColumnCells]:
    """Cut each column by its own function, given its observed values and their weights."""
    found = []
    for cut, column in zip(kinds, X.T, strict=True):
        seen = ~np.isnan(column)
        own = None if weights is None or not seen.any() else weights[seen]
        found.append(cut(column[seen], weights=own))
    return found


def table_members(
    columns: Sequence[ColumnCells],
    X: Any,
    weights: Tensor | None,
    plan: TablePlan,
    recipe: Recipe,
    seed: int,
    device: torch.device,
    links: Sequence[Link] = (),
    held_out: Batch | None = None,
) -> list[Member]:
    """Networks ready for a bank, each with rows of its own left out.

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
    held_out : Batch, optional
        Values, x of shape (n, D), that stop the training of all networks in place of the rows that
        each leaves out: of small tables.
    """
    cells, seen = told(columns, X, weights, links, device)
    shape = network_shape(plan.settings())
    of_all = None if held_out is None else judging_held_out(columns, held_out, links, device, seed)
    N, members = len(X), []
    for m in range(plan.n_networks):
        generator = Generator(device).manual_seed(seed + m)
        left = torch.zeros(N, dtype=torch.bool, device=device)
        if plan.n_folds:
            left[fold_rows(N, m % plan.n_folds, plan.n_folds)] = True
        w = None if weights is None else weights[left]
        judged = judging(cells[left], seen[left], w, seed) if of_all is None else of_all
        source = AnyOrderRows(
            cells[~left],
            seen[~left],
            generator,
            weights=None if weights is None else weights[~left],
        )
        drawn = Generator().manual_seed(seed + m)
        module = AnyOrderModule(columns, **shape, links=links, generator=drawn).to(device)
        members.append(Member(module, recipe, source, judged))
    return members


def told(
    columns: Sequence[ColumnCells],
    X: Any,
    weights: Tensor | None,
    links: Sequence[Link],
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """Cells of training rows, (N, D, 5 + R), which links have counted, and which are observed."""
    counted = np.ones(len(X)) if weights is None else (weights / weights.mean()).cpu().numpy()
    x = encoded(columns, X, links, counted).to(device, torch.float32)
    return x[..., :-1], x[..., -1] > 0


def judging(
    cells: Tensor, seen: Tensor, weights: Tensor | None, seed: int, roles: Roles = with_roles
) -> Batch:
    """Rows that stop training, each with several draws of roles if they are few."""
    cuts = max(1, min(MOST_CUTS, SCORED_ROWS // max(1, len(cells))))
    first, second = (t[:SCORED_ROWS].repeat(cuts, *[1] * (t.ndim - 1)) for t in (cells, seen))
    w = None if weights is None else weights[:SCORED_ROWS].repeat(cuts)
    return Batch(roles(first, second, Generator(cells.device).manual_seed(seed)), w)


def judging_held_out(
    columns: Sequence[ColumnCells],
    held_out: Batch,
    links: Sequence[Link],
    device: torch.device,
    seed: int,
    roles: Roles = with_roles,
) -> Batch:
    """Held-out rows, values of shape (n, D), as `judging` gives those that stop training."""
    x = encoded(columns, held_out.x.cpu().numpy(), links).to(device, torch.float32)
    return judging(x[..., :-1], x[..., -1] > 0, held_out.weights, seed, roles)
