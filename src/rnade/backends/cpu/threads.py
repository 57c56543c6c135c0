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
from pathlib import Path
from queue import Empty, SimpleQueue
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


def may_split_anywhere() -> bool:
    """Whether BLAS can be held to one thread from threads other than the main one, too."""
    return _mkl() is not None


def _may_split() -> bool:
    """Whether BLAS can be held to one thread from here, so that tasks may run side by side."""
    return may_split_anywhere() or threading.current_thread() is threading.main_thread()


class _OneMklThread:
    """Hold MKL to one thread on the calling thread, and give it back after."""

    def __enter__(self) -> None:
        self.before = _mkl().MKL_Set_Num_Threads_Local(1)

    def __exit__(self, *error: object) -> None:
        _mkl().MKL_Set_Num_Threads_Local(self.before)


@contextlib.contextmanager
def _one_scipy_thread() -> Iterator[None]:
    """Hold SciPy's BLAS to one thread in the whole process, and give it back after."""
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


def _one_blas_thread() -> contextlib.AbstractContextManager[None]:
    """Hold the kernels' BLAS to one thread, and give it back after."""
    if _mkl() is not None:
        return _OneMklThread()
    # Threadpoolctl lets one thread alone do it.
    on_main = threading.current_thread() is threading.main_thread()
    return _one_scipy_thread() if on_main else contextlib.nullcontext()


class _Pool:
    """Threads that wait for jobs.

    Handing a job to a thread of `concurrent.futures`, and waiting for it, took a tenth of a
    millisecond of a training step: its locks and conditions are Python code, which the kernels
    drive out of the caches. The queues used here are C code.
    """

    def __init__(self) -> None:
        self.jobs: SimpleQueue[Task] = SimpleQueue()
        self.threads = 0
        self.pending = 0  # jobs that have not ended
        self.lock = threading.Lock()

    def submit(self, job: Task, times: int) -> None:
        """Have a job done by so many threads, or one after the other if there are fewer."""
        with self.lock:
            self.pending += times
            while self.threads < min(self.pending, os.cpu_count() or 1):
                name = f"rnade-cpu-{self.threads}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
                self.threads += 1
        for _ in range(times):
            self.jobs.put(job)

    def _work(self) -> None:
        while True:
            job = self.jobs.get()
            try:
                job()
            finally:
                with self.lock:
                    self.pending -= 1


_pool = _Pool()
# Threads of callers that share the cores, each of which calls kernels.
_sharing: list[None] = []


@contextlib.contextmanager
def sharing() -> Iterator[None]:
    """Within it, kernels take a share of the cores: there are others that call them meanwhile."""
    _sharing.append(None)
    try:
        yield
    finally:
        _sharing.pop()


def _after_fork() -> None:
    """In a child: the parent's threads are not here, nor will its locks be released."""
    global _pool
    _pool = _Pool()
    _sharing.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def run(tasks: Sequence[Task], threads: int) -> None:
    """Run all tasks, on the calling thread and up to `threads` - 1 others.

    Each thread takes the next task until none is left, so the caller never waits for a thread
    that is slow to start or that another caller keeps busy. It does wait for those that have
    begun, even when it is interrupted: they write to its memory.
    """
    share = max(1, threads // max(1, len(_sharing)))
    helpers = min(share, len(tasks)) - 1 if _may_split() else 0
    remaining = iter(tasks)
    # A helper takes a place before it begins. The caller takes those that are left at the end:
    # whoever comes later has nothing to do, and is not waited for.
    places: list[None] = [None] * helpers
    errors: list[BaseException | None] = []  # of each that has ended
    ended: SimpleQueue[None] = SimpleQueue()

    def help_out() -> None:
        if not _taken(places):
            return
        error = None
        try:
            with _one_blas_thread():
                for task in remaining:
                    task()
        except BaseException as caught:
            error = caught  # to be raised by the caller
        errors.append(error)
        ended.put(None)

    with _one_blas_thread():
        try:
            if helpers > 0:
                with contextlib.suppress(RuntimeError):  # the interpreter is shutting down
                    _pool.submit(help_out, helpers)
            for task in remaining:
                task()
        finally:
            while _taken(places):
                helpers -= 1
            while len(errors) < helpers:
                try:
                    ended.get(timeout=1.0)
                except Empty:
                    continue
                except BaseException as interruption:
                    errors.append(interruption)
                    helpers += 1
            for error in errors:
                if error is not None:
                    raise error


def _taken(places: list[None]) -> bool:
    """Take a place; False if there is none. No two threads get the same."""
    try:
        places.pop()
    except IndexError:
        return False
    return True
