"""Times, memory and the machine's own limits."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

Work = Callable[[], object]
SIDE = {"cpu": 2048, "cuda": 8192}
COPIED_BYTES = 2**28


@dataclass(frozen=True)
class Timing:
    """Seconds of repeated runs: median, and the 20 and 80 percent quantiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, seconds: list[float]) -> "Timing":
        """Summarise repeated runs."""
        ordered, n = sorted(seconds), len(seconds)
        return cls(ordered[n // 2], ordered[n // 5], ordered[min(n - 1, 4 * n // 5)])


def synchronise() -> None:
    """Wait for the GPU, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def time_in_turn(providers: Mapping[str, Work], seconds: float) -> dict[str, Timing]:
    """Time providers one after the other, again and again, so that other load meets all alike.

    A provider that has had its share of `seconds` drops out; each runs at least three times.
    """
    for work in providers.values():
        work()
    synchronise()
    times: dict[str, list[float]] = {name: [] for name in providers}
    share = seconds / len(providers)
    pending = dict(providers)
    while pending:
        for name, work in list(pending.items()):
            start = time.perf_counter()
            work()
            synchronise()
            times[name].append(time.perf_counter() - start)
            if len(times[name]) >= 3 and sum(times[name]) > share:
                del pending[name]
    return {name: Timing.of(found) for name, found in times.items()}


def product_rate(device: str) -> float:
    """Operations a second of torch's float32 matrix product: the bound of all that is below."""
    side = SIDE[device]
    a, b = (torch.randn(side, side, device=device) for _ in range(2))
    timing = time_in_turn({"product": lambda: torch.mm(a, b)}, 2.0)["product"]
    return 2.0 * side**3 / timing.low


def copy_rate(device: str) -> float:
    """Bytes a second read and written by a copy of memory."""
    source = torch.zeros(COPIED_BYTES // 4, device=device)
    target = torch.empty_like(source)
    timing = time_in_turn({"copy": lambda: target.copy_(source)}, 2.0)["copy"]
    return 2.0 * COPIED_BYTES / timing.low


def peak_memory(work: Work, device: str) -> float:
    """Bytes that a call needs at its peak, beyond what was there before."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return float(torch.cuda.max_memory_allocated() - before)
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
    work()
    stop.set()
    watcher.join()
    return float((highest - before) * page)
