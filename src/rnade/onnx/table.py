"""Tables of any kind as ONNX graphs: log densities of rows, and of one column given others."""

import math
from collections.abc import Sequence

import numpy as np

from rnade.columns.partition import ColumnCells
from rnade.nn.any_order import AnyOrderModule
from rnade.nn.gaussians import FARTHEST
from rnade.nn.table import AbstractTableDensity, TableDensity
from rnade.onnx.cells import NOWHERE, encode, link_terms, log_terms
from rnade.onnx.gaussians import with_gaussians
from rnade.onnx.graph import Graph, Value
from rnade.typing import Array


class Networks:
    """The networks of a table as constants of a graph, and what they compute.

    Parameters
    ----------
    g : Graph
    x : Value of shape (B, D)
        Numbers and codes of levels; NaN where a cell is not observed.
    table : TableDensity
    """

    def __init__(self, g: Graph, x: Value, table: AbstractTableDensity) -> None:
        if not isinstance(table, TableDensity) or not isinstance(table.networks, AnyOrderModule):
            raise TypeError(
                "Only tables modelled by RNADE have an ONNX form; fit RNADE in place of FVBN or"
                " MixtureOfColumns."
            )
        self.g, self.table, networks = g, table, table.networks
        self.columns = table.columns
        self.cells = [encode(g, x.take(d, 1), c) for d, c in enumerate(self.columns)]
        self.links = [
            [link_terms(g, k, self.cells, self.columns) for k in own] for own in networks.links
        ]
        self.weights: dict[str, Array] = {
            name: t.detach().double().cpu().numpy() for name, t in networks.named_parameters()
        }
        layout = networks.layout
        self.first = layout.inputs.tolist()
        self.place = {int(d): i for i, d in enumerate(layout.numbers.tolist())}
        self.n_cells = layout.n_inputs - len(self.place) - len(self.columns)

    def start(self, models: Sequence[int]) -> Value:
        """What enters the residual layers while no cell is known, (R, B, H)."""
        blank = self.cells[0].value.unsqueeze(0).unsqueeze(-1) * 0.0
        return blank + self.weights["c"][list(models)]

    def step(self, models: Sequence[int], columns: Sequence[int], known: Sequence[Value]) -> Value:
        """What one column for each of R models adds, (R, B, H), where its cell is known."""
        g, W = self.g, self.weights["W"]
        rows, places, spans = [], [], []
        for m, d in zip(models, columns, strict=True):
            code = g("Max", self.cells[d].code, 0.0).whole()
            table = W[m, self.first[d] : self.first[d] + self.columns[d].n_cells]
            rows.append(g("Gather", table, code, axis=0))
            spans.append(W[m, self.n_cells + len(self.place) + d])
            at = self.place.get(d)
            places.append(np.zeros_like(spans[-1]) if at is None else W[m, self.n_cells + at])
        told = g.stack([k.real() for k in known]).unsqueeze(-1)
        in_cell = g.stack([(self.cells[d].code >= 0.0).real() for d in columns]).unsqueeze(-1)
        t = g.stack([self.cells[d].position.clip(-FARTHEST, FARTHEST) for d in columns])
        added = g.stack(rows) * in_cell + t.unsqueeze(-1) * np.stack(places)[:, None]
        return (added + np.stack(spans)[:, None]) * told

    def log_densities(
        self,
        s: Value,
        models: Sequence[int],
        columns: Sequence[int],
        known: Sequence[dict[int, Value]],
    ) -> Value:
        """Log densities of one column for each of R models, (R, B), from s (R, B, H).

        `known` says for each which cells have been told, of bool by column.
        """
        g, weights = self.g, self.weights
        h = self._hidden(s, list(models))
        own = [self.columns[d] for d in columns]
        K = self.table.networks.n_components * any(column.has_smooth for column in own)
        V, b = self._heads(list(models), columns, own, K)
        terms = log_terms(g, h @ V + b, [self.cells[d] for d in columns], own, K)
        R = self.table.networks.n_links
        if not R:
            return terms
        at = np.asarray(columns)[:, None] * R + np.arange(R)
        pick = np.asarray(models)[:, None]
        G = weights["G"].transpose(0, 2, 1)[pick, at].transpose(0, 2, 1)  # (R models, H, R)
        gates = h @ G + weights["g"][pick, 0, at][:, None]
        return self._with_links(terms, gates, columns, known)

    def _with_links(
        self, terms: Value, gates: Value, columns: Sequence[int], known: Sequence[dict[int, Value]]
    ) -> Value:
        """Mix what heads and links say; a link counts where it says something and is told."""
        g, R = self.g, self.table.networks.n_links
        blank = self.cells[0].value * 0.0
        said, there = [], []
        for d, told in zip(columns, known, strict=True):
            links = self.table.networks.links[d]
            pairs = list(zip(links, self.links[d], strict=True))
            for link, (term, says) in pairs:
                for source in link.sources:
                    says = says & told.get(int(source), blank > 1.0)
                said.append(term)
                there.append(says.real())
            said += [blank] * (R - len(pairs))
            there += [blank] * (R - len(pairs))
        shape = np.array([len(columns), R, -1], np.int64)
        of_links = g("Reshape", g.stack(said), shape).transpose(0, 2, 1)
        is_there = g("Reshape", g.stack(there), shape).transpose(0, 2, 1) > 0.5
        gates = g.where(is_there, gates, NOWHERE)
        shares = g("LogSoftmax", g.concat([terms.unsqueeze(-1) * 0.0, gates], -1), axis=-1)
        parts = g.concat([terms.unsqueeze(-1), g.where(is_there, of_links, 0.0)], -1)
        return (parts + shares).logsumexp()

    def _hidden(self, s: Value, models: list[int]) -> Value:
        weights = self.weights

        def units(value: Value) -> Value:
            # As it is written: runtimes fuse a product with a sigmoid into a kernel of float32.
            return value / ((-value).exp() + 1.0)

        for layer in range(weights["U"].shape[1]):
            inner = units(s) @ weights["U"][models, layer] + weights["u"][models, layer]
            s = s + units(inner) @ weights["Q"][models, layer]
        return units(s)

    def _heads(
        self, models: list[int], columns: Sequence[int], own: Sequence[ColumnCells], K: int
    ) -> tuple[Array, Array]:
        """Weights and biases of the outputs as if all columns had the most; see `log_terms`."""
        C = max(column.n_cells for column in own)
        V = np.zeros((len(models), self.weights["V"].shape[1], C + 3 * K))
        b = np.full((len(models), 1, C + 3 * K), NOWHERE)
        b[..., C + K :] = 0.0
        for r, (m, d, column) in enumerate(zip(models, columns, own, strict=True)):
            at = self.table.networks.layout.outputs_of(d)
            n = column.n_cells
            places = np.r_[:n, C : C + 3 * K] if column.has_smooth else np.r_[:n]
            V[r][:, places] = self.weights["V"][m][:, at]
            b[r, 0, places] = self.weights["b"][m, 0, at]
        return V, b


def log_density(g: Graph, x: Value, table: AbstractTableDensity) -> Value:
    """Log density of what is observed of each row, (B,)."""
    networks = Networks(g, x, table)
    assert isinstance(table, TableDensity)
    orders = table.orders.cpu().numpy()
    models = [r % table.networks.n_models for r in range(len(orders))]
    s, total = networks.start(models), None
    known: list[dict[int, Value]] = [{} for _ in models]
    for columns in orders.T.tolist():
        seen = [networks.cells[d].seen for d in columns]
        terms = networks.log_densities(s, models, columns, known)
        terms = g.where(g.stack(seen), terms, 0.0)
        total = terms if total is None else total + terms
        s = s + networks.step(models, columns, seen)
        for told, d, own in zip(known, columns, seen, strict=True):
            told[d] = own
    assert total is not None
    return total.logsumexp(0) - math.log(len(orders))


def log_conditional(g: Graph, x: Value, table: AbstractTableDensity, d: int) -> Value:
    """Log density of column d of each row given all other cells that are observed, (B,)."""
    networks = Networks(g, x, table)
    assert isinstance(table, TableDensity)
    models = list(range(table.networks.n_models))
    given: dict[int, Value] = {
        other: cells.seen
        for other, cells in enumerate(networks.cells)
        if other not in (d, table.indicators.get(d))
    }
    s = networks.start(models)
    for other, told in given.items():
        s = s + networks.step(models, [other] * len(models), [told] * len(models))
    terms = networks.log_densities(s, models, [d] * len(models), [given] * len(models))
    found = terms.logsumexp(0) - math.log(len(models))
    if table.gaussians is None:
        return found
    column = table.columns[d]
    return with_gaussians(g, found, table.gaussians, d, column, networks.cells, given)
