"""``rnade score``: how likely each row of a table is, and which column makes it odd."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rnade.cli import options
from rnade.cli.fit import nats, say_notes
from rnade.cli.kinds import errors_in_our_words, sorts_of, with_marks, without_gaps
from rnade.cli.many_files import into_folder, refuse, writes_folder
from rnade.cli.reasons import (
    Fdr,
    Id,
    Level,
    as_given,
    oddest,
    read_original,
    say_judges,
    table_of_rows,
    with_original,
)
from rnade.cli.terminal import counted, note, print_json

if TYPE_CHECKING:
    from rnade.tables import Frame, Table


def score(
    model: options.ModelFile,
    data: options.Data,
    *,
    output: options.TableFile = "-",
    id_column: Id = None,
    top: Annotated[
        int | None, typer.Option(metavar="N", help="Only the N rows with the smallest p-values.")
    ] = None,
    level: Level = None,
    fdr: Fdr = None,
    weight: options.Weight = None,
    reading: options.Reading,
    device: options.Device = "auto",
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Give the log density of each row of a table, its p-value and its most surprising column.

    log_density is in nats; p_value is the share of fitted rows at most as likely, so that small
    values mark outliers; surprise is the column whose value is the most unlikely compared with
    what is typical of this column, given the other columns; value is what it holds, and expected
    what the model expected: an interval that holds 90 %, or the likeliest level. row counts rows
    from 1, without the header; the columns of the table follow. --top, --level and --fdr choose
    the oddest rows, which then come first. With --weight, the mean is a weighted one.

    The table that was fitted is known again: its rows are scored by models that left them out of
    training.

    Of models of tables with columns of any kind, missing cells are allowed: a row counts by the
    cells that it has, and a level that was not in the fitted table has a low probability.

    DATA may also be a folder, or a quoted pattern such as 'data/*.parquet', with a folder as -o:
    then each file is scored in bounded memory and written as a Parquet file with log_density and
    p_value beside its columns (or beside --id alone). Files that are complete are kept when the
    command is run again.
    """
    if writes_folder(data, output):
        refuse({"--top": top, "--level": level, "--fdr": fdr, "--weight": weight})
        score_files(model, data, output, id_column, device, force, quiet, as_json)
        return
    from rnade.tables import check_destination, rows_of, table_format, write_table

    kind = table_format(output)
    check_destination(output, force=force, inputs=[model, data])
    from rnade import load
    from rnade.columns.names import is_read_by_kind
    from rnade.evaluation import mean_score

    estimator: Any = load(model, device=device)
    table = read_for(estimator, data, reading, weight=weight, quiet=quiet)
    # With --json alone the rows are in the JSON.
    in_file = output != "-"
    as_text = kind == "csv" and (in_file or not as_json)
    ids, original = read_original(table, id_column, as_text=as_text)
    X = as_given(estimator, table)
    if is_read_by_kind(estimator):
        with errors_in_our_words(table):
            _, seen = estimator.schema_.encode(X)
        _say_empty(seen, quiet=quiet)
    judged = estimator.judge(X)
    say_judges(judged, quiet=quiet)
    at = oddest(judged, top, level, fdr)
    found = with_original(table_of_rows(estimator, table, judged, at, ids), original, at)
    if in_file or not as_json:
        write_table(found, output, force=force)
    mean = mean_score(judged.scores, table.weights)
    if as_json:
        summary = {
            **vars(mean),
            "dropped_rows": table.dropped_rows,
            "out_of_fold": int(judged.left_out.sum()),
            "learned": int(judged.learned.sum()),
            "smallest_p_value": estimator.calibration_.smallest,
        }
        rows = {"output": output} if in_file else {"rows": rows_of(found)}
        print_json({"summary": summary, **rows})
    else:
        note(f"mean log density {nats(mean)}", quiet=quiet)


def score_files(
    model: str,
    data: str,
    output: str,
    id_column: str | None,
    device: str,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Score each file of a data set into a folder."""
    import numpy as np

    from rnade import load

    estimator: Any = load(model, device=device)
    keep = None if id_column is None else [id_column]
    total = np.zeros(2)

    def scored(table: Any) -> Any:
        found = estimator.score_table(table, keep=keep)
        total[:] += found["log_density"].to_numpy().sum(), found.num_rows
        return found

    into_folder(
        data,
        output,
        scored,
        model=model,
        settings=keep,
        what="Scoring",
        force=force,
        quiet=quiet,
        as_json=as_json,
        summary=lambda: {"mean": float(total[0] / total[1]) if total[1] else None},
    )


def _say_empty(seen: Any, *, quiet: bool) -> None:
    """Say how many rows have no cell that a model knows."""
    n_empty = int((~seen.any(axis=1)).sum())
    if n_empty:
        verb = "has" if n_empty == 1 else "have"
        note(
            f"{counted(n_empty, 'row')} {verb} no cell that the model knows: log_density is 0"
            " there, and p_value 1",
            quiet=quiet,
        )


def read_for(
    estimator: Any,
    data: str,
    reading: options.Reading,
    *,
    weight: str | None = None,
    quiet: bool,
    to_fill: bool = False,
) -> Any:
    """Read a model's columns: by name, or by position where the model has no names.

    Gives a `Frame` for models of tables with columns of any kind, and a `Table` for others; always
    a `Frame` with `to_fill`, which says that other columns are kept, and cells may be missing.
    """
    from rnade.columns.names import is_read_by_kind

    if reading.missing == options.Missing.informative:
        raise ValueError("--missing informative is an option for rnade fit.")
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        if reading.columns is not None:
            raise ValueError(
                "--columns is for models fitted without column names; this one has names."
            )
        reading = replace(reading, columns=[str(name) for name in names])
    read = _read_kinds if is_read_by_kind(estimator) or to_fill else _read_numbers
    table = read(estimator, data, reading, weight)
    if names is not None and not to_fill:
        _say_ignored(table, quiet=quiet)
    say_notes(table, quiet=quiet)
    return table


def _read_numbers(
    estimator: Any, data: str, reading: options.Reading, weight: str | None
) -> "Table":
    from rnade.tables import read_table

    table = read_table(data, **reading.for_numbers(), weight=weight)
    if reading.columns is None or not hasattr(estimator, "feature_names_in_"):
        _check_number(table, estimator.n_features_in_, "numeric column")
    return table


def _read_kinds(
    estimator: Any, data: str, reading: options.Reading, weight: str | None
) -> "Frame":
    from rnade.tables import read_frame

    schema = with_marks(estimator, reading.marks)
    marks = [*reading.marks, *(mark for mark in schema.na if isinstance(mark, str))]
    reading = replace(reading, na=list(dict.fromkeys(marks)))
    kinds = None
    if schema.frame != "array":
        kinds = sorts_of(schema)
        reading = replace(reading, columns=list(kinds))
    table, _ = read_frame(data, **reading.for_kinds(), weight=weight, kinds=kinds)
    if schema.frame == "array":
        _check_number(table, len(schema.inputs), "column")
    if reading.missing in (options.Missing.error, options.Missing.drop):
        table = without_gaps(table, schema, str(reading.missing))
    return table


def _check_number(table: "Table | Frame", expected: int, noun: str) -> None:
    """Refuse another number of columns than a model without names has."""
    from rnade.exceptions import TableError

    if len(table.names) != expected:
        raise TableError(
            f"{table.source} has {counted(len(table.names), noun)}; the model, which has no column"
            f" names, expects {expected}. Choose them with --columns."
        )


def _say_ignored(table: "Table | Frame", *, quiet: bool) -> None:
    from rnade.tables import NOT_CHOSEN, listed

    ignored = [name for name, why in table.left_out.items() if why == NOT_CHOSEN]
    if ignored:
        note(f"columns not in the model are ignored: {listed(ignored)}", quiet=quiet)
