"""Parts of the page on columns of any kind: kinds and missing cells, cards, odd cells."""

from rnade.look import Markup
from rnade.report.calibration import ColumnCalibration
from rnade.report.cells import CellReason
from rnade.report.findings import MOST_SHOWN, TableFindings
from rnade.report.kinds import ColumnKind
from rnade.report.marginals import LevelMarginal, NumberMarginal
from rnade.report.markup import fill
from rnade.report.pictures import calibration as calibration_picture
from rnade.report.table_pictures import (
    cell_words,
    levels,
    missing_bar,
    numbers,
    shown_levels,
    value_words,
)
from rnade.report.words import percent, plural


def column_kinds(found: TableFindings) -> Markup:
    """What the columns hold and how much of them is missing, those with the most first."""
    other = found.table.role != "fitted"
    ordered = found.columns
    if len(ordered) > MOST_SHOWN:
        ordered = sorted(ordered, key=lambda column: -column.missing)[:MOST_SHOWN]
    which = (
        f" Shown: {len(ordered)} of {len(found.columns):,} columns, those with the most missing."
    )
    return fill(
        "kinds",
        sentence=found.sentences["missing"],
        fitted=" (when fitted)" * other,
        rows=[_kind(column, other) for column in ordered],
        how=" In brackets, the share when the model was fitted." * other,
        which=which if len(ordered) < len(found.columns) else "",
    )


def _kind(column: ColumnKind, other: bool) -> Markup:
    missing = percent(column.missing) if column.missing else "none"
    if other:
        before = percent(column.missing_when_fitted) if column.missing_when_fitted else "none"
        missing = f"{missing} ({before})"
    return fill(
        "kind",
        name=column.column,
        kind=column.kind,
        details=column.details,
        missing=missing,
        bar=missing_bar(column.column, column.missing) if column.missing else "",
    )


def table_card(
    shown: LevelMarginal | NumberMarginal,
    calibrated: ColumnCalibration | None,
    calibration: Markup,
) -> Markup:
    """A column's card: its values, what is missing of it, its calibration.

    That of a number is the same as of columns of real numbers, and is given.
    """
    if isinstance(shown, NumberMarginal):
        picture = numbers(shown)
    else:
        picture = levels(shown)
        calibration = Markup()
        if calibrated is not None:
            words = fill("calibrated" if calibrated.inside else "not-calibrated")
            picture_of_it = calibration_picture(calibrated)
            calibration = fill("card-of-levels", picture=picture_of_it, words=words)
    notes = [fill("card-note", words=words) for words in _notes(shown)]
    return fill(
        "table-card", name=shown.column, marginal=picture, notes=notes, calibration=calibration
    )


def _notes(shown: LevelMarginal | NumberMarginal) -> list[str]:
    """Shares of atoms and of missing cells, in words."""
    notes = []
    if isinstance(shown, NumberMarginal):
        span = float(shown.edges[-1] - shown.edges[0])
        shares = zip(shown.atoms, shown.real_atoms, shown.sampled_atoms, strict=True)
        notes += [
            f"{value_words(shown, float(atom), span)}: {percent(real)} real, {percent(sampled)}"
            " sampled"
            for atom, real, sampled in shares
        ]
    elif len(shown.levels) > len(shown_levels(shown)):
        notes.append(plural(len(shown.levels), "level"))
    if shown.missing > 0:
        notes.append("all missing" if shown.missing == 1 else f"{percent(shown.missing)} missing")
    return notes


def said_of_cell(reason: CellReason) -> str:
    """What the model expected in place of a cell, after the cell itself."""
    if reason.likeliest is not None:
        best = f"expected {reason.likeliest} ({percent(reason.likeliest_probability or 0.0)})"
        if not reason.known:
            return f", a new level; {best}"
        had = f"this level had {percent(reason.probability or 0.0)}"
        return f", rare though likeliest; {had}" if reason.within else f", {best}; {had}"
    low, high = (cell_words(reason, end) for end in (reason.low, reason.high))
    return said_of_interval(low, high, cell_words(reason, reason.value), within=reason.within)


def said_of_interval(low: str, high: str, value: str, *, within: bool) -> str:
    """What the model expected in place of a number or a date, after the value itself."""
    if low == high:
        return f", expected {low}"
    if within or value in (low, high):
        return f", rare between {low} and {high}"
    return f", expected {low} to {high}"
