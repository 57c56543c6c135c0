"""Tables, cards and lists of which the page's sections are made."""

import math
from collections.abc import Iterable

from rnade.report import pictures
from rnade.report.calibration import BAND_LEVEL
from rnade.report.chart import text
from rnade.report.findings import MOST_SHOWN, Findings
from rnade.report.fitted import Fitted
from rnade.report.oddness import OddRow, Reason
from rnade.report.words import decimals_for, fixed, near, number, percent, plural

# More columns left out than this are counted, not named.
_MOST_LEFT_OUT = 12


def finding(found: Findings, name: str) -> str:
    """A finding in one sentence."""
    return f'<p class="finding">{text(found.sentences[name])}</p>'


def figure(body: str, caption: str, kind: str = "") -> str:
    """A picture or table, and how to read it."""
    return f'<figure class="{kind}">{body}<figcaption>{caption}</figcaption></figure>'


def legend(entries: Iterable[tuple[str, str, str]]) -> str:
    """What the colours mean."""
    shown = "".join(
        f'<span class="{kind}" style="--swatch:var({colour})">{name}</span>'
        for kind, colour, name in entries
    )
    return f'<div class="legend">{shown}</div>'


def score_table(found: Findings) -> str:
    """The models side by side."""
    digits = decimals_for(min(line.score.standard_error for line in found.scores))
    rows = ""
    for at, line in enumerate(found.scores):
        ahead = (
            ""
            if line.lead is None
            else f"{fixed(line.lead.mean, digits)} "
            f"±\N{NO-BREAK SPACE}{fixed(line.lead.standard_error, digits)}"
        )
        rows += (
            f'<tr class="{"own" if at == 0 else ""}"><td>{text(line.model)}</td>'
            f'<td class="picture">{pictures.score_track(found.scores, at)}</td>'
            f'<td class="figure">{fixed(line.score.mean, digits)} '
            f"±\N{NO-BREAK SPACE}{fixed(line.score.standard_error, digits)}</td>"
            f'<td class="figure">{ahead}</td></tr>'
        )
    what = "held-out rows" if found.table.role == "fitted" else "rows"
    return (
        '<figure><table class="models"><thead><tr><th>model</th><th class="picture"></th>'
        '<th class="figure">nats a row</th><th class="figure">model’s lead</th></tr></thead>'
        f"<tbody>{rows}</tbody></table><figcaption>Mean log-likelihood of"
        f" {found.table.n_judged:,} {what}, the same for all models, with standard errors; the"
        " line is two of them. Higher is better, and 1 nat is a factor of 2.7 in"
        f" {'probability' if found.fitted.binary else 'density'}. The lead is the mean of the"
        " differences row by row, which is surer than either score.</figcaption></figure>"
    )


def of_all(n: int, found: Findings) -> str:
    """How many of the model's columns something is about."""
    return f"{n:,} of {plural(len(found.fitted.columns), 'column')}"


def facts(found: Findings) -> str:
    """Rows, columns, and what was left out or changed."""
    model, table = found.fitted, found.table
    lines: list[tuple[str, str]] = []
    if model.n_rows is not None:
        held = "" if model.n_held_out is None else f", of which {model.n_held_out:,} held out"
        lines.append(("Fitted to", f"{plural(model.n_rows, 'row')}{held}"))
    dropped = model.dropped_rows
    if dropped:
        lines.append(("Rows left out", f"{plural(dropped, 'row')} with a missing cell"))
    lines.append(("Columns", f"{len(model.columns)}: " + _some(model.columns, MOST_SHOWN)))
    if model.left_out:
        reasons = [f"{name}: {why}" for name, why in model.left_out.items()]
        lines.append(("Columns left out", _some(reasons, _MOST_LEFT_OUT, "; ")))
    if model.changes:
        lines.append(("What was changed", " ".join(model.changes)))
    if table.role != "fitted":
        extra = (
            f", without {table.dropped_rows:,} with a missing cell" if table.dropped_rows else ""
        )
        lines.append(("Judged by", f"{plural(table.n_rows, 'row')} of {table.source}{extra}"))
    if model.stored_score is not None and table.role != "fitted":
        stored = model.stored_score
        digits = decimals_for(stored.standard_error)
        lines.append(
            (
                "Held-out score when fitted",
                f"{fixed(stored.mean, digits)} ± {fixed(stored.standard_error, digits)} nats a row"
                f" over {plural(stored.n_rows, 'row')}",
            )
        )
    if model.seconds is not None:
        lines.append(("Training", f"{number(model.seconds)} s{_epochs(model)}"))
    shown = "".join(f"<dt>{text(name)}</dt><dd>{text(what)}</dd>" for name, what in lines)
    return f'<dl class="facts">{shown}</dl>'


def _epochs(model: Fitted) -> str:
    if model.trained is None:
        return ""
    epochs, n = model.trained.epochs, len(model.trained.epochs)
    few, many = min(epochs), max(epochs)
    span = plural(many, "epoch") if few == many else f"{few} to {plural(many, 'epoch')}"
    return f", {n} models of {span}" if model.trained.parts == "models" else f", {span}"


def _some(names: list[str], most: int, between: str = ", ") -> str:
    rest = len(names) - most
    return between.join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def settings(found: Findings) -> str:
    """Every setting of the model."""

    def shown(value: object) -> str:
        return "default" if value is None else str(value)[:80]

    items = "".join(
        f"<li><span>{text(name)}</span><span>{text(shown(value))}</span></li>"
        for name, value in found.fitted.settings.items()
    )
    return f'<ul class="settings" aria-label="Settings">{items}</ul>'


def column_cards(found: Findings) -> str:
    """A card for each column: its values, real and sampled, and its calibration."""
    by_name = {column.column: column for column in found.calibration}

    def badness(name: str, distance: float) -> tuple[bool, float]:
        column = by_name.get(name)
        return (False, -distance) if column is None else (column.inside, -column.distance)

    ordered = sorted(found.marginals, key=lambda m: badness(m.column, m.distance))
    cards = []
    for shown in ordered[:MOST_SHOWN]:
        column = by_name.get(shown.column)
        name = text(shown.column)
        card = f'<div class="column"><h4 title="{name}">{name}</h4>{pictures.marginal(shown)}'
        if column is not None:
            off = "" if column.inside else ' · <span class="off">off</span>'
            card += (
                f"{pictures.calibration(column)}<p>{percent(column.coverage)} within the 90 %"
                f" interval{off}</p>"
            )
        cards.append(card + "</div>")
    more = f" Shown: {of_all(len(cards), found)}, those that are the furthest off."
    entries = [("", "--real-soft", "real"), ("stroke", "--model", "sampled")]
    caption = (
        "Each column’s values from their 0.5 % to their 99.5 % quantile, real and sampled."
    ) + (more if len(cards) < len(ordered) else "")
    if found.calibration:
        entries += [
            ("stroke", "--real", "where values fall in what was predicted"),
            ("", "--band", "band of a right model"),
        ]
        caption += (
            " Below, where each judged value falls in what the model expected of it (0: at the"
            " very bottom, 1: at the very top): flat if the model is right. A hump in the middle"
            " says that the model is too unsure, a valley that it is too sure, a slope that it is"
            f" off to one side. A right model stays inside the band in {percent(BAND_LEVEL)} of"
            " cases. The worst columns come first."
        )
    return figure(
        legend(entries) + f'<div class="columns">{"".join(cards)}</div>', caption, "long"
    )


def correlation(found: Findings) -> str:
    """Correlations as a matrix, where it can be seen, and as points."""
    measured = found.correlation
    assert measured is not None
    matrix = pictures.correlation_matrix(measured)
    scatter = pictures.correlation_scatter(measured)
    caption = (
        "Rank correlations (Spearman). Each point is a pair of columns: on the dashed line,"
        " samples and real rows agree."
    )
    if len(measured.columns) < len(found.fitted.columns):
        caption += (
            f" Compared: {of_all(len(measured.columns), found)}, those"
            f" {'that gain the most from others' if found.gains else 'that are the furthest off'}."
        )
    if matrix:
        caption += (
            " In the matrix, real is below the diagonal and sampled above it; teal is positive,"
            " purple negative, and the deeper the stronger."
        )
        return figure(f'<div class="beside">{matrix}{scatter}</div>', caption)
    return figure(scatter, caption)


def odd_row(row: OddRow, *, of_fitted: bool) -> str:
    """An odd row with its reasons."""
    known = [f"p = {number(row.p_value, 2)}", f"log density {number(row.log_density)}"]
    if of_fitted:
        known.append("learned from" if row.seen else "held out")
    reasons = "".join(map(_reason, row.reasons))
    if not reasons:
        reasons = '<p class="aside">No single column stands out: it is their combination.</p>'
    return (
        f'<li><div class="which">Row {row.row:,}<small>{"<br>".join(known)}</small></div>'
        f"<div>{reasons}</div></li>"
    )


def _reason(reason: Reason) -> str:
    name = text(reason.column)
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
    return (
        f'<div class="reason"><span class="what" title="{name}">{name}</span>'
        f'{pictures.expected(reason)}<span class="said"><b>{value}</b>{said}</span></div>'
    )
