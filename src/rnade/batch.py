"""Rows on their way from a source to a kernel."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Batch(NamedTuple):
    """Rows of M models with all that is known of them; what is None is as usual.

    Attributes
    ----------
    x : Tensor of shape (M, B, D)
        Values; what stands in a cell that is not observed does not matter.
    weights : Tensor of shape (M, B) or None
        Weights of the rows; None for 1 each. Kernels may be given (M, B, D), weights of cells.
    seen : bool Tensor of shape (M, B, D) or None
        Which cells are observed; None for all.
    order : Tensor of shape (M, D) or None
        Which dimension comes first, second and so on; None for each model's own order, and in
        kernels for the columns as they are.
    """

    x: Tensor
    weights: Tensor | None = None
    seen: Tensor | None = None
    order: Tensor | None = None

    def rows(self, at: slice) -> "Batch":
        """Some of the rows, as views."""
        weights = None if self.weights is None else self.weights[:, at]
        seen = None if self.seen is None else self.seen[:, at]
        return Batch(self.x[:, at], weights, seen, self.order)

    def filled(self) -> Tensor:
        """The values, with 0 in cells that are not observed: there they add nothing to a."""
        return self.x if self.seen is None else torch.where(self.seen, self.x, 0.0)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """Give a batch with every tensor that is there changed in the same way."""
        return Batch(change(self.x), *[None if t is None else change(t) for t in self[1:]])
