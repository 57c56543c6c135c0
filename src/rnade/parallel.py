"""Processes that train one model together: torchrun's, Ray's, or any that torch.distributed knows.

Nothing is shared by itself: only within `ranks` do models train by all processes. Each draws its
own rows of every minibatch, gradients are added up, and all make the same update, so that the
result is that of one process up to rounding.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rnade.exceptions import RankLostError

if TYPE_CHECKING:
    from torch import Tensor

# How long a process waits for the others; reading a data set may take them long.
PATIENCE = timedelta(hours=1)

_together = False
# Whether a loss is known, and what can be kept is being written: the launcher ends this process
# at about the same time, which must not break that off.
_ending = False


def rank() -> int:
    """Which of the processes that train together this one is; 0 alone, and 0 writes."""
    if not _together:
        return 0
    import torch.distributed as dist

    return int(dist.get_rank())


def size() -> int:
    """How many processes train together."""
    if not _together:
        return 1
    import torch.distributed as dist

    return int(dist.get_world_size())


@contextmanager
def ranks() -> Iterator[None]:
    """Within it, models are trained by all processes together.

    Processes started by torchrun, or that have set up torch.distributed themselves (as in Ray's
    TorchTrainer), all do the same calls: each fits the same model, and ends with it. In a process
    that is alone nothing changes.

    Examples
    --------
    A program for ``torchrun --nproc-per-node 2 program.py``:

    >>> from rnade.parallel import ranks
    >>> with ranks():
    ...     pass  # RNADE().fit("data/*.parquet")
    """
    global _together
    import torch
    import torch.distributed as dist

    started = not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1
    if started:
        here, n_gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if n_gpus:
            torch.cuda.set_device(here % n_gpus)
        # NCCL refuses processes that share a GPU; models may be on the CPU all the same.
        alone = n_gpus and n_gpus >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        dist.init_process_group("cpu:gloo,cuda:nccl" if alone else "gloo", timeout=PATIENCE)
    if _together or not dist.is_initialized() or dist.get_world_size() == 1:
        yield
        return
    _together = True
    try:
        with _told_to_end():
            yield
    finally:
        _together = False
        if started:
            dist.destroy_process_group()


@contextmanager
def _told_to_end() -> Iterator[None]:
    """Within it, a launcher that ends this process, as another was lost, raises an error."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    global _ending
    _ending = False

    def raise_lost(number: int, frame: Any) -> None:
        global _ending
        if not _ending:
            _ending = True
            raise RankLostError("The launcher ended this process, as another one was lost.")

    before = signal.signal(signal.SIGTERM, raise_lost)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _losses_told() -> Iterator[None]:
    """Within it, an error of torch.distributed says that a process was lost."""
    global _ending
    try:
        yield
    except RankLostError:
        raise
    except RuntimeError as error:
        _ending = True
        why = str(error).splitlines()[0]
        raise RankLostError(f"A process that trains with this one was lost ({why}).") from error


def own_part(n: int) -> slice:
    """Those of n rows that this process takes."""
    i, k = rank(), size()
    return slice(i * n // k, (i + 1) * n // k)


def added_up(tensors: Sequence["Tensor"]) -> list["Tensor"]:
    """Sums over all processes, in one exchange."""
    import torch
    import torch.distributed as dist

    flat = torch.cat([t.reshape(-1) for t in tensors])
    with _losses_told():
        dist.all_reduce(flat)
    parts = torch.split(flat, [t.numel() for t in tensors])
    return [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)]


def aligned(tensors: Sequence["Tensor"]) -> None:
    """Give tensors of all processes the values that those of the first one have, in place.

    Processors of different makes may round differently; no two processes drift apart by that.
    """
    if not _together:
        return
    import torch.distributed as dist

    with _losses_told():
        for t in tensors:
            own = t.contiguous()
            dist.broadcast(own, 0)
            if own is not t:
                t.copy_(own)


def from_first(make: Callable[[], Any]) -> Any:
    """What `make` gives in the first process, in all of them; an error there is raised in all."""
    if not _together:
        return make()
    found = _tried(make) if rank() == 0 else None
    return _given(_gathered(found)[:1])[0]


def from_all(make: Callable[[], Any]) -> list[Any]:
    """What `make` gives in each process, in all of them; an error in one is raised in all."""
    return [make()] if not _together else _given(_gathered(_tried(make)))


def _tried(make: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return make(), None
    except Exception as error:
        return None, error


def _gathered(value: Any) -> list[Any]:
    import torch.distributed as dist

    found: list[Any] = [None] * size()
    with _losses_told():
        dist.all_gather_object(found, value)
    return found


def _given(found: Sequence[tuple[Any, Exception | None]]) -> list[Any]:
    for _, error in found:
        if error is not None:
            raise error
    return [value for value, _ in found]
