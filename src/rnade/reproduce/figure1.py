"""The paper's Figure 1: patches of test images beside samples of a mixture and of RNADE.

    rnade reproduce figure1 --data-dir FOLDER

Uses the models that Table 2 keeps, and trains those that are missing. A fourth row, which the
paper speaks of but does not show, has samples whose pixels are limited to the legal range.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from torch import Generator, Tensor

from rnade.reproduce.experiment import Choice, Context
from rnade.reproduce.layout import Cell, ResultTable
from rnade.reproduce.patch_figure import AbstractPatchFigure
from rnade.reproduce.patch_models import PatchModel
from rnade.reproduce.patch_remarks import out_of_range, sample_in_range
from rnade.reproduce.pictures import as_files, draw_patches
from rnade.reproduce.runner import Job, Record
from rnade.reproduce.table2 import load_patches, model_of

N_SHOWN = 15
N_COUNTED = 10_000
SEED = 0
MIXTURE, RNADE = "mog-200", "rnade-mog-10"
LABELS = {
    "data": "test patches",
    "mixture": "MoG K=200",
    "rnade": "RNADE-MoG K=10",
    "limited": "RNADE, legal range",
}


class Figure1(AbstractPatchFigure):
    """Test patches and samples."""

    name = "figure1"
    title = "Figure 1: patches and samples"
    shown = (MIXTURE, RNADE)
    facts: ClassVar[dict[str, Any]] = {"seed": SEED}

    def execute(
        self, jobs: Sequence[Job], context: Context
    ) -> Iterator[tuple[Job, dict[str, Any]]]:
        """Draw patches and samples at random; keep the first few, count those out of range."""
        for job in jobs:
            quick = job.settings["quick"]
            n = N_COUNTED // (100 if quick else 1)
            patches = load_patches(context.store, context.device, quick)
            mixture, rnade = (
                model_of(name, patches, context, quick=quick)[0] for name in (MIXTURE, RNADE)
            )
            yield job, shown_rows(mixture, rnade, patches.test[:n])

    def tables(self, choice: Choice, records: Mapping[str, Record]) -> list[ResultTable]:
        """How wide the rows are, and how many leave the legal range."""
        cells: dict[tuple[str, str], Cell] = {}
        for record in records.values():
            for name, label in LABELS.items():
                found = record["result"][name]
                cells[label, "deviation of a pixel"] = Cell(found["deviation"])
                cells[label, "% out of range"] = Cell(100 * found["out_of_range"])
        return [
            ResultTable(
                self.title,
                f"Of {N_COUNTED:,} patches of each: the share with pixels more than 1 apart, and"
                " the standard deviation of a pixel around the patch's mean among all others.",
                "patches",
                list(LABELS.values()),
                ["deviation of a pixel", "% out of range"],
                cells,
                decimals=3,
            )
        ]

    def pictures(self, choice: Choice, records: Mapping[str, Record]) -> dict[str, bytes]:
        """Draw the rows."""
        for record in records.values():
            rows = {LABELS[name]: record["result"][name]["patches"] for name in LABELS}
            return as_files(draw_patches(rows), self.name)
        return {}


def shown_rows(mixture: PatchModel, rnade: PatchModel, test: Tensor) -> dict[str, Any]:
    """Draw as many samples of each model as there are test patches; describe and keep some."""
    n, generator = len(test), Generator(test.device).manual_seed(SEED)
    rows = {
        "data": test,
        "mixture": mixture.sample(n, generator),
        "rnade": rnade.sample(n, generator),
        "limited": sample_in_range(rnade, n, generator),
    }
    return {name: _kept(x) for name, x in rows.items()}


def _kept(x: Tensor) -> dict[str, Any]:
    shown = [[round(v, 4) for v in row] for row in x[:N_SHOWN].tolist()]
    illegal = out_of_range(x)
    return {
        "patches": shown,
        # A sample that once leaves the range may run away: a few would hide all others.
        "deviation": float(x[~illegal].double().std()),
        "out_of_range": float(illegal.double().mean()),
    }


EXPERIMENT = Figure1()
