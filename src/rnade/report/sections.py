"""The page's sections: a sentence first, then the picture, then how to read it."""

from rnade.report import blocks, pictures
from rnade.report.calibration import BAND_LEVEL
from rnade.report.chart import text
from rnade.report.findings import MOST_SHOWN, Findings
from rnade.report.oddness import Threshold
from rnade.report.words import decimals_for, fixed, number, percent, plural


def head(found: Findings) -> str:
    """What the page is about, and its contents."""
    links = [("fitted", "What was fitted"), ("right", "Is it right?"), ("odd", "What is odd?")]
    if found.gains:
        links.append(("depends", "What depends on what?"))
    if found.cautions:
        links.insert(0, ("cautions", "Worth knowing first"))
    nav = "".join(f'<a href="#{at}">{name}</a>' for at, name in links)
    return (
        f'<header><p class="kicker">rnade report</p><h1>{text(found.table.source)}</h1>'
        f'<p class="lede">{text(found.sentences["summary"])}</p>'
        f'<nav aria-label="Contents">{nav}</nav></header>'
    )


def glance(found: Findings) -> str:
    """Four figures that say most of it."""
    own = found.scores[0].score
    digits = decimals_for(own.standard_error)
    who = "held-out row" if found.table.role == "fitted" else "row"
    cells = [
        (
            f"Log-likelihood, nats a {who}",
            fixed(own.mean, digits),
            f"± {fixed(own.standard_error, digits)}, over {plural(own.n_rows, 'row')}",
        )
    ]
    leads = [(line.model, line.lead) for line in found.scores if line.lead is not None]
    if leads:
        name, lead = leads[0]
        cells.append(
            (
                f"Lead over {'a Gaussian' if name == 'Gaussian' else name}",
                ("+" if lead.mean > 0 else "")
                + fixed(lead.mean, decimals_for(lead.standard_error)),
                f"± {fixed(lead.standard_error, decimals_for(lead.standard_error))} nats a row",
            )
        )
    if found.calibration:
        inside = sum(column.inside for column in found.calibration)
        cells.append(
            (
                "Calibrated columns",
                f"{inside} of {len(found.calibration)}",
                f"within the {percent(BAND_LEVEL)} band",
            )
        )
    oddness, n = found.oddness, found.table.n_rows
    at = oddness.level
    cells.append(
        (
            "Smallest p-value possible",
            number(oddness.smallest_p, 2),
            f"with {plural(oddness.n_calibration, 'row')} held out",
        )
        if at is None
        else (
            f"Outliers (p ≤ {number(at.level)})",
            f"{at.n_rows:,}",
            f"{number(at.level * n, 2)} expected of {n:,}",
        )
    )
    shown = "".join(
        f'<div><dt>{text(name)}</dt><dd class="big">{text(big)}</dd>'
        f'<dd class="small">{text(small)}</dd></div>'
        for name, big, small in cells
    )
    return f'<dl class="glance">{shown}</dl>'


def cautions(found: Findings) -> str:
    """What to be careful about."""
    if not found.cautions:
        return ""
    items = "".join(
        f'<li class="{caution.severity}"><strong>{text(caution.title)}</strong>'
        f"<p>{text(caution.text)}</p></li>"
        for caution in found.cautions
    )
    return (
        '<section id="cautions"><h2>Worth knowing first</h2>'
        f'<ul class="cautions">{items}</ul></section>'
    )


def fitted(found: Findings) -> str:
    """Rows, columns, changes, scores, learning curve, settings."""
    model = found.fitted
    parts = [
        '<section id="fitted"><h2>What was fitted</h2>',
        blocks.finding(found, "comparison"),
        blocks.score_table(found),
    ]
    if model.curve is not None:
        own_folds = model.trained is not None and model.trained.own_folds
        stopped_by = "the fold that stopped it" if own_folds else "held-out rows"
        parts += [
            "<h3>Training</h3>",
            blocks.finding(found, "curve"),
            blocks.figure(
                blocks.legend(
                    [
                        ("stroke", "--faint", "rows it learned from"),
                        ("stroke", "--model", stopped_by),
                    ]
                )
                + pictures.learning_curve(model.curve),
                "Mean log-likelihood after each epoch; higher is better. Where the upper line goes"
                " on rising and the lower one falls, the model overfits.",
            ),
        ]
    parts += [
        "<h3>Rows, columns and settings</h3>",
        blocks.facts(found),
        blocks.settings(found),
        "</section>",
    ]
    return "".join(parts)


def right(found: Findings) -> str:
    """Calibration, marginals, pairs, correlations."""
    parts = ['<section id="right"><h2>Is it right?</h2>']
    if found.calibration:
        parts.append(blocks.finding(found, "calibration"))
    parts += [blocks.finding(found, "marginals"), blocks.column_cards(found)]
    if found.pairs is not None:
        parts += [
            "<h3>Pairs</h3>",
            '<p class="finding">If the model is right, the picture mirrors itself: samples above'
            " the diagonal look like real rows below it.</p>",
            blocks.figure(
                blocks.legend([("", "--real", "real, below"), ("", "--model", "sampled, above")])
                + pictures.pair_matrix(found.pairs),
                f"The columns that depend on each other the most,"
                f" {plural(len(found.pairs.real), 'row')} of each kind.",
            ),
        ]
    if found.correlation is not None:
        parts += [
            "<h3>Correlation</h3>",
            blocks.finding(found, "correlation"),
            blocks.correlation(found),
        ]
    return "".join([*parts, "</section>"])


def odd(found: Findings) -> str:
    """The histogram of log densities, and the oddest rows with their reasons."""
    oddness = found.oddness

    def figures(t: Threshold) -> list[str]:
        if t.log_density is None:
            return [f"no p below {number(oddness.smallest_p, 2)}", "–", "–"]
        expected = number(t.level * found.table.n_rows, 2)
        return [number(t.log_density, 4), f"{t.n_rows:,}", expected]

    rows = "".join(
        f"<tr><td>p ≤ {number(t.level)}</td>"
        + "".join(f'<td class="figure">{value}</td>' for value in figures(t))
        + "</tr>"
        for t in oddness.thresholds
    )
    held = "the held-out rows" if oddness.own_calibration else "the rows of this table"
    n_below = oddness.histogram.n_below
    below = f" Not drawn: {plural(n_below, 'row')} further left." if n_below else ""
    return "".join(
        [
            '<section id="odd"><h2>What is odd?</h2>',
            blocks.finding(found, "oddness"),
            blocks.figure(
                pictures.score_histogram(oddness),
                "Log densities of all rows, scored one by one. Rows left of a line are outliers at"
                f" that level, measured by {held} ({oddness.n_calibration:,})." + below,
            ),
            '<table><thead><tr><th>level</th><th class="figure">log density below</th>'
            '<th class="figure">rows</th><th class="figure">by chance</th></tr></thead>'
            f"<tbody>{rows}</tbody></table>",
            "<h3>The strongest outliers</h3>",
            '<p class="aside">The least likely first, each with the columns that made it so. The'
            " bar is where the model expected the value in nine of ten cases, knowing columns"
            " before it; the dot is the value. Rows are counted from 1, without the header.</p>",
            '<ol class="odd-rows">',
            *(blocks.odd_row(row, of_fitted=found.table.role == "fitted") for row in oddness.rows),
            "</ol></section>",
        ]
    )


def depends(found: Findings) -> str:
    """Gains of columns from those before them."""
    if not found.gains:
        return ""
    by_gain = sorted(range(len(found.gains)), key=lambda at: -found.gains[at].gain)
    shown = [found.gains[at] for at in sorted(by_gain[:MOST_SHOWN])]
    rows = "".join(
        f'<tr><td class="label" title="{text(gain.column)}">{text(gain.column)}</td>'
        f'<td class="picture">{pictures.gain_track(gain, shown)}</td>'
        f'<td class="figure">{fixed(gain.gain, 2)}</td>'
        f'<td class="label">{text(gain.closest) if gain.closest else "–"}</td></tr>'
        for gain in shown
    )
    which = f" Shown: {blocks.of_all(len(shown), found)}, those with the largest gains."
    which = which if len(shown) < len(found.gains) else ""
    total = sum(gain.gain for gain in found.gains)
    return (
        f'<section id="depends"><h2>What depends on what?</h2>{blocks.finding(found, "gains")}'
        '<figure class="long"><table><thead><tr><th>column</th>'
        '<th class="picture"></th><th class="figure">gain, nats</th><th>closest column</th>'
        f"</tr></thead><tbody>{rows}</tbody></table><figcaption>{_gain_caption(found)}{which}"
        f" All together: {number(total)} nats a row. A gain of g nats is as if e<sup>−g</sup> of"
        " the column’s spread were left: 0.7 nats halve it. The line is two standard errors. The"
        " closest column is the one that shares the most information with it, wherever it"
        " stands.</figcaption></figure></section>"
    )


def _gain_caption(found: Findings) -> str:
    if found.gains[0].position:
        return (
            "In the model’s order: how much better each column is predicted by the columns before"
            " it than by itself alone, on average over the judged rows."
        )
    return (
        "How much better each column is predicted by other columns than by itself alone, on"
        " average over the judged rows and over the models that were averaged, each of which knows"
        " the columns before it in an order of its own."
    )


def _part_in_training(found: Findings) -> str:
    """What the held-out rows had to do with training, to be said after them."""
    trained = found.fitted.trained
    if found.fitted.retrained:
        return ", on which it was trained in the end too"
    if trained is None:
        return ""
    if trained.own_folds:
        each = "each model" if trained.parts == "models" else "the model"
        return (
            f", which had no part in training: {each} early-stopped on"
            f" {'its own' if trained.parts == 'models' else 'a'} 1/8 fold of the other rows"
        )
    return ", which chose the epoch to stop at, and no more"


def foot(found: Findings) -> str:
    """How the page was made, and what it does not say."""
    table = found.table
    judged = {
        "fitted": f"This is the very table that the model was fitted to. It is judged by the"
        f" {plural(table.n_judged, 'row')} held out of it{_part_in_training(found)}; the reference"
        " models were fitted to the other rows.",
        "other": "This is not the table that the model was fitted to: it is judged by all rows."
        " The reference models were fitted to one half of this table and judged by the other, and"
        " the other way round.",
        "unknown": "The model does not remember the table that it was fitted to: it is judged by"
        " all rows of this one. The reference models were fitted to one half of this table and"
        " judged by the other, and the other way round.",
    }[table.role]
    absent = "".join(f"<p>{text(sentence)}</p>" for sentence in found.absent)
    return (
        f"<footer><p>{judged}</p>{absent}<p>All {plural(table.n_rows, 'row')} were scored; only"
        f" what is drawn as points is sampled down. Samples are {plural(table.n_sampled, 'row')}"
        " drawn from the model. The Gaussian has a full covariance; independent columns are a"
        " mixture of Gaussians each (bits: a probability each), fitted by"
        " expectation-maximisation.</p>"
        f"<p>Made by rnade {text(found.version)}. The same figures as data: <code>rnade report"
        " --json</code>.</p></footer>"
    )
