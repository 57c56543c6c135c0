"""Time the heads of mixed tables and a whole training step, beside plain torch and bare products.

    python -m benchmarks.bench_heads [--record FILE]

A table of 24 columns like bookings of a hotel: levels, counts, heaped and real numbers. The step
is that of one network of three layers of 256 units; its share of the machine's rate is of one
large matrix product, timed in the same run.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import product, time_in_turn
from rnade.backends import heads
from rnade.backends.cpu import heads as fused
from rnade.batch import Batch
from rnade.columns.partition import N_FEATURES, ColumnCells
from rnade.nn.any_order import AnyOrderModule
from rnade.nn.table import encoded
from rnade.records import run_facts
from rnade.training.any_order import with_roles

RECORD = Path(__file__).parent / "results" / "heads.json"
ROWS = 512


def make_table() -> tuple[list[ColumnCells], np.ndarray]:
    rng = np.random.default_rng(0)
    n = 12_000
    levels = [rng.integers(0, k, n) for k in (2, 3, 4, 4, 5, 8, 9, 20, 40, 40)]
    counts = [rng.poisson(mean, n) for mean in (0.1, 0.1, 0.5, 1, 2, 3, 3, 30, 100)]
    heaped = [10 * rng.poisson(20, n) + 5 * rng.integers(0, 2, n) for _ in range(2)]
    reals = [rng.lognormal(size=n) for _ in range(3)]
    columns = [ColumnCells.of_levels(x.astype(float), int(x.max()) + 1) for x in levels]
    columns += [ColumnCells.of_numbers(x.astype(float), whole=True) for x in counts + heaped]
    columns += [ColumnCells.of_numbers(x, whole=False) for x in reals]
    return columns, np.column_stack([*levels, *counts, *heaped, *reals]).astype(float)


def measure() -> dict[str, object]:
    columns, X = make_table()
    generator = torch.Generator().manual_seed(0)
    module = AnyOrderModule(columns, 256, n_components=10, dropout=0.1, generator=generator)
    x = encoded(columns, X[:ROWS]).float()
    x = with_roles(x[..., :N_FEATURES], x[..., -1] > 0, generator)[None]
    cells, weights = x[..., :N_FEATURES].contiguous(), x[..., N_FEATURES].clamp_min(0)
    layout, parameters = module.layout, list(module.parameters())
    z = torch.randn(1, ROWS, layout.n_outputs, generator=generator, requires_grad=True)

    def gradient(value: torch.Tensor) -> None:
        torch.autograd.grad(value.sum(), z)

    def plain() -> None:
        terms = heads.log_prob(z, cells, layout)
        gradient(torch.where(weights > 0, weights * terms, 0.0))

    def step() -> None:
        value = module.weighted_log_likelihood(Batch(x))
        torch.autograd.grad(value.sum(), parameters)

    def kernel() -> None:
        gradient(fused.weighted_log_likelihood(z, cells, weights, layout))

    multiply, operations = product("cpu")
    works = {
        "fused heads": kernel,
        "plain heads": plain,
        "training step": step,
        "one product": multiply,
    }
    times = time_in_turn(works, seconds=12)
    H, L = module.W.shape[-1], module.U.shape[1]
    work = 6 * ROWS * (H * (layout.n_inputs + layout.n_outputs) + 2 * L * H * H)
    rate = operations / times["one product"].fastest
    return {
        "seconds": {name: asdict(timing) for name, timing in times.items()},
        "rows": ROWS,
        "outputs": layout.n_outputs,
        "times_plain": times["plain heads"].fastest / times["fused heads"].fastest,
        "outputs_per_second": ROWS * layout.n_outputs / times["fused heads"].fastest,
        "share_of_product_rate": work / times["training step"].fastest / rate,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--record", type=Path, default=RECORD)
    given = parser.parse_args()
    record = {**run_facts("python -m benchmarks.bench_heads"), **measure()}
    given.record.write_text(json.dumps(record, indent=1) + "\n")
    for name, seconds in record["seconds"].items():
        print(f"{name:16}{1e3 * seconds['fastest']:10.3f} ms")
    print(f"heads {record['times_plain']:.1f} x plain torch;", end=" ")
    print(f"step at {record['share_of_product_rate']:.0%} of one product's rate")


if __name__ == "__main__":
    main()
