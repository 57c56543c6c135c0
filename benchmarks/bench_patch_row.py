"""How long one of the paper's rows of Table 2 takes here: python -m benchmarks.bench_patch_row.

Times some epochs of a row's own training, on fresh patches of made images, and says what all of
its epochs take. Writes results/table2/time-DEVICE.json and .md.
"""

import argparse

import numpy as np
import torch

from benchmarks import study
from benchmarks.pages import markdown
from rnade.data.patches import Bsds300, PatchSource
from rnade.records import run_facts
from rnade.reproduce.patches.models import fit
from rnade.reproduce.patches.rows import ROWS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--row", default="rnade-mog-10")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=5, help="to be timed; the first is left out")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, size=(321, 481), dtype=np.uint8) for _ in range(20)]
    source = PatchSource(images, device=torch.device(options.device))
    settings = ROWS[options.row].settings
    whole = settings["recipe"]
    short = {**settings, "recipe": {**whole, "epochs": options.epochs}}
    seconds = [row[-1] for row in fit(short, Bsds300(source, source, source)).details["history"]]
    per_update = (seconds[-1] - seconds[1]) / (options.epochs - 1) / whole["batches_per_epoch"]
    n_updates = whole["epochs"] * whole["batches_per_epoch"]
    facts = run_facts(f"python -m benchmarks.bench_patch_row --device {options.device}")
    record = {
        **facts,
        "row": options.row,
        "milliseconds_per_update": 1e3 * per_update,
        "n_updates": n_updates,
        "minutes": per_update * n_updates / 60,
    }
    hardware = facts["hardware"]
    where = hardware["gpu"] if options.device == "cuda" else f"{hardware['cores']} cores"
    row = [ROWS[options.row].label, where, f"{1e3 * per_update:.2f}", f"{n_updates:,}"]
    head = ["row", "on", "ms an update", "updates", "minutes of training"]
    table = markdown(head, [[*row, f"{record['minutes']:.1f}"]], left=2) + "\n"
    name = f"time-{options.device}"
    study.write_record(study.folder_of("table2") / f"{name}.json", record, table, f"{name}.md")


if __name__ == "__main__":
    main()
