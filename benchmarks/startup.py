"""How long commands and imports take to start, in fresh interpreters.

    python -m benchmarks.startup

Medians of several runs, after one that warms the disk. Writes results/package/startup.json, and
from it startup.md.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import study
from benchmarks.pages import markdown
from rnade import RNADE
from rnade.records import run_facts

RESULTS = study.folder_of("package")
RUNS = 9
# What the command line is to stay under, in seconds.
LIMITS = {"rnade --help": 0.5, "rnade info": 1.5}


def median_seconds(command: list[str], folder: str) -> dict[str, float]:
    """Median, smallest and largest wall-clock time of a command."""
    times = []
    for run in range(RUNS + 1):
        start = time.perf_counter()
        subprocess.run(command, cwd=folder, capture_output=True, check=True)
        if run:
            times.append(time.perf_counter() - start)
    return {"median": statistics.median(times), "min": min(times), "max": max(times)}


def table(record: dict[str, Any]) -> str:
    """The record as a Markdown table."""
    rows = [
        [f"`{name}`", f"{own['median']:.2f}", str(LIMITS.get(name, ""))]
        for name, own in record["seconds"].items()
    ]
    return markdown(["", "seconds, median", "limit"], rows) + "\n"


def main() -> None:
    program = str(Path(sys.executable).parent / "rnade")
    with tempfile.TemporaryDirectory() as folder:
        X = np.random.default_rng(0).normal(size=(300, 8))
        RNADE(epochs=2, random_state=0).fit(X).save(Path(folder) / "m.rnade")
        programs = ("pass", "import rnade", "from rnade import RNADE")
        commands = {f'python -c "{code}"': [sys.executable, "-c", code] for code in programs}
        commands |= {
            "rnade --help": [program, "--help"],
            "rnade fit --help": [program, "fit", "--help"],
            "rnade info": [program, "info", "m.rnade"],
        }
        seconds = {name: median_seconds(own, folder) for name, own in commands.items()}
    record = {**run_facts("python -m benchmarks.startup", runs=RUNS), "seconds": seconds}
    study.write_record(RESULTS / "startup.json", record, table(record), "startup.md")


if __name__ == "__main__":
    main()
