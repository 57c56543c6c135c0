"""Odd rows of 21 of ADBench's sets, and rows planted in four tables, found by `RNADE()`.

    python -m benchmarks.odd --data-dir FOLDER [--sets pima wine] [--device cuda] [--page]

The folder holds `odd/adbench_half.npz`: rows to learn from, none of them odd, and test rows with
their labels. Peers are fitted to the same rows in the same run, columns standardised: a Gaussian,
a mixture of Gaussians with its size by rows left out, the distance to the fifth neighbour, and an
isolation forest. Rows are ranked by `decision_function`, which judges at two scales, and beside it
by log density alone. Measures are the area under the ROC curve and the average precision.

With `--planted` instead: rows each of whose cells comes from another row, one in twenty, planted
among the rows that are fitted and among new ones, of scikit-learn's wine and breast cancer and two
tables of `mixed/`. The former are judged by models that left them out, and both are to be told
equally well. A table is cut in halves, and each is fitted once and new once, so that the same rows
are told in both ways.

With `--calibration`: shares of new rows with small p-values, of skewed columns simulated at many
sizes and of halves of two tables of `mixed/`, each of which is fitted once; mean of several tries.

Each set is a record in results/odd/records.jsonl and one that is there already is
not made again; those of planted rows are in planted.jsonl, and of p-values in calibration.jsonl.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors

from benchmarks import study
from benchmarks.pages import markdown
from rnade import RNADE
from rnade.records import run_facts
from rnade.reproduce.core.runner import RecordFile

RESULTS = study.folder_of("odd")
SEED = 0
NEIGHBOUR = 5
MIXTURE_SIZES = (1, 2, 4, 8, 16, 32)
PLANTED_OF_SKLEARN = {"wine": load_wine, "breast cancer": load_breast_cancer}
PLANTED = (*PLANTED_OF_SKLEARN, "pbc", "credit")
TRIES = 4
# Levels of p-values, tries by rows fitted, and the tables of which halves are fitted.
LEVELS = (0.01, 0.05, 0.1, 0.5)
SIZES = {30: 16, 100: 8, 1000: 4, 10_000: 1, 100_000: 1}
HALVED = ("pbc", "credit")
# P-values are by models that left rows out, whether others are trained on all rows or not.
JUDGED = {"questions": False, "score_fitted": True, "retrain": False}
# Too wide for the mixtures; the means over sets are of the others.
WIDE = ("internetads", "musk")


def load(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows to learn from, test rows and their labels (1: odd), by name."""
    with np.load(folder / "odd" / "adbench_half.npz") as arrays:
        names = sorted({name.split(".")[0] for name in arrays})
        return {
            name: tuple(arrays[f"{name}.{part}"] for part in ("train", "test", "y"))
            for name in names
        }


def gaussian(train: np.ndarray, test: np.ndarray) -> np.ndarray:
    return GaussianMixture(1, reg_covar=1e-4).fit(train).score_samples(test)


def mixture(train: np.ndarray, test: np.ndarray) -> np.ndarray:
    sizes = [K for K in MIXTURE_SIZES if 5 * K <= len(train)]
    return study.best_mixture(train, sizes, SEED, reg_covar=1e-3).score_samples(test)


def neighbours(train: np.ndarray, test: np.ndarray) -> np.ndarray:
    return -NearestNeighbors(n_neighbors=NEIGHBOUR).fit(train).kneighbors(test)[0][:, -1]


def forest(train: np.ndarray, test: np.ndarray) -> np.ndarray:
    return IsolationForest(random_state=SEED).fit(train).score_samples(test)


PEERS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "gaussian": gaussian,
    "mixture": mixture,
    "neighbours": neighbours,
    "forest": forest,
}


def measured(y: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    return {
        "auroc": round(float(roc_auc_score(y, -scores)), 4),
        "precision": round(float(average_precision_score(y, -scores)), 4),
    }


def record(
    name: str, train: np.ndarray, test: np.ndarray, y: np.ndarray, device: str
) -> dict[str, Any]:
    """How well each method tells the odd test rows of one set."""
    scaled = study.standardised(train, test)
    found = {
        peer: measured(y, score(*scaled))
        for peer, score in PEERS.items()
        if name not in WIDE or peer in ("neighbours", "forest")
    }
    began = time.perf_counter()
    with warnings.catch_warnings(action="ignore"):
        model = RNADE(random_state=SEED, device=device, questions=False).fit(train)
    seconds = time.perf_counter() - began
    return {
        "set": name,
        "n_rows": len(train),
        "n_columns": train.shape[1],
        "odd": int(y.sum()),
        "methods": {
            "RNADE()": measured(y, model.decision_function(test)),
            "its log density": measured(y, model.score_samples(test)),
            **found,
        },
        "fit_seconds": round(seconds, 1),
        **run_facts("python -m benchmarks.odd", seed=SEED, device=device),
    }


def chimeras(table: pa.Table, n: int, rng: np.random.Generator) -> pa.Table:
    """Rows each of whose cells is that of another row."""
    cells = {
        name: table[name].take(rng.integers(len(table), size=n)) for name in table.column_names
    }
    return pa.table(cells)


def halves_of(table: pa.Table, rng: np.random.Generator) -> list[pa.Table]:
    """Two halves of a table's rows, at random."""
    return [table.take(at) for at in np.array_split(rng.permutation(len(table)), 2)]


def judging(table: pa.Table, seed: int) -> RNADE:
    """A model that judges the rows of a table, and new ones."""
    with warnings.catch_warnings(action="ignore"):
        return RNADE(random_state=seed, **JUDGED).fit(table)


def told(fitted: pa.Table, new: pa.Table, n: int, seed: int) -> tuple[float, float, float]:
    """AUROC of the last n rows: of the fitted table out of fold, of new rows, and in sample."""

    def auroc(rows: pa.Table, oddness: np.ndarray) -> float:
        return float(roc_auc_score(np.arange(len(rows)) >= len(rows) - n, oddness))

    model = judging(fitted, seed)
    return (
        auroc(fitted, -model.fit_pvalues_),
        auroc(new, -model.pvalue(new)),
        auroc(fitted, -model.score_samples(fitted)),
    )


def planted(name: str, folder: Path) -> dict[str, Any]:
    """How well planted rows are told among fitted and among new rows, mean of several tries."""
    if name in PLANTED_OF_SKLEARN:
        X = PLANTED_OF_SKLEARN[name]().data
        table = pa.table({f"x{d}": X[:, d] for d in range(X.shape[1])})
    else:
        table = pa.parquet.read_table(folder / "mixed" / f"{name}.parquet")
    found, began = [], time.perf_counter()
    tries = TRIES if len(table) < 1000 else 1
    for attempt in range(tries):
        rng = np.random.default_rng(attempt)
        halves = halves_of(table, rng)
        n = max(5, len(halves[0]) // 20)
        halves = [pa.concat_tables([half, chimeras(half, n, rng)]) for half in halves]
        of_both = [told(*pair, n, attempt) for pair in (halves, halves[::-1])]
        found.append(np.mean(of_both, axis=0))
    of_fitted, of_new, in_sample = np.mean(found, axis=0)
    spread = (
        np.std(np.subtract(*np.transpose(found)[:2]), ddof=1) / tries**0.5 if tries > 1 else None
    )
    return {
        "table": name,
        "n_rows": len(table) // 2,
        "tries": tries,
        "fitted": round(of_fitted, 4),
        "new": round(of_new, 4),
        "in_sample": round(in_sample, 4),
        "standard_error_of_difference": None if spread is None else round(spread, 4),
        "seconds": round(time.perf_counter() - began, 1),
        **run_facts("python -m benchmarks.odd --planted"),
    }


def skewed(n: int, rng: np.random.Generator) -> pa.Table:
    """Five skewed columns that depend on each other."""
    x = rng.normal(size=(n, 5)) @ (np.eye(5) + 0.4 * np.tri(5, k=-1))
    x[:, 0], x[:, 1] = np.exp(0.5 * x[:, 0]), x[:, 1] ** 2
    return pa.table({f"x{d}": x[:, d] for d in range(5)})


def calibration(folder: Path) -> Iterator[dict[str, Any]]:
    """Shares of new rows whose p-values are at most each level."""
    tables = {f"skewed, {n:,} rows": (n, tries) for n, tries in SIZES.items()}
    for name in (*tables, *HALVED):
        if name in tables:
            n, tries = tables[name]
            rngs = map(np.random.default_rng, range(tries))
            pairs = ((skewed(n, rng), skewed(10_000, rng)) for rng in rngs)
        else:
            table = pa.parquet.read_table(folder / "mixed" / f"{name}.parquet")
            halves = halves_of(table, np.random.default_rng(SEED))
            pairs = iter([(halves[0], halves[1]), (halves[1], halves[0])])
        found, began = [], time.perf_counter()
        for seed, (fitted, new) in enumerate(pairs):
            model = judging(fitted, seed)
            p_values = model.pvalue(new)
            found.append([(p_values <= level).mean() for level in LEVELS])
        yield {
            "table": name,
            "n_rows": len(fitted),
            "tries": len(found),
            "smallest": model.calibration_.smallest,
            "shares": dict(zip(map(str, LEVELS), np.mean(found, axis=0).round(4), strict=True)),
            "seconds": round(time.perf_counter() - began, 1),
            **run_facts("python -m benchmarks.odd --calibration"),
        }


def page(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A table a measure, every set listed, and the means of those that all methods have."""
    methods = ["RNADE()", "its log density", *PEERS]
    whole = [r for r in records if all(m in r["methods"] for m in methods)]
    for measure, title in (
        ("auroc", "Area under the ROC curve"),
        ("precision", "Average precision"),
    ):
        rows = []
        for r in records:
            found = (r["methods"].get(m) for m in methods)
            cells = ("-" if own is None else f"{own[measure]:.3f}" for own in found)
            rows.append([r["set"], f"{r['n_rows']} x {r['n_columns']}", *cells])
        means = (np.mean([r["methods"][m][measure] for r in whole]) for m in methods)
        rows.append([f"mean of {len(whole)}", "", *(f"**{mean:.3f}**" for mean in means)])
        table = markdown(["set", "rows x columns", *methods], rows, left=2).replace("|  |", "| |")
        yield f"{title} (higher is better):\n\n{table}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--planted", action="store_true", help="tell rows planted in four tables")
    parser.add_argument("--calibration", action="store_true", help="p-values of new rows")
    given = study.parse(parser, RESULTS)
    if given.calibration:
        for one in calibration(given.data_dir):
            RecordFile(given.output / "calibration.jsonl").append(one)
            print({k: v for k, v in one.items() if k in ("table", "shares", "seconds")})
        return
    if given.planted:
        for name in given.sets or PLANTED:
            one = planted(name, given.data_dir)
            RecordFile(given.output / "planted.jsonl").append(one)
            print({k: v for k, v in one.items() if not isinstance(v, dict)}, flush=True)
        return
    path = given.output / "records.jsonl"
    done = {r["set"] for r in study.stored(path)}
    sets = {} if given.page else load(given.data_dir)
    narrow_first = sorted(sets.items(), key=lambda pair: pair[0] in WIDE)
    for name, (train, test, y) in narrow_first:
        if name in done or (given.sets and name not in given.sets):
            continue
        one = record(name, train, test, y, given.device)
        RecordFile(path).append(one)
        print(name, one["methods"], one["fit_seconds"], flush=True)
    in_order = sorted(study.stored(path), key=lambda r: r["set"])
    study.write_table(page(in_order), given.output)


if __name__ == "__main__":
    main()
