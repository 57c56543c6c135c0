"""What all tied autoregressive models share: conditionals, densities and draws along an order."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from rnade.backends import dispatch, vectorised
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec, check_activation
from rnade.batch import Batch
from rnade.families import AbstractFamily, Conditional
from rnade.nn.bank import AbstractTrainable
from rnade.nn.chain import AbstractChain
from rnade.nn.orders import Order, make_order


class AbstractAutoregressive(AbstractChain, AbstractTrainable):
    """Product of one-dimensional conditionals, each computed from the dimensions before it.

    Subclasses make the tensors of `Parameters`, without V where `tied_weights` says that W serves
    as V too; everything else is here.

    Parameters
    ----------
    n_dimensions : int
        D.
    family : AbstractFamily
        The one-dimensional conditionals.
    activation : "relu", "sigmoid" or "identity"
        Hidden units.
    order, n_models, generator, backend
        As of `RNADEModule`.
    """

    W: Tensor
    c: Tensor
    rho: Tensor
    V: Tensor
    b: Tensor
    tied_weights = False

    def __init__(
        self,
        n_dimensions: int,
        family: AbstractFamily,
        activation: str,
        order: Order,
        n_models: int,
        generator: Generator,
        backend: str,
    ) -> None:
        super().__init__(n_dimensions, n_models)
        self.family = family
        self.activation = check_activation(activation)
        self.backend = backend
        self.register_buffer("order", make_order(order, n_models, n_dimensions, generator))
        floor = torch.full((n_models, n_dimensions), -torch.inf)
        self.register_buffer("log_floor", floor)
        self.U: Tensor | None = None
        self.u: Tensor | None = None

    def tied_parameters(self) -> Parameters:
        """Tensors of the tied network, as the backends take them."""
        V = self.W.unsqueeze(-1) if self.tied_weights else self.V
        floor = self._floor_or_none()
        return Parameters(self.W, self.c, self.rho, V, self.b, floor, self.U, self.u)

    def weighted_log_likelihood(
        self, batch: Batch, *, scale_mean_gradient: bool = False
    ) -> Float[Tensor, " M"]:
        x, weights, seen, order = batch
        batch = self._ordered(Batch(self._checked(x), weights, seen, order))
        spec = self._spec(scale_mean_gradient)
        return dispatch.weighted_log_likelihood(batch, self.tied_parameters(), spec)

    def _conditionals(self, x: Float[Tensor, "B D"]) -> Iterator[tuple[int, Conditional]]:
        # The activations are carried along, so that all D cost little more than the last and
        # nothing of size B x D x H is stored.
        parameters = self.tied_parameters()
        a = parameters.c.expand(len(x), -1)
        for d in self.order[0].tolist():
            yield d, self._from_activations(d, a, parameters)
            a = a + x[:, d, None] * parameters.W[0, d]

    def _conditional(self, position: int, x_before: Tensor, model: int = 0) -> Conditional:
        parameters, order = self.tied_parameters(), self.order[model]
        a = parameters.c[model] + x_before @ parameters.W[model, order[:position]]
        return self._from_activations(int(order[position]), a, parameters)

    def _from_activations(
        self, d: int, a: Float[Tensor, "B H"], parameters: Parameters
    ) -> Conditional:
        """The density of dimension d of the only model, from the activations before it."""
        _, _, rho, V, b, log_floor, U, u = parameters
        u_d = None if u is None else u[:, :, d]
        (h,) = vectorised.hidden((rho[0, d] * a)[None], self.activation, U, u_d)
        floor = None if log_floor is None else log_floor[0, d]
        return Conditional(self.family, h @ V[0, d] + b[0, d], floor)

    def signature(self) -> list[str]:
        return [self.backend, *super().signature()]

    def backend_choice(self) -> dispatch.Choice:
        """Which backend computes this module's densities, and why."""
        return dispatch.choose(self.tied_parameters(), self._spec())

    def _spec(self, scale_mean_gradient: bool = False) -> Spec:
        return Spec(self.family, self.activation, scale_mean_gradient, self.backend)

    def _log_conditionals(self, batch: Batch) -> Tensor:
        parameters = self.tied_parameters()
        return dispatch.log_conditionals(self._ordered(batch), parameters, self._spec())

    def _log_prob(self, batch: Batch) -> Tensor:
        return dispatch.log_prob(self._ordered(batch), self.tied_parameters(), self._spec())

    def _sample(
        self, n: int, generator: Generator, low: Tensor | None, high: Tensor | None
    ) -> Tensor:
        return dispatch.sample(
            n,
            self.tied_parameters(),
            self._spec(),
            order=self._order_or_none(),
            generator=generator,
            low=low,
            high=high,
        )

    def _ordered(self, batch: Batch) -> Batch:
        """The batch with an order: its own, or else the model's."""
        x, weights, seen, order = batch
        return batch if order is not None else Batch(x, weights, seen, self._order_or_none())

    def _order_or_none(self) -> Tensor | None:
        """The order, or None where it is the identity and nothing need be permuted."""
        if self._order_is_identity is None:
            identity = torch.arange(self.n_dimensions, device=self.order.device)
            self._order_is_identity = bool((self.order == identity).all())
        return None if self._order_is_identity else self.order

    _order_is_identity: bool | None = None

    def _forget(self) -> None:
        super()._forget()
        self._order_is_identity = None


def drawn_by(generator: Generator, weight_scale: float | None) -> Callable[..., nn.Parameter]:
    """The function that draws starting weights: `draw(usual scale, *shape)`.

    Where a `weight_scale` is given it takes the place of every usual one.
    """

    def draw(usual: float, *shape: int) -> nn.Parameter:
        values = torch.empty(shape)
        if not values.is_meta:  # else the default device has no values
            values.normal_(0, usual if weight_scale is None else weight_scale, generator=generator)
        return nn.Parameter(values)

    return draw
