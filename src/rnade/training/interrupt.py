"""Ctrl-C during training: the first ends it with the best weights so far, the second at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether Ctrl-C was pressed since.

    An exception in the middle of an update would leave half of the weights moved, so the signal
    is only remembered. Signals belong to the main thread; in others nothing is changed.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return
    before = signal.getsignal(signal.SIGINT)

    def remember(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    if before is None or before is signal.SIG_IGN:  # set by other code, or switched off
        yield pressed.is_set
        return
    signal.signal(signal.SIGINT, remember)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)
