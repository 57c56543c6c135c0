"""Where something else is better or faster: figures for the page "When to use something else".

    OMP_NUM_THREADS=1 python -m benchmarks.elsewhere

Tables of scikit-learn, and rows drawn from a mixture of Gaussians; `RNADE()` with no arguments
beside the simple method that people would take. Times are of the processor, by one thread, so that
other work on the machine does not count. Writes results/elsewhere/record.json, and from it
table.md.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import accuracy_score, roc_auc_score, root_mean_squared_error
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import train_test_split
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import study
from benchmarks.pages import markdown
from rnade import RNADE, Gaussian
from rnade.records import run_facts

RESULTS = study.folder_of("elsewhere")
SEED = 0
Row = dict[str, Any]


def compared(methods: dict[str, Callable[[], Any]], figure: Callable[[Any], float]) -> list[Row]:
    """Fit each method, and take its figure."""
    rows = []
    for name, fit in methods.items():
        start = time.process_time()
        model = fit()
        seconds = time.process_time() - start
        rows.append({"method": name, "figure": figure(model), "seconds": seconds})
    return rows


def mixture_density() -> list[Row]:
    """Rows from a mixture of Gaussians: a mixture of Gaussians is the true model."""
    rng = np.random.default_rng(SEED)
    centres = rng.normal(0, 4, (4, 6))
    X = centres[rng.integers(0, 4, 3000)] + rng.normal(size=(3000, 6))
    train, test = X[:1000], X[1000:]

    def by_bic() -> Any:
        models = [GaussianMixture(k, random_state=SEED).fit(train) for k in range(1, 9)]
        return min(models, key=lambda model: model.bic(train))

    methods = {
        "GaussianMixture, size by BIC": by_bic,
        "Gaussian": lambda: Gaussian().fit(train),
        "RNADE()": lambda: RNADE(random_state=SEED).fit(train),
    }
    return compared(methods, lambda model: model.score(test))


def outliers() -> list[Row]:
    """Malignant tumours among benign ones, 30 columns."""
    X, benign = load_breast_cancer(return_X_y=True)
    train, usual = train_test_split(X[benign == 1], random_state=SEED)
    test = np.concatenate([usual, X[benign == 0]])
    odd = np.arange(len(test)) >= len(usual)

    def scaled(model: Any) -> Any:
        return make_pipeline(StandardScaler(), model).fit(train)

    methods = {
        "IsolationForest": lambda: scaled(IsolationForest(random_state=SEED)),
        "LocalOutlierFactor, 20 neighbours": lambda: scaled(LocalOutlierFactor(novelty=True)),
        "Gaussian": lambda: Gaussian().fit(train),
        "RNADE()": lambda: RNADE(random_state=SEED).fit(train),
    }
    return compared(methods, lambda model: roc_auc_score(odd, -model.score_samples(test)))


def regression() -> list[Row]:
    """How far diabetes progressed, from ten measurements."""
    frame = load_diabetes(as_frame=True, scaled=False).frame
    train, test = train_test_split(frame, random_state=SEED)
    X, y = train.drop(columns="target"), train["target"]
    methods = {
        "RidgeCV": lambda: make_pipeline(StandardScaler(), RidgeCV()).fit(X, y),
        "HistGradientBoostingRegressor": lambda: HistGradientBoostingRegressor(
            random_state=SEED
        ).fit(X, y),
        "RNADE().as_predictor": lambda: RNADE(random_state=SEED).fit(train).as_predictor("target"),
    }
    asked, right = test.drop(columns="target"), test["target"]
    return compared(methods, lambda model: root_mean_squared_error(right, model.predict(asked)))


def classification() -> list[Row]:
    """Which of three cultivars a wine is from, by thirteen measurements."""
    frame = load_wine(as_frame=True).frame
    frame["target"] = frame["target"].map({0: "a", 1: "b", 2: "c"})
    train, test = train_test_split(frame, random_state=SEED, stratify=frame["target"])
    X, y = train.drop(columns="target"), train["target"]
    logistic = LogisticRegression(max_iter=1000)
    methods = {
        "LogisticRegression": lambda: make_pipeline(StandardScaler(), logistic).fit(X, y),
        "RandomForestClassifier": lambda: RandomForestClassifier(random_state=SEED).fit(X, y),
        "RNADE().as_predictor": lambda: RNADE(random_state=SEED).fit(train).as_predictor("target"),
    }
    asked, right = test.drop(columns="target"), test["target"]
    return compared(methods, lambda model: accuracy_score(right, model.predict(asked)))


PARTS: dict[str, tuple[str, Callable[[], list[Row]]]] = {
    "density": ("log-likelihood of new rows, nats (higher is better)", mixture_density),
    "outliers": ("AUROC of malignant tumours (higher is better)", outliers),
    "regression": ("RMSE of one column (lower is better)", regression),
    "classification": ("share of levels right (higher is better)", classification),
}


def table(record: Row) -> str:
    """The record as Markdown tables."""
    tables = []
    for name, (measure, part) in PARTS.items():
        rows = [
            [row["method"], f"{row['figure']:.3f}", f"{row['seconds']:.2f}"]
            for row in record["parts"][name]
        ]
        title = str(part.__doc__).strip().rstrip(".")
        tables.append(f"{title}:\n\n{markdown(['method', measure, 'CPU seconds to fit'], rows)}\n")
    return "\n".join(tables)


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # Kernels compile once on a machine: that is not part of a fit.
    RNADE(epochs=1, random_state=SEED).fit(np.random.default_rng(SEED).normal(size=(60, 3)))
    mixed = pd.DataFrame({"a": np.arange(60) % 7, "b": ["x", "y", "z"] * 20})
    RNADE(epochs=1, random_state=SEED).fit(mixed)
    facts = run_facts("OMP_NUM_THREADS=1 python -m benchmarks.elsewhere", seed=SEED)
    record = {**facts, "parts": {name: part() for name, (_, part) in PARTS.items()}}
    study.write_record(RESULTS / "record.json", record, table(record))


if __name__ == "__main__":
    main()
