"""FVBN: a separate mixture density network for each conditional, as a torch module."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from rnade.backends import networks as separate
from rnade.backends import vectorised
from rnade.backends.networks import Networks
from rnade.backends.spec import Activation, Spec, check_activation
from rnade.batch import Batch
from rnade.checks import positive_int
from rnade.chunks import rows_at_a_time
from rnade.families import AbstractFamily, Conditional, GaussianMixture
from rnade.families.base import fresh_generator
from rnade.nn.autoregressive import drawn_by
from rnade.nn.bank import AbstractTrainable
from rnade.nn.chain import AbstractChain
from rnade.nn.orders import Order, make_order

_ONE_ORDER = (
    "Each network of an FVBN was made for the dimensions before its own in one order, so that"
    " another order is not an option. Use a tied model (RNADEModule, NADEModule, FVSBNModule)."
)


class ConditionalNetworks(AbstractTrainable):
    r"""A bank of one-hidden-layer networks, each for one conditional :math:`p(x_d \mid x_{<d})`.

    To the gradient loop each network is a model of its own: all train together, and each keeps
    the weights that are best for its own conditional.

    Parameters
    ----------
    order : Tensor of shape (M, D)
        Which dimension comes first, second and so on, in each of M models: D networks each.
    n_hidden : int
    family : AbstractFamily
        The conditionals.
    activation : "relu" or "sigmoid"
    generator : torch.Generator
    weight_scale : float, optional
        Standard deviation of the starting weights.
    """

    own: Tensor
    seen: Tensor  # its name in files of models; `Networks` calls them inputs

    def __init__(
        self,
        order: Int[Tensor, "M D"],
        n_hidden: int,
        family: AbstractFamily,
        activation: Activation,
        generator: Generator,
        weight_scale: float | None,
    ) -> None:
        M, D = order.shape
        super().__init__(D, M * D)
        H, P = n_hidden, family.n_outputs
        self.family, self.activation = family, activation

        draw = drawn_by(generator, weight_scale)
        self.W = draw(D**-0.5, M * D, D, H)
        self.c = draw(1.0, M * D, H)
        self.V = draw(0.01, M * D, H, P)
        self.b = nn.Parameter(torch.zeros(M * D, P))
        self.register_buffer("own", torch.arange(D, device="cpu").repeat(M))
        # Network d of a model sees the dimensions that come before d in the model's order.
        rank = order.argsort(1)
        self.register_buffer("seen", (rank[:, None] < rank[:, :, None]).reshape(M * D, D))
        self.register_buffer("log_floor", torch.full((M * D,), -torch.inf))

    def n_torch_products(self, n_rows: int) -> int:
        """Multiplications of all networks: there is no CPU kernel for them."""
        return n_rows * (self.W.numel() + self.V.numel())

    def tensors(self) -> Networks:
        """The networks, as the backends take them."""
        floor = self._floor_or_none()
        return Networks(self.W, self.c, self.V, self.b, self.own, self.seen, floor)

    def log_prob(
        self, x: Float[Tensor, "*rows B D"], *, seen: Tensor | None = None
    ) -> Float[Tensor, "MD B"]:
        """Log density of each network's own dimension, in nats; 0 where it is not observed."""
        batch = Batch(self._for_each(x), seen=None if seen is None else self._for_each(seen))
        return separate.log_prob(batch, self.tensors(), Spec(self.family, self.activation))

    def weighted_log_likelihood(
        self, batch: Batch, *, scale_mean_gradient: bool = False
    ) -> Float[Tensor, " MD"]:
        if batch.order is not None:
            raise ValueError(_ONE_ORDER)
        batch = batch._replace(x=self._for_each(batch.x))
        spec = Spec(self.family, self.activation, scale_mean_gradient)
        return separate.weighted_log_likelihood(batch, self.tensors(), spec)

    def _for_each(self, cells: Tensor) -> Tensor:
        return cells.expand(self.n_models, *cells.shape[-2:])

    def widened(self, n_hidden: int, n_components: int) -> "ConditionalNetworks":
        """The same densities, with further units and components that do nothing."""
        family = self.family.make(n_components)
        K, P = self.family.n_components, family.n_outputs
        # Columns of the components there are, among those of each part: fractions, means, scales.
        parts = torch.arange(P, device=self.device).view(-1, n_components)[:, :K].flatten()
        more = n_hidden - self.c.shape[-1]
        other = self._like(self.n_models)
        other.family = family
        V = self.V.new_zeros(self.n_models, n_hidden, P)
        V[:, : V.shape[1] - more, parts] = self.V.detach()
        b = self.b.new_zeros(self.n_models, P)
        b[:, K:n_components] = -torch.inf
        b[:, parts] = self.b.detach()
        other._put("W", F.pad(self.W.detach(), (0, more)))
        other._put("c", F.pad(self.c.detach(), (0, more)))
        other._put("V", V)
        other._put("b", b)
        return other


class FVBNModule(AbstractChain):
    """Fully visible Bayesian network for real values: RNADE's conditionals without tied weights.

    Each conditional has a mixture density network of its own, with one hidden layer.

    Parameters
    ----------
    n_dimensions : int
        D.
    n_hidden : int
        Hidden units of each network.
    family : AbstractFamily
        The conditionals, e.g. ``GaussianMixture(10)``.
    activation : "relu" or "sigmoid"
        Hidden units.
    order, n_models, generator
        As of `RNADEModule`.
    weight_scale : float, optional
        Standard deviation of the starting weights.

    References
    ----------
    Bishop (1994), Mixture density networks. Uria, Murray and Larochelle (2013), section 4.1.
    """

    def __init__(
        self,
        n_dimensions: int,
        n_hidden: int = 50,
        family: AbstractFamily | None = None,
        *,
        activation: str = "relu",
        order: Order = None,
        n_models: int = 1,
        generator: Generator | None = None,
        weight_scale: float | None = None,
    ) -> None:
        super().__init__(n_dimensions, n_models)
        generator = generator or fresh_generator()
        self.family = GaussianMixture(10) if family is None else family
        H, units = positive_int(n_hidden, "n_hidden"), check_activation(activation)
        orders = make_order(order, self.n_models, self.n_dimensions, generator)
        self.register_buffer("order", orders)
        self.networks = ConditionalNetworks(
            self.order, H, self.family, units, generator, weight_scale
        )

    @staticmethod
    def of(networks: Sequence[ConditionalNetworks], order: Int[Tensor, " D"]) -> "FVBNModule":
        """One model from the networks of its dimensions, which may differ in size.

        Parameters
        ----------
        networks : sequence of D ConditionalNetworks
            Of one network each, that of dimension 0 first.
        order : Tensor of shape (D,)
            The order that they were made for.
        """
        H = max(n.c.shape[-1] for n in networks)
        K = max(n.family.n_components for n in networks)
        bank = AbstractTrainable.stack([n.widened(H, K) for n in networks])
        model = FVBNModule(
            len(networks), H, bank.family, activation=bank.activation, order=order.cpu()
        )
        model._modules = {"networks": bank}
        model._buffers["order"] = model.order.to(bank.device)
        return model

    def start_from(self, rows: Float[Tensor, "N D"], **settings: Any) -> None:
        """Set the output biases so that the untrained model resembles each column of `rows`.

        `settings` are the row `weights` and the `spread`, as of `RNADEModule.start_from`.
        """
        self.networks.start_from(rows, **settings)

    def set_floor(self, floor: Float[Tensor, " D"]) -> None:
        """Set the smallest scale of each dimension's components (0 for no floor)."""
        self.networks.set_floor(floor)

    def _conditional(self, position: int, x_before: Tensor, model: int = 0) -> Conditional:
        n, order = self.networks, self.order[model]
        at = model * self.n_dimensions + int(order[position])
        a = n.c[at] + x_before @ n.W[at, order[:position]]
        h = vectorised.activate(a, n.activation)
        return Conditional(self.family, h @ n.V[at] + n.b[at], n.log_floor[at])

    def _log_conditionals(self, batch: Batch) -> Tensor:
        if batch.order is not None:
            raise ValueError(_ONE_ORDER)
        M, B, D = batch.x.shape
        size = rows_at_a_time(M * D * self.networks.c.shape[-1])

        def of_each_network(cells: Tensor) -> Tensor:
            return cells[:, None].expand(M, D, -1, D).reshape(M * D, -1, D)

        pieces = []
        for start in range(0, B, size):
            x, _, seen, _ = batch.rows(slice(start, start + size))
            seen = None if seen is None else of_each_network(seen)
            terms = self.networks.log_prob(of_each_network(x), seen=seen)
            pieces.append(terms.view(M, D, -1).mT)
        return torch.cat(pieces, dim=1) if pieces else batch.x.new_empty(M, B, D)

    def _sample(
        self, n: int, generator: Generator, low: Tensor | None, high: Tensor | None
    ) -> Tensor:
        draws = [
            self._draws_along(order, partial(self._conditional, model=m), n, generator, low, high)
            for m, order in enumerate(self.order)
        ]
        return torch.stack(draws)
