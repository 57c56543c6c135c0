"""Charts as markup: shapes in SVG that stretch with the page, words in HTML that do not.

Shapes are drawn on a square of 1000 x 1000 that fills its place whatever the width; strokes keep
their width, and labels are ordinary text put at percentages, so that a chart is as readable on a
phone as on a wide screen. Colours are classes, which the style sheet sets for light and dark.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rnade.report.markup import Markup, text
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

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1; further out it is kept just outside."""
        return min(max((value - self.low) / (self.high - self.low), -0.5), 1.5)

    def x(self, value: float) -> int:
        """Place along the horizontal."""
        return round(SIDE * self.share(value))

    def y(self, value: float) -> int:
        """Place along the vertical, which counts downwards."""
        return round(SIDE * (1 - self.share(value)))

    def ticks(self, about: int = 5) -> list[float]:
        """Round values within the range, about so many."""
        rough = (self.high - self.low) / about
        base = 10.0 ** math.floor(math.log10(rough))
        step = next(m * base for m in (1, 2, 5, 10) if m * base >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [k * step for k in range(first, last + 1)]


def line(xs: Sequence[int], ys: Sequence[int], kind: str) -> str:
    """A line through points."""
    points = "L".join(f"{x} {y}" for x, y in zip(xs, ys, strict=True))
    return f'<path class="{kind}" d="M{points}"/>'


def dots(xs: Array, ys: Array, kind: str) -> str:
    """Round points, as the caps of lines of no length: a few bytes each."""
    places = "".join(f"M{x} {y}h0" for x, y in zip(xs.tolist(), ys.tolist(), strict=True))
    return f'<path class="{kind}" d="{places}"/>'


def rectangle(left: int, top: int, right: int, bottom: int, kind: str) -> str:
    """A filled rectangle."""
    return f'<path class="{kind}" d="M{left} {top}H{right}V{bottom}H{left}z"/>'


def steps(edges: Array, heights: Array, x: Scale, y: Scale, kind: str, *, closed: bool) -> str:
    """The outline of a histogram; `closed` down to 0, to be filled."""
    places = [x.x(edge) for edge in edges]
    levels = [y.y(height) for height in heights]
    ground = y.y(0.0)
    path = f"M{places[0]} {ground}"
    for level, right in zip(levels, places[1:], strict=True):
        path += f"V{level}H{right}"
    return f'<path class="{kind}" d="{path}V{ground}{"z" if closed else ""}"/>'


def svg(shapes: str, label: str, kind: str = "") -> Markup:
    """Shapes as a picture that fills its place."""
    return Markup(
        f'<svg class="{kind}" viewBox="0 0 {SIDE} {SIDE}" preserveAspectRatio="none" role="img"'
        f' aria-label="{text(label)}">{shapes}</svg>'
    )


def chart(
    shapes: str,
    x: Scale,
    y: Scale,
    *,
    label: str,
    x_title: str = "",
    y_title: str = "",
    notes: Sequence[tuple[float, str]] = (),
    kind: str = "",
) -> Markup:
    """A picture with ticks.

    Parameters
    ----------
    shapes : str
        On the square.
    x, y : Scale
    label : str
        What the picture shows, for those who do not see it.
    x_title, y_title : str
    notes : sequence of (float, str)
        Words at places along x, above the shapes.
    kind : str
        A class of the style sheet.
    """
    grid = "".join(f'<path class="grid" d="M0 {y.y(v)}H{SIDE}"/>' for v in y.ticks(4))
    across = "".join(
        f'<span style="left:{100 * x.share(v):.1f}%">{number(v)}</span>' for v in x.ticks()
    )
    up = "".join(
        f'<span style="bottom:{100 * y.share(v):.1f}%">{number(v)}</span>' for v in y.ticks(4)
    )
    said = "".join(
        f'<span class="note" style="{_beside(x.share(v))}">{text(words)}</span>'
        for v, words in notes
    )
    above = f'<div class="y-title">{text(y_title)}</div>' if y_title else ""
    below = f'<div class="x-title">{text(x_title)}</div>' if x_title else ""
    return Markup(
        f'<div class="chart {kind}">{above}<div class="up">{up}</div>'
        f'<div class="area">{svg(grid + shapes, label)}{said}</div>'
        f'<div class="across">{across}</div>{below}</div>'
    )


def _beside(share: float) -> str:
    """Words stand to the right of their place, or to the left where there is no room."""
    if share < 0.7:
        return f"left:{100 * share:.1f}%"
    return f"right:{100 * (1 - share):.1f}%;text-align:right"


def on_square(values: Array, low: float, high: float) -> Array:
    """Whole-number places of many values at once; those outside stay outside."""
    share = (values - low) / (high - low if high > low else 1.0)
    return np.asarray(np.round(SIDE * np.clip(share, -0.1, 1.1)), dtype=np.int64)
