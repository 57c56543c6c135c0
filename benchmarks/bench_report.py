"""Time `rnade report` from start to finish on a large table and on wide ones, and weigh the page.

    python -m benchmarks.bench_report [--record FILE]

Tables (curved, rounded and censored columns among them) as CSV files, each once the one that was
fitted and once another one, each by a process of its own.
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

SHAPES = [(100_000, 50), (2_000, 500), (100, 2_000)]
COMMAND = "import sys; from rnade.cli import main; sys.exit(main())"


def make_table(path: Path, n_rows: int, n_columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mix = np.random.default_rng(0).normal(size=(n_columns, n_columns)) / np.sqrt(n_columns)
    X = rng.normal(size=(n_rows, n_columns)) @ mix
    X[:, ::3] = np.sinh(X[:, ::3])
    X[:, 5] = np.round(X[:, 5], 1)
    X[:, 7] = np.maximum(X[:, 7], 0)
    write_table({f"measure {d}": column for d, column in enumerate(X.T)}, path, force=True)


def timed(folder: Path, data: str, n_rows: int, n_columns: int) -> dict[str, Any]:
    """One run of the command: seconds, largest memory of any run so far, size of the page."""
    page = folder / f"{data}.html"
    arguments = ["report", "m.rnade", f"{data}.csv", "-o", page.name, "--quiet", "--force"]
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", COMMAND, *arguments], cwd=folder, check=True)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return {
        "table": data,
        "n_rows": n_rows,
        "n_columns": n_columns,
        "seconds": round(seconds, 2),
        "peak_bytes": peak,
        "page_bytes": page.stat().st_size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=Path, help="also write the figures as JSON to this file")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for shape in SHAPES:
            make_table(folder / "fitted.csv", *shape, seed=1)
            make_table(folder / "another.csv", *shape, seed=2)
            model = RNADE(
                epochs=1, batches_per_epoch=100, random_state=0, columns="real", questions=False
            )
            with warnings.catch_warnings(action="ignore", category=SpikeWarning):
                model.fit(read_table(folder / "fitted.csv").to_arrow())
            model.save(folder / "m.rnade", overwrite=True)
            rows += [timed(folder, data, *shape) for data in ("fitted", "another")]
    for row in rows:
        print(
            f"{row['n_rows']:7,} x {row['n_columns']:5,} {row['table']:8} {row['seconds']:6.1f} s"
            f" {row['peak_bytes'] / 1e6:7.0f} MB of memory"
            f" {row['page_bytes'] / 1e6:5.2f} MB of page"
        )
    if arguments.record:
        facts = run_facts("python -m benchmarks.bench_report")
        arguments.record.write_text(json.dumps(facts | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
