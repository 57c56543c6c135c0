"""CSV text into Arrow columns: pyarrow does the parsing, Python looks closer where it must.

pyarrow parses and infers types at some 100 MB a second. What it cannot say (which line is ragged,
which quote is open) is found by a second, slow look, at the price of the error's delay only.
"""

import csv
import io
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from rnade.exceptions import TableError
from rnade.tables.dialect import (
    BLANKS,
    MISSING,
    as_utf8,
    find_header,
    find_separator,
    named_separator,
    numbered_records,
    sample,
    sample_records,
    split_comments,
    squeeze_blanks,
)
from rnade.tables.numerals import ANY_NUMBER, Marks, count, find_marks, is_number, matches

_DATE = r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?Z?)?"
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
    index : str or None
        Name of the first column, if the file names the others and not this one.
    first_line : int
        Line of the file, counted from 1, in which `body` begins.
    first_rows : list of list of str
        Cells of the first records of `body`.
    """

    source: str
    body: bytes
    separator: str
    names: tuple[str, ...]
    has_header: bool
    index: str | None
    first_line: int
    first_rows: list[list[str]]

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

    def read(self, columns: Sequence[str], decimal: str | None) -> tuple[pa.Table, Marks]:
        """Parse the named columns, and find the decimal point if it is not given."""
        if decimal is not None:
            return self.parse(columns, decimal), Marks(decimal, thousands=True)
        table = self.parse(columns)
        texts = [column for column in table.columns if pa.types.is_string(column.type)]
        real = {name for name in columns if pa.types.is_floating(table[name].type)}
        marks = find_marks(texts, self.separator, self._first_cells(real))
        return (table if marks.point == "." else self.parse(columns, marks.point)), marks

    def _first_cells(self, columns: Collection[str]) -> list[str]:
        at = [d for d, name in enumerate(self.names) if name in columns]
        return [row[d] for row in self.first_rows for d in at if d < len(row)]

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
    """Detect how a CSV file is written, and split off its header line.

    Parameters
    ----------
    data : bytes
        The whole file, in any of the usual encodings.
    source : str
        Its name, for messages.
    separator : str or None
        None to detect it.
    header : bool or None
        Whether the first line names the columns; None to detect it.
    """
    data, comment = split_comments(as_utf8(data, source))
    if not data or data.isspace():
        raise TableError(f"{source} is empty.")
    separator = named_separator(separator) if separator else find_separator(data) or ","
    _check_quotes(data, source, "\t" if separator == BLANKS else separator)
    named = next(iter(sample_records(comment, separator)), [])
    if separator == BLANKS:
        data, separator = squeeze_blanks(data), "\t"

    rows = sample_records(data, separator)
    in_first = find_header(rows) if header is None else header
    in_comment = header is None and not in_first and _names(named, rows[0])
    given = rows[0] if in_first else named if in_comment else [""] * len(rows[0])
    names = tuple(name or f"x{d}" for d, name in enumerate(given, start=1))
    start, first_line = _start(data, separator, skip_record=in_first)
    body = data[start:]
    if not body or body.isspace():
        raise TableError(f"{source} has a header but no rows.")
    if len(names) == 1:
        # Blank lines are missing cells here, but those at the end are only blank lines.
        body = body.rstrip(b"\r\n")
    has_header = in_first or in_comment
    return DelimitedText(
        source=source,
        body=body,
        separator=separator,
        names=names,
        has_header=has_header,
        index=names[0] if has_header and not given[0] else None,
        first_line=first_line,
        first_rows=rows[1:] if in_first else rows,
    )


def _names(words: Sequence[str], first: Sequence[str]) -> bool:
    """Tell whether the words of a comment above the first record may name its columns."""
    return len(words) == len(first) > 1 and not any(map(is_number, words))


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


def look_closer(
    column: pa.ChunkedArray, marks: Marks, stray: Callable[[int, str], TableError]
) -> pa.ChunkedArray | str:
    """Look at a column that pyarrow took for text: it gives up on a whole column for one cell.

    Parameters
    ----------
    column : text column
    marks : Marks
    stray : callable
        Makes the error for a cell that is no number, though at least half of the column's filled
        cells are; it is given the cell's record and what stands in it.

    Returns
    -------
    float64 column or str
        The numbers, or in plain words why they are none.
    """
    cells = pc.utf8_trim_whitespace(column)
    missing = pc.is_in(cells, value_set=pa.array(sorted(MISSING)))
    cells = pc.if_else(missing, pa.scalar(None, pa.string()), cells)
    filled = len(cells) - cells.null_count
    numbers = matches(cells, marks.pattern)
    if count(numbers) == filled:
        return marks.to_numbers(cells)
    lower = pc.utf8_lower(cells)
    if count(matches(lower, "true|false")) == filled:
        return pc.cast(pc.equal(lower, "true"), pa.float64())
    if count(matches(cells, _DATE)) == filled:
        return "dates"
    record = pc.index(pc.fill_null(numbers, True), False).as_py()
    word = cells[record].as_py()
    # Numbers with the other decimal mark count too: better an error than columns lost.
    if 2 * count(matches(cells, ANY_NUMBER)) >= filled:
        raise stray(record, word)
    return f"text (such as {word!r})"
