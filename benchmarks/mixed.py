"""`RNADE()` on six tables with columns of all kinds and missing cells, beside published peers.

    python -m benchmarks.mixed --data-dir FOLDER [--tables pbc credit] [--folds 0 1] [--device ..]

The folder holds `mixed/NAME.parquet`, `NAME.json`, `NAME.folds.npz` and a `README.md` with the
peers' figures. Each fit is a record in results/mixed/records.jsonl, and one that is there already
is not made again; `--page` only lays out results/mixed/table.md. Kinds come from the types of the
columns alone.

Measure: mean log-likelihood of the observed cells of the rows left out, nats per row; levels and
integers have probabilities, real columns densities on the standardised scale, atoms probabilities.
"""

import argparse
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from rnade import RNADE
from rnade.records import run_facts

TABLES = ("pbc", "ames", "credit", "yrbss", "hotel", "weather")
RESULTS = Path(__file__).parent.parent / "results" / "mixed"
SEED = 0
# Where the documentation shows the table.
DOCS = RESULTS.parent.parent / "docs" / "how-to" / "mixed-tables.md"
PLACE = re.compile(r"(<!-- mixed table -->\n).*(<!-- end of mixed table -->)", re.DOTALL)


def load(folder: Path, name: str) -> tuple[pa.Table, dict[str, Any], np.ndarray]:
    """A table, its description and the fold of each row."""
    table = pyarrow.parquet.read_table(folder / f"{name}.parquet")
    description = json.loads((folder / f"{name}.json").read_text())
    with np.load(folder / f"{name}.folds.npz") as arrays:
        return table, description, arrays["fold"]


def standardised(train: pa.Table, test: pa.Table, description: dict[str, Any]) -> np.ndarray:
    """What brings each test row's log density to standardised real columns, in nats."""
    add = np.zeros(len(test))
    for column in description["columns"]:
        if column["kind"] not in ("real", "zero-inflated"):
            continue
        x = test[column["name"]].combine_chunks()
        scale = pc.stddev(train[column["name"]]).as_py()
        values = np.asarray(pc.fill_null(x, np.nan))
        smooth = ~np.isnan(values) & ~np.isin(values, column.get("atoms", []))
        add += np.where(smooth, np.log(scale), 0.0)
    return add


def measured(folder: Path, name: str, fold: int, device: str) -> dict[str, Any]:
    """The record of one fit."""
    table, description, folds = load(folder, name)
    train, test = (table.filter(pa.array(at)) for at in (folds != fold, folds == fold))
    began = time.perf_counter()
    model = RNADE(random_state=SEED, device=device).fit(train)
    fitted = time.perf_counter()
    scores = model.score_samples(test) + standardised(train, test, description)
    scored = time.perf_counter()
    return {
        "table": name,
        "fold": fold,
        "log_likelihood": round(float(scores.mean()), 4),
        "standard_error": round(float(scores.std() / np.sqrt(len(scores))), 4),
        "fit_seconds": round(fitted - began, 1),
        "score_seconds": round(scored - fitted, 1),
        "test_rows": len(test),
        "network": model.network_,
        **run_facts("python -m benchmarks.mixed", seed=SEED, device=device),
    }


def peers(folder: Path, of: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Tables with the peers' log-likelihoods, from the README that comes with the data."""
    text = (folder / "README.md").read_text()
    section = text.split(f"# {of}\n", 1)[1]
    part = section.split("### Log-likelihood", 1)[1].split("###", 1)[0]
    rows = [re.split(r"\s*\|\s*", line.strip("| ")) for line in part.splitlines() if "|" in line]
    for row in rows[2:]:
        yield row[0], dict(zip(rows[0][2:], row[2:], strict=True))


def stored(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write_page(records: Sequence[dict[str, Any]], figures: dict[str, dict[str, str]]) -> str:
    """The table of ours beside the peers', mean of the folds that there are."""
    names = list(next(iter(figures.values())))
    devices = sorted({r["settings"]["device"] for r in records})
    lines = [
        "Log-likelihood of the observed cells, nats per row, mean of folds 0 and 1 (higher is"
        " better). Peers' figures are those published with the data.",
        "",
        "| table | " + " | ".join([*[f"RNADE(), {d}" for d in devices], *names]) + " |",
        "| --- |" + " ---: |" * (len(devices) + len(names)),
    ]
    for table in TABLES:
        cells = []
        for device in devices:
            own = [r for r in records if r["table"] == table and r["settings"]["device"] == device]
            mean = sum(r["log_likelihood"] for r in own) / len(own) if own else None
            seconds = max((r["fit_seconds"] for r in own), default=None)
            folds = sorted(r["fold"] for r in own)
            note = "" if folds == [0, 1] else f", fold {folds}"
            cells.append("-" if mean is None else f"{mean:.2f} ({seconds:.0f} s{note})")
        cells += [figures.get(table, {}).get(name, "-") for name in names]
        lines.append(f"| {table} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", "Seconds: the longest fit. Records: records.jsonl.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("RNADE_DATA"))
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--folds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="lay out what is stored, fit nothing")
    given = parser.parse_args()
    if given.data_dir is None:
        parser.error("name the folder of the data with --data-dir or RNADE_DATA")
    folder, path = Path(given.data_dir) / "mixed", given.output / "records.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    done = {(r["table"], r["fold"], r["settings"]["device"]) for r in stored(path)}
    for name in () if given.page else given.tables:
        for fold in given.folds:
            if (name, fold, given.device) in done:
                continue
            record = measured(folder, name, fold, given.device)
            with path.open("a") as file:
                file.write(json.dumps(record) + "\n")
            told = ("log_likelihood", "standard_error", "fit_seconds", "score_seconds", "network")
            print(name, fold, {key: record[key] for key in told}, flush=True)
    page = write_page(stored(path), dict(peers(folder, "Mean of folds 0 and 1")))
    (given.output / "table.md").write_text(page)
    if given.output == RESULTS:
        DOCS.write_text(PLACE.sub(lambda m: m[1] + page + m[2], DOCS.read_text()))
    print(page)


if __name__ == "__main__":
    main()
