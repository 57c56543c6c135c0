"""What to be careful about, in plain words; the words themselves are in ``cautions.toml``."""

import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np

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

    @classmethod
    def of(cls, kind: str, variant: str = "", **values: str) -> "Caution":
        """Fill in the words of a kind of caution, or of a variant of it."""
        said = _words()[kind + variant]
        title, text = (said[name].format(**values) for name in ("title", "text"))
        return cls(kind, said["severity"], title, text)


@cache
def _words() -> dict[str, Any]:
    return tomllib.loads(files("rnade.report").joinpath("cautions.toml").read_text("utf-8"))


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
    rows = asked.rows
    found = [
        *_worse_than_a_gaussian(compared),
        *_unlike(rows, share_odd),
        *_unknown_rows(rows, fitted),
        *_overfitting(fitted, rows, scores),
        *([] if fitted.binary else _of_real_columns(asked, fitted, found_gains)),
        *_training(fitted),
    ]
    rank = {"serious": 0, "mind": 1, "note": 2}
    return sorted(found, key=lambda caution: rank[caution.severity])


def _of_real_columns(asked: Asked, fitted: Fitted, found_gains: list[Gain]) -> Iterator[Caution]:
    yield from _leaks(fitted, asked.values, found_gains)
    yield from _outside(asked)
    yield from _spikes_and_rounding(asked, fitted)
    yield from _duplicate_rows(asked)


def _worse_than_a_gaussian(scores: list[ScoreLine]) -> Iterator[Caution]:
    for line in scores[1:]:
        lead = line.lead
        if lead is not None and lead.mean < -2 * lead.standard_error:
            less, error = number(-lead.mean), number(lead.standard_error)
            yield Caution.of("worse-than-gaussian", model=line.model, lead=less, error=error)


def _unlike(rows: Rows, share_odd: float) -> Iterator[Caution]:
    if rows.role != "fitted" and share_odd > 0.01 * TOO_MANY_ODD:
        yield Caution.of("unlike", share=percent(share_odd))


def _unknown_rows(rows: Rows, fitted: Fitted) -> Iterator[Caution]:
    if rows.role == "unknown":
        yield Caution.of("rows")
    elif rows.role == "fitted" and rows.seen is not None and rows.seen.all():
        unseen = number(fitted.stored_score.mean) if fitted.stored_score else "?"
        yield Caution.of("rows", "-all-seen", unseen=unseen)


def _overfitting(fitted: Fitted, rows: Rows, scores: Array) -> Iterator[Caution]:
    """Compare the fitted model's scores of the rows it learned from with those held out."""
    learned, held_out = _learned_and_held_out(fitted, rows, scores)
    if learned is None or held_out is None:
        return
    gap = learned.mean - held_out.mean
    error = math.hypot(learned.standard_error, held_out.standard_error)
    # Beyond what chance explains, and more than a little for each column.
    if gap > 3 * error and gap > 0.03 * len(fitted.columns):
        yield Caution.of(
            "overfit",
            learned=number(learned.mean),
            held_out=number(held_out.mean),
            before=" before it was trained on them too" if fitted.retrained else "",
            gap=number(gap),
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
    names = fitted.columns
    left = dict(zip(names, _left_given_others(X), strict=True))
    for gain in found_gains:
        left[gain.column] = min(left[gain.column], math.exp(-max(gain.gain, 0.0)))
    leaking = sorted((name for name in names if left[name] < LEFT_OF_SPREAD), key=left.__getitem__)
    if leaking:
        columns = f"{listed(leaking)} {'is' if len(leaking) == 1 else 'are'}"
        yield Caution.of("leak", columns=columns, left=percent(max(left[n] for n in leaking)))


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
        far, where = beyond > FAR_BEYOND, "the range of the rows it was fitted to"
    else:
        beyond = np.abs(X - standardiser.mean) / standardiser.scale
        far, where = beyond > FAR_FROM_MEAN, f"{FAR_FROM_MEAN:g} standard deviations"
    if far.any():
        columns = np.flatnonzero(far.any(axis=0))
        worst = columns[np.argsort(-far[:, columns].sum(axis=0), kind="stable")]
        rows = plural(int(far.any(axis=1).sum()), "row")
        names = listed([asked.names[d] for d in worst])
        yield Caution.of("outside", rows=rows, columns=names, where=where)


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
        yield Caution.of("spike", columns=columns, spikes=", ".join(spikes[:6]) + rest)
    if rounded:
        variant = "-unbounded" if fitted.settings.get("sigma_floor") == 0 else ""
        n_columns = plural(len(rounded), "column")
        yield Caution.of("rounded", variant, n_columns=n_columns, columns=listed(rounded))


def _duplicate_rows(asked: Asked) -> Iterator[Caution]:
    rows = asked.rows
    _, first, counts = np.unique(_row_keys(asked.values), return_inverse=True, return_counts=True)
    share = float((counts[first] > 1).mean())
    if share < 0.01:
        return
    learned = ""
    if rows.role == "fitted":
        among = float(np.isin(first[rows.judged], first[rows.folds[0][0]]).mean())
        learned = (
            f" {percent(among)} of the held-out rows are exact duplicates of rows the model"
            " learned from, so the held-out score is not quite of unseen rows."
        )
    yield Caution.of("repeated", share=percent(share), learned=learned)


def _row_keys(X: Array) -> Array:
    """One number a row, equal for equal rows: a fixed random projection of the bits."""
    weights = np.random.default_rng(0).integers(1, 2**63 - 1, X.shape[1], dtype=np.uint64)
    bits = np.ascontiguousarray(X + 0.0).view(np.uint64)
    with np.errstate(over="ignore"):
        mixed = (bits ^ (bits >> np.uint64(29))) * (weights | np.uint64(1))
        return np.asarray((mixed ^ (mixed >> np.uint64(32))).sum(axis=1, dtype=np.uint64))


def _training(fitted: Fitted) -> Iterator[Caution]:
    curve, trained, n_held_out = fitted.curve, fitted.trained, fitted.n_held_out
    if trained is not None and trained.n_unfinished > len(trained.epochs) / 2:
        best = f"The last of {plural(trained.epochs[0], 'epoch')} was the best"
        if trained.parts != "model":
            parts = "models" if trained.parts == "models" else "columns’ networks"
            n = f"{trained.n_unfinished} of {len(trained.epochs)} {parts}"
            best = f"{n} were at their best in the last epoch"
        yield Caution.of("short", best=best)
    if curve is not None and curve.skipped:
        were = "was" if curve.skipped == 1 else "were"
        yield Caution.of("skipped", updates=f"{plural(curve.skipped, 'update')} {were}")
    if n_held_out is not None and n_held_out < _FEW_HELD_OUT:
        unjudged = " Calibration cannot be judged by so few."
        yield Caution.of(
            "few",
            rows=plural(n_held_out, "row"),
            smallest=number(1 / (1 + n_held_out)),
            calibration=unjudged if n_held_out < LEAST_JUDGED else "",
        )
