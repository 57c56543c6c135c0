"""The contract of every density as a torch module."""

import abc

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.distributions import Distribution

from rnade.batch import Batch
from rnade.checks import positive_int
from rnade.families.base import fresh_generator
from rnade.nn.bank import AbstractBank
from rnade.nn.distribution import ModuleDistribution, Values
from rnade.nn.orders import Permutation, permutation


class AbstractDensity(AbstractBank):
    """A joint density over D dimensions: exact log densities in, exact draws out.

    Parameters are those of M models of one shape (`n_models`), each tensor with a leading axis M.
    One model is M = 1 and takes rows of shape (B, D); a bank takes (M, B, D), or (B, D) for the
    same rows in every model.

    Parameters
    ----------
    n_dimensions : int
        D.
    n_models : int
        M.
    """

    def log_prob(
        self,
        x: Float[Tensor, "*rows B D"],
        *,
        seen: Tensor | None = None,
        order: Permutation | None = None,
    ) -> Float[Tensor, "*models B"]:
        r"""Log density of each row, :math:`\log p(x) = \sum_d \log p(x_d \mid x_{<d})`.

        Parameters
        ----------
        x : Tensor of shape (B, D), or (M, B, D) for a bank of models
        seen : bool Tensor of the same shape, optional
            Which cells are observed; None for all. A cell that is not observed adds no term, and
            those after it do not depend on it, whatever x holds there.
        order : permutation of 0..D-1, optional
            Which dimension comes first, second and so on, instead of the model's own order; a
            tensor of shape (M, D) for one each.

        Returns
        -------
        Tensor of shape (B,), or (M, B) for a bank
            In nats.
        """
        return self._without_model_axis(self._log_prob(self._batch(x, seen, order)))

    def sample(
        self,
        n: int,
        generator: Generator | None = None,
        *,
        low: Float[Tensor, " D"] | None = None,
        high: Float[Tensor, " D"] | None = None,
    ) -> Float[Tensor, "*M n D"]:
        """Draw rows exactly.

        Parameters
        ----------
        n : int
            Rows (of each model).
        generator : torch.Generator, optional
            Source of randomness, on the module's device; None draws a fresh seed.
        low, high : Tensor of shape (D,), optional
            Smallest and largest value of each column; infinite where a column is free. Each
            conditional is truncated to this range: exact, and without rejection.

        Returns
        -------
        Tensor of shape (n, D), or (M, n, D) for a bank
        """
        n = positive_int(n, "n")
        bounds = [self._checked_bound(t, name) for t, name in ((low, "low"), (high, "high"))]
        if low is not None and high is not None and (low >= high).any():
            at = int((low >= high).nonzero()[0])
            raise ValueError(
                f"Expected low < high in every dimension; got {low[at]:g} and {high[at]:g}"
                f" in dimension {at}."
            )
        if generator is None:
            generator = fresh_generator(self.device)
        with torch.no_grad():
            return self._without_model_axis(self._sample(n, generator, *bounds))

    def distribution(self, given: Values | None = None) -> Distribution:
        """The same density as a `torch.distributions.Distribution`, which sbi takes as it is.

        Parameters
        ----------
        given : mapping of int to float or Tensor, optional
            Values of some dimensions: the distribution is then that of the others given these,
            which are in the order of the data. Tensors of shape (B,) make a batch of B
            distributions. Models with an order are conditioned on dimensions that come first in
            it, mixtures of Gaussians on any.

        Returns
        -------
        torch.distributions.Distribution
            Of vectors. A bank of M models is a batch of M distributions.
        """
        return self._distribution_given(given) if given else ModuleDistribution(self)

    def _distribution_given(self, given: Values) -> Distribution:
        raise ValueError(
            f"{type(self).__name__} averages models along different orders of the dimensions, none"
            " of which gives any from any others. Use one model, or a model that answers"
            " questions (RNADE.distribution, TableDensity.distribution)."
        )

    @abc.abstractmethod
    def _log_prob(self, batch: Batch) -> Float[Tensor, "M B"]:
        """Log densities of rows that have been checked."""

    @abc.abstractmethod
    def _sample(
        self, n: int, generator: Generator, low: Tensor | None, high: Tensor | None
    ) -> Float[Tensor, "M n D"]:
        """Draws, with bounds that have been checked."""

    def _batch(self, x: Tensor, seen: Tensor | None, order: Permutation | None) -> Batch:
        """Rows with a model axis and what is told of them, after one check of each."""
        x = self._checked(x)
        if seen is not None:
            if not isinstance(seen, Tensor) or seen.dtype != torch.bool:
                came = seen.dtype if isinstance(seen, Tensor) else type(seen).__name__
                raise TypeError(f"Expected seen to be a torch.Tensor of torch.bool; got {came}.")
            if seen.shape not in (x.shape, x.shape[1:]):
                raise ValueError(
                    f"Expected seen of shape {tuple(x.shape[1:])}, as x; got {tuple(seen.shape)}."
                )
            seen = seen.expand(x.shape)
        if order is not None:
            given = permutation(order, self.n_models, self.n_dimensions)
            return Batch(x, None, seen, given.to(x.device))
        return Batch(x, None, seen)

    def _checked(self, x: Tensor) -> Float[Tensor, "M B D"]:
        """Rows with a model axis, after one check of type, shape and dtype."""
        if not isinstance(x, Tensor):
            raise TypeError(f"Expected x to be a torch.Tensor; got {type(x).__name__}.")
        D, M = self.n_dimensions, self.n_models
        if x.ndim not in (2, 3) or x.shape[-1] != D or (x.ndim == 3 and x.shape[0] != M):
            expected = f"(B, {D})" if M == 1 else f"(B, {D}) or ({M}, B, {D})"
            raise ValueError(f"Expected x of shape {expected}; got {tuple(x.shape)}.")
        if x.dtype != self.dtype:
            raise TypeError(
                f"Expected x of dtype {self.dtype}, as the parameters; got {x.dtype}."
                " Convert x, or the module with .to(dtype)."
            )
        return x if x.ndim == 3 else x.expand(M, *x.shape)

    def _checked_bound(self, bound: Tensor | None, name: str) -> Tensor | None:
        if bound is not None and bound.shape != (self.n_dimensions,):
            raise ValueError(
                f"Expected {name} of shape ({self.n_dimensions},); got {tuple(bound.shape)}."
            )
        return None if bound is None else bound.to(self.device, self.dtype)

    def _without_model_axis(self, result: Tensor) -> Tensor:
        return result[0] if self.n_models == 1 else result
