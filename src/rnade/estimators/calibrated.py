"""What an estimator's conditionals say of a value beyond its density: probabilities, intervals."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from rnade.estimators.inputs import check_rows
from rnade.estimators.settings import make_rng
from rnade.families import Bernoulli, Conditional
from rnade.families.base import Array
from rnade.nn import AbstractAutoregressive
from rnade.preprocessing import Resolution, Standardiser

# Elements of the largest tensor made at once: rows x columns x (hidden units or outputs).
_CHUNK_ELEMENTS = 8_000_000


class ConditionalsMixin:
    """Probability integral transforms and quantiles of the conditionals."""

    module_: AbstractAutoregressive
    standardiser_: Standardiser
    resolution_: Resolution | None

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
            Of those draws; columns that are not rounded need none.

        Returns
        -------
        array of shape (N, D)
        """
        check_is_fitted(self)
        X = self._encode(check_rows(self, X, fitting=False))
        rng = make_rng(random_state)
        below, above = self._rounding()
        u: Array = np.empty_like(X)
        for rows, x, conditionals in self._chunks(X):
            upper = conditionals.cdf(x.T + above).T.cpu().numpy()
            if not (below.any() or above.any()):
                u[rows] = upper
                continue
            lower = conditionals.cdf(x.T - below).T.cpu().numpy()
            u[rows] = lower + (upper - lower) * rng.uniform(size=lower.shape)
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
        for rows, _, conditionals in self._chunks(X):
            Z[rows] = conditionals.quantile(q).T.cpu().numpy()
        return self.standardiser_.inverse(Z)

    def _encode(self, X: Array) -> Array:
        raise NotImplementedError

    def _rounding(self) -> tuple[Tensor, ...]:
        """How far below and above itself a value of each column reaches, of shape (D, 1)."""
        scale = self.standardiser_.scale
        if isinstance(self.module_.family, Bernoulli):
            below, above = np.ones_like(scale), np.zeros_like(scale)
        else:
            steps = np.zeros_like(scale) if self.resolution_ is None else self.resolution_.steps
            below = above = steps / scale / 2
        where = self.module_.device
        return tuple(torch.as_tensor(reach, device=where)[:, None] for reach in (below, above))

    def _chunks(self, X: Array) -> Iterator[tuple[slice, Tensor, Conditional]]:
        """Rows a few at a time, standardised, with their conditionals."""
        module = self.module_
        parameters = module.tied_parameters()
        width = max(parameters.c.shape[-1], module.family.n_outputs)
        n_rows = max(1, _CHUNK_ELEMENTS // (X.shape[1] * width))
        for start in range(0, len(X), n_rows):
            rows = slice(start, start + n_rows)
            with torch.no_grad():
                Z = self.standardiser_.transform(X[rows])
                x = torch.as_tensor(Z).to(module.device, module.dtype)
                yield rows, x, module.conditionals(x)
