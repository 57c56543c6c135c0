"""Rows on their way from a source to a kernel."""

from typing import NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """Rows of M models with all that is known of them; what is None is as usual.

    Attributes
    ----------
    x : Tensor of shape (M, B, D)
        Values; what stands in a cell that is not observed does not matter.
    weights : Tensor of shape (M, B) or None
        Weights of the rows; None for 1 each.
    seen : bool Tensor of shape (M, B, D) or None
        Which cells are observed; None for all.
    order : Tensor of shape (M, D) or None
        Which dimension comes first, second and so on; None for each model's own order.
    """

    x: Tensor
    weights: Tensor | None = None
    seen: Tensor | None = None
    order: Tensor | None = None
