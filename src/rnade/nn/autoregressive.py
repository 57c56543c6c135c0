"""What all tied autoregressive models share: conditionals, densities and draws along an order."""

import abc
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from rnade.backends import dispatch, vectorised
from rnade.backends.parameters import Activation, Parameters, check_activation
from rnade.families import AbstractFamily, Conditional
from rnade.nn.bank import AbstractTrainable
from rnade.nn.base import AbstractDensity

T = TypeVar("T", bound="AbstractAutoregressive")
Order = str | Sequence[int] | np.ndarray | Tensor | None


class AbstractAutoregressive(AbstractDensity, AbstractTrainable):
    """Product of one-dimensional conditionals, each computed from the dimensions before it.

    Subclasses say which tensors they have (`tied_parameters`); everything else is here.

    Parameters
    ----------
    n_dimensions : int
        D.
    family : AbstractFamily
        The one-dimensional conditionals.
    activation : "relu", "sigmoid" or "identity"
        Hidden units.
    order : None, "raster", "random" or a permutation of 0..D-1
        Which dimension comes first, second and so on. None and "raster" take them as they are; a
        tensor of shape (M, D) gives each model of a bank its own order.
    n_models : int
        M.
    generator : torch.Generator
        Draws a random order.
    backend : str
        "auto" or the name of a backend (see `rnade.backends.choose`).
    """

    order: Tensor
    log_floor: Tensor

    def __init__(
        self,
        n_dimensions: int,
        family: AbstractFamily,
        activation: str,
        *,
        order: Order = None,
        n_models: int = 1,
        generator: Generator,
        backend: str = "auto",
    ) -> None:
        super().__init__(n_dimensions, n_models)
        self.family = family
        self.activation: Activation = check_activation(activation)
        self.backend = backend
        self.register_buffer("order", make_order(order, n_models, n_dimensions, generator))
        floor = torch.full((n_models, n_dimensions), -torch.inf)
        self.register_buffer("log_floor", floor)

    @abc.abstractmethod
    def tied_parameters(self) -> Parameters:
        """Tensors of the tied network, as the backends take them."""

    @torch.no_grad()
    def start_from(self, rows: Float[Tensor, "N D"], *, spread: str = "quantile") -> None:
        """Set the output biases so that the untrained model resembles each column of `rows`."""
        start = self.family.starting_biases(rows.to(self.device, self.dtype), spread=spread)
        self.tied_parameters().b.copy_(start.expand(self.n_models, -1, -1))

    def set_floor(self, floor: Float[Tensor, " D"]) -> None:
        """Set the smallest scale of each dimension's components (0 for no floor)."""
        self.log_floor.copy_(floor.to(self.log_floor).log().expand_as(self.log_floor))
        self._has_floor = None

    def log_conditionals(
        self, x: Float[Tensor, "*rows B D"], *, scale_mean_gradient: bool = False
    ) -> Float[Tensor, "*models B D"]:
        """The D terms log p(x_d | x_<d) of each row, in nats; they sum to `log_prob`.

        Parameters
        ----------
        x : Tensor of shape (B, D), or (M, B, D) for a bank
        scale_mean_gradient : bool
            Multiply the gradient of each component mean by its scale, the paper's training
            heuristic. Changes gradients only.

        Returns
        -------
        Tensor of shape (B, D), or (M, B, D) for a bank
            Laid out by dimension, whatever the order.
        """
        terms = self._log_conditionals(self._checked(x), scale_mean_gradient)
        return self._without_model_axis(terms)

    def weighted_log_likelihood(
        self,
        x: Float[Tensor, "*rows B D"],
        weights: Float[Tensor, "M B"],
        *,
        scale_mean_gradient: bool = False,
    ) -> Float[Tensor, " M"]:
        """Sum of `weights` times `log_prob` for each model: what training differentiates.

        The fused backends compute value and gradient in one pass.
        """
        return dispatch.weighted_log_likelihood(
            self._checked(x),
            weights,
            self.tied_parameters(),
            self.family,
            self.activation,
            self._order_or_none(),
            scale_mean_gradient=scale_mean_gradient,
            backend=self.backend,
        )

    def conditional(self, d: int, x_before: Float[Tensor, "B n_before"]) -> Conditional:
        """The one-dimensional density of dimension d given those that come before it.

        Parameters
        ----------
        d : int
            Dimension, counted from 0 in the layout of the data.
        x_before : Tensor of shape (B, n_before)
            Values of the dimensions before d, in the model's order: column i holds dimension
            `order[0, i]`. For the first dimension pass a tensor of shape (B, 0).

        Returns
        -------
        Conditional
            With `log_prob`, `pdf`, `cdf` and `sample`, one density a row.
        """
        if self.n_models != 1:
            raise ValueError(f"conditional() takes one model; this is a bank of {self.n_models}.")
        if not 0 <= d < self.n_dimensions:
            raise ValueError(f"Expected d from 0 to {self.n_dimensions - 1}; got {d}.")
        position = int((self.order[0] == d).nonzero())
        if x_before.ndim != 2 or x_before.shape[1] != position:
            raise ValueError(
                f"Dimension {d} has {position} dimensions before it: expected x_before of shape"
                f" (B, {position}); got {tuple(x_before.shape)}."
            )
        parameters = self.tied_parameters()
        a = parameters.c[0] + x_before @ parameters.W[0, self.order[0, :position]]
        return self._conditional(d, a, parameters)

    def conditionals(self, x: Float[Tensor, "B D"]) -> Iterator[tuple[int, Conditional]]:
        """Each dimension with its density given those before it, one after the other.

        The activations are carried along, so that all D cost little more than the last and
        nothing of size B x D x H is stored.

        Parameters
        ----------
        x : Tensor of shape (B, D)

        Yields
        ------
        int, Conditional
            In the model's order.
        """
        if self.n_models != 1:
            raise ValueError(f"conditionals() takes one model; this is a bank of {self.n_models}.")
        (x,) = self._checked(x)
        parameters = self.tied_parameters()
        a = parameters.c.expand(len(x), -1)
        for d in self.order[0].tolist():
            yield d, self._conditional(d, a, parameters)
            a = a + x[:, d, None] * parameters.W[0, d]

    def _conditional(self, d: int, a: Float[Tensor, "B H"], parameters: Parameters) -> Conditional:
        """The density of dimension d of the only model, from the activations before it."""
        _, _, rho, V, b, log_floor, U, u = parameters
        u_d = None if u is None else u[:, :, d]
        (h,) = vectorised.hidden((rho[0, d] * a)[None], self.activation, U, u_d)
        floor = None if log_floor is None else log_floor[0, d]
        return Conditional(self.family, h @ V[0, d] + b[0, d], floor)

    def signature(self) -> list[str]:
        """What models must have in common to stand side by side in a bank."""
        family = f"{self.family.name} {self.family.n_components}"
        return [family, self.activation, self.backend, *super().signature()]

    def backend_choice(self) -> dispatch.Choice:
        """Which backend computes this module's densities, and why."""
        return dispatch.choose(self.tied_parameters(), self.family, self.activation, self.backend)

    def _log_conditionals(self, x: Tensor, scale_mean_gradient: bool = False) -> Tensor:
        return dispatch.log_conditionals(
            x,
            self.tied_parameters(),
            self.family,
            self.activation,
            self._order_or_none(),
            scale_mean_gradient=scale_mean_gradient,
            backend=self.backend,
        )

    def _log_prob(self, x: Tensor) -> Tensor:
        return self._log_conditionals(x).sum(-1)

    def _sample(
        self, n: int, generator: Generator, low: Tensor | None, high: Tensor | None
    ) -> Tensor:
        return dispatch.sample(
            n,
            self.tied_parameters(),
            self.family,
            self.activation,
            self._order_or_none(),
            generator=generator,
            low=low,
            high=high,
            backend=self.backend,
        )

    def _order_or_none(self) -> Tensor | None:
        """The order, or None where it is the identity and nothing need be permuted."""
        if self._order_is_identity is None:
            identity = torch.arange(self.n_dimensions, device=self.order.device)
            self._order_is_identity = bool((self.order == identity).all())
        return None if self._order_is_identity else self.order

    def _floor_or_none(self) -> Tensor | None:
        """The log floors, or None where no dimension has one."""
        if self._has_floor is None:
            self._has_floor = bool((self.log_floor > -torch.inf).any())
        return self.log_floor if self._has_floor else None

    _order_is_identity: bool | None = None
    _has_floor: bool | None = None

    def _like(self: T, n_models: int) -> T:
        other = super()._like(n_models)
        other._order_is_identity = other._has_floor = None
        return other

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._order_is_identity = self._has_floor = None
        super()._load_from_state_dict(*args, **kwargs)


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
    given = torch.as_tensor(order, dtype=torch.int64, device="cpu")
    given = given.expand(n_models, -1) if given.ndim == 1 else given
    if given.shape != (n_models, n_dimensions) or (given.sort(1).values != identity).any():
        raise ValueError(
            f"order must be a permutation of 0 to {n_dimensions - 1}; got {given.tolist()}."
        )
    return given.clone()


def drawn(scale: float, shape: tuple[int, ...], generator: Generator) -> nn.Parameter:
    """A parameter of normal draws; without values where the default device has none ("meta")."""
    values = torch.empty(shape)
    return nn.Parameter(
        values if values.is_meta else values.normal_(0, scale, generator=generator)
    )
