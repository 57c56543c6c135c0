"""What is compared: training steps, densities, samples, memory, and growth with each size."""

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial

import torch

from benchmarks import measure, providers
from benchmarks.measure import Work
from benchmarks.providers import PRODUCTS_ALONE, Shape, make, our_backends, peers
from benchmarks.record import Row, line, timed_row

PRODUCT = "matrix product"
GROWING = Shape(64, 256, 10)  # the size from which one is varied
# Flows draw one dimension after the other through all layers; beyond this it takes minutes.
MOST_FLOW_DIMENSIONS = 128


class Bench:
    """Collects the rows of one section, printing each as it comes."""

    def __init__(self, device: str, quick: bool) -> None:
        self.device, self.quick = device, quick
        self.seconds = 2.0 if quick else 10.0
        self.fused = providers.FUSED[device]
        self.product, self.product_operations = measure.product(device)
        self.copy_rate = measure.copy_rate(device, 0.5 if quick else 2.0)
        self.best_product = float("inf")
        self.rows: list[Row] = []

    @property
    def limits(self) -> dict[str, float]:
        """What the machine can do at most, as measured in this section."""
        return {
            "product_flops": self.product_operations / self.best_product,
            "copy_bytes_per_second": self.copy_rate,
        }

    def compare(
        self,
        work: str,
        shape: Shape,
        n: int,
        calls: dict[str, tuple[Work, int]],
        products: int = 0,
    ) -> None:
        """Time calls in turn, beside the machine's own matrix product.

        Each call comes with the rows it was given; times are reported for `n` rows. Ratios and
        shares are of fastest runs: other load on the machine can only add to a time.
        """
        works = {PRODUCT: self.product} | {name: call for name, (call, _) in calls.items()}
        timings = measure.time_in_turn(works, self.seconds)
        own_product = timings.pop(PRODUCT).fastest
        self.best_product = min(self.best_product, own_product)
        timings = {name: t.times(n / calls[name][1]) for name, t in timings.items()}
        rate = self.product_operations / own_product
        print(f"\n{work}: D={shape.D} H={shape.H} K={shape.K}, {n:,} rows")
        print(f"  ({PRODUCT} meanwhile {rate / 1e9:.0f} GF/s)")
        for name, timing in timings.items():
            more: Row = {"measured_rows": calls[name][1], "product_flops": rate}
            if self.fused in timings:
                more["times_fused"] = timing.fastest / timings[self.fused].fastest
                more["times_fused_median"] = timing.median / timings[self.fused].median
            if products and not name.startswith(("zuko", "nflows", "scikit")):
                operations = shape.operations(n, products)
                moved = shape.traffic(n, 2 if products == 3 else 1)
                more["share_of_product_rate"] = operations / timing.fastest / rate
                more["share_of_copy_rate"] = moved / timing.fastest / self.copy_rate
            self.rows.append(timed_row(work, name, shape, n, timing, **more))
            print(line(self.rows[-1]), flush=True)

    def random_rows(self, n: int, D: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        return torch.randn(n, D, generator=generator).to(self.device)

    def steps(self, names: Iterable[str], work: str, shape: Shape, B: int) -> None:
        x, calls = self.random_rows(B, shape.D), {}
        for name in names:
            # The oracle's time is in proportion to the rows; a few are enough.
            rows = x[:25] if name == "reference" else x
            step = make(name, shape, self.device).step
            if step is not None:
                calls[name] = (partial(step, rows), len(rows))
        self.compare(work, shape, B, calls, products=3)

    def densities(self, names: dict[str, int], work: str, shape: Shape, n: int) -> None:
        """Log densities; `names` says how many rows each is given, of which time is a multiple."""
        x = self.random_rows(n, shape.D)
        calls = {
            name: (partial(make(name, shape, self.device).density, x[:rows]), rows)
            for name, rows in names.items()
        }
        self.compare(work, shape, n, calls, products=1)

    def samples(self, names: Iterable[str], work: str, shape: Shape, n: int) -> None:
        calls = {}
        for name in names:
            sample = make(name, shape, self.device).sample
            if sample is not None:
                calls[name] = (partial(sample, n), n)
        self.compare(work, shape, n, calls, products=1)


def step(bench: Bench) -> None:
    """Training steps: value and gradient of every parameter for one minibatch."""
    ours = [*our_backends(bench.device), "torch.compile"]
    ours += [PRODUCTS_ALONE, "reference"] if bench.device == "cpu" else []
    flows = [name for name in peers(bench.device) if "scikit" not in name]
    bench.steps([*ours, *flows], "training step", Shape(63, 512, 20), 25)
    bench.steps(ours, "training step", Shape(11, 50, 10), 100)
    bench.steps(our_backends(bench.device), "training step", Shape(231, 1024, 20), 25)


def large_step(bench: Bench) -> None:
    """The same with a thousand rows."""
    names = [*our_backends(bench.device), "torch.compile"]
    names += [PRODUCTS_ALONE] if bench.device == "cpu" else []
    bench.steps(names, "training step", Shape(63, 512, 20), 1000)


def density(bench: Bench) -> None:
    """Log density of many rows. Slow providers get fewer, enough to fill their chunks."""
    n = 1_000_000 if bench.device == "cuda" else 100_000
    names = {name: n // 20 for name in [*our_backends(bench.device), "torch.compile"]}
    names |= {name: n // 50 for name in peers(bench.device)}
    names |= {PRODUCTS_ALONE: n // 20, "reference": 500} if bench.device == "cpu" else {}
    bench.densities(names | {bench.fused: n}, "log density", Shape(63, 512, 10), n)


def sample(bench: Bench) -> None:
    """Exact draws."""
    names = [*our_backends(bench.device), *peers(bench.device)]
    bench.samples(names, "sampling", Shape(63, 512, 10), 1000)


def memory(bench: Bench) -> None:
    """Peak memory of a log density beyond input and model, each in a fresh process."""
    shape, n = Shape(63, 512, 10), 1_000_000 if bench.device == "cuda" else 100_000
    work = "log density, peak memory"
    print(f"\n{work}: {n:,} rows")
    names = [*our_backends(bench.device), *peers(bench.device)]
    for name in [name for name in names if "KernelDensity" not in name]:
        command = [sys.executable, "-m", "benchmarks.memory", bench.device, name, str(n)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        sizes = {"D": shape.D, "H": shape.H, "K": shape.K, "rows": n}
        bench.rows.append({"work": work, "provider": name, **sizes, "bytes": found})
        print(line(bench.rows[-1]), flush=True)


def _dimensions(bench: Bench) -> tuple[int, ...]:
    return (16, 64, 256) if bench.quick else (16, 32, 64, 128, 256, 512)


def density_by_dimensions(bench: Bench) -> None:
    """Log density as D grows: the paper's claim of linear cost."""
    names = [name for name in peers(bench.device) if "scikit" not in name]
    names = [*our_backends(bench.device), *names]
    for D in _dimensions(bench):
        shape = Shape(D, GROWING.H, GROWING.K)
        bench.densities(dict.fromkeys(names, 1000), "log density by D", shape, 1000)


def sample_by_dimensions(bench: Bench) -> None:
    """Draws as D grows."""
    ours = our_backends(bench.device)
    flows = [name for name in peers(bench.device) if "scikit" not in name]
    for D in _dimensions(bench):
        names = [*ours, *(flows if D <= MOST_FLOW_DIMENSIONS else [])]
        bench.samples(names, "sampling by D", Shape(D, GROWING.H, GROWING.K), 100)


def step_by_dimensions(bench: Bench) -> None:
    """Training steps as D doubles; plain torch's tensors grow with D times H."""
    for D in (128, 256, 512):
        bench.steps(our_backends(bench.device), "training step by D", Shape(D, 512, 10), 100)


def by_other_sizes(bench: Bench) -> None:
    """Growth with H, K, B and N, the other sizes fixed."""
    names, D, H, K = our_backends(bench.device), GROWING.D, GROWING.H, GROWING.K
    few = slice(None, None, 3) if bench.quick else slice(None)
    for size in (64, 128, 512, 1024)[few]:
        bench.densities(dict.fromkeys(names, 2000), "log density by H", Shape(D, size, K), 2000)
    for size in (1, 5, 20, 40)[few]:
        bench.densities(dict.fromkeys(names, 2000), "log density by K", Shape(D, H, size), 2000)
    for B in (1, 10, 100, 1000)[few]:
        bench.steps(names, "training step by B", GROWING, B)
    for n in (1000, 10_000, 100_000)[few]:
        bench.densities(dict.fromkeys(names, min(n, 10_000)), "log density by N", GROWING, n)


def estimator(bench: Bench) -> None:
    """What users get: an estimator's scores and draws beside its module's and the copy of X."""
    shape, n = Shape(63, 512, 10), 300_000 if bench.device == "cuda" else 30_000
    model, X = providers.fitted_estimator(shape, bench.device), bench.random_rows(n, shape.D)
    single, given = copy.deepcopy(model.module_).float(), X.double().cpu().numpy()
    generator = torch.Generator(bench.device).manual_seed(0)
    calls: dict[str, tuple[Work, int]] = {
        "estimator": (partial(model.score_samples, given), n),
        "module, float32": (partial(no_gradient, single.log_prob, X), n),
        "copy of X": (lambda: torch.as_tensor(given).to(bench.device, copy=True), n),
    }
    bench.compare("score_samples", shape, n, calls)
    n //= 3
    calls = {
        "estimator": (partial(model.sample, n, 0), n),
        "module, float32": (partial(single.sample, n, generator), n),
    }
    bench.compare("sample", shape, n, calls)


def no_gradient(function: Callable[..., object], *arguments: object) -> object:
    """Call a function without a graph of its derivatives."""
    with torch.no_grad():
        return function(*arguments)


SECTIONS: dict[str, Callable[[Bench], None]] = {
    "step": step,
    "large-step": large_step,
    "density": density,
    "sample": sample,
    "memory": memory,
    "density-by-D": density_by_dimensions,
    "sample-by-D": sample_by_dimensions,
    "step-by-D": step_by_dimensions,
    "other-sizes": by_other_sizes,
    "estimator": estimator,
}
