"""CSV text into Arrow columns: pyarrow does the parsing, Python looks closer where it must.

pyarrow parses and infers types at some 100 MB a second. What it cannot say (which line is ragged,
which quote is open) is found by a second, slow look, at the price of the error's delay only.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from rnade.exceptions import TableError
from rnade.tables import dialect
from rnade.tables.dialect import BLANKS, DOUBTFUL, MISSING, numbered_records, sample_records
from rnade.tables.numerals import (
    ANY_NUMBER,
    Marks,
    count,
    find_marks,
    is_number,
    matches,
    numbers_or_reason,
)
from rnade.tables.words import ANY_DATE, Stray, typed, without

_BLOCK_BYTES = 1 << 22


class DelimitedText:
    """A CSV file: how it is written, the names of its columns, and its records, parsed on request.

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

    Attributes
    ----------
    names : list of str
        Of all columns; ``x1``, ``x2``, ... where the file gives none.
    titles : list of str
        The same as the file has them: empty where a header leaves a name out.
    has_header : bool
    index : str or None
        Name of the first column, if the file names the others and not this one.
    notes : list of str
        What the user may want to check about the numbers, once they are parsed.
    decimal : str
        The decimal point, once the numbers are parsed.
    separator : str
        A tab for runs of blanks.
    first_line : int
        The line of the file in which its rows begin, counted from 1.
    """

    def __init__(
        self, data: bytes, source: str, *, separator: str | None, header: bool | None
    ) -> None:
        data, comment = dialect.split_comments(dialect.as_utf8(data, source))
        if not data or data.isspace():
            raise TableError(f"{source} is empty.")
        named = dialect.named_separator(separator) if separator else None
        separator = named or dialect.find_separator(data)
        _check_quotes(data, source, "\t" if separator == BLANKS else separator)
        in_comment = [words for _, words in sample_records(comment, separator)]
        if separator == BLANKS:
            data, separator = dialect.squeeze_blanks(data), "\t"
        records = [record for record in sample_records(data, separator) if any(record[1])]
        if not records:
            raise TableError(f"{source} holds no values.")
        first_lines, rows = records[0][0], [row for _, row in records]

        self.source = source
        self.notes: list[str] = []
        self.decimal = "."
        self.has_header = in_first = dialect.find_header(rows) if header is None else header
        given = rows[0] if in_first else [""] * len(rows[0])
        if header is None and not in_first and in_comment and _are_names(in_comment[0], rows[0]):
            self.has_header, given = True, in_comment[0]
        self.names = [name or f"x{d}" for d, name in enumerate(given, start=1)]
        self.titles = list(given) if self.has_header else self.names
        self.index = self.names[0] if self.has_header and not given[0] else None
        self.separator = separator
        self._first_rows = rows[1:] if in_first else rows
        self.first_line = first_lines.stop if in_first else first_lines.start
        lines = io.StringIO(dialect.sample(data).decode(), newline="")
        self._body = data[len("".join(islice(lines, self.first_line - 1)).encode()) :]
        if not self._body or self._body.isspace():
            raise TableError(f"{source} has a header but no rows.")
        if len(self.names) == 1:
            # Blank lines are missing cells here, but those at the end are only blank lines.
            self._body = self._body.rstrip(b"\r\n")

    def place(self, record: int) -> str:
        """Say in which line of the file a record, counted from 0, begins."""
        records = (
            lines
            for lines, cells in numbered_records(self._body.decode(), self.separator)
            if len(cells) == len(self.names) or len(self.names) == 1
        )
        return self._line(next(islice(records, record, None)))

    def _line(self, lines: range) -> str:
        return f"line {self.first_line - 1 + lines.start}"

    def written(self) -> pa.Table:
        """Give all columns as the text that the file has."""
        return self._parse(self.names, ".", texts=True)

    def columns(
        self, wanted: Sequence[str], decimal: str | None, na: Sequence[str] = ()
    ) -> Mapping[str, pa.ChunkedArray | str]:
        """Give the numbers of each column wanted, missing cells null, or why they are none.

        The decimal point is found out if it is not given. `na` are marks of missing cells.
        """
        table, marks = self._parsed(wanted, decimal, na)
        self.notes = marks.notes
        return {
            name: self._look_closer(name, table[name], marks, na)
            if pa.types.is_string(table[name].type)
            else numbers_or_reason(table[name])
            for name in wanted
        }

    def typed(
        self,
        wanted: Sequence[str],
        decimal: str | None,
        na: Sequence[str] = (),
        sorts: Mapping[str, str] | None = None,
    ) -> Mapping[str, pa.ChunkedArray | str]:
        """Give each column wanted in its own type, missing cells null, or why it has none.

        The decimal point is found out if it is not given. `na` are marks of missing cells, beside
        the usual ones, and `sorts` says what columns have to hold ("number", "boolean", "date" or
        "text"): a cell that they cannot hold is an error.
        """
        sorts = sorts or {}
        table, marks = self._parsed(wanted, decimal, na)
        self.notes = marks.notes
        texts = [
            name
            for name in wanted
            if pa.types.is_string(table[name].type) or sorts.get(name) == "text"
        ]
        raw = self._parse(texts, marks.point, texts=True) if texts else None
        found = {}
        for name in wanted:
            if raw is None or name not in texts:
                found[name] = table[name]
                self._note_leading_zeros(name, table[name])
                continue
            cells = typed(raw[name], marks, na, sorts.get(name))
            if isinstance(cells, Stray):
                raise self._stray_word(name, cells, marks, asked_for=name in sorts)
            if name not in sorts and not isinstance(cells, str):
                self._note_doubtful_levels(name, cells)
            found[name] = cells
        return found

    def _parsed(
        self, wanted: Sequence[str], decimal: str | None, na: Sequence[str]
    ) -> tuple[pa.Table, Marks]:
        """Parse columns, with the decimal point that is given or found."""
        table = self._parse(wanted, decimal or ".", na)
        if decimal is not None:
            marks = Marks(decimal, thousands=True)
        else:
            texts = [column for column in table.columns if pa.types.is_string(column.type)]
            real = {name for name in wanted if pa.types.is_floating(table[name].type)}
            at = [d for d, name in enumerate(self.names) if name in real]
            first = [row[d] for row in self._first_rows for d in at if d < len(row)]
            marks = find_marks(texts, self.separator, first)
            if marks.point != ".":
                table = self._parse(wanted, marks.point, na)
        self.decimal = marks.point
        return table, marks

    def _note_leading_zeros(self, name: str, cells: pa.ChunkedArray) -> None:
        """Note whole numbers that are written as codes are, such as 00501."""
        if pa.types.is_integer(cells.type):
            d = self.names.index(name)
            first = (row[d] for row in self._first_rows if d < len(row))
            word = next((w for w in first if len(w) > 1 and w[0] == "0" and w.isdigit()), None)
            if word is not None:
                self.notes.append(
                    f"column {name!r} is read as numbers, but {word!r} has leading zeros; if they"
                    f" are codes, pass --kind {name}=category"
                )

    def _note_doubtful_levels(self, name: str, cells: pa.ChunkedArray) -> None:
        """Note levels that may mark missing cells."""
        if not pa.types.is_string(cells.type):
            return
        for mark in sorted(DOUBTFUL):
            n = count(pc.equal(cells, mark))
            if n:
                times = "once" if n == 1 else f"{n} times"
                self.notes.append(
                    f"column {name!r} holds {mark!r} {times}, read as a level; if it marks missing"
                    f' cells, pass --na "{mark}"'
                )

    def _parse(
        self,
        columns: Sequence[str],
        decimal_point: str,
        na: Sequence[str] = (),
        *,
        texts: bool = False,
    ) -> pa.Table:
        """Parse the named columns, types inferred by pyarrow; missing cells are null.

        With `texts` all columns are text as the file has it.
        """
        try:
            return pacsv.read_csv(
                pa.BufferReader(self._body),
                read_options=pacsv.ReadOptions(column_names=self.names, block_size=_BLOCK_BYTES),
                parse_options=pacsv.ParseOptions(
                    delimiter=self.separator,
                    newlines_in_values=b'"' in self._body,
                    ignore_empty_lines=len(self.names) > 1,
                    # A line of blanks alone is an empty line to a person.
                    invalid_row_handler=lambda row: "error" if row.text.strip() else "skip",
                ),
                convert_options=pacsv.ConvertOptions(
                    null_values=sorted({*MISSING, *na}),
                    strings_can_be_null=not texts,
                    column_types=dict.fromkeys(columns, pa.string()) if texts else None,
                    include_columns=columns,
                    decimal_point=decimal_point,
                ),
            )
        except pa.ArrowInvalid as error:
            raise self._parse_error(str(error)) from None

    def _parse_error(self, reason: str) -> TableError:
        """Find the first record of another length than the first: what pyarrow stumbled over."""
        expected = len(self.names)
        try:
            for lines, cells in numbered_records(self._body.decode(), self.separator):
                if len(cells) != expected and "".join(cells).strip():
                    found = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
                    of = "the header" if self.has_header else "the first line"
                    return TableError(
                        f"{self.source}: {self._line(lines)} has {found}; expected {expected},"
                        f" as in {of}."
                    )
        except csv.Error as error:
            reason = str(error)
        return TableError(f"{self.source} cannot be read as CSV: {reason.splitlines()[0]}.")

    def _look_closer(
        self, name: str, column: pa.ChunkedArray, marks: Marks, na: Sequence[str]
    ) -> pa.ChunkedArray | str:
        """Look at a column that pyarrow took for text: it gives up on all of it for one cell.

        A cell that is no number, though at least half of the column's filled cells are, is an
        error.
        """
        cells = without(pc.utf8_trim_whitespace(column), {*MISSING, *na})
        filled = len(cells) - cells.null_count
        numbers = matches(cells, marks.pattern)
        if count(numbers) == filled:
            return marks.to_numbers(cells)
        lower = pc.utf8_lower(cells)
        if count(matches(lower, "true|false")) == filled:
            return pc.cast(pc.equal(lower, "true"), pa.float64())
        if count(matches(cells, ANY_DATE)) == filled:
            return "dates"
        record = pc.index(pc.fill_null(numbers, True), False).as_py()
        word = cells[record].as_py()
        # Numbers with the other decimal mark count too: better an error than columns lost.
        if 2 * count(matches(cells, ANY_NUMBER)) < filled:
            return f"text (such as {word!r})"
        advice = self._advice(record, word, marks)
        if not advice:
            advice = ", as most of the column is; fix the cell or leave the column out"
        raise TableError(
            f"{self.source}: {self.place(record)}, column {name!r}: {word!r} is not a number"
            f"{advice}."
        )

    def _advice(self, record: int, word: str, marks: Marks) -> str:
        """Say how a word that is no number could become one; empty if it is only a word."""
        if record == 0 and not self.has_header:
            return "; if this line names the columns, pass --header"
        return marks.why_not(word)

    def _stray_word(self, name: str, stray: Stray, marks: Marks, *, asked_for: bool) -> TableError:
        word = stray.word
        advice = self._advice(stray.record, word, marks) if stray.expected == "a number" else ""
        if not advice:
            why = "" if asked_for else ", as most of the column is"
            kind = "" if asked_for else f", or --kind {name}=category if it is a level"
            advice = f'{why}; fix the cell, or pass --na "{word}" if it marks a missing cell{kind}'
        return TableError(
            f"{self.source}: {self.place(stray.record)}, column {name!r}: {word!r} is not"
            f" {stray.expected}{advice}."
        )


def _are_names(words: Sequence[str], first: Sequence[str]) -> bool:
    """Tell whether the words of a comment above the first record may name its columns."""
    return len(words) == len(first) > 1 and not any(map(is_number, words))


def _check_quotes(data: bytes, source: str, separator: str) -> None:
    """Refuse an open quote, which would swallow the rest of the file without a word."""
    if data.count(b'"') % 2 == 0:
        return
    line = 1
    try:
        for lines, _ in numbered_records(data.decode(), separator, strict=True):
            line = lines.stop
    except csv.Error as error:
        # Other complaints of a strict reader, such as text after a quote, are none of ours.
        if "unexpected end of data" in str(error) or "field larger" in str(error):
            raise TableError(
                f"{source}: line {line} opens a quote that is never closed."
            ) from None
