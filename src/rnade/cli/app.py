"""The typer app. Nothing heavy is imported before a command needs it, so that help is quick."""

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from rnade.cli.ask import ask
from rnade.cli.compare import compare
from rnade.cli.explore import explore
from rnade.cli.fit import SETTINGS, fit
from rnade.cli.impute import impute
from rnade.cli.info import info
from rnade.cli.options import with_single_options
from rnade.cli.outliers import OFFERED, outliers
from rnade.cli.report import report
from rnade.cli.reproduce import reproduce
from rnade.cli.sample import sample
from rnade.cli.score import score
from rnade.cli.settings import settings_parameters
from rnade.cli.terminal import run


def _examples(*commands: str) -> str:
    """Write the end of a help text; typer shows a paragraph as a line."""
    return "\n\n".join(["Examples:", *commands])


app = typer.Typer(
    add_completion=False,
    epilog=_examples("rnade fit wine.csv", "rnade report wine.rnade wine.csv", "rnade fit --help"),
)


def _add(
    command: Callable[..., Any], *examples: str, more: Sequence[inspect.Parameter] = ()
) -> None:
    """Add a command to the app, its help from its docstring, with examples."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    # Typer keeps the line breaks within paragraphs, save in the first.
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    app.command(help=text, epilog=_examples(*examples))(with_single_options(command, more))


_add(
    fit,
    "rnade fit wine.csv",
    "rnade fit sales.csv --exclude year --weight n --missing drop -o s.rnade",
    'rnade fit houses.csv --kind zip=category --na "-,999"',
    "rnade fit 'trips/*.parquet' --memory 2GB",
    "rnade fit bits.parquet --model nade --n-hidden 100 --epochs 50",
    more=settings_parameters(SETTINGS),
)
_add(
    outliers,
    "rnade outliers wine.csv",
    "rnade outliers people.csv --id name --level 0.01 -o odd.csv",
    more=settings_parameters(OFFERED),
)
_add(
    score,
    "rnade score wine.rnade new.csv",
    "rnade score wine.rnade new.csv --level 0.01 --id bottle",
    "rnade score wine.rnade new.csv -o scores.parquet",
    "rnade score wine.rnade new.csv --json",
    "rnade score trips.rnade 'trips/*.parquet' -o scores/",
)
_add(
    sample,
    "rnade sample wine.rnade -n 1000 -o synthetic.csv",
    "rnade sample wine.rnade -n 5 --random-state 0",
    "rnade sample people.rnade -n 100 --given age=40 --given income=1000..2000",
)
_add(
    ask,
    "rnade ask people.rnade income",
    "rnade ask people.rnade 'income | age=40, sex=F'",
    "rnade ask people.rnade 'sex | born=1990-01-01..1999-12-31' --json",
)
_add(
    impute,
    "rnade impute wine.rnade gaps.csv -o filled.csv",
    "rnade impute wine.rnade gaps.csv --draws 5 --seed 0 -o draws.parquet",
)
_add(
    report,
    "rnade report wine.rnade wine.csv -o report.html",
    "rnade report wine.rnade new.csv --json",
    "rnade report wine.rnade wine.csv --explore explore.html",
)
_add(
    explore,
    "rnade explore wine.rnade -o page.html",
    "rnade explore wine.rnade --rows wine.csv --title 'Red wines'",
)
_add(
    compare,
    "rnade compare a.rnade b.rnade test.csv",
    "rnade compare a.rnade b.rnade test.csv --json",
)
_add(info, "rnade info wine.rnade", "rnade info wine.rnade --card > CARD.md")
_add(reproduce, "rnade reproduce table1 --quick", "rnade reproduce table2 --report-only")


def _print_version(asked: bool) -> None:
    if asked:
        from rnade import __version__

        print(f"rnade {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (or RNADE_DEBUG=1).")
    ] = False,
) -> None:
    """Exact densities for tables: score rows, draw new ones, fill missing cells, ask questions."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code: 0, 2 for bad input, 130 for Ctrl-C.

    Without arguments it shows the help.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    return run(app, given or ["--help"])
