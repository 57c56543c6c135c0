"""Findings as one self-contained page: no network, no scripts, every word from data escaped.

Each section has a sentence first, then the picture, then how to read it.
"""

import math

from rnade.look import Markup, style_of
from rnade.report import pictures
from rnade.report.calibration import BAND_LEVEL
from rnade.report.cells import CellReason
from rnade.report.findings import MOST_SHOWN, Findings, TableFindings
from rnade.report.marginals import LevelMarginal, NumberMarginal
from rnade.report.markup import fill
from rnade.report.oddness import OddRow, Reason, Threshold
from rnade.report.resemblance import Marginal, TablePairs
from rnade.report.sentences import facts, with_error
from rnade.report.table_page import column_kinds, said_of_cell, said_of_interval, table_card
from rnade.report.table_pictures import cell_words, expected_cell
from rnade.report.words import decimals_for, fixed, near, number, percent, plural

# Nothing is fetched and no script runs, whatever a table's header may hold.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

# What colours mean: kind of swatch, colour, name.
_REAL_AND_SAMPLED = [("", "--real-soft", "real"), ("stroke", "--model", "sampled")]
_POINTS = [("", "--real", "real, below"), ("", "--model", "sampled, above")]
_CALIBRATION = [
    ("stroke", "--real", "where values fall in what was predicted"),
    ("", "--band", "band of a right model"),
]


def render(found: Findings, *, explore: str | None = None) -> str:
    """Write findings as an HTML page.

    Parameters
    ----------
    found : Findings
    explore : str, optional
        Address of the page on which the model can be explored (`rnade explore`), to link to.

    Returns
    -------
    str
        The whole page: it needs no other file, and no network.
    """
    table = found.table
    kinds = "-table" if isinstance(found, TableFindings) else ""
    style = ["page.css", *["tables.css"] * bool(kinds)]
    bodies = {
        ("cautions", "Worth knowing first"): _cautions(found),
        ("fitted", "What was fitted"): _fitted(found),
        ("right", "Is it right?"): _right(found),
        ("odd", "What is odd?"): _odd(found),
        ("depends", "What depends on what?"): _depends(found),
    }
    shown = [{"at": at, "name": name, "body": body} for (at, name), body in bodies.items() if body]
    page = fill(
        "page",
        policy=Markup(_POLICY),
        style=style_of(*style),
        version=found.version,
        source=table.source,
        kind=found.fitted.kind,
        summary=found.sentences["summary"],
        links=[
            *(fill("link", **section) for section in shown),
            *([] if explore is None else [fill("link-to-explore", address=explore)]),
        ],
        glance=[
            fill("glance", name=name, big=big, small=small) for name, big, small in _glance(found)
        ],
        sections=[fill("section", **section) for section in shown],
        judged=fill(
            f"judged-{table.role}{kinds}",
            n_judged=plural(table.n_judged, "row"),
            part=_part_in_training(found),
            halves=fill(f"halves{kinds}"),
        ),
        absent=[fill("paragraph", words=sentence) for sentence in found.absent],
        n_rows=plural(table.n_rows, "row"),
        n_sampled=plural(table.n_sampled, "row"),
        references=fill(f"references{kinds}"),
    )
    return str(page)


def _glance(found: Findings) -> list[tuple[str, str, str]]:
    """Four figures that say most of it, each with its name and a word on it."""
    own, oddness, n = found.scores[0].score, found.oddness, found.table.n_rows
    who = "held-out row" if found.table.role == "fitted" else "row"
    mean, error = with_error(own)
    over = f"± {error}, over {plural(own.n_rows, 'row')}"
    cells = [(f"Log-likelihood, nats a {who}", mean, over)]
    for line in found.scores[1:2]:
        assert line.lead is not None
        mean, error = with_error(line.lead)
        name = "a Gaussian" if line.model == "Gaussian" else line.model
        sign = "+" if line.lead.mean > 0 else ""
        cells.append((f"Lead over {name}", f"{sign}{mean}", f"± {error} nats a row"))
    if found.calibration:
        inside = f"{sum(column.inside for column in found.calibration)}"
        band = f"within the {percent(BAND_LEVEL)} band"
        cells.append(("Calibrated columns", f"{inside} of {len(found.calibration)}", band))
    at = oddness.level
    if at is None:
        held = f"with {plural(oddness.n_calibration, 'row')} to compare with"
        return [*cells, ("Smallest p-value possible", number(oddness.smallest_p, 2), held)]
    expected = f"{number(at.level * n, 2)} expected of {n:,}"
    return [*cells, (f"Outliers (p ≤ {number(at.level)})", f"{at.n_rows:,}", expected)]


def _part_in_training(found: Findings) -> str:
    """What the held-out rows had to do with training, to be said after them."""
    trained = found.fitted.trained
    if found.fitted.retrained and not found.fitted.judged_before:
        return ", on which it was trained in the end too"
    if trained is None:
        return ""
    part = ", which chose the epoch to stop at, and no more"
    if trained.own_folds:
        each, its = ("each", "its own") if trained.parts == "models" else ("the", "a")
        part = (
            f", which had no part in training: {each} model early-stopped on {its} 1/8 fold of the"
            " other rows"
        )
    again = " (before it was trained again on all rows, as the model is used elsewhere)"
    return part + again * found.fitted.judged_before


def _cautions(found: Findings) -> Markup:
    """What to be careful about."""
    items = [
        fill("caution", severity=caution.severity, title=caution.title, words=caution.text)
        for caution in found.cautions
    ]
    return fill("cautions", items=items) if items else Markup()


def _fitted(found: Findings) -> Markup:
    """Rows, columns, changes, scores, learning curve, settings."""
    held_out = "held-out rows" if found.table.role == "fitted" else "rows"
    digits = decimals_for(min(line.score.standard_error for line in found.scores))
    models = [
        fill(
            "model",
            kind="" if at else "own",
            name=line.model,
            track=pictures.score_track(found.scores, at),
            score=" ±\N{NO-BREAK SPACE}".join(with_error(line.score, digits)),
            lead=" ±\N{NO-BREAK SPACE}".join(with_error(line.lead, digits) if line.lead else ()),
        )
        for at, line in enumerate(found.scores)
    ]
    return fill(
        "fitted",
        comparison=found.sentences["comparison"],
        models=models,
        judged=f"{found.table.n_judged:,} {held_out}",
        density="probability" if found.fitted.binary else "density",
        training=_training(found),
        kinds=column_kinds(found) if isinstance(found, TableFindings) else "",
        facts=[fill("fact", name=name, words=words) for name, words in facts(found)],
        settings=[
            fill("setting", name=name, value="default" if value is None else str(value)[:80])
            for name, value in found.fitted.settings.items()
        ],
    )


def _training(found: Findings) -> Markup:
    curve, trained = found.fitted.curve, found.fitted.trained
    if curve is None or trained is None:
        return Markup()
    stopped_by = "the fold that stopped it" if trained.own_folds else "held-out rows"
    legend = [("stroke", "--faint", "rows it learned from"), ("stroke", "--model", stopped_by)]
    return fill(
        "training",
        sentence=found.sentences["curve"],
        legend=_legend(legend),
        curve=pictures.learning_curve(curve),
    )


def _right(found: Findings) -> Markup:
    """Calibration, marginals, pairs, correlations."""
    cards = _cards(found)
    judged = bool(found.calibration)
    names = ["calibration"] * judged + ["marginals"]
    kinds = "-table" if isinstance(found, TableFindings) else ""
    return fill(
        f"right{kinds}",
        sentences=[fill("finding", words=found.sentences[name]) for name in names],
        legend=_legend(_REAL_AND_SAMPLED + _CALIBRATION * judged),
        cards=cards,
        which=_which("Shown", len(cards), found, "that are the furthest off"),
        how=fill(f"how-calibrated{kinds}", level=percent(BAND_LEVEL)) if judged else "",
        pairs=_pairs(found),
        correlation=_correlation(found),
    )


def _cards(found: Findings) -> list[Markup]:
    """A card for each column, the worst first: its values and its calibration."""
    calibrated = {column.column: column for column in found.calibration}
    distance = {m.column: 0.0 if math.isnan(m.distance) else m.distance for m in found.marginals}
    badness = {name: (False, -distance[name]) for name in distance} | {
        name: (column.inside, -column.distance) for name, column in calibrated.items()
    }

    def calibration(name: str) -> Markup:
        if name not in calibrated:
            return Markup()
        return fill(
            "card-calibration",
            picture=pictures.calibration(calibrated[name]),
            coverage=percent(calibrated[name].coverage),
            off=Markup() if calibrated[name].inside else fill("off"),
        )

    def card(shown: Marginal | LevelMarginal) -> Markup:
        name = shown.column
        if isinstance(shown, LevelMarginal | NumberMarginal):
            return table_card(shown, calibrated.get(name), calibration(name))
        picture = pictures.marginal(shown)
        return fill("card", name=name, marginal=picture, calibration=calibration(name))

    ordered = sorted(found.marginals, key=lambda marginal: badness[marginal.column])
    return [card(shown) for shown in ordered[:MOST_SHOWN]]


def _pairs(found: Findings) -> Markup:
    if found.pairs is None:
        return Markup()
    return fill(
        "pairs",
        legend=_legend(_POINTS),
        matrix=pictures.pair_matrix(found.pairs),
        n_rows=plural(len(found.pairs.real), "row"),
        how=fill("how-levels") if isinstance(found.pairs, TablePairs) else "",
    )


def _correlation(found: Findings) -> Markup:
    """Correlations as a matrix, where it can be seen, and as points."""
    measured = found.correlation
    if measured is None:
        return Markup()
    kinds = isinstance(found, TableFindings)
    matrix = pictures.correlation_matrix(measured)
    scatter = pictures.correlation_scatter(measured)
    those = "that gain the most from others" if found.gains else "that are the furthest off"
    return fill(
        "correlation",
        sentence=found.sentences["correlation"],
        pictures=fill("beside", matrix=matrix, scatter=scatter) if matrix else scatter,
        what=fill("ranked") if kinds else "",
        which="" if kinds else _which("Compared", len(measured.columns), found, those),
        how=fill("how-matrix") if matrix else "",
    )


def _odd(found: Findings) -> Markup:
    """The histogram of log densities, and the oddest rows with their reasons."""
    oddness = found.oddness
    n_below = oddness.histogram.n_below
    kinds = "-table" if isinstance(found, TableFindings) else ""
    known = oddness.given_others
    return fill(
        "odd",
        how=fill(f"how-odd{kinds}", known="all other columns" if known else "columns before it"),
        sentence=found.sentences["oddness"],
        histogram=pictures.score_histogram(oddness),
        held="rows that models left out of training"
        if oddness.own_calibration
        else "the rows of this table",
        n_held=f"{oddness.n_calibration:,}",
        below=f" Not drawn: {plural(n_below, 'row')} further left." if n_below else "",
        thresholds=[_threshold(t, found) for t in oddness.thresholds],
        rows=[_odd_row(row, found) for row in oddness.rows],
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
    known = found.table.role == "fitted"
    trained_on = "left out by its judges" if row.left_out else "learned from"
    return fill(
        "odd-row",
        row=f"{row.row:,}",
        p=number(row.p_value, 2),
        log_density=number(row.log_density),
        seen=fill("seen", words=trained_on if row.seen else "held out") if known else "",
        reasons=[_reason(reason) for reason in row.reasons] or fill("no-reason"),
    )


def _reason(reason: Reason | CellReason) -> Markup:
    if isinstance(reason, CellReason):
        value, said = cell_words(reason, reason.value), said_of_cell(reason)
        track = expected_cell(reason)
        return fill("reason", name=reason.column, track=track, value=value, said=said)
    span = reason.high - reason.low
    low, high = near(reason.low, span), near(reason.high, span)
    # Of a value far off, the last digits tell nothing.
    value = near(reason.value, max(span, abs(reason.value - reason.low) / 50))
    known = not math.isnan(span)
    said = said_of_interval(low, high, value, within=reason.within) if known else ""
    track = pictures.expected(reason)
    return fill("reason", name=reason.column, track=track, value=value, said=said)


def _depends(found: Findings) -> Markup:
    """Gains of columns from those before them."""
    if not found.gains:
        return Markup()
    by_gain = sorted(range(len(found.gains)), key=lambda at: -found.gains[at].gain)
    shown = [found.gains[at] for at in sorted(by_gain[:MOST_SHOWN])]
    rows = [
        fill(
            "gain",
            name=gain.column,
            track=pictures.gain_track(gain, shown),
            nats=fixed(gain.gain, 2),
            closest=gain.closest or "–",
        )
        for gain in shown
    ]
    which = _which("Shown", len(shown), found, "with the largest gains")
    if isinstance(found, TableFindings):
        sentence = found.sentences["gains"]
        return fill("depends-table", sentence=sentence, rows=rows, which=which)
    return fill(
        "depends",
        sentence=found.sentences["gains"],
        rows=rows,
        what=fill("gains-in-order" if found.gains[0].position else "gains-of-average"),
        which=which,
        total=number(sum(gain.gain for gain in found.gains)),
    )


def _legend(entries: list[tuple[str, str, str]]) -> list[Markup]:
    return [fill("swatch", kind=kind, colour=colour, name=name) for kind, colour, name in entries]


def _which(verb: str, n: int, found: Findings, those: str) -> str:
    """Which of the columns something is about, where not all."""
    n_columns = len(found.fitted.columns)
    return f" {verb}: {n:,} of {n_columns:,} columns, those {those}." if n < n_columns else ""
