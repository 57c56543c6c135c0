"""Options that several commands share, one by one or as a group."""

import csv
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any

import typer


def split_names(text: str | None) -> list[str] | None:
    """Split names at commas; a name with a comma in it stands in double quotes."""
    if text is None:
        return None
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]


class Missing(StrEnum):
    """What to do with missing cells."""

    error = "error"
    drop = "drop"
    ignore = "ignore"
    informative = "informative"


def output(help_text: str) -> Any:
    """Give the option that names the file to write."""
    return typer.Option("--output", "-o", metavar="FILE", help=help_text, show_default=False)


Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="CSV, Parquet, Feather or Arrow file, also gzipped; - is standard input.",
    ),
]
ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A file that rnade fit wrote.")]
TableFile = Annotated[
    str, output("A file ending in .csv, .parquet or .feather; by default standard output.")
]
Weight = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="The column that holds the weight of each row, 0 or more."
    ),
]
Device = Annotated[str, typer.Option(metavar="[auto|cpu|cuda]", help="Where to compute.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress and no notes; warnings and errors only.")
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--random-state", "--seed", help="Seed of draws; the same seed gives the same draws."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@dataclass(frozen=True)
class Writing:
    """What is said, and whether a file may be replaced: a group of options."""

    force: Annotated[
        bool, typer.Option("--force", help="Overwrite a file that exists already.")
    ] = False
    quiet: Quiet = False


@dataclass(frozen=True)
class Output(Writing):
    """How a result is given: a group of options."""

    as_json: Json = False


@dataclass(frozen=True)
class Use:
    """Which columns of a table are fitted, and as what: a group of options."""

    exclude: Annotated[
        Any,
        typer.Option(
            parser=split_names,
            metavar="NAMES",
            help="Comma-separated names of columns not to use.",
        ),
    ] = None
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=KIND",
            help="What a column holds, if its type does not say; may be given again for others."
            " Kinds: real, integer, category, ordinal, boolean, date, leave-out. --kind real"
            " alone takes every column as real numbers, as published log-likelihoods do: then"
            " text and dates are left out. (Only of RNADE and FVBN models.)",
        ),
    ] = None
    weight: Weight = None


@dataclass(frozen=True)
class Layout:
    """How a file is written, and which of its columns are meant: a group of options."""

    columns: Annotated[
        Any,
        typer.Option(
            parser=split_names,
            metavar="NAMES",
            help="Comma-separated names of the columns to use; in a file without a header also"
            " positions, counted from 1.",
        ),
    ] = None
    separator: Annotated[
        str | None,
        typer.Option(
            metavar="CHOICE",
            help="Between the cells of a CSV file. By default it is detected. Choices: tab, comma,"
            " semicolon, pipe, blank, or any character.",
        ),
    ] = None
    decimal: Annotated[
        str | None,
        typer.Option(
            metavar="[.|,]",
            help="The decimal point of a CSV file; the other of the two then marks thousands. By"
            " default it is detected.",
        ),
    ] = None
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether the first line of a CSV file names its columns. By default it is"
            " detected.",
            show_default=False,
        ),
    ] = None
    na: Annotated[
        Any,
        typer.Option(
            parser=split_names,
            metavar="MARKS",
            help='Comma-separated marks of missing cells, such as "-,999", beside empty cells,'
            " NA, NaN and null (and - and ? in columns of numbers).",
        ),
    ] = None

    @property
    def marks(self) -> list[str]:
        """Marks of missing cells."""
        return list(self.na or ())


@dataclass(frozen=True)
class Reading(Layout):
    """How a table is read, as `read_table` takes it: a group of options."""

    missing: Annotated[
        Missing | None,
        typer.Option(
            help="Missing cells: an error; drop their rows; ignore them, so that a row counts by"
            " its other cells; or, to fit, informative: learn which are missing too. By default"
            " rnade and fvbn ignore them, and other models raise an error.",
            show_default=False,
        ),
    ] = None

    def for_numbers(self) -> dict[str, Any]:
        """Give what `read_table` takes: a missing cell is an error, or its row is dropped."""
        missing = self.missing or Missing.error
        if missing not in (Missing.error, Missing.drop):
            raise ValueError(
                f"--missing {missing} is for models fitted by --model rnade or fvbn to a table"
                " with missing cells or columns of several kinds; for this one, choose error or"
                " drop."
            )
        return {**vars(self), "missing": missing, "na": self.marks}

    def for_kinds(self) -> dict[str, Any]:
        """Give what `read_frame` takes."""
        own = {name: value for name, value in vars(self).items() if name != "missing"}
        return {**own, "na": self.marks}


def with_single_options(
    command: Callable[..., None], more: Sequence[inspect.Parameter] = ()
) -> Callable[..., None]:
    """Give a command as typer takes it: each of its dataclasses replaced by its fields.

    `more` are options that stand for the ``**`` parameter of the command.
    """
    options: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for p in inspect.signature(command).parameters.values():
        if is_dataclass(p.annotation):
            groups[p.name] = p.annotation
            options += inspect.signature(groups[p.name]).parameters.values()
        else:
            options += more if p.kind == p.VAR_KEYWORD else [p]

    @wraps(command)
    def flat(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    keywords = [option.replace(kind=option.KEYWORD_ONLY) for option in options]
    flat.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    return flat
