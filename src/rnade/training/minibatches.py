"""Where minibatches come from. Each source keeps its own place, so that a bank can use several."""

import abc
from collections.abc import Sequence

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
