"""One pass over a data set, in bounded memory: what has to be known of it before training.

Exact are the numbers of rows and of missing cells, means and standard deviations, smallest and
largest values, the levels of categories, and a digest. All else that is measured of a table
(quantiles, atoms, resolution, pairs of columns) is measured of a uniform sample of its rows: a
quantile of n rows of it is off by at most 1.63 / sqrt(n) in rank, in 99 of 100 samples (Kolmogorov
and Smirnov). The sample has a witness of each extreme: the rows with the smallest and the largest
value of each column, with its first missing cell, and with each of its levels.

Surveys of parts of the data are merged: in which parts, and in which order, makes no difference to
the sample, which has the rows with the smallest of random keys that belong to their places.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rnade.columns.inference import MOST_LEVELS
from rnade.exceptions import TableError
from rnade.streams.files import DataFiles, RowGroup
from rnade.typing import Array

# Tables in which the sample is held, at most, before it becomes one.
MOST_PIECES = 64
# Keys of the sample's rows, and which of them are held out, as columns of the tables here.
_KEY, _HELD = "\x00key", "\x00held out"


# File, row group and row.
Place = tuple[int, int, int]


@dataclass
class Moments:
    """Number, mean and sum of squared deviations of a column's finite values, and their ends."""

    n: float = 0.0
    mean: float = 0.0
    squares: float = 0.0
    low: float = np.inf
    high: float = -np.inf

    def add(self, other: "Moments") -> None:
        """Count other values too (Chan, Golub and LeVeque, 1979)."""
        if not other.n:
            return
        n, away = self.n + other.n, other.mean - self.mean
        self.mean += away * other.n / n
        self.squares += other.squares + away**2 * self.n * other.n / n
        self.n, self.low, self.high = n, min(self.low, other.low), max(self.high, other.high)

    @classmethod
    def of(cls, x: Array) -> "Moments":
        """Of values without NaN; infinite ones are among the ends alone."""
        if not len(x):
            return cls()
        low, high = float(x.min()), float(x.max())
        if not np.isfinite(high - low):
            x = x[np.isfinite(x)]
            x = x if len(x) else np.zeros(1)
        mean = float(x.mean())
        # Not by a product, whose threads wait for each other on a machine that others use too.
        return cls(len(x), mean, float(np.square(x - mean).sum()), low, high)

    @property
    def scale(self) -> float:
        """Population standard deviation."""
        return float(np.sqrt(self.squares / self.n)) if self.n else 0.0


@dataclass
class Survey:
    """What one pass found.

    Attributes
    ----------
    moments : dict of str to Moments
        Of columns of numbers.
    missing : dict of str to int
        Missing cells of each column.
    levels : dict of str to set
        Of columns of text; None where there are more than a category may have.
    n_rows : int
    """

    n_kept: tuple[int, int]
    moments: dict[str, Moments] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    levels: dict[str, set[Any] | None] = field(default_factory=dict)
    n_rows: int = 0
    _digests: dict[tuple[int, int], bytes] = field(default_factory=dict)
    _samples: list[pa.Table] = field(default_factory=list)
    # By column and what of it, with their places: the first of those that are as good.
    _witnesses: dict[tuple[str, Any], tuple[Place, pa.Table]] = field(default_factory=dict)

    # ---------------------------------------------------------------- results

    @property
    def digest(self) -> str:
        """SHA-256 of all values, row group by row group."""
        found = hashlib.sha256()
        for place in sorted(self._digests):
            found.update(self._digests[place])
        return found.hexdigest()

    def sample(self) -> tuple[pa.Table, int]:
        """Rows of the sample and the witnesses, those held out last, and how many those are."""
        self._prune()
        seen, found = set(), [self._samples[0]]
        for _, table in self._witnesses.values():
            key = table[_KEY][0].as_py()
            if key not in seen and not pc.any(pc.equal(self._samples[0][_KEY], key)).as_py():
                found.append(table)
            seen.add(key)
        rows = pa.concat_tables(found)
        rows = rows.take(pc.sort_indices(rows, [(_HELD, "ascending"), (_KEY, "ascending")]))
        n_held_out = pc.sum(rows[_HELD]).as_py() or 0
        return rows.drop_columns([_KEY, _HELD]).combine_chunks(), int(n_held_out)

    # ---------------------------------------------------------------- counting

    def merge(self, other: "Survey") -> None:
        """Count the rows of another part of the same data set too."""
        self.n_rows += other.n_rows
        self._digests |= other._digests
        self._samples += other._samples
        for what, witness in other._witnesses.items():
            if what not in self._witnesses or self._is_better(what, witness[0], other):
                self._witnesses[what] = witness
        for name, own in other.moments.items():
            self.moments.setdefault(name, Moments()).add(own)
        for name, count in other.missing.items():
            self.missing[name] = self.missing.get(name, 0) + count
        for name, theirs in other.levels.items():
            before = self.levels.get(name, set())
            both = None if before is None or theirs is None else before | theirs
            self.levels[name] = None if both is None or len(both) > MOST_LEVELS else both
        self._forget_levels()
        self._prune()

    def _is_better(self, what: tuple[str, Any], place: Place, other: "Survey") -> bool:
        """Whether another survey's witness is the better one, or as good and comes earlier."""
        name, end = what
        if end in ("low", "high"):
            mine, theirs = (getattr(own.moments[name], end) for own in (self, other))
            if mine != theirs:
                return bool((theirs < mine) == (end == "low"))
        return place < self._witnesses[what][0]

    def add(self, batch: pa.Table, keys: Array, held_out: Any, digest: Any, place: Place) -> None:
        """Count the rows of a batch, the first of which is at a place of the data set.

        `keys` are random numbers that belong to the rows, and `digest` is of the row group.
        """
        keyed = batch.append_column(_KEY, pa.array(keys)).append_column(_HELD, pa.array(held_out))
        self.n_rows += batch.num_rows
        for name, column in zip(batch.column_names, batch.columns, strict=True):
            self._add_column(name, column.combine_chunks(), keyed, digest, place)
        self._samples.append(self._candidates(keyed, keys, held_out))
        # Many small tables between the large ones that come and go would take the heap apart.
        many = sum(map(len, self._samples)) > 2 * sum(self.n_kept)
        if many or len(self._samples) > MOST_PIECES:
            self._prune()

    def _add_column(
        self, name: str, column: pa.Array, keyed: pa.Table, digest: Any, place: Place
    ) -> None:
        def witness(what: Any, at: Any) -> None:
            # A copy: a slice would hold the whole batch.
            row = keyed.take([int(at)])
            self._witnesses[name, what] = (*place[:2], place[2] + int(at)), row

        gone = column.is_null(nan_is_null=True)
        n_missing = int(pc.sum(gone).as_py() or 0)
        self.missing[name] = self.missing.get(name, 0) + n_missing
        if n_missing:
            digest.update(np.packbits(gone.to_numpy(zero_copy_only=False)))
            if (name, "missing") not in self._witnesses:
                witness("missing", pc.index(gone, True).as_py())
        kind = column.type
        if (
            pa.types.is_dictionary(kind)
            or pa.types.is_string(kind)
            or pa.types.is_large_string(kind)
        ):
            self._add_levels(name, column, witness, digest)
            return
        numbers = _as_numbers(column)
        if numbers is None:  # what no model takes
            digest.update(pa.record_batch([column], ["x"]).serialize())
            return
        x = numbers.to_numpy(zero_copy_only=False)
        digest.update(np.ascontiguousarray(x).view(np.uint8).data)
        x = x.astype(np.float64, copy=False)
        if n_missing:
            present = np.flatnonzero(~np.isnan(x))
            x = x[present]
        mine = self.moments.setdefault(name, Moments())
        found = Moments.of(x)
        for end, at, better in (
            ("low", np.argmin, found.low < mine.low),
            ("high", np.argmax, found.high > mine.high),
        ):
            if better:
                witness(end, present[at(x)] if n_missing else at(x))
        mine.add(found)

    def _add_levels(self, name: str, column: pa.Array, witness: Any, digest: Any) -> None:
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        values = coded.dictionary.to_pylist()
        digest.update("\x00".join(map(str, values)).encode())
        digest.update(np.ascontiguousarray(codes).view(np.uint8).data)
        known = self.levels.setdefault(name, set())
        if known is None:
            return
        used, first = np.unique(codes, return_index=True)
        for code, at in zip(used.tolist(), first.tolist(), strict=True):
            if code >= 0 and values[code] not in known:
                known.add(values[code])
                witness(("level", values[code]), at)
        if len(known) > MOST_LEVELS:
            self.levels[name] = None
            self._forget_levels()

    def _forget_levels(self) -> None:
        """Let go of the witnesses of levels of columns that have too many."""
        self._witnesses = {
            (name, what): row
            for (name, what), row in self._witnesses.items()
            if not isinstance(what, tuple) or self.levels[name] is not None
        }

    def _candidates(self, keyed: pa.Table, keys: Array, held_out: Any) -> pa.Table:
        """Rows of a batch that may be in the sample: no more are kept than the sample has."""
        bounds = np.where(held_out, self._bounds[1], self._bounds[0])
        return keyed.filter(keys <= bounds).combine_chunks()

    _bounds: tuple[float, float] = (1.0, 1.0)

    def _prune(self) -> None:
        """Keep the rows with the smallest keys."""
        rows = pa.concat_tables(self._samples)
        keys, held = rows[_KEY].to_numpy(), rows[_HELD].to_numpy()
        kept, bounds = np.zeros(len(keys), dtype=bool), []
        for own, n in zip((~held, held), self.n_kept, strict=True):
            full = own.sum() >= n
            bounds.append(float(np.partition(keys[own], n - 1)[n - 1]) if full else 1.0)
            kept |= own & (keys <= bounds[-1])
        self._bounds = bounds[0], bounds[1]
        self._samples = [rows.filter(kept).combine_chunks()]


def _as_numbers(column: pa.Array) -> pa.Array | None:
    """A column of numbers, truth values, dates or times as numbers; None for others."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return column
    if pa.types.is_boolean(kind):
        return column.cast(pa.uint8())
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    if pa.types.is_interval(kind) or not pa.types.is_temporal(kind):
        return None
    return column.cast(pa.int64() if kind.bit_width == 64 else pa.int32())


def survey_files(
    files: DataFiles,
    n_kept: tuple[int, int],
    held_out: float,
    seed: int,
    *,
    groups: Sequence[RowGroup] | None = None,
    on_rows: Callable[[int], None] = lambda n: None,
) -> Survey:
    """Read a data set once, or some of its row groups.

    `n_kept` are rows of the sample, to train on and held out, and the seed is of the sample;
    `on_rows` is called with the number of rows of each batch that was read.
    """
    found = Survey(n_kept)
    for group in files.groups if groups is None else groups:
        kept = files.held_out(group, held_out)
        keys = np.random.default_rng([seed, group.file, group.index]).random(group.n_rows)
        digest, at = hashlib.sha256(f"{group.n_rows}".encode()), 0
        for batch in files.batches(group):
            here = slice(at, at + batch.num_rows)
            found.add(batch, keys[here], kept[here], digest, (group.file, group.index, at))
            at = here.stop
            on_rows(batch.num_rows)
        found._digests[group.file, group.index] = digest.digest()
    return found


def check_levels(found: Survey, names: Sequence[str]) -> None:
    """Refuse columns, which a model takes as categories, with more levels than these can have."""
    for name in names:
        if found.levels.get(name, set()) is None:
            raise TableError(
                f"Column {name!r} has more levels than the {MOST_LEVELS} that a category can have."
                f' Pass columns={{{name!r}: "leave-out"}}, or merge levels first.'
            )
