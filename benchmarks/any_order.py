"""Ways to train networks for any order of the columns, beside models of fixed orders.

    python -m benchmarks.any_order --data-dir FOLDER [--device cuda] [--page]

On the paper's five tables and on patches of photographs, as real columns, standardised: the mean
log density of rows left out (one in ten), and of half of their cells given the other half. Every
way takes about as much arithmetic. Each fit is a record in results/any-order/records.jsonl.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_sample_image
from torch import Generator, Tensor

from benchmarks import study
from benchmarks.pages import markdown
from rnade import RNADE
from rnade.batch import Batch
from rnade.data.patches import PatchSource
from rnade.data.store import DataStore
from rnade.data.uci import UCI_SETS, load_uci
from rnade.nn.any_order import GIVEN, AnyOrderModule
from rnade.nn.ensemble import log_average
from rnade.nn.questions import log_densities
from rnade.nn.table import TableDensity
from rnade.records import run_facts
from rnade.reproduce.core.runner import RecordFile
from rnade.training import Bank, Member
from rnade.training.any_order import AnyOrderRows, with_roles
from rnade.training.questions import cut_smoothly
from rnade.training.sources import ShuffledRows
from rnade.training.table import TablePlan, table_members, table_recipe

RESULTS = study.folder_of("any-order")
# Where the documentation shows the table.
DOCS = study.ROOT / "docs" / "decisions" / "0016-training-for-any-order.md"
UNITS, LAYERS, COMPONENTS, ROWS, UPDATES = 256, 3, 8, 256, 3000
PATCHES, TEST_PATCHES = 20_000, 2_000
MANY_ORDERS = 64
SEED = 0


def rows_of(name: str, store: DataStore) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training rows, rows left out, and which of the latter's cells to hide."""
    rng = np.random.default_rng(SEED)
    if name == "patches":
        images = [
            load_sample_image(f).mean(2).astype(np.uint8) for f in ("china.jpg", "flower.jpg")
        ]
        cuts = [0, int(0.7 * images[0].shape[1]), images[0].shape[1]]
        train, test = (
            PatchSource([image[:, a:b] for image in images])
            .draw(n, Generator().manual_seed(SEED))
            .double()
            .numpy()
            for (a, b), n in zip(pairwise(cuts), (PATCHES, TEST_PATCHES), strict=True)
        )
    else:
        train, test = study.split(load_uci(name, store).X, rng)
    train, test = study.standardised(train, test)
    return train, test, rng.random(test.shape) < 0.5


class WholeOrders(AnyOrderRows):
    """Each row at every cut of one order: what a scan along the order computes."""

    order: Tensor | None = None

    def _take(self, index: Tensor, n: int, size: int) -> Batch:
        batch = ShuffledRows._take(self, index, n, size)
        x, D = batch.x[..., :-1], batch.x.shape[-2]
        drawn = torch.rand(n, size, D, device=x.device, generator=self.generator)
        order = drawn.argsort(-1) if self.order is None else self.order.expand(n, size, D)
        rank = order.argsort(-1)[:, :, None]
        cut = torch.arange(D, device=x.device)[:, None]
        role = torch.where(rank < cut, GIVEN, (rank == cut) * float(D))
        seed = torch.rand(n, size, 1, 1, device=x.device, generator=self.generator)
        told = torch.stack([role, seed.expand_as(role)], -1).to(x)
        x = torch.cat([x[:, :, None].expand(n, size, D, *x.shape[2:]), told], -1)
        return batch._replace(x=x.flatten(1, 2))


class OneHiddenLayer(AnyOrderModule):
    """Without the residual layers."""

    def _hidden(self, s: Tensor, seed: Tensor | None) -> Tensor:
        unused = self.U.sum((1, 2, 3)) + self.Q.sum((1, 2, 3)) + self.u.sum((1, 2, 3))
        return torch.nn.functional.silu(s) + 0.0 * unused[:, None, None]


class Study:
    """One table: networks of one budget of arithmetic, trained in several ways."""

    def __init__(self, train: np.ndarray, device: str) -> None:
        held_out = len(train) // 10
        self.X, self.device = train[held_out:], torch.device(device)
        self.held_out = Batch(torch.as_tensor(train[:held_out]).to(self.device))
        self.columns = cut_smoothly(self.X, None)
        D = len(self.columns)
        generator = Generator().manual_seed(SEED)
        drawn = [torch.randperm(D, generator=generator) for _ in range(MANY_ORDERS)]
        self.orders = torch.stack(drawn)

    def members(self, layers: int, rows: int, updates: int) -> list[Member]:
        plan = TablePlan(1, UNITS, max(layers, 1), COMPONENTS, 0.0, 16, rows, updates)
        recipe = table_recipe(plan, len(self.columns))
        members = table_members(
            self.columns, self.X, None, plan, recipe, SEED, self.device, held_out=self.held_out
        )
        if layers:
            return members
        shape = {"n_layers": 1, "n_components": COMPONENTS, "dropout": 0.0}
        generator = Generator().manual_seed(SEED)
        module = OneHiddenLayer(self.columns, UNITS, **shape, generator=generator)
        return [replace(members[0], module=module.to(self.device))]

    def updates(self, layers: int) -> int:
        """As many as take the arithmetic of the reference."""
        n = sum(c.n_cells + 2 + c.n_cells + 3 * COMPONENTS for c in self.columns)
        return round(UPDATES * (n + 2 * LAYERS * UNITS) / (n + 2 * layers * UNITS))

    def cuts(self, layers: int = LAYERS, *, power: float = 2.0, of: float = 1.0) -> Any:
        member = self.members(layers, ROWS, round(of * self.updates(layers)))[0]
        return trained(with_source(member, AnyOrderRows, roles=partial(with_roles, power=power)))

    def whole_orders(self, layers: int, *, scanned: bool) -> Any:
        """By a scan every cut of a row costs as much as one; through layers, D times."""
        rows = ROWS if scanned else max(1, round(ROWS / len(self.columns)))
        member = self.members(layers, rows, self.updates(layers))[0]
        return trained(with_source(member, WholeOrders))

    def from_fixed_order(self) -> Any:
        rows = max(1, round(ROWS / len(self.columns)))
        first = with_source(self.members(LAYERS, rows, UPDATES // 2)[0], WholeOrders)
        first.source.order = torch.arange(len(self.columns), device=self.device)
        # What stops it: the fixed order is no random one, so that it goes on to the end.
        start = trained(replace(first, recipe=first.recipe.with_changes(patience=10**6)))
        second = self.members(LAYERS, ROWS, UPDATES // 2)[0]
        return trained(replace(second, module=start))

    def larger_late(self) -> Any:
        start = self.cuts(of=0.5)
        # Twice the units cost four times as much.
        rest = self.members(LAYERS, ROWS, UPDATES // 8)[0]
        return trained(replace(rest, module=doubled(start)))


def with_source(member: Member, kind: type, **settings: Any) -> Member:
    """The same member with other minibatches of the same rows."""
    old: Any = member.source
    x = old.x
    generator = Generator(x.device).manual_seed(SEED)
    return replace(member, source=kind(x[..., :-1], x[..., -1] > 0, generator, **settings))


def trained(member: Member) -> Any:
    bank = Bank([member])
    bank.advance()
    return bank.results()[0].module


def doubled(module: AnyOrderModule) -> AnyOrderModule:
    """A network with twice the units that gives the same: the new ones are not listened to yet."""
    H = module.c.shape[-1]
    larger = AnyOrderModule(
        module.columns,
        2 * H,
        n_layers=module.U.shape[1],
        n_components=module.n_components,
        dropout=module.dropout,
        generator=Generator().manual_seed(SEED + 1),
    ).to(module.device)
    with torch.no_grad():
        for name, old in module._tensors():
            new = getattr(larger, name)
            if name in ("U", "Q", "V"):
                new[..., H:, : old.shape[-1]] = 0
            new[tuple(slice(size) for size in old.shape)] = old
    return larger


def scores(module: Any, study: Study, test: np.ndarray, hidden: np.ndarray) -> dict[str, float]:
    table = TableDensity(study.columns, module, study.orders).to(study.device).double()
    table.requires_grad_(False)
    joint = log_densities(table, test, np.zeros(test.shape[1], bool))
    halves = log_densities(table, test, ~hidden)[:16]
    found = {f"orders_{n}": log_average(joint[:n]).mean().item() for n in (1, 4, 16, MANY_ORDERS)}
    return found | {"half_hidden": log_average(halves).mean().item()}


WAYS: dict[str, Callable[[Study], Any]] = {
    "one cut a row, more often near the end": lambda s: s.cuts(),
    "one cut a row, as often anywhere": lambda s: s.cuts(power=1.0),
    "whole orders": lambda s: s.whole_orders(LAYERS, scanned=False),
    "one hidden layer, one cut a row": lambda s: s.cuts(0),
    "one hidden layer, whole orders by the scan": lambda s: s.whole_orders(0, scanned=True),
    "from a fixed order's weights": lambda s: s.from_fixed_order(),
    "twice the units late": lambda s: s.larger_late(),
}
FIXED = "RNADE(), fixed orders"


def measured(name: str, store: DataStore, device: str, done: set[tuple[str, str]]) -> Any:
    train, test, hidden = rows_of(name, store)
    study = Study(train, device)
    for way in (*WAYS, FIXED):
        if (name, way) in done:
            continue
        began = time.perf_counter()
        if way == FIXED:
            with warnings.catch_warnings(action="ignore"):
                model = RNADE(columns="real", questions=False, random_state=SEED, device=device)
                model.fit(train)
            found = {"orders_fixed": model.score(test)}
        else:
            found = scores(WAYS[way](study), study, test, hidden)
        yield {
            "table": name,
            "way": way,
            **{key: round(value, 4) for key, value in found.items()},
            "seconds": round(time.perf_counter() - began, 1),
            **run_facts("python -m benchmarks.any_order", seed=SEED, device=device),
        }


def page(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A table a measure, one row a way, one column a table."""
    tables = list(dict.fromkeys(r["table"] for r in records))
    for title, keys in (
        ("Log density of rows, nats, 16 orders averaged", ["orders_16", "orders_fixed"]),
        ("The same, one order", ["orders_1"]),
        (f"The same, {MANY_ORDERS} orders", [f"orders_{MANY_ORDERS}"]),
        ("Half of the cells given the other half, nats a row", ["half_hidden"]),
    ):
        rows = []
        for way in (*WAYS, FIXED):
            own = {
                r["table"]: r[key] for r in records for key in keys if r["way"] == way and key in r
            }
            if own:
                rows.append([way, *(f"{own[t]:.2f}" if t in own else "-" for t in tables)])
        yield f"{title}:\n\n{markdown(['way', *tables], rows)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tables", nargs="+", default=[*UCI_SETS, "patches"])
    given = study.parse(parser, RESULTS)
    path = given.output / "records.jsonl"
    done = {(r["table"], r["way"]) for r in study.stored(path)}
    for name in () if given.page else given.tables:
        for record in measured(name, DataStore(given.data_dir), given.device, done):
            RecordFile(path).append(record)
            print({k: v for k, v in record.items() if not isinstance(v, dict)}, flush=True)
    laid_out = study.write_table(page(study.stored(path)), given.output)
    if given.output == RESULTS:
        study.show_in(DOCS, "table", laid_out)


if __name__ == "__main__":
    main()
