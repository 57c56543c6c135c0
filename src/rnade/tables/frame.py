"""A table with columns of any type, as it is read from a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float, Int

from rnade.exceptions import TableError
from rnade.tables.choice import choose
from rnade.tables.delimited import DelimitedText
from rnade.tables.opening import TableFile, open_file
from rnade.tables.reading import check_decimal, row_weights
from rnade.tables.table import NOT_CHOSEN


@dataclass(frozen=True, eq=False)
class Frame:
    """Columns of any type from a file, missing cells null, with what was left out of it.

    Attributes
    ----------
    source : str
        The file's name, for messages.
    cells : pyarrow Table
        The columns kept, under their names; ``x1``, ``x2``, ... where the file gives none.
    left_out : mapping of str to str
        Columns not kept, each with the reason in plain words.
    notes : sequence of str
        What the user may want to check about the columns kept.
    weights : ndarray of shape (N,) or None
        Weights of the rows, if a column holds them.
    rows : ndarray of shape (N,)
        Which row of the file each row was, counted from 1 without the header.
    dropped_rows : int
        Rows left out for a missing cell.
    """

    source: str
    cells: pa.Table
    left_out: Mapping[str, str]
    notes: Sequence[str]
    weights: Float[np.ndarray, " N"] | None
    rows: Int[np.ndarray, " N"]
    dropped_rows: int
    _file: TableFile

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns kept."""
        return tuple(self.cells.column_names)

    @property
    def n_rows(self) -> int:
        """N."""
        return int(self.cells.num_rows)

    def to_arrow(self) -> pa.Table:
        """Give the columns as a data frame that the estimators take."""
        return self.cells

    def place(self, row: int) -> str:
        """Say where in the file a row, counted from 0, is: its line, or its row."""
        return self._file.place(int(self.rows[row]) - 1)

    def whole(self) -> pa.Table:
        """Give all rows and columns of the file: those of a CSV file as the text that it has."""
        return self._file.written()

    @property
    def titles(self) -> list[str]:
        """Names of all columns as the file has them, empty where a header leaves one out."""
        return self._file.titles

    @property
    def is_text(self) -> bool:
        """Whether it is a CSV file, whose columns have no types."""
        return isinstance(self._file, DelimitedText)

    @property
    def decimal(self) -> str:
        """The decimal point of a CSV file."""
        return self._file.decimal

    @property
    def separator(self) -> str:
        """What stands between the cells of a CSV file; a tab for runs of blanks."""
        return self._file.separator

    def keep(self, kept: Bool[np.ndarray, " N"]) -> Self:
        """Leave out rows that have a missing cell."""
        return replace(
            self,
            cells=self.cells.filter(pa.array(kept)),
            rows=self.rows[kept],
            weights=None if self.weights is None else self.weights[kept],
            dropped_rows=self.dropped_rows + int((~kept).sum()),
        )


def read_frame(
    source: str | Path,
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    header: bool | None = None,
    *,
    decimal: str | None = None,
    na: Sequence[str] = (),
    exclude: Sequence[str] = (),
    weight: str | None = None,
    kinds: Mapping[str, str] | None = None,
    index: str = "keep",
) -> tuple[Frame, dict[str, str]]:
    """Read the columns of a CSV, Parquet, Feather or Arrow file in their own types.

    The types of a CSV file are found by its cells: whole numbers, decimals, true and false, dates,
    dates with a time, and text. In columns of numbers and dates the empty cell, ``NA``, ``?``,
    ``-`` and the like are missing cells; in columns of text those that can be nothing else, so
    that ``?``, ``-`` and ``None`` are levels unless `na` names them. A CSV column at least half of
    whose cells are numbers may hold nothing else.

    Parameters
    ----------
    source, columns, separator, header, decimal, na, exclude, weight
        As in `read_table`.
    kinds : mapping of str to str
        Kinds of single columns, as `rnade.columns.make_kind` takes them: numbers and dates must be
        numbers and dates, cells of a category are taken as they are written.
    index : {"keep", "leave out"}
        What to do with a first column that alone has no name, if it tells all rows apart and
        `columns` does not name it: as spreadsheets and pandas write row numbers.

    Returns
    -------
    Frame
    kinds : dict of str to str
        By the names of columns, where `kinds` had positions.

    Raises
    ------
    TableError
        In one line: which file, which line and column, and what to do.
    """
    check_decimal(decimal)
    file = open_file(source, separator, header)
    weights = choose(file, [weight], ()) if weight else []
    named = choose(file, list(kinds), ()) if kinds else []
    given = dict(zip(named, (kinds or {}).values(), strict=True))
    chosen = choose(file, columns, [*exclude, *weights])
    for name in given:
        if name not in chosen:
            raise TableError(f"--kind names column {name!r}, which is not one of those to use.")
    left_out = {name: NOT_CHOSEN for name in file.names if name not in chosen}
    left_out |= dict.fromkeys(weights, "row weights")
    left_out |= {name: "left out as asked for" for name in named if given[name] == "leave-out"}
    wanted = [name for name in chosen if name not in left_out]
    sorts = {name: _SORTS[kind] for name, kind in given.items() if kind in _SORTS}
    cells = dict(file.typed(wanted, decimal, na, sorts))
    notes = list(file.notes)
    unnamed = file.index if columns is None and index == "leave out" else None
    if unnamed in cells and unnamed not in given and (why := _tells_apart(cells[unnamed])):
        left_out[unnamed] = why
        notes.append(f"column {unnamed!r} is kept if --columns names it")
        del cells[unnamed]
    reasons = {name: why for name, why in cells.items() if isinstance(why, str)}
    if reasons and columns is not None:
        name, why = next(iter(reasons.items()))
        raise TableError(f"{file.source}: column {name!r} cannot be used: {why}.")
    left_out |= reasons
    kept = {name: column for name, column in cells.items() if not isinstance(column, str)}
    if not kept:
        raise TableError(f"{file.source}: no column is left to use.")
    table = pa.table(kept)
    frame = Frame(
        source=file.source,
        cells=table,
        left_out={name: left_out[name] for name in file.names if name in left_out},
        notes=notes,
        weights=next(
            (row_weights(file.columns([w], decimal, na)[w], w, file) for w in weights), None
        ),
        rows=np.arange(1, table.num_rows + 1),
        dropped_rows=0,
        _file=file,
    )
    return frame, {name: kind for name, kind in given.items() if kind != "leave-out"}


def _tells_apart(column: pa.ChunkedArray | str) -> str:
    """Say that a column holds another value in each row, or nothing if it does not."""
    if isinstance(column, str) or len(column) < 2 or len(pc.unique(column)) < len(column):
        return ""
    return f"row numbers or names ({len(column)} different values)"


# What cells of a kind have to be, in a file without types.
_SORTS = {
    "real": "number",
    "integer": "number",
    "category": "text",
    "boolean": "boolean",
    "date": "date",
}
