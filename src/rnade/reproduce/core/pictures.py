"""Pictures of what records hold: drawn from numbers alone, as PNG and as SVG."""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

from rnade.typing import Array


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


def draw_rows(
    rows: Mapping[str, Array], greys: tuple[float, float], *, height: float, aspect: str = "equal"
) -> Any:
    """Draw rows of grey pictures, each an array of shape (n, rows of pixels, pixels in a row).

    Greys are the values of black and white, the height is that of a row in inches, and the aspect
    that of a pixel.
    """
    n = max(len(pictures) for pictures in rows.values())
    figure = new_figure(0.62 * n + 1.6, height * len(rows))
    axes = figure.subplots(len(rows), n, squeeze=False)
    for line, (name, pictures) in zip(axes, rows.items(), strict=True):
        for ax, picture in zip(line, pictures, strict=False):
            ax.imshow(picture, cmap="gray", vmin=greys[0], vmax=greys[1], aspect=aspect)
        for ax in line:
            ax.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    return figure
