"""Each finding in one sentence of plain words."""

import math

from scipy.stats import kstwo

from rnade.report.calibration import BAND_LEVEL, ColumnCalibration
from rnade.report.dependence import Gain
from rnade.report.findings import Table
from rnade.report.fitted import Fitted, ScoreLine, factor
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
        judged = plural(table.n_judged, "held-out row")
        return f"{text} This page shows what it found, judged by {judged}."
    return (
        f"{text} This page compares it with the {plural(table.n_rows, 'row')} of {table.source}."
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


def curve(fitted: Fitted) -> str:
    """When training was at its best, and what the curve is of."""
    found, trained = fitted.curve, fitted.trained
    assert found is not None
    assert trained is not None
    last, best = found.epochs[-1], found.best_epoch
    again = "the model was then trained again on all rows" if fitted.retrained else ""
    own = "its own 1/8 fold of the training rows" if trained.own_folds else "the held-out rows"
    if trained.parts == "model":
        kept = found.held_out[found.epochs.index(best)]
        score = "" if kept is None else f", with {number(kept, 4)} nats a row on {own}"
        text = (
            f"The score was still rising at the last epoch, {last}{score}"
            if best == last
            else f"The best of {plural(last, 'epoch')} was epoch {best}{score}"
        )
        return f"{text}; {again or 'its weights were kept'}."
    first, final = min(trained.best_epochs), max(trained.best_epochs)
    kept_at = f"epoch {first}" if first == final else f"epochs {first} to {final}"
    end = f"each with the weights of its own best epoch ({kept_at}){'; ' * bool(again)}{again}."
    if trained.parts == "columns":
        return f"Each column has a network, {end} The curve is the sum over columns."
    return (
        f"{len(trained.epochs)} models were averaged, {end} The curve is of one of them, whose"
        f" best epoch on {own} was {best} of {last}."
    )


def calibration(found: list[ColumnCalibration], n_judged: int) -> str:
    """How many columns are calibrated, and how far off the worst is."""
    n, inside = len(found), sum(column.inside for column in found)
    if n == 1:
        share = f"The column is {'' if inside else 'not '}calibrated"
    elif inside in (0, n):
        which = "None of the {}" if not inside else "Both" if n == 2 else "All {}"
        share = f"{which.format(n)} columns are calibrated"
    else:
        share = f"{inside} of {n} columns {'is' if inside == 1 else 'are'} calibrated"
    worst = max(found, key=lambda column: column.distance)
    # Of the largest difference over all columns, by Bonferroni.
    chance = float(kstwo.ppf(1 - (1 - BAND_LEVEL) / n, n_judged))
    return (
        f"{share} as far as {plural(n_judged, 'row')} can tell: predicted and observed"
        f" probabilities differ by up to {number(100 * worst.distance, 2)} points, in"
        f" {quoted(worst.column)}, where chance alone explains {number(100 * chance, 2)}."
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
    how = "closely" if gap < 0.05 else "roughly" if gap < 0.15 else "poorly"
    return (
        f"Correlations are kept {how}: the largest change is {number(gap, 2)}, between"
        f" {quoted(found.columns[i])} and {quoted(found.columns[j])}"
        f" ({number(found.real[i, j], 2)} real, {number(found.sampled[i, j], 2)} sampled)."
    )


def oddness(found: Oddness, table: Table) -> str:
    """How many rows are outliers, against how many chance gives."""
    at = found.level
    if at is None:
        return (
            f"With {plural(found.n_calibration, 'row')} held out no p-value can be below"
            f" {number(found.smallest_p, 2)}, so outliers cannot be told from usual rows by their"
            " p-value; the least likely rows come first below."
        )
    return (
        f"{at.n_rows:,} of {plural(table.n_rows, 'row')} {'is' if at.n_rows == 1 else 'are'} among"
        f" the {percent(at.level)} least likely by the model’s measure; chance alone would give"
        f" about {number(at.level * table.n_rows, 2)}."
    )


def gains(found: list[Gain]) -> str:
    """Which column gains the most from the others."""
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
        f"{quoted(best.column)} gains the most from other columns: {number(best.gain)} nats,"
        f" as if {left} of its spread were left once they are known{closest}."
    )
