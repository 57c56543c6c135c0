"""One command, one table, one record: `make bench`, or python -m benchmarks [--quick].

Times of log density, training step and sampling for our backends and for peers; growth with each
size; peak memory; all as shares of the machine's own matrix product, measured in the same run.
Writes benchmarks/results/NAME.json and NAME-growth.svg.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from benchmarks import measure, providers
from benchmarks.providers import Provider, Shape
from rnade.records import run_facts

RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]


class Bench:
    """Collects rows, printing each as it comes."""

    def __init__(self, device: str, quick: bool) -> None:
        self.device, self.quick = device, quick
        self.seconds = 2.0 if quick else 8.0
        self.rate = measure.product_rate(device)
        self.rows: list[Row] = []
        self.fused = "gpu" if device == "cuda" else "cpu"

    def rows_of(self, n: int, D: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        return torch.randn(n, D, generator=generator).to(self.device)

    def compare(
        self,
        work: str,
        shape: Shape,
        n: int,
        calls: dict[str, tuple[Callable[[], object], int]],
        products: int = 0,
    ) -> None:
        """Time calls in turn; each comes with the rows it was given, of which `n` are reported."""
        timings = measure.time_in_turn(
            {name: call for name, (call, _) in calls.items()}, self.seconds
        )
        print(f"\n{work}: D={shape.D} H={shape.H} K={shape.K}, {n:,} rows")
        ours = timings.get(self.fused)
        for name, timing in timings.items():
            factor = n / calls[name][1]
            seconds = [factor * t for t in (timing.median, timing.low, timing.high)]
            row: Row = {
                "work": work,
                "provider": name,
                **asdict(shape),
                "rows": n,
                "measured_rows": calls[name][1],
                "seconds": seconds,
            }
            if ours is not None:
                row["times_fused"] = (
                    factor * timing.median / (ours.median * n / calls[self.fused][1])
                )
            if products and not name.startswith(("zuko", "nflows", "scikit")):
                row["share_of_product_rate"] = (
                    shape.operations(n, products) / seconds[0] / self.rate
                )
            self.rows.append(row)
            share = row.get("share_of_product_rate")
            print(
                f"  {name:28}{1e3 * seconds[0]:12.3f} ms  [{1e3 * seconds[1]:.3f},"
                f" {1e3 * seconds[2]:.3f}]  {row.get('times_fused', float('nan')):9.1f} x fused"
                + (f"  {share:6.1%} of product rate" if share else ""),
                flush=True,
            )

    # ------------------------------------------------------------------ what is compared

    def our_backends(self, shape: Shape) -> dict[str, Provider]:
        found = {
            self.fused: providers.ours(shape, self.device, self.fused),
            "vectorised": providers.ours(shape, self.device, "vectorised"),
        }
        if self.device == "cuda":
            found["gpu-tf32"] = providers.ours(shape, "cuda", "gpu-tf32")
            found["gpu-bf16"] = providers.ours(shape, "cuda", "gpu-bf16")
        return found

    def peers(self, shape: Shape) -> dict[str, Provider]:
        found: dict[str, Provider] = {}
        if providers.has("zuko"):
            for kind in ("MAF", "NSF"):
                found[f"zuko {kind}"] = providers.zuko_flow(shape, self.device, kind)
        if providers.has("nflows"):
            found["nflows MAF"] = providers.nflows_flow(shape, self.device)
        if self.device == "cpu":
            for kind in ("GaussianMixture", "KernelDensity"):
                found[f"scikit-learn {kind}"] = providers.scikit_learn(shape, kind)
        return found

    def steps(self) -> None:
        for shape, B in (
            (Shape(63, 512, 20), 25),
            (Shape(63, 512, 20), 1000),
            (Shape(11, 50, 10), 100),
            (Shape(231, 1024, 20), 25),
        ):
            x = self.rows_of(B, shape.D)
            given = self.our_backends(shape)
            given["torch.compile"] = providers.compiled(shape, self.device)
            calls = {
                name: (partial(p.step, x), B) for name, p in given.items() if p.step is not None
            }
            small = x[: min(B, 25)]
            if self.device == "cpu":
                oracle = providers.paper_reference(shape)
                calls["reference"] = (partial(oracle.step, small), len(small))
            self.compare("training step", shape, B, calls, products=3)

    def densities(self) -> None:
        shape, n = Shape(63, 512, 10), 1_000_000 if self.device == "cuda" else 100_000
        x = self.rows_of(n, shape.D)
        # Slow providers are given fewer rows, enough to fill their chunks; time is in proportion.
        few = x[: n // 20]
        given = self.our_backends(shape) | {
            "torch.compile": providers.compiled(shape, self.device)
        }
        fused = given.pop(self.fused)
        calls = {self.fused: (partial(fused.density, x), n)}
        calls |= {name: (partial(p.density, few), len(few)) for name, p in given.items()}
        for name, p in self.peers(shape).items():
            calls[name] = (partial(p.density, few), len(few))
        if self.device == "cpu":
            oracle, some = providers.paper_reference(shape), x[:500]
            calls["reference"] = (partial(oracle.density, some), len(some))
        self.compare("log density", shape, n, calls, products=1)
        for name, p in ((self.fused, fused), ("vectorised", given["vectorised"])):
            peak = measure.peak_memory(partial(p.density, x), self.device)
            self.rows.append(
                {"work": "log density, peak memory", "provider": name, "rows": n, "bytes": peak}
            )
            print(f"  peak memory of {name} for {n:,} rows: {peak / 1e6:.0f} MB beyond the input")

    def samples(self) -> None:
        shape, n = Shape(63, 512, 10), 1000
        given = self.our_backends(shape) | self.peers(shape)
        calls = {
            name: (partial(p.sample, n), n) for name, p in given.items() if p.sample is not None
        }
        self.compare("sampling", shape, n, calls, products=1)

    def growth(self) -> None:
        """Time of a log density as one size grows, the others fixed."""
        base, n = Shape(64, 256, 10), 2000
        for D in (16, 32, 64, 128, 256, 512):
            shape = Shape(D, base.H, base.K)
            given = self.our_backends(shape)
            given |= {k: p for k, p in self.peers(shape).items() if "scikit" not in k}
            x = self.rows_of(n, D)
            calls = {name: (partial(p.density, x), n) for name, p in given.items()}
            self.compare("growth with D", shape, n, calls, products=1)
            calls = {
                name: (partial(p.sample, 100), 100)
                for name, p in given.items()
                if p.sample is not None and (D <= 128 or name in ("cpu", "gpu", "vectorised"))
            }
            self.compare("sampling, growth with D", shape, 100, calls)
        if self.quick:
            return
        for H in (64, 128, 512, 1024):
            self._grow("growth with H", Shape(base.D, H, base.K), n)
        for K in (1, 5, 20, 40):
            self._grow("growth with K", Shape(base.D, base.H, K), n)
        for B in (1, 10, 100, 1000):
            self._grow("growth with B, step", base, B, step=True)
        for rows in (1000, 10_000, 100_000):
            self._grow("growth with N", base, rows)

    def _grow(self, work: str, shape: Shape, n: int, *, step: bool = False) -> None:
        x = self.rows_of(n, shape.D)
        given = self.our_backends(shape)
        if n > 10_000:
            del given["vectorised"]
        calls = {name: (partial(p.step if step else p.density, x), n) for name, p in given.items()}
        self.compare(work, shape, n, calls, products=3 if step else 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmarks beside peers.")
    parser.add_argument("--quick", action="store_true", help="shorter timings, fewer sizes")
    parser.add_argument("--name", help="name of the record; the device by default")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # those of other libraries
    device = "cuda" if torch.cuda.is_available() else "cpu"
    bench = Bench(device, arguments.quick)
    copy = measure.copy_rate(device)
    print(
        f"{device}, {torch.get_num_threads()} threads: float32 product"
        f" {bench.rate / 1e9:.0f} GF/s, copy {copy / 1e9:.1f} GB/s"
    )
    for section in (bench.steps, bench.densities, bench.samples, bench.growth):
        section()
    record = run_facts(
        "python -m benchmarks" + (" --quick" if arguments.quick else ""),
        threads=torch.get_num_threads(),
        flow_layers=providers.FLOW_LAYERS,
        flow_hidden=providers.FLOW_HIDDEN,
    ) | {
        "limits": {"product_flops": bench.rate, "copy_bytes_per_second": copy},
        "rows": bench.rows,
    }
    arguments.output.mkdir(parents=True, exist_ok=True)
    name = arguments.name or device
    path = arguments.output / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    from benchmarks.plot import plot_growth

    plot_growth(record, arguments.output / f"{name}-growth.svg")
    print(f"\nrecord: {path}")


if __name__ == "__main__":
    main()
