"""Times, memory and the machine's own limits."""

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

Work = Callable[[], object]
SIDE = {"cpu": 2048, "cuda": 8192}
COPIED_BYTES = 2**28
TURN_SECONDS = 0.02
FEWEST_RUNS = 3


@dataclass(frozen=True)
class Timing:
    """Seconds of repeated runs: the fastest, the median, and the 20 and 80 percent quantiles."""

    fastest: float
    low: float
    median: float
    high: float

    @classmethod
    def of(cls, seconds: list[float]) -> "Timing":
        """Summarise repeated runs."""
        ordered, n = sorted(seconds), len(seconds)
        return cls(ordered[0], ordered[n // 5], ordered[n // 2], ordered[min(n - 1, 4 * n // 5)])

    def times(self, factor: float) -> "Timing":
        """The same runs if each had taken `factor` times as long."""
        return Timing(*(factor * t for t in (self.fastest, self.low, self.median, self.high)))


def synchronise() -> None:
    """Wait for the GPU, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def time_in_turn(providers: Mapping[str, Work], seconds: float) -> dict[str, Timing]:
    """Time providers one after the other, again and again, so that other load meets all alike.

    A turn lasts 20 ms at least, so that short work finds its data in cache, as in training. A
    provider that has had its share of `seconds` drops out; each runs at least three times, or
    once if a single run takes longer than `seconds`.
    """
    times: dict[str, list[float]] = {name: [] for name in providers}
    share = seconds / len(providers)

    def run(work: Work) -> float:
        start = time.perf_counter()
        work()
        synchronise()
        return time.perf_counter() - start

    for work in providers.values():
        run(work)  # to load, compile and warm up
    pending = dict(providers)
    while pending:
        for name, work in list(pending.items()):
            found, end = times[name], time.perf_counter() + TURN_SECONDS
            found.append(run(work))
            while time.perf_counter() < end:
                found.append(run(work))
            enough = len(found) >= FEWEST_RUNS or found[0] > seconds
            if enough and sum(found) > share:
                del pending[name]
    return {name: Timing.of(found) for name, found in times.items()}


def product(device: str) -> tuple[Work, float]:
    """Torch's float32 product of two large matrices, and its operations: the bound of our work."""
    side = SIDE[device]
    a, b = (torch.randn(side, side, device=device) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out), 2.0 * side**3


def copy_rate(device: str, seconds: float = 2.0) -> float:
    """Bytes a second read and written by a copy of memory that no cache holds."""
    source = torch.zeros(COPIED_BYTES // 4, device=device)
    target = torch.empty_like(source)
    timing = time_in_turn({"copy": lambda: target.copy_(source)}, seconds)["copy"]
    return 2.0 * COPIED_BYTES / timing.fastest


class OtherLoad:
    """Cores that everybody else kept busy since this was made; NaN where it cannot be known.

    Ratios hold only on a quiet machine: two threads that wait for each other lose far more to a
    third that holds a core than one thread does.
    """

    def __init__(self) -> None:
        self._before = self._seconds()

    def cores(self) -> float:
        """Mean number of cores in use by others, and taken by a virtual machine's host."""
        elapsed, everybody, ours = (
            now - before for now, before in zip(self._seconds(), self._before, strict=True)
        )
        return max(0.0, (everybody - ours) / elapsed)

    @staticmethod
    def _seconds() -> tuple[float, float, float]:
        own, status = os.times(), Path("/proc/stat")
        everybody = math.nan
        if status.exists():
            # user, nice, system, idle, iowait, irq, softirq, steal
            ticks = [int(n) for n in status.read_text().split("\n", 1)[0].split()[1:9]]
            everybody = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
        ours = own.user + own.system + own.children_user + own.children_system
        return own.elapsed, everybody, ours


def peak_memory(work: Work, device: str) -> float:
    """Bytes that a call needs at its peak, beyond what was there before.

    On a CPU, of the whole process: call it in a fresh one.
    """
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return float(torch.cuda.max_memory_allocated() - before)
    if not Path("/proc/self/clear_refs").exists():
        return math.nan
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _resident("VmRSS")
    work()
    return _resident("VmHWM") - before


def _resident(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith(name))
