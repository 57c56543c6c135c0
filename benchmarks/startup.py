"""How long commands and imports take to start, in fresh interpreters.

    python -m benchmarks.startup

Medians of several runs, after one that warms the disk. Writes results/package/startup.json, and
from it startup.md.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from rnade import RNADE
from rnade.records import run_facts

RESULTS = Path(__file__).parent.parent / "results" / "package"
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
    lines = ["| | seconds, median | limit |", "| --- | ---: | ---: |"]
    for name, own in record["seconds"].items():
        limit = LIMITS.get(name)
        lines.append(f"| `{name}` | {own['median']:.2f} | {'' if limit is None else limit} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    program = str(Path(sys.executable).parent / "rnade")
    with tempfile.TemporaryDirectory() as folder:
        X = np.random.default_rng(0).normal(size=(300, 8))
        RNADE(epochs=2, random_state=0).fit(X).save(Path(folder) / "m.rnade")
        commands = {
            'python -c "pass"': [sys.executable, "-c", "pass"],
            'python -c "import rnade"': [sys.executable, "-c", "import rnade"],
            "rnade --help": [program, "--help"],
            "rnade fit --help": [program, "fit", "--help"],
            "rnade info": [program, "info", "m.rnade"],
            'python -c "from rnade import RNADE"': [
                sys.executable,
                "-c",
                "from rnade import RNADE",
            ],
        }
        seconds = {name: median_seconds(own, folder) for name, own in commands.items()}
    record = {**run_facts("python -m benchmarks.startup", runs=RUNS), "seconds": seconds}
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "startup.json").write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "startup.md").write_text(table(record))
    print(table(record))


if __name__ == "__main__":
    main()
