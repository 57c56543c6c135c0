"""``rnade fit``: a table in, a model file out."""

import inspect
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rnade.cli.options import (
    Columns,
    Data,
    Force,
    Header,
    Json,
    Missing,
    MissingCells,
    Quiet,
    Separator,
    split_names,
)
from rnade.cli.terminal import note, print_json

if TYPE_CHECKING:
    from rnade.tables import Table

# Left-out columns named one by one; of more, the number is said.
_MOST_NOTES = 20


class Model(StrEnum):
    """Which estimator."""

    rnade = "rnade"
    nade = "nade"
    fvsbn = "fvsbn"
    fvbn = "fvbn"
    gaussian = "gaussian"
    mog = "mog"
    mfa = "mfa"


def estimators() -> dict[str, type]:
    """Give the estimators by the names that ``--model`` takes."""
    import rnade

    return {
        "rnade": rnade.RNADE,
        "nade": rnade.NADE,
        "fvsbn": rnade.FVSBN,
        "fvbn": rnade.FVBN,
        "gaussian": rnade.Gaussian,
        "mog": rnade.MixtureOfGaussians,
        "mfa": rnade.MixtureOfFactorAnalyzers,
    }


def default_output(data: str) -> Path:
    """Name a model file in the current folder after the data.

    >>> default_output("data/wine.csv.gz").name, default_output("-").name
    ('wine.rnade', 'model.rnade')
    """
    if data == "-":
        return Path("model.rnade")
    name = Path(data).name
    if name.lower().endswith(".gz"):
        name = name[:-3]
    return Path(Path(name).stem + ".rnade")


def fit(
    data: Data,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="The model file; by default named after DATA, with .rnade, in this folder.",
        ),
    ] = None,
    model: Annotated[
        Model,
        typer.Option(
            help="rnade, or a baseline for real-valued columns: gaussian, mog (mixture of"
            " Gaussians), mfa (of factor analysers), fvbn (untied networks); nade and fvsbn are"
            " for binary columns."
        ),
    ] = Model.rnade,
    search: Annotated[
        bool | None,
        typer.Option(
            "--search/--no-search",
            help="Search over a grid of components, rates and decays by cross-validation and"
            " average the best; or train one model only. By default a small bank of models is"
            " trained and averaged, which needs no tuning.",
            show_default=False,
        ),
    ] = None,
    columns: Columns = None,
    exclude: Annotated[
        str | None, typer.Option(help="Names of columns not to use, with commas between.")
    ] = None,
    separator: Separator = None,
    header: Header = None,
    missing: MissingCells = Missing.error,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Fit a model to the numeric columns of a table and save it."""
    from rnade.tables import check_destination, read_table

    path = Path(output) if output is not None else default_output(data)
    check_destination(path, force=force)
    estimator = _make(model, settings or {}, search, quiet=quiet)
    table = read_table(
        data,
        split_names(columns),
        separator,
        header,
        missing.value,
        exclude=split_names(exclude) or (),
        # The density of a constant is infinite, but a bit that never changes is a bit.
        constant="keep" if model in (Model.nade, Model.fvsbn) else "leave out",
    )
    _say_what_is_left_out(table, quiet=quiet)
    estimator.fit(table.to_arrow())
    if search:
        note(f"best settings: {estimator.best_params_}", quiet=quiet)
        estimator = estimator.best_estimator_
    estimator.origin_ = {
        "source": Path(table.source).name,
        "left_out": dict(table.left_out),
        "dropped_rows": table.dropped_rows,
    }
    estimator.save(path, overwrite=force)
    _summarise(estimator, table, path, quiet=quiet, as_json=as_json)


def _make(model: Model, settings: Mapping[str, Any], search: bool | None, *, quiet: bool) -> Any:
    from rnade import RNADESearchCV
    from rnade.estimators.search import DEFAULT_GRID

    if search is not None and model is not Model.rnade:
        raise ValueError(f"--search and --no-search are for --model rnade, not {model.value}.")
    estimator = estimators()[model.value]
    known = inspect.signature(estimator).parameters
    for name in settings:
        if name not in known:
            flag = name.replace("_", "-")
            raise ValueError(f"--{flag} is no setting of --model {model.value}.")
    verbose = int(sys.stderr.isatty() and not quiet)
    if search is False:
        return estimator(**settings, ensemble=None, verbose=verbose)
    one = estimator(**settings, verbose=verbose)
    if not search:
        return one
    grid = {name: v for name, v in DEFAULT_GRID.items() if name not in settings}
    return RNADESearchCV(
        one.set_params(checkpoint=None),
        grid,
        refit="ensemble",
        halving=True,
        checkpoint=settings.get("checkpoint"),
        random_state=settings.get("random_state"),
        verbose=verbose,
    )


def _say_what_is_left_out(table: "Table", *, quiet: bool) -> None:
    from rnade.tables import NOT_CHOSEN

    reasons = [(name, why) for name, why in table.left_out.items() if why != NOT_CHOSEN]
    for name, why in reasons[:_MOST_NOTES]:
        note(f"left out column {name!r}: {why}", quiet=quiet)
    if len(reasons) > _MOST_NOTES:
        note(f"left out {len(reasons) - _MOST_NOTES} more columns", quiet=quiet)
    say_dropped_rows(table, quiet=quiet)


def say_dropped_rows(table: "Table", *, quiet: bool) -> None:
    """Say how many rows were left out for a missing cell, if any."""
    if table.dropped_rows:
        n_rows = len(table.values) + table.dropped_rows
        note(
            f"left out {table.dropped_rows} of {n_rows} rows, which have a missing cell",
            quiet=quiet,
        )


def _summarise(estimator: Any, table: "Table", path: Path, *, quiet: bool, as_json: bool) -> None:
    held_out = estimator.held_out_score()
    kind = type(estimator).__name__
    n_rows, n_columns = table.values.shape
    if as_json:
        print_json(
            {
                "model": str(path),
                "class": kind,
                "n_rows": n_rows,
                "dropped_rows": table.dropped_rows,
                "columns": list(table.names),
                "left_out": table.left_out,
                "held_out": {
                    "mean": held_out.mean,
                    "standard_error": held_out.standard_error,
                    "n_rows": held_out.n_rows,
                },
                "epochs": estimator.history_[-1]["epoch"],
                "best_epoch": estimator.best_epoch_,
                "seconds": estimator.fit_seconds_,
            }
        )
    elif not quiet:
        print(f"{kind} of {n_rows} rows and {n_columns} columns, saved as {path}")
        print(f"held-out log-likelihood: {nats(held_out)}")
        print(f"trained for {estimator.fit_seconds_:.1f} s")


def nats(score: Any) -> str:
    """Write a mean log-likelihood with its standard error, for a person."""
    error = f" ± {score.standard_error:.3f}" if score.n_rows > 1 else ""
    rows = "row" if score.n_rows == 1 else "rows"
    return f"{score.mean:.3f}{error} nats per row ({score.n_rows} {rows})"
