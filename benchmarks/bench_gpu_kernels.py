"""Time the GPU kernels on one device: checks first, then a table against the figures to reach.

    python -m benchmarks.bench_gpu_kernels            checks and the table, about 90 s on an H200
    python -m benchmarks.bench_gpu_kernels --sweep    also other tilings, compiled in parallel
    python -m benchmarks.bench_gpu_kernels --profile  also each kernel's time in a training step
    python -m benchmarks.bench_gpu_kernels --name h200    also store results/h200.json

Needs a CUDA device, Triton, and this folder's parent and src on the path. Training steps are CUDA
graphs of gradient and momentum update, replayed.
"""

import argparse
import contextlib
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from benchmarks.measure import Timing, copy_rate, product
from benchmarks.providers import Shape, make_parameters
from benchmarks.record import RESULTS, Row, line, store, timed_row
from rnade.backends import vectorised
from rnade.backends.gpu import api as gpu
from rnade.backends.gpu import tiling
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec
from rnade.batch import Batch
from rnade.families import make_family
from rnade.records import run_facts
from rnade.training.optim import gpu as gpu_update
from rnade.training.optim.forms import Rule, Step

MOST_MS = {
    "log density bf16": 35.0,
    "log density tf32": 90.0,
    "log density exact": 250.0,
    "sampling exact": 100.0,
    "step D=63 H=512": 0.045,
    "step D=231 H=1024": 0.2,
}


@dataclass(frozen=True)
class Work:
    """A training step: its shape, rows, layers, and the precision of its products."""

    shape: Shape
    rows: int = 25
    layers: int = 1
    precision: str = "exact"

    @property
    def operations(self) -> float:
        """Operations of the matrix products that it makes: the outputs' and the layers'."""
        shape = self.shape
        hidden = 6.0 * self.rows * shape.D * shape.H * shape.H * (self.layers - 1)
        return shape.operations(self.rows, 3) + hidden


SHAPES = {
    "step D=63 H=512": Work(Shape(63, 512, 20)),
    "step D=231 H=1024": Work(Shape(231, 1024, 20)),
}
# Deeper networks: of Table 2, and one as for tables.
DEEP = {
    "six layers of 512": Work(Shape(63, 512, 10), 512, 6, "bf16"),
    "eight layers of 1,024": Work(Shape(63, 1024, 16), 512, 8, "bf16"),
    "three layers of 256": Work(Shape(20, 256, 10), 512, 3),
}
SCORED, N = Shape(63, 512, 10), 1_000_000


def make(shape: Shape, models: int = 1, family: str = "gaussian", n_layers: int = 1) -> Parameters:
    """Parameters without gradients."""
    with torch.no_grad():
        made = make_parameters(shape, "cuda", models=models, family=family)
        found = Parameters(*(t.detach() for t in made.trained))
        if n_layers == 1:
            return found
        L, D, H = n_layers - 1, shape.D, shape.H
        U = torch.randn(models, L, H, H, device="cuda") / math.sqrt(L * H)
        return found._replace(U=U, u=0.1 * torch.randn(models, L, D, H, device="cuda"))


def double(parameters: Parameters) -> Parameters:
    return Parameters(*(None if t is None else t.double() for t in parameters))  # type: ignore[arg-type]


def timed(run: Callable[[], Any], repeats: int, each: int = 1) -> Timing:
    """Seconds by the device's own clock, of one of the `each` pieces of work that a run does."""
    run()
    torch.cuda.synchronize()
    seconds = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3 / each)
    return Timing.of(seconds)


def check() -> None:
    """Value and gradients against float64, relative to the largest entry."""
    print("check: family activation precision, then relative errors of value, x, W, c, rho, V, b")
    for family, activation, precision in [
        ("gaussian", "relu", "exact"),
        ("gaussian", "relu", "tf32"),
        ("gaussian", "relu", "bf16"),
        ("laplace", "sigmoid", "exact"),
        ("bernoulli", "identity", "exact"),
    ]:
        M, rows, D, K = 2, 37, 13, 5
        f = make_family(family, K)
        p = make(Shape(D, 70, K), M, family)
        x = torch.randn(M, rows, D, device="cuda")
        x = (x > 0).float() if family == "bernoulli" else x
        order = torch.stack([torch.randperm(D) for _ in range(M)]).cuda()
        upstream = torch.randn(M, rows, D, device="cuda")

        spec = Spec(f, activation, backend=f"gpu-{precision}")

        def gradients(function: Any, x: Any, p: Any, upstream: Any) -> list[Any]:
            leaves = [t.detach().requires_grad_() for t in (x, *p.trained)]
            terms = function(Batch(leaves[0], order=order), Parameters(*leaves[1:]), spec)  # noqa: B023
            return [terms.detach(), *torch.autograd.grad((terms * upstream).sum(), leaves)]

        right = gradients(vectorised.log_conditionals, x.double(), double(p), upstream.double())
        got = gradients(gpu.log_conditionals, x, p, upstream)
        errors = [
            ((a - b).abs().max() / a.abs().max()).item() for a, b in zip(right, got, strict=True)
        ]
        with mock.patch.object(tiling, "BLOCKS_TO_FILL", 0):
            on_chip = gpu.log_prob(Batch(x, order=order), p, spec)
        errors.append(
            ((on_chip - right[0].sum(-1)).abs().max() / right[0].sum(-1).abs().max()).item()
        )
        limit = {"exact": 2e-5, "tf32": 1e-2, "bf16": 5e-2}[precision]
        verdict = "ok" if max(errors) < limit else "WRONG"
        print(f"  {family} {activation} {precision}", *(f"{e:.1e}" for e in errors), verdict)


def training_step(work: Work) -> torch.cuda.CUDAGraph:
    """A CUDA graph of gradient and momentum update on one minibatch."""
    shape, B = work.shape, work.rows
    parameters = make(shape, n_layers=work.layers)
    leaves = [t.requires_grad_() for t in parameters.trained]
    family = make_family("gaussian", shape.K)
    spec = Spec(family, scale_mean_gradient=True, backend=f"gpu-{work.precision}")
    x = torch.randn(1, B, shape.D, device="cuda")
    weights = torch.full((1, B), -1 / B, device="cuda")
    velocities = [torch.zeros_like(t) for t in leaves]
    one = torch.ones(1, device="cuda")
    rule = Rule("momentum", leaves, [None] * len(leaves), first=velocities, momentum=0.9 * one)
    update = Step(1e-6 * one, scale=one, usable=one.bool(), unbias=one, forget=one[0])

    def step() -> None:
        total = gpu.weighted_log_likelihood(Batch(x, weights), parameters, spec)
        gradients = torch.autograd.grad(total, leaves, one)
        gpu_update.update(rule, gradients, update)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.keep = (leaves, rule, x, weights, update)  # type: ignore[attr-defined]
    return graph


def step_time(work: Work) -> Timing:
    graph, each = training_step(work), 10 if work.layers > 1 else 100

    def several() -> None:
        for _ in range(each):
            graph.replay()

    return timed(several, 11, each=each)


def profile_step(work: Work) -> None:
    graph = training_step(work)
    graph.replay()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(10):
            graph.replay()
        torch.cuda.synchronize()
    for event in sorted(profiler.key_averages(), key=lambda e: -e.device_time_total)[:16]:
        print(f"  {event.device_time_total / 10:8.2f} us  {event.count // 10} x {event.key[:70]}")


def scoring(precision: str) -> tuple[Callable[[], torch.Tensor], torch.Tensor, Parameters]:
    p, x = make(SCORED), torch.randn(1, N, SCORED.D, device="cuda")
    spec = Spec(make_family("gaussian", SCORED.K), backend=f"gpu-{precision}")
    return lambda: gpu.log_prob(Batch(x), p, spec), x, p


def sampling(precision: str) -> Callable[[], torch.Tensor]:
    p, generator = make(SCORED), torch.Generator("cuda").manual_seed(0)
    spec = Spec(make_family("gaussian", SCORED.K), backend=f"gpu-{precision}")
    return lambda: gpu.sample(N, p, spec, generator=generator)


@torch.no_grad()
def table(limits: dict[str, float]) -> list[Row]:
    rows: list[Row] = []

    def add(
        work: str, precision: str, shape: Shape, n: int, products: int, timing: Timing, **more: Any
    ) -> None:
        name = f"{work} {precision}" if n == N else f"step D={shape.D} H={shape.H}"
        if name in MOST_MS and (n == N or precision == "exact"):
            more["most_ms"] = MOST_MS[name]
        rate = shape.operations(n, products) / timing.fastest
        moved = shape.traffic(n, 2 if products == 3 else 1) / timing.fastest
        more["share_of_product_rate"] = rate / limits["product_flops"]
        more["share_of_copy_rate"] = moved / limits["copy_bytes_per_second"]
        rows.append(timed_row(work, f"gpu {precision}", shape, n, timing, **more))
        print(f"{work} D={shape.D}", line(rows[-1]), f"  most {more.get('most_ms', '-')} ms", more)

    for precision in ("bf16", "tf32", "exact"):
        run, x, p = scoring(precision)
        spec = Spec(make_family("gaussian", SCORED.K))
        right = vectorised.log_prob(Batch(x[:, :1000].double()), double(p), spec)
        error = (run()[:, :1000] - right).abs().max().item()
        add("log density", precision, SCORED, N, 1, timed(run, 5), error_nats=error)
    for precision in ("exact", "tf32", "bf16"):
        add("sampling", precision, SCORED, N, 1, timed(sampling(precision), 5))
    with torch.enable_grad():
        for work in SHAPES.values():
            for precision in ("exact", "tf32"):
                timing = step_time(replace(work, precision=precision))
                add("training step with update", precision, work.shape, work.rows, 3, timing)
    return rows


def deep_rows() -> list[Row]:
    """Training steps of deeper networks, as shares of the rate of large products in bf16."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    limit = 2.0 * 8192**3 / timed(lambda: a @ b, 21).median
    rows: list[Row] = []
    for name, work in DEEP.items():
        timing = step_time(work)
        rate = work.operations / timing.median
        more = {"layers": work.layers, "flops": rate, "share_of_bf16_rate": rate / limit}
        done = f"training step with update, {name}"
        rows.append(
            timed_row(done, f"gpu {work.precision}", work.shape, work.rows, timing, **more)
        )
        print(name, line(rows[-1]), f"  {rate / 1e12:.0f} of {limit / 1e12:.0f} TF/s in bf16")
    return rows


# A sweep: each entry names the work and what it replaces in `tiling`.
Trial = tuple[str, dict[str, Any]]


def trials() -> Iterator[Trial]:
    for work in ("log density bf16", "log density tf32", "log density exact", "sampling exact"):
        for tiles in [(16, 64, 4, 1), (16, 64, 4, 3), (16, 32, 4, 2), (16, 128, 4, 2)]:
            yield work, {"on_chip": tiles}
    for name in SHAPES:
        for programs in (132, 528):
            yield name, {"WEIGHT_PROGRAMS": programs}
        for programs in (256, 1024):
            yield name, {"STATE_PROGRAMS": programs // 2}
            yield name, {"INPUT_PROGRAMS": programs}
        for tiles in [(16, 64, 4, 2), (32, 64, 4, 2), (32, 64, 2, 2)]:
            yield name, {"state": tiles}
        for tiles in [(16, 64, 8, 3), (16, 64, 8, 4), (16, 128, 8, 2), (32, 64, 4, 3)]:
            yield name, {"output": tiles}
        for tiles in [(32, 64, 4, 2), (32, 64, 4, 3), (32, 128, 8, 2)]:
            yield name, {"weight": tiles}
        for tiles in [(32, 16, 1, 3), (32, 32, 2, 4), (32, 32, 4, 4)]:
            yield name, {"inputs": tiles}


@contextlib.contextmanager
def replaced(changes: dict[str, Any]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name, value in changes.items():
            new = value if isinstance(value, int) else (lambda *_, v=value: tiling.Tiles(*v))
            stack.enter_context(mock.patch.object(tiling, name, new))
        yield


def measure(trial: Trial) -> float:
    name, changes = trial
    with replaced(changes):
        if name in SHAPES:
            return 1e3 * step_time(SHAPES[name]).median
        work, precision = name.rsplit(" ", 1)
        run: Callable[[], Any] = (
            sampling(precision) if work == "sampling" else scoring(precision)[0]
        )
        return 1e3 * timed(run, 3).median


def compile_only(trial: Trial) -> None:
    global N
    N = 16384
    with contextlib.suppress(Exception):
        measure(trial)


def sweep() -> None:
    todo = list(trials())
    start = time.time()
    with ProcessPoolExecutor(14, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_only, todo))
    print(f"sweep: {len(todo)} trials, compiled in {time.time() - start:.0f} s")
    for trial in todo:
        try:
            print(f"  {trial[0]:20s} {measure(trial):9.4f} ms  {trial[1]}", flush=True)
        except Exception as error:
            print(f"  {trial[0]:20s} failed {trial[1]} {str(error)[:60]!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--deep", action="store_true", help="deeper networks alone")
    parser.add_argument("--name", help="store the record under this name")
    options = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    check()
    multiply, operations = product("cuda")
    limits = {
        "product_flops": operations / timed(multiply, 21).fastest,
        "copy_bytes_per_second": copy_rate("cuda"),
    }
    deep = deep_rows()
    kernels = [] if options.deep else table(limits)
    if options.name:
        command = " --deep" if options.deep else ""
        facts = run_facts(f"python -m benchmarks.bench_gpu_kernels --name {options.name}{command}")
        facts["limits"] = limits
        found = {"kernels": kernels, "deep": deep} if kernels else {"deep": deep}
        path = RESULTS / f"{options.name}.json"
        store(path, {name: facts | {"rows": rows} for name, rows in found.items()})
    if options.profile:
        for name, work in (DEEP if options.deep else SHAPES | DEEP).items():
            print(name)
            profile_step(work)
    if options.sweep:
        sweep()


if __name__ == "__main__":
    main()
