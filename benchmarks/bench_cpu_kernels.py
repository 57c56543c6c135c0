"""Time the CPU kernels against vectorised torch and against the machine's own sgemm.

    python benchmarks/bench_cpu_kernels.py

All providers of one row are run in turn, so that other load on the machine meets them alike, and
the fastest run of each counts. A gradient step counts 6 B D H P operations, a density or a draw
2 B D H P, and sgemm is torch's product of two 2048 x 2048 matrices on the same threads.
"""

import math
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from rnade.backends import _cpu_threads, cpu, vectorised
from rnade.backends.parameters import Parameters
from rnade.families import GaussianMixture

SIDE = 2048


class Shape(NamedTuple):
    """Sizes of one piece of work."""

    B: int
    D: int
    H: int
    K: int

    def operations(self, products: int) -> float:
        """Floating-point operations of some matrix products a dimension."""
        return 2.0 * products * self.B * self.D * self.H * 3 * self.K


class Row(NamedTuple):
    """One line of the table; times in seconds, rates in operations a second."""

    work: str
    fused: float
    plain: float | None
    rate: float
    sgemm: float

    def __str__(self) -> str:
        plain = (
            "         -        -"
            if self.plain is None
            else (f"{1e3 * self.plain:10.2f} {self.plain / self.fused:7.1f}x")
        )
        return (
            f"{self.work:44} {1e3 * self.fused:10.3f} {plain}"
            f" {self.rate / 1e9:8.1f} {self.rate / self.sgemm:7.0%}"
        )


HEADER = f"{'work':44} {'fused ms':>10} {'plain ms':>10} {'ratio':>8} {'GFlop/s':>8} {'sgemm':>7}"


def fastest(providers: Sequence[Callable[[], object]], seconds: float = 3.0) -> list[float]:
    """Run providers in turn for some seconds, at least three times; the shortest time of each.

    A turn lasts 20 ms at least, so that short work finds its data in cache, as in training.
    """
    for provider in providers:
        provider()
    times: list[list[float]] = [[] for _ in providers]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[-1]) < 3:
        for provider, found in zip(providers, times, strict=True):
            turn = time.perf_counter() + 0.02
            while True:
                start = time.perf_counter()
                provider()
                found.append(time.perf_counter() - start)
                if time.perf_counter() > turn:
                    break
    return [min(found) for found in times]


def make_model(
    shape: Shape, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, Parameters]:
    """Random rows and parameters of the size they have in training."""
    generator = torch.Generator().manual_seed(0)
    B, D, H, K = shape

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator, dtype=dtype)

    V, b = 0.1 * draw(1, D, H, 3 * K) / math.sqrt(H), 0.5 * draw(1, D, 3 * K)
    return draw(1, B, D), Parameters(
        draw(1, D, H) / math.sqrt(D), draw(1, H), torch.ones(1, D, dtype=dtype), V, b
    )


def sgemm() -> Callable[[], object]:
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    out = torch.empty(SIDE, SIDE)
    return lambda: torch.mm(a, b, out=out)


def gradient_step(shape: Shape, *, plain: bool = True) -> Row:
    """Value and gradient of every parameter for one minibatch."""
    x, parameters = make_model(shape)
    family = GaussianMixture(shape.K)
    leaves = [t.requires_grad_() for t in parameters[:5]]
    weights = torch.ones(1, shape.B)

    def fused() -> None:
        for t in leaves:
            t.grad = None
        cpu.weighted_log_likelihood(x, weights, parameters, family, "relu").backward()

    def torch_step() -> None:
        for t in leaves:
            t.grad = None
        terms = vectorised.log_conditionals(x, parameters, family, "relu")
        (weights * terms.sum(-1)).sum().backward()

    return _row("gradient step", shape, 3, fused, torch_step if plain else None)


def density(shape: Shape, plain_rows: int) -> Row:
    """Log density; plain torch is given `plain_rows` rows at a time, as dispatch would."""
    x, parameters = make_model(shape)
    family = GaussianMixture(shape.K)

    @torch.no_grad()
    def fused() -> None:
        cpu.log_conditionals(x, parameters, family, "relu")

    @torch.no_grad()
    def torch_density() -> None:
        # One tenth of the rows is enough to time, and is scaled up below.
        for rows in torch.split(x[:, : max(1, shape.B // 10)], plain_rows, dim=1):
            vectorised.log_conditionals(rows, parameters, family, "relu")

    row = _row("log density", shape, 1, fused, torch_density)
    return row._replace(plain=None if row.plain is None else 10 * row.plain)


def draws(shape: Shape) -> Row:
    """Exact samples."""
    _, parameters = make_model(shape)
    family, generator = GaussianMixture(shape.K), torch.Generator().manual_seed(0)

    def fused() -> None:
        cpu.sample(shape.B, parameters, family, "relu", generator=generator)

    def torch_draws() -> None:
        vectorised.sample(shape.B, parameters, family, "relu", generator=generator)

    return _row("sampling", shape, 1, fused, torch_draws)


def peak_memory(compute: Callable[[], object]) -> float:
    """Bytes of resident memory that a call needs at its peak beyond what was there before."""
    status = Path("/proc/self/statm")
    if not status.exists():
        return math.nan
    page = 4096
    before, highest, stop = int(status.read_text().split()[1]), 0, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not stop.is_set():
            highest = max(highest, int(status.read_text().split()[1]))
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    compute()
    stop.set()
    watcher.join()
    return float((highest - before) * page)


def _row(
    name: str,
    shape: Shape,
    products: int,
    fused: Callable[[], object],
    plain: Callable[[], object] | None,
) -> Row:
    providers = [sgemm(), fused] + ([] if plain is None else [plain])
    t_sgemm, t_fused, *t_plain = fastest(providers)
    work = f"{name}, D={shape.D} H={shape.H} K={shape.K} B={shape.B}"
    rate = shape.operations(products) / t_fused
    return Row(work, t_fused, t_plain[0] if t_plain else None, rate, 2 * SIDE**3 / t_sgemm)


def main() -> None:
    quick = "--quick" in sys.argv
    print(f"{torch.get_num_threads()} threads, BLAS of the kernels: {_cpu_threads.blas_name()}")
    print(HEADER)
    print(gradient_step(Shape(25, 63, 512, 20)), flush=True)
    print(gradient_step(Shape(1000, 63, 512, 20)), flush=True)
    print(gradient_step(Shape(100, 11, 50, 10)), flush=True)
    large = Shape(20_000 if quick else 100_000, 63, 512, 10)
    print(density(large, plain_rows=520), flush=True)
    print(draws(Shape(1000, 63, 512, 10)), flush=True)
    before = None
    for D in (128, 256, 512):
        row = gradient_step(Shape(100, D, 512, 10), plain=False)
        growth = "" if before is None else f"   {row.fused / before:.2f} times the line above"
        before = row.fused
        print(f"{row}{growth}", flush=True)
    x, parameters = make_model(large)
    family = GaussianMixture(large.K)
    with torch.no_grad():
        peak = peak_memory(lambda: cpu.log_conditionals(x, parameters, family, "relu"))
    print(f"peak memory of the log density, beyond input and parameters: {peak / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
