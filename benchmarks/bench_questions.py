"""Time questions to a fitted table: fits with and without them, imputation, conditional draws.

    python -m benchmarks.bench_questions [--data-dir FOLDER] [--record FILE]

With a folder that holds `uci/`, also the log density and the error of half of the cells of three
real-valued tables, hidden at random in rows left out, given the other half (standardised columns),
beside the exact conditionals of a mixture of Gaussians whose size is chosen by rows left out.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from benchmarks import study
from rnade import RNADE
from rnade.data.store import DataStore
from rnade.data.uci import load_uci
from rnade.exceptions import SpikeWarning
from rnade.records import run_facts

FITS = [(300, 5), (1_000, 10), (10_000, 20)]
TABLES = ("red-wine", "white-wine", "parkinsons")
SPLITS = 3
MIXTURE_SIZES = (2, 4, 8, 12, 16, 24, 32)


def table(n_rows: int, n_columns: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(n_columns, n_columns)) / np.sqrt(n_columns) + np.eye(n_columns)
    return rng.standard_t(5, size=(n_rows, n_columns)) @ mix


def fastest(function: Callable[[], Any], times: int = 3) -> float:
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    return round(min(seconds), 3)


def fits() -> list[dict[str, Any]]:
    rows = []
    for shape in FITS:
        X = table(*shape)
        times = {
            f"seconds_{'with' if asked else 'without'}": fastest(
                lambda X=X, asked=asked: RNADE(random_state=0, questions=asked).fit(X), 2
            )
            for asked in (False, True)
        }
        rows.append({"n_rows": shape[0], "n_columns": shape[1], **times})
    return rows


def answers() -> dict[str, float]:
    """Seconds of questions to a table of 10,000 x 20 with a fifth of its cells missing."""
    X = table(10_000, 20)
    X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    model = RNADE(random_state=0, epochs=3).fit(X)
    given = {"x1": 0.5, "x3": -1.0}
    return {
        **{f"impute_{how}": fastest(lambda h=how: model.impute(X, h)) for how in ("mean", "draw")},
        "sample_1000_given_2": fastest(lambda: model.sample(1000, 0, given=given)),
    }


def by_mixture(mixture: GaussianMixture, x: np.ndarray, hidden: np.ndarray) -> tuple[float, Any]:
    """Log density and mean of one row's hidden cells given the others, in closed form."""
    seen = ~hidden
    log_seen, means = np.log(mixture.weights_), []
    for k, (mean, S) in enumerate(zip(mixture.means_, mixture.covariances_, strict=True)):
        own, apart = S[np.ix_(seen, seen)], x[seen] - mean[seen]
        if seen.any():
            log_seen[k] += multivariate_normal.logpdf(x[seen], mean[seen], own)
        means.append(mean[hidden] + S[np.ix_(hidden, seen)] @ np.linalg.solve(own, apart))
    weights = np.exp(log_seen - logsumexp(log_seen))
    return mixture.score_samples(x[None])[0] - logsumexp(log_seen), weights @ np.array(means)


def half_hidden(store: DataStore, name: str) -> dict[str, Any]:
    """Log density and error of half of the cells of rows left out, mean of random splits."""
    X = load_uci(name, store).X
    found = []
    for split in range(SPLITS):
        rng = np.random.default_rng(split)
        train, test = study.standardised(*study.split(X, rng))
        hidden = rng.random(test.shape) < 0.5
        began = time.perf_counter()
        with warnings.catch_warnings(action="ignore", category=SpikeWarning):
            model = RNADE(random_state=split, columns="real").fit(train)
        seconds = time.perf_counter() - began
        log_density = model.log_density(test, given=~hidden)
        error = (model.impute(np.where(hidden, np.nan, test)) - test)[hidden]
        mixture = study.best_mixture(train, MIXTURE_SIZES, split, reg_covar=1e-4, n_init=2)
        peer = [by_mixture(mixture, x, h) for x, h in zip(test, hidden, strict=True)]
        wrong = np.concatenate([m for _, m in peer]) - test[hidden]
        found.append(
            {
                "log_density": log_density.mean(),
                "nrmse": np.sqrt(np.mean(error**2)),
                "mixture_log_density": np.mean([log for log, _ in peer]),
                "mixture_nrmse": np.sqrt(np.mean(wrong**2)),
                "fit_seconds": seconds,
            }
        )
    return {"table": name} | {
        key: round(float(np.mean([split[key] for split in found])), 3) for key in found[0]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("RNADE_DATA"))
    parser.add_argument("--record", type=Path, help="also write the figures as JSON to this file")
    given = parser.parse_args()
    record: dict[str, Any] = {"fits": fits(), "answers": answers()}
    if given.data_dir is not None:
        store = DataStore(given.data_dir)
        record["half_hidden"] = [half_hidden(store, name) for name in TABLES]
    record |= run_facts("python -m benchmarks.bench_questions")
    print(json.dumps(record, indent=2))
    if given.record is not None:
        given.record.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
