"""Rows with their log density, p-value, most surprising cell and what was expected there."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rnade.cli.terminal import counted, note

if TYPE_CHECKING:
    import pyarrow as pa

    from rnade.tables import Frame, Table

Id = Annotated[
    str | None,
    typer.Option(
        "--id", metavar="COLUMN", help="A column that names the rows, to be shown beside them."
    ),
]
Level = Annotated[
    float | None,
    typer.Option(metavar="P", help="Only rows with a p-value of at most this, such as 0.01."),
]
Fdr = Annotated[
    float | None,
    typer.Option(
        metavar="RATE",
        help="Only as many rows that about this share of them, at most, are usual ones (false"
        " discovery rate), such as 0.1; for rows that were not fitted.",
    ),
]


def as_given(estimator: Any, table: "Table | Frame") -> Any:
    """Give the rows of a table as the model takes them: with names, if it has some."""
    from rnade.columns.names import is_mixed

    named = hasattr(estimator, "feature_names_in_") or is_mixed(estimator)
    return table.to_arrow() if named else table.values  # type: ignore[union-attr]


def oddest(judged: Any, top: int | None, level: float | None, fdr: float | None) -> Any:
    """Give the places of the rows to be shown, the oddest first; all in order if none is chosen.

    Chosen are at most `top`, or only those with p-values as small as a level or a rate allows.
    """
    import numpy as np

    from rnade.checks import positive_int
    from rnade.estimators.outliers import chosen

    if top is None and level is None and fdr is None:
        return np.arange(len(judged.scores))
    order = np.lexsort((judged.scores, judged.p_values))
    if level is not None or fdr is not None:
        order = order[chosen(judged, level, fdr)[order]]
    return order if top is None else order[: positive_int(top, "--top")]


def table_of_rows(
    estimator: Any, table: "Table | Frame", judged: Any, at: Any, ids: "pa.Table"
) -> "pa.Table":
    """Give some rows, at places of a table that is judged, with what the model says of them.

    The columns are row, those of `ids`, log_density, p_value; surprise, the name of the most
    surprising column, value, what it holds, and expected, what the model expected there, as text.
    """
    import pyarrow as pa

    found: dict[str, Any] = {"row": table.rows[at]}
    found |= {name: ids[name].take(pa.array(at)) for name in ids.column_names}
    found |= {"log_density": judged.scores[at], "p_value": judged.p_values[at]}
    names = ("surprise", "value", "expected")
    told = _reasons(estimator, table, at) if len(at) else ([], [], [])
    found |= {name: pa.array(own, pa.string()) for name, own in zip(names, told, strict=True)}
    return pa.table(found)


def read_original(
    table: "Table | Frame", id_column: str | None, *, as_text: bool
) -> "tuple[pa.Table, pa.Table]":
    """Give the column that names the rows, if one is asked for, and all other columns of the file.

    To be called before the work: Arrow's threads let go of a file some time after it is read, and
    abort a program that ends before. With `as_text` columns of a CSV file stay text.
    """
    from rnade.tables import original_columns

    columns = original_columns(table, as_text=as_text)
    if id_column is None:
        return columns.select([]), columns
    if id_column not in columns.column_names:
        raise ValueError(f"{table.source} has no column {id_column!r} for --id.")
    return columns.select([id_column]), columns.drop_columns([id_column])


def with_original(found: "pa.Table", original: "pa.Table", at: Any) -> Any:
    """Add columns of the file to rows from `table_of_rows`; names that are taken change."""
    import pyarrow as pa

    own = original.take(pa.array(at))
    for name in own.column_names:
        taken = name in found.column_names
        found = found.append_column(f"{name} (table)" if taken else name, own[name])
    return found


def _reasons(estimator: Any, table: "Table | Frame", at: Any) -> tuple[Any, Any, Any]:
    """Give the most surprising column of some rows, its cell, and what was expected there."""
    import numpy as np
    import pyarrow as pa

    from rnade.columns.names import column_names

    rows = as_given(estimator, table)
    rows = rows.take(pa.array(at)) if isinstance(rows, pa.Table) else rows[at]
    surprise = estimator.surprise(rows)
    known = ~np.isnan(surprise)
    worst = np.where(known, surprise, -np.inf).argmax(axis=1)
    where = np.zeros(surprise.shape, dtype=bool)
    where[np.arange(len(at)), worst] = known.any(axis=1)
    low, high = estimator.expected(rows, where=where)
    names = column_names(estimator)
    if not isinstance(rows, pa.Table):
        names = list(table.names)
    told: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    cells = table.to_arrow()
    for i, d in enumerate(worst):
        texts: tuple[str | None, ...] = (None, None, None)
        if where[i, d]:
            value = _cell(estimator, cells, names, int(at[i]), int(d))
            texts = names[d], value, _range(low[i, d], high[i, d])
        for column, text in zip(told, texts, strict=True):
            column.append(text)
    return told


def _cell(estimator: Any, cells: "pa.Table", names: Any, row: int, d: int) -> str:
    """Give what a cell holds, as text."""
    from rnade.columns.names import is_mixed

    place: Any = names[d]
    if is_mixed(estimator):
        column = estimator.schema_.columns[d]
        if column.indicates is not None:  # which tells whether a cell is missing
            return text_of(cells[column.indicates][row].as_py() is None)
        if estimator.schema_.frame == "array":
            place = [str(name) for name in estimator.schema_.inputs].index(column.name)
    return text_of(cells.column(place)[row].as_py())


def _range(low: Any, high: Any) -> str:
    """Write what was expected: a level, or an interval."""
    first, last = text_of(low), text_of(high)
    return first if first == last else f"{first} to {last}"


def text_of(value: Any) -> str:
    """Write a value for a person."""
    import numpy as np

    value = value.item() if isinstance(value, np.generic) and value.dtype.kind in "biuf" else value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, np.datetime64):
        return str(value).replace("T", " ")
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def say_judges(judged: Any, *, quiet: bool, of: str = "") -> None:
    """Say of the fitted table which models have scored its rows; `of` comes first."""
    left_out, learned = int(judged.left_out.sum()), int(judged.learned.sum())
    if left_out + learned == 0:
        return
    if not learned:
        note(
            f"{of}this is the table that was fitted: each row is scored by models that left it"
            " out of training",
            quiet=quiet,
        )
        return
    rows = f"{left_out} of {counted(left_out + learned, 'row')}"
    note(
        f"{of}this is the table that was fitted: {rows} are scored by models that left them out of"
        " training; the others look more usual than they are, since every model learned them"
        " (rnade outliers, or rnade fit --score-fitted, leaves out every row once)",
        quiet=quiet,
    )
