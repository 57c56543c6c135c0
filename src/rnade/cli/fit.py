"""``rnade fit``: a table in, a model file out."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rnade.checks import unknown_name
from rnade.cli import options
from rnade.cli.settings import DEFAULTS, Setting, declared_settings, value_of
from rnade.cli.terminal import counted, note, print_json

if TYPE_CHECKING:
    from rnade.tables import Table

# Left-out columns named one by one; of more, the number is told.
_MOST_NOTES = 20


# The estimators that ``--model`` names; those of binary columns keep a column that never changes.
ESTIMATORS = {
    "rnade": "RNADE",
    "nade": "NADE",
    "fvsbn": "FVSBN",
    "fvbn": "FVBN",
    "gaussian": "Gaussian",
    "mog": "MixtureOfGaussians",
    "mfa": "MixtureOfFactorAnalyzers",
}
_BINARY = ("nade", "fvsbn")
SETTINGS: Mapping[str, Mapping[str, Setting]] = declared_settings(ESTIMATORS)


def default_output(data: str) -> Path:
    """Name a model file in the current folder after the data.

    >>> default_output("data/wine.csv.gz").name, default_output("-").name
    ('wine.rnade', 'model.rnade')
    """
    name = "model" if data == "-" else re.sub(r"(?i)\.gz$", "", Path(data).name)
    return Path(f"{Path(name).stem}.rnade")


def fit(
    data: options.Data,
    *,
    output: Annotated[
        str | None,
        options.output(
            "The model file; by default named after DATA, with .rnade, in this folder."
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            metavar="CHOICE",
            help="rnade, or a baseline for real-valued columns: gaussian, mog (mixture of"
            " Gaussians), mfa (of factor analysers), fvbn (untied networks); nade and fvsbn are"
            " for binary columns.",
        ),
    ] = "rnade",
    ensemble: Annotated[
        bool | None,
        typer.Option(
            "--ensemble/--no-ensemble",
            help="Average several models, or train one only. By default a small bank of models is"
            " trained and averaged, which needs no tuning.",
            show_default=False,
        ),
    ] = None,
    search: Annotated[
        bool,
        typer.Option(
            "--search",
            help="Search over a grid of components, learning rates and weight decays by"
            " cross-validation; average the best models, or keep one with --no-ensemble.",
        ),
    ] = False,
    exclude: Annotated[
        Any,
        typer.Option(
            parser=options.split_names,
            metavar="NAMES",
            help="Comma-separated names of columns not to use.",
        ),
    ] = None,
    weight: options.Weight = None,
    reading: options.Reading,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
    **settings: Any,
) -> None:
    """Fit a model to the numeric columns of a table and save it.

    Text, dates, constant columns, row numbers and ids are left out, and named; --columns chooses
    the columns instead.
    """
    from rnade.tables import check_destination, read_table

    path = Path(output) if output is not None else default_output(data)
    check_destination(path, force=force, inputs=[data])
    chosen = _settings(model, settings)
    if model != "rnade" and (search or ensemble is not None):
        raise ValueError(f"--search and --ensemble are options for --model rnade, not {model}.")
    table = read_table(
        data,
        **vars(reading),
        exclude=exclude or (),
        weight=weight,
        # The density of a constant is infinite, but a bit that never changes is a bit.
        constant="keep" if model in _BINARY else "leave out",
        ids="leave out",
    )
    _say_what_is_left_out(table, quiet=quiet)
    if model in _BINARY and chosen["binarize"] is None:
        _check_binary(table, model)
    estimator = _make(model, chosen, ensemble=ensemble, search=search, quiet=quiet)
    estimator.fit(table.to_arrow(), sample_weight=table.weights)
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


def _settings(model: str, words: Mapping[str, Any]) -> dict[str, Any]:
    """Give the estimator's parameters, if all that was given is one of them."""
    given = {name: value_of(str(word)) for name, word in words.items() if word is not None}
    if model not in SETTINGS:
        raise unknown_name(model, list(SETTINGS), "--model")
    known = SETTINGS[model]
    for name in given:
        if name not in known:
            flag = name.replace("_", "-")
            raise ValueError(f"--{flag} is not an option for --model {model}.")
    return {**{name: value for name, value in DEFAULTS.items() if name in known}, **given}


def _make(
    model: str, settings: Mapping[str, Any], *, ensemble: bool | None, search: bool, quiet: bool
) -> Any:
    import rnade

    verbose = int(sys.stderr.isatty() and not quiet)
    alone = {"ensemble": None} if ensemble is False else {}
    estimator = getattr(rnade, ESTIMATORS[model])(**settings, **alone, verbose=verbose)
    if not search:
        return estimator
    from rnade.estimators.search import DEFAULT_GRID

    return rnade.RNADESearchCV(
        estimator.set_params(checkpoint=None),
        {name: values for name, values in DEFAULT_GRID.items() if name not in settings},
        refit=True if ensemble is False else "ensemble",
        halving=True,
        checkpoint=settings.get("checkpoint"),
        random_state=settings.get("random_state"),
        verbose=verbose,
    )


def _check_binary(table: "Table", model: str) -> None:
    """Refuse values other than 0 and 1, which a threshold would turn into bits unseen."""
    from rnade.exceptions import TableError

    wrong = ((table.values != 0) & (table.values != 1)).nonzero()
    if len(wrong[0]):
        row, d = (int(at[0]) for at in wrong)
        raise TableError(
            f"{table.source}: --model {model} is for columns of 0 and 1, but column"
            f" {table.names[d]!r} holds {table.values[row, d]:g} in row {table.rows[row]}. Pass"
            " --binarize 0 to make values above 0 a 1 and others a 0, or another threshold."
        )


def _say_what_is_left_out(table: "Table", *, quiet: bool) -> None:
    from rnade.tables import NOT_CHOSEN

    reasons = [(name, why) for name, why in table.left_out.items() if why != NOT_CHOSEN]
    for name, why in reasons[:_MOST_NOTES]:
        note(f"left out column {name!r}: {why}", quiet=quiet)
    if len(reasons) > _MOST_NOTES:
        more = counted(len(reasons) - _MOST_NOTES, "more column")
        note(f"left out {more}", quiet=quiet)
    say_notes(table, quiet=quiet)


def say_notes(table: "Table", *, quiet: bool) -> None:
    """Say what to check about the columns, and how many rows were left out."""
    for text in table.notes[:_MOST_NOTES]:
        note(text, quiet=quiet)
    if table.dropped_rows:
        rows = counted(len(table.values) + table.dropped_rows, "row")
        note(f"left out {table.dropped_rows} of {rows} for a missing cell", quiet=quiet)


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
                "held_out": vars(held_out),
                "epochs": estimator.history_[-1]["epoch"],
                "best_epoch": estimator.best_epoch_,
                "seconds": estimator.fit_seconds_,
            }
        )
    elif not quiet:
        size = f"{counted(n_rows, 'row')} and {counted(n_columns, 'column')}"
        print(f"{kind} of {size}, saved as {path}")
        print(f"held-out log-likelihood: {nats(held_out)}")
        print(f"trained for {estimator.fit_seconds_:.1f} s")


def nats(score: Any) -> str:
    """Write a mean log-likelihood with its standard error, for a person."""
    error = f" ± {score.standard_error:.3f}" if score.n_rows > 1 else ""
    return f"{score.mean:.3f}{error} nats per row ({counted(score.n_rows, 'row')})"
