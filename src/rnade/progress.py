"""Progress of training, on stderr."""

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

from rnade.training import Bank


@contextmanager
def bank_bar(description: str, *, shown: bool) -> Iterator[Callable[[Bank], None] | None]:
    """Give a function to call with a bank after each epoch, or None if nothing is `shown`.

    One bar for all models: epochs done and to come, the best score so far, and the time left.
    Where stderr is no terminal, rich draws the bar once, at the end.
    """
    if not shown:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs {task.fields[score]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(description, total=None, score="")

        def on_epoch(bank: Bank) -> None:
            n = len(bank.members)
            models = f" {n} models" if n > 1 else ""
            # Early stopping takes epochs away, so the total shrinks as training goes.
            progress.update(
                task,
                description=f"{description}{models}",
                completed=bank.epochs_done,
                total=bank.epochs_done + bank.epochs_left,
                score=f"best {max(bank.best_scores()):.3f} nats, rate {bank.rate:.2g}",
            )

        yield on_epoch
