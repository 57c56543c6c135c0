"""``rnade fit``: a table in, a model file out."""

import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rnade.checks import unknown_name
from rnade.cli import options
from rnade.cli.files import FileSet, fit_files, is_too_large, names_several
from rnade.cli.kinds import MOST_NOTES, in_our_words, infer, parse_kinds, tell_kinds
from rnade.cli.settings import DEFAULTS, Setting, declared_settings, value_of
from rnade.cli.terminal import counted, note, print_json

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
            help="rnade, or a baseline: fvbn (untied networks); for real-valued columns gaussian,"
            " mog (mixture of Gaussians), mfa (of factor analysers); nade and fvsbn are for binary"
            " columns.",
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
    exclude: options.Exclude = None,
    kind: options.Kind = None,
    weight: options.Weight = None,
    reading: options.Reading,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
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
    check_destination(path, force=force, inputs=[data])
    from rnade.parallel import rank, ranks

    with ranks():
        first = rank() == 0
        quiet = quiet or not first
        estimator, table = _fit_any(
            data,
            model=model,
            ensemble=ensemble,
            search=search,
            settings=settings,
            exclude=exclude,
            kind=kind,
            weight=weight,
            reading=reading,
            quiet=quiet,
        )
        if first:
            estimator.save(path, overwrite=force)
            _summarise(estimator, table, path, quiet=quiet, as_json=as_json)


def _fit_any(
    data: str,
    *,
    model: str,
    ensemble: bool | None,
    search: bool,
    settings: Mapping[str, Any],
    **how: Any,
) -> "tuple[Any, Table | Frame | FileSet]":
    """Fit a model to a file that is read at once, or to files; give it and what was read."""
    too_large = model == "rnade" and is_too_large(data, settings.get("memory"))
    if not (names_several(data) or too_large):
        return fitted(
            data, model=model, ensemble=ensemble, search=search, settings=settings, **how
        )
    if model != "rnade" or search:
        raise ValueError(
            "Several files, and those larger than --memory, are for --model rnade, without"
            " --search."
        )
    chosen = _settings(model, settings)
    estimator = _make(model, chosen, ensemble=ensemble, search=False, quiet=how["quiet"])
    table = fit_files(estimator, data, **how)
    return _with_origin(estimator, table), table


def fitted(
    data: str,
    *,
    model: str = "rnade",
    ensemble: bool | None = None,
    search: bool = False,
    exclude: Sequence[str] | None,
    kind: Sequence[str] | None,
    weight: str | None,
    reading: options.Reading,
    quiet: bool,
    settings: Mapping[str, Any],
) -> "tuple[Any, Table | Frame]":
    """Read a table and fit a model to it, as the options of `fit` say; give both."""
    from rnade.exceptions import TableWarning

    chosen = _settings(model, settings)
    if model != "rnade" and (search or ensemble is not None):
        raise ValueError(f"--search and --ensemble are options for --model rnade, not {model}.")
    kinds = parse_kinds(kind or ())
    if model not in _OF_KINDS and kinds != {}:
        raise ValueError(f"--kind is an option for --model rnade or fvbn, not {model}.")
    table: Table | Frame
    if model in _OF_KINDS and kinds is not None:
        table, schema, more = _read_kinds(
            data, reading, kinds, exclude=exclude or (), weight=weight, quiet=quiet
        )
        _check_settings(schema, chosen, search=search)
        chosen |= more
        if search:  # which takes no column that is to be left out
            table = replace(table, cells=table.cells.select(schema.names))
    else:
        table = _read_numbers(
            data, reading, model, chosen, exclude=exclude or (), weight=weight, quiet=quiet
        )
        if model in _OF_KINDS:
            chosen["columns"] = "real"
    estimator = _make(model, chosen, ensemble=ensemble, search=search, quiet=quiet)
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


def _read_numbers(
    data: str,
    reading: options.Reading,
    model: str,
    settings: Mapping[str, Any],
    *,
    exclude: Sequence[str],
    weight: str | None,
    quiet: bool,
) -> "Table":
    """Read numeric columns, as all models take them."""
    from rnade.tables import read_table

    table = read_table(
        data,
        **reading.for_numbers(),
        exclude=exclude,
        weight=weight,
        # The density of a constant is infinite, but a bit that never changes is a bit.
        constant="keep" if model in _BINARY else "leave out",
        ids="leave out",
    )
    _say_what_is_left_out(table, quiet=quiet)
    say_notes(table, quiet=quiet)
    if model in _BINARY and settings["binarize"] is None:
        _check_binary(table, model)
    return table


def _read_kinds(
    data: str,
    reading: options.Reading,
    kinds: Mapping[str, str],
    *,
    exclude: Sequence[str],
    weight: str | None,
    quiet: bool,
) -> "tuple[Frame, Schema, dict[str, Any]]":
    """Read columns of any kind; give them, what they hold, and the parameters that say it."""
    from rnade.tables import as_marks, read_frame

    missing = str(reading.missing or options.Missing.ignore)
    frame, named = read_frame(
        data,
        **reading.for_kinds(),
        exclude=exclude,
        weight=weight,
        kinds=kinds,
        index="leave out",
    )
    frame, schema, named = infer(
        frame, named, missing=missing, na=reading.marks, asked_for=reading.columns is not None
    )
    reasons = {name: in_our_words(why, frame) for name, why in schema.left_out.items()}
    ids = [name for name, why in reasons.items() if why.startswith("looks like")]
    frame = replace(
        frame,
        left_out={**frame.left_out, **reasons},
        notes=[
            *frame.notes,
            *(in_our_words(text, frame) for text in schema.notes),
            *(f"column {name!r} is kept if --columns names it" for name in ids),
        ],
    )
    # In a terminal the estimator tells the kinds itself, and what is left out of them.
    if not _is_verbose(quiet=quiet) or schema.is_plain:
        tell_kinds(schema, quiet=quiet)
        _say_what_is_left_out(frame, quiet=quiet)
    say_notes(frame, quiet=quiet)
    parameters: dict[str, Any] = {"na": as_marks(reading.marks)}
    if named:
        parameters["columns"] = named
    if missing == "informative":
        parameters["missing"] = missing
    return frame, schema, parameters


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


def _is_verbose(*, quiet: bool) -> bool:
    return sys.stderr.isatty() and not quiet


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

    verbose = int(_is_verbose(quiet=quiet))
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


def _say_what_is_left_out(table: "Table | Frame", *, quiet: bool) -> None:
    from rnade.tables import NOT_CHOSEN

    reasons = [(name, why) for name, why in table.left_out.items() if why != NOT_CHOSEN]
    for name, why in reasons[:MOST_NOTES]:
        note(f"left out column {name!r}: {why}", quiet=quiet)
    if len(reasons) > MOST_NOTES:
        more = counted(len(reasons) - MOST_NOTES, "more column")
        note(f"left out {more}", quiet=quiet)


def say_notes(table: "Table | Frame", *, quiet: bool) -> None:
    """Say what to check about the columns, and how many rows were left out."""
    for text in table.notes[:MOST_NOTES]:
        note(text, quiet=quiet)
    if table.dropped_rows:
        rows = counted(table.n_rows + table.dropped_rows, "row")
        note(f"left out {table.dropped_rows} of {rows} for a missing cell", quiet=quiet)


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
        print(f"held-out log-likelihood: {nats(held_out)}")
        print(f"trained for {estimator.fit_seconds_:.1f} s")


def kinds_of(schema: "Schema") -> list[dict[str, str]]:
    """Give what the columns of a model hold, for JSON."""
    keys = ("name", "kind", "details")
    return [
        dict(zip(keys, described, strict=True))
        for described in schema.describe()
        if described[1] != "left out"
    ]


def nats(score: Any) -> str:
    """Write a mean log-likelihood with its standard error, for a person."""
    error = f" ± {score.standard_error:.3f}" if score.n_rows > 1 else ""
    return f"{score.mean:.3f}{error} nats per row ({counted(score.n_rows, 'row')})"
