"""Minibatches from a data set larger than memory, in place of rows of a sample of it."""

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Generator, Tensor

from rnade import parallel
from rnade.batch import Batch
from rnade.columns.links import Link
from rnade.nn.table import encoded
from rnade.streams import Shard
from rnade.training.any_order import AnyOrderRows, Roles
from rnade.training.sources import AbstractMinibatches, ShuffledRows
from rnade.typing import Array

# Rows of the sample on which training is scored.
N_KNOWN = 10_000


class Drawn(NamedTuple):
    """Rows of n minibatches from a shard, (n, rows, D), and what is random about them."""

    rows: Array
    random: Generator


class AbstractStreamedRows(AbstractMinibatches):
    """Minibatches that take rows of each shard of a data set.

    Its place is the number of rows drawn from each shard: all else follows from the shards' seeds,
    whichever process draws which of them.

    Parameters
    ----------
    shards : sequence of Shard
        They are shared by forks, each of which goes to its own place.
    known : Batch
        Rows of the sample on which training is scored.
    digest : str
        Of the data set, by which a checkpoint recognises it.
    """

    draws_own_part = True

    def __init__(self, shards: Sequence[Shard], known: Batch, digest: str) -> None:
        if len(shards) < parallel.size():
            raise ValueError(
                f"{parallel.size()} processes cannot share {len(shards)} shards of the data: write"
                " files with more row groups, raise `memory`, or start fewer processes."
            )
        self._shards, self._digest = list(shards), digest
        self._known = known.map(lambda t: t[:N_KNOWN])
        self._drawn = [0] * len(self._shards)
        self.generator = Generator()

    def draw(self, n: int, size: int) -> Batch:
        S = len(self._shards)
        drawn: list[Drawn] = []
        for s, shard in enumerate(self._shards):
            rows = (s + 1) * size // S - s * size // S
            before = self._drawn[s]
            self._drawn[s] += n * rows
            if not rows or s % parallel.size() != parallel.rank():
                continue
            if shard.drawn != before:
                shard.seek(before)
            random = Generator().manual_seed(int(shard.random(before, 0, 0).integers(2**62)))
            drawn.append(Drawn(shard.take(n * rows).reshape(n, rows, -1), random))
        return Batch(self._finished(drawn))

    @abc.abstractmethod
    def _finished(self, drawn: Sequence[Drawn]) -> Tensor:
        """Minibatches of the rows of all shards, as the modules take them."""

    def known(self) -> Batch:
        """Some rows of the sample."""
        return self._known

    def contents(self) -> dict[str, Tensor]:
        """The rows known, and a digest of all."""
        digest = torch.frombuffer(bytearray(self._digest.encode()), dtype=torch.uint8)
        return {**super().contents(), "digest": digest}

    def state(self) -> dict[str, Tensor]:
        """How many rows were drawn from each shard."""
        return {"drawn": torch.tensor(self._drawn)}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._drawn = state["drawn"].tolist()

    def fork(self) -> Self:
        other = super().fork()
        other._drawn = list(self._drawn)
        return other


class StreamedRows(AbstractStreamedRows):
    """Minibatches of standardised real columns; shards give them as they are in the data.

    Parameters
    ----------
    shards, digest
        As of `AbstractStreamedRows`.
    like : ShuffledRows
        Rows of the sample: what they are, minibatches will be.
    mean, scale : array of shape (D,)
    """

    def __init__(
        self, shards: Sequence[Shard], digest: str, like: ShuffledRows, mean: Array, scale: Array
    ) -> None:
        super().__init__(shards, like.known(), digest)
        self._like, self._mean, self._scale = like.x[:0], mean, scale
        self._noise = None if like.noise_width is None else like.noise_width.cpu()

    def _finished(self, drawn: Sequence[Drawn]) -> Tensor:
        (n, _, D), dtype = drawn[0].rows.shape, self._like.dtype
        on_gpu = self._like.device.type == "cuda"
        # From pinned memory a GPU copies them while this goes on, and goes on itself meanwhile.
        size = sum(own.rows.shape[1] for own in drawn)
        x = torch.empty((n, size, D), dtype=dtype, pin_memory=on_gpu)
        first = 0
        for rows, random in drawn:
            here = x[:, first : first + rows.shape[1]]
            first += rows.shape[1]
            np.divide(rows - self._mean, self._scale, out=here.numpy(), casting="same_kind")
            if self._noise is not None:
                noise = torch.rand(here.shape, dtype=dtype, generator=random)
                here += (noise - 0.5) * self._noise
        return x.to(self._like.device, non_blocking=on_gpu)


class StreamedCells(AbstractStreamedRows):
    """Minibatches of a table's cells, each row with roles drawn afresh.

    Parameters
    ----------
    shards, digest
        As of `AbstractStreamedRows`.
    like : AnyOrderRows
        Rows of the sample.
    module : Any
        Networks that know how the columns are cut.
    """

    def __init__(
        self, shards: Sequence[Shard], digest: str, like: AnyOrderRows, module: Any
    ) -> None:
        super().__init__(shards, like.known(), digest)
        self._columns = module.columns
        self._links: list[Link] = [link for own in module.links for link in own]
        self._roles: Roles = like._roles
        self._device = like.x.device

    def _finished(self, drawn: Sequence[Drawn]) -> Tensor:
        return torch.cat([self._with_roles(*own) for own in drawn], dim=1)

    def _with_roles(self, rows: Array, random: Generator) -> Tensor:
        # The links have counted the rows of the sample alone: of those that pass by here few.
        n, size, D = rows.shape
        flat = np.asarray(rows.reshape(-1, D), dtype=np.float64)
        x = encoded(self._columns, flat, self._links).to(self._device, torch.float32)
        found = self._roles(x[..., :-1], x[..., -1] > 0, random)
        return found.view(n, size, *found.shape[1:])
