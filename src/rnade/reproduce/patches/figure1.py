"""The paper's Figure 1: patches of test images beside samples of a mixture and of RNADE.

    rnade reproduce figure1 --data-dir FOLDER

Uses the models that Table 2 keeps, and trains those that are missing. A fourth row, which the
paper speaks of but does not show, has samples whose pixels are limited to the legal range.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from rnade.data.patches import whole_patches
from rnade.reproduce.core.density import Density
from rnade.reproduce.core.experiment import Result, Settings
from rnade.reproduce.core.layout import Cell
from rnade.reproduce.core.pictures import draw_rows
from rnade.reproduce.patches.figure import AbstractPatchFigure
from rnade.reproduce.patches.remarks import out_of_range, sample_in_range
from rnade.reproduce.patches.tables import WORDS

N_SHOWN = 15
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
    title = WORDS["figure1"]["title"]
    shown = (MIXTURE, RNADE)
    rows = tuple(LABELS.values())
    facts: ClassVar[Settings] = {"seed": SEED}

    def numbers(self, models: Mapping[str, Density], test: Tensor, n: int) -> Result:
        """Draw patches and samples at random; keep the first few, count those out of range."""
        return shown_rows(models[MIXTURE], models[RNADE], test[:n])

    def lines(self, numbers: Result) -> dict[str, list[Cell]]:
        """How wide the rows are, and how many leave the legal range."""
        found = {label: numbers[name] for name, label in LABELS.items()}
        return {
            label: [Cell(row["deviation"]), Cell(100 * row["out_of_range"])]
            for label, row in found.items()
        }

    def draw(self, numbers: Result) -> Any:
        """Draw the rows."""
        return draw_patches({LABELS[name]: numbers[name]["patches"] for name in LABELS})


def draw_patches(rows: Mapping[str, Any]) -> Any:
    """Draw rows of patches, each given as an array of shape (n, D), in the same greys."""
    pictures = {
        name: whole_patches(torch.as_tensor(patches, dtype=torch.float64)).numpy()
        for name, patches in rows.items()
    }
    return draw_rows(pictures, (-0.5, 0.5), height=0.72)


def shown_rows(mixture: Density, rnade: Density, test: Tensor) -> Result:
    """Draw as many samples of each model as there are test patches; describe and keep some."""
    n, generator = len(test), Generator(test.device).manual_seed(SEED)
    rows = {
        "data": test,
        "mixture": mixture.sample(n, generator),
        "rnade": rnade.sample(n, generator),
        "limited": sample_in_range(rnade, n, generator),
    }
    return {name: _kept(x) for name, x in rows.items()}


def _kept(x: Tensor) -> Result:
    shown = [[round(v, 4) for v in row] for row in x[:N_SHOWN].tolist()]
    illegal = out_of_range(x)
    return {
        "patches": shown,
        # A sample that once leaves the range may run away: a few would hide all others.
        "deviation": float(x[~illegal].double().std()),
        "out_of_range": float(illegal.double().mean()),
    }


EXPERIMENT = Figure1()
