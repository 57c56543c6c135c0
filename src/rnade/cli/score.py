"""``rnade score``: how likely each row of a table is, and which column makes it odd."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rnade.cli import options
from rnade.cli.fit import nats, say_notes
from rnade.cli.terminal import counted, note, print_json

if TYPE_CHECKING:
    from rnade.tables import Table


def score(
    model: options.ModelFile,
    data: options.Data,
    *,
    output: options.TableFile = "-",
    weight: options.Weight = None,
    reading: options.Reading,
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
    import pyarrow as pa

    from rnade.tables import check_destination, table_format, write_table

    table_format(output)
    check_destination(output, force=force, inputs=[model, data])
    from rnade import load
    from rnade.evaluation import mean_score
    from rnade.surprise import typical_log_conditionals

    estimator: Any = load(model, device=device)
    table = read_for(estimator, data, reading, weight=weight, quiet=quiet)
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
    in_file = output != "-"
    if in_file or not as_json:
        write_table(results, output, force=force)
    if as_json:
        summary = {**vars(mean), "dropped_rows": table.dropped_rows}
        rows = {"output": output} if in_file else {"rows": pa.table(results).to_pylist()}
        print_json({"summary": summary, **rows})
    else:
        note(f"mean log density {nats(mean)}", quiet=quiet)


def read_for(
    estimator: Any,
    data: str,
    reading: options.Reading,
    *,
    weight: str | None = None,
    quiet: bool,
) -> "Table":
    """Read a model's columns: by name, or by position where the model has no names."""
    from rnade.exceptions import TableError
    from rnade.tables import NOT_CHOSEN, listed, read_table

    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        if reading.columns is not None:
            raise ValueError(
                "--columns is for models fitted without column names; this one has names."
            )
        reading = replace(reading, columns=[str(name) for name in names])
    table = read_table(data, **vars(reading), weight=weight)
    if names is not None:
        ignored = [name for name, why in table.left_out.items() if why == NOT_CHOSEN]
        if ignored:
            note(f"columns not in the model are ignored: {listed(ignored)}", quiet=quiet)
    elif len(table.names) != estimator.n_features_in_:
        raise TableError(
            f"{table.source} has {counted(len(table.names), 'numeric column')}; the model, which"
            f" has no column names, expects {estimator.n_features_in_}. Choose them with"
            " --columns."
        )
    say_notes(table, quiet=quiet)
    return table
