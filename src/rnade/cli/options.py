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
    typer.Argument(metavar="DATA", help="CSV or Parquet file, also gzipped; - is standard input."),
]
ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A file that rnade fit wrote.")]
TableFile = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", help="A file ending in .csv or .parquet, in place of standard output."
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        help="Names of the columns to use, with commas between; in a file without a header also"
        " positions, counted from 1."
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        help="Between the cells of a CSV file: a character, or tab, comma, semicolon, pipe, blank."
        " Found out by default."
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line of a CSV file names its columns. Found out by default.",
        show_default=False,
    ),
]
MissingCells = Annotated[
    Missing, typer.Option(help="Rows with a missing cell: an error, or left out.")
]
Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu or cuda.")]
Force = Annotated[bool, typer.Option("--force", help="Write over a file that exists already.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress and no notes; warnings and errors only.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def split_names(text: str | None) -> list[str] | None:
    """Split names at commas; a name with a comma in it stands in double quotes."""
    if text is None:
        return None
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
