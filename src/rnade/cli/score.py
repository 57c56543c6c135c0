"""``rnade score``: how likely each row of a table is, and which column makes it odd."""

from typing import Annotated, Any

import typer

from rnade.cli import options
from rnade.cli.fit import nats
from rnade.cli.kinds import errors_in_our_words
from rnade.cli.many_files import into_folder, refuse, writes_folder
from rnade.cli.reading import read_for
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
    result: options.Output,
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
        score_files(model, data, output, id_column, device, result)
        return
    quiet, as_json = result.quiet, result.as_json
    from rnade.tables import check_destination, rows_of, table_format, write_table

    kind = table_format(output)
    check_destination(output, force=result.force, inputs=[model, data])
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
        write_table(found, output, force=result.force)
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
    result: options.Output,
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
        result=result,
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
