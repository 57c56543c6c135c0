"""What to be careful about in tables with levels, integers, dates, atoms or missing cells."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from rnade.report.asked import Asked
from rnade.report.caution_words import caution
from rnade.report.findings import Caution, TableFindings
from rnade.report.kinds import is_discrete, with_missing
from rnade.report.words import listed, percent, plural, quoted
from rnade.typing import Array

# A column of whose spread, or of whose uncertainty, less than this remains, given others, may give
# something away.
LEFT_OF_SPREAD = 0.05
# Further beyond the range of the fitted rows than this share of its width is far.
FAR_BEYOND = 0.1
# A column of which this much more is missing than in the fitted rows.
_MORE_MISSING = 0.1
_MOST_NAMED = 6
FITTED_RANGE = "the range of the rows it was fitted to"


def table_cautions(asked: Asked, found: TableFindings) -> list[Caution]:
    """Look for what could mislead a reader of a page on a table of any kind."""
    return [
        *_leaks(asked, found),
        *_new_levels(asked, found),
        *_outside(asked),
        *_missing(found),
        *_rounded(asked),
        *duplicate_rows(asked, _has_density(asked)),
        *(caution("table", note=note) for note in asked.estimator.schema_.notes),
    ]


def _leaks(asked: Asked, found: TableFindings) -> Iterator[Caution]:
    """Columns that others almost determine: of numbers the spread, of levels the entropy."""
    marginals = {marginal.column: marginal for marginal in found.marginals}
    columns = {column.name: column for column in asked.columns}
    left = {}
    for gain in found.gains:
        column, marginal = columns[gain.column], marginals[gain.column]
        if column.levels is not None:
            shares = np.append(marginal.real, getattr(marginal, "new", 0.0))
            entropy = -float((shares * np.log(np.where(shares > 0, shares, 1.0))).sum())
            left[gain.column] = 1 - gain.gain / entropy if entropy > 0 else 1.0
        elif not column.atoms:
            left[gain.column] = math.exp(-max(gain.gain, 0.0))
    yield from leaks(left, "-table")


def leaks(left: Mapping[str, float], variant: str = "") -> Iterator[Caution]:
    """Tell of columns of which hardly a share is left once others are known."""
    leaking = sorted((name for name in left if left[name] < LEFT_OF_SPREAD), key=left.__getitem__)
    if leaking:
        are = f"{listed(leaking)} {'is' if len(leaking) == 1 else 'are'}"
        worst = percent(max(left[leaking[-1]], 0.0))
        yield caution("leak", variant, columns=are, left=worst)


def _new_levels(asked: Asked, found: TableFindings) -> Iterator[Caution]:
    new = [column for column in found.columns if column.n_new]
    if not new:
        return
    rows = np.zeros(len(asked.X), dtype=bool)
    for d, column in enumerate(asked.columns):
        if column.levels is not None:
            rows |= asked.X[:, d] >= len(column.levels)
    named = [f"{quoted(column.column)} ({listed(column.new_levels, 3)})" for column in new]
    yield caution(
        "new-levels", rows=plural(int(rows.sum()), "row"), levels=_some(named, _MOST_NAMED)
    )


def _outside(asked: Asked) -> Iterator[Caution]:
    """Numbers and dates far beyond those of the rows that were fitted."""
    known = getattr(asked.estimator, "fitted_rows_", None)
    if known is None or asked.rows.role == "fitted":
        return
    width = np.where(known.high > known.low, known.high - known.low, 1.0)
    far = np.maximum(known.low - asked.X, asked.X - known.high) / width > FAR_BEYOND
    far[:, [column.levels is not None for column in asked.columns]] = False
    yield from outside(asked, far, FITTED_RANGE)


def outside(asked: Asked, far: NDArray[np.bool_], where: str) -> Iterator[Caution]:
    """Tell of cells that lie too far beyond what is known."""
    if far.any():
        columns = np.flatnonzero(far.any(axis=0))
        worst = columns[np.argsort(-far[:, columns].sum(axis=0), kind="stable")]
        names = listed([asked.names[d] for d in worst])
        rows = plural(int(far.any(axis=1).sum()), "row")
        yield caution("outside", rows=rows, columns=names, where=where)


def _missing(found: TableFindings) -> Iterator[Caution]:
    """What missing cells do to log densities, and columns with many more of them than before."""
    more = [c for c in found.columns if c.missing > c.missing_when_fitted + _MORE_MISSING]
    if more:
        named = [
            f"{quoted(c.column)} ({percent(c.missing)}, and {percent(c.missing_when_fitted)} when"
            " fitted)"
            for c in more
        ]
        columns = plural(len(more), "column")
        yield caution("missing-more", columns=columns, named=_some(named, _MOST_NAMED))
    if with_missing(found.columns):
        yield caution("missing")


def _rounded(asked: Asked) -> Iterator[Caution]:
    """Columns of real numbers that are rounded, so that densities depend on the rounding."""
    names = [
        column.name
        for column, step in zip(asked.columns, asked.steps, strict=True)
        if column.kind == "real" and step > 0
    ]
    if names:
        n_columns = plural(len(names), "column")
        yield caution("rounded", "-table", n_columns=n_columns, columns=listed(names))


def _has_density(asked: Asked) -> NDArray[np.bool_]:
    """Rows that two draws would hardly share: those with a value of a density."""
    found = np.zeros(len(asked.X), dtype=bool)
    for d, column in enumerate(asked.columns):
        x = asked.X[:, d]
        if not is_discrete(column) and asked.steps[d] == 0:
            found |= ~np.isnan(x) & ~np.isin(x, column.atoms)
    return found


def duplicate_rows(asked: Asked, among: NDArray[np.bool_]) -> Iterator[Caution]:
    """Tell of rows that occur more than once, among some of the rows."""
    # 0 is added so that -0 is 0, which has other bits.
    values: Array = asked.values + 0.0
    keys: list[object] = [
        row.tobytes() if ok else i for i, (row, ok) in enumerate(zip(values, among, strict=True))
    ]
    counts = Counter(keys)
    share = float(np.mean([counts[key] > 1 for key in keys]))
    if share < 0.01:
        return
    learned = ""
    if asked.rows.role == "fitted":
        known = {keys[i] for i in asked.rows.folds[0][0]}
        shared = float(np.mean([keys[i] in known for i in asked.rows.judged]))
        learned = (
            f" {percent(shared)} of the held-out rows are exact duplicates of rows the model"
            " learned from, so the held-out score is not quite of unseen rows."
        )
    yield caution("repeated", share=percent(share), learned=learned)


def _some(named: list[str], most: int) -> str:
    rest = f" and {len(named) - most} more" if len(named) > most else ""
    return ", ".join(named[:most]) + rest
