"""The paper's Figure 3: conditionals of mixtures of Gaussians against mixtures of Laplaces.

    rnade reproduce figure3 --data-dir FOLDER

Uses the models RNADE-MoG and RNADE-MoL with K = 10 that Table 2 keeps, and trains those that are
missing. The record holds the numbers that are drawn.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from rnade.nn import RNADEModule
from rnade.reproduce.experiment import Choice, Context
from rnade.reproduce.layout import Cell, ResultTable
from rnade.reproduce.patch_figure import AbstractPatchFigure
from rnade.reproduce.pictures import as_files, draw_comparison
from rnade.reproduce.runner import Job, Record
from rnade.reproduce.table2 import load_patches, model_of

MODELS = ("rnade-mog-10", "rnade-mol-10")
N_PATCHES = 10_000
N_POINTS = 400
# The first pixel and the two that the paper shows, counted from 0; a patch with contrast.
PIXELS = (0, 18, 36)
PATCH = 1


class Figure3(AbstractPatchFigure):
    """Six panels that compare conditionals."""

    name = "figure3"
    title = "Figure 3: Gaussians against Laplaces"
    shown = MODELS
    facts: ClassVar[dict[str, Any]] = {"patch": PATCH}

    def execute(
        self, jobs: Sequence[Job], context: Context
    ) -> Iterator[tuple[Job, dict[str, Any]]]:
        """Compute the curves and the differences."""
        for job in jobs:
            quick = job.settings["quick"]
            patches = load_patches(context.store, context.device, quick)
            modules = {
                name: model_of(name, patches, context, quick=quick)[0].module for name in MODELS
            }
            yield job, compare(modules, patches.test, N_PATCHES // (100 if quick else 1))

    def tables(self, choice: Choice, records: Mapping[str, Record]) -> list[ResultTable]:
        """Where each kind of mixture predicts better."""
        cells: dict[tuple[str, str], Cell] = {}
        rows = ("first pixel", "first row of pixels", "all other pixels", "all pixels")
        for record in records.values():
            found = record["result"]
            for row, part in zip(rows, found["parts"], strict=True):
                cells[row, "MoG less MoL"] = Cell(part["mean"], part["standard_error"])
            better = sum(v > 0 for v in found["difference"])
            cells["all pixels", "pixels where MoG is better"] = Cell(float(better))
        return [
            ResultTable(
                self.title,
                f"Difference in log density between the conditionals of RNADE-MoG and RNADE-MoL,"
                f" nats, ± its standard error over {N_PATCHES:,} test patches.",
                "pixels",
                rows,
                ["MoG less MoL", "pixels where MoG is better"],
                cells,
            )
        ]

    def pictures(self, choice: Choice, records: Mapping[str, Record]) -> dict[str, bytes]:
        """Draw the six panels."""
        for record in records.values():
            return as_files(draw_comparison(record["result"]), self.name)
        return {}


@torch.no_grad()
def compare(modules: Mapping[str, Any], test: Tensor, n: int) -> dict[str, Any]:
    """Numbers of the six panels.

    Parameters
    ----------
    modules : mapping of str to RNADEModule
        In raster order, of raw patches.
    test : Tensor of shape (N, D)
    n : int
        Patches over which differences are averaged.

    Returns
    -------
    dict
        patch: the pixels of (a); histogram: edges and density of the first pixel; curves: for each
        pixel, counted from 0, values x and each model's log density there; difference and
        standard_error, by pixel; parts: of groups of pixels.
    """
    mog, mol = (modules[name] for name in MODELS)
    x = test[:n]
    gap = (mog.log_conditionals(x) - mol.log_conditionals(x)).double().cpu().numpy()
    patch = test[PATCH]
    density, edges = np.histogram(test[:, 0].cpu().numpy(), 200, (-1, 1), density=True)
    groups = (gap[:, :1], gap[:, :8], gap[:, 8:], gap)
    return {
        "n_patches": len(x),
        "patch": patch.tolist(),
        "histogram": {"edges": edges.tolist(), "density": density.tolist()},
        "curves": {str(d): _curves(modules, d, patch) for d in PIXELS},
        "difference": gap.mean(0).tolist(),
        "standard_error": (gap.std(0, ddof=1) / len(gap) ** 0.5).tolist(),
        "parts": [
            {"mean": float(t.mean()), "standard_error": float(t.std(ddof=1) / len(t) ** 0.5)}
            for t in (group.sum(1) for group in groups)
        ],
    }


def _curves(modules: Mapping[str, RNADEModule], d: int, patch: Tensor) -> dict[str, list[float]]:
    """Log densities of pixel d given those before it in a patch."""
    conditionals = {name: m.conditional(d, patch[None, :d]) for name, m in modules.items()}
    if d == 0:
        low, high = -1.0, 1.0
    else:
        spread = [(c.quantile(0.001), c.quantile(0.999)) for c in conditionals.values()]
        low = min(float(a) for a, _ in spread)
        high = max(float(b) for _, b in spread)
        low, high = min(low, float(patch[d])) - 0.02, max(high, float(patch[d])) + 0.02
    x = torch.linspace(low, high, N_POINTS, device=patch.device)
    found = {"x": [round(v, 6) for v in x.tolist()]}
    for name, conditional in conditionals.items():
        found[name] = [round(v, 4) for v in conditional.log_prob(x[:, None])[:, 0].tolist()]
    return found


EXPERIMENT = Figure3()
