"""The paper's experiment on image patches in small: two photographs, two minutes, two cores.

Trains a mixture of Gaussians by minibatch EM, RNADE by the paper's recipe with conditionals of
Gaussians and of Laplaces, and RNADE our way, all on fresh patches of the left parts of the
photographs; scores them on patches of the right parts; draws the paper's figures 1 and 3.

Run it by `make demo-patches`, or: python examples/demo_patches.py [--output FOLDER]
"""

import argparse
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_sample_image

from rnade.data.patches import Bsds300, PatchSource
from rnade.reproduce.core.density import Density
from rnade.reproduce.core.pictures import as_files
from rnade.reproduce.patches.figure1 import LABELS, draw_patches, shown_rows
from rnade.reproduce.patches.figure3 import compare, draw_comparison
from rnade.reproduce.patches.models import fit
from rnade.reproduce.patches.rows import ROWS
from rnade.reproduce.patches.table2 import score_both, scored_patches

N_TEST = 20_000
# The rows of Table 2 that are trained, and what makes them small.
_PAPER_IN_SMALL = {
    "n_hidden": 100,
    "recipe": {
        "batch_size": 100,
        "epochs": 15,
        "batches_per_epoch": 150,
        "learning_rate": 0.005,
    },
}
SMALL = {
    "mog-100": {"n_components": 30, "em": {"max_iter": 100, "batch_size": 4000}},
    "rnade-mog-10": _PAPER_IN_SMALL,
    "rnade-mol-10": _PAPER_IN_SMALL,
    "one-layer-0": {
        "n_hidden": 100,
        "recipe": {"batch_size": 100, "epochs": 15, "batches_per_epoch": 150},
    },
}
NAMES = {
    "mog-100": "mixture of 30 Gaussians, minibatch EM",
    "rnade-mog-10": "RNADE-MoG, the paper's recipe",
    "rnade-mol-10": "RNADE-MoL, the paper's recipe",
    "one-layer-0": "RNADE-MoG, our way",
}
console = Console()


def photographs() -> Bsds300:
    """Training, validation and test patches from the left, the middle and the right."""
    images = [
        load_sample_image(name).mean(axis=2).astype(np.uint8)
        for name in ("china.jpg", "flower.jpg")
    ]
    width = images[0].shape[1]
    cuts = [0, int(0.6 * width), int(0.7 * width), width]
    parts = [[image[:, a:b] for image in images] for a, b in pairwise(cuts)]
    return Bsds300(*(PatchSource(part) for part in parts))


def smaller(settings: dict, changes: dict) -> dict:
    """Settings with changes, those within "recipe" and "em" too."""
    nested = {k: {**settings[k], **v} for k, v in changes.items() if isinstance(v, dict)}
    return {**settings, **changes, **nested}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("demo-output/patches"))
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    sources = photographs()
    patches = scored_patches(sources, N_TEST)
    console.rule("Patches of 8 x 8 pixels from two photographs")
    table = Table("model", "training", "test", "± over patches", "seconds")
    models: dict[str, Density] = {}
    for name, changes in SMALL.items():
        console.print(f"training: {NAMES[name]}")
        fitted = fit(smaller(ROWS[name].settings, changes), sources)
        models[name] = fitted.density
        scores = score_both(fitted.density, patches)
        table.add_row(
            NAMES[name],
            f"{scores['train']['mean']:.1f}",
            f"{scores['test']['mean']:.1f}",
            f"{scores['test']['standard_error']:.1f}",
            f"{fitted.details['fit_seconds']:.0f}",
        )
    console.print(table)
    console.print("Nats per patch. Left and right of a photograph differ, and so do the columns.")
    found = shown_rows(models["mog-100"], models["rnade-mog-10"], patches.test[:2000])
    labels = {**LABELS, "mixture": "mixture", "rnade": "RNADE-MoG"}
    rows = {labels[name]: found[name]["patches"] for name in LABELS}
    files = as_files(draw_patches(rows), "figure1")
    modules = {name: models[name].module for name in ("rnade-mog-10", "rnade-mol-10")}
    files |= as_files(draw_comparison(compare(modules, patches.test, 10_000)), "figure3")
    console.print(f"Done in {time.perf_counter() - began:.0f} s. Pictures:")
    for name, contents in files.items():
        (folder / name).write_bytes(contents)
        console.print(f"  {folder / name}")


if __name__ == "__main__":
    main()
