"""RNADE: the real-valued neural autoregressive density estimator, as a torch module."""

import torch
from torch import Generator, nn

from rnade.checks import positive_int
from rnade.families import AbstractFamily, GaussianMixture
from rnade.families.base import fresh_generator
from rnade.nn.autoregressive import AbstractAutoregressive, drawn_by
from rnade.nn.orders import Order


class RNADEModule(AbstractAutoregressive):
    r"""Real-valued neural autoregressive density estimator.

    .. math::

        a_1 = c, \quad a_{d+1} = a_d + x_d W_d, \quad h_d = g(\rho_d a_d), \quad
        z_d = V_d^\top h_d + b_d, \quad \log p(x) = \sum_d \log p_M(x_d \mid z_d)

    with one shared hidden layer of H units, rectified linear or sigmoid, and a mixture for each
    conditional. Cost and parameters are linear in D. With more than one layer,

    .. math::

        s_d = \rho_d a_d, \quad s_d \leftarrow s_d + U_l^\top g(s_d) + u_{l,d}
        \; (l = 1 \ldots L - 1), \quad h_d = s_d

    instead of the first h: residual layers whose weights the dimensions share, each with biases
    of its own. What is linear in x goes straight to z.

    Parameters
    ----------
    n_dimensions : int
        D.
    n_hidden : int
        H.
    family : AbstractFamily
        The conditionals, e.g. ``GaussianMixture(10)`` or ``LaplaceMixture(10)``.
    activation : "relu" or "sigmoid"
        Hidden units.
    n_layers : int
        L, hidden layers; 1 is the paper's model.
    order : None, "raster", "random" or a permutation of 0..D-1
        Which dimension comes first, second and so on. None and "raster" take them as they are; a
        tensor of shape (M, D) gives each model of a bank its own order.
    n_models : int
        M, the number of models in a bank.
    generator : torch.Generator, optional
        Draws starting weights and a random order.
    backend : str
        "auto" or the name of a backend (see `rnade.backends.choose`).
    weight_scale : float, optional
        Standard deviation of the starting weights W, c, V and U (0.01 in the authors' code); None
        for 1 / sqrt(D), 1, 0.01 and 1 / sqrt(H (L - 1)), with which units differ from the start.

    References
    ----------
    Uria, Murray and Larochelle (2013), equations 2 to 8, Algorithms 1 and 2.

    Examples
    --------
    >>> import torch
    >>> generator = torch.Generator().manual_seed(0)
    >>> model = RNADEModule(3, n_hidden=8, family=GaussianMixture(2), generator=generator)
    >>> model.sample(5, generator).shape
    torch.Size([5, 3])
    >>> model.log_prob(torch.zeros(4, 3)).shape
    torch.Size([4])
    """

    def __init__(
        self,
        n_dimensions: int,
        n_hidden: int = 50,
        family: AbstractFamily | None = None,
        *,
        activation: str = "relu",
        n_layers: int = 1,
        order: Order = None,
        n_models: int = 1,
        generator: Generator | None = None,
        backend: str = "auto",
        weight_scale: float | None = None,
    ) -> None:
        generator, family = generator or fresh_generator(), family or GaussianMixture(10)
        super().__init__(n_dimensions, family, activation, order, n_models, generator, backend)
        M, D, H = self.n_models, self.n_dimensions, positive_int(n_hidden, "n_hidden")
        P = self.family.n_outputs
        self.n_hidden, self.n_layers = H, positive_int(n_layers, "n_layers")
        draw = drawn_by(generator, weight_scale)
        self.W = draw(D**-0.5, M, D, H)
        self.c = draw(1.0, M, H)
        self.rho = nn.Parameter(torch.ones(M, D))
        self.V = draw(0.01, M, D, H, P)
        self.b = nn.Parameter(torch.zeros(M, D, P))
        L = self.n_layers - 1
        if L:
            self.U = draw((H * L) ** -0.5, M, L, H, H)
            self.u = nn.Parameter(torch.zeros(M, L, D, H))

    def n_torch_products(self, n_rows: int) -> int:
        """Multiplications of the residual layers, which the fused kernels do not make."""
        layers = self.n_layers - 1
        return self.n_models * n_rows * self.n_dimensions * layers * self.n_hidden**2
