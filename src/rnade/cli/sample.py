"""``rnade sample``: new rows like those that a model was fitted to."""

from typing import Annotated

import typer

from rnade.cli.options import Device, Force, ModelFile, TableFile
from rnade.columns import column_names


def sample(
    model: ModelFile,
    n_samples: Annotated[int, typer.Option("--n-samples", "-n", help="How many rows.")] = 1,
    random_state: Annotated[
        int | None, typer.Option(help="Seed; the same seed gives the same rows.")
    ] = None,
    output: TableFile = None,
    device: Device = "auto",
    force: Force = False,
) -> None:
    """Draw rows from a model."""
    from rnade.tables import check_destination, table_format, write_table

    destination = "-" if output is None else output
    table_format(destination)
    if destination != "-":
        check_destination(destination, force=force)
    from rnade import load

    estimator = load(model, device=device)
    rows = estimator.sample(n_samples, random_state=random_state)
    columns = dict(zip(column_names(estimator), rows.T, strict=True))
    write_table(columns, destination, force=force)
