"""Densities by the chain rule: a product of conditionals along an order of the dimensions."""

import abc
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.distributions import Distribution

from rnade.batch import Batch
from rnade.families import Conditional
from rnade.nn.base import AbstractDensity
from rnade.nn.distribution import ChainDistribution, Values
from rnade.nn.orders import Permutation


class AbstractChain(AbstractDensity):
    r"""A joint density as :math:`\prod_d p(x_d \mid x_{<d})`, dimension after dimension.

    Attributes
    ----------
    order : Tensor of shape (M, D)
        Which dimension comes first, second and so on.
    """

    order: Tensor

    def log_conditionals(
        self,
        x: Float[Tensor, "*rows B D"],
        *,
        seen: Tensor | None = None,
        order: Permutation | None = None,
    ) -> Float[Tensor, "*models B D"]:
        """The D terms log p(x_d | x_<d) of each row, in nats; they sum to `log_prob`.

        Parameters
        ----------
        x : Tensor of shape (B, D), or (M, B, D) for a bank
        seen, order
            As of `log_prob`. The term of a cell that is not observed is 0.

        Returns
        -------
        Tensor of shape (B, D), or (M, B, D) for a bank
            Laid out by dimension, whatever the order.
        """
        terms = self._log_conditionals(self._batch(x, seen, order))
        return self._without_model_axis(terms)

    def conditional(self, d: int, x_before: Float[Tensor, "B n_before"]) -> Conditional:
        """The one-dimensional density of dimension d given those that come before it.

        Parameters
        ----------
        d : int
            Dimension, counted from 0 in the layout of the data.
        x_before : Tensor of shape (B, n_before)
            Values of the dimensions before d, in the model's order: column i holds dimension
            `order[0, i]`. For the first dimension pass a tensor of shape (B, 0).

        Returns
        -------
        Conditional
            With `log_prob`, `pdf`, `cdf` and `sample`, one density a row.
        """
        if self.n_models != 1:
            raise ValueError(f"conditional() takes one model; this is a bank of {self.n_models}.")
        if not 0 <= d < self.n_dimensions:
            raise ValueError(f"Expected d from 0 to {self.n_dimensions - 1}; got {d}.")
        position = int((self.order[0] == d).nonzero())
        if x_before.ndim != 2 or x_before.shape[1] != position:
            raise ValueError(
                f"Dimension {d} has {position} dimensions before it: expected x_before of shape"
                f" (B, {position}); got {tuple(x_before.shape)}."
            )
        return self._conditional(position, x_before)

    def conditionals(self, x: Float[Tensor, "B D"]) -> Iterator[tuple[int, Conditional]]:
        """Each dimension with its density given those before it, one after the other.

        Parameters
        ----------
        x : Tensor of shape (B, D)

        Yields
        ------
        int, Conditional
            In the model's order.
        """
        for columns, block in self.conditional_blocks(x):
            yield from ((d, block[:, i]) for i, d in enumerate(columns))

    def conditional_blocks(
        self, x: Float[Tensor, "B D"]
    ) -> Iterator[tuple[list[int], Conditional]]:
        """The same as `conditionals`, with as many dimensions at a time as are computed together.

        Parameters
        ----------
        x : Tensor of shape (B, D)

        Yields
        ------
        list of k int, Conditional
            In the model's order; one density for each of (B, k) cells.
        """
        if self.n_models != 1:
            raise ValueError(f"conditionals() takes one model; this is a bank of {self.n_models}.")
        (x,) = self._checked(x)
        yield from self._conditionals(x)

    def _distribution_given(self, given: Values) -> Distribution:
        return ChainDistribution(self, given)

    def _conditionals(self, x: Float[Tensor, "B D"]) -> Iterator[tuple[list[int], Conditional]]:
        order = self.order[0]
        for position, d in enumerate(order.tolist()):
            yield [d], self._conditional(position, x[:, order[:position]])[:, None]

    @abc.abstractmethod
    def _log_conditionals(self, batch: Batch) -> Float[Tensor, "M B D"]:
        """Terms of rows that have been checked."""

    @abc.abstractmethod
    def _conditional(self, position: int, x_before: Tensor, model: int = 0) -> Conditional:
        """The density of the dimension at a position of a model's order."""

    def _draws_along(
        self,
        order: Int[Tensor, " D"],
        conditional: Callable[[int, Tensor], Conditional],
        n: int,
        generator: Generator,
        low: Tensor | None,
        high: Tensor | None,
    ) -> Float[Tensor, "n D"]:
        """Draws of one model, dimension after dimension, each truncated to its range."""
        x = torch.empty(n, self.n_dimensions, dtype=self.dtype, device=self.device)
        for position, d in enumerate(order.tolist()):
            x[:, d] = conditional(position, x[:, order[:position]]).sample(
                generator,
                low=None if low is None else low[d],
                high=None if high is None else high[d],
            )
        return x

    def _log_prob(self, batch: Batch) -> Tensor:
        return self._log_conditionals(batch).sum(-1)
