"""Tables of results beside the paper's: as Markdown, CSV, HTML and JSON."""

import csv
import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from io import StringIO
from typing import Any

import numpy as np

from rnade.evaluation import mean_score
from rnade.typing import Array


@dataclass(frozen=True)
class Cell:
    """A figure of ours, None where there is no record, and what the paper (or another) has."""

    value: float | None = None
    standard_error: float | None = None
    published: float | None = None
    bold: bool = False

    @staticmethod
    def mean_of(
        values: Sequence[float] | Array, published: float | None = None, *, bold: bool = False
    ) -> "Cell":
        """Mean of independent figures, such as one a fold; one alone has no standard error."""
        mean = mean_score(np.asarray(values, dtype=np.float64))
        error = mean.standard_error if mean.n_rows > 1 else None
        return Cell(mean.mean, error, published, bold)

    @property
    def difference(self) -> float | None:
        """Ours less the published; more is better."""
        if self.value is None or self.published is None:
            return None
        return self.value - self.published


# Cells by row and column, rows in the order in which they are shown.
Cells = dict[str, dict[str, Cell]]


@dataclass(frozen=True)
class ResultTable:
    """Cells by row and column; one that is not there is empty. The note says what figures are."""

    title: str
    note: str
    row_title: str
    columns: Sequence[str]
    cells: Mapping[str, Mapping[str, Cell]]
    decimals: int = 2

    @staticmethod
    def of(
        words: Mapping[str, Any], lines: Mapping[str, Sequence[Cell]], **facts: Any
    ) -> "ResultTable":
        """Lay out lines of cells with the words that an experiment's plan has for their table.

        Words are title, note, row_title and columns; if any, more of the note, decimals, and in
        bold the columns whose highest figure is marked. Lines are from the first column on; facts
        stand for {names} in title and note.
        """
        note = " ".join(words[part] for part in ("note", "more") if part in words)
        columns = words["columns"]
        cells = {row: dict(zip(columns, line, strict=False)) for row, line in lines.items()}
        for column in words.get("bold", ()):
            cells = with_best_bold(cells, column)
        return ResultTable(
            words["title"].format(**facts),
            note.format(**facts),
            words["row_title"],
            columns,
            cells,
            words.get("decimals", 2),
        )

    def cell(self, row: str, column: str) -> Cell:
        """Give a cell, empty where there is none."""
        return self.cells[row].get(column, Cell())

    def lines(self) -> Iterator[tuple[str, list[Cell]]]:
        """Give the rows with a cell for each column."""
        return ((row, [self.cell(row, column) for column in self.columns]) for row in self.cells)


def with_best_bold(cells: Cells, column: str) -> Cells:
    """Mark the highest figure of a column."""
    found = {
        row: cell.value
        for row, line in cells.items()
        if (cell := line.get(column)) is not None and cell.value is not None
    }
    if not found:
        return cells
    best = max(found, key=lambda row: found[row])
    marked = {column: replace(cells[best][column], bold=True)}
    return cells | {best: cells[best] | marked}


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
    for row, cells in table.lines():
        texts = [_text(cell, table.decimals, ("**", "**")) for cell in cells]
        lines.append("| " + " | ".join([row, *texts]) + " |")
    return "\n".join(lines) + "\n"


def to_csv(tables: Sequence[ResultTable]) -> str:
    """Lay out tables with one figure a line, all digits kept."""
    out = StringIO()
    numbers = ("value", "standard_error", "published", "difference")
    names = ("table", "row", "column", *numbers, "bold")
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for table in tables:
        for figures in _figures(table):
            writer.writerow({**figures, "table": table.title, "bold": int(figures["bold"])})
    return out.getvalue()


def to_json(tables: Sequence[ResultTable]) -> list[dict[str, Any]]:
    """Lay out tables as plain JSON values."""
    return [{"title": table.title, "cells": list(_figures(table))} for table in tables]


def _figures(table: ResultTable) -> Iterator[dict[str, Any]]:
    for row, cells in table.lines():
        for column, cell in zip(table.columns, cells, strict=True):
            place = {"row": row, "column": column}
            yield place | asdict(cell) | {"difference": cell.difference}


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
        for row, cells in table.lines():
            texts = [_text(cell, table.decimals, ("<b>", "</b>")) for cell in cells]
            line = "".join(f"<td>{text}</td>" for text in texts)
            parts.append(f"<tr><th>{html.escape(row)}</th>{line}</tr>")
        parts.append("</tbody></table>")
    return "\n".join(parts) + "\n"


_STYLE = (
    "body{font:15px system-ui,sans-serif;margin:2em;max-width:75em}"
    "table{border-collapse:collapse}td,th{padding:.3em .8em;border-bottom:1px solid #ccc}"
    "td{text-align:right;font-variant-numeric:tabular-nums}tbody th{text-align:left}"
)


def _text(cell: Cell, digits: int, bold: tuple[str, str]) -> str:
    """A cell for people: ours, its error, and in brackets the published and the difference."""
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
