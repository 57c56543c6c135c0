"""``rnade explore``: one page on which a model answers in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from rnade.cli import options
from rnade.cli.reading import read_for
from rnade.cli.terminal import note


def explore(
    model: options.ModelFile,
    *,
    output: Annotated[str, options.output("The page; by default explore.html.")] = "explore.html",
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="A table whose rows are put into the page, to start from: whoever has the page"
            " can read them. By default it has no rows.",
            show_default=False,
        ),
    ] = None,
    title: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help="Of the page; by default the name of the file that was fitted.",
            show_default=False,
        ),
    ] = None,
    layout: options.Layout,
    writing: options.Writing,
) -> None:
    """Write a page to explore a model: set some columns, and all others follow.

    Every other column shows its exact distribution given those that are set, with the log density
    and p-value of what is set. The page computes all of it in the browser; it needs no network and
    no other file.
    """
    from rnade.tables import check_destination

    path = Path(output)
    check_destination(path, force=writing.force, inputs=[model, *([rows] if rows else [])])
    from rnade import load
    from rnade.cli.given import prepared

    estimator = prepared(load(model, device="cpu"))
    table = None
    if rows is not None:
        reading = options.Reading(**vars(layout))
        table = read_for(estimator, rows, reading, quiet=writing.quiet, to_fill=True).to_arrow()
    page = estimator.explore(table, title=title)
    page.save(path, overwrite=writing.force)
    for words in page.notes:
        note(words, quiet=writing.quiet)
    note(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)", quiet=writing.quiet)
