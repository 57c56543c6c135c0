"""``rnade fit``: a table in, a model file out."""

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rnade.checks import unknown_name
from rnade.cli import options
from rnade.cli.files import FileSet, fit_files, is_too_large, names_several
from rnade.cli.kinds import parse_kinds
from rnade.cli.reading import kinds_to_fit, numbers_to_fit
from rnade.cli.settings import DEFAULTS, Setting, declared_settings, value_of
from rnade.cli.terminal import counted, note, print_json, shows_progress

if TYPE_CHECKING:
    from rnade.columns import Schema
    from rnade.tables import Frame, Table

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
# Those that take tables with columns of any kind.
_OF_KINDS = ("rnade", "fvbn")
SETTINGS: Mapping[str, Mapping[str, Setting]] = declared_settings(ESTIMATORS)


def default_output(data: str) -> Path:
    """Name a model file in the current folder after the data.

    >>> default_output("data/wine.csv.gz").name, default_output("-").name
    ('wine.rnade', 'model.rnade')
    >>> default_output("trips/*.parquet").name
    'trips.rnade'
    """
    if names_several(data):
        # Of a pattern, the last folder that it names in full.
        pattern = Path(f"{re.split(r'[*?[]', data)[0]}*")
        folder = Path(data) if Path(data).is_dir() else pattern.parent
        return Path(f"{folder.name or 'model'}.rnade")
    name = "model" if data == "-" else re.sub(r"(?i)\.gz$", "", Path(data).name)
    return Path(f"{Path(name).stem}.rnade")


@dataclass(frozen=True)
class Choice:
    """Which model is fitted: a group of options."""

    model: Annotated[
        str,
        typer.Option(
            metavar="CHOICE",
            help="rnade, or a baseline: fvbn (untied networks); for real-valued columns gaussian,"
            " mog (mixture of Gaussians), mfa (of factor analysers); nade and fvsbn are for binary"
            " columns.",
        ),
    ] = "rnade"
    ensemble: Annotated[
        bool | None,
        typer.Option(
            "--ensemble/--no-ensemble",
            help="Average several models, or train one only. By default a small bank of models is"
            " trained and averaged, which needs no tuning.",
            show_default=False,
        ),
    ] = None
    search: Annotated[
        bool,
        typer.Option(
            "--search",
            help="Search over a grid of components, learning rates and weight decays by"
            " cross-validation; average the best models, or keep one with --no-ensemble.",
        ),
    ] = False


def fit(
    data: options.Data,
    *,
    output: Annotated[
        str | None,
        options.output(
            "The model file; by default named after DATA, with .rnade, in this folder."
        ),
    ] = None,
    choice: Choice,
    use: options.Use,
    reading: options.Reading,
    result: options.Output,
    **settings: Any,
) -> None:
    """Fit a model to a table and save it.

    Columns may hold numbers, categories, true and false, and dates, and cells may be missing; what
    each column holds is found by its type, or given by --kind. Constant columns, row numbers, ids
    and free text are left out, and named; --columns chooses the columns instead. Models other than
    rnade and fvbn take numeric columns only.

    DATA may also be a folder, or a quoted pattern such as 'data/*.parquet', of files with the same
    columns. Files that do not fit into --memory are streamed.
    """
    from rnade.tables import check_destination

    path = Path(output) if output is not None else default_output(data)
    check_destination(path, force=result.force, inputs=[data])
    from rnade.parallel import rank, ranks

    with ranks():
        first = rank() == 0
        quiet = result.quiet or not first
        too_large = choice.model == "rnade" and is_too_large(data, settings.get("memory"))
        several = names_several(data) or too_large
        how = fitted_files if several else fitted
        estimator, table = how(data, choice, settings, use, reading, quiet=quiet)
        if first:
            estimator.save(path, overwrite=result.force)
            _summarise(estimator, table, path, quiet=quiet, as_json=result.as_json)


def fitted_files(
    data: str,
    choice: Choice,
    settings: Mapping[str, Any],
    use: options.Use,
    reading: options.Reading,
    *,
    quiet: bool,
) -> tuple[Any, FileSet]:
    """Fit a model to several files, or to one that is not to be read at once; give both."""
    if choice.model != "rnade" or choice.search:
        raise ValueError(
            "Several files, and those larger than --memory, are for --model rnade, without"
            " --search."
        )
    estimator = _make(choice, _settings(choice.model, settings), quiet=quiet)
    table = fit_files(estimator, data, use, reading, quiet=quiet)
    return _with_origin(estimator, table), table


def fitted(
    data: str,
    choice: Choice,
    settings: Mapping[str, Any],
    use: options.Use,
    reading: options.Reading,
    *,
    quiet: bool,
) -> "tuple[Any, Table | Frame]":
    """Read a table and fit a model to it, as the options of `fit` say; give both."""
    from rnade.exceptions import TableWarning

    model, search = choice.model, choice.search
    chosen = _settings(model, settings)
    if model != "rnade" and (search or choice.ensemble is not None):
        raise ValueError(f"--search and --ensemble are options for --model rnade, not {model}.")
    kinds = parse_kinds(use.kind or ())
    if model not in _OF_KINDS and kinds != {}:
        raise ValueError(f"--kind is an option for --model rnade or fvbn, not {model}.")
    table: Table | Frame
    if model in _OF_KINDS and kinds is not None:
        table, schema, more = kinds_to_fit(data, reading, use, kinds, quiet=quiet)
        _check_settings(schema, chosen, search=search)
        chosen |= more
        if search:  # which takes no column that is to be left out
            table = replace(table, cells=table.cells.select(schema.names))
    else:
        table = numbers_to_fit(data, reading, use, of_bits=model in _BINARY, quiet=quiet)
        if model in _BINARY and chosen["binarize"] is None:
            _check_binary(table, model)
        if model in _OF_KINDS:
            chosen["columns"] = "real"
    estimator = _make(choice, chosen, quiet=quiet)
    with warnings.catch_warnings():
        # The notes of the schema, which are told already.
        warnings.simplefilter("ignore", TableWarning)
        estimator.fit(table.to_arrow(), sample_weight=table.weights)
    if search:
        note(f"best settings: {estimator.best_params_}", quiet=quiet)
        estimator = estimator.best_estimator_
    return _with_origin(estimator, table), table


def _with_origin(estimator: Any, table: "Table | Frame | FileSet") -> Any:
    estimator.origin_ = {
        "source": Path(table.source).name,
        "left_out": dict(table.left_out),
        "dropped_rows": table.dropped_rows,
    }
    return estimator


def _check_settings(schema: "Schema", settings: Mapping[str, Any], *, search: bool) -> None:
    """Refuse what only complete real-valued columns can have."""
    recipe = settings.get("recipe", "modern")
    given = "--search" if search else f"--recipe {recipe}" if recipe != "modern" else ""
    if given and not schema.is_plain:
        name, kind, _ = next(
            described
            for described, column in zip(schema.describe(), schema.columns, strict=False)
            if column.kind != "real" or column.atoms or column.missing
        )
        raise ValueError(
            f"{given} is for tables of complete real-valued columns; column {name!r} is not one"
            f" ({kind}). Leave {given.split()[0]} out, or pass --kind real."
        )


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


def _make(choice: Choice, settings: Mapping[str, Any], *, quiet: bool) -> Any:
    import rnade

    verbose = int(shows_progress(quiet=quiet))
    alone = {"ensemble": None} if choice.ensemble is False else {}
    estimator = getattr(rnade, ESTIMATORS[choice.model])(**settings, **alone, verbose=verbose)
    if not choice.search:
        return estimator
    from rnade.estimators.search import DEFAULT_GRID

    return rnade.RNADESearchCV(
        estimator.set_params(checkpoint=None),
        {name: values for name, values in DEFAULT_GRID.items() if name not in settings},
        refit=True if choice.ensemble is False else "ensemble",
        halving=True,
        checkpoint=settings.get("checkpoint"),
        random_state=settings.get("random_state"),
        verbose=verbose,
    )


def _summarise(
    estimator: Any, table: "Table | Frame | FileSet", path: Path, *, quiet: bool, as_json: bool
) -> None:
    held_out = estimator.held_out_score()
    kind = type(estimator).__name__
    columns = [str(name) for name in estimator.feature_names_in_]
    schema = getattr(estimator, "schema_", None)
    if as_json:
        print_json(
            {
                "model": str(path),
                "class": kind,
                "n_rows": table.n_rows,
                "dropped_rows": table.dropped_rows,
                "columns": columns,
                **({} if schema is None else {"kinds": kinds_of(schema)}),
                "left_out": table.left_out,
                "held_out": vars(held_out),
                "epochs": estimator.history_[-1]["epoch"],
                "best_epoch": estimator.best_epoch_,
                "seconds": estimator.fit_seconds_,
            }
        )
    elif not quiet:
        size = f"{counted(table.n_rows, 'row')} and {counted(len(columns), 'column')}"
        print(f"{kind} of {size}, saved as {path}")
        print(held_out_line(held_out, again=hasattr(estimator, "retrain_history_")))
        print(f"trained for {estimator.fit_seconds_:.1f} s")


def kinds_of(schema: "Schema") -> list[dict[str, str]]:
    """Give what the columns of a model hold, for JSON."""
    keys = ("name", "kind", "details")
    return [
        dict(zip(keys, described, strict=True))
        for described in schema.describe()
        if described[1] != "left out"
    ]


def held_out_line(score: Any, *, again: bool) -> str:
    """Write the mean log-likelihood of held-out rows with its standard error, for a person.

    `again` says that the model was trained on them too, after it had scored them.
    """
    then = "; before it was trained again on all rows" * again
    return f"held-out log-likelihood: {nats(score)}{then}"


def nats(score: Any) -> str:
    """Write a mean log-likelihood with its standard error, for a person."""
    error = f" ± {score.standard_error:.3f}" if score.n_rows > 1 else ""
    return f"{score.mean:.3f}{error} nats per row ({counted(score.n_rows, 'row')})"


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
