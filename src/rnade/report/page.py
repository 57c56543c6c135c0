"""Findings as one self-contained page: no network, no scripts, every word from data escaped."""

from importlib.resources import files

from rnade.report import sections
from rnade.report.calibration import BAND_LEVEL
from rnade.report.findings import Findings
from rnade.report.markup import Markup, fill, join
from rnade.report.words import decimals_for, fixed, number, percent, plural

# Nothing is fetched and no script runs, whatever a table's header may hold.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_SECTIONS = [
    ("cautions", "Worth knowing first", sections.cautions),
    ("fitted", "What was fitted", sections.fitted),
    ("right", "Is it right?", sections.right),
    ("odd", "What is odd?", sections.odd),
    ("depends", "What depends on what?", sections.depends),
]


def render(found: Findings) -> str:
    """Write findings as an HTML page.

    Parameters
    ----------
    found : Findings

    Returns
    -------
    str
        The whole page: it needs no other file, and no network.
    """
    shown = [(at, name, section(found)) for at, name, section in _SECTIONS]
    shown = [part for part in shown if part[2]]
    table = found.table
    return str(
        fill(
            "page",
            policy=Markup(_POLICY),
            style=Markup(files("rnade.report").joinpath("page.css").read_text(encoding="utf-8")),
            version=found.version,
            source=table.source,
            kind=found.fitted.kind,
            summary=found.sentences["summary"],
            links=join(fill("link", at=at, name=name) for at, name, _ in shown),
            glance=join(
                fill("glance", name=name, big=big, small=small)
                for name, big, small in _glance(found)
            ),
            sections=join(section for *_, section in shown),
            judged=fill(
                f"judged-{table.role}",
                n_judged=plural(table.n_judged, "row"),
                part=_part_in_training(found),
                halves=fill("halves"),
            ),
            absent=join(fill("paragraph", words=sentence) for sentence in found.absent),
            n_rows=plural(table.n_rows, "row"),
            n_sampled=plural(table.n_sampled, "row"),
        )
    )


def _glance(found: Findings) -> list[tuple[str, str, str]]:
    """Four figures that say most of it, each with its name and a word on it."""
    own, oddness, n = found.scores[0].score, found.oddness, found.table.n_rows
    digits = decimals_for(own.standard_error)
    who = "held-out row" if found.table.role == "fitted" else "row"
    error = f"± {fixed(own.standard_error, digits)}, over {plural(own.n_rows, 'row')}"
    cells = [(f"Log-likelihood, nats a {who}", fixed(own.mean, digits), error)]
    for line in found.scores[1:2]:
        assert line.lead is not None
        digits = decimals_for(line.lead.standard_error)
        name = "a Gaussian" if line.model == "Gaussian" else line.model
        lead = ("+" if line.lead.mean > 0 else "") + fixed(line.lead.mean, digits)
        error = f"± {fixed(line.lead.standard_error, digits)} nats a row"
        cells.append((f"Lead over {name}", lead, error))
    if found.calibration:
        inside = f"{sum(column.inside for column in found.calibration)}"
        band = f"within the {percent(BAND_LEVEL)} band"
        cells.append(("Calibrated columns", f"{inside} of {len(found.calibration)}", band))
    at = oddness.level
    if at is None:
        held = f"with {plural(oddness.n_calibration, 'row')} held out"
        return [*cells, ("Smallest p-value possible", number(oddness.smallest_p, 2), held)]
    expected = f"{number(at.level * n, 2)} expected of {n:,}"
    return [*cells, (f"Outliers (p ≤ {number(at.level)})", f"{at.n_rows:,}", expected)]


def _part_in_training(found: Findings) -> str:
    """What the held-out rows had to do with training, to be said after them."""
    trained = found.fitted.trained
    if found.fitted.retrained:
        return ", on which it was trained in the end too"
    if trained is None:
        return ""
    if trained.own_folds:
        each, its = ("each", "its own") if trained.parts == "models" else ("the", "a")
        return (
            f", which had no part in training: {each} model early-stopped on {its} 1/8 fold of the"
            " other rows"
        )
    return ", which chose the epoch to stop at, and no more"
