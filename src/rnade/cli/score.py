"""``rnade score``: how likely each row of a table is, and which column makes it odd."""

from typing import TYPE_CHECKING, Any

from rnade.cli import options
from rnade.cli.fit import nats, say_dropped_rows
from rnade.cli.terminal import counted, note, print_json

if TYPE_CHECKING:
    from rnade.tables import Table


def score(
    model: options.ModelFile,
    data: options.Data,
    output: options.TableFile = None,
    columns: options.Columns = None,
    weight: options.Weight = None,
    separator: options.Separator = None,
    decimal: options.Decimal = None,
    header: options.Header = None,
    missing: options.MissingCells = options.Missing.error,
    device: options.Device = "auto",
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Give the log density of each row of a table, its p-value and its most surprising column.

    log_density is in nats; p_value is the share of held-out rows at most as likely, so that small
    values mark outliers; surprise is the column whose value is the most unlikely compared with
    what the model expects of this column, given the columns before it. row counts rows from 1,
    without the header. With --weight, the mean is a weighted one.
    """
    from rnade.tables import check_destination, table_format, write_table

    in_file = output is not None and output != "-"
    destination = output if output is not None else "-"
    table_format(destination)
    if in_file:
        check_destination(destination, force=force, inputs=[model, data])
    from rnade import load
    from rnade.evaluation import mean_score
    from rnade.surprise import typical_log_conditionals

    estimator: Any = load(model, device=device)
    table = read_for(
        estimator,
        data,
        options.split_names(columns),
        quiet=quiet,
        weight=weight,
        separator=separator,
        decimal=decimal,
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
    mean = mean_score(scores, table.weights)
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


def read_for(
    estimator: Any, data: str, columns: list[str] | None, *, quiet: bool, **reading: Any
) -> "Table":
    """Read a model's columns: by name, or by position where the model has no names."""
    from rnade.exceptions import TableError
    from rnade.tables import NOT_CHOSEN, listed, read_table

    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        if columns is not None:
            raise ValueError(
                "--columns is for models fitted without column names; this one has names."
            )
        table = read_table(data, [str(name) for name in names], **reading)
        ignored = [name for name, why in table.left_out.items() if why == NOT_CHOSEN]
        if ignored:
            note(f"columns not in the model are ignored: {listed(ignored)}", quiet=quiet)
    else:
        table = read_table(data, columns, **reading)
        if len(table.names) != estimator.n_features_in_:
            raise TableError(
                f"{table.source} has {counted(len(table.names), 'numeric column')}; the model,"
                " which has no"
                f" column names, expects {estimator.n_features_in_}. Choose them with --columns."
            )
    for text in table.notes:
        note(text, quiet=quiet)
    say_dropped_rows(table, quiet=quiet)
    return table


def _records(columns: dict[str, Any]) -> list[dict[str, Any]]:
    plain = [
        values if isinstance(values, list) else values.tolist() for values in columns.values()
    ]
    return [dict(zip(columns, row, strict=True)) for row in zip(*plain, strict=True)]
