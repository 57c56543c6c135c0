"""Minibatches from a data set larger than memory, in place of rows of a sample of it."""

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

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
# Rows drawn together, if that many numbers are not too many: taking rows of every shard has its
# price, however few they are, and a GPU would wait for it.
DRAWN_AHEAD, MOST_NUMBERS = {"cpu": 2**13, "cuda": 2**17}, 2**22


class Drawn(NamedTuple):
    """Rows of n minibatches from a shard, (n, rows, D), of which so many were drawn before."""

    rows: Array
    shard: Shard
    before: int

    def random(self) -> Generator:
        """Give a generator for what is random about these rows."""
        seed = int(self.shard.random(self.before, 0, 0).integers(2**62))
        return Generator().manual_seed(seed)


class AbstractStreamedRows(AbstractMinibatches):
    """Minibatches that take rows of each shard of a data set.

    Minibatches are drawn many at a time. Its place is the number of rows drawn from each shard
    before the last time, and how many minibatches of it are used: all else follows from the
    shards' seeds, whichever process draws which of them.

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
        self.generator = Generator()
        like = self._known.x
        self._rows_ahead = min(DRAWN_AHEAD[like.device.type], MOST_NUMBERS // like[0].numel())
        self._size = 0
        self._begin_at([0] * len(self._shards))

    def _begin_at(self, drawn: Sequence[int], n_ahead: int = 0, used: int = 0) -> None:
        """Stand where so many rows of each shard were drawn, and then some minibatches ahead."""
        self._before, self._n_ahead, self._used = list(drawn), n_ahead, used
        self._ahead: Tensor | None = None  # is read when it is needed

    def draw(self, n: int, size: int) -> Batch:
        if size != self._size:
            self._begin_at(self._after(self._used))
            self._size = size
        if self._ahead is None:
            self._ahead = self._minibatches(self._before, self._n_ahead)
        x = self._ahead[self._used : self._used + n]
        missing = n - len(x)
        if not missing:
            self._used += n
            return Batch(x)
        before, n_ahead = self._after(self._n_ahead), max(missing, self._rows_ahead // size)
        ahead = self._minibatches(before, n_ahead)
        # Only now, when nothing can fail any more.
        self._begin_at(before, n_ahead, missing)
        self._ahead = ahead
        return Batch(torch.cat([x, ahead[:missing]]) if len(x) else ahead[:missing])

    def _after(self, n: int) -> list[int]:
        """Rows of each shard drawn after n minibatches of those drawn ahead."""
        return [b + n * rows for b, rows in zip(self._before, self._rows_each(), strict=True)]

    def _rows_each(self) -> list[int]:
        """Rows of a minibatch that are of each shard."""
        S, size = len(self._shards), self._size
        return [(s + 1) * size // S - s * size // S for s in range(S)]

    def _minibatches(self, drawn: Sequence[int], n: int) -> Tensor:
        """The next n minibatches where so many rows of each shard were drawn."""
        if not n:
            return self._known.x[:0]
        own: list[Drawn] = []
        of_each = zip(self._shards, drawn, self._rows_each(), strict=True)
        for s, (shard, before, rows) in enumerate(of_each):
            if not rows or s % parallel.size() != parallel.rank():
                continue
            if shard.drawn != before:
                shard.seek(before)
            own.append(Drawn(shard.take(n * rows).reshape(n, rows, -1), shard, before))
        return self._finished(own)

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
        """Rows drawn from each shard before those drawn ahead, and how many of these are used."""
        places = torch.tensor([self._size, self._n_ahead, self._used])
        return {"drawn": torch.tensor(self._before), "places": places}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._size, n_ahead, used = state["places"].tolist()
        self._begin_at(state["drawn"].tolist(), n_ahead, used)


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
        self._like, self._noise_width = like.x[:0], like.noise_width
        self._mean, self._scale = (
            torch.as_tensor(t, dtype=torch.float64, device=self._like.device)
            for t in (mean, scale)
        )

    def _finished(self, drawn: Sequence[Drawn]) -> Tensor:
        device, dtype = self._like.device, self._like.dtype
        # From pinned memory a GPU copies them while this goes on, and trains meanwhile.
        on_gpu = device.type == "cuda"
        like = torch.from_numpy(drawn[0].rows)
        size = sum(own.rows.shape[1] for own in drawn)
        rows = like.new_empty((len(like), size, like.shape[2]), pin_memory=on_gpu)
        np.concatenate([own.rows for own in drawn], axis=1, out=rows.numpy())
        rows = rows.to(device, non_blocking=on_gpu)
        x = rows.sub(self._mean).div_(self._scale).to(dtype)
        if self._noise_width is None:
            return x
        noise = [torch.rand(own.rows.shape, dtype=dtype, generator=own.random()) for own in drawn]
        return x + (torch.cat(noise, dim=1).to(device) - 0.5) * self._noise_width


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
        return torch.cat([self._with_roles(own.rows, own.random()) for own in drawn], dim=1)

    def _with_roles(self, rows: Array, random: Generator) -> Tensor:
        # The links have counted the rows of the sample alone: of those that pass by here few.
        n, size, D = rows.shape
        flat = np.asarray(rows.reshape(-1, D), dtype=np.float64)
        x = encoded(self._columns, flat, self._links).to(self._device, torch.float32)
        found = self._roles(x[..., :-1], x[..., -1] > 0, random)
        return found.view(n, size, *found.shape[1:])
