"""CSV text into Arrow columns: pyarrow does the parsing, Python looks closer where it must.

pyarrow parses and infers types at some 100 MB a second. What it cannot say (which line is ragged,
which quote is open) is found by a second, slow look, at the price of the error's delay only.
"""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from rnade.exceptions import TableError
from rnade.tables.dialect import (
    BLANKS,
    DECIMAL_COMMA,
    MISSING,
    NUMBER,
    as_utf8,
    find_header,
    find_separator,
    named_separator,
    numbered_records,
    sample,
    sample_records,
    squeeze_blanks,
)

_DATE = r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?Z?)?"
# One to three digits, a comma, three digits: in 1,234 the comma may well stand for thousands.
_THOUSANDS = r"[+-]?\d{1,3},\d{3}"
_BLOCK_BYTES = 1 << 22


@dataclass(frozen=True)
class DelimitedText:
    """The records of a CSV file, not parsed yet.

    Attributes
    ----------
    source : str
        The file's name, for messages.
    body : bytes
        UTF-8 text after the header line.
    separator : str
        One character. Runs of blanks have been made tabs.
    names : tuple of str
        Of all columns; ``x1``, ``x2``, ... where the file gives none.
    has_header : bool
    first_line : int
        Line of the file, counted from 1, in which `body` begins.
    """

    source: str
    body: bytes
    separator: str
    names: tuple[str, ...]
    has_header: bool
    first_line: int

    def line(self, record: int) -> int:
        """Line of the file, counted from 1, in which a record, counted from 0, begins."""
        lines = (
            line
            for line, cells in numbered_records(self.body.decode(), self.separator)
            if len(cells) == len(self.names) or len(self.names) == 1
        )
        for _ in range(record):
            next(lines)
        return self.first_line - 1 + next(lines)

    def parse(self, columns: Sequence[str], decimal_point: str = ".") -> pa.Table:
        """Parse the named columns, types inferred by pyarrow; missing cells are null."""
        body = pa.py_buffer(self.body)
        try:
            return self._parse(body, columns, decimal_point)
        except pa.ArrowInvalid as error:
            # A line of blanks alone is an empty line to a person.
            tidied = re.sub(rb"(?m)^ +(?=\r?$)", b"", self.body)
            if len(tidied) != len(self.body):
                try:
                    return self._parse(pa.py_buffer(tidied), columns, decimal_point)
                except pa.ArrowInvalid:
                    pass
            raise self._parse_error(str(error)) from None

    def _parse(self, body: pa.Buffer, columns: Sequence[str], decimal_point: str) -> pa.Table:
        return pacsv.read_csv(
            pa.BufferReader(body),
            read_options=pacsv.ReadOptions(column_names=self.names, block_size=_BLOCK_BYTES),
            parse_options=pacsv.ParseOptions(
                delimiter=self.separator,
                newlines_in_values=b'"' in self.body,
                ignore_empty_lines=len(self.names) > 1,
            ),
            convert_options=pacsv.ConvertOptions(
                null_values=sorted(MISSING),
                strings_can_be_null=True,
                include_columns=columns,
                decimal_point=decimal_point,
            ),
        )

    def _parse_error(self, reason: str) -> TableError:
        """Find the first record of another length than the first: what pyarrow stumbled over."""
        expected = len(self.names)
        try:
            for line, cells in numbered_records(self.body.decode(), self.separator):
                found = len(cells)
                if found != expected and "".join(cells).strip():
                    of = "the header" if self.has_header else "the first line"
                    return TableError(
                        f"{self.source}: line {self.first_line - 1 + line} has {_cells(found)}; "
                        f"expected {expected}, as in {of}."
                    )
        except csv.Error as error:
            reason = str(error)
        return TableError(f"{self.source} cannot be read as CSV: {reason.splitlines()[0]}.")


def _cells(n: int) -> str:
    return f"{n} cell" if n == 1 else f"{n} cells"


def open_delimited(
    data: bytes, source: str, *, separator: str | None, header: bool | None
) -> DelimitedText:
    """Find out how a CSV file is written, and split off its header line.

    Parameters
    ----------
    data : bytes
        The whole file, in any of the usual encodings.
    source : str
        Its name, for messages.
    separator : str or None
        None finds it out.
    header : bool or None
        Whether the first line names the columns; None finds it out.
    """
    data = as_utf8(data, source)
    if not data or data.isspace():
        raise TableError(f"{source} is empty.")
    separator = named_separator(separator) if separator else find_separator(data) or ","
    _check_quotes(data, source, "\t" if separator == BLANKS else separator)
    if separator == BLANKS:
        data, separator = squeeze_blanks(data), "\t"

    rows = sample_records(data, separator)
    if header is None:
        header = find_header(rows)
    if header:
        names = tuple(name or f"x{d}" for d, name in enumerate(rows[0], start=1))
    else:
        names = tuple(f"x{d}" for d in range(1, len(rows[0]) + 1))
    start, first_line = _start(data, separator, skip_record=header)
    body = data[start:]
    if not body or body.isspace():
        raise TableError(f"{source} has a header but no rows.")
    if len(names) == 1:
        # Blank lines are missing cells here, but those at the end are only blank lines.
        body = body.rstrip(b"\r\n")
    return DelimitedText(source, body, separator, names, header, first_line)


def _check_quotes(data: bytes, source: str, separator: str) -> None:
    """Refuse an open quote, which would swallow the rest of the file without a word."""
    if data.count(b'"') % 2 == 0:
        return
    end = 0
    try:
        for line, cells in numbered_records(data.decode(), separator, strict=True):
            end = line + sum(cell.count("\n") for cell in cells)
    except csv.Error as error:
        # Other complaints of a strict reader, such as text after a quote, are none of ours.
        if "unexpected end of data" in str(error) or "field larger" in str(error):
            raise TableError(
                f"{source}: line {end + 1} opens a quote that is never closed."
            ) from None


def _start(data: bytes, separator: str, *, skip_record: bool) -> tuple[int, int]:
    """Byte and line where the rows begin: after blank lines and, perhaps, one record."""
    head = sample(data)
    text = head.decode(errors="replace")
    numbered = numbered_records(text, separator)
    line = next(line for line, cells in numbered if "".join(cells).strip())
    if skip_record:
        line = next((line for line, _ in numbered), 0)
        if not line:
            return len(head), len(text.splitlines()) + 1
    before = islice(io.StringIO(text, newline=""), line - 1)
    return len("".join(before).encode()), line


@dataclass(frozen=True)
class TextColumn:
    """What a closer look at a column of text found.

    Attributes
    ----------
    numbers : pa.ChunkedArray or None
        The column as float64, if all of its cells turned out to be numbers.
    reason : str
        Else why it is none, in plain words.
    stray : int or None
        Else the first record whose cell is no number, if at least half of the cells are numbers.
    word : str
        What stands in that record, or an example of what stands in the column.
    """

    numbers: pa.ChunkedArray | None
    reason: str = ""
    stray: int | None = None
    word: str = ""


def _matches(cells: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    return pc.match_substring_regex(cells, f"^(?:{pattern})$")


def _count(mask: pa.ChunkedArray) -> int:
    return int(pc.sum(mask).as_py() or 0)


def uses_decimal_comma(column: pa.ChunkedArray, separator: str) -> bool:
    """Tell whether at least half of a text column's cells are numbers with a decimal comma."""
    if separator == ",":
        return False
    cells = pc.utf8_trim_whitespace(column.drop_null())
    commas = _count(_matches(cells, DECIMAL_COMMA))
    if separator != ";" and commas == _count(_matches(cells, _THOUSANDS)):
        return False
    return commas > 0 and 2 * _count(_matches(cells, f"{NUMBER}|{DECIMAL_COMMA}")) >= len(cells)


def look_closer(column: pa.ChunkedArray, decimal_point: str = ".") -> TextColumn:
    """Look at a column that pyarrow took for text: numbers after all, a stray word, or text.

    pyarrow gives up on a column for one cell, and on blanks around a missing value. A column is
    one of numbers with a stray word if at least half of its non-empty cells are numbers.
    """
    cells = pc.utf8_trim_whitespace(column)
    missing = pc.is_in(cells, value_set=pa.array(sorted(MISSING)))
    cells = pc.if_else(missing, pa.scalar(None, pa.string()), cells)
    filled = len(cells) - cells.null_count
    numbers = _matches(cells, NUMBER if decimal_point == "." else NUMBER.replace(r"\.", ","))
    n_numbers = _count(numbers)
    if n_numbers == filled:
        plain = pc.replace_substring(cells, decimal_point, ".")
        return TextColumn(pc.cast(plain, pa.float64()))
    lower = pc.utf8_lower(cells)
    if _count(_matches(lower, "true|false")) == filled:
        return TextColumn(pc.cast(pc.equal(lower, "true"), pa.float64()))
    if _count(_matches(cells, _DATE)) == filled:
        return TextColumn(None, "dates")
    record = pc.index(pc.fill_null(numbers, True), False).as_py()
    word = cells[record].as_py()
    # Numbers with the other decimal mark count too: better an error than columns lost.
    if 2 * _count(_matches(cells, f"{NUMBER}|{DECIMAL_COMMA}")) >= filled:
        return TextColumn(None, "", record, word)
    return TextColumn(None, f"text (such as {word!r})", None, word)
