"""``rnade reproduce``: the paper's tables from one command each, resumable."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from rnade.cli.options import Device, Json, Quiet, split_names
from rnade.cli.terminal import note, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rnade.reproduce.experiment import AbstractExperiment, Choice, Context
    from rnade.reproduce.layout import ResultTable
    from rnade.reproduce.runner import Job, RecordFile
    from rnade.reproduce.speech_data import SpeechFolder

_SPEECH = "Speech (table3, figure2)"


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Which: binary, table1, table1-dequantised, table1-variants, table2, table3,"
            " figure1, figure2 or figure3.",
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
    timit: Annotated[
        str | None, typer.Option(help="TIMIT's folder, for speech.", rich_help_panel=_SPEECH)
    ] = None,
    speech: Annotated[
        str | None,
        typer.Option(help="Folder of WAV or FLAC files, for speech.", rich_help_panel=_SPEECH),
    ] = None,
    split_by: Annotated[
        str,
        typer.Option(
            help="Split --speech by speaker (a folder each) or by file.", rich_help_panel=_SPEECH
        ),
    ] = "speaker",
    on_bad_file: Annotated[
        str,
        typer.Option(
            help="Refuse or skip sound files that cannot be used; either names them.",
            rich_help_panel=_SPEECH,
        ),
    ] = "refuse",
    device: Device = "auto",
    zoran_weiss: Annotated[
        Path | None,
        typer.Option(help="MATLAB file of Zoran and Weiss's mixture, for its row of table2."),
    ] = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Run nothing; lay out the records there are.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run an experiment of the paper and lay its results out beside the published ones.

    One record is written for each job as it ends, to records.jsonl in the output folder; a run
    that was stopped goes on where it was. table.md, table.csv and table.html are made of the
    records, and so are the pictures of a figure.
    """
    from rnade.reproduce import get_experiment
    from rnade.reproduce.experiment import Choice
    from rnade.reproduce.runner import RecordFile

    experiment = get_experiment(name)
    names, sound = _speech(_names(datasets), timit, speech, split_by, on_bad_file)
    choice = Choice(quick, names, _names(models), folds, sound)
    folder = Path(output or f"results/{name}{'-quick' if quick else ''}")
    records = RecordFile(folder / "records.jsonl")
    plan = experiment.plan(choice)
    if not report_only:
        context = _context(data_dir, device, folder, zoran_weiss, sound)
        _run(experiment, plan, records, context, choice, quiet=quiet)
    tables, missing, written = _report(experiment, plan, records, choice, folder)
    if missing:
        note(f"{missing} jobs have no record yet; their cells are empty", quiet=quiet)
    note(f"wrote {folder}/{', '.join(written)}", quiet=quiet)
    if as_json:
        print_json(_as_json(tables, missing))
    else:
        _show(tables)


def _names(text: str | None) -> tuple[str, ...] | None:
    names = split_names(text)
    return tuple(names) if names else None


def _speech(
    datasets: tuple[str, ...] | None,
    timit: str | None,
    folder: str | None,
    split_by: str,
    on_bad_file: str,
) -> "tuple[tuple[str, ...] | None, SpeechFolder]":
    """The data sets and folder that the options of speech come to."""
    from rnade.checks import unknown_name
    from rnade.reproduce.speech_data import SpeechFolder

    if split_by not in ("speaker", "file"):
        raise unknown_name(split_by, ["speaker", "file"], "--split-by")
    if on_bad_file not in ("refuse", "skip"):
        raise unknown_name(on_bad_file, ["refuse", "skip"], "--on-bad-file")
    given = {"timit": timit, "folder": folder}
    named = [name for name, path in given.items() if path is not None]
    if len(named) > 1:
        raise ValueError("Give --timit or --speech, not both.")
    for name in named:
        if datasets not in (None, (name,)):
            raise ValueError(f"The folder named is data set {name!r}; got {','.join(datasets)!r}.")
        datasets = (name,)
    path = next((Path(p) for p in given.values() if p is not None), None)
    by, bad = cast(Any, split_by), cast(Any, on_bad_file)  # checked above
    return datasets, SpeechFolder(path, by, bad)


def _context(
    data_dir: str | None,
    device: str,
    folder: Path,
    mixture_file: Path | None,
    speech: "SpeechFolder",
) -> "Context":
    from rnade.data import DataStore
    from rnade.estimators.settings import resolve_device
    from rnade.reproduce.experiment import Context

    return Context(DataStore(data_dir), resolve_device(device), folder, mixture_file, speech)


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
) -> "tuple[list[ResultTable], int, list[str]]":
    """Write what the records of a plan give.

    Gives the tables, how many jobs have no record, and the names of the files written.
    """
    from rnade.files import write_whole
    from rnade.reproduce.layout import to_csv, to_html, to_markdown

    found = records.read()
    wanted = {job.identity for group in plan for job in group}
    known = {i: r for i, r in found.items() if i in wanted}
    tables = experiment.tables(choice, known)
    folder.mkdir(parents=True, exist_ok=True)
    files = experiment.pictures(choice, known)
    if tables:
        pages = {
            "table.md": "\n".join(to_markdown(table) for table in tables),
            "table.csv": to_csv(tables),
            "table.html": to_html(tables, experiment.title),
        }
        files |= {name: text.encode() for name, text in pages.items()}
    for name, contents in files.items():
        write_whole(folder / name, contents, overwrite=True)
    return tables, len(wanted - set(found)), list(files)


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
