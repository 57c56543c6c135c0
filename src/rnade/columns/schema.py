"""The schema of a table: what its columns hold, and the way to numbers and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from jaxtyping import Bool, Float

from rnade.checks import unknown_name
from rnade.columns.arguments import Columns, check_kinds, check_marks, key_of, nearest
from rnade.columns.cells import Mark
from rnade.columns.column import Column
from rnade.columns.encoding import encode_cells
from rnade.columns.frames import Filled, build
from rnade.columns.inference import CODE_SUSPECTED, TEXT_SUSPECTED, Found, infer_column
from rnade.columns.sources import Source, read_source
from rnade.typing import Array

__all__ = ["Column", "Schema"]


@dataclass(frozen=True)
class Schema:
    """What the columns of a table hold: made once, then used to read and to give back tables.

    Attributes
    ----------
    columns : tuple of Column
        Those that a model sees, in the order of the table; indicators of missing cells last.
    left_out : dict of str to str
        Names of the columns that a model does not see, each with the reason.
    frame : {"pandas", "polars", "pyarrow", "array"}
        What the table was.
    notes : tuple of str
        What the user should know about the table.
    inputs : tuple of str or int
        Names of all columns of the table, as the table has them.
    constants : tuple of Column
        Columns that hold one value, their only level, beside missing cells; a model sees only
        their indicators.
    na : tuple of str or float
        Marks that mean a missing cell.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"city": ["Oslo", "Rome", None, "Rome"], "rain": [2.5, 0.0, 1.0, 0.5]})
    >>> schema = Schema.infer(table)
    >>> values, seen = schema.encode(table)
    >>> values[:, 0], seen[:, 0]
    (array([0., 1., 0., 1.]), array([ True,  True, False,  True]))
    >>> schema.decode(values, seen).equals(table)
    True
    """

    columns: tuple[Column, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    frame: str = "array"
    notes: tuple[str, ...] = ()
    inputs: tuple[str | int, ...] = ()
    constants: tuple[Column, ...] = ()
    na: tuple[Mark, ...] = ()

    @classmethod
    def infer(
        cls,
        X: Any,
        columns: Columns = None,
        missing: str = "ignore",
        na: Sequence[Mark] | Mark = (),
    ) -> Self:
        """Find out what the columns of a table hold, by their types.

        Parameters
        ----------
        X : frame of pandas, polars or pyarrow, array, masked array or list of lists
        columns : None, "auto", "real" or mapping
            None and "auto" go by the types; "real" takes every column as real numbers; a mapping
            gives the kinds of single columns by name (of an array also by position), as
            `make_kind` takes them.
        missing : {"ignore", "informative"}
            With "informative", a column that tells which cells are missing is added for each
            column that has missing cells.
        na : sequence of str or float
            Marks that mean a missing cell, beside NaN, None and null.

        Raises
        ------
        ValueError
            If a column cannot be read, or none is left: which one, and what to do.
        """
        if missing not in ("ignore", "informative"):
            raise unknown_name(missing, ["ignore", "informative"], "value of missing")
        source, marks = read_source(X), check_marks(na)
        if not source.n_rows or not source.names:
            raise ValueError(
                f"Expected X to have rows and columns; got shape"
                f" ({source.n_rows}, {len(source.names)})."
            )
        kinds = check_kinds(columns, source)
        informative = missing == "informative"
        kept, constants, left_out = [], [], {}
        notes: list[str] = []
        for d, label in enumerate(source.names):
            found = infer_column(
                source.cells(d, marks), str(label), key_of(source, d), kinds.get(d), marks
            )
            notes += found.notes
            if not found.reason and found.column is not None:
                kept.append(found.column)
            elif informative and found.constant and _has_missing(found):
                constants.append(found.column)
            else:
                left_out[str(label)] = found.reason
        if not kept and not constants:
            why = [f"{name!r}: {reason}" for name, reason in left_out.items()]
            shown = "; ".join(why[:10]) + (f"; and {len(why) - 10} more" if why[10:] else "")
            raise ValueError(
                f"No column of X is left that a model could learn from ({shown}). Add other"
                " columns, or give kinds in columns={...}."
            )
        schema = cls(
            columns=tuple(kept),
            left_out=left_out,
            frame=source.frame,
            notes=tuple(notes),
            inputs=source.names,
            constants=tuple(c for c in constants if c is not None),
            na=marks,
        )
        return schema._with_indicators() if informative else schema

    def _with_indicators(self) -> Self:
        """Add a column for each that has missing cells, in the order of the table."""
        gaps = {c.name for c in (*self.columns, *self.constants) if c.missing}
        added: list[Column] = []
        taken = set(map(str, self.inputs))
        for label in map(str, self.inputs):
            if label in gaps:
                name = f"{label} is missing"
                while name in taken:
                    name += "'"
                added.append(
                    Column(name, "category", levels=(False, True), dtype="bool", indicates=label)
                )
        return replace(self, columns=(*self.columns, *added))

    @property
    def suspicions(self) -> tuple[str, ...]:
        """Those of the notes that may mean wrong data: codes for missing cells."""
        return tuple(note for note in self.notes if CODE_SUSPECTED in note)

    @property
    def misread(self) -> tuple[str, ...]:
        """Columns of text that look like numbers or dates, in words, whether kept or left out."""
        return (
            *(note for note in self.notes if TEXT_SUSPECTED in note),
            *(
                f"Column {name!r} is left out: {reason}."
                for name, reason in self.left_out.items()
                if TEXT_SUSPECTED in reason
            ),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that a model sees."""
        return tuple(column.name for column in self.columns)

    @property
    def is_plain(self) -> bool:
        """Whether all columns are real, without single values, bounds and missing cells."""
        return all(
            c.kind == "real" and not c.atoms and c.low is None and c.high is None and not c.missing
            for c in self.columns
        )

    def describe(self) -> list[tuple[str, str, str]]:
        """Give name, kind and details of each column in words, then of those left out."""
        return [
            *(column.describe() for column in self.columns),
            *(
                (c.name, "constant", f"{', '.join(map(str, c.levels or ()))} where not missing")
                for c in self.constants
            ),
            *((name, "left out", reason) for name, reason in self.left_out.items()),
        ]

    def encode(
        self, X: Any, *, partial: bool = False
    ) -> tuple[Float[np.ndarray, "N D"], Bool[np.ndarray, "N D"]]:
        """Give a table as numbers.

        Parameters
        ----------
        X : frame, array or list of lists
            The columns of a frame are found by name, and others are ignored; those of an array
            by position.
        partial : bool
            Whether some columns of a frame may be absent: as if all their cells were missing, and
            whether they are missing were not known.

        Returns
        -------
        values : array of shape (N, D)
            Categories as codes from 0 in the order of their levels, a level that was not there
            before as the number of levels; dates as days or seconds since 1970-01-01. 0 where a
            cell is missing.
        seen : bool array of shape (N, D)
            Which cells are not missing.

        Raises
        ------
        ValueError
            If a column is missing, or holds what it could not hold before.
        """
        source = read_source(X)
        places = self._places(source, partial)
        values = np.zeros((source.n_rows, len(self.columns)))
        seen = np.ones(values.shape, dtype=bool)
        constants = [c.name for c in self.constants if c.name in places]
        gone = {name: ~source.cells(places[name], self.na).seen for name in constants}
        for d, column in enumerate(self.columns):
            if (column.indicates or column.name) not in places:
                seen[:, d] = False
                continue
            if column.indicates is not None:
                values[:, d] = gone[column.indicates]
                continue
            place = places[column.name]
            cells = source.cells(place, self.na)
            values[:, d], seen[:, d] = encode_cells(cells, column, key_of(source, place))
            gone[column.name] = ~seen[:, d]
        return values, seen

    def _places(self, source: Source, partial: bool = False) -> dict[str, int]:
        """Where the columns of the schema are in a table."""
        if source.frame == "array" or self.frame == "array":
            if len(source.names) != len(self.inputs):
                raise ValueError(
                    f"Expected X of shape (N, {len(self.inputs)}), as it was fitted; got"
                    f" ({source.n_rows}, {len(source.names)})."
                )
            return {str(name): d for d, name in enumerate(self.inputs)}
        places = {str(name): d for d, name in enumerate(source.names)}
        needed = [c.name for c in (*self.columns, *self.constants) if c.indicates is None]
        partial = partial and any(name in places for name in needed)
        for name in needed:
            if name not in places and not partial:
                raise ValueError(
                    f"X has no column {name!r}, which it was fitted with.{nearest(name, places)}"
                    " Add it; its cells may be missing."
                )
        return places

    def decode(self, values: Array, seen: Any = None) -> Any:
        """Give numbers back as a table of the kind that the schema was made from.

        Parameters
        ----------
        values : array of shape (N, D)
            As `encode` gives them. Whole numbers, dates and codes are rounded, and numbers that
            the type of a column cannot hold become the nearest that it can.
        seen : bool array of shape (N, D), optional
            Which cells to give; others are missing, as are NaN and codes of no level.

        Returns
        -------
        frame or array
            With the names, the order and the types of the columns that were not left out.
        """
        values = np.asarray(values, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(self.columns):
            raise ValueError(
                f"Expected values of shape (N, {len(self.columns)}); got {values.shape}."
            )
        shown = np.ones(values.shape, dtype=bool) if seen is None else np.array(seen, dtype=bool)
        if shown.shape != values.shape:
            raise ValueError(f"Expected seen of shape {values.shape}; got {shown.shape}.")
        shown &= ~np.isnan(values)
        blank = {
            column.indicates: shown[:, d] & (values[:, d] > 0.5)
            for d, column in enumerate(self.columns)
            if column.indicates is not None
        }
        filled = {
            c.name: (c, values[:, d], shown[:, d])
            for d, c in enumerate(self.columns)
            if c.indicates is None
        }
        for constant in self.constants:
            assert constant.levels is not None
            everywhere = np.ones(len(values), dtype=bool)
            number = 0.0 if constant.kind == "category" else float(constant.levels[0])
            filled[constant.name] = constant, np.full(len(values), number), everywhere
        given = [
            Filled(name, column, np.where(ok, x, 0.0), ok & ~blank.get(column.name, ~ok))
            for name in self.inputs
            if str(name) in filled
            for column, x, ok in [filled[str(name)]]
        ]
        return build(self.frame, given)

    def to_json(self) -> dict[str, Any]:
        """Give the schema as plain JSON values."""
        return {
            "columns": [column.to_json() for column in self.columns],
            "left_out": dict(self.left_out),
            "frame": self.frame,
            "notes": list(self.notes),
            "inputs": list(self.inputs),
            "constants": [column.to_json() for column in self.constants],
            "na": list(self.na),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Rebuild the schema that `to_json` gave."""
        return cls(
            columns=tuple(map(Column.from_json, record["columns"])),
            left_out=dict(record["left_out"]),
            frame=record["frame"],
            notes=tuple(record["notes"]),
            inputs=tuple(record["inputs"]),
            constants=tuple(map(Column.from_json, record["constants"])),
            na=tuple(record["na"]),
        )


def _has_missing(found: Found) -> bool:
    return found.column is not None and found.column.missing > 0
