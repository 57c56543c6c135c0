"""``rnade score``: how likely each row of a table is, and which column makes it odd."""

from typing import TYPE_CHECKING, Any

from rnade.cli.fit import nats, say_dropped_rows
from rnade.cli.options import (
    Columns,
    Data,
    Device,
    Force,
    Header,
    Json,
    Missing,
    MissingCells,
    ModelFile,
    Quiet,
    Separator,
    TableFile,
    split_names,
)
from rnade.cli.terminal import note, print_json

if TYPE_CHECKING:
    from rnade.families.base import Array
    from rnade.tables import Table

# Rows drawn from the model to see what is typical of each column: the mean of a log conditional
# varies by about 1 nat from row to row, so this many place it within about 0.02 nats.
_N_TYPICAL = 2000


def score(
    model: ModelFile,
    data: Data,
    output: TableFile = None,
    columns: Columns = None,
    separator: Separator = None,
    header: Header = None,
    missing: MissingCells = Missing.error,
    device: Device = "auto",
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Give the log density of each row of a table, its p-value and its most surprising column.

    log_density is in nats; p_value is the share of held-out rows at most as likely, so that small
    values mark odd rows; surprise is the column whose value is the most unlikely compared with
    what the model expects of this column, given the columns before it. row counts rows from 1,
    without the header.
    """
    from rnade.tables import check_destination, table_format, write_table

    in_file = output is not None and output != "-"
    destination = output if output is not None else "-"
    table_format(destination)
    if in_file:
        check_destination(destination, force=force)
    from rnade import load
    from rnade.evaluation import mean_score

    estimator: Any = load(model, device=device)
    table = _read_for(
        estimator,
        data,
        split_names(columns),
        quiet=quiet,
        separator=separator,
        header=header,
        missing=missing.value,
    )
    X = table.to_arrow() if hasattr(estimator, "feature_names_in_") else table.values
    # Not the sum of the terms: p-values compare with scores to the last bit.
    scores = estimator.score_samples(X)
    worst = (estimator.log_conditionals(X) - typical_log_conditionals(estimator)).argmin(axis=1)
    results = {
        "row": table.rows,
        "log_density": scores,
        "p_value": estimator.calibration_.pvalue(scores),
        "surprise": [table.names[d] for d in worst],
    }
    mean = mean_score(scores)
    # With --json alone the rows are in the JSON.
    if in_file or not as_json:
        write_table(results, destination, force=force)
    if as_json:
        summary = {
            "n_rows": mean.n_rows,
            "mean": mean.mean,
            "standard_error": mean.standard_error,
            "dropped_rows": table.dropped_rows,
        }
        rows: dict[str, Any] = {"output": output} if in_file else {"rows": _records(results)}
        print_json({"summary": summary, **rows})
    else:
        note(f"mean log density {nats(mean)}", quiet=quiet)


def typical_log_conditionals(estimator: Any) -> "Array":
    """Give the mean of each column's log conditional over rows drawn from the model.

    That is minus the column's entropy given those before it. A row's log conditionals minus these
    say how many nats each column adds to the row's surprise, whatever the column's unit; being
    the model's own, the yardstick is the same for every file, and serves a file of one row.
    """
    draws = estimator.sample(_N_TYPICAL, random_state=0)
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        import pyarrow as pa

        draws = pa.table(dict(zip(map(str, names), draws.T, strict=True)))
    typical: Array = estimator.log_conditionals(draws).mean(axis=0)
    return typical


def _read_for(
    estimator: Any, data: str, columns: list[str] | None, *, quiet: bool, **options: Any
) -> "Table":
    """Read a model's columns: by name, or by position where the model has no names."""
    from rnade.exceptions import TableError
    from rnade.tables import read_table

    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        if columns is not None:
            raise ValueError("--columns is for models fitted without column names; this one has.")
        table = read_table(data, [str(name) for name in names], **options)
        if table.left_out:
            shown = ", ".join(map(repr, list(table.left_out)[:10]))
            more = f" and {len(table.left_out) - 10} more" if len(table.left_out) > 10 else ""
            note(f"columns not in the model are ignored: {shown}{more}", quiet=quiet)
    else:
        table = read_table(data, columns, **options)
        if len(table.names) != estimator.n_features_in_:
            raise TableError(
                f"{table.source} has {len(table.names)} numeric columns; the model, which has no"
                f" column names, expects {estimator.n_features_in_}. Choose them with --columns."
            )
    say_dropped_rows(table, quiet=quiet)
    return table


def _records(columns: dict[str, Any]) -> list[dict[str, Any]]:
    plain = [
        values if isinstance(values, list) else values.tolist() for values in columns.values()
    ]
    return [dict(zip(columns, row, strict=True)) for row in zip(*plain, strict=True)]
