"""FVBN: a separate mixture density network for each conditional, as a torch module."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from rnade.backends import vectorised
from rnade.backends.parameters import Activation, check_activation
from rnade.checks import positive_int
from rnade.families import AbstractFamily, Conditional, GaussianMixture
from rnade.families.base import fresh_generator
from rnade.nn.autoregressive import Order, drawn, make_order
from rnade.nn.bank import AbstractTrainable
from rnade.nn.base import AbstractDensity

# Numbers in the largest array that a density makes.
CHUNK_ELEMENTS = 2**24


class ConditionalNetworks(AbstractTrainable):
    r"""A bank of one-hidden-layer networks, each for one conditional :math:`p(x_d \mid x_{<d})`.

    To the gradient loop each network is a model of its own: all train together, and each keeps
    the weights that are best for its own conditional.

    Parameters
    ----------
    order : Tensor of shape (M, D)
        Which dimension comes first, second and so on, in each of M models.
    n_hidden : sequence of M ints
        Hidden units of each model's networks.
    n_components : sequence of M ints
        Components of each model's conditionals.
    family : AbstractFamily
        The conditionals, with as many components as the largest model has.
    activation : "relu" or "sigmoid"
    generator : torch.Generator
    weight_scale : float, optional
        Standard deviation of the starting weights.
    """

    dimension: Tensor
    seen: Tensor
    units: Tensor
    offset: Tensor
    log_floor: Tensor

    def __init__(
        self,
        order: Int[Tensor, "M D"],
        n_hidden: Sequence[int],
        n_components: Sequence[int],
        family: AbstractFamily,
        *,
        activation: Activation,
        generator: Generator,
        weight_scale: float | None = None,
    ) -> None:
        M, D = order.shape
        super().__init__(D, M * D)
        H, P = max(n_hidden), family.n_outputs
        self.family, self.activation = family, activation

        def draw(scale: float, *shape: int) -> nn.Parameter:
            return drawn(scale if weight_scale is None else weight_scale, shape, generator)

        self.W = draw(D**-0.5, M * D, D, H)
        self.c = draw(1.0, M * D, 1, H)
        self.V = draw(0.01, M * D, H, P)
        self.b = nn.Parameter(torch.zeros(M * D, 1, P))
        self.register_buffer("dimension", torch.arange(D, device="cpu").repeat(M))
        # Network d of a model sees the dimensions that come before d in the model's order.
        rank = order.argsort(1)
        self.register_buffer("seen", (rank[:, None] < rank[:, :, None]).reshape(M * D, D, 1))
        # Models with fewer units or components than the largest have the rest switched off.
        units = torch.arange(H, device="cpu") < torch.tensor(n_hidden, device="cpu")[:, None]
        self.register_buffer("units", units.repeat_interleave(D, 0)[:, None])
        offset = torch.zeros(M, P, device="cpu")
        for m, K in enumerate(n_components):
            offset[m, K : family.n_components] = -torch.inf  # of the logits of the fractions
        self.register_buffer("offset", offset.repeat_interleave(D, 0)[:, None])
        self.register_buffer("log_floor", torch.full((M * D, 1), -torch.inf))

    def decayed(self) -> list[str]:
        """Weight decay touches the input-to-hidden weights only."""
        return ["W"]

    def outputs(self, x: Float[Tensor, "MD B D"]) -> Float[Tensor, "MD B P"]:
        """The numbers z from which each conditional is computed."""
        a = torch.baddbmm(self.c, x, self.W * self.seen)
        h = vectorised.activate(a, self.activation) * self.units
        return torch.baddbmm(self.b + self.offset, h, self.V)

    def log_prob(
        self, x: Float[Tensor, "*rows B D"], *, scale_mean_gradient: bool = False
    ) -> Float[Tensor, "MD B"]:
        """Log density of each network's own dimension, in nats."""
        x = x.expand(self.n_models, *x.shape[-2:])
        own = x.gather(2, self.dimension[:, None, None].expand(-1, x.shape[1], 1))[..., 0]
        return self.family.log_prob(
            own, self.outputs(x), self.log_floor, scale_mean_gradient=scale_mean_gradient
        )

    def weighted_log_likelihood(
        self,
        x: Float[Tensor, "*rows B D"],
        weights: Float[Tensor, "MD B"],
        *,
        scale_mean_gradient: bool = False,
    ) -> Float[Tensor, " MD"]:
        """Sum over rows of `weights` times `log_prob`: what training differentiates."""
        return (self.log_prob(x, scale_mean_gradient=scale_mean_gradient) * weights).sum(1)


class FVBNModule(AbstractDensity):
    """Fully visible Bayesian network for real values: RNADE's conditionals without tied weights.

    Each conditional has a mixture density network of its own, with one hidden layer.

    Parameters
    ----------
    n_dimensions : int
        D.
    n_hidden : int or sequence of M ints
        Hidden units of each network, or of each model's networks.
    family : AbstractFamily
        The conditionals, e.g. ``GaussianMixture(10)``.
    n_components : sequence of M ints, optional
        Components of each model's conditionals, at most those of the family.
    activation : "relu" or "sigmoid"
        Hidden units.
    order : None, "raster", "random" or a permutation of 0..D-1
        Which dimension comes first, second and so on.
    n_models : int
        M, the number of models in a bank.
    generator : torch.Generator, optional
        Draws starting weights and a random order.
    weight_scale : float, optional
        Standard deviation of the starting weights.

    References
    ----------
    Bishop (1994), Mixture density networks. Uria, Murray and Larochelle (2013), section 4.1.
    """

    order: Tensor

    def __init__(
        self,
        n_dimensions: int,
        n_hidden: int | Sequence[int] = 50,
        family: AbstractFamily | None = None,
        *,
        n_components: Sequence[int] | None = None,
        activation: str = "relu",
        order: Order = None,
        n_models: int = 1,
        generator: Generator | None = None,
        weight_scale: float | None = None,
    ) -> None:
        super().__init__(n_dimensions, n_models)
        generator = fresh_generator() if generator is None else generator
        self.family = GaussianMixture(10) if family is None else family
        M, K = self.n_models, self.family.n_components
        hidden = list(n_hidden) if isinstance(n_hidden, Sequence) else [n_hidden] * M
        components = [K] * M if n_components is None else list(n_components)
        self.register_buffer("order", make_order(order, M, self.n_dimensions, generator))
        self.networks = ConditionalNetworks(
            self.order,
            [positive_int(H, "n_hidden") for H in hidden],
            [positive_int(k, "n_components") for k in components],
            self.family,
            activation=check_activation(activation),
            generator=generator,
            weight_scale=weight_scale,
        )

    def __getitem__(self, members: int | Sequence[int]) -> "FVBNModule":
        """One model of a bank, or a bank of some of its models, as copies."""
        wanted = [members] if isinstance(members, int) else list(members)
        at = [m % self.n_models * self.n_dimensions for m in wanted]
        return self._of([m + d for m in at for d in range(self.n_dimensions)], wanted)

    def pick(self, models: Sequence[int]) -> "FVBNModule":
        """One model made of a bank: for each dimension, the network of the model named.

        The models of the bank must have one order.
        """
        D = self.n_dimensions
        return self._of([m * D + d for d, m in enumerate(models)], [0])

    def _like(self, n_models: int) -> "FVBNModule":
        other = super()._like(n_models)
        other._modules = {"networks": self.networks._like(n_models * self.n_dimensions)}
        return other

    def _put(self, name: str, values: Tensor) -> None:
        if name.startswith("networks."):
            self.networks._put(name.removeprefix("networks."), values)
        else:
            super()._put(name, values)

    def _of(self, networks: Sequence[int], orders: Sequence[int]) -> "FVBNModule":
        other = super()._like(len(orders))
        other._modules = {"networks": self.networks[networks]}
        other._buffers["order"] = self.order[list(orders)]
        return other

    @torch.no_grad()
    def start_from(self, rows: Float[Tensor, "N D"], *, spread: str = "quantile") -> None:
        """Set the output biases so that the untrained model resembles each column of `rows`."""
        networks, K = self.networks, self.family.n_components
        b = networks.b.view(self.n_models, self.n_dimensions, -1)
        used = networks.offset[:: self.n_dimensions, 0, :K] > -torch.inf
        for m, k in enumerate(used.sum(1).tolist()):
            family = type(self.family)(k)  # type: ignore[call-arg]
            start = family.starting_biases(rows.to(self.device, self.dtype), spread=spread)
            for part in range(self.family.n_outputs // K):
                b[m, :, part * K : part * K + k] = start[:, part * k : (part + 1) * k]

    def set_floor(self, floor: Float[Tensor, " D"]) -> None:
        """Set the smallest scale of each dimension's components (0 for no floor)."""
        log_floor = self.networks.log_floor
        log_floor.copy_(floor.to(log_floor).log().repeat(self.n_models)[:, None])

    def log_conditionals(self, x: Float[Tensor, "*rows B D"]) -> Float[Tensor, "*models B D"]:
        """The D terms log p(x_d | x_<d) of each row, in nats; they sum to `log_prob`.

        Parameters
        ----------
        x : Tensor of shape (B, D), or (M, B, D) for a bank

        Returns
        -------
        Tensor of shape (B, D), or (M, B, D) for a bank
            Laid out by dimension, whatever the order.
        """
        return self._without_model_axis(self._log_conditionals(self._checked(x)))

    def conditional(self, d: int, x_before: Float[Tensor, "B n_before"]) -> Conditional:
        """The one-dimensional density of dimension d given those that come before it.

        Parameters
        ----------
        d : int
            Dimension, counted from 0 in the layout of the data.
        x_before : Tensor of shape (B, n_before)
            Values of the dimensions before d, in the model's order.
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
        return self._conditional(0, position, x_before)

    def _conditional(self, model: int, position: int, x_before: Tensor) -> Conditional:
        n, order = self.networks, self.order[model]
        at = model * self.n_dimensions + int(order[position])
        a = n.c[at] + x_before @ n.W[at, order[:position]]
        h = vectorised.activate(a, n.activation) * n.units[at]
        return Conditional(self.family, h @ n.V[at] + n.b[at] + n.offset[at], n.log_floor[at])

    def _log_conditionals(self, x: Tensor) -> Tensor:
        M, B, D = x.shape
        H = self.networks.c.shape[-1]
        pieces = []
        for piece in torch.split(x, max(1, CHUNK_ELEMENTS // (M * D * H)), dim=1):
            rows = piece[:, None].expand(M, D, -1, D).reshape(M * D, -1, D)
            pieces.append(self.networks.log_prob(rows).view(M, D, -1).mT)
        return torch.cat(pieces, dim=1) if pieces else x.new_empty(M, B, D)

    def _log_prob(self, x: Tensor) -> Tensor:
        return self._log_conditionals(x).sum(-1)

    def _sample(
        self, n: int, generator: Generator, low: Tensor | None, high: Tensor | None
    ) -> Tensor:
        return torch.stack([self._draws(m, n, generator, low, high) for m in range(self.n_models)])

    def _draws(
        self, model: int, n: int, generator: Generator, low: Tensor | None, high: Tensor | None
    ) -> Tensor:
        x = torch.empty(n, self.n_dimensions, dtype=self.dtype, device=self.device)
        for position, d in enumerate(self.order[model].tolist()):
            before = x[:, self.order[model, :position]]
            x[:, d] = self._conditional(model, position, before).sample(
                generator,
                low=None if low is None else low[d],
                high=None if high is None else high[d],
            )
        return x
