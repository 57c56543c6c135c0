"""``rnade sample``: new rows like those that a model was fitted to."""

from dataclasses import replace
from typing import Annotated, Any

import typer

from rnade.cli import options
from rnade.cli.conditions import Interval, parse_conditions, write_value
from rnade.cli.terminal import note, print_json


def sample(
    model: options.ModelFile,
    n_samples: Annotated[int, typer.Option("--n-samples", "-n", help="How many rows.")] = 1,
    given: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="What all rows have in a column; may be given again for others. LOW..HIGH is an"
            " interval, either end of which may be left out. Names and values that hold one of |"
            " , = and .. stand in quotes.",
        ),
    ] = None,
    random_state: options.Seed = None,
    output: options.TableFile = "-",
    device: options.Device = "auto",
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Draw new rows from a model (synthetic data).

    They have the columns of the table that was fitted, in its types: levels as words, whole
    numbers without decimals, dates as dates. Cells are missing only in draws of a model that was
    fitted with --missing informative.

    With --given, all rows have certain values, or values in certain intervals, and the other
    columns are drawn given these.
    """
    from rnade.tables import check_destination, rows_of, table_format, write_table

    table_format(output)
    check_destination(output, force=force, inputs=[model])
    conditions = parse_conditions(given or [])
    import pyarrow as pa

    from rnade import load
    from rnade.columns.names import column_names

    estimator: Any = load(model, device=device)
    if conditions:
        from rnade.cli.given import errors_as_typed, prepared, values_of

        known = values_of(conditions, prepared(estimator))
        with errors_as_typed(conditions, known):
            rows = estimator.sample_values(n_samples, random_state=random_state, given=known)
    else:
        rows = estimator.sample_values(n_samples, random_state=random_state)
    schema = getattr(estimator, "schema_", None)
    if schema is not None:
        # Whatever frame was fitted: to write a file takes no other library.
        frame = "pyarrow"
        table = replace(schema, frame=frame).decode(rows)
    else:
        table = pa.table(dict(zip(column_names(estimator), rows.T, strict=True)))
    weighted = sum(isinstance(condition.value, Interval) for condition in conditions) > 1
    if weighted:
        note("several intervals are given: rows are kept by weights, not exactly", quiet=quiet)
    # With --json alone the rows are in the JSON.
    in_file = output != "-"
    if in_file or not as_json:
        write_table(table, output, force=force)
    if as_json:
        print_json(
            {
                "n_rows": table.num_rows,
                "given": {c.column: write_value(c.value) for c in conditions},
                "method": "weighted" if weighted else "exact",
                **({"output": output} if in_file else {"rows": rows_of(table)}),
            }
        )
