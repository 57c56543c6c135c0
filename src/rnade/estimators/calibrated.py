"""What an estimator's conditionals say of a value beyond its density: probabilities, intervals."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor

from rnade.columns import Resolution, Standardiser
from rnade.estimators.inputs import check_rows
from rnade.estimators.settings import make_rng
from rnade.families import Bernoulli, Conditional
from rnade.families.base import Array
from rnade.nn import AbstractAutoregressive, EnsembleModule

# Rows looked at together: few enough for a processor's cache to hold what is computed of them.
_CHUNK_ROWS = 4096


class ConditionalsMixin:
    """Probability integral transforms and quantiles of the conditionals."""

    module_: AbstractAutoregressive | EnsembleModule
    standardiser_: Standardiser
    resolution_: Resolution | None
    _encode: Callable[[Array], Array]

    def pit(self, X: Any, random_state: Any = None) -> Array:
        """Probability integral transform: where each value falls in its conditional, from 0 to 1.

        Entry d of a row is the probability that the model gives to values below x_d given the
        columns before it. Over rows like those fitted, each column of the result is uniform if
        the model is right, and independent of the others.

        A value rounded to a step stands for the interval of that width around it, and a binary
        value for a jump: there the result is drawn evenly from the interval's or the jump's range
        of probabilities (the randomised transform), which is uniform in the same way.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
        random_state : int, RandomState instance or None
            Of those draws, and of the model of an average by which a row is judged.

        Returns
        -------
        array of shape (N, D)
        """
        check_is_fitted(self)
        X = self._encode(check_rows(self, X, fitting=False))
        rng = make_rng(random_state)
        below, above = self._reach()
        u: Array = np.empty_like(X)
        for rows, d, x, conditional in self._conditionals(X, int(rng.randint(2**31 - 1))):
            upper = conditional.cdf(x + above[d]).cpu().numpy()
            u[rows, d] = upper
            if below[d] + above[d] > 0:
                lower = conditional.cdf(x - below[d]).cpu().numpy()
                u[rows, d] = lower + (upper - lower) * rng.uniform(size=len(lower))
        return u

    def conditional_quantiles(self, X: Any, q: float) -> Array:
        """The value below which the model puts the share `q` of each conditional.

        ``conditional_quantiles(X, 0.05)`` and ``conditional_quantiles(X, 0.95)`` bound what the
        model expected of each cell in nine of ten cases, given the columns before it.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
        q : float
            Strictly between 0 and 1.

        Returns
        -------
        array of shape (N, D)
            In the data's units.
        """
        check_is_fitted(self)
        X = self._encode(check_rows(self, X, fitting=False))
        Z = np.empty_like(X)
        for rows, d, _, conditional in self._conditionals(X, seed=0):
            Z[rows, d] = conditional.quantile(q).cpu().numpy()
        return self.standardiser_.inverse(Z)

    def _reach(self) -> tuple[Array, Array]:
        """How far below and above itself a value of each column reaches, standardised."""
        scale = self.standardiser_.scale
        if isinstance(self._one_model().family, Bernoulli):
            return np.ones_like(scale), np.zeros_like(scale)
        steps = np.zeros_like(scale) if self.resolution_ is None else self.resolution_.steps
        return steps / scale / 2, steps / scale / 2

    def _one_model(self) -> AbstractAutoregressive:
        module = self.module_
        return module.member(0) if isinstance(module, EnsembleModule) else module

    def _conditionals(
        self, X: Array, seed: int
    ) -> Iterator[tuple[NDArray[np.int64], int, Tensor, Conditional]]:
        """For some rows at a time and each column: its standardised values and conditionals.

        Models of an average have orders of their own. There each row is given to one of them,
        drawn by how likely it is that the row came from it: if the average is right, so are the
        conditionals of the model drawn.
        """
        module = self.module_
        generator = Generator(module.device).manual_seed(seed)
        for start in range(0, len(X), _CHUNK_ROWS):
            Z = self.standardiser_.transform(X[start : start + _CHUNK_ROWS])
            x = torch.as_tensor(Z).to(module.device, module.dtype)
            if not isinstance(module, EnsembleModule):
                rows = np.arange(start, start + len(x))
                yield from ((rows, d, x[:, d], one) for d, one in module.conditionals(x))
                continue
            chosen = module.choose_members(x, generator)
            for m in sorted(set(chosen.tolist())):
                at = (chosen == m).nonzero().flatten()
                rows = start + at.cpu().numpy()
                for d, conditional in module.member(m).conditionals(x[at]):
                    yield rows, d, x[at, d], conditional
