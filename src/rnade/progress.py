"""Progress bars on stderr, for training and for plans of jobs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from rnade.training import HistoryRow


@contextmanager
def job_bar(
    description: str, n_jobs: int, n_done: int, *, shown: bool
) -> Iterator[Callable[[str], None]]:
    """Give a function to call with what each job was of, as it ends."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs {task.fields[last]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as progress:
        task = progress.add_task(description, total=n_jobs, completed=n_done, last="")
        yield lambda last: progress.update(task, advance=1, last=last)


@contextmanager
def training_bar(
    description: str, n_epochs: int, *, shown: bool
) -> Iterator[Callable[[HistoryRow], None] | None]:
    """Give a function to call with each row of the history, or None if nothing is `shown`.

    Where stderr is no terminal, rich draws the bar once, at the end.
    """
    if not shown:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs {task.fields[scores]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(description, total=n_epochs, scores="")

        def on_epoch(row: HistoryRow) -> None:
            held_out = row["validation"]
            scores = f"train {row['train']:.3f}"
            scores += "" if held_out is None else f", held out {held_out:.3f} nats"
            progress.update(task, completed=row["epoch"], scores=scores)

        yield on_epoch
        # Early stopping ends before the last epoch: the bar is full all the same.
        progress.update(task, total=progress.tasks[0].completed)
