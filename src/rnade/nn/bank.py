"""M models of one shape as one torch module: stacked, picked, trained together."""

import abc
import copy
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rnade.backends.spec import Activation
from rnade.batch import Batch
from rnade.checks import positive_int
from rnade.families.base import AbstractFamily, Rows, RowWeights

# typing.Self cannot be checked method by method, which is how the tests check types.
T = TypeVar("T", bound="AbstractBank")
N = TypeVar("N", bound="AbstractTrainable")


class AbstractBank(nn.Module, abc.ABC):
    """M models of one shape over D dimensions; each parameter and buffer has a leading axis M.

    Parameters
    ----------
    n_dimensions : int
        D.
    n_models : int
        M; one model is a bank of one.
    """

    def __init__(self, n_dimensions: int, n_models: int = 1) -> None:
        super().__init__()
        self.n_dimensions = positive_int(n_dimensions, "n_dimensions")
        self.n_models = positive_int(n_models, "n_models")

    def __getitem__(self: T, members: int | Sequence[int]) -> T:
        """One model of a bank, or a bank of some of its models, as copies."""
        wanted = [members] if isinstance(members, int) else list(members)
        if not wanted or not all(-self.n_models <= m < self.n_models for m in wanted):
            raise IndexError(f"Expected members of a bank of {self.n_models}; got {members}.")
        picked = self._like(len(wanted))
        for name, t in self._tensors():
            # A bank within a bank has several models for each, side by side.
            of_each = t.detach().view(self.n_models, -1, *t.shape[1:])
            picked._put(name, of_each[wanted].flatten(0, 1))
        return picked

    @staticmethod
    def stack(modules: Sequence[T]) -> T:
        """Put models of one shape side by side in a bank, as copies."""
        first = modules[0]
        for other in modules:
            if other.signature() != first.signature():
                raise ValueError(
                    "Expected models of one kind and shape;"
                    f" got {first.signature()} and {other.signature()}."
                )
        bank = first._like(sum(module.n_models for module in modules))
        for name, _ in first._tensors():
            bank._put(name, torch.cat([dict(m._tensors())[name].detach() for m in modules]))
        return bank

    def signature(self) -> list[str]:
        """What models must have in common to stand side by side in a bank."""
        shapes = [f"{name} {t.dtype} {tuple(t.shape[1:])}" for name, t in self._tensors()]
        return [type(self).__name__, str(self.device), *shapes]

    def _tensors(self) -> list[tuple[str, Tensor]]:
        """Parameters and buffers, also of banks within this one, with a leading model axis."""
        return [*self.named_parameters(), *self.named_buffers()]

    def _like(self: T, n_models: int) -> T:
        """Make a shallow copy that is to get tensors of its own."""
        other = copy.copy(self)
        other._parameters, other._buffers = dict(self._parameters), dict(self._buffers)
        other._modules = {
            name: bank._like(bank.n_models * n_models // self.n_models)
            for name, bank in self._modules.items()
            if isinstance(bank, AbstractBank)
        }
        other.n_models = n_models
        return other

    def _put(self, name: str, values: Tensor) -> None:
        """Give a module from `_like` a tensor."""
        within, _, own = name.rpartition(".")
        module = self.get_submodule(within)
        old = getattr(module, own)
        if isinstance(old, nn.Parameter):
            module._parameters[own] = nn.Parameter(values, requires_grad=old.requires_grad)
        else:
            module._buffers[own] = values

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the parameters."""
        return next(self.parameters()).dtype


class AbstractTrainable(AbstractBank):
    """Networks that the gradient loop can train; they give the conditionals of one family.

    Attributes
    ----------
    family : AbstractFamily
    activation : "relu", "sigmoid" or "identity"
        Hidden units.
    log_floor : Tensor
        Logarithm of the smallest scale of each conditional, -inf for none.
    b : Tensor
        Biases of the outputs, P for each conditional.
    """

    family: AbstractFamily
    activation: Activation
    log_floor: Tensor
    b: Tensor
    _has_floor: bool | None = None

    def decayed(self) -> list[str]:
        """Names of the parameters that weight decay touches: the input-to-hidden weights only."""
        return ["W"]

    def n_torch_products(self, n_rows: int) -> int:
        """Multiplications of an update that are left to torch's own products, about."""
        return 0

    @abc.abstractmethod
    def log_prob(
        self, x: Float[Tensor, "*rows B D"], *, seen: Tensor | None = None
    ) -> Float[Tensor, "*models B"]:
        """Score of each row, of shape (B,), or (M, B) for a bank: what validation looks at."""

    @abc.abstractmethod
    def weighted_log_likelihood(
        self, batch: Batch, *, scale_mean_gradient: bool = False
    ) -> Float[Tensor, " M"]:
        """Sum of weights times `log_prob` for each model: what training differentiates.

        Parameters
        ----------
        batch : Batch
            Trusted: its order, if it has one, is not checked.
        scale_mean_gradient : bool
            Multiply the gradient of each component mean by its scale, the paper's training
            heuristic. Changes gradients only.
        """

    @torch.no_grad()
    def start_from(
        self, rows: Rows, *, weights: RowWeights = None, spread: str = "quantile"
    ) -> None:
        """Set the output biases so that the untrained model resembles each column of `rows`.

        Parameters
        ----------
        rows : Tensor of shape (N, D)
        weights : Tensor of shape (N,), optional
            A row of weight 2 counts as two rows; None gives each the weight 1.
        spread : "quantile" or "range"
            How a mixture's means are spread over a column.
        """
        rows = rows.to(self.device, self.dtype)
        start = self.family.starting_biases(rows, weights=weights, spread=spread)
        self.b.view(-1, self.n_dimensions, self.family.n_outputs).copy_(start)

    def set_floor(self, floor: Float[Tensor, " D"]) -> None:
        """Set the smallest scale of each dimension's components (0 for no floor)."""
        self.log_floor.view(-1, self.n_dimensions).copy_(floor.to(self.log_floor).log())
        self._forget()

    def _floor_or_none(self) -> Tensor | None:
        """The log floors, or None where there are none."""
        if self._has_floor is None:
            self._has_floor = self.family.has_scale and bool((self.log_floor > -torch.inf).any())
        return self.log_floor if self._has_floor else None

    def _forget(self) -> None:
        """Look again at tensors that have been given other values."""
        self._has_floor = None

    def signature(self) -> list[str]:
        return [str(self.family.settings()), self.activation, *super().signature()]

    def _like(self: N, n_models: int) -> N:
        other = super()._like(n_models)
        other._forget()
        return other

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._forget()
        super()._load_from_state_dict(*args, **kwargs)
