"""Orders of the dimensions, from what a user gives."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Generator, Tensor

Permutation = Sequence[int] | np.ndarray | Tensor
Order = str | Permutation | None


def make_order(order: Order, n_models: int, n_dimensions: int, generator: Generator) -> Tensor:
    """Orders of shape (M, D) from what the user gave."""
    # On the CPU whatever the default device: a model file is first read on none ("meta").
    identity = torch.arange(n_dimensions, device="cpu")
    if order is None or (isinstance(order, str) and order == "raster"):
        return identity.repeat(n_models, 1)
    if isinstance(order, str):
        if order != "random":
            raise ValueError(
                f"order must be None, 'raster', 'random' or a permutation; got {order!r}."
            )
        return torch.stack(
            [
                torch.randperm(n_dimensions, generator=generator, device="cpu")
                for _ in range(n_models)
            ]
        )
    return permutation(order, n_models, n_dimensions).clone()


def permutation(order: Permutation, n_models: int, n_dimensions: int) -> Tensor:
    """Orders of shape (M, D), on the CPU, from a permutation for all models or for each."""
    given = torch.as_tensor(order, dtype=torch.int64, device="cpu")
    given = given.expand(n_models, -1) if given.ndim == 1 else given
    identity = torch.arange(n_dimensions, device="cpu")
    if given.shape != (n_models, n_dimensions) or (given.sort(1).values != identity).any():
        raise ValueError(
            f"order must be a permutation of 0 to {n_dimensions - 1}; got {given.tolist()}."
        )
    return given
