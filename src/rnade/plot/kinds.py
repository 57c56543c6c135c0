"""Single columns of any kind on axes: bars of levels, histograms with atoms, dates as dates."""

from typing import Any

import numpy as np

from rnade.plot.base import MODEL, REAL
from rnade.report.marginals import LevelMarginal, NumberMarginal
from rnade.report.resemblance import Marginal
from rnade.report.table_pictures import level_bars
from rnade.typing import Array

# Levels with bars of their own; the others share one.
_MOST_LEVELS = 12
_LONGEST_NAME = 20


def draw_levels(ax: Any, found: LevelMarginal) -> None:
    """Bars of real beside bars of sampled shares, one pair for each level."""
    names, real, sampled = zip(*level_bars(found, _MOST_LEVELS), strict=True)
    places = np.arange(len(names))
    ax.bar(places - 0.2, real, 0.4, color=REAL, alpha=0.5, label="real")
    ax.bar(places + 0.2, sampled, 0.4, color=MODEL, label="sampled")
    ax.set_xticks(places, [_plain(name) for name in names], rotation=30, ha="right")


def draw_numbers(ax: Any, found: Marginal) -> None:
    """Histograms of what is spread out; a marked line at each atom, as high as its share."""
    edges: Any = found.edges
    atoms: Any = getattr(found, "atoms", np.empty(0))
    if isinstance(found, NumberMarginal) and found.unit is not None:
        edges, atoms = (_dates(values, found.unit) for values in (edges, atoms))
    ax.stairs(found.real, edges, fill=True, color=REAL, alpha=0.3, label="real")
    ax.stairs(found.sampled, edges, color=MODEL, label="sampled")
    if isinstance(found, NumberMarginal):
        if len(atoms):
            ax.vlines(atoms, 0, found.real_atoms, color=REAL, lw=3, alpha=0.5)
            ax.plot(atoms, found.real_atoms, "o", color=REAL, label="real, single value")
            ax.plot(atoms, found.sampled_atoms, "_", ms=12, mew=2, color=MODEL)
        if found.unit is not None:
            ax.tick_params(axis="x", rotation=30)
        elif found.kind == "integer":
            ax.locator_params(axis="x", integer=True)


def _dates(values: Array, unit: str) -> Any:
    """Days or seconds since 1970-01-01 as dates, to the second."""
    seconds = values * 86_400 if unit == "day" else values
    return np.round(seconds).astype("int64").astype("datetime64[s]")


def _plain(name: str) -> str:
    """A level as matplotlib takes it: short, and dollar signs no formula."""
    short = name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
    return short.replace("$", r"\$")
