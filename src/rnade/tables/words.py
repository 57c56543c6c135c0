"""What the text cells of a CSV column are: numbers as people write them, dates, levels."""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rnade.tables.dialect import DOUBTFUL, MISSING
from rnade.tables.numerals import ANY_NUMBER, Marks, count, matches

_TIME = r"(?P<time>(?:[ T]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?)"
# Dates by what stands first, as regular expressions with named groups.
_YEAR_FIRST = rf"^(?P<y>\d{{4}})[-/.](?P<m>\d{{1,2}})[-/.](?P<d>\d{{1,2}}){_TIME}$"
_DAY_FIRST = rf"^(?P<d>\d{{1,2}})[-/.](?P<m>\d{{1,2}})[-/.](?P<y>\d{{4}}){_TIME}$"
_MONTH_FIRST = rf"^(?P<m>\d{{1,2}})[-/.](?P<d>\d{{1,2}})[-/.](?P<y>\d{{4}}){_TIME}$"
ANY_DATE = r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?Z?)?"


@dataclass(frozen=True)
class Stray:
    """A cell, counted from 0, that is not what most of its column is, such as "a number"."""

    record: int
    word: str
    expected: str


def without(cells: pa.ChunkedArray, words: Iterable[str]) -> pa.ChunkedArray:
    """Make cells that are one of some words null."""
    marked = pc.is_in(cells, value_set=pa.array(sorted(words), pa.string()))
    return pc.if_else(marked, pa.scalar(None, pa.string()), cells)


def as_text(raw: pa.ChunkedArray, na: Iterable[str]) -> pa.ChunkedArray:
    """Give cells without blanks around them; null where nothing else than "no value" is meant."""
    return without(pc.utf8_trim_whitespace(raw), {*(MISSING - DOUBTFUL), *na})


def typed(
    raw: pa.ChunkedArray, marks: Marks, na: Iterable[str], sort: str | None
) -> pa.ChunkedArray | Stray | str:
    """Give a column that pyarrow took for text in the type that its cells have.

    That is numbers, booleans, dates or text; else the cell that keeps it from being what most of
    it is, or why the column cannot be read. `na` are marks of missing cells, beside the usual
    ones, and `sort` is what the column has to hold ("number", "boolean", "date" or "text"); None
    to find out.
    """
    text = as_text(raw, na)
    if sort == "text":
        return text
    cells = without(text, DOUBTFUL)
    filled = len(cells) - cells.null_count
    numbers = matches(cells, marks.pattern)
    if count(numbers) == filled and sort in (None, "number"):
        return _whole_or_real(cells, marks)
    lower = pc.utf8_lower(cells)
    truths = matches(lower, "true|false|0|1" if sort == "boolean" else "true|false")
    if count(truths) == filled and sort != "date":
        return matches(lower, "true|1")
    if sort == "boolean":
        return _stray(cells, truths, "true or false")
    # Numbers with the other decimal mark count too: better an error than numbers taken as levels.
    if sort == "number" or (sort is None and 2 * count(matches(cells, ANY_NUMBER)) >= filled):
        return _stray(cells, numbers, "a number")
    dates = matches(cells, ANY_DATE)
    if sort == "date" or 2 * count(dates) >= filled:
        if count(dates) < filled:
            return _stray(cells, dates, "a date")
        found = as_dates(cells)
        if found is not None:
            return found
    return text


def _stray(cells: pa.ChunkedArray, fits: pa.ChunkedArray, expected: str) -> Stray:
    record = pc.index(pc.fill_null(fits, True), False).as_py()
    return Stray(record, cells[record].as_py(), expected)


def _whole_or_real(cells: pa.ChunkedArray, marks: Marks) -> pa.ChunkedArray:
    """Numbers as integers if none is written with decimals, else as float64."""
    numbers = marks.to_numbers(cells)
    filled = len(cells) - cells.null_count
    if count(matches(cells, rf"[^{marks.point}eEiI]*")) < filled:
        return numbers
    try:
        return numbers.cast(pa.int64())
    except pa.ArrowInvalid:  # more digits than an integer has
        return numbers


def as_dates(cells: pa.ChunkedArray) -> pa.ChunkedArray | str | None:
    """Read dates, whether year, day or month stands first; None if the cells are no dates.

    If day and month cannot be told apart, it says so.
    """
    found = _parsed(cells, _YEAR_FIRST)
    if found is not None:
        return found
    day_first, month_first = _parsed(cells, _DAY_FIRST), _parsed(cells, _MONTH_FIRST)
    if day_first is None or month_first is None:
        return month_first if day_first is None else day_first
    # With points the day stands first everywhere.
    if day_first.equals(month_first) or count(pc.match_substring_regex(cells, r"^\d+\.")):
        return day_first
    return (
        f"dates whose day and month cannot be told apart (such as"
        f" {cells.drop_null()[0].as_py()!r}); write them as 2020-12-31"
    )


def _parsed(cells: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray | None:
    """Cells as dates by a regular expression; None if one of them is no date by it."""
    parts = pc.extract_regex(cells, pattern)
    if parts.null_count > cells.null_count:
        return None
    year, month, day, time = (pc.struct_field(parts, name) for name in ("y", "m", "d", "time"))
    iso = pc.binary_join_element_wise(
        year, pc.utf8_lpad(month, 2, "0"), pc.utf8_lpad(day, 2, "0"), "-"
    )
    try:
        if not count(pc.greater(pc.utf8_length(time), 0)):
            return iso.cast(pa.date32())
        clock = pc.replace_substring_regex(time, r"^[ T](\d):", " 0\\1:")
        clock = pc.replace_substring(clock, "T", " ")
        whole = not count(pc.match_substring(time, "."))
        times = pc.binary_join_element_wise(iso, clock, "")
        return times.cast(pa.timestamp("s" if whole else "us"))
    except pa.ArrowInvalid:  # such as month 13
        return None
