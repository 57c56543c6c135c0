"""Parts of a bank that train beside each other on a CPU, each in a thread of its own.

An update of a small model is a few dozen short calls from Python, which leave most cores idle.
Parts are independent: beside each other they end with the numbers of one after the other.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from queue import Empty, SimpleQueue

import torch

from rnade import parallel
from rnade.backends.cpu.threads import may_split_anywhere, sharing
from rnade.backends.threads import FEW_PRODUCTS, kernel_threads, one_torch_thread
from rnade.training.part import Part, interrupts
from rnade.training.sources import ShuffledRows


def can_share_cores(device: torch.device) -> bool:
    """Whether small parts on this device can train at the same time."""
    return (
        device.type == "cpu"
        and parallel.size() == 1
        and kernel_threads() > 1
        and may_split_anywhere()
    )


def small_parts(parts: Sequence[Part], memory: int) -> list[Part]:
    """The parts that can train at the same time, the longest first; none if fewer than two can.

    Parts whose products torch spreads over all cores train alone, and so do those whose rows are
    read or drawn as training goes.
    """
    found = [part for part in parts if not part.run.finished and _is_small(part)]
    if len(found) < 2 or sum(part.bytes for part in found) > memory:
        return []
    return sorted(found, key=lambda part: (-part.run.n_torch_products, -part.bytes))


def _is_small(part: Part) -> bool:
    run = part.run
    return (
        can_share_cores(run.module.device)
        and run.n_torch_products < FEW_PRODUCTS
        and all(isinstance(source, ShuffledRows) for source in run.sources)
    )


def advance_beside(parts: Sequence[Part], share: float, on_epoch: Callable[[], None]) -> bool:
    """Train parts up to a `share` of their epochs; False if Ctrl-C ended it before.

    Whatever thread has ended an epoch, `on_epoch` is called in the caller's.
    """
    told: SimpleQueue[Future[bool] | None] = SimpleQueue()  # epochs, and parts that have ended
    stopping = threading.Event()
    workers = min(len(parts), kernel_threads())
    with one_torch_thread(), interrupts() as pressed, ThreadPoolExecutor(workers) as pool:

        def cancelled() -> bool:
            return pressed() or stopping.is_set()

        def advance(part: Part) -> bool:
            if cancelled():
                return False
            with sharing():
                return part.advance(share, lambda: told.put(None), cancelled)

        waiting = len(parts)
        try:
            for part in parts:
                pool.submit(copy_context().run, advance, part).add_done_callback(told.put)
            done = True
            while waiting:
                try:
                    ended = told.get(timeout=1.0)
                except Empty:
                    continue
                if ended is None:
                    on_epoch()
                else:
                    waiting -= 1
                    done &= ended.result()
        except BaseException:
            stopping.set()  # the others end in the middle of an epoch, and are waited for
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return done
