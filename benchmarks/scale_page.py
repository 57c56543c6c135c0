"""Writes the stored records of `benchmarks.scale` into docs/explanation/scale.md.

python -m benchmarks.scale_page
"""

import math
import statistics
from collections.abc import Callable
from pathlib import Path

from benchmarks.pages import markdown, put
from benchmarks.record import RESULTS, Record, Row, load

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "scale.md"

# What is reckoned with, beside what was measured: bytes per second and seconds of an exchange
# between GPUs of one machine and between machines, GPUs of a machine, rows of a minibatch for each
# GPU, and parameters of a small and of a large model.
NVLINK, NETWORK = (450e9, 10e-6), (50e9, 30e-6)
GPUS_OF_A_MACHINE = 8
ROWS_OF_A_GPU = 4096
MODELS = {"small": 31_670, "large": 1_000_000}
GPUS = (1, 2, 8, 16, 64)
ROWS = (1e6, 1e7, 1e8, 1e9, 1e10, 1e11)


def record() -> Record:
    """What `benchmarks.scale` stored."""
    return load(RESULTS / "scale.json")


def rate(rows: list[Row], **wanted: object) -> float:
    """Median rows per second of the rows that have these values."""
    return statistics.median(
        row["rows_per_second"]
        for row in rows
        if all(row.get(name) == value for name, value in wanted.items())
    )


def others(section: str) -> str:
    """Say how much of the machine others used during a measurement."""
    cores = record()[section]["settings"]["cores_used_by_others"]
    return f"Others used {cores:.1f} of the two cores meanwhile."


def from_both(label: str, rows: list[Row], **wanted: object) -> list[str]:
    """A line of rates from memory and from files, and the share that is left."""
    here, there = (rate(rows, **wanted, **{"from": how}) for how in ("memory", "stream"))
    return [label, f"{here:,.0f}", f"{there:,.0f}", f"{there / here:.0%}"]


def training() -> str:
    """Rows trained per second, from memory and from files."""
    rows = record()["training"]["rows"]
    labels = {"one": "one model", "average": "the average"}
    lines = [from_both(label, rows, models=models) for models, label in labels.items()]
    table = markdown(["", "from memory", "from files", "share"], lines)
    read, survey = (rate(record()["reading"]["rows"], work=work) for work in ("read", "survey"))
    return (
        f"{table}\n\nReading alone: {read / 1e6:.1f} million rows per second; the first pass:"
        f" {survey / 1e6:.1f} million. {others('training')}\n"
    )


def memory() -> str:
    """Peak memory by rows."""
    found = record()["memory"]["rows"]
    lines = [
        [
            f"{row['rows']:,}",
            f"{row['bytes_on_disk'] / 2**30:.2f}",
            f"{row['beyond'] / 2**20:,.0f}",
            f"{row['sampled_rows']:,}",
            f"{row['seconds']:.0f}",
        ]
        for row in found
    ]
    head = ["rows", "GiB on disk", "MiB beyond importing torch", "rows sampled", "seconds"]
    return markdown(head, lines, left=0) + "\n"


def processes() -> str:
    """Speed-up with processes, and the share of the time that adding gradients up takes."""
    found = record()["processes"]["rows"]
    lines = []
    for batch in sorted({row["batch"] for row in found}):
        own = [row for row in found if row["batch"] == batch]
        alone = rate(own, processes=1)
        for row in own:
            lines.append(
                [
                    str(batch),
                    str(row["processes"]),
                    f"{row['rows_per_second']:,.0f}",
                    f"{row['rows_per_second'] / alone:.2f}",
                    f"{row['all_reduce_seconds'] / row['seconds']:.0%}",
                    f"{row['held_out']:.3f}",
                ]
            )
    head = ["minibatch", "processes", "rows per second", "speed-up", "adding up", "held out, nats"]
    return f"{markdown(head, lines, left=0)}\n\n{others('processes')}\n"


def training_on_gpu() -> str:
    """Rows trained per second on a GPU, from memory and from files."""
    rows = record()["gpu-training"]["rows"]
    batches = sorted({row["batch"] for row in rows})
    lines = [from_both(f"{batch:,}", rows, batch=batch) for batch in batches]
    return markdown(["minibatch", "from memory", "from files", "share"], lines, left=0) + "\n"


def scoring() -> str:
    """Rows scored per second."""
    return f"{_scored('scoring')} {others('scoring')}\n"


def scoring_on_gpu() -> str:
    """Rows scored per second on a GPU."""
    return f"{_scored('gpu-scoring')}\n"


def _scored(section: str) -> str:
    found = record()[section]["rows"]
    here = rate(found, **{"from": "memory"})
    (files,), (few,) = ([row for row in found if row["from"] == name] for name in ("files", "few"))
    n, seconds, start = files["rows"], files["seconds"], few["seconds"]
    return (
        f"In memory: {here:,.0f} rows per second. From Parquet to Parquet: {n:,} rows in"
        f" {seconds:,.0f} seconds, {n / seconds:,.0f} per second, {n / seconds / here:.0%} of"
        f" that. Starting the program, loading the model and scoring {few['rows']:,} rows takes"
        f" {start:,.1f} seconds; without those, {n / (seconds - start) / here:.0%}."
    )


def exchange(parameters: int, gpus: int) -> float:
    """Seconds to add up gradients: sent in a ring, started along a tree, by the slowest link."""
    if gpus == 1:
        return 0.0
    speed, latency = NVLINK if gpus <= GPUS_OF_A_MACHINE else NETWORK
    steps = 2 * math.ceil(math.log2(gpus))
    return 2 * (gpus - 1) / gpus * 4 * parameters / speed + steps * latency


def reckoned(parameters: int, gpus: int, n_rows: float) -> tuple[float, str]:
    """Seconds of the first pass and one of training, and what takes longest of all."""
    step = next(
        row
        for row in load(RESULTS / "h200.json")["kernels"]["rows"]
        if row["work"] == "training step with update" and row["provider"] == "gpu exact"
    )
    limits = load(RESULTS / "h200.json")["kernels"]["limits"]
    flops = step["share_of_product_rate"] * limits["product_flops"]
    survey = rate(record()["reading"]["rows"], work="survey")
    updates = n_rows / (ROWS_OF_A_GPU * gpus)
    # Rows are read while others are trained on; the rest goes on one after the other.
    beside = {
        "computing": updates * ROWS_OF_A_GPU * 6 * parameters / flops,
        "reading": updates * ROWS_OF_A_GPU / read_by_a_gpu(),
    }
    times = {
        "first pass": n_rows / gpus / survey,
        max(beside, key=lambda name: beside[name]): max(beside.values()),
        "adding up": updates * exchange(parameters, gpus),
    }
    return sum(times.values()), max(times, key=lambda name: times[name])


def read_by_a_gpu() -> float:
    """Rows per second that one process gave a GPU to train on, as fast as was measured."""
    rows = record()["gpu-training"]["rows"]
    return max(float(row["rows_per_second"]) for row in rows if row["from"] == "stream")


def reckoning() -> str:
    """Time of a fit by GPUs and rows."""
    blocks = []
    for name, parameters in MODELS.items():
        lines = []
        for n_rows in ROWS:
            cells = [reckoned(parameters, gpus, n_rows) for gpus in GPUS]
            lines.append([f"{n_rows:.0e}", *(f"{_time(s)}, {what}" for s, what in cells)])
        head = ["rows", *(f"{gpus} GPU{'s' if gpus > 1 else ''}" for gpus in GPUS)]
        title = f"A {name} model, {parameters:,} parameters:"
        blocks.append(f"{title}\n\n{markdown(head, lines)}\n")
    return "\n".join(blocks)


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.2g} s"
    if seconds < 5400:
        return f"{seconds / 60:.2g} min"
    return f"{seconds / 3600:.2g} h" if seconds < 1.3e5 else f"{seconds / 86400:.2g} days"


BLOCKS: dict[str, Callable[[], str]] = {
    "training": training,
    "memory": memory,
    "gpu training": training_on_gpu,
    "processes": processes,
    "scoring": scoring,
    "gpu scoring": scoring_on_gpu,
    "reckoning": reckoning,
}


def with_blocks(page: str) -> str:
    """The page with all blocks made anew."""
    for name, block in BLOCKS.items():
        page = put(page, name, block())
    return page


if __name__ == "__main__":
    PAGE.write_text(with_blocks(PAGE.read_text()))
