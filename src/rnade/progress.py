"""Progress on stderr: of training, of searches and of plans of jobs."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress import Progress, ProgressColumn, Task
from rich.progress_bar import ProgressBar
from rich.table import Table

from rnade.training import Bank, HistoryRow

_WIDEST_BAR, _NARROWEST_BAR = 40, 4


@dataclass(frozen=True)
class _Line:
    """A task in one line: the number done of all, the time taken and the time left.

    Its details and then its bar get what room is left, and a long description loses its end.
    """

    task: Task
    unit: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        task = self.task
        total = "?" if task.total is None else f"{task.total:.0f}"
        known = [
            f"{task.completed:.0f}/{total} {self.unit}",
            _clock(task.finished_time if task.finished else task.elapsed),
            f"{_clock(task.time_remaining)} left",
        ]
        room = options.max_width - sum(len(text) + 1 for text in known)
        description = task.description[: max(0, room)]
        room -= len(description) + 1 + _NARROWEST_BAR
        for text in task.fields["details"]:
            if len(text) < room:
                known.append(text)
                room -= len(text) + 1
        row: list[Any] = [description, *known]
        if room >= 0:
            width = min(_NARROWEST_BAR + room, _WIDEST_BAR)
            bar = ProgressBar(task.total, task.completed, width, pulse=task.total is None)
            row.insert(1, bar)
        line = Table.grid(padding=(0, 1), pad_edge=False)
        for _ in row:
            line.add_column(no_wrap=True)
        line.add_row(*row)
        yield line


def _clock(seconds: float | None) -> str:
    return "-:--:--" if seconds is None else str(timedelta(seconds=int(seconds)))


class _LineColumn(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Any:
        return _Line(task, self.unit)


def _bar(unit: str, *, shown: bool = True) -> Progress:
    return Progress(_LineColumn(unit), console=Console(stderr=True), disable=not shown)


@contextmanager
def _compilation_told(console: Console) -> Iterator[None]:
    """Within it, say once if kernels have to be compiled, as on a machine's first fit."""
    event: Any = import_module("numba.core.event")

    class Notice(event.Listener):  # type: ignore[misc]
        told = False

        def on_start(self, _: Any) -> None:
            if not self.told:
                console.print("Compiling kernels for this machine, once (about 10 seconds) ...")
            self.told = True

        def on_end(self, _: Any) -> None:
            pass

    # Numba tells of what it compiles, not of what it takes from its cache.
    with event.install_listener("numba:compile", Notice()):
        yield


@contextmanager
def job_bar(
    description: str, n_jobs: int, n_done: int, *, shown: bool
) -> Iterator[Callable[[str], None]]:
    """Give a function to call with what each job was of, as it ends."""
    with _bar("jobs", shown=shown) as progress:
        task = progress.add_task(description, total=n_jobs, completed=n_done, details=[])
        yield lambda last: progress.update(task, advance=1, details=[last])


@contextmanager
def bank_bar(description: str, *, shown: bool) -> Iterator[Callable[[Bank], None] | None]:
    """Give a function to call with a bank after each epoch, or None if nothing is `shown`.

    One bar for all models: epochs done and to come, the best score so far, and the time left.
    Where stderr is no terminal, rich draws the bar once, at the end.
    """
    if not shown:
        yield None
        return
    with _bar("epochs") as progress, _compilation_told(progress.console):
        task = progress.add_task(description, total=None, details=[])

        def on_epoch(bank: Bank) -> None:
            n = len(bank.members)
            models = f" {n} models" if n > 1 else ""
            # Early stopping takes epochs away, so the total shrinks as training goes.
            progress.update(
                task,
                description=f"{description}{models}",
                completed=bank.epochs_done,
                total=bank.epochs_done + bank.epochs_left,
                details=[f"best {max(bank.best_scores()):.3f} nats", f"rate {bank.rate:.2g}"],
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
    with _bar("epochs") as progress:
        task = progress.add_task(description, total=n_epochs, details=[])

        def on_epoch(row: HistoryRow) -> None:
            details = [f"train {row['train']:.3f} nats"]
            if row["validation"] is not None:
                details.insert(0, f"held out {row['validation']:.3f} nats")
            progress.update(task, completed=row["epoch"], details=details)

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

    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False) as live, _compilation_told(console):
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
