"""Where minibatches come from. Each source keeps its own place, so that a bank can use several."""

import abc
from collections.abc import Sequence
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Generator, Tensor


class AbstractMinibatches(abc.ABC):
    """An endless source of minibatches that can be put back to where it was.

    Its randomness comes from a generator of its own: two sources with the same rows and seed give
    the same minibatches, whoever else draws meanwhile.
    """

    @abc.abstractmethod
    def draw(self, n: int, size: int) -> tuple[Float[Tensor, "n B D"], Float[Tensor, "n B"]]:
        """The next n minibatches of `size` rows, and the rows' weights (1 on average)."""

    @abc.abstractmethod
    def known(self) -> tuple[Float[Tensor, "N D"], Float[Tensor, " N"] | None]:
        """Rows on which training is scored, and their weights if they have any."""

    @abc.abstractmethod
    def contents(self) -> dict[str, Tensor]:
        """What it draws from, by which a checkpoint knows it again."""

    @abc.abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Tensors that say where it is, for a checkpoint."""

    @abc.abstractmethod
    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from where `state` was taken."""


class ShuffledRows(AbstractMinibatches):
    """All rows in random order, again and again.

    Parameters
    ----------
    rows : Tensor of shape (N, D)
    generator : torch.Generator
        On any device: one on the CPU gives the same minibatches everywhere.
    weights : Tensor of shape (N,), optional
        Row weights, all positive.
    noise_width : Tensor of shape (D,), optional
        Width of uniform noise added afresh to every minibatch (dequantisation).
    """

    def __init__(
        self,
        rows: Float[Tensor, "N D"],
        generator: Generator,
        *,
        weights: Float[Tensor, " N"] | None = None,
        noise_width: Float[Tensor, " D"] | None = None,
    ) -> None:
        self.rows, self.generator, self.noise_width = rows, generator, noise_width
        self._given_weights = weights
        self.weights = rows.new_ones(len(rows)) if weights is None else weights / weights.mean()
        self._index = self._permutation()

    def draw(self, n: int, size: int) -> tuple[Tensor, Tensor]:
        """The next n minibatches of `size` rows, and the rows' weights (1 on average)."""
        return self._take(self._next(n * size).to(self.rows.device), n, size)

    def _next(self, count: int) -> Tensor:
        """Places of the next rows, on the generator's device."""
        while len(self._index) < count:
            self._index = torch.cat([self._index, self._permutation()])
        index, self._index = self._index[:count], self._index[count:]
        return index

    def _take(self, index: Tensor, n: int, size: int) -> tuple[Tensor, Tensor]:
        """The rows at these places and their weights."""
        x = self.rows[index]
        if self.noise_width is not None:
            noise = torch.rand(
                x.shape, dtype=x.dtype, device=self.generator.device, generator=self.generator
            )
            x = x + (noise.to(x.device) - 0.5) * self.noise_width
        return x.view(n, size, -1), self.weights[index].view(n, size)

    def known(self) -> tuple[Tensor, Tensor | None]:
        """All rows, and their weights as they were given."""
        return self.rows, self._given_weights

    def contents(self) -> dict[str, Tensor]:
        """Rows, weights and noise."""
        width = self.noise_width
        noise = {} if width is None else {"noise_width": width}
        return {"rows": self.rows, "weights": self.weights, **noise}

    def state(self) -> dict[str, Tensor]:
        """The generator's state and the rows left of this shuffle."""
        return {"generator": self.generator.get_state(), "index": self._index.cpu()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from where `state` was taken."""
        self.generator.set_state(state["generator"])
        self._index = state["index"].to(self.generator.device)

    def _permutation(self) -> Tensor:
        generator = self.generator
        return torch.randperm(len(self.rows), device=generator.device, generator=generator)


class RowSource(Protocol):
    """Whatever rows can be drawn from without end: image patches, windows of speech."""

    @property
    def device(self) -> torch.device:
        """Where it draws."""

    def draw(self, n: int, generator: Generator) -> Tensor:
        """Give n rows of shape (n, D)."""


# Rows that are drawn together: on a GPU that takes a few launches, however many they are.
DRAWN_AHEAD = {"cpu": 1, "cuda": 2**18}


class FreshRows(AbstractMinibatches):
    """Rows never seen before, drawn as training goes.

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

    def draw(self, n: int, size: int) -> tuple[Tensor, Tensor]:
        """The next n minibatches of `size` rows, all of weight 1."""
        if self._used + n * size > len(self._ahead):
            self._draw_ahead(max(n * size, DRAWN_AHEAD[self.source.device.type]))
        x = self._ahead[self._used : self._used + n * size].view(n, size, -1)
        self._used += n * size
        return x, x.new_ones(n, size)

    def known(self) -> tuple[Tensor, Tensor | None]:
        """The rows drawn at the start."""
        return self._known, None

    def contents(self) -> dict[str, Tensor]:
        """The rows drawn at the start, which tell the source and the seed."""
        return {"known": self._known}

    def state(self) -> dict[str, Tensor]:
        """Where the generator stood before the rows drawn ahead, and how many are used."""
        places = torch.tensor([len(self._ahead), self._used])
        return {"generator": self._before, "places": places}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from where `state` was taken."""
        self.generator.set_state(state["generator"])
        drawn, used = state["places"].tolist()
        if drawn:
            self._draw_ahead(drawn)
        self._used = used

    def _draw_ahead(self, n: int) -> None:
        self._before = self.generator.get_state()
        self._ahead, self._used = self.source.draw(n, self.generator), 0


def draw_all(
    sources: Sequence[AbstractMinibatches], n: int, size: int
) -> tuple[Float[Tensor, "R n B D"], Float[Tensor, "R n B"]]:
    """The next n minibatches of R sources that share a device."""
    shuffled = [source for source in sources if isinstance(source, ShuffledRows)]
    if len(shuffled) == len(sources):
        # All places go to the device in one copy.
        places = torch.stack([source._next(n * size) for source in shuffled])
        places = places.to(shuffled[0].rows.device)
        drawn = [source._take(at, n, size) for source, at in zip(shuffled, places, strict=True)]
    else:
        drawn = [source.draw(n, size) for source in sources]
    x, w = (torch.stack(tensors) for tensors in zip(*drawn, strict=True))
    return x, w
