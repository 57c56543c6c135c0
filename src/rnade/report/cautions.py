"""What to be careful about, the most serious first."""

import math
from collections.abc import Iterator

import numpy as np

from rnade.columns.spikes import SPIKE_SHARE
from rnade.evaluation import MeanScore, mean_score
from rnade.report.asked import Asked
from rnade.report.calibration import LEAST_JUDGED
from rnade.report.caution_words import caution as _caution
from rnade.report.findings import Caution, Findings, TableFindings
from rnade.report.fitted import Fitted
from rnade.report.table_cautions import (
    FITTED_RANGE,
    duplicate_rows,
    leaks,
    outside,
    table_cautions,
)
from rnade.report.words import listed, number, percent, plural, quoted
from rnade.typing import Array

# Standard deviations beyond the training range, or from the mean where no range is stored.
FAR_BEYOND, FAR_FROM_MEAN = 1.0, 8.0
# More rows of another table than this, times what is usual, below the 1 % threshold.
TOO_MANY_ODD = 3.0
_FEW_HELD_OUT = 100


def look_for_cautions(asked: Asked, scores: Array, found: Findings) -> list[Caution]:
    """Look for everything that could mislead a reader, the most serious first.

    It takes the log densities of all rows, and findings without cautions.
    """
    fitted = found.fitted
    cautions = [
        *_scores(found),
        *_unknown_rows(asked, fitted),
        *_weighted(asked),
        *_overfitting(asked, fitted, scores),
    ]
    if isinstance(found, TableFindings):
        cautions += table_cautions(asked, found)
    elif not fitted.binary:
        cautions += [
            *_leaks(asked, found),
            *_outside(asked),
            *_spikes_and_rounding(asked, fitted),
            *duplicate_rows(asked, np.ones(len(asked.values), dtype=bool)),
        ]
    cautions += _training(fitted, found.oddness.smallest_p)
    rank = {"serious": 0, "mind": 1, "note": 2}
    return sorted(cautions, key=lambda caution: rank[caution.severity])


def _scores(found: Findings) -> Iterator[Caution]:
    """A simpler model that does better, and rows that the model does not expect."""
    for line in found.scores[1:]:
        lead = line.lead
        if lead is not None and lead.mean < -2 * lead.standard_error:
            less, error = number(-lead.mean), number(lead.standard_error)
            variant = "-columns" if isinstance(found, TableFindings) else ""
            yield _caution(
                "worse-than-gaussian", variant, model=line.model, lead=less, error=error
            )
    share = next(t.share for t in found.oddness.thresholds if t.level == 0.01)
    if found.table.role != "fitted" and share > 0.01 * TOO_MANY_ODD:
        yield _caution("unlike", share=percent(share))


def _unknown_rows(asked: Asked, fitted: Fitted) -> Iterator[Caution]:
    rows = asked.rows
    if rows.role == "unknown":
        yield _caution("rows")
    elif rows.role == "fitted" and rows.seen is not None and rows.seen.all():
        unseen = number(fitted.stored_score.mean) if fitted.stored_score else "?"
        yield _caution("rows", "-all-seen", unseen=unseen)


def _weighted(asked: Asked) -> Iterator[Caution]:
    calibration = getattr(asked.estimator, "calibration_", None)
    if calibration is not None and np.ptp(calibration.weights) > 0:
        yield _caution("weighted")


def _overfitting(asked: Asked, fitted: Fitted, scores: Array) -> Iterator[Caution]:
    """Compare the fitted model's scores of the rows it learned from with those held out."""
    learned, held_out = _learned(asked, fitted, scores), fitted.stored_score
    if learned is None or held_out is None:
        return
    gap = learned.mean - held_out.mean
    error = math.hypot(learned.standard_error, held_out.standard_error)
    # Beyond what chance explains, and more than a little for each column.
    if gap > 3 * error and gap > 0.03 * len(fitted.columns):
        yield _caution(
            "overfit",
            learned=number(learned.mean),
            held_out=number(held_out.mean),
            before=" before it was trained on them too" if fitted.retrained else "",
            gap=number(gap),
        )


def _learned(asked: Asked, fitted: Fitted, scores: Array) -> MeanScore | None:
    """Score of the rows that the model learned from; of another table, what training told."""
    rows, curve = asked.rows, fitted.curve
    if rows.role == "fitted" and rows.seen is not None:
        return mean_score(scores[rows.seen])
    if curve is None or fitted.trained is None or fitted.trained.own_folds:
        return None
    at = curve.epochs.index(curve.best_epoch) if curve.best_epoch in curve.epochs else -1
    return MeanScore(curve.train[at], 0.0, len(scores))


def _leaks(asked: Asked, found: Findings) -> Iterator[Caution]:
    left = dict(zip(asked.names, _left_given_others(asked.values), strict=True))
    for gain in found.gains:
        left[gain.column] = min(left[gain.column], math.exp(-max(gain.gain, 0.0)))
    yield from leaks(left)


def _left_given_others(X: Array) -> Array:
    """Share of each column's standard deviation that a linear fit on all others leaves."""
    if len(X) <= X.shape[1] + 1:
        return np.ones(X.shape[1])
    deviation = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    precision = np.linalg.inv(Z.T @ Z / len(Z) + 1e-9 * np.eye(X.shape[1]))
    return np.sqrt(1 / np.diag(precision))


def _outside(asked: Asked) -> Iterator[Caution]:
    X, standardiser = asked.values, getattr(asked.estimator, "standardiser_", None)
    if standardiser is None or asked.rows.role == "fitted":
        return
    known = getattr(asked.estimator, "fitted_rows_", None)
    if known is not None:
        beyond = np.maximum(known.low - X, X - known.high) / standardiser.scale
        far, where = beyond > FAR_BEYOND, FITTED_RANGE
    else:
        beyond = np.abs(X - standardiser.mean) / standardiser.scale
        far, where = beyond > FAR_FROM_MEAN, f"{FAR_FROM_MEAN:g} standard deviations"
    yield from outside(asked, far, where)


def _spikes_and_rounding(asked: Asked, fitted: Fitted) -> Iterator[Caution]:
    """Columns with one value that stands out, and columns that are rounded altogether."""
    spikes, rounded = [], []
    for name, column, step in zip(asked.names, asked.values.T, asked.steps, strict=True):
        values, counts = np.unique(column, return_counts=True)
        most = counts.argmax()
        share = counts[most] / len(column)
        # A column with few values is rounded, which is another caution.
        if share > SPIKE_SHARE and len(values) > 2 / SPIKE_SHARE:
            spikes.append(f"{quoted(name)} ({number(values[most])} in {percent(share)})")
        spread_but_for_one = len(values) - 1 > (len(column) - counts[most]) / 2
        if step > 0 and not spread_but_for_one:
            rounded.append(name)
    if spikes:
        rest = f" and {len(spikes) - 6} more" if len(spikes) > 6 else ""
        columns = plural(len(spikes), "column")
        yield _caution("spike", columns=columns, spikes=", ".join(spikes[:6]) + rest)
    if rounded:
        variant = "-unbounded" if fitted.settings.get("sigma_floor") == 0 else ""
        n_columns = plural(len(rounded), "column")
        yield _caution("rounded", variant, n_columns=n_columns, columns=listed(rounded))


def _training(fitted: Fitted, smallest_p: float) -> Iterator[Caution]:
    curve, trained, n_held_out = fitted.curve, fitted.trained, fitted.n_held_out
    if trained is not None and trained.n_unfinished > len(trained.epochs) / 2:
        best = f"The last of {plural(trained.epochs[0], 'epoch')} was the best"
        if trained.parts != "model":
            parts = "models" if trained.parts == "models" else "columns’ networks"
            n = f"{trained.n_unfinished} of {len(trained.epochs)} {parts}"
            best = f"{n} were at their best in the last epoch"
        yield _caution("short", best=best)
    if curve is not None and curve.skipped:
        were = "was" if curve.skipped == 1 else "were"
        yield _caution("skipped", updates=f"{plural(curve.skipped, 'update')} {were}")
    if n_held_out is not None and n_held_out < _FEW_HELD_OUT:
        unjudged = " Calibration cannot be judged by so few."
        yield _caution(
            "few",
            rows=plural(n_held_out, "row"),
            smallest=number(smallest_p),
            calibration=unjudged if n_held_out < LEAST_JUDGED else "",
        )
