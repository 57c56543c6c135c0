"""Real-valued columns with missing cells: what mixtures of Gaussians make of them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rnade.batch import Batch
from rnade.estimators.conditionals import CHUNK_ROWS
from rnade.estimators.density import AbstractDensityEstimator
from rnade.families import Conditional
from rnade.nn import AbstractGaussianMixture
from rnade.nn.mixture import patterns
from rnade.nn.mog import marginal
from rnade.typing import Array


class AbstractMissingEstimator(AbstractDensityEstimator):
    """Density estimator over a mixture of Gaussians; of rows with missing cells, its marginals.

    What is computed of a row depends on its observed cells alone, as if the model had no other
    columns. Rows that have the same cells observed are computed together.
    """

    _takes_missing = True

    # Fitted attributes.
    module_: AbstractGaussianMixture

    def _as_batch(
        self, X: Array, weights: Array | None, device: torch.device, dtype: torch.dtype
    ) -> Batch:
        rows = super()._as_batch(X, weights, device, dtype)
        if not np.isnan(X).any():
            return rows
        rows = rows._replace(seen=~rows.x.isnan())
        return rows._replace(x=rows.filled())

    def _score(self, X: Array) -> Array:
        return self._terms(X).sum(1) if np.isnan(X).any() else super()._score(X)

    def _terms(self, X: Array) -> Array:
        seen = ~np.isnan(X)
        if seen.all():
            return super()._terms(X)
        terms = self._in_chunks(X, lambda module, x: module.log_conditionals(x, seen=~x.isnan()))
        return terms + seen * self.standardiser_.log_determinant_terms

    def _conditionals(
        self, X: Array, seed: int
    ) -> Iterator[tuple[tuple[NDArray[np.int64], NDArray[np.int64]], Tensor, Conditional]]:
        seen = ~np.isnan(X)
        if seen.all():
            yield from super()._conditionals(X, seed)
            return
        for rows, columns in patterns(torch.as_tensor(seen)):
            if not len(columns):
                continue
            part = marginal(self.module_, columns.to(self.module_.device))
            for at in torch.split(rows, CHUNK_ROWS):
                x = self._standardised(self.module_, X[at.numpy()])[:, columns]
                for own, conditional in part.conditional_blocks(x):
                    yield (at[:, None].numpy(), columns[None, own].numpy()), x[:, own], conditional

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
