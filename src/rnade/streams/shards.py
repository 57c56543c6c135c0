"""A data set dealt into shards, each an endless sequence of rows that can be entered anywhere.

The row groups of a shard are read in an order drawn anew for each pass, through a buffer whose
rows are shuffled; while one is used, a thread fills the next. All of that follows from the seed,
so that a place in the data is one number: how many rows were drawn before. Minibatches take rows
of all shards, so that each mixes rows of as many row groups; processes that train together read
shards of their own.
"""

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
import pyarrow as pa

from rnade.exceptions import TableError
from rnade.streams.files import DataFiles, RowGroup
from rnade.typing import Array

# Shards of a data set, if it has as many row groups: what minibatches mix, and the largest number
# of processes that can train together.
MOST_SHARDS = 16
# Threads that read ahead: each holds a buffer three times while it is shuffled.
MOST_READERS = 4


@functools.cache
def _readers() -> ThreadPoolExecutor:
    n_threads = min(MOST_READERS, os.cpu_count() or 1)
    return ThreadPoolExecutor(n_threads, thread_name_prefix="rnade-reader")


# A child process has none of its parent's threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_readers.cache_clear)


def deal(groups: Sequence[RowGroup], n_shards: int) -> list[list[RowGroup]]:
    """Deal row groups into shards of nearly equal numbers of rows, the largest groups first."""
    shards: list[list[RowGroup]] = [[] for _ in range(n_shards)]
    sizes = [0] * n_shards
    for group in sorted(groups, key=lambda group: -group.n_rows):
        least = sizes.index(min(sizes))
        shards[least].append(group)
        sizes[least] += group.n_rows
    return shards


class Shard:
    """Training rows of some row groups, again and again, in an order that the seed gives.

    Parameters
    ----------
    files : DataFiles
    groups : sequence of RowGroup
    held_out : float
        Share of the rows that are left out.
    convert : callable
        Makes an array of shape (n, D) of a table of n rows.
    columns : sequence of str or None
        Names of those to read.
    capacity : int
        Rows of a buffer, of which there are two.
    seed : sequence of int

    Attributes
    ----------
    n_rows : int
        Rows of one pass.
    drawn : int
        Rows drawn so far.
    """

    def __init__(
        self,
        files: DataFiles,
        groups: Sequence[RowGroup],
        *,
        held_out: float,
        convert: Callable[[pa.Table], Array],
        columns: Sequence[str] | None,
        capacity: int,
        seed: Sequence[int],
    ) -> None:
        self._files, self._groups, self._share = files, list(groups), held_out
        self._convert, self._columns = convert, columns
        self._capacity, self._seed = capacity, tuple(seed)
        self._sizes = [int((~files.held_out(g, held_out)).sum()) for g in groups]
        self.n_rows = sum(self._sizes)
        self._ahead: Future[Array] | None = None  # the next buffer
        self.seek(0)

    def seek(self, drawn: int) -> None:
        """Go to the place where so many rows were drawn."""
        if self._ahead is not None and not self._ahead.cancel():
            wait([self._ahead])
        self.drawn = drawn
        self._ahead = None
        self._buffer: Array | None = None
        # Used by the thread that fills a buffer alone:
        self._next: Iterator[Array] | None = None
        self._rest: Array | None = None  # rows that were read and did not fit into the buffer

    def random(self, *more: int) -> np.random.Generator:
        """Give a generator that belongs to this shard and some numbers."""
        return np.random.default_rng([*self._seed, *more])

    def take(self, n: int) -> Array:
        """Give the next n rows, of shape (n, D)."""
        parts = []
        while n:
            epoch, within = divmod(self.drawn, self.n_rows)
            fill, used = divmod(within, self._capacity)
            if self._buffer is None:
                self._buffer = self._next_buffer(epoch, fill)
            part = self._buffer[used : used + n]
            parts.append(part)
            self.drawn += len(part)
            n -= len(part)
            if used + len(part) == len(self._buffer):
                self._buffer = None
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _next_buffer(self, epoch: int, fill: int) -> Array:
        """Give the rows of a buffer, and begin to fill the one after it."""
        if self._ahead is None:
            self._ahead = _readers().submit(self._filled, epoch, fill)
        found = self._ahead.result()
        at_end = (fill + 1) * self._capacity >= self.n_rows
        after = (epoch + 1, 0) if at_end else (epoch, fill + 1)
        self._ahead = _readers().submit(self._filled, *after)
        return found

    def _filled(self, epoch: int, fill: int) -> Array:
        """Read the rows of a buffer and shuffle them."""
        if fill == 0 or self._next is None:
            self._next, self._rest = self._rows(epoch, fill * self._capacity), None
        wanted = min(self._capacity, self.n_rows - fill * self._capacity)
        parts = [] if self._rest is None else [self._rest]
        have = sum(map(len, parts))
        while have < wanted:
            parts.append(next(self._next))
            have += len(parts[-1])
        rows = np.concatenate(parts) if len(parts) > 1 else parts[0]
        self._rest = rows[wanted:].copy() if have > wanted else None
        rows = rows[:wanted]
        # Unlike an index in brackets, `take` lets other threads run.
        return rows.take(self.random(epoch, 1 + fill).permutation(wanted), axis=0)

    def _rows(self, epoch: int, start: int) -> Iterator[Array]:
        """Training rows of a pass, from so many rows on."""
        for g in self.random(epoch, 0).permutation(len(self._groups)):
            if start >= self._sizes[g]:
                start -= self._sizes[g]
                continue
            group, kept = self._groups[g], ~self._files.held_out(self._groups[g], self._share)
            # The row of the group that is number `start` of those kept.
            at = int(np.flatnonzero(kept)[start])
            start = 0
            for table in self._files.batches(group, self._columns, skip=at):
                here = kept[at : at + table.num_rows]
                at += table.num_rows
                if here.any():
                    yield self._converted(table if here.all() else table.filter(here), group)

    def _converted(self, table: pa.Table, group: RowGroup) -> Array:
        try:
            return self._convert(table)
        except ValueError as error:
            raise TableError(f"{self._files.where(group)}: {error}") from error
