"""``rnade impute``: a table with its missing cells filled."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rnade.cli import options
from rnade.cli.kinds import MOST_NOTES, errors_in_our_words
from rnade.cli.many_files import into_folder, refuse, writes_folder
from rnade.cli.reading import read_for
from rnade.cli.terminal import counted, note, print_json

if TYPE_CHECKING:
    import pyarrow as pa

    from rnade.columns import Schema
    from rnade.tables import Frame

DRAW = "draw"


class How(StrEnum):
    """What missing cells are filled with."""

    mean = "mean"
    median = "median"
    likeliest = "likeliest"
    draw = DRAW


def impute(
    model: options.ModelFile,
    data: options.Data,
    *,
    output: options.TableFile = "-",
    how: Annotated[
        How | None,
        typer.Option(
            help="mean: means of numbers and the likeliest levels (the default); median: medians,"
            " of levels by their order; likeliest: medians of numbers and the likeliest levels;"
            " draw: all missing cells of a row drawn together.",
            show_default=False,
        ),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Draw N times, for multiple imputation: the N filled tables stand below each"
            " other, and a first column, draw, counts them from 1.",
        ),
    ] = None,
    random_state: options.Seed = None,
    layout: options.Layout,
    device: options.Device = "auto",
    result: options.Output,
) -> None:
    """Fill the missing cells of a table (missing value imputation).

    Each is filled given all cells of its row that the model knows. All columns of the table stay
    in their places, and no other cell changes; missing cells of columns that are not in the model
    stay missing. A CSV file keeps its separator, and numbers, booleans and levels are filled in as
    the file writes them.

    DATA may also be a folder, or a quoted pattern such as 'data/*.parquet', with a folder as -o:
    then each file is filled in bounded memory and written as a Parquet file. Files that are
    complete are kept when the command is run again.
    """
    if writes_folder(data, output):
        refuse({"--draws": draws, **{f"--{n}": v for n, v in vars(layout).items()}})
        chosen = str(how or How.mean)
        impute_files(model, data, output, chosen, random_state, device, result)
        return
    quiet, as_json = result.quiet, result.as_json
    import numpy as np
    import pyarrow as pa

    from rnade.tables import check_destination, rows_of, table_format, write_table

    to_text = table_format(output) == "csv"
    check_destination(output, force=result.force, inputs=[model, data])
    if draws is not None and how not in (None, How.draw):
        raise ValueError(f"--draws is for --how draw; got --how {how}.")
    chosen = str(how or (How.mean if draws is None else How.draw))
    from rnade import load
    from rnade.cli.given import prepared

    estimator = prepared(load(model, device=device))
    frame = read_for(estimator, data, options.Reading(**vars(layout)), quiet=quiet, to_fill=True)
    if draws is not None and DRAW in frame.whole().column_names:
        raise ValueError(
            f"{frame.source} has a column {DRAW!r}, which --draws would add; rename it first."
        )
    cells, gone = _gaps(estimator.schema_, frame)
    filled = estimator.impute(cells, chosen, draws, random_state)
    # With --json alone the rows are in the JSON.
    in_file = output != "-"
    as_text = frame.is_text and to_text and (in_file or not as_json)
    table, rewritten = _whole(frame, [filled] if draws is None else filled, gone, as_text=as_text)
    if draws is not None:
        numbers = np.repeat(np.arange(1, draws + 1), frame.n_rows)
        table = table.add_column(0, DRAW, pa.array(numbers))
    if in_file or not as_json:
        separator = frame.separator if as_text else ","
        write_table(table, output, force=result.force, separator=separator)
    counts = {name: int(at.sum()) for name, at in gone.items()}
    if as_json:
        summary = {"how": chosen, "draws": draws, "n_rows": frame.n_rows, "filled": counts}
        rows = {"output": output} if in_file else {"rows": rows_of(table)}
        print_json({"summary": summary, **rows})
        return
    for name in rewritten:
        note(f"dates of column {name!r} are rewritten as 2020-12-31", quiet=quiet)
    note(_told(counts, frame.n_rows), quiet=quiet)


def impute_files(
    model: str,
    data: str,
    output: str,
    how: str,
    random_state: int | None,
    device: str,
    result: options.Output,
) -> None:
    """Fill each file of a data set into a folder."""
    from rnade import load
    from rnade.cli.given import prepared

    estimator = prepared(load(model, device=device))

    def filled(table: Any) -> Any:
        known = table.select(
            [name for name in estimator.schema_.inputs if name in table.schema.names]
        )
        found = estimator.impute(known, how, random_state=random_state)
        for name in found.column_names:
            column = found[name].cast(table.schema.field(name).type, safe=False)
            table = table.set_column(table.schema.get_field_index(name), name, column)
        return table

    into_folder(
        data,
        output,
        filled,
        model=model,
        settings=[how, random_state],
        what="Filling",
        result=result,
    )


def _gaps(schema: "Schema", frame: "Frame") -> "tuple[pa.Table, dict[str, Any]]":
    """Give the columns of a model as it is to fill them, and where cells are missing in them."""
    import pyarrow as pa

    from rnade.columns.frames import arrow_type

    with errors_in_our_words(frame):
        _, seen = schema.encode(frame.cells)
    names = dict(zip(schema.inputs, frame.names, strict=True)) if schema.frame == "array" else {}
    cells, gone = frame.cells, {}
    for d, column in enumerate(schema.columns):
        if column.indicates is not None or seen[:, d].all():
            continue
        name = names.get(column.name, column.name)
        gone[name] = ~seen[:, d]
        kind = cells[name].type
        # Types that cannot hold what is filled in: of no value at all, or of whole numbers.
        if pa.types.is_null(kind) or (column.kind == "real" and pa.types.is_integer(kind)):
            wanted = pa.float64() if column.kind == "real" else arrow_type(column.dtype)
            at = cells.column_names.index(name)
            cells = cells.set_column(at, name, cells[name].cast(wanted))
    return cells, gone


def _whole(
    frame: "Frame", filled: "Sequence[pa.Table]", gone: Mapping[str, Any], *, as_text: bool
) -> "tuple[pa.Table, list[str]]":
    """Give all columns of a file, once for each filled table; and names of columns rewritten."""
    import pyarrow as pa

    from rnade.tables import filled_table, filled_text

    tables: list[pa.Table] = []
    rewritten: list[str] = []
    for one in filled:
        columns = {name: one[name] for name in gone}
        if as_text:
            table, rewritten = filled_text(frame, columns, gone)
        else:
            table = filled_table(frame, columns)
        tables.append(table)
    return pa.concat_tables(tables), rewritten


def _told(filled: Mapping[str, int], n_rows: int) -> str:
    if not filled:
        return "no cell is missing in the columns of the model: nothing to fill"
    shown = [f"{name} {n}" for name, n in filled.items()][:MOST_NOTES]
    more = len(filled) - len(shown)
    shown += [counted(more, "more column")] if more else []
    cells = counted(sum(filled.values()), "missing cell")
    return f"filled {cells} in {counted(n_rows, 'row')}: {', '.join(shown)}"
