"""EM for mixtures beside scikit-learn's: python -m benchmarks.bench_mixtures [PART ...] [--quick].

Parts "float64" and "float32" time one iteration (expectation and maximisation) on 100,000 x 63
rows with K = 100 components, ours and scikit-learn's in turn in one run, from the same parameters
and in the same precision, and tell the log-likelihoods that they find; these differ by what
scikit-learn has to add to variances. Where there is a GPU, ours runs on it too, and part
"minibatches" times 1,000 minibatch iterations of the paper (K = 200, 20,000 rows each) as a whole.
Rows are patches of BSDS300 from the folder that RNADE_DATA names, else synthetic with like
correlations. Parts are sections of benchmarks/results/mixtures-DEVICE.json; each run replaces its
own.
"""

import argparse
import os
import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.mixture import GaussianMixture

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from benchmarks import measure, record
from rnade.data import DataStore
from rnade.data.patches import load_bsds300
from rnade.nn import MixtureOfGaussiansModule
from rnade.records import run_facts
from rnade.training import PAPER_EM, EMSettings, fit_mixture
from rnade.training.em import starting_components
from rnade.training.em.steps import GaussianSteps

D, K, N = 63, 100, 100_000
# What scikit-learn adds to variances; on patches it fails with none, and in float32 with 1e-6.
REGULARISED = {"float64": 1e-6, "float32": 1e-3}


def make_patches(n: int) -> tuple[np.ndarray, str]:
    """Standardised rows, and what they are."""
    if "RNADE_DATA" in os.environ:
        source = load_bsds300(DataStore(os.environ["RNADE_DATA"])).train
        x = source.draw(n, torch.Generator().manual_seed(0)).double().numpy()
        return (x - x.mean(0)) / x.std(0), "BSDS300 patches"
    return synthetic_patches(n), "synthetic patches"


def synthetic_patches(n: int) -> np.ndarray:
    """8 x 8 patches of smooth noise of random contrast, their means taken out, without a pixel."""
    rng = np.random.default_rng(0)
    at = np.stack(np.meshgrid(range(8), range(8)), -1).reshape(-1, 2)
    distance = np.linalg.norm(at[:, None] - at[None], axis=-1)
    root = np.linalg.cholesky(np.exp(-distance / 4) + 1e-3 * np.eye(64))
    x = rng.normal(size=(n, 64)) @ root.T * np.exp(rng.normal(size=(n, 1)))
    x -= x.mean(1, keepdims=True)
    return (x / x.std(0))[:, :D]


class Ours:
    """One iteration of EM on a device."""

    def __init__(self, X: np.ndarray, start: Any, device: str) -> None:
        self.x = torch.as_tensor(X).to(device)
        self.weights = torch.ones_like(self.x[:, 0])
        self.module = MixtureOfGaussiansModule(D, K).to(self.x)
        self.module.set_components(*[t.to(self.x) for t in start])
        self.steps = GaussianSteps(self.module, torch.full((D,), 1e-8))
        self.scores: list[float] = []

    def __call__(self) -> None:
        sums = self.steps.gather(self.x, self.weights)
        self.steps.move(sums)
        self.scores.append(float(sums["log_likelihood"] / sums["weight"]))


class ScikitLearn:
    """The same, by scikit-learn's own two steps."""

    def __init__(self, X: np.ndarray, start: Any) -> None:
        self.X = X
        precisions = torch.linalg.inv(start.covariance[0]).numpy().astype(X.dtype)
        self.mixture = GaussianMixture(
            K,
            max_iter=1,
            reg_covar=REGULARISED[X.dtype.name],
            weights_init=start.alpha[0].numpy().astype(X.dtype),
            means_init=start.mu[0].numpy().astype(X.dtype),
            precisions_init=precisions,
        )
        self.mixture._initialize(X[:K], None)
        self.scores: list[float] = []

    def __call__(self) -> None:
        score, log_resp = self.mixture._e_step(self.X)
        self.mixture._m_step(self.X, log_resp)
        self.scores.append(float(score))


def one_iteration(
    n: int, seconds: float, devices: list[str], dtype: type[np.floating[Any]]
) -> list[dict[str, Any]]:
    """Ours on each device and scikit-learn's on the CPU."""
    X, data = make_patches(n)
    start = starting_components(torch.as_tensor(X), K, "random", torch.Generator().manual_seed(0))
    X = X.astype(dtype)
    providers: dict[str, Any] = {f"rnade {device}": Ours(X, start, device) for device in devices}
    providers["scikit-learn cpu"] = ScikitLearn(X, start)
    timings = measure.time_in_turn(providers, seconds)
    reference = timings["scikit-learn cpu"].median
    rows = []
    for name, timing in timings.items():
        scores = providers[name].scores[:2]
        row = {
            "work": "iteration",
            "provider": name,
            "dtype": np.dtype(dtype).name,
            "data": data,
            "rows": n,
            "log_likelihoods": scores,
            "seconds": asdict(timing),
            "times_scikit_learn": reference / timing.median,
        }
        rows.append(row)
        print(
            f"{name:18} {row['dtype']} {timing.median:8.4f} s an iteration,"
            f" {row['times_scikit_learn']:6.1f} times scikit-learn,"
            f" {scores[1]:.6f} nats after one",
            flush=True,
        )
    return rows


def minibatches(n: int, n_iterations: int, device: str) -> list[dict[str, Any]]:
    """The paper's minibatch EM, from its start to its end."""
    rows = []
    x, data = make_patches(n + 10_000)
    for dtype in (torch.float64, torch.float32):
        generator = torch.Generator(device).manual_seed(0)
        everything = torch.as_tensor(x).to(device, dtype)
        train, validation = everything[:n], everything[n:]
        module = MixtureOfGaussiansModule(D, 200).to(device, dtype)
        measure.synchronise()
        began = time.perf_counter()
        module.set_components(*starting_components(train, 200, "k-means++", generator))
        measure.synchronise()
        started = time.perf_counter()
        settings = EMSettings(n_iterations, batch_size=PAPER_EM.batch_size, patience=None)
        outcome = fit_mixture(
            module,
            train,
            settings,
            floor=torch.full((D,), 1e-8),
            generator=generator,
            validation=validation,
        )
        measure.synchronise()
        row = {
            "work": "minibatch EM",
            "provider": f"rnade {device}",
            "dtype": str(dtype).removeprefix("torch."),
            "data": data,
            "rows": n,
            "iterations": n_iterations,
            "start_seconds": started - began,
            "seconds": time.perf_counter() - started,
            "validation": outcome.best_score,
        }
        rows.append(row)
        print(
            f"{row['provider']:18} {row['dtype']} {row['seconds']:8.2f} s for {n_iterations}"
            f" minibatch iterations (and {row['start_seconds']:.2f} s for the start),"
            f" held out {row['validation']:.4f} nats",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="float64, float32, minibatches; all by default")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    arguments = parser.parse_args()
    quick, gpu = arguments.quick, torch.cuda.is_available()
    n = N // 10 if quick else N
    devices = ["cpu", "cuda"] if gpu else ["cpu"]
    works = {
        "float64": lambda: one_iteration(n, 20.0, devices, np.float64),
        "float32": lambda: one_iteration(n, 20.0, devices, np.float32),
    }
    if gpu:
        works["minibatches"] = lambda: minibatches(10 * n, 1000, "cuda")
    path = record.RESULTS / f"mixtures-{devices[-1]}{'-quick' if quick else ''}.json"
    for part in arguments.parts or list(works):
        if part not in works:
            parser.error(f"expected parts among {', '.join(works)}; got {part!r}")
        command = f"python -m benchmarks.bench_mixtures {part}" + (" --quick" if quick else "")
        facts = run_facts(command, D=D, K=K, rows=n, seed=0, threads=torch.get_num_threads())
        record.store(path, {part: facts | {"rows": works[part]()}})
    print(f"written to {path}")


if __name__ == "__main__":
    with warnings.catch_warnings(action="ignore"):
        main()
