"""What the page carries of a fitted table: columns, networks, orders and links."""

from collections.abc import Sequence
from typing import Any

import torch

from rnade.columns import Column, Schema
from rnade.columns.values import levels_of, zone_of
from rnade.explore.packing import Block, pack
from rnade.nn.any_order import AnyOrderModule
from rnade.nn.columns_apart import ColumnNetworks
from rnade.nn.table import TableDensity
from rnade.typing import Array

# Weights by name: rounded, and kept exactly.
_ROUNDED, _EXACT = ("W", "U", "Q", "V", "G"), ("c", "u", "b", "g")


def network_blocks(table: TableDensity) -> list[Block]:
    """The weights of each network as text."""
    networks = table.networks
    tensors = {name: t.detach().double().cpu().numpy() for name, t in networks.named_parameters()}

    def some(names: Sequence[str], m: int, at: int) -> dict[str, Array]:
        return {f"network {m} {n}": tensors[n][at] for n in names if n in tensors}

    places = list(range(networks.n_models))
    if isinstance(networks, ColumnNetworks):  # in the order of the columns
        places = [networks.predicted().index(d) for d in places]
    return [pack(some(_EXACT, m, at), some(_ROUNDED, m, at)) for m, at in enumerate(places)]


def table_block(table: TableDensity) -> Block:
    """How the columns are cut, what links have counted, and the Gaussians, as text."""
    arrays: dict[str, Array] = {}
    for d, column in enumerate(table.columns):
        arrays |= {f"column {d} {name}": a for name, a in column.arrays().items()}
    for i, link in enumerate(table.links):
        own = ("sources", "signs", "counts", "prior")
        arrays |= {f"link {i} {name}": link.arrays()[name] for name in own}
    if table.gaussians is not None:
        own_tensors = table.gaussians.state_dict().items()
        arrays |= {f"gaussians {name}": t.double().cpu().numpy() for name, t in own_tensors}
    return pack(arrays, {})


def part_of(table: TableDensity, n_networks: int) -> TableDensity:
    """The average over the first networks of a table, each along the orders that it goes along.

    There is at least one; of networks for a column each there are always all.
    """
    networks = table.networks
    if isinstance(networks, ColumnNetworks) or n_networks >= networks.n_models:
        return table
    few: Any = AnyOrderModule.stack([networks.one(m) for m in range(n_networks)])
    own = torch.arange(table.n_orders) % networks.n_models < n_networks
    orders = table.orders.cpu()[own]
    return TableDensity(table.columns, few, orders, table.indicators, table.gaussians)


def facts_of(table: TableDensity, schema: Schema) -> dict[str, Any]:
    """What the page must know beside the arrays, as JSON holds it."""
    networks, D = table.networks, table.n_dimensions
    apart = isinstance(networks, ColumnNetworks)
    return {
        "columns": [_column(column) for column in schema.columns],
        "n_components": networks.n_components,
        "apart": apart,
        "predicts": [[d] for d in range(D)] if apart else [list(range(D))] * networks.n_models,
        "orders": table.orders.tolist(),
        "links": [{"target": link.target} for link in table.links],
        "gaussians": table.gaussians is not None,
    }


def _column(column: Column) -> dict[str, Any]:
    name, kind, details = column.describe()
    return {
        "name": name,
        "kind": kind,
        "details": details,
        "levels": levels_of(column) if column.levels is not None else None,
        "unit": column.unit,
        "zone": zone_of(column),
        "step": column.step,
        "indicates": column.indicates,
    }
