"""What each column of a table holds, by its type; and which columns say nothing."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rnade.columns.atoms import find_atoms, find_codes
from rnade.columns.cells import Cells, Mark, local_seconds
from rnade.columns.column import Column
from rnade.columns.encoding import encode_cells
from rnade.columns.frames import SECONDS_PER_DAY, as_kind
from rnade.columns.kinds import Category, Date, Integer, Kind, LeaveOut, Level, Real
from rnade.typing import Array

# A category with more levels than this is left to the user to merge.
MOST_LEVELS = 10_000
# In fewer rows, values may well happen to be all different.
FEWEST_IDS = 20
# Text that is longer than this is prose and no name of a category.
LONGEST_NAME = 100
# float64 holds all whole numbers up to this one.
LARGEST_EXACT = 2.0**53
# Times of day come in whole hours, minutes or seconds, or in none of them.
STEPS = (3600, 60, 1)
DAYS_OR = (SECONDS_PER_DAY, *STEPS)

# What people and pandas call a column that only tells rows apart.
is_name_of_ids = re.compile(r"(?i:(.*[ _.-])?id|index|unnamed: 0)|.*[a-z](Id|ID)").fullmatch

CODE_SUSPECTED = "a code for missing cells?"
TEXT_SUSPECTED = "text that looks like"
# Text with no more distinct values than this may well be meant as categories: 10 %, 20 %.
FEW_LEVELS = 10
# Numbers with decimals or thousands, or with a sign beside them. Digits alone are often codes.
_DIGITS = "(?:[1-9]\\d{0,2}(?:[.,' \u00a0\u202f]\\d{3})+|0|[1-9]\\d*)(?:[.,]\\d+)?"
_SIGN = "(?:[$€£¥₹]|EUR|USD|GBP|CHF)"
_NUMBERS = (
    rf"[+-]?{_SIGN} ?[+-]?{_DIGITS}|[+-]?{_DIGITS} ?(?:{_SIGN}|%)|[+-]?(?:0|[1-9]\d*)[.,]\d+"
    r"|[+-]?[1-9]\d{0,2}(?:[.,]\d{3})+(?:[.,]\d+)?"
)
_DATES = (
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})"
    r"(?:[ T]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
)


@dataclass(frozen=True)
class Found:
    """What was found out about one column.

    Attributes
    ----------
    column : Column or None
        None if the column is left out.
    reason : str
        Why the column is left out, in plain words.
    constant : bool
        Whether the column holds one value only, beside missing cells.
    notes : tuple of str
        What the user should know.
    """

    column: Column | None = None
    reason: str = ""
    constant: bool = False
    notes: tuple[str, ...] = ()


def infer_column(
    cells: Cells, name: str, key: object, kind: Kind | None, na: Sequence[Mark]
) -> Found:
    """Find out what one column holds.

    Parameters
    ----------
    cells : Cells
    name : str
    key : str or int
        What `columns` calls this column, for messages.
    kind : Kind or None
        As the user gave it; None to take it from the type.
    na : sequence of str or float
        Marks of missing cells, for messages.
    """
    if isinstance(kind, LeaveOut):
        return Found(reason="left out as asked for")
    if cells.sort == "other":
        if kind is not None:
            raise ValueError(
                f"{cells.label} holds {cells.held}, which no kind of column can hold. Pass"
                f' columns={{{key!r}: "leave-out"}}, or convert it first.'
            )
        return Found(reason=f"holds {cells.held}")
    seen = cells.seen
    if not seen.any():
        return Found(reason="all cells are missing")
    chosen, notes = (kind, ()) if kind is not None else _kind_by_type(cells, key)
    draft = Column(
        name=name,
        kind=type(chosen).__name__.lower(),
        dtype=cells.dtype,
        missing=float((~seen).mean()),
    )
    draft = _draft(draft, cells, chosen)
    values, _ = encode_cells(cells, draft, key)
    observed = values[seen]
    _check_levels(cells, draft, values, seen)
    spread, size = float(np.ptp(observed)), float(np.abs(observed).max())
    # A column of one value plus rounding error is constant too.
    constant = spread <= (1e-14 * size if isinstance(chosen, Real) else 0.0)
    if constant and cells.sort == "integer" and len(pc.unique(cells.values.drop_null())) > 1:
        reason = (
            "whole numbers beyond 2**53 that differ in their last digits alone: subtract the"
            " smallest first, or convert them to text"
        )
        return Found(reason=reason)
    if constant and (kind is None or isinstance(kind, Real)):
        shown = cells.first(seen).rsplit(" in row ", 1)[0]
        where = "in every row" if seen.all() else 'where not missing; see missing="informative"'
        return Found(_of_one_value(draft, observed[0]), f"constant ({shown} {where})", True)
    held = "" if kind is not None else _text_of_numbers(cells, observed)
    reason = "" if kind is not None else _says_nothing(cells, draft, observed, name)
    if reason and held:
        return Found(reason=held)
    if held:
        notes += (f"{cells.label} is taken as a category, but holds {held}.",)
    if reason:
        return Found(reason=reason)
    if draft.levels is not None and len(draft.levels) > MOST_LEVELS:
        raise ValueError(
            f"{cells.label} has {len(draft.levels)} levels, more than the {MOST_LEVELS} that a"
            f' category can have. Pass columns={{{key!r}: "leave-out"}}, or merge levels first.'
        )
    if cells.is_number and draft.kind != "category":
        notes += _notes_on_numbers(cells, observed, na)
    if isinstance(chosen, Real):
        atoms = find_atoms(observed) if chosen.atoms == "auto" else chosen.atoms
        draft = replace(draft, atoms=tuple(map(float, atoms)))
    return Found(draft, notes=notes)


def _kind_by_type(cells: Cells, key: object) -> tuple[Kind, tuple[str, ...]]:
    """Give the kind of a column by its type alone, and what to say about it."""
    if cells.levels is not None or cells.sort in ("text", "boolean"):
        return Category(ordered=cells.ordered), ()
    if cells.sort in ("date", "datetime"):
        return Date(), ()
    if cells.sort == "integer":
        return Integer(), ()
    if cells.sort != "float":
        return Real(), ()
    numbers = cells.numbers()
    if not (np.isfinite(numbers).all() and (numbers == np.floor(numbers)).all()):
        return Real(), ()
    if cells.values.null_count:
        note = (
            f"{cells.label} is taken as whole numbers: all its values are, and it has missing"
            f' cells, which make integers floats. Pass columns={{{key!r}: "real"}} otherwise.'
        )
        return Integer(), (note,)
    note = (
        f"{cells.label} is taken as real numbers by its type, but all its values are whole. Pass"
        f' columns={{{key!r}: "integer"}} if they are counts.'
    )
    return Real(), (note,)


def _draft(draft: Column, cells: Cells, kind: Kind) -> Column:
    """Fill in what follows from the kind and the type."""
    if isinstance(kind, Category):
        levels = kind.levels if kind.levels is not None else _levels(cells)
        return replace(draft, levels=tuple(levels), ordered=kind.ordered)
    if isinstance(kind, Date):
        return replace(draft, **_unit(cells))
    if cells.sort == "time":
        draft = replace(draft, step=_step(cells, DAYS_OR))
    dtype = as_kind(cells.dtype, draft.kind, cells.sort == "boolean", cells.sort == "integer")
    draft = replace(draft, dtype=dtype)
    return replace(draft, low=kind.low, high=kind.high) if isinstance(kind, Real) else draft


def _unit(cells: Cells) -> dict[str, Any]:
    """Say what dates count: days if none has a time of day, else seconds, and in which steps."""
    if cells.sort != "datetime":
        return {"unit": "day"}
    if not (local_seconds(cells.values)[cells.seen] % SECONDS_PER_DAY).any():
        return {"unit": "day"}
    return {"unit": "second", "step": _step(cells, STEPS)}


def _step(cells: Cells, steps: Sequence[int]) -> int | None:
    """Give the largest of some numbers of seconds that all times are multiples of."""
    observed = cells.numbers()[cells.seen]
    return next((step for step in steps if not (observed % step).any()), None)


def _levels(cells: Cells) -> tuple[Level, ...]:
    """Levels of a category: those declared, else those that occur, sorted."""
    if cells.sort == "boolean":
        return (False, True)
    if cells.levels is not None:
        return cells.levels
    if cells.sort in ("date", "datetime", "time"):
        raise ValueError(
            f"{cells.label} holds {cells.held}, which cannot be categories. Leave the kind of the"
            " column to its type, or convert it to text first."
        )
    values = cells.values.cast(pa.float64()) if cells.sort == "decimal" else cells.values
    distinct = pc.unique(values).drop_null().to_pylist()
    return tuple(sorted(distinct))


def _check_levels(cells: Cells, draft: Column, values: Array, seen: Any) -> None:
    """Check that all cells are of levels that the user gave."""
    if draft.levels is None:
        return
    other = seen & (values == len(draft.levels))
    if other.any():
        shown = ", ".join(map(repr, draft.levels[:5])) + (", ..." if draft.levels[5:] else "")
        raise ValueError(
            f"{cells.label} holds {cells.first(other)}, which is not one of the levels {shown}."
            " Add it to levels, or pass it in na=[...] if it marks missing cells."
        )


def _of_one_value(draft: Column, value: float) -> Column:
    """Keep the one value of a constant column as its only level."""
    if draft.levels is not None:
        return replace(draft, levels=(draft.levels[int(value)],))
    return replace(draft, levels=(float(value),))


def _text_of_numbers(cells: Cells, observed: Array) -> str:
    """Say that a text column looks like numbers or dates, and what to do; or give nothing."""
    if cells.sort != "text" or cells.levels is not None or len(np.unique(observed)) <= FEW_LEVELS:
        return ""
    texts = cells.values.drop_null()
    for what, pattern in (("dates", _DATES), ("plain numbers", _NUMBERS)):
        if pc.all(pc.match_substring_regex(texts, rf"^\s*(?:{pattern})\s*$")).as_py():
            shown = what.removeprefix("plain ")
            return f"{TEXT_SUSPECTED} {shown} (such as {texts[0].as_py()!r}); convert it to {what}"
    return ""


def _says_nothing(cells: Cells, draft: Column, observed: Array, name: str) -> str:
    """Say why a column tells rows apart and no more, or give nothing."""
    n = len(observed)
    if cells.sort == "text" and not (cells.ordered and cells.levels):
        n_distinct = len(np.unique(observed))
        if n >= FEWEST_IDS and n_distinct > 0.95 * n:
            return f"looks like an id ({n_distinct} different texts in {n} rows)"
        if n >= FEWEST_IDS and n_distinct > 0.5 * n:
            return f"looks like free text ({n_distinct} different texts in {n} rows)"
        length = float(np.median(pc.utf8_length(cells.values.drop_null()).to_numpy()))
        if length > LONGEST_NAME:
            return f"looks like free text (half of its texts have over {LONGEST_NAME} characters)"
    if draft.kind == "integer":
        distinct = np.unique(observed)
        if len(distinct) < n or n < 2:
            return ""
        low, high = distinct[0], distinct[-1]
        # Years in a row are time and no row numbers.
        years = 1800 <= low and high <= 2100
        consecutive = n >= FEWEST_IDS and len(cells.values) == n and high - low == n - 1
        if consecutive and not years:
            return f"looks like row numbers ({low:.0f} to {high:.0f}, each once)"
        if is_name_of_ids(name):
            return f"looks like an id ({n} different whole numbers)"
    return ""


def _notes_on_numbers(cells: Cells, observed: Array, na: Sequence[Mark]) -> tuple[str, ...]:
    codes = find_codes(observed)
    marks = [*na, *(int(value) for value, _ in codes)]
    notes = [
        f"{cells.label} holds {value:.0f} in {rows} rows: {CODE_SUSPECTED} If so, pass"
        f" na={marks!r}."
        for value, rows in codes
    ]
    if cells.sort == "integer" and np.abs(observed).max() > LARGEST_EXACT:
        notes.append(
            f"{cells.label} holds whole numbers beyond 2**53, whose last digits are lost."
        )
    return tuple(notes)
