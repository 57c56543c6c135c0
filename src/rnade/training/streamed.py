"""Minibatches from a data set larger than memory, in place of rows of a sample of it."""

import abc
from collections.abc import Sequence
from typing import Any, Self

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
        parts = []
        for s, shard in enumerate(self._shards):
            rows = (s + 1) * size // S - s * size // S
            before = self._drawn[s]
            self._drawn[s] += n * rows
            if not rows or s % parallel.size() != parallel.rank():
                continue
            if shard.drawn != before:
                shard.seek(before)
            random = Generator().manual_seed(int(shard.random(before, 0, 0).integers(2**62)))
            x = self._finished(shard.take(n * rows), random)
            parts.append(x.view(n, rows, *x.shape[1:]))
        return Batch(torch.cat(parts, dim=1))

    @abc.abstractmethod
    def _finished(self, rows: Array, random: Generator) -> Tensor:
        """Rows as shards give them, as the modules take them."""

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
        self._noise = like.noise_width

    def _finished(self, rows: Array, random: Generator) -> Tensor:
        x = torch.as_tensor((rows - self._mean) / self._scale).to(self._like)
        if self._noise is None:
            return x
        noise = torch.rand(x.shape, dtype=x.dtype, generator=random).to(x.device)
        return x + (noise - 0.5) * self._noise


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

    def _finished(self, rows: Array, random: Generator) -> Tensor:
        # The links have counted the rows of the sample alone: of those that pass by here few.
        x = encoded(self._columns, np.asarray(rows, dtype=np.float64), self._links)
        x = x.to(self._device, torch.float32)
        return self._roles(x[..., :-1], x[..., -1] > 0, random)
