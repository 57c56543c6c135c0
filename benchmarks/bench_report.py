"""Time `rnade report` from start to finish on a large table, and weigh the page.

    python -m benchmarks.bench_report [--record FILE]

A table of 100,000 rows and 50 columns (curved, rounded and censored ones among them) as a CSV
file, once the one that was fitted and once another one, each by a process of its own.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from rnade import RNADE
from rnade.exceptions import SpikeWarning
from rnade.records import run_facts
from rnade.tables import read_table, write_table

N_ROWS, N_COLUMNS = 100_000, 50
COMMAND = "import sys; from rnade.cli import main; sys.exit(main())"


def make_table(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mix = np.random.default_rng(0).normal(size=(N_COLUMNS, N_COLUMNS)) / np.sqrt(N_COLUMNS)
    X = rng.normal(size=(N_ROWS, N_COLUMNS)) @ mix
    X[:, ::3] = np.sinh(X[:, ::3])
    X[:, 5] = np.round(X[:, 5], 1)
    X[:, 7] = np.maximum(X[:, 7], 0)
    write_table({f"measure {d}": column for d, column in enumerate(X.T)}, path)


def timed(folder: Path, data: str) -> dict[str, Any]:
    """One run of the command: seconds, largest memory of any run so far, size of the page."""
    page = folder / f"{data}.html"
    arguments = ["report", "m.rnade", f"{data}.csv", "-o", page.name, "--quiet"]
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", COMMAND, *arguments], cwd=folder, check=True)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return {
        "table": data,
        "seconds": round(seconds, 2),
        "peak_bytes": peak,
        "page_bytes": page.stat().st_size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=Path, help="also write the figures as JSON to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_table(folder / "fitted.csv", seed=1)
        make_table(folder / "another.csv", seed=2)
        model = RNADE(epochs=1, batches_per_epoch=100, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SpikeWarning)
            model.fit(read_table(folder / "fitted.csv").to_arrow()).save(folder / "m.rnade")
        rows = [timed(folder, data) for data in ("fitted", "another")]
    for row in rows:
        print(
            f"{row['table']:8} {row['seconds']:6.1f} s {row['peak_bytes'] / 1e6:7.0f} MB of memory"
            f" {row['page_bytes'] / 1e6:5.2f} MB of page"
        )
    if arguments.record:
        shape = {"n_rows": N_ROWS, "n_columns": N_COLUMNS}
        facts = run_facts("python -m benchmarks.bench_report", **shape)
        arguments.record.write_text(json.dumps(facts | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
