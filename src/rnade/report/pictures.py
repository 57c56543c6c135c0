"""The page's pictures, from findings alone."""

import numpy as np

from rnade.look import Markup
from rnade.report.calibration import N_BINS, ColumnCalibration
from rnade.report.chart import SIDE, Scale, chart, dots, line, path, rectangle, steps, svg
from rnade.report.dependence import Gain
from rnade.report.fitted import LearningCurve, ScoreLine
from rnade.report.markup import fill
from rnade.report.oddness import Oddness, Reason
from rnade.report.resemblance import Correlation, Marginal, Pairs
from rnade.report.table_pictures import points_of
from rnade.report.words import fixed, near, number, percent, plural

# More columns than this, and the matrix of correlations is too fine to see.
MOST_IN_MATRIX = 40
# Through the middle of a track, which is one line high.
_MIDDLE = path("grid", f"M0 500H{SIDE}")


def learning_curve(curve: LearningCurve) -> Markup:
    """Scores of training and held-out rows by epoch, from where the steep start is over."""
    settled = min(len(curve.epochs) - 1, max(1, len(curve.epochs) // 15))
    epochs, held_out = np.array(curve.epochs), np.array(curve.held_out)
    known = ~np.isnan(held_out)
    x = Scale.of(curve.epochs)
    y = Scale.of([*curve.train[settled:], *held_out[known][settled:]], margin=0.08)
    shapes = [
        path("rule", f"M{x.x(curve.best_epoch)} 0V{SIDE}"),
        line("line-quiet", x.x(epochs), y.y(curve.train)),
    ]
    if known.any():
        shapes.append(line("line-model", x.x(epochs[known]), y.y(held_out[known])))
    return chart(
        shapes,
        x,
        y,
        label=f"Learning curve over {plural(curve.epochs[-1], 'epoch')}; the best is"
        f" {curve.best_epoch}.",
        x_title="epoch",
        y_title="nats a row",
        notes=[(curve.best_epoch, "kept")],
    )


def score_track(scores: list[ScoreLine], at: int) -> Markup:
    """One model's score with two standard errors to either side, on the scale of all."""
    means = np.array([line.score.mean for line in scores])
    spans = np.nan_to_num([2 * line.score.standard_error for line in scores])
    x = Scale.of([*(means - spans), *(means + spans)], margin=0.06)
    kind = "model" if at == 0 else "quiet"
    shapes = [
        _MIDDLE,
        _between(f"whisker-{kind}", x, means[at] - spans[at], means[at] + spans[at]),
        _dot(f"dot-{kind}", x, means[at]),
    ]
    return svg(shapes, f"{scores[at].model}: {number(means[at])} nats a row", "track")


def marginal(found: Marginal) -> Markup:
    """Real values filled, sampled ones as a line."""
    x = Scale(float(found.edges[0]), float(found.edges[-1]))
    y = Scale(0.0, 1.05 * float(max(found.real.max(), found.sampled.max(), 1e-12)))
    shapes = [
        steps("fill-real", found.edges, found.real, x, y, "z"),
        steps("line-model", found.edges, found.sampled, x, y),
    ]
    return _mini(shapes, x, f"Histogram of {found.column}, real and sampled.")


def calibration(found: ColumnCalibration) -> Markup:
    """Counts of the transformed values, over the band in which a right model's lie."""
    x, y = Scale(0.0, 1.0), Scale(0.0, 1.15 * max(float(found.counts.max()), found.high))
    edges = np.linspace(0, 1, N_BINS + 1)
    shapes = [
        path("band", rectangle(0, y.y(found.high), SIDE, y.y(found.low))),
        path("grid", f"M0 {y.y(found.counts.sum() / N_BINS)}H{SIDE}"),
        steps("line-real" if found.inside else "line-off", edges, found.counts, x, y),
    ]
    stays = "stays inside" if found.inside else "leaves"
    return _mini(shapes, x, f"Calibration of {found.column}: the histogram {stays} the band.")


def pair_matrix(found: Pairs) -> Markup:
    """Below the diagonal real rows, above it as many sampled ones."""
    names = found.columns
    scales = [Scale(low, high) for low, high in zip(found.low, found.high, strict=True)]

    def cell(i: int, j: int) -> Markup:
        if i == j:
            return fill("pairs-name", name=names[i])
        points, kind, said = (
            (found.real, "real", "real") if i > j else (found.sampled, "model", "sampled")
        )
        across, up = points_of(found, points, j, i)
        shapes = dots(f"points-{kind}", scales[j].x(across), scales[i].y(up))
        return fill("pairs-cell", picture=svg([shapes], f"{names[i]} against {names[j]}, {said}"))

    places = range(len(names))
    return fill("pairs-matrix", k=len(names), cells=[cell(i, j) for i in places for j in places])


def correlation_scatter(found: Correlation) -> Markup:
    """Every pair of columns as a point: real correlation across, sampled up."""
    i, j = np.triu_indices(len(found.columns), 1)
    x = Scale(-1.0, 1.0)
    points = dots("points-pair", x.x(found.real[i, j]), x.y(found.sampled[i, j]))
    return chart(
        [path("rule", f"M0 {SIDE}L{SIDE} 0"), points],
        x,
        x,
        label="Correlation of every pair of columns, real against sampled.",
        x_title="real",
        y_title="sampled",
        kind="square",
    )


def correlation_matrix(found: Correlation) -> Markup:
    """Below the diagonal real, above it sampled; empty if there are too many columns to see."""
    names, D = found.columns, len(found.columns)
    if D > MOST_IN_MATRIX:
        return Markup()
    edges = Scale(0, D).x(np.arange(D + 1))

    def cell(i: int, j: int) -> Markup:
        value = found.real[i, j] if i > j else found.sampled[i, j]
        return fill(
            "correlation-cell",
            kind="positive" if value > 0 else "negative",
            opacity=f"{abs(value):.2f}",
            d=rectangle(edges[j], edges[i], edges[j + 1], edges[i + 1]),
            one=names[i],
            other=names[j],
            real=number(found.real[i, j], 2),
            sampled=number(found.sampled[i, j], 2),
        )

    cells = [cell(i, j) for i in range(D) for j in range(D) if i != j]
    label = "Rank correlations: real below the diagonal, sampled above it."
    spans = [fill("span", words=name) for name in names]
    return fill("correlation-matrix", k=D, names=spans, picture=svg(cells, label))


def score_histogram(found: Oddness) -> Markup:
    """Log densities of all rows, with the thresholds."""
    edges, counts = found.histogram.edges, found.histogram.counts
    bounds = [(t.log_density, percent(t.level)) for t in found.thresholds]
    notes = [(bound, at) for bound, at in bounds if bound is not None and np.isfinite(bound)]
    x = Scale.of([edges[0], edges[-1], *(bound for bound, _ in notes if bound < edges[0])], 0.01)
    y = Scale(0.0, 1.12 * float(counts.max()))
    rules = [
        path("rule-odd", f"M{x.x(bound)} {90 * at}V{SIDE}") for at, (bound, _) in enumerate(notes)
    ]
    return chart(
        [steps("fill-real", edges, counts, x, y, "z"), *rules],
        x,
        y,
        label="Histogram of the log densities of all rows, with thresholds.",
        x_title="log density, nats",
        y_title="rows",
        notes=notes,
        kind="staggered",
    )


def expected(reason: Reason) -> Markup:
    """The interval that the model expected, and where the value lies."""
    low, high, value = reason.low, reason.high, reason.value
    x = Scale.of([low, high, value], margin=0.07)
    known = np.isfinite([low, high]).all()
    shapes = [
        _MIDDLE,
        _between("interval", x, low, high) if known else Markup(),
        _dot("dot-odd", x, value),
    ]
    label = f"{reason.column} is {number(value)}; expected {number(low)} to {number(high)}."
    return svg(shapes, label, "track")


def gain_track(gain: Gain, all_gains: list[Gain]) -> Markup:
    """A bar from 0, with two standard errors to either side of its end, on the scale of all."""
    x = Scale.of([0.0, 0.05, *(other.gain for other in all_gains)], margin=0.04)
    left, right = sorted([x.x(0.0), x.x(gain.gain)])
    error = np.nan_to_num(2 * gain.standard_error)
    shapes = [
        path("fill-gain", rectangle(left, 180, right, 820)),
        _between("whisker-quiet", x, gain.gain - error, gain.gain + error),
    ]
    return svg(shapes, f"{gain.column}: {fixed(gain.gain, 2)} nats", "track")


def _between(kind: str, x: Scale, low: float, high: float) -> Markup:
    """A line along the middle of a track."""
    return path(kind, f"M{x.x(low)} 500H{x.x(high)}")


def _dot(kind: str, x: Scale, value: float) -> Markup:
    return path(kind, f"M{x.x(value)} 500h0")


def _mini(shapes: list[Markup], x: Scale, label: str) -> Markup:
    """A small picture with the ends of its range below it."""
    ends = [near(end, x.high - x.low) for end in (x.low, x.high)]
    return fill("mini", picture=svg(shapes, label), low=ends[0], high=ends[1])
