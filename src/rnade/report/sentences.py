"""Each finding in one sentence of plain words."""

import math
from collections.abc import Mapping

from scipy.stats import kstwo

from rnade.evaluation import MeanScore
from rnade.report.calibration import BAND_LEVEL
from rnade.report.findings import MOST_SHOWN, Findings, TableFindings
from rnade.report.kinds import with_missing
from rnade.report.words import decimals_for, fixed, listed, number, percent, plural, quoted, times

# More columns left out than this are counted, not named.
_MOST_LEFT_OUT = 12


def sentences(found: Findings) -> dict[str, str]:
    """The findings in one sentence each, by section; of those that there are."""
    said = {
        "summary": _summary(found),
        "comparison": _comparison(found),
        "curve": _curve(found),
        "calibration": _calibration(found),
        "marginals": _marginals(found),
        "correlation": _correlation(found),
        "oddness": _oddness(found),
        "gains": _gains(found),
        "missing": _missing(found) if isinstance(found, TableFindings) else "",
    }
    return {section: sentence for section, sentence in said.items() if sentence}


def _summary(found: Findings) -> str:
    """What was fitted, and by what it is judged."""
    fitted, table = found.fitted, found.table
    n_columns = len(fitted.columns)
    if isinstance(found, TableFindings):
        n_columns -= sum(column.kind == "indicator" for column in found.columns)
    rows = "" if fitted.n_rows is None else f" from {plural(fitted.n_rows, 'row')}"
    how = "1 column varies" if n_columns == 1 else f"{n_columns} columns vary together"
    of = f" of {fitted.source}" if fitted.source else ""
    page = (
        f"shows what it found, judged by {plural(table.n_judged, 'held-out row')}"
        if table.role == "fitted"
        else f"compares it with the {plural(table.n_rows, 'row')} of {table.source}"
    )
    return f"{fitted.kind} learned how {how}{rows}{of}. This page {page}."


def _comparison(found: Findings) -> str:
    """How the model does beside the better of the references."""
    references = [line for line in found.scores if line.lead is not None]
    if not references:
        return "There are too few rows to set reference models beside this one."
    best = max(references, key=lambda line: line.score.mean)
    assert best.lead is not None
    lead, error = best.lead.mean, best.lead.standard_error
    row = "a typical held-out row" if found.table.role == "fitted" else "a typical row"
    given = f"{row} {times(abs(lead))} the {'probability' if found.fitted.binary else 'density'}"
    gaussian = best.model == "Gaussian"
    other = "a Gaussian with full covariance" if gaussian else "a model of independent columns"
    if not abs(lead) > 2 * error:
        return (
            f"The model does no better and no worse than {other}: the difference is no more than"
            " chance explains."
        )
    if lead < 0:
        return f"{other[0].upper()}{other[1:]} gives {given}."
    return f"The model gives {given} that {other} does."


def _curve(found: Findings) -> str:
    """When training was at its best, and what the curve is of."""
    curve, trained = found.fitted.curve, found.fitted.trained
    if curve is None or trained is None:
        return ""
    last, best = curve.epochs[-1], curve.best_epoch
    again = "the model was then trained again on all rows" if found.fitted.retrained else ""
    own = "its own 1/8 fold of the training rows" if trained.own_folds else "the held-out rows"
    if trained.parts == "model":
        kept = curve.held_out[curve.epochs.index(best)]
        score = "" if math.isnan(kept) else f", with {number(kept, 4)} nats a row on {own}"
        text = (
            f"The score was still rising at the last epoch, {last}"
            if best == last
            else f"The best of {plural(last, 'epoch')} was epoch {best}"
        )
        return f"{text}{score}; {again or 'its weights were kept'}."
    first, final = min(trained.best_epochs), max(trained.best_epochs)
    kept_at = f"epoch {first}" if first == final else f"epochs {first} to {final}"
    end = f"each with the weights of its own best epoch ({kept_at}){'; ' * bool(again)}{again}."
    if trained.parts == "columns":
        return f"Each column has a network, {end} The curve is the sum over columns."
    what = "networks" if trained.kinds else "models"
    return (
        f"{len(trained.epochs)} {what} were averaged, {end}{_kinds(trained.kinds)} The curve is of"
        f" one of them, whose best epoch on {own} was {best} of {last}."
    )


def _kinds(kinds: Mapping[str, float]) -> str:
    """Which kinds of model carry the average."""
    if not kinds:
        return ""
    shares = [f"{weight:.0%} {words}" for words, weight in kinds.items()]
    return f" By weights that left-out rows earned them, the average is {_some(shares, 4)}."


def _calibration(found: Findings) -> str:
    """How many columns are calibrated, and how far off the worst is."""
    columns, n_judged = found.calibration, found.table.n_judged
    if not columns:
        return ""
    n, inside = len(columns), sum(column.inside for column in columns)
    if n == 1:
        share = f"The column is {'' if inside else 'not '}calibrated"
    elif inside in (0, n):
        which = "None of the {}" if not inside else "Both" if n == 2 else "All {}"
        share = f"{which.format(n)} columns are calibrated"
    else:
        share = f"{inside} of {n} columns {'is' if inside == 1 else 'are'} calibrated"
    worst = max(columns, key=lambda column: column.distance)
    # Of the largest difference over all columns, by Bonferroni; missing cells judge nothing.
    chance = float(kstwo.ppf(1 - (1 - BAND_LEVEL) / n, int(worst.counts.sum())))
    return (
        f"{share} as far as {plural(n_judged, 'row')} can tell: predicted and observed"
        f" probabilities differ by up to {number(100 * worst.distance, 2)} points, in"
        f" {quoted(worst.column)}, where chance alone explains {number(100 * chance, 2)}."
    )


def _marginals(found: Findings) -> str:
    """Whether columns of samples look like real ones."""
    seen = [column for column in found.marginals if not math.isnan(column.distance)]
    if not seen:
        return "No cell of this table is observed, so there is nothing to compare samples with."
    worst = max(seen, key=lambda column: column.distance)
    off = [column.column for column in found.marginals if column.distance >= 0.05]
    if off:
        return f"Samples differ visibly from real rows in {listed(off)} (by 5 points or more)."
    return (
        "Column by column, samples cannot be told from real rows by eye; the largest"
        f" difference is {number(100 * worst.distance, 2)} points, in {quoted(worst.column)}."
    )


def _correlation(found: Findings) -> str:
    """Whether samples hang together as real rows do."""
    measured = found.correlation
    if measured is None:
        return ""
    i, j = measured.worst
    real, sampled = measured.real[i, j], measured.sampled[i, j]
    gap = abs(real - sampled)
    how = "closely" if gap < 0.05 else "roughly" if gap < 0.15 else "poorly"
    return (
        f"Correlations are kept {how}: the largest change is {number(gap, 2)}, between"
        f" {quoted(measured.columns[i])} and {quoted(measured.columns[j])}"
        f" ({number(real, 2)} real, {number(sampled, 2)} sampled)."
    )


def _oddness(found: Findings) -> str:
    """How many rows are outliers, against how many chance gives."""
    oddness, n_rows = found.oddness, found.table.n_rows
    at = oddness.level
    if at is None:
        return (
            f"With {plural(oddness.n_calibration, 'row')} to compare with no p-value can be below"
            f" {number(oddness.smallest_p, 2)}, so outliers cannot be told from usual rows by"
            " their p-value; the least likely rows come first below."
        )
    return (
        f"{at.n_rows:,} of {plural(n_rows, 'row')} {'is' if at.n_rows == 1 else 'are'} among"
        f" the {percent(at.level)} least likely by the model’s measure; chance alone would give"
        f" about {number(at.level * n_rows, 2)}.{_judged_by(found)}"
    )


def _judged_by(found: Findings) -> str:
    """Which models judge the rows of the fitted table."""
    left_out, learned = found.oddness.n_left_out, found.oddness.n_learned
    if found.table.role != "fitted":
        return ""
    if not learned:
        return " Each row is judged by models that left it out of training."
    were = "was" if learned == 1 else "were"
    return (
        f" {left_out:,} of them are judged by models that left them out of training; {learned:,}"
        f" {were} learned by all models and may look more usual than they are."
    )


def _gains(found: Findings) -> str:
    """Which column gains the most from the others."""
    if not found.gains:
        return ""
    if sum(gain.gain for gain in found.gains) < 0.05:
        return (
            "The columns hardly depend on each other: knowing some tells next to nothing of the"
            " rest."
        )
    best = max(found.gains, key=lambda gain: gain.gain)
    left = percent(math.exp(-max(best.gain, 0.0)))
    closest = f", and is closest to {quoted(best.closest)}" if best.closest else ""
    if isinstance(found, TableFindings):
        return (
            f"{quoted(best.column)} gains the most from the other cells of its row:"
            f" {number(best.gain)} nats, which makes its value {times(best.gain)} as likely"
            f"{closest}."
        )
    return (
        f"{quoted(best.column)} gains the most from other columns: {number(best.gain)} nats,"
        f" as if {left} of its spread were left once they are known{closest}."
    )


def _missing(found: TableFindings) -> str:
    """How many cells are missing, and where the most."""
    gaps = with_missing(found.columns)
    if not gaps:
        return "No cell of this table is missing."
    share = sum(column.missing for column in found.columns) / len(found.columns)
    most = [f"{quoted(column.column)} ({percent(column.missing)})" for column in gaps[:3]]
    where = f"{len(gaps)} of {len(found.columns)} columns have missing cells"
    if len(gaps) == 1:
        where = f"1 of {plural(len(found.columns), 'column')} has missing cells"
    lead = ", the most of them" if len(gaps) > 3 else ""
    return f"{percent(share)} of all cells are missing; {where}{lead}: {', '.join(most)}."


def facts(found: Findings) -> list[tuple[str, str]]:
    """Rows and columns of the model, and what was left out or changed: name and words of each."""
    model, table = found.fitted, found.table
    lines = []
    if model.n_rows is not None:
        held = "" if model.n_held_out is None else f", of which {model.n_held_out:,} held out"
        lines.append(("Fitted to", f"{plural(model.n_rows, 'row')}{held}"))
    if model.dropped_rows:
        lines.append(("Rows left out", f"{plural(model.dropped_rows, 'row')} with a missing cell"))
    lines.append(("Columns", f"{len(model.columns)}: " + _some(model.columns, MOST_SHOWN)))
    if model.left_out:
        reasons = [f"{name}: {why}" for name, why in model.left_out.items()]
        lines.append(("Columns left out", _some(reasons, _MOST_LEFT_OUT, "; ")))
    if model.changes:
        lines.append(("What was changed", " ".join(model.changes)))
    if table.role != "fitted":
        dropped = table.dropped_rows
        extra = f", without {dropped:,} with a missing cell" if dropped else ""
        lines.append(("Judged by", f"{plural(table.n_rows, 'row')} of {table.source}{extra}"))
    if model.stored_score is not None and table.role != "fitted":
        score = " ± ".join(with_error(model.stored_score))
        rows = plural(model.stored_score.n_rows, "row")
        lines.append(("Held-out score when fitted", f"{score} nats a row over {rows}"))
    if model.seconds is not None:
        lines.append(("Training", f"{number(model.seconds)} s{_epochs(found)}"))
    return lines


def with_error(score: MeanScore, digits: int | None = None) -> tuple[str, str]:
    """A mean and its standard error, with the decimals worth giving or so many."""
    digits = decimals_for(score.standard_error) if digits is None else digits
    return fixed(score.mean, digits), fixed(score.standard_error, digits)


def _epochs(found: Findings) -> str:
    trained = found.fitted.trained
    if trained is None:
        return ""
    few, many = min(trained.epochs), max(trained.epochs)
    models = f"{len(trained.epochs)} models of " if trained.parts == "models" else ""
    span = plural(many, "epoch") if few == many else f"{few} to {plural(many, 'epoch')}"
    return f", {models}{span}"


def _some(names: list[str], most: int, between: str = ", ") -> str:
    rest = len(names) - most
    return between.join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
