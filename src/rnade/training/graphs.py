"""A block of updates, made one by one on the CPU and as one CUDA graph on a GPU.

An update of a small model is a dozen launches of a few microseconds each; launched from Python
they take longer than the work. A graph is captured once for each length of block and replayed.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rnade import parallel
from rnade.backends.garbage import collection_paused
from rnade.batch import Batch


class CapturedUpdates:
    """Runs `update` on each minibatch of a block, from a graph where there is a GPU.

    Parameters
    ----------
    update : callable
        Takes the minibatches of R sources and a line of the schedule. It must not look at values,
        and what it changes it must change in place.
    """

    def __init__(self, update: Callable[[Batch, Tensor], None]) -> None:
        self._update = update
        self._graphs: dict[int, tuple[Any, Batch, Tensor]] = {}
        self._warm = False

    def run(self, batches: Batch, schedule: Tensor, cancelled: Callable[[], bool]) -> None:
        """Make one update for each of n minibatches, up to where it is cancelled.

        Parameters
        ----------
        batches : Batch
            x of shape (R, n, B, D).
        schedule : Tensor of shape (n, any)
        """
        n = len(schedule)
        # An exchange between processes is not captured.
        if schedule.device.type != "cuda" or parallel.size() > 1:
            for i in range(n):
                if cancelled():
                    return
                self._one(batches, schedule, i)
            return
        if not self._warm:
            # The first block compiles kernels, which cannot be captured; on the stream that
            # captures, as torch asks.
            stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for i in range(n):
                    self._one(batches, schedule, i)
            torch.cuda.current_stream().wait_stream(stream)
            self._warm = True
            return
        if n not in self._graphs:
            own = batches.map(torch.clone), schedule.clone()
            self._graphs[n] = self._capture(*own), *own
        graph, own_batches, own_schedule = self._graphs[n]
        own_schedule.copy_(schedule)
        for mine, given in zip(own_batches, batches, strict=True):
            if mine is not None and given is not None:
                mine.copy_(given)
        graph.replay()

    def _capture(self, batches: Batch, schedule: Tensor) -> Any:
        graph = torch.cuda.CUDAGraph()
        # An older graph that is collected while this one is captured would spoil it.
        with collection_paused(), torch.cuda.graph(graph):
            for i in range(len(schedule)):
                self._one(batches, schedule, i)
        return graph

    def _one(self, batches: Batch, schedule: Tensor, i: int) -> None:
        self._update(batches.map(lambda t: t[:, i]), schedule[i])
