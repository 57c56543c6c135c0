"""``rnade sample``: new rows like those that a model was fitted to."""

from dataclasses import replace
from typing import Annotated, Any

import typer

from rnade.cli import options
from rnade.cli.conditions import Interval, parse_conditions, write_value
from rnade.cli.many_files import refuse, say_written, writes_folder
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
    *,
    result: options.Output,
) -> None:
    """Draw new rows from a model (synthetic data).

    They have the columns of the table that was fitted, in its types: levels as words, whole
    numbers without decimals, dates as dates. Cells are missing only in draws of a model that was
    fitted with --missing informative.

    With --given, all rows have certain values, or values in certain intervals, and the other
    columns are drawn given these.

    With a folder as -o (synthetic/), rows are drawn in bounded memory into Parquet files of a
    million rows. With --random-state, files that are complete are kept when the command is run
    again.
    """
    if writes_folder("", output):
        refuse({"--given": given})
        sample_files(model, n_samples, output, random_state, device, result)
        return
    from rnade.tables import check_destination, rows_of, table_format, write_table

    table_format(output)
    check_destination(output, force=result.force, inputs=[model])
    conditions = parse_conditions(given or [])
    from rnade import load

    estimator: Any = load(model, device=device)
    if conditions:
        from rnade.cli.given import errors_as_typed, prepared, values_of

        known = values_of(conditions, prepared(estimator))
        with errors_as_typed(conditions, known):
            rows = estimator.sample_values(n_samples, random_state=random_state, given=known)
    else:
        rows = estimator.sample_values(n_samples, random_state=random_state)
    table = _as_table(estimator, rows)
    weighted = sum(isinstance(condition.value, Interval) for condition in conditions) > 1
    if weighted:
        note(
            "several intervals are given: rows are kept by weights, not exactly",
            quiet=result.quiet,
        )
    # With --json alone the rows are in the JSON.
    in_file = output != "-"
    if in_file or not result.as_json:
        write_table(table, output, force=result.force)
    if result.as_json:
        print_json(
            {
                "n_rows": table.num_rows,
                "given": {c.column: write_value(c.value) for c in conditions},
                "method": "weighted" if weighted else "exact",
                **({"output": output} if in_file else {"rows": rows_of(table)}),
            }
        )


# Rows of a file, and of a row group, which are drawn together.
FILE_ROWS, GROUP_ROWS = 1_000_000, 50_000


def sample_files(
    model: str,
    n_samples: int,
    output: str,
    random_state: int | None,
    device: str,
    result: options.Output,
) -> None:
    """Draw rows into the files of a folder."""
    import hashlib
    from pathlib import Path

    import numpy as np

    from rnade import load
    from rnade.streams.transform import write_parts

    estimator: Any = load(model, device=device)
    digest = hashlib.sha256(Path(model).read_bytes()).hexdigest()
    n_files = -(-n_samples // FILE_ROWS)
    mark = None if random_state is None else f"{digest} {random_state} {n_samples}"

    def tables(i: int) -> Any:
        left = min(FILE_ROWS, n_samples - i * FILE_ROWS)
        # A seed of its own for each file, so that a file can be drawn without those before it.
        rng = np.random.RandomState(None if random_state is None else [random_state, i])
        for start in range(0, left, GROUP_ROWS):
            rows = estimator.sample_values(min(GROUP_ROWS, left - start), random_state=rng)
            yield _as_table(estimator, rows)

    done = write_parts(output, n_files, tables, mark, force=result.force)
    if result.as_json:
        print_json({"n_rows": n_samples, "written": done.written, "kept": done.kept})
    else:
        say_written(done, output, quiet=result.quiet)


def _as_table(estimator: Any, rows: Any) -> Any:
    """Rows of a model as an Arrow table in the types of its columns."""
    import pyarrow as pa

    from rnade.columns.names import column_names

    schema = getattr(estimator, "schema_", None)
    if schema is not None:
        # Whatever frame was fitted: to write a file takes no other library.
        return replace(schema, frame="pyarrow").decode(rows)
    return pa.table(dict(zip(column_names(estimator), rows.T, strict=True)))
