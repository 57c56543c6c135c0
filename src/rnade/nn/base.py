"""The contract of every density as a torch module."""

import abc

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rnade.checks import positive_int
from rnade.families.base import fresh_generator
from rnade.nn.bank import AbstractBank


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

    def log_prob(self, x: Float[Tensor, "*rows B D"]) -> Float[Tensor, "*models B"]:
        r"""Log density of each row, :math:`\log p(x) = \sum_d \log p(x_d \mid x_{<d})`.

        Parameters
        ----------
        x : Tensor of shape (B, D), or (M, B, D) for a bank of models

        Returns
        -------
        Tensor of shape (B,), or (M, B) for a bank
            In nats.
        """
        return self._without_model_axis(self._log_prob(self._checked(x)))

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

    @abc.abstractmethod
    def _log_prob(self, x: Float[Tensor, "M B D"]) -> Float[Tensor, "M B"]:
        """Log densities of rows that have been checked."""

    @abc.abstractmethod
    def _sample(
        self, n: int, generator: Generator, low: Tensor | None, high: Tensor | None
    ) -> Float[Tensor, "M n D"]:
        """Draws, with bounds that have been checked."""

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
