"""Tables of results beside the paper's: as Markdown, CSV and HTML."""

import csv
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO


@dataclass(frozen=True)
class Cell:
    """A figure of ours, and what the paper (or another) has.

    Attributes
    ----------
    value : float or None
        Ours, in nats; None where there is no record.
    standard_error : float or None
    published : float or None
    bold : bool
    """

    value: float | None = None
    standard_error: float | None = None
    published: float | None = None
    bold: bool = False

    @property
    def difference(self) -> float | None:
        """Ours less the published; more is better."""
        if self.value is None or self.published is None:
            return None
        return self.value - self.published


@dataclass(frozen=True)
class ResultTable:
    """Cells by row and column.

    Attributes
    ----------
    title : str
    note : str
        What the figures are.
    row_title : str
        What the rows are.
    rows, columns : sequences of str
    cells : mapping of (row, column) to Cell
    decimals : int
    """

    title: str
    note: str
    row_title: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Mapping[tuple[str, str], Cell]
    decimals: int = 2

    def cell(self, row: str, column: str) -> Cell:
        """Give a cell, empty where there is none."""
        return self.cells.get((row, column), Cell())


def to_markdown(table: ResultTable) -> str:
    """Lay out a table for a page of documentation."""
    lines = [
        f"### {table.title}",
        "",
        table.note,
        "",
        "| " + " | ".join([table.row_title, *table.columns]) + " |",
        "| " + " | ".join(["---", *["---:"] * len(table.columns)]) + " |",
    ]
    for row in table.rows:
        cells = [_text(table, row, column, ("**", "**")) for column in table.columns]
        lines.append("| " + " | ".join([row, *cells]) + " |")
    return "\n".join(lines) + "\n"


def to_csv(tables: Sequence[ResultTable]) -> str:
    """Lay out tables with one figure a line, all digits kept."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_CSV_HEADER)
    for table in tables:
        for row in table.rows:
            for column in table.columns:
                cell = table.cell(row, column)
                numbers = [getattr(cell, name) for name in _FIGURES]
                plain = ["" if number is None else repr(number) for number in numbers]
                writer.writerow([table.title, row, column, *plain, int(cell.bold)])
    return out.getvalue()


_FIGURES = ("value", "standard_error", "published", "difference")
_CSV_HEADER = ("table", "row", "column", *_FIGURES, "bold")


def to_html(tables: Sequence[ResultTable], title: str) -> str:
    """Lay out tables as one page that needs nothing else."""
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{html.escape(title)}</h1>",
    ]
    for table in tables:
        head = "".join(f"<th>{html.escape(c)}</th>" for c in (table.row_title, *table.columns))
        parts += [
            f"<h2>{html.escape(table.title)}</h2><p>{html.escape(table.note)}</p>",
            f"<table><thead><tr>{head}</tr></thead><tbody>",
        ]
        for row in table.rows:
            cells = "".join(
                f"<td>{_text(table, row, column, ('<b>', '</b>'))}</td>"
                for column in table.columns
            )
            parts.append(f"<tr><th>{html.escape(row)}</th>{cells}</tr>")
        parts.append("</tbody></table>")
    return "\n".join(parts) + "\n"


_STYLE = (
    "body{font:15px system-ui,sans-serif;margin:2em;max-width:75em}"
    "table{border-collapse:collapse}td,th{padding:.3em .8em;border-bottom:1px solid #ccc}"
    "td{text-align:right;font-variant-numeric:tabular-nums}tbody th{text-align:left}"
)


def _text(table: ResultTable, row: str, column: str, bold: tuple[str, str]) -> str:
    """A cell for people: ours, its error, and in brackets the published and the difference."""
    cell, digits = table.cell(row, column), table.decimals
    if cell.value is None:
        ours = "n/a"
    else:
        ours = f"{cell.value:.{digits}f}"
        ours = f"{bold[0]}{ours}{bold[1]}" if cell.bold else ours
        if cell.standard_error is not None:
            ours += f" ± {cell.standard_error:.{digits}f}"
    if cell.published is None:
        return ours
    difference = "" if cell.difference is None else f", {cell.difference:+.{digits}f}"
    return f"{ours} ({cell.published:.{digits}f}{difference})"
