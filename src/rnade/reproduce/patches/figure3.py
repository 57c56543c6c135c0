"""The paper's Figure 3: conditionals of mixtures of Gaussians against mixtures of Laplaces.

    rnade reproduce figure3 --data-dir FOLDER

Uses the models RNADE-MoG and RNADE-MoL with K = 10 that Table 2 keeps, and trains those that are
missing. The record holds the numbers that are drawn.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from rnade.data.patches import whole_patches
from rnade.nn import RNADEModule
from rnade.reproduce.core.density import Density
from rnade.reproduce.core.experiment import Result, Settings
from rnade.reproduce.core.layout import Cell
from rnade.reproduce.core.pictures import new_figure
from rnade.reproduce.patches.figure import AbstractPatchFigure
from rnade.reproduce.patches.tables import WORDS

# Mixtures of Gaussians dashed red, of Laplaces solid blue, the data green: as in the paper.
RED, BLUE, GREEN, ORANGE, GREY = "#b3261e", "#33658f", "#3a8f4d", "#c9641c", "#8a919b"
LINES = {
    "rnade-mog-10": {"color": RED, "linestyle": "--", "label": "MoG"},
    "rnade-mol-10": {"color": BLUE, "linestyle": "-", "label": "MoL"},
}
MODELS = tuple(LINES)
N_POINTS = 400
# The first pixel and the two that the paper shows, counted from 0; a patch with contrast.
PIXELS = (0, 18, 36)
PATCH = 1
PARTS = ("first pixel", "first row of pixels", "all other pixels", "all pixels")


class Figure3(AbstractPatchFigure):
    """Six panels that compare conditionals."""

    name = "figure3"
    title = WORDS["figure3"]["title"]
    shown = MODELS
    rows = PARTS
    facts: ClassVar[Settings] = {"patch": PATCH}

    def numbers(self, models: Mapping[str, Density], test: Tensor, n: int) -> Result:
        """Compute the curves and the differences."""
        return compare({name: model.module for name, model in models.items()}, test, n)

    def lines(self, numbers: Result) -> dict[str, list[Cell]]:
        """Where each kind of mixture predicts better."""
        parts = zip(PARTS, numbers["parts"], strict=True)
        lines = {row: [Cell(part["mean"], part["standard_error"])] for row, part in parts}
        lines["all pixels"].append(Cell(float(sum(v > 0 for v in numbers["difference"]))))
        return lines

    def draw(self, numbers: Result) -> Any:
        """Draw the six panels."""
        return draw_comparison(numbers)


@torch.no_grad()
def compare(modules: Mapping[str, Any], test: Tensor, n: int) -> Result:
    """Numbers of the six panels, by RNADEs of raw patches in raster order.

    Differences are averaged over n of the test patches.

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


def draw_comparison(found: Mapping[str, Any]) -> Any:
    """Draw what `compare` gives: conditionals of Gaussians against conditionals of Laplaces."""
    figure = new_figure(11, 6)
    (a, b, c), (d, e, f) = figure.subplots(2, 3)
    patch = whole_patches(torch.tensor(found["patch"], dtype=torch.float64))
    a.imshow(patch.numpy(), cmap="gray", vmin=-0.5, vmax=0.5)
    a.set(xticks=[], yticks=[], title="(a) a test patch")
    histogram, first = found["histogram"], found["curves"]["0"]
    for ax, log in ((b, False), (c, True)):
        density = np.asarray(histogram["density"])
        with np.errstate(divide="ignore"):
            height = np.log(density) if log else density
        ax.stairs(
            np.where(np.isfinite(height), height, np.nan),
            histogram["edges"],
            color=GREEN,
            label="test patches",
            baseline=None if log else 0,
        )
        _draw_curves(ax, first, log=log)
        ax.axvline(found["patch"][0], color=GREY, lw=0.8)
    b.set(title="(b) p(x₁)", xlim=(-0.6, 0.6))
    c.set(title="(c) log p(x₁)", xlim=(-0.8, 0.8), ylim=(-8, 4))
    b.legend()
    for ax, letter, pixel in ((d, "d", 19), (e, "e", 37)):
        _draw_curves(ax, found["curves"][str(pixel - 1)], log=True)
        ax.axvline(found["patch"][pixel - 1], color=GREY, lw=0.8)
        ax.set(title=f"({letter}) log p of pixel {pixel} given those before")
    difference, error = np.asarray(found["difference"]), np.asarray(found["standard_error"])
    pixels = np.arange(1, len(difference) + 1)
    f.axhline(0, color=GREY, lw=0.8)
    f.fill_between(pixels, difference - error, difference + error, color=ORANGE, alpha=0.3, lw=0)
    f.plot(pixels, difference, color=ORANGE)
    f.set(title=f"(f) MoG less MoL, nats, {found['n_patches']:,} patches", xlabel="pixel")
    return figure


def _draw_curves(ax: Any, curves: Mapping[str, Any], *, log: bool) -> None:
    x = np.asarray(curves["x"])
    for name, line in LINES.items():
        y = np.asarray(curves[name])
        ax.plot(x, y if log else np.exp(y), **line)
    if log:
        top = max(max(curves[name]) for name in LINES)
        ax.set_ylim(top - 12, top + 1)


EXPERIMENT = Figure3()
