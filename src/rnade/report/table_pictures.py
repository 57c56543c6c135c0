"""Pictures of columns of any kind, from findings alone."""

import math
from datetime import UTC, datetime

import numpy as np

from rnade.look import Markup
from rnade.report.cells import CellReason
from rnade.report.chart import SIDE, Scale, path, rectangle, steps, svg
from rnade.report.kinds import date_words, number_words
from rnade.report.marginals import LevelMarginal, NumberMarginal
from rnade.report.markup import fill
from rnade.report.resemblance import Pairs, TablePairs, spread_points
from rnade.report.words import percent
from rnade.typing import Array

# Levels that have bars of their own; the others share one.
MOST_LEVELS = 7
# Half the width of the bar of an atom, on the square.
_ATOM = 14


def levels(found: LevelMarginal) -> Markup:
    """Bars for the most frequent levels: real above, sampled below."""
    bars = level_bars(found, MOST_LEVELS)
    most = max(1e-12, *(share for _, *both in bars for share in both))
    return fill("levels", rows=[_level(found.column, *bar, most) for bar in bars])


def level_bars(found: LevelMarginal, most: int) -> list[tuple[str, float, float]]:
    """Names of the bars of a column, with real and sampled shares; the rest of them is last."""
    chosen = shown_levels(found, most)
    bars = [(found.levels[i], float(found.real[i]), float(found.sampled[i])) for i in chosen]
    rest = [i for i in range(len(found.levels)) if i not in chosen]
    if rest:
        real, sampled = (float(shares[rest].sum()) for shares in (found.real, found.sampled))
        bars.append((f"{len(rest)} others", real, sampled))
    if found.new > 0:
        bars.append(("new levels", found.new, 0.0))
    return bars


def shown_levels(found: LevelMarginal, most: int = MOST_LEVELS) -> list[int]:
    """Places of the levels to show: the most frequent first, but ordered ones in their order."""
    often = np.argsort(-np.maximum(found.real, found.sampled), kind="stable")
    if len(often) > most:
        often = often[: most - 1]
    return sorted(often.tolist()) if found.kind == "ordered category" else often.tolist()


def _level(column: str, level: str, real: float, sampled: float, most: float) -> Markup:
    x = Scale(0.0, most)
    shapes = [
        path("fill-real", rectangle(0, 60, int(x.x(real)), 500)),
        path("fill-model", rectangle(0, 560, int(x.x(sampled)), 860)),
    ]
    label = f"{column} is {level}: {percent(real)} real, {percent(sampled)} sampled"
    return fill("level", name=level, picture=svg(shapes, label), real=percent(real))


def numbers(found: NumberMarginal) -> Markup:
    """Real values filled, sampled ones as a line; atoms as bars on a scale of their own."""
    atoms = found.atoms.tolist()
    low, high = min([found.edges[0], *atoms]), max([found.edges[-1], *atoms])
    margin = 0.03 * (high - low) if atoms else 0.0
    x = Scale(float(low - margin), float(high + margin))
    y = Scale(0.0, 1.05 * float(max(found.real.max(), found.sampled.max(), 1e-12)))
    shapes = [
        steps("fill-real", found.edges, found.real, x, y, "z"),
        steps("line-model", found.edges, found.sampled, x, y),
    ]
    heights = Scale(0.0, 1.05 * max([*found.real_atoms, *found.sampled_atoms, 1e-12]))
    for atom, real, sampled in zip(atoms, found.real_atoms, found.sampled_atoms, strict=True):
        at = int(x.x(atom))
        shapes += [
            path("fill-atom", rectangle(at - _ATOM, int(heights.y(real)), at, SIDE)),
            path("fill-model", rectangle(at, int(heights.y(sampled)), at + _ATOM, SIDE)),
        ]
    ends = [value_words(found, float(end), float(high - low)) for end in (low, high)]
    picture = svg(shapes, f"Histogram of {found.column}, real and sampled.")
    return fill("mini", picture=picture, low=ends[0], high=ends[1])


def value_words(found: NumberMarginal, x: float, span: float) -> str:
    """Write a value of a column: a date, a whole number, or a number as fine as the range."""
    if found.unit is not None:
        return date_words(x, found.unit, span, found.zone)
    return number_words(x, found.kind, span)


def missing_bar(column: str, share: float) -> Markup:
    """The share of missing cells as a bar."""
    bar = path("fill-missing", rectangle(0, 0, int(Scale(0.0, 1.0).x(share)), SIDE))
    return fill("missing-bar", picture=svg([bar], f"{column}: {percent(share)} missing"))


def expected_cell(reason: CellReason) -> Markup:
    """The interval or the probability that the model expected, and where the cell lies."""
    middle = path("grid", f"M0 500H{SIDE}")
    if reason.likeliest is not None:
        x = Scale(-0.04, 1.04)
        best, own = reason.likeliest_probability or 0.0, reason.probability or 0.0
        bar = path("interval", f"M{x.x(0.0)} 500H{x.x(best)}")
        label = f"{reason.likeliest} had {percent(best)}, {reason.value} {percent(own)}."
        return svg([middle, bar, path("dot-odd", f"M{x.x(own)} 500h0")], label, "track")
    low, high, value = (_place(end) for end in (reason.low, reason.high, reason.value))
    x = Scale.of([low, high, value], margin=0.07)
    bar = path("interval", f"M{x.x(low)} 500H{x.x(high)}")
    words = [cell_words(reason, end) for end in (reason.value, reason.low, reason.high)]
    label = f"{reason.column} is {words[0]}; expected {words[1]} to {words[2]}."
    return svg([middle, bar, path("dot-odd", f"M{x.x(value)} 500h0")], label, "track")


def cell_words(reason: CellReason, value: float | str | None) -> str:
    """Write a value of an odd cell, or an end of its interval, for people."""
    if not isinstance(value, float):
        return str(value)
    low, high, own = (_place(end) for end in (reason.low, reason.high, reason.value))
    # Of a value far off, the last digits tell nothing.
    far = abs(own - low) / 50 if value == own else 0.0
    return number_words(value, reason.kind, max(high - low, far))


def _place(value: float | str | None) -> float:
    """A number, or a date as a number, to draw."""
    if isinstance(value, str):
        return datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp()
    return math.nan if value is None else value


def points_of(found: Pairs, points: Array, j: int, i: int) -> tuple[Array, Array]:
    """Points of columns j and i that are complete, those of levels spread a little."""
    across, up = points[:, j], points[:, i]
    if not isinstance(found, TablePairs):
        return across, up
    both = ~np.isnan(across) & ~np.isnan(up)
    across, up = across[both], up[both]
    if found.are_levels[j]:
        across = spread_points(across)
    if found.are_levels[i]:
        up = spread_points(up, 3**0.5)
    return across, up
