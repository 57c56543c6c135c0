"""How a CSV file is written: its encoding, its separator, and whether it has a header line."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import median

from rnade.exceptions import TableError
from rnade.tables.numerals import is_number

# How people write "no value". The empty cell is one of them.
MISSING = frozenset(
    (
        *("", "-", "--", "?", "NA", "na", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>"),
        *("NaN", "nan", "NAN", "-nan", "-NaN"),
        *("NULL", "Null", "null", "None", "none"),
    )
)
# Those that may also be a level of a text column: missing only among numbers and dates.
DOUBTFUL = frozenset(("-", "--", "?", "None", "none"))

BLANKS = " "  # stands for a run of blanks and tabs, as in the older files of the UCI collection
SEPARATORS = ("\t", ";", "|", ",", BLANKS)  # of two that fit equally well, the earlier one
_SPOKEN = {
    "tab": "\t",
    "\\t": "\t",
    "semicolon": ";",
    "pipe": "|",
    "comma": ",",
    "blank": BLANKS,
    "blanks": BLANKS,
    "space": BLANKS,
}

_SAMPLE_BYTES = 1 << 16
_SAMPLE_RECORDS = 200
_SAMPLE_LINES = 20  # at least

_control = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]").search


def named_separator(separator: str) -> str:
    """Give the character that a person means by a separator's name, such as ``tab``."""
    character = _SPOKEN.get(separator.lower(), separator)
    if len(character) != 1 or character in '"\n\r' or not character.isascii():
        raise TableError(
            f"Expected a separator of one character, or one of tab, comma, semicolon, pipe, "
            f"blank; got {separator!r}."
        )
    return character


def as_utf8(data: bytes, source: str) -> bytes:
    """Bring the bytes of a text file to UTF-8 without a mark at the start, or say it is no text.

    Text that is not UTF-8 is taken for Windows-1252, the usual other choice of spreadsheets: it
    can matter only for the names of columns.
    """
    no_text = TableError(f"{source} is neither text nor a Parquet or Arrow table.")
    encodings = ["utf-8-sig", "cp1252"]
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        encodings = ["utf-16"]
    elif b"\0" in data or _control(data, 0, _SAMPLE_BYTES):
        if data.startswith(b"PK"):
            raise TableError(f"{source} looks like a zip or Excel file: save it as CSV.")
        raise no_text
    elif data.isascii():
        return data
    for encoding in encodings:
        try:
            return data.decode(encoding).encode()
        except UnicodeError:
            pass
    raise no_text


def split_comments(data: bytes) -> tuple[bytes, bytes]:
    """Blank the lines that begin with # at the top of a file, and give the text of the last one.

    The lines themselves stay, so that lines are counted as in the file.
    """
    top = re.match(rb"(?:[ \t]*(?:#([^\r\n]*))?(?:\r\n|\r|\n))*", data)
    if top is None or top[1] is None:
        return data, b""
    return re.sub(rb"[^\r\n]+", b"", top[0]) + data[top.end() :], top[1]


def numbered_records(
    text: str, separator: str, *, strict: bool = False
) -> Iterator[tuple[range, list[str]]]:
    """Yield each record with its lines, counted from 1; slow, for samples and errors.

    A blank line is an empty record. With `strict`, an open quote raises `csv.Error`.
    """
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=strict)
    line = 1
    for cells in reader:
        yield range(line, reader.line_num + 1), cells
        line = reader.line_num + 1


def squeeze_blanks(data: bytes) -> bytes:
    """Write each run of blanks outside quotes as one tab, and as nothing at the ends of lines."""
    # Quoted parts are matched first and so survive; most such files have none.
    data = re.sub(rb'("(?:[^"\n]|"")*")|[ \t]+', lambda m: m[1] or b"\t", data)
    return re.sub(rb"(?m)^\t+|\t+(?=\r?$)", b"", data)


def sample(data: bytes) -> bytes:
    """Give whole lines from the start of the file, enough to judge it by."""
    end = data.find(b"\n", _SAMPLE_BYTES)
    # A table of thousands of columns may fill the sample with its header alone.
    while 0 <= end < len(data) and data.count(b"\n", 0, end) < _SAMPLE_LINES:
        end = data.find(b"\n", end + 1)
    return data if end < 0 else data[: end + 1]


def sample_records(data: bytes, separator: str) -> list[tuple[range, list[str]]]:
    """Give the first records of a file with their lines: cells stripped, blank lines left out."""
    data = sample(data)
    if separator == BLANKS:
        data, separator = squeeze_blanks(data), "\t"
    found = numbered_records(data.decode(errors="replace"), separator)
    stripped = ((lines, [cell.strip() for cell in row]) for lines, row in found if row)
    try:
        return list(islice(stripped, _SAMPLE_RECORDS))
    except csv.Error:  # a cell beyond the reader's limit: an open quote, reported by the reading
        return []


def find_separator(data: bytes) -> str:
    """Find the separator that splits most records and makes the most of their cells numbers.

    Without numbers, the separator that splits all records into equally many cells, the more the
    better; a comma if none does, since the file has one column. A separator has to split the first
    record too: commas that come below alone are decimals or thousands.
    """
    best, separator = 0.0, ","
    most = 1
    for candidate in SEPARATORS:
        rows = [row for _, row in sample_records(data, candidate)]
        if not rows or len(rows[0]) < 2 or median(map(len, rows)) < 2:
            continue
        cells = [cell for row in rows for cell in row]
        numbers = sum(is_number(cell) is not None for cell in cells) / len(cells)
        if numbers > best:
            best, separator = numbers, candidate
        # Blanks are in most texts, and separate none for sure.
        even = len({*map(len, rows)}) == 1 and candidate != BLANKS
        if best == 0 and even and len(rows[0]) > most:
            most, separator = len(rows[0]), candidate
    return separator


def find_header(rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether the first record names the columns, by a vote of the columns.

    A column votes for a header if its first cell is no number and most of its others are, and
    against if its first cell is a number. Without a vote (all is text) there is a header.
    """
    votes = []
    for d, cell in enumerate(rows[0]):
        if is_number(cell):
            votes.append(-1)
        elif cell not in MISSING:
            others = [row[d] for row in rows[1:] if d < len(row) and row[d] not in MISSING]
            if 2 * sum(is_number(other) is not None for other in others) > len(others):
                votes.append(1)
    return sum(votes) > 0 or not votes
