"""The typer app. Nothing heavy is imported before a command needs it, so that help is quick."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rnade.cli.fit import estimators, fit
from rnade.cli.info import info
from rnade.cli.reproduce import reproduce
from rnade.cli.sample import sample
from rnade.cli.score import score
from rnade.cli.settings import with_settings
from rnade.cli.terminal import run


class _Commands(TyperGroup):
    """Commands of which ``fit`` gets its options only when it is called.

    They are made from the estimators, and importing those takes seconds.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[:1] == ["fit"]:
            alone = typer.Typer(add_completion=False)
            alone.command("fit")(with_settings(fit, estimators()))
            self.commands["fit"] = typer.main.get_command(alone)
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=_Commands, add_completion=False, no_args_is_help=True)


@app.command("fit", help=fit.__doc__)
def _fit_without_options() -> None:
    """Stand in for ``fit`` in the list of commands."""


app.command("score")(score)
app.command("sample")(sample)
app.command("info")(info)
app.command("reproduce")(reproduce)


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
    """Exact densities for tables of numbers: fit a model, score rows, draw new ones."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code: 0, 2 for bad input, 130 for Ctrl-C."""
    return run(app, list(sys.argv[1:] if arguments is None else arguments))
