"""``rnade reproduce``: the paper's tables from one command each, resumable."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rnade.cli.options import Device, Json, Quiet, split_names
from rnade.cli.terminal import note, print_json
from rnade.reproduce import EXPERIMENTS

if TYPE_CHECKING:
    from rnade.reproduce.core.experiment import AbstractExperiment, Choice, Context
    from rnade.reproduce.core.layout import ResultTable
    from rnade.reproduce.core.runner import RecordFile

_SPEECH = "Speech (table3, figure2)"


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(EXPERIMENTS)}.")],
    data_dir: Annotated[
        str | None,
        typer.Option(
            help="Folder of the data sets. By default RNADE_DATA; without it they are downloaded."
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="Folder of records and tables. By default results/NAME."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version that checks that everything works.")
    ] = False,
    datasets: Annotated[
        str | None, typer.Option(help="Only these data sets, comma-separated.")
    ] = None,
    models: Annotated[str | None, typer.Option(help="Only these models, comma-separated.")] = None,
    folds: Annotated[int | None, typer.Option(help="Only the first N folds.")] = None,
    timit: Annotated[
        Path | None, typer.Option(help="Folder of TIMIT.", rich_help_panel=_SPEECH)
    ] = None,
    speech: Annotated[
        Path | None, typer.Option(help="Folder of WAV or FLAC files.", rich_help_panel=_SPEECH)
    ] = None,
    split_by: Annotated[
        Literal["speaker", "file"],
        typer.Option(
            help="Split --speech by speaker (one folder each) or by file.", rich_help_panel=_SPEECH
        ),
    ] = "speaker",
    on_bad_file: Annotated[
        Literal["refuse", "skip"],
        typer.Option(
            help="Sound files that cannot be used: an error, or left out; both name them.",
            rich_help_panel=_SPEECH,
        ),
    ] = "refuse",
    device: Device = "auto",
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option(help="Where banks of models train: here, or in parts on a Ray cluster."),
    ] = "local",
    zoran_weiss: Annotated[
        Path | None,
        typer.Option(help="MATLAB file of Zoran and Weiss's mixture, for its row of table2."),
    ] = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Run nothing; write tables of existing records.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run an experiment of the paper and compare its results with the published ones.

    Each finished job adds one record to records.jsonl in the output folder; the same command
    continues a run that was stopped. table.md, table.csv and table.html are written from the
    records, and so are the pictures of a figure.
    """
    from rnade.data import DataStore
    from rnade.data.speech import SpeechFolder
    from rnade.estimators.settings import resolve_device
    from rnade.reproduce import get_experiment
    from rnade.reproduce.core.experiment import Choice, Context
    from rnade.reproduce.core.layout import to_json, to_markdown
    from rnade.reproduce.core.runner import RecordFile
    from rnade.training.engines import bank_engine

    experiment = get_experiment(name)
    sound = SpeechFolder(timit or speech, split_by, on_bad_file)
    names = _with_folder(_names(datasets), timit, speech)
    choice = Choice(quick, names, _names(models), folds, sound)
    folder = Path(output or f"results/{name}{'-quick' if quick else ''}")
    records = RecordFile(folder / "records.jsonl")
    if not report_only:
        store = DataStore(data_dir)
        context = Context(store, resolve_device(device), folder, zoran_weiss, sound)
        with bank_engine(engine):
            _run(experiment, records, context, choice, quiet=quiet)
    tables, missing, written = _report(experiment, records, choice, folder)
    if missing:
        note(f"{missing} jobs have no record yet; their cells are empty", quiet=quiet)
    note(f"wrote {folder}/{', '.join(written)}", quiet=quiet)
    if as_json:
        print_json({"missing": missing, "tables": to_json(tables)})
    else:
        for table in tables:
            print(to_markdown(table))


def _names(text: str | None) -> tuple[str, ...] | None:
    names = split_names(text)
    return tuple(names) if names else None


def _with_folder(
    datasets: tuple[str, ...] | None, timit: Path | None, speech: Path | None
) -> tuple[str, ...] | None:
    """Data sets to run: a folder of speech that is given is the only one."""
    if timit is None and speech is None:
        return datasets
    if timit is not None and speech is not None:
        raise ValueError("Pass --timit or --speech, not both.")
    name = "timit" if speech is None else "folder"
    if datasets not in (None, (name,)):
        raise ValueError(f"The given folder is data set {name!r}; got {','.join(datasets)!r}.")
    return (name,)


def _run(
    experiment: "AbstractExperiment",
    records: "RecordFile",
    context: "Context",
    choice: "Choice",
    *,
    quiet: bool,
) -> None:
    from rnade.progress import job_bar
    from rnade.reproduce.core.runner import pending, run_plan

    plan = experiment.plan(choice)
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
    experiment: "AbstractExperiment", records: "RecordFile", choice: "Choice", folder: Path
) -> "tuple[list[ResultTable], int, list[str]]":
    """Write what the records of a plan give.

    Gives the tables, how many jobs have no record, and the names of the files written.
    """
    from rnade.files import write_whole
    from rnade.reproduce.core.layout import to_csv, to_html, to_markdown

    known, missing = experiment.known(choice, records.read())
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
    return tables, missing, list(files)
