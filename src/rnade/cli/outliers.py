"""``rnade outliers``: the outliers of a table in one step, each with its reason."""

from dataclasses import replace
from typing import Annotated, Any

import typer

from rnade.cli import options
from rnade.cli.fit import SETTINGS, Choice, fitted
from rnade.cli.reasons import (
    Id,
    Level,
    oddest,
    read_original,
    say_judges,
    table_of_rows,
    with_original,
)
from rnade.cli.settings import Setting
from rnade.cli.terminal import counted, note, print_json

# Settings of the model that mean something here.
OFFERED: dict[str, dict[str, Setting]] = {
    "rnade": {
        name: setting
        for name, setting in SETTINGS["rnade"].items()
        if name not in ("contamination", "score_fitted", "retrain", "recipe", "memory")
    }
}
# Rows that are shown unless others are asked for, and the level at which they are counted.
TOP, LEVEL = 10, 0.01


def outliers(
    data: options.Data,
    *,
    output: Annotated[
        str | None,
        options.output(
            "A file ending in .csv, .parquet or .feather for the rows and all their columns; by"
            " default the rows are printed."
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(metavar="N", help=f"How many rows; {TOP} unless --level is given."),
    ] = None,
    level: Level = None,
    id_column: Id = None,
    model_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Save the fitted model too.")
    ] = None,
    use: options.Use,
    reading: options.Reading,
    result: options.Output,
    **settings: Any,
) -> None:
    """Find the outliers (anomalies, odd rows) of a table, and say why each is one.

    A model is fitted to the table, and each row is scored by networks that left it out of
    training. p_value is the share of rows of the table that are at most as likely, so that there
    are always some with small ones: look whether their reasons are good. surprise is the most
    surprising column of the row, value what it holds, and expected what the model expected given
    the other columns: an interval that holds 90 %, or the likeliest level. row counts rows from 1,
    without the header.
    """
    force, quiet = result.force, result.quiet
    from rnade.checks import number_between, positive_int
    from rnade.tables import check_destination, rows_of, table_format, write_table

    # Before the fit, which takes long.
    if level is not None:
        number_between(level, "--level", 0, 1, open_low=True)
    if top is not None:
        positive_int(top, "--top")
    for path in (output, model_file):
        if path is not None:
            check_destination(path, force=force, inputs=[data])
    as_text = output is not None and table_format(output) == "csv"
    named = [] if id_column is None else [id_column]
    use = replace(use, exclude=[*(use.exclude or ()), *named])
    # Rows are judged by models that left them out: only a file is asked for anything else.
    given = settings | {"score_fitted": True}
    if model_file is None:
        given["retrain"] = False
    estimator, table = fitted(data, Choice(), given, use, reading, quiet=quiet)
    ids, original = read_original(table, id_column, as_text=as_text)
    if model_file is not None:
        estimator.save(model_file, overwrite=force)
    judged = estimator.judge(table.to_arrow())
    if table.weights is not None:  # rows of weight 0 are no part of the table
        judged.p_values[table.weights == 0] = float("nan")
    elif judged.learned.any():  # where all networks of a part have diverged
        say_judges(judged, quiet=quiet)
    at = oddest(judged, TOP if top is None and level is None else top, level, None)
    found = table_of_rows(estimator, table, judged, at, ids)
    if output is not None:
        write_table(with_original(found, original, at), output, force=force)
    n_rows, n_odd = estimator.n_rows_, int((judged.p_values <= LEVEL).sum())
    if result.as_json:
        summary = {
            "n_rows": table.n_rows,
            "dropped_rows": table.dropped_rows,
            "n_shown": len(at),
            "level": LEVEL,
            "n_at_level": n_odd,
            "smallest_p_value": 1 / n_rows,
        }
        rows = {"output": output} if output is not None else {"rows": rows_of(found)}
        print_json({"summary": summary, **rows})
        return
    if output is None:
        _print(found)
    have = "has" if n_odd == 1 else "have"
    note(
        f"{n_odd} of {counted(n_rows, 'row')} {have} a p-value of at most {LEVEL:g}; the smallest"
        f" possible is {1 / n_rows:.2g}",
        quiet=quiet,
    )


def _print(found: Any) -> None:
    """Print rows for a person, in columns."""
    columns = {
        name: [_text(name, cell) for cell in found[name].to_pylist()]
        for name in found.column_names
        if name != "log_density"
    }
    widths = {name: max(map(len, [name, *cells])) for name, cells in columns.items()}
    for cells in ([*columns], *zip(*columns.values(), strict=True)):
        line = (f"{cell:<{width}}" for cell, width in zip(cells, widths.values(), strict=True))
        print("  ".join(line).rstrip())


def _text(name: str, cell: Any) -> str:
    if cell is None:
        return ""
    return f"{cell:.2g}" if name == "p_value" else str(cell)
