"""A file's columns into a table: which columns and rows are kept, and what is wrong with cells."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float

from rnade.exceptions import TableError
from rnade.tables.table import NOT_CHOSEN, Table

# Far beyond any measurement, and far enough below float32's 3.4e38 for a square to be scaled.
LARGEST = 1e30

# What people and pandas call a column that only tells rows apart.
_is_name_of_ids = re.compile(r"(?i:(.*[ _.-])?id|index|unnamed: 0)|.*[a-z](Id|ID)").fullmatch
# In fewer rows, whole numbers may well happen to be all different.
_FEWEST_IDS = 10


@dataclass(frozen=True)
class Columns:
    """The columns of a file that are wanted, and what is needed to speak about them."""

    source: str
    names: Sequence[str]  # of all the columns in the file, in its order
    cells: Mapping[str, pa.ChunkedArray | str]  # numbers with nulls, or why they are none
    has_header: bool
    place: Callable[[int], str]  # of a record counted from 0: "line 12" or "row 11"
    index: str | None = None  # the first column, if the file names the others and not this one
    notes: Sequence[str] = ()


@dataclass
class _Draft:
    """A table in the making."""

    source: str
    asked_for: bool
    names: list[str]
    values: Float[np.ndarray, "N D"]
    left_out: dict[str, str] = field(default_factory=dict)

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Leave columns out, each for a reason in plain words; one asked for is an error."""
        if reasons and self.asked_for:
            name, reason = next(iter(reasons.items()))
            raise TableError(f"{self.source}: column {name!r} cannot be used: {reason}.")
        self.left_out |= reasons
        kept = [d for d, name in enumerate(self.names) if name not in reasons]
        if not kept:
            why = [f"{name!r}: {why}" for name, why in self.left_out.items() if why != NOT_CHOSEN]
            shown = "; ".join(why[:3]) + ("; ..." if len(why) > 3 else "")
            raise TableError(f"{self.source} has no numeric column that can be used ({shown}).")
        if reasons:
            self.names, self.values = [self.names[d] for d in kept], self.values[:, kept]


def make_table(
    found: Columns,
    missing: str,
    *,
    asked_for: bool,
    weight: str | None,
    leave_out_constant: bool,
    leave_out_ids: bool,
) -> Table:
    """Check the cells, leave out rows and columns as asked, and make the table.

    Parameters
    ----------
    found : Columns
    missing : "error" or "drop"
        What to do with rows that have a missing cell.
    asked_for : bool
        Whether the columns were chosen by name: then none of them is left out.
    weight : str or None
        The column that holds the weights of the rows.
    leave_out_constant, leave_out_ids : bool
        Whether to leave out columns that have one value, or that only tell rows apart.
    """
    draft = _draft(found, weight, asked_for=asked_for)
    weights = None if weight is None else _weights(found, weight)
    notes = list(found.notes)
    # A column asked for by name is kept: if it is empty, its cells are missing.
    if not asked_for:
        empty = np.flatnonzero(np.isnan(draft.values).all(axis=0))
        draft.leave_out({draft.names[d]: "empty" for d in empty})
        if leave_out_ids:
            notes += _leave_out_ids(draft, found.index)
    n_rows = len(draft.values)
    rows = np.arange(1, n_rows + 1)
    kept = _complete_rows(draft, missing, found.place)
    if not kept.all():
        draft.values, rows = draft.values[kept], rows[kept]
        weights = None if weights is None else weights[kept]
    values = draft.values
    far = np.argwhere(np.abs(values) > LARGEST)
    if far.size:
        row, d = far[0]
        raise TableError(
            f"{found.source}: {found.place(int(rows[row]) - 1)}, column {draft.names[d]!r}: "
            f"{values[row, d]:g} is out of range; expected at most {LARGEST:g} in size."
        )
    if leave_out_constant and len(values) > 1:
        same = np.flatnonzero((values == values[0]).all(axis=0))
        draft.leave_out(
            {draft.names[d]: f"constant ({values[0, d]:.6g} in every row)" for d in same}
        )
    return Table(
        source=found.source,
        names=tuple(draft.names),
        values=np.ascontiguousarray(draft.values),
        has_header=found.has_header,
        left_out={n: draft.left_out[n] for n in found.names if n in draft.left_out},
        notes=notes,
        dropped_rows=n_rows - len(rows),
        weights=weights,
        rows=rows,
    )


def _draft(found: Columns, weight: str | None, *, asked_for: bool) -> _Draft:
    """Start with the numeric columns; of the others, say why they are left out."""
    columns = {name: cells for name, cells in found.cells.items() if name != weight}
    numbers = {name: cells for name, cells in columns.items() if not isinstance(cells, str)}
    n_rows = len(next(iter(numbers.values()), []))
    # Column by column, so that no second copy of the whole table is made.
    values = np.empty((n_rows, len(numbers)))
    for d, cells in enumerate(numbers.values()):
        values[:, d] = _as_float64(cells)
    left_out = {name: NOT_CHOSEN for name in found.names if name not in columns}
    if weight is not None:
        left_out[weight] = "row weights"
    draft = _Draft(found.source, asked_for, list(numbers), values, left_out)
    draft.leave_out({name: why for name, why in columns.items() if name not in numbers})
    return draft


def _as_float64(column: pa.ChunkedArray) -> Float[np.ndarray, " N"]:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    floats = column.cast(pa.float64(), safe=False)
    result: Float[np.ndarray, " N"] = floats.to_numpy()  # null becomes NaN
    return result


def _weights(found: Columns, name: str) -> Float[np.ndarray, " N"]:
    cells = found.cells[name]
    if isinstance(cells, str):
        raise TableError(f"{found.source}: column {name!r} cannot hold row weights: {cells}.")
    weights = _as_float64(cells)
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if wrong.size:
        value = weights[wrong[0]]
        what = "no value" if np.isnan(value) else f"{value:g}"
        raise TableError(
            f"{found.source}: {found.place(int(wrong[0]))}, column {name!r}: expected a row"
            f" weight of 0 or more; got {what}."
        )
    if not weights.any():
        raise TableError(f"{found.source}: all row weights in column {name!r} are 0.")
    return weights


def _leave_out_ids(draft: _Draft, index: str | None) -> list[str]:
    """Leave out what only tells rows apart, and say what else may be such a column."""
    distinct = {
        name: draft.values[:, d]
        for d, name in enumerate(draft.names)
        if _are_distinct(draft.values[:, d])
    }
    enough = len(draft.values) >= _FEWEST_IDS
    ids = {
        name: f"row numbers or ids ({len(values)} different whole numbers)"
        for name, values in distinct.items()
        if name == index or _is_name_of_ids(name) or (enough and (np.diff(values) == 1).all())
    }
    draft.leave_out(ids)
    notes = [f"column {name!r} is kept if --columns names it" for name in ids]
    return notes + [
        f"column {name!r} looks like an id: its values are whole numbers, all different;"
        " if it is one, leave it out with --exclude"
        for name in distinct
        if enough and name not in ids
    ]


def _are_distinct(values: Float[np.ndarray, " N"]) -> bool:
    """Tell whether a column holds whole numbers, no two the same."""
    # Most columns show a fraction or a value twice early on, without a look at all of them.
    return len(values) > 1 and all(
        (part == np.floor(part)).all() and len(np.unique(part)) == len(part)
        for part in (values[:1000], values)
    )


def _complete_rows(
    draft: _Draft, missing: str, place: Callable[[int], str]
) -> Bool[np.ndarray, " N"]:
    """Tell which rows have no missing and no infinite cell; raise if that is not allowed."""
    names, values = draft.names, draft.values
    finite = np.isfinite(values)
    kept: Bool[np.ndarray, " N"] = finite.all(axis=1)
    if kept.all():
        return kept
    if missing == "drop":
        if kept.any():
            return kept
        worst = names[int(np.argmin(finite.sum(axis=0)))]
        raise TableError(
            f"{draft.source}: no row is left, each has a missing cell (most in column {worst!r})."
        )
    row, d = np.argwhere(~finite)[0]
    n_infinite = int(np.isinf(values).sum())
    n_missing = int((~finite).sum()) - n_infinite
    counts = [f"{n} {what}" for n, what in ((n_missing, "missing"), (n_infinite, "infinite")) if n]
    plural = "cell" if n_missing + n_infinite == 1 else "cells"
    raise TableError(
        f"{draft.source} has {' and '.join(counts)} {plural}, the first in {place(int(row))}, "
        f"column {names[d]!r}; fix them, or leave such rows out with --missing drop."
    )
