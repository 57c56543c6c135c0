"""What single columns tell of others: tables of pairs, and values that repeat or add up.

A network has to learn that a garage is mostly as old as its house, or that one column holds the
sum of two others, from random examples; in small tables it learns little of that. Counting finds
it at once. A link gives a conditional distribution of one column: from the cell of another column
(a table of counts), or as the very value that another column holds or several add up to. The heads
of `rnade.nn.any_order` mix links with what the network says, in shares that the network chooses.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnade.columns.partition import CODE, WITHIN, ColumnCells, Measure
from rnade.typing import Array

# Links of one column at most: tables of pairs, and values that are said exactly.
MOST_TABLES, MOST_EXACT = 3, 2
# Nats per row that a link must give beyond the column alone, a longer sum beyond a shorter one.
LEAST_GAIN = 0.05
# Rows that are looked at to find links: fewer of wide tables, which have many pairs of columns.
FEWEST_ROWS, MOST_ROWS, ROWS_TIMES_PAIRS = 2000, 20_000, 4e7
# Rows that are looked at to find sums of columns.
ROWS_OF_SUMS = 400
# Columns beyond which pairs are too many to be counted, and whole numbers too many to be added up.
MOST_COLUMNS, MOST_SUMMED = 200, 60
# Columns that a sum may have.
MOST_SUMMANDS = 3
# Rows that the column alone counts for in a table of pairs, of which the best is taken.
PRIORS = (1.0, 4.0, 16.0)
# What a link says of a value for which it does not hold, as a source is missing.
UNAVAILABLE = math.inf


@dataclass(frozen=True, eq=False)
class Link:
    """What other columns tell of one column.

    Attributes
    ----------
    target : int
        The column that is told of.
    sources : int array of shape (S,)
        Those that tell; one for a table.
    signs : array of shape (S,)
        The value is the sum of the sources with these signs.
    counts : array of shape (cells of the source, cells of the target)
        Weighted rows of the table by both cells; empty for an exact value.
    prior : float
        Rows that the column alone counts for, beside the counts.
    share : float
        Of the rows for which an exact value is right.
    """

    target: int
    sources: Array
    signs: Array
    counts: Array
    prior: float
    share: float

    @property
    def is_table(self) -> bool:
        """Whether it goes by cells."""
        return self.counts.size > 0

    def cells(self, column: ColumnCells, code: Array) -> Array:
        """Shares of the target's cells, (B, C), by the cell of the source (-1: not known)."""
        alone = np.zeros((1, self.counts.shape[1]))
        counts = np.concatenate([self.counts, alone])[code]  # -1 is the last
        total = counts.sum(1, keepdims=True) + self.prior
        return np.asarray((counts + self.prior * column.shares) / total)

    def values(self, column: ColumnCells, X: Array) -> Array:
        """Exact values that it gives for rows, (B,); NaN outside the range of the target."""
        x = X[:, self.sources.astype(np.int64)] @ self.signs
        first, last = column.reach
        with np.errstate(invalid="ignore"):
            return np.where((x > first) & (x < last) & (x == np.rint(x)), x, np.nan)

    def terms(self, columns: Sequence[ColumnCells], X: Array, cells: Array, own: Any) -> Array:
        """Log densities that it gives the target's values, (B,).

        -inf where an exact value is another, `UNAVAILABLE` where it says nothing. `own` are the
        weights of the rows in the counts, where they are among them: each is then left out; else
        0.
        """
        column = columns[self.target]
        code = cells[:, self.target, CODE].astype(np.int64)
        at = self.sources.astype(np.int64)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.is_table:
                source = cells[:, at[0], CODE].astype(np.int64)
                known = source >= 0
                there = self.counts[np.where(known, source, 0)]
                found = np.take_along_axis(there, np.maximum(code, 0)[:, None], 1)[:, 0]
                total = np.where(known, there.sum(1) - own, 0.0)
                found = np.where(known, found - own, 0.0).clip(0)
                share = (found + self.prior * column.shares[code]) / (total + self.prior)
                term = np.log(share) + cells[:, self.target, WITHIN]
            else:
                x = self.values(column, X)
                term = np.where(x == X[:, self.target], 0.0, -np.inf)
                term = np.where(np.isnan(x), UNAVAILABLE, term)
        seen = ~np.isnan(X[:, [self.target, *at]]).any(1) & (code >= 0)
        return np.where(seen, term + column.log_inside, UNAVAILABLE)

    def arrays(self) -> dict[str, Array]:
        """All that it holds, as arrays."""
        return {name: np.asarray(value, dtype=np.float64) for name, value in vars(self).items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> "Link":
        """What `arrays` gave."""
        scalars = {
            "target": int(arrays["target"]),
            "prior": float(arrays["prior"]),
            "share": float(arrays["share"]),
        }
        return cls(**{**arrays, **scalars})


def find_links(
    columns: Sequence[ColumnCells], X: Array, cells: Array, weights: Array | None = None
) -> list[Link]:
    """Find what single columns of a table (N, D) tell of others, by their targets.

    Values are NaN where missing, and cells are from `ColumnCells.encode`. The mean of the weights
    of the rows counts as one row.
    """
    if len(columns) > MOST_COLUMNS:
        return []
    w = np.ones(len(X)) if weights is None else weights / weights.mean()
    affordable = int(ROWS_TIMES_PAIRS / len(columns) ** 2)
    some = slice(0, min(max(FEWEST_ROWS, affordable), MOST_ROWS))
    tables = _find_tables(columns, cells[..., CODE].astype(np.int64), w, some)
    exact = _find_exact(columns, X[some], cells[some])
    return [link for d in range(len(columns)) for link in [*tables[d], *exact[d]]]


def _find_tables(
    columns: Sequence[ColumnCells], codes: Any, w: Array, some: slice
) -> list[list[Link]]:
    """The best tables of pairs for each column."""
    D = len(columns)
    looked_at, weights = codes[some].T.copy(), w[some]
    found: list[list[tuple[float, int, float]]] = [[] for _ in range(D)]
    # Where a column is smooth, cells say less of it than the components of the heads.
    told = [c.measure != Measure.REAL or len(c.atoms) > 0 for c in columns]
    for i in range(D):
        for j in range(i):
            if not (told[i] or told[j]):
                continue
            counts = _counts(looked_at[i], looked_at[j], weights, columns[i], columns[j])
            for target, source, n in ((j, i, counts), (i, j, counts.T)):
                gain, prior = _gain(n, columns[target].shares) if told[target] else (0.0, 0.0)
                if gain > LEAST_GAIN:
                    found[target].append((gain, source, prior))
    none = np.ones(1)
    return [
        [
            Link(
                d,
                np.array([float(j)]),
                none,
                _counts(codes[:, j], codes[:, d], w, columns[j], columns[d]),
                prior,
                0.0,
            )
            for _, j, prior in sorted(found[d], reverse=True)[:MOST_TABLES]
        ]
        for d in range(D)
    ]


def _counts(i: Any, j: Any, w: Array, first: ColumnCells, second: ColumnCells) -> Array:
    """Weighted rows by the cells of two columns."""
    both = (i >= 0) & (j >= 0)
    at = i[both] * second.n_cells + j[both]
    size = first.n_cells * second.n_cells
    counts = np.bincount(at, w[both], minlength=size).astype(np.float64)
    return counts.reshape(first.n_cells, second.n_cells)


def _gain(counts: Array, alone: Array) -> tuple[float, float]:
    """Nats per row by which a table predicts each row from the others, and its best prior."""
    total, rows = counts.sum(), counts.sum(1, keepdims=True)
    there = counts > 0
    best = (-math.inf, PRIORS[0])
    for prior in PRIORS if total > 0 else ():
        with np.errstate(divide="ignore", invalid="ignore"):
            less = np.maximum(counts - 1, 0) + prior * alone
            ratio = np.log(less / (np.maximum(rows - 1, 0) + prior) / alone)
        best = max(best, (float((counts[there] * ratio[there]).sum() / total), prior))
    return best


def _find_exact(columns: Sequence[ColumnCells], X: Array, cells: Array) -> list[list[Link]]:
    """Values that other columns hold or add up to, the best for each column of whole numbers."""
    found: list[list[Link]] = [[] for _ in columns]
    whole = [d for d, column in enumerate(columns) if column.measure == Measure.INTEGER]
    if len(whole) < 2:
        return found
    values = X[:, whole]
    for place, d in enumerate(whole):
        code = cells[:, d, CODE].astype(np.int64)
        surprise = -np.log(columns[d].shares[np.maximum(code, 0)]) - cells[:, d, WITHIN]
        surprise[code < 0] = 0.0

        def judged(sources: dict[int, float], d: int = d, s: Array = surprise) -> Any:
            x = sum(sign * X[:, whole[i]] for i, sign in sources.items())
            return (*_worth(x == X[:, d], s), sources)

        others = [i for i in range(len(whole)) if i != place]
        pairs = sorted((judged({i: 1.0}) for i in others), key=_first, reverse=True)
        best = pairs[:MOST_EXACT]
        sums = _candidate_sums(values, place) if len(whole) <= MOST_SUMMED else []
        longer = max(map(judged, sums), key=_first, default=best[0])
        for _ in range(MOST_SUMMANDS - 1):
            more = [
                judged({**longer[2], i: sign})
                for i in others
                for sign in (1.0, -1.0)
                if i not in longer[2]
            ]
            further = max(more, key=_first, default=longer)
            if len(longer[2]) == MOST_SUMMANDS or further[0] < longer[0] + LEAST_GAIN:
                break
            longer = further
        if len(longer[2]) > 1 and longer[0] > best[0][0] + LEAST_GAIN:
            best = [longer, *best][:MOST_EXACT]
        found[d] = [
            Link(
                d,
                np.array([float(whole[i]) for i in sources]),
                np.array(list(sources.values())),
                np.empty(0),
                0.0,
                share,
            )
            for gain, share, sources in best
            if gain > LEAST_GAIN
        ]
    return found


def _first(judged: Any) -> float:
    return float(judged[0])


def _worth(right: Any, surprise: Array) -> tuple[float, float]:
    """Nats per row that an exact value gives, less what it takes to say when; its share."""
    share = min(max(float(right.mean()), 1e-9), 1 - 1e-9)
    when = -share * math.log(share) - (1 - share) * math.log1p(-share)
    return float(surprise[right].sum()) / len(right) - when, share


def _candidate_sums(values: Array, place: int) -> list[dict[int, float]]:
    """Sums and differences of two columns that often give a third, by some of the rows."""
    seen = ~np.isnan(values[:, place])
    rows = values[seen][:ROWS_OF_SUMS]
    found = []
    for i in range(values.shape[1]):
        rest = rows[:, place] - rows[:, i]
        for sign in (1.0, -1.0) if i != place else ():
            hits = ((sign * rows == rest[:, None]) & (rows != 0)).mean(0)
            found += [
                (float(hits[j]), i, j, sign)
                for j in np.flatnonzero(hits > LEAST_GAIN)
                if j not in (i, place) and (sign < 0 or i < j)
            ]
    return [{i: 1.0, int(j): sign} for _, i, j, sign in sorted(found, reverse=True)[:10]]
