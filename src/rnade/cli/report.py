"""``rnade report``: what a model found in a table, as a page to look at."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from rnade.cli import options
from rnade.cli.reading import read_for
from rnade.cli.terminal import note, print_json


def report(
    model: options.ModelFile,
    data: options.Data,
    *,
    output: Annotated[
        str | None, options.output("The page; by default report.html, or none with --json.")
    ] = None,
    explore: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Also write the page to explore the model (rnade explore), and link to it.",
            show_default=False,
        ),
    ] = None,
    reading: options.Reading,
    random_state: Annotated[
        int, typer.Option(help="Seed of the rows that are drawn from the model.")
    ] = 0,
    device: options.Device = "auto",
    result: options.Output,
) -> None:
    """Write a page that shows what a model found in a table, and how far to trust it.

    DATA is the table that was fitted, or another with the same columns. The page needs no
    network and no other file. --json prints everything on it as data.
    """
    from rnade.tables import check_destination

    force, quiet, as_json = result.force, result.quiet, result.as_json
    path = Path(output) if output is not None else None if as_json else Path("report.html")
    if path is not None:
        check_destination(path, force=force, inputs=[model, data])
    beside = _place_beside(path, explore, force=force, inputs=[model, data])
    from rnade import load
    from rnade.columns.names import is_read_by_kind
    from rnade.files import write_whole
    from rnade.report import render, study

    estimator = load(model, device=device)
    page = None
    if beside is not None:
        from rnade.cli.given import prepared

        page = prepared(load(model, device="cpu")).explore()
    table = read_for(estimator, data, reading, quiet=quiet)
    found = study(
        estimator,
        table.to_arrow() if is_read_by_kind(estimator) else table.values,
        source=Path(table.source).name,
        places=table.rows,
        dropped_rows=table.dropped_rows,
        random_state=random_state,
    )
    if path is not None:
        address = None
        if page is not None and beside is not None:
            page.save(beside, overwrite=force)
            address = quote(os.path.relpath(beside, path.absolute().parent).replace(os.sep, "/"))
        write_whole(path, render(found, explore=address).encode(), overwrite=force)
    if as_json:
        print_json(found.as_json())
    elif not quiet:
        for name in ("summary", "comparison", "calibration", "oddness"):
            if name in found.sentences:
                print(found.sentences[name])
        note(f"wrote {path}" + (f" and {beside}" if beside else ""), quiet=quiet)


def _place_beside(
    path: Path | None, explore: str | None, *, force: bool, inputs: Sequence[str]
) -> Path | None:
    """Give the file of the page to explore, if there is to be one."""
    from rnade.tables import check_destination

    if explore is None:
        return None
    if path is None:
        raise ValueError("--explore links from the report: name the report too, by --output.")
    if Path(explore).absolute() == path.absolute():
        raise ValueError(f"--explore and --output both name {path}; choose two files.")
    check_destination(Path(explore), force=force, inputs=list(inputs))
    return Path(explore)
