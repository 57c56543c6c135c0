"""FVSBN, logistic regression for each binary dimension, as a torch module."""

import torch
from torch import Generator, nn

from rnade.families import Bernoulli
from rnade.families.base import fresh_generator
from rnade.nn.autoregressive import AbstractAutoregressive
from rnade.nn.orders import Order


class FVSBNModule(AbstractAutoregressive):
    r"""Fully visible sigmoid belief network: :math:`p(x_d=1 \mid x_{<d}) = \mathrm{sigm}(v_d^\top x_{<d} + b_d)`.

    It is the tied network with H = D, W the identity and units that do nothing: then a_d holds
    the values seen so far, and 0 for the others.

    Parameters
    ----------
    n_dimensions : int
        D.
    order, n_models, generator, backend
        As of `RNADEModule`.

    References
    ----------
    Frey, Hinton and Dayan (1996), Does the wake-sleep algorithm produce good density estimators?
    """  # noqa: E501

    def __init__(
        self,
        n_dimensions: int,
        *,
        order: Order = None,
        n_models: int = 1,
        generator: Generator | None = None,
        backend: str = "auto",
    ) -> None:
        generator = generator or fresh_generator()
        super().__init__(
            n_dimensions, Bernoulli(), "identity", order, n_models, generator, backend
        )
        M, D = self.n_models, self.n_dimensions
        self.V = nn.Parameter(torch.zeros(M, D, D, 1))
        self.b = nn.Parameter(torch.zeros(M, D, 1))
        self.register_buffer("W", torch.eye(D).expand(M, D, D).clone())
        self.register_buffer("c", torch.zeros(M, D))
        self.register_buffer("rho", torch.ones(M, D))

    def decayed(self) -> list[str]:
        """Weight decay touches the regression weights."""
        return ["V"]
