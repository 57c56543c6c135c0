"""Progress on stderr: of training, of searches and of plans of jobs."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.progress import Progress, ProgressColumn, Task
from rich.progress_bar import ProgressBar
from rich.table import Column, Table

from rnade.training import Bank, HistoryRow

_WIDEST_BAR, _NARROWEST_BAR = 40, 4


class _Line(ProgressColumn):
    """A task in one line: the number done of all, the time taken and the time left.

    Its details and then its bar get what room is left, and a long description loses its end.
    """

    def __init__(self, console: Console, unit: str) -> None:
        super().__init__()
        self.console, self.unit = console, unit

    def render(self, task: Task) -> Table:
        total = "?" if task.total is None else f"{task.total:.0f}"
        known = [
            f"{task.completed:.0f}/{total} {self.unit}",
            _clock(task.finished_time if task.finished else task.elapsed),
            f"{_clock(task.time_remaining)} left",
        ]
        room = self.console.width - sum(len(text) + 1 for text in known)
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
        columns = (Column(no_wrap=True) for _ in row)
        line = Table.grid(*columns, padding=(0, 1), pad_edge=False)
        line.add_row(*row)
        return line


def _clock(seconds: float | None) -> str:
    return "-:--:--" if seconds is None else str(timedelta(seconds=int(seconds)))


@contextmanager
def _compilation_told(console: Console) -> Iterator[None]:
    """Within it, say once if kernels have to be compiled, as on a machine's first fit."""
    event: Any = import_module("numba.core.event")

    class Notice(event.Listener):  # type: ignore[misc]
        told = False

        def on_start(self, _: Any) -> None:
            if not self.told:
                console.print("Compiling kernels for this machine, once (about 5 seconds) ...")
            self.told = True

        def on_end(self, _: Any) -> None:
            pass

    # Numba tells of what it compiles, not of what it takes from its cache.
    with event.install_listener("numba:compile", Notice()):
        yield


@contextmanager
def _bar(
    description: str, unit: str, *, shown: bool, compiles: bool = False, **start: Any
) -> Iterator[Any]:
    """Give a function that updates a bar, with the arguments of rich's `Progress.update`."""
    console = Console(stderr=True)
    with (
        Progress(_Line(console, unit), console=console, disable=not shown) as progress,
        _compilation_told(console) if shown and compiles else nullcontext(),
    ):
        task = progress.add_task(description, details=[], **start)
        yield partial(progress.update, task)


@contextmanager
def job_bar(
    description: str, n_jobs: int, n_done: int, *, shown: bool
) -> Iterator[Callable[[str], None]]:
    """Give a function to call with what each job was of, as it ends."""
    with _bar(description, "jobs", shown=shown, total=n_jobs, completed=n_done) as update:
        yield lambda last: update(advance=1, details=[last])


@contextmanager
def rows_bar(
    description: str, n_rows: int | None, *, shown: bool
) -> Iterator[Callable[[int], None]]:
    """Give a function to call with the number of rows that were read, or scored, since."""
    with _bar(description, "rows", shown=shown, total=n_rows) as update:
        yield lambda n: update(advance=n)


@contextmanager
def bank_bar(
    description: str, *, shown: bool, n_told: int | None = None
) -> Iterator[Callable[[Bank], None] | None]:
    """Give a function to call with a bank after each epoch, or None if nothing is `shown`.

    One bar for all models: epochs done and to come, the best score so far, of the first `n_told`
    members or of all, and the time left.
    Where stderr is no terminal, rich draws the bar once, at the end.
    """
    with _bar(description, "epochs", shown=shown, compiles=True, total=None) as update:

        def on_epoch(bank: Bank) -> None:
            n = n_told or len(bank.members)
            models = f" {n} models" if n > 1 else ""
            score, rate = bank.best(n_told)
            told = [f"best {score:.3f} nats", f"rate {rate:.2g}"]
            # Early stopping takes epochs away, so the total shrinks as training goes.
            update(
                description=f"{description}{models}",
                completed=bank.epochs_done,
                total=bank.epochs_done + bank.epochs_left,
                details=told if math.isfinite(score) else [],
            )

        yield on_epoch if shown else None


@contextmanager
def training_bar(
    description: str, n_epochs: int, *, shown: bool
) -> Iterator[Callable[[HistoryRow], None] | None]:
    """Give a function to call with each row of a history, or None if nothing is `shown`."""
    last = 0
    with _bar(description, "epochs", shown=shown, total=n_epochs) as update:

        def on_epoch(row: HistoryRow) -> None:
            nonlocal last
            last = row["epoch"]
            details = [f"train {row['train']:.3f} nats"]
            if row["validation"] is not None:
                details.insert(0, f"held out {row['validation']:.3f} nats")
            update(completed=last, details=details)

        yield on_epoch if shown else None
        # Early stopping ends before the last epoch: the bar is full all the same.
        update(total=last)


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
    last: Bank | None = None

    def draw(bank: Bank) -> None:
        done, left = bank.epochs_done, bank.epochs_left
        seconds = time.perf_counter() - began
        title = f"{len(bank.members)} models, {done} of {done + left} epochs, {seconds:.0f} s"
        if done:
            title += f", at most {seconds * left / done:.0f} s left"
        table = Table(*names, "nats per row", title=title)
        scores = means()
        for i in np.argsort(-scores)[:N_LEADERS]:
            values = [str(candidates[i].get(name, "")) for name in names]
            table.add_row(*values, f"{scores[i]:.3f}")
        live.update(table, refresh=True)

    def on_epoch(bank: Bank) -> None:
        nonlocal looked, last
        last = bank
        if time.perf_counter() - looked >= LOOK_EVERY:
            looked = time.perf_counter()
            draw(bank)

    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False) as live, _compilation_told(console):
        yield on_epoch
        if last is not None:
            draw(last)
