"""What to be careful about, in plain words."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rnade.columns import Resolution
from rnade.evaluation import MeanScore, mean_score
from rnade.report.asked import Asked
from rnade.report.calibration import LEAST_JUDGED
from rnade.report.dependence import Gain
from rnade.report.fitted import Fitted, ScoreLine
from rnade.report.rows import Rows
from rnade.report.words import listed, number, percent, plural, quoted
from rnade.typing import Array

# A value that more than this share of a column's rows have is a spike in it.
SPIKE_SHARE = 0.05
# A column of whose spread less than this remains, given others, may give something away.
LEFT_OF_SPREAD = 0.05
# Standard deviations beyond the training range, or from the mean where no range is stored.
FAR_BEYOND, FAR_FROM_MEAN = 1.0, 8.0
# More rows of another table than this, times what is usual, below the 1 % threshold.
TOO_MANY_ODD = 3.0
_FEW_HELD_OUT = 100
_PARTS = {"models": "models", "columns": "columns’ networks"}


@dataclass(frozen=True)
class Caution:
    """Something to know before trusting the page.

    Attributes
    ----------
    kind : str
        One word for programs: "worse-than-gaussian", "unlike", "overfit", "leak", "spike",
        "rounded", "repeated", "outside", "few", "short", "skipped", "rows".
    severity : "serious", "mind" or "note"
    title, text : str
        For people.
    """

    kind: str
    severity: Literal["serious", "mind", "note"]
    title: str
    text: str


def look_for_cautions(
    asked: Asked,
    fitted: Fitted,
    scores: Array,
    compared: list[ScoreLine],
    found_gains: list[Gain],
    share_odd: float,
) -> list[Caution]:
    """Look for everything that could mislead a reader, the most serious first.

    Parameters
    ----------
    asked : Asked
    fitted : Fitted
    scores : array of shape (N,)
        Log densities of all rows.
    compared : list of ScoreLine
    found_gains : list of Gain
    share_odd : float
        Share of the rows with a p-value of at most 1 %.
    """
    estimator, X, rows = asked.estimator, asked.values, asked.rows
    found = [
        *_worse_than_a_gaussian(compared),
        *_unlike(rows, share_odd),
        *_unknown_rows(rows, fitted),
        *_overfitting(fitted, rows, scores),
        *_leaks(fitted, X, found_gains),
        *_outside(estimator, fitted, X, rows),
        *([] if fitted.binary else _spikes(fitted, X)),
        *([] if fitted.binary else _rounded(estimator, fitted, X)),
        *([] if fitted.binary else _repeated_rows(X, rows)),
        *_training(fitted),
    ]
    rank = {"serious": 0, "mind": 1, "note": 2}
    return sorted(found, key=lambda caution: rank[caution.severity])


def _worse_than_a_gaussian(scores: list[ScoreLine]) -> Iterator[Caution]:
    for line in scores[1:]:
        lead = line.lead
        if lead is not None and lead.mean < -2 * lead.standard_error:
            yield Caution(
                "worse-than-gaussian",
                "serious",
                f"{line.model} does better",
                f"The model scores {number(-lead.mean)} ± {number(lead.standard_error)} nats a row"
                f" less than the {line.model}, which is simpler: prefer that, or train the model"
                " with more rows or other settings.",
            )


def _unlike(rows: Rows, share_odd: float) -> Iterator[Caution]:
    if rows.role != "fitted" and share_odd > 0.01 * TOO_MANY_ODD:
        yield Caution(
            "unlike",
            "serious",
            "These rows are unlike those the model was fitted to",
            f"{percent(share_odd)} of them are outliers at the 1 % level."
            " Either the model does not fit, or this table comes from elsewhere.",
        )


def _unknown_rows(rows: Rows, fitted: Fitted) -> Iterator[Caution]:
    if rows.role == "unknown":
        yield Caution(
            "rows",
            "mind",
            "It is not known which of these rows the model has seen",
            "The model does not remember the table it was fitted to. If this is that table, the"
            " figures under “Is it right?” flatter the model.",
        )
    elif rows.role == "fitted" and rows.seen is not None and rows.seen.all():
        yield Caution(
            "rows",
            "mind",
            "The model has seen all of these rows",
            "After early stopping it was trained again on all rows, the held-out ones among them,"
            " so its figures here flatter it a little. When they were still unseen it scored"
            f" {number(fitted.stored_score.mean) if fitted.stored_score else '?'} nats a row.",
        )


def _overfitting(fitted: Fitted, rows: Rows, scores: Array) -> Iterator[Caution]:
    """Compare the fitted model's scores of the rows it learned from with those held out."""
    learned, held_out = _learned_and_held_out(fitted, rows, scores)
    if learned is None or held_out is None:
        return
    gap = learned.mean - held_out.mean
    error = math.hypot(learned.standard_error, held_out.standard_error)
    before = " before it was trained on them too" if fitted.retrained else ""
    # Beyond what chance explains, and more than a little for each column.
    if gap > 3 * error and gap > 0.03 * len(fitted.columns):
        yield Caution(
            "overfit",
            "mind",
            "The model overfits the rows it learned from",
            f"It gives them {number(learned.mean)} nats a row, and {number(held_out.mean)} to the"
            f" rows held out{before}: {number(gap)} nats less. Expect the latter of new rows;"
            " outliers among the rows it learned from may look usual. More rows, fewer hidden"
            " units or components, or a larger weight decay would narrow the gap.",
        )


def _learned_and_held_out(
    fitted: Fitted, rows: Rows, scores: Array
) -> tuple[MeanScore | None, MeanScore | None]:
    """Scores of rows that the model learned from, and of rows when they were unseen."""
    stored, curve = fitted.stored_score, fitted.curve
    if rows.role == "fitted" and rows.seen is not None:
        # A model trained again has seen all rows: what it gave the unseen is what is stored.
        return mean_score(scores[rows.seen]), stored
    if stored is None or curve is None or fitted.trained is None or fitted.trained.own_folds:
        return None, None
    at = curve.epochs.index(curve.best_epoch) if curve.best_epoch in curve.epochs else -1
    return MeanScore(curve.train[at], 0.0, stored.n_rows), stored


def _leaks(fitted: Fitted, X: Array, found_gains: list[Gain]) -> Iterator[Caution]:
    if fitted.binary:
        return
    names = fitted.columns
    left = dict(zip(names, _left_given_others(X), strict=True))
    for gain in found_gains:
        left[gain.column] = min(left[gain.column], math.exp(-max(gain.gain, 0.0)))
    leaking = sorted((name for name in names if left[name] < LEFT_OF_SPREAD), key=left.__getitem__)
    if leaking:
        remains = f"only {percent(max(left[name] for name in leaking))} or less of the spread"
        are = "is" if len(leaking) == 1 else "are"
        yield Caution(
            "leak",
            "mind",
            f"{listed(leaking)} {are} almost determined by other columns",
            f"Knowing the others, {remains} remains. If one was computed from another, or"
            " recorded after the fact, leave it out: it adds to every score and tells nothing.",
        )


def _left_given_others(X: Array) -> Array:
    """Share of each column's standard deviation that a linear fit on all others leaves."""
    if len(X) <= X.shape[1] + 1:
        return np.ones(X.shape[1])
    deviation = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    precision = np.linalg.inv(Z.T @ Z / len(Z) + 1e-9 * np.eye(X.shape[1]))
    return np.sqrt(1 / np.diag(precision))


def _outside(estimator: Any, fitted: Fitted, X: Array, rows: Rows) -> Iterator[Caution]:
    standardiser = getattr(estimator, "standardiser_", None)
    if standardiser is None or rows.role == "fitted" or fitted.binary:
        return
    known = getattr(estimator, "fitted_rows_", None)
    if known is not None:
        beyond = np.maximum(known.low - X, X - known.high) / standardiser.scale
        far, where = beyond > FAR_BEYOND, "the range of the rows it was fitted to"
    else:
        beyond = np.abs(X - standardiser.mean) / standardiser.scale
        far, where = beyond > FAR_FROM_MEAN, f"{FAR_FROM_MEAN:g} standard deviations"
    if far.any():
        columns = np.flatnonzero(far.any(axis=0))
        worst = columns[np.argsort(-far[:, columns].sum(axis=0), kind="stable")]
        yield Caution(
            "outside",
            "mind",
            f"{plural(int(far.any(axis=1).sum()), 'row')} far outside what the model knows",
            f"Values in {listed([fitted.columns[d] for d in worst])} lie far beyond {where}:"
            " there the model guesses, and its log densities mean little more than “odd”.",
        )


def _spikes(fitted: Fitted, X: Array) -> Iterator[Caution]:
    spikes = []
    for name, column in zip(fitted.columns, X.T, strict=True):
        values, counts = np.unique(column, return_counts=True)
        most = counts.argmax()
        share = counts[most] / len(column)
        # A column with few values is rounded, which is another caution.
        if share > SPIKE_SHARE and len(values) > 2 / SPIKE_SHARE:
            spikes.append(f"{quoted(name)} ({number(values[most])} in {percent(share)})")
    if spikes:
        yield Caution(
            "spike",
            "mind",
            f"{plural(len(spikes), 'column')} in which one value stands out",
            "One exact value among otherwise spread-out ones: "
            + ", ".join(spikes[:6])
            + (f" and {len(spikes) - 6} more" if len(spikes) > 6 else "")
            + " of the rows. A density can rise without bound on such a value, so part of the"
            " score is earned there, and samples scatter around it.",
        )


def _rounded(estimator: Any, fitted: Fitted, X: Array) -> Iterator[Caution]:
    resolution = getattr(estimator, "resolution_", None)
    steps = Resolution.measure(X).steps if resolution is None else resolution.steps
    rounded = [
        name
        for name, step, column in zip(fitted.columns, steps, X.T, strict=True)
        if step > 0 and not _is_spread_but_for_one_value(column)
    ]
    if rounded:
        unbounded = fitted.settings.get("sigma_floor") == 0
        yield Caution(
            "rounded",
            "serious" if unbounded else "note",
            f"{plural(len(rounded), 'column')} of rounded or repeated values",
            f"{listed(rounded)}: log densities there depend on the rounding, so compare them only"
            " between models of the same table."
            + (
                " With sigma_floor=0 the density may spike on them, and no figure here can be"
                " trusted."
                if unbounded
                else " Calibration counts a rounded value as its whole interval."
            ),
        )


def _is_spread_but_for_one_value(column: Array) -> bool:
    values, counts = np.unique(column, return_counts=True)
    return bool(len(values) - 1 > (len(column) - counts.max()) / 2)


def _repeated_rows(X: Array, rows: Rows) -> Iterator[Caution]:
    _, first, counts = np.unique(_row_keys(X), return_inverse=True, return_counts=True)
    share = float((counts[first] > 1).mean())
    if share < 0.01:
        return
    text = f"{percent(share)} of the rows occur more than once, value by value."
    if rows.role == "fitted":
        learned = np.isin(first[rows.judged], first[rows.folds[0][0]])
        text += (
            f" {percent(float(learned.mean()))} of the held-out rows are exact duplicates of"
            " rows the model learned from, so the held-out score is not quite of unseen rows."
        )
    yield Caution("repeated", "mind", "Duplicate rows", text)


def _row_keys(X: Array) -> Array:
    """One number a row, equal for equal rows: a fixed random projection of the bits."""
    weights = np.random.default_rng(0).integers(1, 2**63 - 1, X.shape[1], dtype=np.uint64)
    bits = np.ascontiguousarray(X + 0.0).view(np.uint64)
    with np.errstate(over="ignore"):
        mixed = (bits ^ (bits >> np.uint64(29))) * (weights | np.uint64(1))
        return np.asarray((mixed ^ (mixed >> np.uint64(32))).sum(axis=1, dtype=np.uint64))


def _training(fitted: Fitted) -> Iterator[Caution]:
    curve, trained = fitted.curve, fitted.trained
    if trained is not None and trained.n_unfinished > len(trained.epochs) / 2:
        still = (
            f"The last of {plural(trained.epochs[0], 'epoch')} was the best"
            if trained.parts == "model"
            else f"{trained.n_unfinished} of {len(trained.epochs)} {_PARTS[trained.parts]} were at"
            " their best in the last epoch"
        )
        yield Caution(
            "short",
            "note",
            "Training may have ended too early",
            f"{still}: more epochs may still do better.",
        )
    if curve is not None and curve.skipped:
        yield Caution(
            "skipped",
            "note",
            "Training met updates it could not use",
            f"{plural(curve.skipped, 'update')} had a gradient that was not finite and"
            f" {'was' if curve.skipped == 1 else 'were'} left out.",
        )
    if fitted.n_held_out is not None and fitted.n_held_out < _FEW_HELD_OUT:
        unjudged = " Calibration cannot be judged by so few."
        yield Caution(
            "few",
            "note",
            f"Only {plural(fitted.n_held_out, 'row')} held out",
            f"No p-value can be below {number(1 / (1 + fitted.n_held_out))}, and the held-out"
            f" figures are rough.{unjudged if fitted.n_held_out < LEAST_JUDGED else ''}",
        )
