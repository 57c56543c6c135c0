"""The page's pictures, from findings alone."""

import numpy as np

from rnade.report.calibration import N_BINS, ColumnCalibration
from rnade.report.chart import (
    SIDE,
    Scale,
    chart,
    dots,
    line,
    on_square,
    rectangle,
    steps,
    svg,
)
from rnade.report.dependence import Gain
from rnade.report.fitted import LearningCurve, ScoreLine
from rnade.report.markup import Markup, text
from rnade.report.oddness import Oddness, Reason
from rnade.report.resemblance import Correlation, Marginal, Pairs
from rnade.report.words import fixed, near, number, percent, plural

# More columns than this, and the matrix of correlations is too fine to see.
MOST_IN_MATRIX = 40


def learning_curve(curve: LearningCurve) -> Markup:
    """Scores of training and held-out rows by epoch, from where the steep start is over."""
    settled = min(len(curve.epochs) - 1, max(1, len(curve.epochs) // 15))
    held_out = [s for s in curve.held_out if s is not None]
    x = Scale.of(curve.epochs)
    y = Scale.of([*curve.train[settled:], *curve.held_out_scores()[settled:]], margin=0.08)
    best = x.x(curve.best_epoch)
    shapes = f'<path class="rule" d="M{best} 0V{SIDE}"/>'
    xs = [x.x(epoch) for epoch in curve.epochs]
    shapes += line(xs, [y.y(s) for s in curve.train], "line-quiet")
    if held_out:
        known = [i for i, s in enumerate(curve.held_out) if s is not None]
        shapes += line([xs[i] for i in known], [y.y(s) for s in held_out], "line-model")
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
    spans = [2 * np.nan_to_num(line.score.standard_error) for line in scores]
    x = Scale.of(
        [
            line.score.mean + sign * span
            for line, span in zip(scores, spans, strict=True)
            for sign in (-1, 1)
        ],
        margin=0.06,
    )
    score, span = scores[at].score, spans[at]
    middle = x.x(score.mean)
    kind = "model" if at == 0 else "quiet"
    shapes = f'<path class="grid" d="M0 500H{SIDE}"/>'
    left, right = x.x(score.mean - span), x.x(score.mean + span)
    shapes += f'<path class="whisker-{kind}" d="M{left} 500H{right}"/>'
    shapes += f'<path class="dot-{kind}" d="M{middle} 500h0"/>'
    return svg(shapes, f"{scores[at].model}: {number(score.mean)} nats a row", "track")


def marginal(found: Marginal) -> Markup:
    """Real values filled, sampled ones as a line."""
    x = Scale(float(found.edges[0]), float(found.edges[-1]))
    y = Scale(0.0, 1.05 * float(max(found.real.max(), found.sampled.max(), 1e-12)))
    shapes = steps(found.edges, found.real, x, y, "fill-real", closed=True)
    shapes += steps(found.edges, found.sampled, x, y, "line-model", closed=False)
    ends = "".join(f"<span>{near(v, x.high - x.low)}</span>" for v in (x.low, x.high))
    label = f"Histogram of {found.column}, real and sampled."
    return Markup(f'<div class="mini">{svg(shapes, label)}</div><div class="ends">{ends}</div>')


def calibration(found: ColumnCalibration) -> Markup:
    """Counts of the transformed values, over the band in which a right model's lie."""
    top = 1.15 * max(float(found.counts.max()), found.high)
    x, y = Scale(0.0, 1.0), Scale(0.0, top)
    edges = np.linspace(0, 1, N_BINS + 1)
    shapes = rectangle(0, y.y(found.high), SIDE, y.y(found.low), "band")
    shapes += f'<path class="grid" d="M0 {y.y(found.counts.sum() / N_BINS)}H{SIDE}"/>'
    kind = "line-real" if found.inside else "line-off"
    shapes += steps(edges, found.counts, x, y, kind, closed=False)
    label = (
        f"Calibration of {found.column}: the histogram"
        f" {'stays inside' if found.inside else 'leaves'} the band."
    )
    return Markup(
        f'<div class="mini">{svg(shapes, label)}</div>'
        '<div class="ends"><span>0</span><span>1</span></div>'
    )


def pair_matrix(found: Pairs) -> Markup:
    """Below the diagonal real rows, above it as many sampled ones."""
    k = len(found.columns)
    cells = []
    for i in range(k):
        for j in range(k):
            if i == j:
                name = text(found.columns[i])
                cells.append(f'<div class="name" title="{name}"><span>{name}</span></div>')
                continue
            points, kind = (found.real, "real") if i > j else (found.sampled, "model")
            across = on_square(points[:, j], found.low[j], found.high[j])
            down = SIDE - on_square(points[:, i], found.low[i], found.high[i])
            label = (
                f"{found.columns[i]} against {found.columns[j]}, {'real' if i > j else 'sampled'}"
            )
            cells.append(f"<div>{svg(dots(across, down, f'points-{kind}'), label)}</div>")
    return Markup(f'<div class="pairs" style="--k:{k}">{"".join(cells)}</div>')


def correlation_scatter(found: Correlation) -> Markup:
    """Every pair of columns as a point: real correlation across, sampled up."""
    i, j = np.triu_indices(len(found.columns), 1)
    x = Scale(-1.0, 1.0)
    across = on_square(found.real[i, j], -1, 1)
    down = SIDE - on_square(found.sampled[i, j], -1, 1)
    shapes = f'<path class="rule" d="M0 {SIDE}L{SIDE} 0"/>' + dots(across, down, "points-pair")
    return chart(
        shapes,
        x,
        x,
        label="Correlation of every pair of columns, real against sampled.",
        x_title="real",
        y_title="sampled",
        kind="square",
    )


def correlation_matrix(found: Correlation) -> Markup:
    """Below the diagonal real, above it sampled; empty if there are too many columns to see."""
    D = len(found.columns)
    if D > MOST_IN_MATRIX:
        return Markup()
    edges = [round(SIDE * d / D) for d in range(D + 1)]
    shapes = []
    for i in range(D):
        for j in range(D):
            if i == j:
                continue
            value = found.real[i, j] if i > j else found.sampled[i, j]
            kind = "positive" if value > 0 else "negative"
            shapes.append(
                f'<path class="{kind}" fill-opacity="{abs(value):.2f}"'
                f' d="M{edges[j]} {edges[i]}H{edges[j + 1]}V{edges[i + 1]}H{edges[j]}z">'
                f"<title>{text(found.columns[i])}, {text(found.columns[j])}:"
                f" {number(float(found.real[i, j]), 2)} real,"
                f" {number(float(found.sampled[i, j]), 2)} sampled</title></path>"
            )
    names = "".join(f"<span>{text(name)}</span>" for name in found.columns)
    label = "Rank correlations: real below the diagonal, sampled above it."
    return Markup(
        f'<div class="matrix" style="--k:{D}"><div class="names">{names}</div>'
        f'<div class="cells">{svg("".join(shapes), label)}</div></div>'
    )


def score_histogram(found: Oddness) -> Markup:
    """Log densities of all rows, with the thresholds."""
    histogram = found.histogram
    known = [
        t for t in found.thresholds if t.log_density is not None and np.isfinite(t.log_density)
    ]
    lowest = min([float(histogram.edges[0]), *(float(t.log_density or 0) for t in known)])
    x = Scale.of([lowest, float(histogram.edges[-1])], margin=0.01)
    y = Scale(0.0, 1.12 * float(histogram.counts.max()))
    shapes = steps(histogram.edges, histogram.counts, x, y, "fill-real", closed=True)
    notes = []
    for at, t in enumerate(known):
        assert t.log_density is not None
        place = x.x(t.log_density)
        shapes += f'<path class="rule-odd" d="M{place} {90 * at}V{SIDE}"/>'
        notes.append((t.log_density, percent(t.level)))
    return chart(
        shapes,
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
    x = Scale.of([reason.low, reason.high, reason.value], margin=0.07)
    shapes = f'<path class="grid" d="M0 500H{SIDE}"/>'
    if np.isfinite(reason.low) and np.isfinite(reason.high):
        shapes += f'<path class="interval" d="M{x.x(reason.low)} 500H{x.x(reason.high)}"/>'
    shapes += f'<path class="dot-odd" d="M{x.x(reason.value)} 500h0"/>'
    label = (
        f"{reason.column} is {number(reason.value)}; expected {number(reason.low)} to"
        f" {number(reason.high)}."
    )
    return svg(shapes, label, "track")


def gain_track(gain: Gain, all_gains: list[Gain]) -> Markup:
    """A bar from 0, with two standard errors to either side of its end, on the scale of all."""
    x = Scale.of([0.0, 0.05, *(other.gain for other in all_gains)], margin=0.04)
    end, zero = x.x(gain.gain), x.x(0.0)
    error = 2 * float(np.nan_to_num(gain.standard_error))
    shapes = rectangle(min(zero, end), 180, max(zero, end), 820, "fill-gain")
    shapes += (
        f'<path class="whisker-quiet" d="M{x.x(gain.gain - error)} 500H{x.x(gain.gain + error)}"/>'
    )
    return svg(shapes, f"{gain.column}: {fixed(gain.gain, 2)} nats", "track")
