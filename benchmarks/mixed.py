"""`RNADE()` on six tables with columns of all kinds and missing cells, beside published peers.

    python -m benchmarks.mixed --data-dir FOLDER [--tables pbc credit] [--folds 0 1] [--device ..]

The folder holds `mixed/NAME.parquet`, `NAME.json`, `NAME.folds.npz` and a `README.md` with the
peers' figures. Each fit is a record in results/mixed/records.jsonl, and one that is there already
is not made again; `--page` only lays out results/mixed/table.md. Kinds come from the types of the
columns alone.

Measures on the rows left out: mean log-likelihood of the observed cells, nats per row; of cells
that are hidden (one in five) and of the target column, given all others that are observed: log
density, share of levels right, error of means of numbers in standard deviations, the share of
numbers inside their 90 % intervals, and the same by their places in their distributions. Levels
and integers have probabilities, real columns densities on the standardised scale, atoms
probabilities.
"""

import argparse
import itertools
import json
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from benchmarks import study
from benchmarks.pages import markdown
from rnade import RNADE
from rnade.records import run_facts
from rnade.reproduce.core.runner import RecordFile

TABLES = ("pbc", "ames", "credit", "yrbss", "hotel", "weather")
RESULTS = study.folder_of("mixed")
SEED = 0
# Rows of which single cells are asked for, and cells of a column below which it is not averaged.
MOST_ASKED, FEWEST_ASKED = 2000, 5
# Measure, what it is, where the peers' figures stand, and digits.
PAGE = [
    (
        "log_likelihood",
        "Log-likelihood of the observed cells, nats per row (higher is better; seconds of the"
        " longest fit):",
        "Log-likelihood",
        2,
    ),
    (
        "cell_log_density",
        "Log density of hidden cells, nats per cell (higher is better):",
        "Imputation: log density",
        3,
    ),
    ("levels_right", "Hidden levels, share right (higher is better):", "Imputation, levels", 3),
    (
        "rmse",
        "Hidden numbers, RMSE in standard deviations, mean over columns (lower is better):",
        "Imputation, numbers",
        3,
    ),
    ("median_rmse", "The same, median over columns:", None, 3),
    ("covered_by_90", "Hidden numbers inside their 90 % intervals, share:", None, 3),
    (
        "calibrated_at_90",
        "Hidden numbers whose place in their distribution lies between 0.05 and 0.95, share (0.9"
        " is right; values that have a probability are given a random place in it):",
        None,
        3,
    ),
    (
        "target_log_density",
        "Log density of the target given all other columns (higher is better):",
        "Prediction: log density",
        3,
    ),
    (
        "target_right",
        "Target level given all other columns, share right (higher is better):",
        "Prediction, level",
        3,
    ),
    (
        "target_rmse",
        "Target number given all other columns, RMSE in standard deviations (lower is better):",
        "Prediction, number",
        3,
    ),
]
# Where the documentation shows the table.
DOCS = study.ROOT / "docs" / "how-to" / "mixed-tables.md"


def load(folder: Path, name: str) -> tuple[pa.Table, dict[str, Any], np.ndarray, np.ndarray]:
    """A table, its description, the fold of each row, and the cells to hide."""
    table = pyarrow.parquet.read_table(folder / f"{name}.parquet")
    description = json.loads((folder / f"{name}.json").read_text())
    with np.load(folder / f"{name}.folds.npz") as arrays:
        return table, description, arrays["fold"], arrays["hidden"]


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


def asked(
    model: RNADE, given: pa.Table, true: Sequence[Any], name: str, numeric: bool
) -> dict[str, np.ndarray]:
    """What the model says of one column's cells given the others, beside the truth."""
    distribution = model.conditional(name, given)
    found = {"log_density": distribution.log_pdf(true)}
    if not numeric:
        likeliest = distribution.mode()
        return found | {"right": np.array([a == b for a, b in zip(likeliest, true, strict=True)])}
    low, high = distribution.interval(0.9)
    numbers = np.asarray(true, dtype=float)
    return found | {
        "error": np.asarray(distribution.mean(), float) - numbers,
        "covered": (np.asarray(low, float) <= numbers) & (numbers <= np.asarray(high, float)),
        "calibrated": np.abs(distribution.transform(true, random_state=SEED) - 0.5) <= 0.45,
    }


def conditional_measures(
    model: RNADE, train: pa.Table, test: pa.Table, description: dict[str, Any], hidden: np.ndarray
) -> dict[str, Any]:
    """Hidden cells and the target, each given all other observed cells of its row."""
    test, hidden = test[:MOST_ASKED], hidden[:MOST_ASKED]
    names = [column["name"] for column in description["columns"]]
    shown = {
        name: pc.if_else(pa.array(hidden[:, names.index(name)]), None, test[name])
        for name in names
    }
    masked = pa.table(shown)
    cells: list[np.ndarray] = []
    right, error, covered, calibrated = [], [], [], []
    found: dict[str, Any] = {}
    for j, column in enumerate(description["columns"]):
        name = column["name"]
        numeric = column["kind"] in ("integer", "real", "zero-inflated")
        spread = float(pc.stddev(train[name]).as_py()) if numeric else 1.0
        rows = {"cells": pa.array(hidden[:, j])}
        if name == description["target"]:
            rows["target"] = pc.is_valid(test[name]).combine_chunks()
        for part, at in rows.items():
            true = test[name].filter(at).to_pylist()
            if not true:
                continue
            given = masked.filter(at) if part == "cells" else test.filter(at).drop_columns(name)
            answer = asked(model, given, true, name, numeric)
            if column["kind"] in ("real", "zero-inflated"):
                on_atom = np.isin(true, column.get("atoms", []))
                answer["log_density"] += np.where(on_atom, 0.0, np.log(spread))
            rmse = np.sqrt(np.mean(answer["error"] ** 2)) / spread if numeric else None
            if part == "target":
                share = {} if numeric else {"target_right": answer["right"].mean()}
                found |= {"target_log_density": answer["log_density"].mean(), **share}
                found |= {} if rmse is None else {"target_rmse": rmse}
                continue
            cells.append(answer["log_density"])
            if len(true) >= FEWEST_ASKED and numeric:
                error.append(rmse)
                covered.append(answer["covered"])
                calibrated.append(answer["calibrated"])
            elif len(true) >= FEWEST_ASKED:
                right.append(answer["right"].mean())
    found |= {
        "cell_log_density": np.concatenate(cells).mean(),
        "levels_right": np.mean(right),
        "rmse": np.mean(error),
        "median_rmse": np.median(error),
        "covered_by_90": np.concatenate(covered).mean(),
        "calibrated_at_90": np.concatenate(calibrated).mean(),
    }
    return {name: round(float(value), 4) for name, value in found.items()}


def measured(folder: Path, name: str, fold: int, device: str) -> dict[str, Any]:
    """The record of one fit."""
    table, description, folds, hidden = load(folder, name)
    train, test = (table.filter(pa.array(at)) for at in (folds != fold, folds == fold))
    began = time.perf_counter()
    model = RNADE(random_state=SEED, device=device).fit(train)
    fitted = time.perf_counter()
    scores = model.score_samples(test) + standardised(train, test, description)
    scored = time.perf_counter()
    asking = conditional_measures(model, train, test, description, hidden[folds == fold])
    return {
        "table": name,
        "fold": fold,
        "log_likelihood": round(float(scores.mean()), 4),
        "standard_error": round(float(scores.std() / np.sqrt(len(scores))), 4),
        **asking,
        "fit_seconds": round(fitted - began, 1),
        "score_seconds": round(scored - fitted, 1),
        "ask_seconds": round(time.perf_counter() - scored, 1),
        "test_rows": len(test),
        "network": model.network_,
        **run_facts("python -m benchmarks.mixed", seed=SEED, device=device),
    }


def peers(folder: Path, of: str, section: str) -> dict[str, dict[str, str]]:
    """One table of the peers' figures by table, from the README that comes with the data."""
    text = (folder / "README.md").read_text()
    part = text.split(f"# {of}\n", 1)[1].split(f"### {section}", 1)[1]
    part = re.split(r"^#", part, maxsplit=1, flags=re.MULTILINE)[0]
    rows = [
        re.split(r"\s*\|\s*", line.strip("| "))
        for line in part.splitlines()
        if line.startswith("|")
    ]
    return {row[0]: dict(zip(rows[0][2:], row[2:], strict=True)) for row in rows[2:]}


def page(records: Sequence[dict[str, Any]], folder: Path) -> Iterator[str]:
    """Tables of ours beside the peers', mean of the folds that there are."""
    yield "Mean of folds 0 and 1. Peers' figures are those published with the data.\n"
    for measure, title, section, digits in PAGE:
        of = [r for r in records if measure in r]
        if not of:
            continue
        figures = peers(folder, "Mean of folds 0 and 1", section) if section else {}
        names = list(next(iter(figures.values()), {}))
        devices = sorted({r["settings"]["device"] for r in of})
        rows = []
        for table in TABLES:
            cells = [_cell(of, table, device, measure, digits) for device in devices]
            if any(cell != "-" for cell in cells):
                theirs = (figures.get(table, {}).get(name, "-") for name in names)
                rows.append([table, *cells, *theirs])
        head = ["table", *(f"RNADE(), {device}" for device in devices), *names]
        yield f"{title}\n\n{markdown(head, rows)}\n"


def _cell(
    records: Sequence[dict[str, Any]], table: str, device: str, measure: str, digits: int
) -> str:
    own = [r for r in records if r["table"] == table and r["settings"]["device"] == device]
    if not own:
        return "-"
    mean = sum(r[measure] for r in own) / len(own)
    folds = sorted(r["fold"] for r in own)
    seconds = max(r["fit_seconds"] for r in own)
    notes = [f"{seconds:.0f} s"] if measure == "log_likelihood" else []
    notes += [] if folds == [0, 1] else [f"fold {folds}"]
    return f"{mean:.{digits}f}" + (f" ({', '.join(notes)})" if notes else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--folds", nargs="+", type=int, default=[0, 1])
    given = study.parse(parser, RESULTS)
    folder, path = given.data_dir / "mixed", given.output / "records.jsonl"
    done = {(r["table"], r["fold"], r["settings"]["device"]) for r in study.stored(path)}
    for name, fold in () if given.page else itertools.product(given.tables, given.folds):
        if (name, fold, given.device) in done:
            continue
        record = measured(folder, name, fold, given.device)
        RecordFile(path).append(record)
        told = {k: v for k, v in record.items() if isinstance(v, float)}
        print(name, fold, told, record["network"], flush=True)
    laid_out = study.write_table(page(study.stored(path), folder), given.output)
    if given.output == RESULTS:
        study.show_in(DOCS, "mixed table", laid_out)


if __name__ == "__main__":
    main()
