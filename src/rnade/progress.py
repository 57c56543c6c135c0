"""Progress on stderr: of training, of searches and of plans of jobs."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from rnade.training import Bank, HistoryRow


def _epochs_bar() -> Progress:
    """Draw epochs done and to come, with a field for scores, and the time left."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs {task.fields[scores]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True))


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
def bank_bar(description: str, *, shown: bool) -> Iterator[Callable[[Bank], None] | None]:
    """Give a function to call with a bank after each epoch, or None if nothing is `shown`.

    One bar for all models: epochs done and to come, the best score so far, and the time left.
    Where stderr is no terminal, rich draws the bar once, at the end.
    """
    if not shown:
        yield None
        return
    with _epochs_bar() as progress:
        task = progress.add_task(description, total=None, scores="")

        def on_epoch(bank: Bank) -> None:
            n = len(bank.members)
            models = f" {n} models" if n > 1 else ""
            # Early stopping takes epochs away, so the total shrinks as training goes.
            progress.update(
                task,
                description=f"{description}{models}",
                completed=bank.epochs_done,
                total=bank.epochs_done + bank.epochs_left,
                scores=f"best {max(bank.best_scores()):.3f} nats, rate {bank.rate:.2g}",
            )

        yield on_epoch


@contextmanager
def training_bar(
    description: str, n_epochs: int, *, shown: bool
) -> Iterator[Callable[[HistoryRow], None] | None]:
    """Give a function to call with each row of a history, or None if nothing is `shown`."""
    if not shown:
        yield None
        return
    with _epochs_bar() as progress:
        task = progress.add_task(description, total=n_epochs, scores="")

        def on_epoch(row: HistoryRow) -> None:
            held_out = row["validation"]
            scores = f"train {row['train']:.3f}"
            scores += "" if held_out is None else f", held out {held_out:.3f} nats"
            progress.update(task, completed=row["epoch"], scores=scores)

        yield on_epoch
        # Early stopping ends before the last epoch: the bar is full all the same.
        progress.update(task, total=progress.tasks[0].completed)


# Settings that the table of a search shows, and seconds between two looks at them.
N_LEADERS = 8
LOOK_EVERY = 0.5


@contextmanager
def leaders(
    candidates: Sequence[Mapping[str, Any]], means: Callable[[], Any], *, shown: bool
) -> Iterator[Callable[[Bank], None] | None]:
    """Show a live table of the settings that lead a search, and how far it is.

    Parameters
    ----------
    candidates : sequence of dict
        The settings.
    means : callable
        Gives the mean score of each, so far.
    shown : bool
        If not, None is given and nothing is drawn.
    """
    if not shown:
        yield None
        return
    names = sorted({name for params in candidates for name in params})
    began = looked = time.perf_counter()

    def table(bank: Bank) -> Table:
        done, left = bank.epochs_done, bank.epochs_left
        seconds = time.perf_counter() - began
        title = f"{len(bank.members)} models, {done} of {done + left} epochs, {seconds:.0f} s"
        if done:
            title += f", at most {seconds * left / done:.0f} s left"
        drawn = Table(*names, "nats per row", title=title)
        scores = means()
        for i in np.argsort(-scores)[:N_LEADERS]:
            values = [str(candidates[i].get(name, "")) for name in names]
            drawn.add_row(*values, f"{scores[i]:.3f}")
        return drawn

    with Live(console=Console(stderr=True), auto_refresh=False) as live:
        last: list[Bank] = []

        def on_epoch(bank: Bank) -> None:
            nonlocal looked
            last[:] = [bank]
            if time.perf_counter() - looked >= LOOK_EVERY:
                looked = time.perf_counter()
                live.update(table(bank), refresh=True)

        yield on_epoch
        if last:
            live.update(table(last[0]), refresh=True)
