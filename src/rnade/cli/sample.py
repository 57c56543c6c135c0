"""``rnade sample``: new rows like those that a model was fitted to."""

from typing import Annotated

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
    """Draw new rows from a model (synthetic data)."""
    from rnade.tables import check_destination, table_format, write_table

    table_format(output)
    check_destination(output, force=force, inputs=[model])
    from rnade import load
    from rnade.columns import column_names

    estimator = load(model, device=device)
    rows = estimator.sample(n_samples, random_state=random_state)
    columns = dict(zip(column_names(estimator), rows.T, strict=True))
    write_table(columns, output, force=force)
