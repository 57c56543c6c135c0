"""A block of updates, made one by one on the CPU and as one CUDA graph on a GPU.

An update of a small model is a dozen launches of a few microseconds each; launched from Python
they take longer than the work. A graph is captured once for each length of block and replayed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


class CapturedUpdates:
    """Runs `update` on each slice of some tensors, from a graph where there is a GPU.

    Parameters
    ----------
    update : callable
        Takes one slice along axis 1 of the first two tensors and along axis 0 of the last. It must
        not look at values, and what it changes it must change in place.
    """

    def __init__(self, update: Callable[..., None]) -> None:
        self._update = update
        self._graphs: dict[int, tuple[Any, Sequence[Tensor]]] = {}
        self._warm = False

    def run(self, tensors: Sequence[Tensor], cancelled: Callable[[], bool]) -> None:
        """Make one update for each slice, up to where it is cancelled."""
        *_, schedule = tensors
        n = len(schedule)
        if schedule.device.type != "cuda":
            for i in range(n):
                if cancelled():
                    return
                self._slice(tensors, i)
            return
        if not self._warm:
            # The first block compiles kernels, which cannot be captured; on the stream that
            # captures, as torch asks.
            stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for i in range(n):
                    self._slice(tensors, i)
            torch.cuda.current_stream().wait_stream(stream)
            self._warm = True
            return
        if n not in self._graphs:
            self._graphs[n] = self._capture([t.clone() for t in tensors], n)
        graph, inputs = self._graphs[n]
        for mine, given in zip(inputs, tensors, strict=True):
            mine.copy_(given)
        graph.replay()

    def _capture(self, inputs: Sequence[Tensor], n: int) -> tuple[Any, Sequence[Tensor]]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(n):
                self._slice(inputs, i)
        return graph, inputs

    def _slice(self, tensors: Sequence[Tensor], i: int) -> None:
        x, w, schedule = tensors
        self._update(x[:, i], w[:, i], schedule[i])
