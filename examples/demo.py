"""What RNADE does, in under two minutes, on data that ships with scikit-learn.

1. Fits patches of a photograph and compares held-out log-likelihoods with a Gaussian, a mixture of
   Gaussians and a kernel density estimate.
2. Learns what benign tumours look like and finds the malignant ones among unseen rows.
3. Draws new patches, saves the model, loads it again, and leaves pictures to look at.
4. Writes what the model found as a page, as `rnade report` does.
5. Writes a page on which a model of tumours can be explored, as `rnade explore` does.

Run it by `make demo`, or: python examples/demo.py [--output FOLDER] [--record FILE]
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_breast_cancer, load_sample_image
from sklearn.feature_extraction.image import extract_patches_2d
from sklearn.metrics import roc_auc_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KernelDensity
from sklearn.preprocessing import StandardScaler

from rnade import RNADE, load
from rnade.report import render, study

mpl.use("Agg")
import matplotlib.pyplot as plt

SIDE = 6  # pixels of a patch
N_TRAIN, N_TEST = 20_000, 5_000
console = Console()

Scores = dict[str, np.ndarray]


def draw_patches(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Grey patches of the left and right half of a photograph, prepared as in the paper."""
    rng = np.random.default_rng(seed)
    image = load_sample_image("china.jpg").mean(axis=2)
    half = image.shape[1] // 2

    def patches(part: np.ndarray, n: int) -> np.ndarray:
        found = extract_patches_2d(part, (SIDE, SIDE), max_patches=n, random_state=seed)
        pixels = found.reshape(n, SIDE * SIDE)
        pixels = (
            pixels + rng.uniform(size=pixels.shape)
        ) / 256  # undo the rounding to whole greys
        # Brightness apart; the last pixel then follows from the others and is dropped.
        return (pixels - pixels.mean(axis=1, keepdims=True))[:, :-1]

    return patches(image[:, :half], N_TRAIN), patches(image[:, half:], N_TEST)


def peers(train: np.ndarray) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Score functions of the usual density estimators, each lightly tuned on held-out rows."""
    scaler = StandardScaler().fit(train)
    Z = scaler.transform(train)
    fit, held_out = train_test_split(Z, test_size=0.1, random_state=0)
    some = fit[:4000]  # the cost of a kernel estimate grows with the rows it keeps

    def mixture(K: int, rows: np.ndarray) -> GaussianMixture:
        return GaussianMixture(K, random_state=0, reg_covar=1e-4, tol=0.01).fit(rows)

    K = max((1, 4, 16), key=lambda K: mixture(K, fit[:10_000]).score(held_out))
    width = max(
        (0.1, 0.2, 0.4, 0.8),
        key=lambda width: KernelDensity(bandwidth=width).fit(some).score(held_out[:500]),
    )
    models = {
        "Gaussian, full covariance": mixture(1, Z),
        f"GaussianMixture, {K} component{'s' if K > 1 else ''}": mixture(K, Z),
        f"KernelDensity, bandwidth {width}": KernelDensity(bandwidth=width).fit(some),
    }
    log_det = -np.log(scaler.scale_).sum()  # from standardised columns back to the data's units
    return {
        name: lambda X, model=model: model.score_samples(scaler.transform(X)) + log_det
        for name, model in models.items()
    }


def show_scores(title: str, scores: Scores, odd: Scores | None = None) -> list[dict[str, object]]:
    """Print a table of held-out log-likelihoods and return it as plain rows."""
    table = Table(title=title, title_justify="left")
    table.add_column("model")
    table.add_column("held-out nats per row", justify="right")
    table.add_column("± standard error", justify="right")
    if odd is not None:
        table.add_column("AUROC", justify="right")
    rows: list[dict[str, object]] = []
    best = max(float(s.mean()) for s in scores.values())
    for name, s in scores.items():
        row: dict[str, object] = {
            "model": name,
            "nats": float(s.mean()),
            "standard_error": float(s.std(ddof=1) / np.sqrt(len(s))),
        }
        cells = [name, f"{row['nats']:.2f}", f"{row['standard_error']:.2f}"]
        if odd is not None:
            labels = np.repeat([0, 1], [len(s), len(odd[name])])
            row["auroc"] = float(roc_auc_score(labels, -np.concatenate([s, odd[name]])))
            cells.append(f"{row['auroc']:.3f}")
        table.add_row(*cells, style="bold" if row["nats"] == best else None)
        rows.append(row)
    console.print(table)
    return rows


def patches_of_a_photograph(folder: Path) -> dict[str, object]:
    """Part 1 and 3: densities of image patches, samples, a saved model."""
    console.rule("Patches of a photograph")
    train, test = draw_patches(seed=0)
    console.print(
        f"{len(train):,} patches of {SIDE} x {SIDE} pixels from the left half of a photograph to"
        f" learn from, {len(test):,} from the right half to be scored."
    )
    # One model is enough where there are many rows.
    model = RNADE(
        n_hidden=100,
        decorrelate=True,  # neighbouring pixels are much alike
        ensemble=None,
        epochs=30,
        random_state=0,
        verbose=1,
        columns="real",
    ).fit(train)
    scores = {name: score(test) for name, score in peers(train).items()}
    scores["RNADE"] = model.score_samples(test)
    rows = show_scores("Log-likelihood of unseen patches", scores)
    path = folder / "patches.rnade"
    model.save(path, overwrite=True)
    same = np.array_equal(load(path).score_samples(test[:100]), model.score_samples(test[:100]))
    console.print(
        f"Saved as {path} ({path.stat().st_size / 1e6:.1f} MB); loaded again it scores"
        f" {'the same' if same else 'DIFFERENTLY'}."
    )
    began = time.perf_counter()
    drawn = model.sample(2000, random_state=0)
    console.print(f"Drew 2,000 patches in {time.perf_counter() - began:.2f} s.")
    picture_of_patches(test, drawn, folder / "patches.png")
    return {"rows": rows, "fit_seconds": model.fit_seconds_, "epochs": len(model.history_) - 1}


def odd_rows(folder: Path) -> dict[str, object]:
    """Part 2: learn one class, find the other."""
    console.rule("Finding the odd rows")
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    benign, malignant = X[y == 1], X[y == 0]
    train, test = train_test_split(benign, test_size=0.25, random_state=0)
    console.print(
        f"Learning what {len(train)} benign tumours look like ({X.shape[1]} measurements each),"
        f" then scoring {len(test)} other benign and {len(malignant)} malignant ones."
    )
    model = RNADE(random_state=0, verbose=1, columns="real", questions=False).fit(train)
    models = {
        name: lambda frame, score=score: score(frame.to_numpy())
        for name, score in peers(train.to_numpy()).items()
    }
    models["RNADE"] = model.score_samples
    usual = {name: score(test) for name, score in models.items()}
    odd = {name: score(malignant) for name, score in models.items()}
    rows = show_scores("Benign held out; AUROC of malignant against benign", usual, odd)
    p = model.pvalue(malignant)
    worst = int(np.argmin(model.score_samples(malignant)))
    terms = model.log_conditionals(malignant.iloc[[worst]])[0]
    typical = model.log_conditionals(train).mean(0)
    blamed = [X.columns[d] for d in np.argsort(terms - typical)[:3]]
    console.print(
        f"{(p <= 0.05).mean():.0%} of the malignant rows have p <= 0.05. The oddest is row"
        f" {malignant.index[worst]}, above all for: {', '.join(blamed)}."
    )
    picture_of_scores(usual["RNADE"], odd["RNADE"], folder / "odd-rows.png")
    return {
        "rows": rows,
        "fit_seconds": model.fit_seconds_,
        "malignant_with_p_at_most_0.05": float((p <= 0.05).mean()),
    }


def write_page(folder: Path) -> None:
    """Part 4: what `rnade report` writes, of the patches that the saved model was fitted to."""
    console.rule("What the model found, as a page")
    began = time.perf_counter()
    train, _ = draw_patches(seed=0)
    found = study(load(folder / "patches.rnade"), train, source="patches of a photograph")
    path = folder / "report.html"
    path.write_text(render(found), encoding="utf-8")
    for name in ("comparison", "calibration", "correlation"):
        console.print(found.sentences[name])
    seconds = time.perf_counter() - began
    console.print(f"Wrote {path} ({path.stat().st_size / 1e6:.1f} MB) in {seconds:.1f} s.")


def write_page_to_explore(folder: Path) -> None:
    """Part 5: a model that answers for any column given any others, as a page."""
    console.rule("A page to explore")
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    tumours = X.filter(like="mean ")
    tumours.insert(0, "diagnosis", y.map({0: "malignant", 1: "benign"}))
    # One small network is enough to play with.
    model = RNADE(n_hidden=64, ensemble=None, random_state=0, verbose=1).fit(tumours)
    began = time.perf_counter()
    path = folder / "explore.html"
    model.explore(title="Tumours").save(path, overwrite=True)
    seconds = time.perf_counter() - began
    console.print(
        f"Wrote {path} ({path.stat().st_size / 1e6:.1f} MB) in {seconds:.1f} s. Open it in a"
        " browser and set some columns: every other one shows its distribution given these."
    )


def picture_of_patches(test: np.ndarray, drawn: np.ndarray, path: Path) -> None:
    """Fifteen real and fifteen drawn patches, as in the paper's figure 1."""
    figure, axes = plt.subplots(2, 15, figsize=(12, 2), squeeze=False)
    for row, (name, patches) in enumerate((("data", test), ("RNADE", drawn))):
        for column, axis in enumerate(axes[row]):
            pixels = np.append(patches[column], -patches[column].sum()).reshape(SIDE, SIDE)
            axis.imshow(pixels, cmap="gray", vmin=-0.4, vmax=0.4)
            axis.set_xticks([])
            axis.set_yticks([])
            if column == 0:
                axis.set_ylabel(name)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(figure)


def picture_of_scores(usual: np.ndarray, odd: np.ndarray, path: Path) -> None:
    """Histograms of the log densities of usual and odd rows."""
    figure, axis = plt.subplots(figsize=(6, 3))
    low = max(np.quantile(odd, 0.1), usual.mean() - 12 * usual.std())
    bins = np.linspace(low, max(usual.max(), odd.max()), 40)
    axis.hist(np.clip(usual, low, None), bins, alpha=0.6, density=True, label="benign, held out")
    axis.hist(np.clip(odd, low, None), bins, alpha=0.6, density=True, label="malignant")
    axis.set_xlabel("log density, nats (clipped at the left)")
    axis.set_yticks([])
    axis.legend()
    figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    parser.add_argument("--record", type=Path, help="also write the figures as JSON to this file")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    record = {
        "patches": patches_of_a_photograph(arguments.output),
        "odd_rows": odd_rows(arguments.output),
    }
    write_page(arguments.output)
    write_page_to_explore(arguments.output)
    seconds = time.perf_counter() - began
    console.rule()
    console.print(
        f"Done in {seconds:.0f} s. Model and pictures: {arguments.output}/; look at"
        f" {arguments.output}/report.html first, then play with {arguments.output}/explore.html."
    )
    if arguments.record:
        from rnade.records import run_facts

        facts = run_facts("python examples/demo.py --record " + arguments.record.name)
        text = json.dumps(facts | {"seconds": seconds} | record, indent=1)
        arguments.record.write_text(text + "\n")


if __name__ == "__main__":
    main()
