"""Numbers as people write them: 1234.5, 1,234.5, 1.234,5 and 1 234,5.

A point or comma between digits marks decimals or thousands. 1,5 and 1.234,5 can be read one way
only; 1,234 and 1.234 can be read both ways, and are read as the rest of the file suggests.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

OTHER_MARK = {".": ",", ",": "."}
_NAME = {".": "point", ",": "comma"}
# These mark thousands too, and nothing else; two of them are blanks that keep a line together.
_BLANKS = " '\u00a0\u202f"


def _number(point: str, marks: str) -> str:
    """Pattern of numbers with this decimal point, perhaps with one of the marks at thousands."""
    return (
        rf"[+-]?(?:\d+[{point}]?\d*|[{point}]\d+)(?:[eE][+-]?\d+)?|[+-]?(?i:inf|infinity)"
        rf"|[+-]?[1-9]\d{{0,2}}(?:[{marks}]\d{{3}})+(?:[{point}]\d*)?"
    )


# Numbers by their decimal point, and any of them.
_NUMBER = {point: _number(point, _BLANKS + other) for point, other in OTHER_MARK.items()}
ANY_NUMBER = "|".join(_NUMBER.values())
# Without blanks, which may stand between two numbers.
is_number = re.compile(f"{_number('.', ',')}|{_number(',', '.')}").fullmatch
# With a mark that may be either.
_BOTH_WAYS = r"[+-]?[1-9]\d{0,2}[.,]\d{3}"


def matches(cells: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    """Tell of each cell whether the whole of it matches a regular expression."""
    return pc.match_substring_regex(cells, f"^(?:{pattern})$")


def count(mask: pa.ChunkedArray) -> int:
    """Count the cells for which a mask is true."""
    return int(pc.sum(mask).as_py() or 0)


@dataclass(frozen=True)
class Marks:
    """How the numbers of a file are written.

    Attributes
    ----------
    point : "." or ","
        The decimal point.
    thousands : bool
        Whether the other of the two marks thousands.
    doubt : str
        A cell that could be read another way too, where the file does not decide; else empty.
    """

    point: str = "."
    thousands: bool = False
    doubt: str = ""

    @property
    def pattern(self) -> str:
        """Regular expression of the numbers understood."""
        return _number(self.point, self._ignored)

    @property
    def _ignored(self) -> str:
        return _BLANKS + (OTHER_MARK[self.point] if self.thousands else "")

    def to_numbers(self, cells: pa.ChunkedArray) -> pa.ChunkedArray:
        """Turn cells that match the pattern into float64."""
        digits = pc.replace_substring_regex(cells, f"[{self._ignored}]", "")
        return pc.cast(pc.replace_substring(digits, self.point, "."), pa.float64())

    @property
    def notes(self) -> list[str]:
        """What the user should know about the choice."""
        told = (
            f"{self.doubt} was read with a decimal {_NAME[self.point]}; if it marks thousands,"
            f" pass --decimal {OTHER_MARK[self.point]}"
        )
        return [told] if self.doubt else []

    def why_not(self, word: str) -> str:
        """Tell how a number that is not understood could be read; empty if it is none."""
        if not is_number(word):
            return ""
        other = OTHER_MARK[self.point]
        if self.thousands:
            return f" with a decimal {_NAME[self.point]}; fix the cell, or pass --decimal {other}"
        ways = [f"--decimal {other} if its {_NAME[other]} marks decimals"]
        if re.fullmatch(_NUMBER[self.point], word):
            ways.append(f"--decimal {self.point} if it marks thousands")
        return f" as it stands; pass {', or '.join(ways)}"


def find_marks(
    texts: Sequence[pa.ChunkedArray], separator: str, first_numbers: Sequence[str]
) -> Marks:
    """Find out how the numbers of a CSV file are written.

    Parameters
    ----------
    texts : sequence of text columns
        Those not numeric by the usual reading: a point for decimals, nothing for thousands.
    separator : str
        Where it is a comma, commas within cells never mark decimals unless the user says so;
        where it is a semicolon, a comma that can be read both ways does.
    first_numbers : sequence of str
        Cells of the first rows from the columns that are numeric by the usual reading.
    """
    sure = dict.fromkeys(".,", 0)
    unsure = []
    for column in texts:
        cells = pc.utf8_trim_whitespace(column.drop_null())
        if 2 * count(matches(cells, ANY_NUMBER)) < len(cells):
            continue  # text, in which a few numbers prove nothing
        is_one = {point: matches(cells, _NUMBER[point]) for point in ".,"}
        for point, other in OTHER_MARK.items():
            sure[point] += count(pc.and_not(is_one[point], is_one[other]))
        commas = cells.filter(matches(cells, _BOTH_WAYS.replace("[.,]", ",")))
        unsure += commas.slice(0, 1).to_pylist()
    marked = [cell for cell in first_numbers if "." in cell]
    if not all(re.fullmatch(_BOTH_WAYS, cell) for cell in marked):
        sure["."] += 1
    if separator == ",":
        return Marks(".", thousands=sure["."] + len(marked) > 0)
    if sure[","]:
        return Marks(",", thousands=True)
    if sure["."] or separator != ";":
        return Marks(".", thousands=sure["."] > 0)
    if unsure:
        return Marks(",", thousands=True, doubt=unsure[0])
    return Marks(doubt=marked[0] if marked else "")


def numbers_or_reason(column: pa.ChunkedArray) -> pa.ChunkedArray | str:
    """Give a column back if its type is numeric, else say in plain words what it holds."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind, types = column.type, pa.types
    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    if types.is_null(kind) or any(is_kind(kind) for is_kind in numeric):
        return column
    if types.is_date(kind) or types.is_timestamp(kind):
        return "dates"
    if types.is_time(kind) or types.is_duration(kind):
        return "times"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    return f"values of type {kind}"
