"""Data sets larger than memory: python -m benchmarks.scale [--section NAME] [--data FOLDER].

Rows are Gaussian with correlated columns, 20 of them in float32, in Parquet files of a million
rows and row groups of 100,000. Writes benchmarks/results/scale.json, section by section.
"""

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import OtherLoad
from benchmarks.record import RESULTS, Row, store
from rnade.records import run_facts

D, FILE_ROWS, GROUP_ROWS = 20, 1_000_000, 100_000
MEMORY = "2GB"
# Of the fits that are timed.
BATCH, UPDATES = 512, 2000


def make_files(folder: Path, n_files: int) -> list[str]:
    """Write files that are not there yet, and give the first so many."""
    folder.mkdir(parents=True, exist_ok=True)
    L = np.tril(np.random.default_rng(0).normal(size=(D, D))) * 0.3 + np.eye(D)
    paths = [folder / f"{i:04d}.parquet" for i in range(n_files)]
    for i, path in enumerate(paths):
        if not path.exists():
            draws = np.random.default_rng([1, i]).standard_normal((FILE_ROWS, D), np.float32)
            X = draws @ L.T.astype(np.float32)
            table = pa.table({f"c{d}": X[:, d] for d in range(D)})
            pq.write_table(table, path, row_group_size=GROUP_ROWS, use_dictionary=False)
    return [str(path) for path in paths]


def in_process(program: str, *words: str, processes: int = 1, **more: str) -> list[dict[str, Any]]:
    """Run a program in fresh processes; each prints a line of JSON."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(textwrap.dedent(program))
        command = [sys.executable, *(launcher if processes > 1 else []), str(path), *words]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, **more}
        )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def add(rows: list[Row], row: Row) -> None:
    """Keep a row, and print it."""
    rows.append(row)
    print(row, flush=True)


# ------------------------------------------------------------------ rows read and trained

TRAIN = f"""
    import json, sys, time, warnings
    import numpy as np, pyarrow as pa, pyarrow.parquet as pq
    from rnade import RNADE, parallel
    from rnade.estimators import streaming
    from rnade.training import run

    warnings.simplefilter("ignore")
    how, ensemble, batch, updates, paths = *sys.argv[1:5], sys.argv[5:]
    took, reduced = [], [0.0]
    one, add = run.Run.one_epoch, parallel.added_up

    def one_epoch(self, *given):
        began = time.perf_counter()
        done = one(self, *given)
        took.append(time.perf_counter() - began)
        return done

    def added_up(tensors):
        began = time.perf_counter()
        found = add(tensors)
        reduced[0] += time.perf_counter() - began
        return found

    run.Run.one_epoch, parallel.added_up = one_epoch, added_up
    if how == "stream":
        streaming.IN_MEMORY = 10**9
    with parallel.ranks():
        model = RNADE(
            ensemble=None if ensemble == "one" else "auto", effort="fast", questions=False,
            random_state=0,
            batch_size=int(batch), batches_per_epoch=int(updates) // 4, epochs=5, patience=99,
            memory="{MEMORY}" if how == "stream" else "64GB",
        ).fit(paths)
        parameters = sum(p.numel() for p in model.module_.parameters())
        # The first epoch compiles kernels.
        rate = int(batch) * (int(updates) // 4) * 4 / sum(took[1:])
        if parallel.rank() == 0:
            print(json.dumps({{
                "rows_per_second": rate, "held_out": model.held_out_score().mean,
                "seconds": sum(took[1:]), "all_reduce_seconds": reduced[0] * 4 / 5,
                "parameters": parameters,
            }}))
"""


def training(folder: Path) -> list[Row]:
    """Rows trained per second from files and from memory."""
    paths = make_files(folder, 2)
    rows: list[Row] = []
    for models, repeat, how in itertools.product(
        ("one", "average"), range(2), ("memory", "stream")
    ):
        (found,) = in_process(TRAIN, how, models, str(BATCH), str(UPDATES), *paths)
        add(rows, {"work": "train", "from": how, "models": models, **found, "repeat": repeat})
    return rows


def training_on_gpu(folder: Path) -> list[Row]:
    """Rows trained per second on a GPU, from files and from memory."""
    paths = make_files(folder, 2)
    rows: list[Row] = []
    for how, (batch, updates) in itertools.product(
        ("memory", "stream"), ((8192, 2400), (512, 12_000))
    ):
        (found,) = in_process(TRAIN, how, "one", str(batch), str(updates), *paths)
        add(rows, {"work": "train", "from": how, "batch": batch, **found})
    return rows


def reading(folder: Path) -> list[Row]:
    """Rows read per second, and rows surveyed."""
    from rnade.streams import open_files, survey_files

    rows: list[Row] = []
    files = open_files(make_files(folder, 2))
    works: list[tuple[str, Callable[[], object]]] = [
        ("read", lambda: [b.num_rows for g in files.groups for b in files.batches(g)]),
        ("survey", lambda: survey_files(files, (50_000, 10_000), 0.1, 0)),
    ]
    for name, work in works:
        for repeat in range(5):
            began = time.perf_counter()
            work()
            rate = files.n_rows / (time.perf_counter() - began)
            add(rows, {"work": name, "rows_per_second": rate, "repeat": repeat})
    return rows


# ------------------------------------------------------------------ memory

FIT = f"""
    import json, sys, threading, time, warnings
    import torch

    def taken(name="VmRSS"):
        with open("/proc/self/status") as file:
            line = next(line for line in file if line.startswith(name))
        return int(line.split()[1]) * 1024

    before = taken()
    from rnade import RNADE
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    model = RNADE(memory="{MEMORY}", batches_per_epoch=100, epochs=5, random_state=0)
    model.fit(sys.argv[1:])
    print(json.dumps({{
        "rows": model.n_rows_, "sampled_rows": model.data_["sampled_rows"],
        "importing_torch": before, "beyond": taken("VmHWM") - before,
        "seconds": time.perf_counter() - began,
    }}))
"""


def memory(folder: Path) -> list[Row]:
    """Peak memory of a fit beyond what importing torch takes, by rows."""
    rows: list[Row] = []
    for n_files in (1, 10, 100):
        paths = make_files(folder, n_files)
        (found,) = in_process(FIT, *paths)
        size = sum(os.path.getsize(path) for path in paths)
        add(rows, {"work": "fit", "memory": MEMORY, "bytes_on_disk": size, **found})
    return rows


# ------------------------------------------------------------------ processes


def processes(folder: Path) -> list[Row]:
    """Speed-up with processes that train one model, and what adding gradients up takes."""
    paths = make_files(folder, 2)
    rows: list[Row] = []
    for batch, updates in ((512, 2000), (8192, 400)):
        for n in (1, 2, 4):
            words = ["stream", "one", str(batch), str(updates), *paths]
            # One thread for each process, and for the process alone.
            threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
            (found,) = in_process(TRAIN, *words, processes=n, **threads)
            add(rows, {"work": "train", "processes": n, "batch": batch, **found})
    return rows


# ------------------------------------------------------------------ scoring

SCORE = """
    import json, sys, time
    import numpy as np, pyarrow.parquet as pq
    from rnade import load
    model = load(sys.argv[1])
    X = pq.read_table(sys.argv[2])
    model.judge(X.slice(0, 1000))
    began = time.perf_counter()
    model.judge(X)
    print(json.dumps({"rows_per_second": X.num_rows / (time.perf_counter() - began)}))
"""


def scoring(folder: Path) -> list[Row]:
    """Rows scored per second from Parquet to Parquet by the command, and in memory."""
    from rnade import RNADE

    paths = make_files(folder, 10)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as out:
        model = Path(out) / "m.rnade"
        RNADE(batches_per_epoch=200, epochs=3, random_state=0, questions=False).fit(
            paths[:1]
        ).save(model)

        def in_memory() -> None:
            (here,) = in_process(SCORE, str(model), paths[0])
            add(rows, {"work": "score", "from": "memory", "rows": FILE_ROWS, **here})

        def score(source: Path) -> float:
            began = time.perf_counter()
            command = [sys.executable, "-m", "rnade", "score", str(model), str(source)]
            subprocess.run([*command, "-o", f"{source}-scores/", "-q"], check=True)
            return time.perf_counter() - began

        few, inputs = Path(out) / "few", Path(out) / "in"
        few.mkdir()
        pq.write_table(pq.read_table(paths[0]).slice(0, 1000), few / "0.parquet")
        inputs.mkdir()
        for path in paths:
            os.symlink(os.path.abspath(path), inputs / Path(path).name)
        for _ in range(2):  # before and after, since others load the machine too
            in_memory()
        add(rows, {"work": "score", "from": "few", "rows": 1000, "seconds": score(few)})
        seconds, n = score(inputs), len(paths) * FILE_ROWS
        found = {"rows": n, "seconds": seconds, "rows_per_second": n / seconds}
        add(rows, {"work": "score", "from": "files", **found})
        for _ in range(2):
            in_memory()
    return rows


SECTIONS: dict[str, Callable[[Path], list[Row]]] = {
    "training": training,
    "reading": reading,
    "memory": memory,
    "processes": processes,
    "scoring": scoring,
}
# Run where it is asked for.
ON_A_GPU = {"gpu-training": training_on_gpu, "gpu-scoring": scoring}


def main() -> None:
    parser = argparse.ArgumentParser(description="Data sets larger than memory.")
    parser.add_argument("--section", action="append", choices=SECTIONS | ON_A_GPU)
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "rnade-scale")
    parser.add_argument("--output", type=Path, default=RESULTS / "scale.json")
    options = parser.parse_args()
    for name in options.section or SECTIONS:
        began, load = time.perf_counter(), OtherLoad()
        rows = (SECTIONS | ON_A_GPU)[name](options.data)
        facts = run_facts(
            f"python -m benchmarks.scale --section {name}",
            columns=D,
            file_rows=FILE_ROWS,
            group_rows=GROUP_ROWS,
            seconds=math.ceil(time.perf_counter() - began),
            cores_used_by_others=load.cores(),
        )
        store(options.output, {name: facts | {"rows": rows}})


if __name__ == "__main__":
    main()
