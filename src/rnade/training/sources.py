"""Where minibatches come from. Each source keeps its own place, so that a bank can use several."""

import abc
import copy
from collections.abc import Sequence
from typing import ClassVar, Protocol, Self

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from rnade import parallel
from rnade.batch import Batch


class AbstractMinibatches(abc.ABC):
    """An endless source of minibatches that can be put back to where it was.

    Its randomness comes from a generator of its own: two sources with the same rows and seed give
    the same minibatches, whoever else draws meanwhile.
    """

    generator: Generator
    # Whether `draw` gives those rows of a minibatch alone that this process is to take.
    draws_own_part: ClassVar[bool] = False

    @abc.abstractmethod
    def draw(self, n: int, size: int) -> Batch:
        """The next n minibatches, x of shape (n, size, D); weights are 1 on average."""

    @abc.abstractmethod
    def known(self) -> Batch:
        """Rows on which training is scored, x of shape (N, D)."""

    def contents(self) -> dict[str, Tensor]:
        """What it draws from, by which a checkpoint recognises it."""
        return {name: t for name, t in self.known()._asdict().items() if t is not None}

    @abc.abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Tensors that say where it is, for a checkpoint."""

    @abc.abstractmethod
    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from where `state` was taken."""

    def fork(self) -> Self:
        """Give a source that goes on from the same place and leaves this one where it is."""
        other = copy.copy(self)
        other.generator = self.generator.clone_state()
        return other


class ShuffledRows(AbstractMinibatches):
    """Minibatches of a table of rows: all rows in random order, again and again.

    Parameters
    ----------
    x : Tensor of shape (N, D)
        With the modules' dtype and device.
    seed : int or torch.Generator
        Orders the rows. A generator may be on any device: one on the CPU, as a seed gives, makes
        the same minibatches everywhere.
    weights : Tensor of shape (N,), optional
        Row weights, all positive.
    seen : bool Tensor of shape (N, D), optional
        Which cells are observed; None for all.
    noise_width : Tensor of shape (D,), optional
        Width of uniform noise added afresh to every minibatch (dequantisation).
    """

    def __init__(
        self,
        x: Float[Tensor, "N D"],
        seed: int | Generator,
        *,
        weights: Float[Tensor, " N"] | None = None,
        seen: Bool[Tensor, "N D"] | None = None,
        noise_width: Float[Tensor, " D"] | None = None,
    ) -> None:
        self.generator = Generator().manual_seed(seed) if isinstance(seed, int) else seed
        self.seed = self.generator.initial_seed()
        self.x, self.noise_width = x, noise_width
        self._known = Batch(x, weights, seen)
        relative = None if weights is None else weights / weights.mean()
        self._drawn_from = Batch(x, relative, seen)
        self._index = self._permutation()

    def draw(self, n: int, size: int) -> Batch:
        return self._take(self._next(n * size).to(self.x.device), n, size)

    def _next(self, count: int) -> Tensor:
        """Places of the next rows, on the generator's device."""
        while len(self._index) < count:
            self._index = torch.cat([self._index, self._permutation()])
        index, self._index = self._index[:count], self._index[count:]
        return index

    def _take(self, index: Tensor, n: int, size: int) -> Batch:
        """The rows at these places, as n minibatches."""
        batch = self._drawn_from.map(lambda t: t[index].view(n, size, *t.shape[1:]))
        if self.noise_width is None:
            return batch
        device, x = self.generator.device, batch.x
        noise = torch.rand(x.shape, dtype=x.dtype, device=device, generator=self.generator)
        return batch._replace(x=x + (noise.to(x.device) - 0.5) * self.noise_width)

    def known(self) -> Batch:
        """All rows, with their weights as they were given."""
        return self._known

    def contents(self) -> dict[str, Tensor]:
        """Rows and noise."""
        noise = {} if self.noise_width is None else {"noise_width": self.noise_width}
        return {**super().contents(), **noise}

    def state(self) -> dict[str, Tensor]:
        """The generator's state and the rows left of this shuffle."""
        return {"generator": self.generator.get_state(), "index": self._index.cpu()}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.generator.set_state(state["generator"])
        self._index = state["index"].to(self.generator.device)

    def _permutation(self) -> Tensor:
        generator = self.generator
        return torch.randperm(len(self.x), device=generator.device, generator=generator)


class RowSource(Protocol):
    """Anything that new rows can be drawn from: image patches, windows of speech."""

    @property
    def device(self) -> torch.device:
        """Where it draws."""

    def draw(self, n: int, generator: Generator) -> Tensor:
        """Give n rows of shape (n, D)."""


# Rows that are drawn together: on a GPU that takes a few launches, however many they are.
DRAWN_AHEAD = {"cpu": 1, "cuda": 2**18}


class FreshRows(AbstractMinibatches):
    """An unlimited supply of new rows, drawn as training goes.

    Parameters
    ----------
    source : RowSource
    generator : torch.Generator
        On the source's device.
    n_known : int
        Rows drawn once, at the start, on which training is scored.
    """

    def __init__(self, source: RowSource, generator: Generator, *, n_known: int = 10_000) -> None:
        self.source, self.generator = source, generator
        self._known = source.draw(n_known, generator)
        self._ahead = self._known[:0]
        self._used = 0
        self._before = generator.get_state()  # the rows drawn ahead come from here

    def draw(self, n: int, size: int) -> Batch:
        if self._used + n * size > len(self._ahead):
            self._draw_ahead(max(n * size, DRAWN_AHEAD[self.source.device.type]))
        x = self._ahead[self._used : self._used + n * size].view(n, size, -1)
        self._used += n * size
        return Batch(x)

    def known(self) -> Batch:
        """The rows drawn at the start, which tell the source and the seed."""
        return Batch(self._known)

    def state(self) -> dict[str, Tensor]:
        """Where the generator stood before the rows drawn ahead, and how many are used."""
        places = torch.tensor([len(self._ahead), self._used])
        return {"generator": self._before, "places": places}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.generator.set_state(state["generator"])
        drawn, used = state["places"].tolist()
        if drawn:
            self._draw_ahead(drawn)
        self._used = used

    def _draw_ahead(self, n: int) -> None:
        self._before = self.generator.get_state()
        self._ahead, self._used = self.source.draw(n, self.generator), 0


def draw_all(sources: Sequence[AbstractMinibatches], n: int, size: int) -> Batch:
    """The next n minibatches of R sources that share a device, x of shape (R, n, size, D).

    Of several processes that train together, each is given its part of the rows.
    """
    shuffled = [source for source in sources if isinstance(source, ShuffledRows)]
    if len(shuffled) == len(sources):
        # All places go to the device in one copy.
        places = torch.stack([source._next(n * size) for source in shuffled])
        places = places.to(shuffled[0].x.device)
        drawn = [source._take(at, n, size) for source, at in zip(shuffled, places, strict=True)]
    else:
        drawn = [source.draw(n, size) for source in sources]
    if parallel.size() > 1 and not sources[0].draws_own_part:
        # All processes draw the same minibatches.
        drawn = [batch.map(lambda t: t[:, parallel.own_part(size)]) for batch in drawn]
    return stack(drawn)


def stack(batches: Sequence[Batch]) -> Batch:
    """Batches of one shape side by side; where only some have weights or holes, all get them."""
    if len(batches) == 1:
        return batches[0].map(lambda t: t[None])
    x, weights, seen, _ = zip(*batches, strict=True)

    def together(tensors: Sequence[Tensor | None], usual: Sequence[Tensor]) -> Tensor | None:
        if all(t is None for t in tensors):
            return None
        pairs = zip(tensors, usual, strict=True)
        return torch.stack([default if t is None else t for t, default in pairs])

    return Batch(
        torch.stack(x),
        together(weights, [torch.ones_like(t[..., 0]) for t in x]),
        together(seen, [torch.ones_like(t, dtype=torch.bool) for t in x]),
    )
