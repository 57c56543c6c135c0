"""The page's sections: a sentence first, then the picture, then how to read it."""

import math

from rnade.report import pictures
from rnade.report.calibration import BAND_LEVEL
from rnade.report.facts import facts
from rnade.report.findings import MOST_SHOWN, Findings
from rnade.report.markup import Markup, fill, join
from rnade.report.oddness import OddRow, Reason, Threshold
from rnade.report.words import decimals_for, fixed, near, number, percent, plural

_EMPTY = Markup()
_REAL_AND_SAMPLED = [("", "--real-soft", "real"), ("stroke", "--model", "sampled")]
_CALIBRATION = [
    ("stroke", "--real", "where values fall in what was predicted"),
    ("", "--band", "band of a right model"),
]


def cautions(found: Findings) -> Markup:
    """What to be careful about."""
    items = join(
        fill("caution", severity=caution.severity, title=caution.title, words=caution.text)
        for caution in found.cautions
    )
    return fill("cautions", items=items) if items else _EMPTY


def fitted(found: Findings) -> Markup:
    """Rows, columns, changes, scores, learning curve, settings."""
    held_out = "held-out rows" if found.table.role == "fitted" else "rows"
    return fill(
        "fitted",
        comparison=_finding(found, "comparison"),
        models=_models(found),
        judged=f"{found.table.n_judged:,} {held_out}",
        density="probability" if found.fitted.binary else "density",
        training=_training(found),
        facts=join(fill("fact", name=name, words=words) for name, words in facts(found)),
        settings=join(
            fill("setting", name=name, value="default" if value is None else str(value)[:80])
            for name, value in found.fitted.settings.items()
        ),
    )


def right(found: Findings) -> Markup:
    """Calibration, marginals, pairs, correlations."""
    cards = _cards(found)
    judged = bool(found.calibration)
    sentences = [_finding(found, name) for name in ["calibration"] * judged + ["marginals"]]
    return fill(
        "right",
        sentences=join(sentences),
        legend=_legend(_REAL_AND_SAMPLED + _CALIBRATION * judged),
        cards=join(cards),
        which=_which("Shown", len(cards), found, "that are the furthest off"),
        how=fill("how-calibrated", level=percent(BAND_LEVEL)) if judged else "",
        pairs=_pairs(found),
        correlation=_correlation(found),
    )


def odd(found: Findings) -> Markup:
    """The histogram of log densities, and the oddest rows with their reasons."""
    oddness = found.oddness
    n_below = oddness.histogram.n_below
    return fill(
        "odd",
        sentence=_finding(found, "oddness"),
        histogram=pictures.score_histogram(oddness),
        held="the held-out rows" if oddness.own_calibration else "the rows of this table",
        n_held=f"{oddness.n_calibration:,}",
        below=f" Not drawn: {plural(n_below, 'row')} further left." if n_below else "",
        thresholds=join(_threshold(t, found) for t in oddness.thresholds),
        rows=join(_odd_row(row, found) for row in oddness.rows),
    )


def depends(found: Findings) -> Markup:
    """Gains of columns from those before them."""
    if not found.gains:
        return _EMPTY
    by_gain = sorted(range(len(found.gains)), key=lambda at: -found.gains[at].gain)
    shown = [found.gains[at] for at in sorted(by_gain[:MOST_SHOWN])]
    rows = join(
        fill(
            "gain",
            name=gain.column,
            track=pictures.gain_track(gain, shown),
            nats=fixed(gain.gain, 2),
            closest=gain.closest or "–",
        )
        for gain in shown
    )
    return fill(
        "depends",
        sentence=_finding(found, "gains"),
        rows=rows,
        what=fill("gains-in-order" if found.gains[0].position else "gains-of-average"),
        which=_which("Shown", len(shown), found, "with the largest gains"),
        total=number(sum(gain.gain for gain in found.gains)),
    )


def _finding(found: Findings, name: str) -> Markup:
    return fill("finding", words=found.sentences[name])


def _legend(entries: list[tuple[str, str, str]]) -> Markup:
    """What the colours mean: kind of swatch, colour, name."""
    return join(fill("swatch", kind=k, colour=colour, name=name) for k, colour, name in entries)


def _which(verb: str, n: int, found: Findings, those: str) -> str:
    """Which of the columns something is about, where not all."""
    n_columns = len(found.fitted.columns)
    return f" {verb}: {n:,} of {n_columns:,} columns, those {those}." if n < n_columns else ""


def _models(found: Findings) -> Markup:
    """The models side by side."""
    digits = decimals_for(min(line.score.standard_error for line in found.scores))

    def with_error(mean: float, error: float) -> str:
        return f"{fixed(mean, digits)} ±\N{NO-BREAK SPACE}{fixed(error, digits)}"

    return join(
        fill(
            "model",
            kind="" if at else "own",
            name=line.model,
            track=pictures.score_track(found.scores, at),
            score=with_error(line.score.mean, line.score.standard_error),
            lead=with_error(line.lead.mean, line.lead.standard_error) if line.lead else "",
        )
        for at, line in enumerate(found.scores)
    )


def _training(found: Findings) -> Markup:
    curve, trained = found.fitted.curve, found.fitted.trained
    if curve is None or trained is None:
        return _EMPTY
    stopped_by = "the fold that stopped it" if trained.own_folds else "held-out rows"
    legend = [("stroke", "--faint", "rows it learned from"), ("stroke", "--model", stopped_by)]
    return fill(
        "training",
        sentence=_finding(found, "curve"),
        legend=_legend(legend),
        curve=pictures.learning_curve(curve),
    )


def _cards(found: Findings) -> list[Markup]:
    """A card for each column, the worst first: its values and its calibration."""
    by_name = {column.column: column for column in found.calibration}

    def badness(name: str, distance: float) -> tuple[bool, float]:
        column = by_name.get(name)
        return (False, -distance) if column is None else (column.inside, -column.distance)

    def calibration(name: str) -> Markup:
        column = by_name.get(name)
        if column is None:
            return _EMPTY
        return fill(
            "card-calibration",
            picture=pictures.calibration(column),
            coverage=percent(column.coverage),
            off=_EMPTY if column.inside else fill("off"),
        )

    ordered = sorted(found.marginals, key=lambda m: badness(m.column, m.distance))
    return [
        fill(
            "card",
            name=shown.column,
            marginal=pictures.marginal(shown),
            calibration=calibration(shown.column),
        )
        for shown in ordered[:MOST_SHOWN]
    ]


def _pairs(found: Findings) -> Markup:
    if found.pairs is None:
        return _EMPTY
    return fill(
        "pairs",
        legend=_legend([("", "--real", "real, below"), ("", "--model", "sampled, above")]),
        matrix=pictures.pair_matrix(found.pairs),
        n_rows=plural(len(found.pairs.real), "row"),
    )


def _correlation(found: Findings) -> Markup:
    """Correlations as a matrix, where it can be seen, and as points."""
    measured = found.correlation
    if measured is None:
        return _EMPTY
    matrix = pictures.correlation_matrix(measured)
    scatter = pictures.correlation_scatter(measured)
    those = "that gain the most from others" if found.gains else "that are the furthest off"
    return fill(
        "correlation",
        sentence=_finding(found, "correlation"),
        pictures=fill("beside", matrix=matrix, scatter=scatter) if matrix else scatter,
        which=_which("Compared", len(measured.columns), found, those),
        how=fill("how-matrix") if matrix else "",
    )


def _threshold(t: Threshold, found: Findings) -> Markup:
    if t.log_density is None:
        bound, n_rows, chance = f"no p below {number(found.oddness.smallest_p, 2)}", "–", "–"
    else:
        bound, n_rows = number(t.log_density, 4), f"{t.n_rows:,}"
        chance = number(t.level * found.table.n_rows, 2)
    return fill("threshold", level=number(t.level), bound=bound, n_rows=n_rows, chance=chance)


def _odd_row(row: OddRow, found: Findings) -> Markup:
    """An odd row with its reasons."""
    seen = _EMPTY
    if found.table.role == "fitted":
        seen = fill("seen", words="learned from" if row.seen else "held out")
    return fill(
        "odd-row",
        row=f"{row.row:,}",
        p=number(row.p_value, 2),
        log_density=number(row.log_density),
        seen=seen,
        reasons=join(map(_reason, row.reasons)) if row.reasons else fill("no-reason"),
    )


def _reason(reason: Reason) -> Markup:
    span = reason.high - reason.low
    low, high = near(reason.low, span), near(reason.high, span)
    # Of a value far off, the last digits tell nothing.
    value = near(reason.value, max(span, abs(reason.value - reason.low) / 50))
    if math.isnan(span):
        said = ""
    elif low == high:
        said = f", expected {low}"
    elif reason.within or value in (low, high):
        said = f", rare between {low} and {high}"
    else:
        said = f", expected {low} to {high}"
    track = pictures.expected(reason)
    return fill("reason", name=reason.column, track=track, value=value, said=said)
