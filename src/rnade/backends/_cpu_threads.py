"""Threads and BLAS for the CPU kernels.

Kernels are serial and run without the interpreter lock; this file spreads them over threads. The
BLAS that they call is held to one thread, since each of our threads calls it by itself.

- Where torch was built with Intel's MKL, its ?gemm is used: the number of its threads can be set
  for the calling thread alone, so nobody else notices. On the small products of the kernels it was
  also measured to be 1.3 to 2 times as fast as OpenBLAS.
- Elsewhere SciPy's BLAS is used. Its threads belong to the whole process and only the main thread
  may set their number: it holds them to one while it runs kernels, then gives them back. Any other
  caller runs its kernels one after the other and leaves the threads to BLAS.

Numba's own parallel loops are not used: its default threading layer aborts the process when two
threads enter it at once, and a forked child hangs in it.
"""

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

Task = Callable[[], None]


@functools.cache
def _mkl() -> Any:
    """The library that holds torch's MKL, or None."""
    if not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return None
    names = ("libtorch_cpu.so", "libtorch_cpu.dylib", "torch_cpu.dll")
    found = [
        path for name in names if (path := Path(torch.__file__).parent / "lib" / name).exists()
    ]
    needed = ("sgemm_", "dgemm_", "MKL_Set_Num_Threads_Local")
    with contextlib.suppress(OSError):
        library = ctypes.CDLL(str(found[0])) if found else None
        if all(hasattr(library, name) for name in needed):
            return library
    return None


def blas_name() -> str:
    """Which BLAS the kernels call, in words."""
    return "MKL, from torch" if _mkl() is not None else "SciPy's BLAS"


@functools.cache
def gemm_address(dtype: np.dtype[Any]) -> int:
    """Address of the Fortran sgemm or dgemm, with 32-bit whole numbers."""
    name = "sgemm" if dtype == np.float32 else "dgemm"
    library = _mkl()
    if library is not None:
        address = ctypes.cast(getattr(library, f"{name}_"), ctypes.c_void_p).value
        assert address is not None
        return address
    from numba.extending import get_cython_function_address

    return int(get_cython_function_address("scipy.linalg.cython_blas", name))


@functools.cache
def _scipy_blas() -> list[Any]:
    import scipy.linalg.cython_blas  # noqa: F401  loads it, if nothing has yet

    libraries: list[Any] = ThreadpoolController().select(user_api="blas").lib_controllers
    return libraries


def _may_split() -> bool:
    """Whether BLAS can be held to one thread from here, so that tasks may run side by side."""
    return _mkl() is not None or threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Hold the kernels' BLAS to one thread, and give it back after."""
    library = _mkl()
    if library is not None:
        before = library.MKL_Set_Num_Threads_Local(1)
        try:
            yield
        finally:
            library.MKL_Set_Num_Threads_Local(before)
    elif threading.current_thread() is threading.main_thread():
        # For the whole process, and threadpoolctl lets one thread alone do it.
        numbers = [(library, library.get_num_threads()) for library in _scipy_blas()]
        try:
            for library, number in numbers:
                if number != 1:
                    library.set_num_threads(1)
            yield
        finally:
            for library, number in numbers:
                if number != 1:
                    library.set_num_threads(number)
    else:
        yield


_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


def _executor() -> ThreadPoolExecutor:
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="rnade-cpu")
        return _pool


def _after_fork() -> None:
    """In a child: the parent's threads are not here, nor will its locks be released."""
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def run(tasks: Sequence[Task], threads: int) -> None:
    """Run all tasks, on the calling thread and up to `threads` - 1 others.

    Each thread takes the next task until none is left, so the caller never waits for a thread
    that is slow to start or that another caller keeps busy.
    """
    threads = min(threads, len(tasks)) if _may_split() else 1
    remaining = iter(tasks)

    def drain() -> None:
        for task in remaining:
            task()

    def help_out() -> None:
        with _one_blas_thread():
            drain()

    helpers: list[Future[None]] = []
    with _one_blas_thread():
        try:
            with contextlib.suppress(RuntimeError):  # the interpreter is shutting down
                helpers += [_executor().submit(help_out) for _ in range(threads - 1)]
            drain()
        finally:
            # Those that have not begun have nothing left to do.
            for helper in [helper for helper in helpers if not helper.cancel()]:
                helper.result()
