"""What `RNADE()` makes of real-valued tables beside others, and what each kind of model adds.

    python -m benchmarks.default [--data-dir FOLDER] [--device cuda] [--tables sheet patches]

Tables: `sheet`, 30,000 rows on a thin curved sheet in 6 columns, simulated; `patches`, those of
`make demo`; `bsds`, 20,000 image patches of BSDS300 (needs the folder); `tumours`, benign ones of
scikit-learn's breast cancer; and the test rows' usual ones of some sets of `odd/` (needs the
folder). Beside `RNADE()`: itself without each kind of model (the others trained as they were, and
weighted anew; where few rows are trained on again in the end, as it was before that), with other
efforts ("best" on few rows), a mixture of Gaussians of scikit-learn with K by left-out rows, and,
of `sheet`, a neural spline flow of zuko trained for ten times as long as ours.

Figures are nats per row of standardised columns, by rows that no model has seen. Each table is a
record in results/default/records.jsonl, and one that is there already is not made again.
"""

import argparse
import importlib.util
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer

import rnade.estimators.base as trained_by
from benchmarks import study
from benchmarks.odd import load as load_odd
from benchmarks.pages import markdown
from rnade import RNADE
from rnade.data import DataStore
from rnade.data.patches import fixed_patches, load_bsds300
from rnade.estimators.kinds import FEW_ROWS
from rnade.evaluation import weights_by_kind
from rnade.nn.ensemble import log_average
from rnade.records import run_facts
from rnade.reproduce.core.runner import RecordFile

RESULTS = study.folder_of("default")
SEED = 0
SIZES = (1, 2, 4, 8, 16, 32, 64)
ODD = ("vertebral", "pima", "yeast", "stamps", "fault", "waveform", "pageblocks", "landsat")
TABLES = ("sheet", "patches", "bsds", "tumours", *ODD)
TIMES_AS_LONG = 10

Table = tuple[np.ndarray, np.ndarray]


def sheet(n: int, seed: int) -> np.ndarray:
    """Rows on a curved sheet of two dimensions, with noise of 0.02 in each of six columns."""
    rng = np.random.default_rng(seed)
    u, v = rng.uniform(-1, 1, (2, n))
    x = [u, v, np.sin(3 * u) * v, u * v, np.cos(4 * v) + u, u**2 - v**2]
    return np.stack(x, axis=1) + 0.02 * rng.normal(size=(n, 6))


def demo_patches() -> Table:
    """The patches of `make demo`."""
    spec = importlib.util.spec_from_file_location("demo", study.ROOT / "examples" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    return demo.draw_patches(0)


def rows_of(name: str, folder: Path) -> Table:
    """Rows to learn from and unseen ones."""
    if name == "sheet":
        return sheet(30_000, 0), sheet(10_000, 1)
    if name == "patches":
        return demo_patches()
    if name == "bsds":
        images = load_bsds300(DataStore(folder))
        parts = ((images.train, 20_000), (images.test, 20_000))
        return tuple(fixed_patches(part, n).numpy().astype(float) for part, n in parts)
    if name == "tumours":
        X, benign = load_breast_cancer(return_X_y=True)
        usual = np.random.default_rng(SEED).permutation(X[benign == 1])
        return usual[:267], usual[267:]
    train, test, odd = load_odd(folder)[name]
    return train, test[odd == 0]


class Watched:
    """The models that a fit trains, before those without weight are dropped."""

    def __enter__(self) -> "Watched":
        self._before = trained_by.member_weights
        trained_by.member_weights = self._weights
        return self

    def __exit__(self, *_: Any) -> None:
        trained_by.member_weights = self._before

    def _weights(self, models: Any, modules: Any, rows: Any) -> Any:
        self.models, self.modules, self.rows = models, modules, rows
        return self._before(models, modules, rows)

    def score(self, test: np.ndarray, kinds: set[int]) -> float:
        """Mean log density of test rows by some of the kinds."""
        at = [m for m, model in enumerate(self.models) if model.kind in kinds]
        models, modules = [self.models[m] for m in at], [self.modules[m] for m in at]
        weights = torch.as_tensor(self._before(models, modules, self.rows))
        x = torch.as_tensor(test).to(self.rows.x)
        with torch.no_grad():
            kept = [m for m in range(len(at)) if weights[m] > 0]
            each = torch.stack([modules[m].log_prob(x).double() for m in kept]).cpu()
        return float(log_average(each, weights[kept].log()).mean())


def without(kinds: Sequence[Any]) -> dict[str, set[int]]:
    """Numbers of the kinds that stay, by what is left out."""
    groups = {
        "Laplace components": lambda k: k.changes.get("family") == "laplace",
        "strong weight decay": lambda k: k.changes.get("weight_decay", 0) >= 10,
        "linear part taken out": lambda k: k.changes.get("decorrelate", False),
        "several layers": lambda k: k.changes.get("n_layers", 1) > 1,
        "mixtures of Gaussians": lambda k: k.mixture is not None,
        "networks": lambda k: k.mixture is None,
    }
    found = {}
    for words, left_out in groups.items():
        stay = {i for i, kind in enumerate(kinds) if not left_out(kind)}
        if stay and len(stay) < len(kinds):
            found[words] = stay
    return found


def spline_flow(train: np.ndarray, test: np.ndarray, seconds: float, device: str) -> float:
    """A neural spline flow of zuko, trained for so long; its best epoch by a tenth of the rows."""
    import zuko

    torch.manual_seed(SEED)
    flow = zuko.flows.NSF(train.shape[1], transforms=5, hidden_features=(128, 128)).to(device)
    left = len(train) // 10
    x, held, unseen = (
        torch.as_tensor(t, dtype=torch.float32).to(device)
        for t in (train[left:], train[:left], test)
    )
    optimiser = torch.optim.Adam(flow.parameters(), 1e-3)
    best, kept, began = -np.inf, -np.inf, time.perf_counter()
    while (gone := (time.perf_counter() - began) / seconds) < 1:
        optimiser.param_groups[0]["lr"] = 1e-3 * (1 + np.cos(np.pi * gone)) / 2
        for at in torch.randperm(len(x), device=device).split(500):
            loss = -flow().log_prob(x[at]).mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(flow.parameters(), 10.0)
            optimiser.step()
        with torch.no_grad():
            score = float(flow().log_prob(held).mean())
            if score > best:
                best, kept = score, float(flow().log_prob(unseen).mean())
    return kept


def record(name: str, folder: Path, device: str) -> dict[str, Any]:
    """Everything of one table."""
    train, test = rows_of(name, folder)
    train, test = study.standardised(train, test)
    given = {"random_state": SEED, "device": device, "columns": "real", "questions": False}
    found: dict[str, Any] = {}
    with warnings.catch_warnings(action="ignore"):
        efforts = ("fast", "best") if len(train) <= FEW_ROWS else ("fast",)
        others = [RNADE(effort=effort, **given).fit(train) for effort in efforts]
        with Watched() as watched:
            model = RNADE(**given).fit(train)
        n = len(watched.rows.x)
        kinds = model._kinds(n, train.shape[1], watched.rows.x.device.type)
        scores = model.score_samples(test)
        error = float(scores.std(ddof=1) / len(scores) ** 0.5)
        found["RNADE()"] = float(scores.mean())
        for other in others:
            found[f'RNADE(effort="{other.effort}")'] = float(other.score(test))
        if model.judging is not model:
            found["not trained again"] = float(model.judging.score(test))
        sizes = [K for K in SIZES if 10 * K <= len(train)]
        mixture = study.best_mixture(train, sizes, SEED, reg_covar=1e-4)
        found["mixture of Gaussians"] = float(mixture.score(test))
        for words, stay in without(kinds).items():
            found[f"without {words}"] = watched.score(test, stay)
        if name == "sheet":
            seconds = TIMES_AS_LONG * model.fit_seconds_
            found["zuko NSF, ten times as long"] = spline_flow(train, test, seconds, device)
    return {
        "table": name,
        "n_rows": len(train),
        "n_columns": train.shape[1],
        "test": {method: round(score, 4) for method, score in found.items()},
        "standard_error": round(error, 4),
        "mixture_components": mixture.n_components,
        "fit_seconds": {"RNADE()": model.fit_seconds_}
        | {f'RNADE(effort="{other.effort}")': other.fit_seconds_ for other in others},
        "weights": {
            words: round(weight, 4) for words, weight in weights_by_kind(model.members_).items()
        },
        **run_facts("python -m benchmarks.default", seed=SEED, device=device),
    }


def page(records: Sequence[dict[str, Any]]) -> str:
    """One row a method, one column a table."""
    methods = list(dict.fromkeys(m for r in records for m in r["test"]))
    rows = [["rows x columns", *(f"{r['n_rows']} x {r['n_columns']}" for r in records)]]
    for method in methods:
        scores = [r["test"].get(method) for r in records]
        rows.append([method, *("-" if score is None else f"{score:.2f}" for score in scores)])
    rows.append(["standard error", *(f"{r['standard_error']:.2f}" for r in records)])
    for method in dict.fromkeys(m for r in records for m in r["fit_seconds"]):
        seconds = [r["fit_seconds"].get(method) for r in records]
        rows.append([f"seconds of {method}", *("-" if s is None else f"{s:.1f}" for s in seconds)])
    return markdown(["", *(r["table"] for r in records)], rows)


def pages(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A table for each device."""
    for device in dict.fromkeys(r["settings"]["device"] for r in records):
        own = [r for r in records if r["settings"]["device"] == device]
        yield f"On {own[0]['hardware']['gpu'] or '2 cores'}:\n\n{page(own)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    given = study.parse(parser, RESULTS, needs_data=False)
    path = given.output / "records.jsonl"
    done = {(r["table"], r["settings"]["device"]) for r in study.stored(path)}
    for name in () if given.page else given.tables:
        if (name, given.device) in done:
            continue
        one = record(name, given.data_dir or Path(), given.device)
        RecordFile(path).append(one)
        print(name, one["test"], one["weights"], one["fit_seconds"], flush=True)
    study.write_table(pages(study.stored(path)), given.output)


if __name__ == "__main__":
    main()
