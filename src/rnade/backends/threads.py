"""How many threads the CPU kernels use, apart from torch's own operations."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

import torch

# Multiplications in torch's own products below which one thread is best.
FEW_PRODUCTS = 2**28

_KERNEL_THREADS: ContextVar[int | None] = ContextVar("kernel_threads", default=None)


def kernel_threads() -> int:
    """Threads of the fused CPU kernels: torch's number, unless `one_torch_thread` keeps it."""
    kept = _KERNEL_THREADS.get()
    return torch.get_num_threads() if kept is None else kept


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Within it, torch's own CPU operations use one thread; our kernels use as many as before.

    A training update is a few dozen small operations beside one kernel. On two threads each
    operation ends in a barrier, and where another process holds a core every barrier waits for
    the scheduler: 150 ms an update were seen instead of 8. Our threads do not spin.
    """
    before = torch.get_num_threads()
    token = _KERNEL_THREADS.set(kernel_threads())
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _KERNEL_THREADS.reset(token)


def threads_for(n_products: int) -> AbstractContextManager[None]:
    """Leave torch its threads where its own products are worth it; else keep it to one."""
    return one_torch_thread() if n_products < FEW_PRODUCTS else nullcontext()
