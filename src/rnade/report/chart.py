"""Charts as markup: shapes in SVG that stretch with the page, words in HTML that do not.

Shapes are drawn on a square of 1000 x 1000 that fills its place whatever the width; strokes keep
their width, and labels are ordinary text put at percentages, so that a chart is as readable on a
phone as on a wide screen. Colours are classes, which the style sheet sets for light and dark.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnade.look import Markup
from rnade.report.markup import fill
from rnade.report.words import number
from rnade.typing import Array

SIDE = 1000


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high`, put on a side of the square."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float], margin: float = 0.0) -> "Scale":
        """Span the values, with a margin as a share of their range."""
        finite = [v for v in values if math.isfinite(v)]
        low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
        if not high > low:
            low, high = low - 0.5, high + 0.5
        more = margin * (high - low)
        return cls(low - more, high + more)

    def share(self, values: Any) -> Any:
        """Where values lie, from 0 to 1; further out they are kept just outside."""
        return np.clip((np.asarray(values) - self.low) / (self.high - self.low), -0.5, 1.5)

    def x(self, values: Any) -> Any:
        """Whole-number places along the horizontal."""
        return np.round(SIDE * self.share(values)).astype(int)

    def y(self, values: Any) -> Any:
        """Whole-number places along the vertical, which counts downwards."""
        return np.round(SIDE * (1 - self.share(values))).astype(int)

    def ticks(self, about: int = 5) -> list[float]:
        """Round values within the range, about so many."""
        rough = (self.high - self.low) / about
        base = 10.0 ** math.floor(math.log10(rough))
        step = next(m * base for m in (1, 2, 5, 10) if m * base >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [k * step for k in range(first, last + 1)]


def path(kind: str, d: str) -> Markup:
    """A line or a filled shape along a path, in the style of a class."""
    return Markup(f'<path class="{kind}" d="{d}"/>')


def line(kind: str, xs: Array, ys: Array) -> Markup:
    """A line through points."""
    return path(kind, "M" + "L".join(f"{x} {y}" for x, y in zip(xs, ys, strict=True)))


def dots(kind: str, xs: Array, ys: Array) -> Markup:
    """Round points, as the caps of lines of no length: a few bytes each."""
    return path(kind, "".join(f"M{x} {y}h0" for x, y in zip(xs, ys, strict=True)))


def rectangle(left: int, top: int, right: int, bottom: int) -> str:
    """The path around a rectangle."""
    return f"M{left} {top}H{right}V{bottom}H{left}z"


def steps(kind: str, edges: Array, heights: Array, x: Scale, y: Scale, end: str = "") -> Markup:
    """The outline of a histogram; with the end "z" it is closed, to be filled."""
    left, *places = x.x(edges)
    up = "".join(f"V{top}H{right}" for top, right in zip(y.y(heights), places, strict=True))
    return path(kind, f"M{left} {y.y(0.0)}{up}V{y.y(0.0)}{end}")


def svg(shapes: Iterable[Markup], label: str, kind: str = "") -> Markup:
    """Shapes as a picture that fills its place; the label is for those who do not see it."""
    return fill("svg", shapes=shapes, label=label, kind=kind)


def chart(
    shapes: Iterable[Markup],
    x: Scale,
    y: Scale,
    *,
    label: str,
    x_title: str,
    y_title: str,
    notes: Sequence[tuple[float, str]] = (),
    kind: str = "",
) -> Markup:
    """A picture of shapes on the square, with ticks; `notes` are words at places along x."""
    grid = [path("grid", f"M0 {y.y(v)}H{SIDE}") for v in y.ticks(4)]
    return fill(
        "chart",
        kind=kind,
        picture=svg([*grid, *shapes], label),
        across=[
            fill("tick", at=f"left:{_percent(x.share(v))}", words=number(v)) for v in x.ticks()
        ],
        up=[
            fill("tick", at=f"bottom:{_percent(y.share(v))}", words=number(v)) for v in y.ticks(4)
        ],
        notes=[fill("note", at=_beside(x.share(v)), words=words) for v, words in notes],
        x_title=x_title,
        y_title=y_title,
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _beside(share: float) -> str:
    """Words stand to the right of their place, or to the left where there is no room."""
    return (
        f"left:{_percent(share)}"
        if share < 0.7
        else f"right:{_percent(1 - share)};text-align:right"
    )
