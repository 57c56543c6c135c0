"""Options that several commands share."""

import csv
from enum import StrEnum
from typing import Annotated

import typer


class Missing(StrEnum):
    """What to do with rows that have a missing cell."""

    error = "error"
    drop = "drop"


Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="CSV, Parquet, Feather or Arrow file, also gzipped; - is standard input.",
    ),
]
ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A file that rnade fit wrote.")]
TableFile = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="A file ending in .csv, .parquet or .feather; by default standard output.",
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Comma-separated names of the columns to use; in a file without a header also"
        " positions, counted from 1.",
    ),
]
Weight = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="The column that holds the weight of each row, 0 or more."
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        metavar="CHOICE",
        help="Between the cells of a CSV file. By default it is detected. Choices: tab, comma,"
        " semicolon, pipe, blank, or any character.",
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        metavar="[.|,]",
        help="The decimal point of a CSV file; the other of the two then marks thousands. By"
        " default it is detected.",
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line of a CSV file names its columns. By default it is detected.",
        show_default=False,
    ),
]
MissingCells = Annotated[
    Missing, typer.Option(help="Rows with a missing cell: an error, or left out.")
]
Device = Annotated[str, typer.Option(metavar="[auto|cpu|cuda]", help="Where to compute.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that exists already.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress and no notes; warnings and errors only.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def split_names(text: str | None) -> list[str] | None:
    """Split names at commas; a name with a comma in it stands in double quotes."""
    if text is None:
        return None
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
