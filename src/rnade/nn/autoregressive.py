"""What all tied autoregressive models share: conditionals, densities and draws along an order."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from rnade.backends import dispatch, vectorised
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec, check_activation
from rnade.batch import Batch
from rnade.families import AbstractFamily, Conditional
from rnade.nn.bank import AbstractTrainable
from rnade.nn.chain import AbstractChain
from rnade.nn.orders import Order, make_order

# Numbers of hidden units and outputs at a time in `conditionals`: of few rows several columns,
# instead of thousands of tiny products for which threads wait for each other.
_ELEMENTS = 2**21


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

    def _conditionals(self, x: Float[Tensor, "B D"]) -> Iterator[tuple[list[int], Conditional]]:
        # The activations are carried along, so that all D cost little more than the last and
        # nothing of size B x D x H is stored.
        parameters = self.tied_parameters()
        a = parameters.c[0].expand(1, len(x), -1)
        size = _ELEMENTS // max(1, len(x) * sum(parameters.V.shape[-2:]))
        for block in torch.split(self.order[0], max(1, size)):
            steps = x.T[block, :, None] * parameters.W[0, block, None]
            a = torch.cat([a[-1:], steps]).cumsum(0)
            yield block.tolist(), self._from_activations(block, a[:-1], parameters)

    def _conditional(self, position: int, x_before: Tensor, model: int = 0) -> Conditional:
        parameters, order = self.tied_parameters(), self.order[model]
        a = parameters.c[model] + x_before @ parameters.W[model, order[:position]]
        return self._from_activations(order[position, None], a[None], parameters)[:, 0]

    def _from_activations(
        self, at: Int[Tensor, " k"], a: Float[Tensor, "k B H"], parameters: Parameters
    ) -> Conditional:
        """The densities of k dimensions of the only model, from the activations before each."""
        _, _, rho, V, b, log_floor, U, u = parameters
        u_at = None if u is None else u[:, :, at]
        (h,) = vectorised.hidden((rho[0, at, None, None] * a)[None], self.activation, U, u_at)
        z = (h @ V[0, at] + b[0, at, None]).transpose(0, 1)
        return Conditional(self.family, z, None if log_floor is None else log_floor[0, at])

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
