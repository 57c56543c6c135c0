"""``rnade reproduce``: the paper's tables from one command each, resumable."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rnade.cli.options import Device, Json, Quiet, split_names
from rnade.cli.terminal import note, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rnade.reproduce.experiment import AbstractExperiment, Choice, Context
    from rnade.reproduce.layout import ResultTable
    from rnade.reproduce.runner import Job, RecordFile


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Which: binary, table1, table1-dequantised or table1-variants."
        ),
    ],
    data_dir: Annotated[
        str | None,
        typer.Option(
            help="Folder of the data sets; by default RNADE_DATA, else they are downloaded."
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="Folder of records and tables; by default results/NAME."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version, which shows that all works.")
    ] = False,
    datasets: Annotated[
        str | None, typer.Option(help="Only these data sets, with commas between.")
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="Only these models, with commas between.")
    ] = None,
    folds: Annotated[int | None, typer.Option(help="Only the first so many folds.")] = None,
    device: Device = "auto",
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Run nothing; lay out the records there are.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run an experiment of the paper and lay its results out beside the published ones.

    One record is written for each job as it ends, to records.jsonl in the output folder; a run
    that was stopped goes on where it was. table.md, table.csv and table.html are made of the
    records.
    """
    from rnade.reproduce import get_experiment
    from rnade.reproduce.experiment import Choice
    from rnade.reproduce.runner import RecordFile

    experiment = get_experiment(name)
    choice = Choice(quick, _names(datasets), _names(models), folds)
    folder = Path(output or f"results/{name}{'-quick' if quick else ''}")
    records = RecordFile(folder / "records.jsonl")
    plan = experiment.plan(choice)
    if not report_only:
        _run(experiment, plan, records, _context(data_dir, device), choice, quiet=quiet)
    tables, missing = _report(experiment, plan, records, choice, folder)
    if missing:
        note(f"{missing} jobs have no record yet; their cells are empty", quiet=quiet)
    note(f"wrote {folder}/table.md, table.csv and table.html", quiet=quiet)
    if as_json:
        print_json(_as_json(tables, missing))
    else:
        _show(tables)


def _names(text: str | None) -> tuple[str, ...] | None:
    names = split_names(text)
    return tuple(names) if names else None


def _context(data_dir: str | None, device: str) -> "Context":
    from rnade.data import DataStore
    from rnade.estimators.settings import resolve_device
    from rnade.reproduce.experiment import Context

    return Context(DataStore(data_dir), resolve_device(device))


def _run(
    experiment: "AbstractExperiment",
    plan: "Sequence[Sequence[Job]]",
    records: "RecordFile",
    context: "Context",
    choice: "Choice",
    *,
    quiet: bool,
) -> None:
    from rnade.progress import job_bar
    from rnade.reproduce.runner import pending, run_plan

    total = sum(len(group) for group in plan)
    left = sum(len(group) for group in pending(plan, records))
    if left < total:
        note(f"{total - left} of {total} jobs are recorded already", quiet=quiet)
    command = f"rnade reproduce {experiment.name}{' --quick' if choice.quick else ''}"
    with job_bar(experiment.name, total, total - left, shown=not quiet) as on_job:
        for record in run_plan(
            plan, lambda jobs: experiment.execute(jobs, context), records, command=command
        ):
            on_job(", ".join(str(value) for value in record["job"].values()))


def _report(
    experiment: "AbstractExperiment",
    plan: "Sequence[Sequence[Job]]",
    records: "RecordFile",
    choice: "Choice",
    folder: Path,
) -> "tuple[list[ResultTable], int]":
    """Write the tables of the records of a plan; give them, and how many jobs have no record."""
    from rnade.files import write_whole
    from rnade.reproduce.layout import to_csv, to_html, to_markdown

    found = records.read()
    wanted = {job.identity for group in plan for job in group}
    tables = experiment.tables(choice, {i: r for i, r in found.items() if i in wanted})
    folder.mkdir(parents=True, exist_ok=True)
    pages = {
        "table.md": "\n".join(to_markdown(table) for table in tables),
        "table.csv": to_csv(tables),
        "table.html": to_html(tables, experiment.title),
    }
    for file, text in pages.items():
        write_whole(folder / file, text.encode(), overwrite=True)
    return tables, len(wanted - set(found))


def _show(tables: "Sequence[ResultTable]") -> None:
    from rnade.reproduce.layout import to_markdown

    for table in tables:
        print(to_markdown(table))


def _as_json(tables: "Sequence[ResultTable]", missing: int) -> dict[str, Any]:
    return {
        "missing": missing,
        "tables": [
            {
                "title": table.title,
                "cells": [
                    {
                        "row": row,
                        "column": column,
                        "value": cell.value,
                        "standard_error": cell.standard_error,
                        "published": cell.published,
                        "difference": cell.difference,
                        "bold": cell.bold,
                    }
                    for row in table.rows
                    for column in table.columns
                    for cell in [table.cell(row, column)]
                ],
            }
            for table in tables
        ],
    }
