"""Memory for the CPU kernels that is used again, call after call.

Fresh memory costs a page fault for every 4 KiB when it is first written. The gradient of a model
of medium size is some megabytes, made anew in every training step: the faults took a quarter of
the step. What is taken here comes back when nobody holds it any more, and is given out again.
"""

import math
import os
import threading
import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Numbers from which a tensor is worth keeping. Smaller ones the system's allocator keeps itself.
WORTH_KEEPING = 2**16
CACHE_LINE = 64  # bytes
MOST_KEPT = 8  # arrays that lie ready; when a size is asked for that none has, older ones go

_local = threading.local()
_ready: list[Any] = []  # arrays that nobody holds, the latest last
_lock = threading.Lock()


def workspace(size: int, dtype: torch.dtype) -> Any:
    """Room for `size` numbers, aligned to cache lines and kept by the thread for the next call."""
    kept = _local.__dict__.setdefault("kept", {})
    if dtype not in kept or kept[dtype].size < size:
        kept[dtype] = torch.empty(size, dtype=dtype).numpy()
    return kept[dtype]


def room(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor of any content, in memory that returns here when the last view of it is gone."""
    size = math.prod(shape)
    if size < WORTH_KEEPING:
        return torch.empty(shape, dtype=dtype)
    array = _take(size, dtype)
    # Torch holds this view for as long as the memory is in use, whoever holds tensors of it.
    lent = array[:]
    weakref.finalize(lent, _ready.append, array).atexit = False
    return torch.from_numpy(lent).view(shape)


def _take(size: int, dtype: torch.dtype) -> Any:
    kind = np.dtype(str(dtype).removeprefix("torch."))
    with _lock:
        # Arrays may come back meanwhile, at the end of the list; only here do they leave it.
        for i in range(len(_ready) - 1, -1, -1):
            if _ready[i].size == size and _ready[i].dtype == kind:
                return _ready.pop(i)
        del _ready[:-MOST_KEPT]
    # NumPy asks the system for pages of 2 MiB where it can, torch for those of 4 KiB; torch begins
    # at a cache line.
    more = CACHE_LINE // kind.itemsize
    whole = np.empty(size + more, kind)
    begin = -whole.ctypes.data % CACHE_LINE // kind.itemsize
    return whole[begin : begin + size]


def _after_fork() -> None:
    """In a child: a lock that another thread of the parent held will not be released."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
