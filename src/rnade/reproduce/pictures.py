"""Pictures of what records hold: drawn from numbers alone, as PNG and as SVG."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np

from rnade.typing import Array

RED, BLUE, GREEN, ORANGE, GREY = "#b3261e", "#33658f", "#3a8f4d", "#c9641c", "#8a919b"
# Mixtures of Gaussians dashed red, of Laplaces solid blue, the data green: as in the paper.
LINES = {
    "rnade-mog-10": {"color": RED, "linestyle": "--", "label": "MoG"},
    "rnade-mol-10": {"color": BLUE, "linestyle": "-", "label": "MoL"},
}


def as_files(figure: Any, name: str) -> dict[str, bytes]:
    """Contents of `name`.png and `name`.svg; equal figures become equal files."""
    import matplotlib as mpl

    files = {}
    with mpl.rc_context({"svg.hashsalt": name}):
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            out = BytesIO()
            figure.savefig(out, format=kind, dpi=150, metadata=metadata)
            files[f"{name}.{kind}"] = out.getvalue()
    return files


def new_figure(width: float, height: float) -> Any:
    """Make a figure of this size in inches, without a window."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Figures are drawn with matplotlib, which is not installed: pip install 'rnade[plot]'"
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def draw_patches(rows: Mapping[str, Sequence[Sequence[float]]]) -> Any:
    """Draw rows of patches, one row for each name; all in the same greys.

    Parameters
    ----------
    rows : mapping of str to array-like of shape (n, D)
    """
    n = max(len(patches) for patches in rows.values())
    figure = new_figure(0.62 * n + 1.6, 0.72 * len(rows))
    axes = figure.subplots(len(rows), n, squeeze=False)
    for line, (name, patches) in zip(axes, rows.items(), strict=True):
        for ax, pixels in zip(line, map(whole_patch, patches), strict=False):
            ax.imshow(pixels, cmap="gray", vmin=-0.5, vmax=0.5)
        for ax in line:
            ax.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    return figure


def whole_patch(x: Any) -> Array:
    """Pixels of a patch, the last one too, which the others leave."""
    values = np.asarray(x, dtype=np.float64)
    side = round((len(values) + 1) ** 0.5)
    return np.append(values, -values.sum()).reshape(side, side)


def draw_comparison(found: Mapping[str, Any]) -> Any:
    """Draw the paper's figure 3: conditionals of Gaussians against conditionals of Laplaces.

    Parameters
    ----------
    found : mapping
        Result of the figure's job: see `rnade.reproduce.figure3`.
    """
    figure = new_figure(11, 6)
    (a, b, c), (d, e, f) = figure.subplots(2, 3)
    a.imshow(whole_patch(found["patch"]), cmap="gray", vmin=-0.5, vmax=0.5)
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
