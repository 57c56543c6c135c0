"""NADE for binary vectors, as a torch module."""

import torch
from torch import Generator, nn

from rnade.checks import positive_int
from rnade.families import Bernoulli
from rnade.families.base import fresh_generator
from rnade.nn.autoregressive import AbstractAutoregressive, drawn_by
from rnade.nn.orders import Order


class NADEModule(AbstractAutoregressive):
    r"""Neural autoregressive distribution estimator for binary vectors, the paper's equation 1.

    Parameters
    ----------
    n_dimensions : int
        D.
    n_hidden : int
        H.
    activation : "sigmoid" or "relu"
        Hidden units.
    tied_weights : bool
        Use the input weights W_d as output weights V_d too, as NADE was first proposed.
    order, n_models, generator, backend
        As of `RNADEModule`.
    weight_scale : float, optional
        Standard deviation of the starting weights; None for 1 / sqrt(D) on W, 1 on c, 0.01 on V.

    References
    ----------
    Larochelle and Murray (2011), The neural autoregressive distribution estimator.
    """

    def __init__(
        self,
        n_dimensions: int,
        n_hidden: int = 50,
        *,
        activation: str = "sigmoid",
        tied_weights: bool = False,
        order: Order = None,
        n_models: int = 1,
        generator: Generator | None = None,
        backend: str = "auto",
        weight_scale: float | None = None,
    ) -> None:
        generator = generator or fresh_generator()
        super().__init__(
            n_dimensions, Bernoulli(), activation, order, n_models, generator, backend
        )
        M, D, H = self.n_models, self.n_dimensions, positive_int(n_hidden, "n_hidden")
        self.n_hidden, self.tied_weights = H, tied_weights
        draw = drawn_by(generator, weight_scale)
        self.W = draw(D**-0.5, M, D, H)
        self.c = draw(1.0, M, H)
        if not tied_weights:
            self.V = draw(0.01, M, D, H, 1)
        self.b = nn.Parameter(torch.zeros(M, D, 1))
        self.register_buffer("rho", torch.ones(M, D))
