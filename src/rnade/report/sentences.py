"""Each finding in one sentence of plain words."""

import math

from rnade.report.calibration import ColumnCalibration
from rnade.report.dependence import Gain
from rnade.report.findings import Table
from rnade.report.fitted import Fitted, LearningCurve, ScoreLine, factor
from rnade.report.oddness import Oddness
from rnade.report.resemblance import Correlation, Marginal
from rnade.report.words import listed, number, percent, plural, quoted, times


def summary(fitted: Fitted, table: Table) -> str:
    """What was fitted, and by what it is judged."""
    rows = "" if fitted.n_rows is None else f" from {plural(fitted.n_rows, 'row')}"
    n_columns = len(fitted.columns)
    how = "1 column varies" if n_columns == 1 else f"{n_columns} columns vary together"
    text = f"{fitted.kind} learned how {how}{rows}"
    text += f" of {fitted.source}." if fitted.source else "."
    if table.role == "fitted":
        return text + (
            f" This page tells what it found there, judged by {plural(table.n_judged, 'row')}"
            " it had put aside."
        )
    return (
        text + f" This page holds it against the {plural(table.n_rows, 'row')} of {table.source}."
    )


def comparison(scores: list[ScoreLine], table: Table, *, binary: bool) -> str:
    """How the model does beside the better of the references."""
    references = [line for line in scores if line.lead is not None]
    if not references:
        return "There are too few rows to set reference models beside this one."
    best = max(references, key=lambda line: line.score.mean)
    lead = best.lead
    assert lead is not None
    row = "a typical held-out row" if table.role == "fitted" else "a typical row"
    density = "probability" if binary else "density"
    other = _IN_A_SENTENCE[best.model]
    if not abs(lead.mean) > 2 * lead.standard_error:
        return (
            f"The model does no better and no worse than {other}: the difference is no more than"
            " chance explains."
        )
    if lead.mean < 0:
        return (
            f"{other[0].upper()}{other[1:]} gives {row} {times(factor(-lead.mean))} the {density}."
        )
    return f"The model gives {row} {times(factor(lead.mean))} the {density} that {other} does."


_IN_A_SENTENCE = {
    "Gaussian": "a Gaussian with full covariance",
    "independent columns": "a model of independent columns",
}


def curve(found: LearningCurve) -> str:
    """When training was at its best."""
    last = found.epochs[-1]
    kept = found.held_out[found.epochs.index(found.best_epoch)]
    score = "" if kept is None else f", with {number(kept, 4)} nats a held-out row"
    if found.best_epoch == last:
        return f"The score was still rising at the last epoch, {last}{score}."
    return (
        f"The best of {plural(last, 'epoch')} was epoch {found.best_epoch}{score}; its weights"
        " were kept."
    )


def calibration(found: list[ColumnCalibration], n_judged: int) -> str:
    """How many columns' probabilities come true."""
    inside = sum(column.inside for column in found)
    if len(found) == 1:
        share = (
            "The column’s probabilities come"
            if inside
            else "The column’s probabilities do not come"
        )
    elif inside == len(found):
        all_of_them = "Both" if len(found) == 2 else f"All {len(found)}"
        share = f"{all_of_them} columns’ probabilities come"
    elif inside == 0:
        share = f"None of the {len(found)} columns’ probabilities come"
    else:
        share = f"The probabilities of {inside} of {len(found)} columns come"
    worst = max(found, key=lambda column: column.distance)
    return (
        f"{share} true as far as {plural(n_judged, 'row')} can tell; the furthest off is"
        f" {quoted(worst.column)}, where a stated probability is wrong by up to"
        f" {number(100 * worst.distance, 2)} points."
    )


def marginals(found: list[Marginal]) -> str:
    """Whether columns of samples look like real ones."""
    worst = max(found, key=lambda column: column.distance)
    if worst.distance < 0.05:
        return (
            "Column by column, samples cannot be told from real rows by eye; the largest"
            f" difference is {number(100 * worst.distance, 2)} points, in {quoted(worst.column)}."
        )
    off = [column.column for column in found if column.distance >= 0.05]
    return f"Samples differ visibly from real rows in {listed(off)} (by 5 points or more)."


def correlation(found: Correlation) -> str:
    """Whether samples hang together as real rows do."""
    ((i, j),) = found.differences(1)
    gap = found.largest_difference
    how = "closely" if gap < 0.05 else "roughly" if gap < 0.15 else "not well"
    return (
        f"Correlations are kept {how}: the largest change is {number(gap, 2)}, between"
        f" {quoted(found.columns[i])} and {quoted(found.columns[j])}"
        f" ({number(found.real[i, j], 2)} real, {number(found.sampled[i, j], 2)} sampled)."
    )


def oddness(found: Oddness, table: Table) -> str:
    """How many rows are odd, against how many chance gives."""
    one = next(t for t in found.thresholds if t.level == 0.01)
    if one.log_density is None:
        one = found.thresholds[0]
    expected = one.level * table.n_rows
    return (
        f"{plural(one.n_rows, 'row')} of {table.n_rows:,} are among the oddest"
        f" {percent(one.level)} by the model’s measure; chance alone would give about"
        f" {number(expected, 2)}."
    )


def gains(found: list[Gain]) -> str:
    """Which column owes the most to the others."""
    total = sum(gain.gain for gain in found)
    best = max(found, key=lambda gain: gain.gain)
    if total < 0.05:
        return (
            "The columns hardly depend on each other: knowing some tells next to nothing of the"
            " rest."
        )
    left = percent(math.exp(-max(best.gain, 0.0)))
    closest = f", and is closest to {quoted(best.closest)}" if best.closest else ""
    return (
        f"{quoted(best.column)} owes the most to other columns: {number(best.gain)} nats,"
        f" as if {left} of its spread were left once they are known{closest}."
    )
