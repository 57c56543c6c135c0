"""``rnade sample``: new rows like those that a model was fitted to."""

from dataclasses import replace
from typing import Annotated, Any

import typer

from rnade.cli import options


def sample(
    model: options.ModelFile,
    n_samples: Annotated[int, typer.Option("--n-samples", "-n", help="How many rows.")] = 1,
    random_state: Annotated[
        int | None, typer.Option(help="Seed; the same seed gives the same rows.")
    ] = None,
    output: options.TableFile = "-",
    device: options.Device = "auto",
    force: options.Force = False,
) -> None:
    """Draw new rows from a model (synthetic data).

    They have the columns of the table that was fitted, in its types: levels as words, whole
    numbers without decimals, dates as dates. Cells are missing only in draws of a model that was
    fitted with --missing informative.
    """
    from rnade.tables import check_destination, table_format, write_table

    table_format(output)
    check_destination(output, force=force, inputs=[model])
    from rnade import load
    from rnade.columns import column_names

    estimator = load(model, device=device)
    rows = estimator.sample_values(n_samples, random_state=random_state)
    schema = getattr(estimator, "schema_", None)
    if schema is not None:
        # Whatever frame was fitted: to write a file takes no other library.
        frame = "pyarrow"
        columns: Any = replace(schema, frame=frame).decode(rows)
    else:
        columns = dict(zip(column_names(estimator), rows.T, strict=True))
    write_table(columns, output, force=force)
