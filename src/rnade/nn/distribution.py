"""Densities as distributions of `torch.distributions`, for sbi, Pyro and other users of it."""

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Generator, Size, Tensor
from torch.distributions import Distribution, constraints

if TYPE_CHECKING:
    from rnade.nn.base import AbstractDensity
    from rnade.nn.chain import AbstractChain
    from rnade.nn.table import AbstractTableDensity

# Torch has no types here.
_independent: Any = constraints.independent
_broadcast: Any = torch.broadcast_tensors
_shapes: Any = torch.broadcast_shapes

# What is given, by dimension: a number, or a tensor of them for a batch of distributions.
Values = Mapping[int, Any]


class AbstractRowDistribution(Distribution):
    """Distribution of rows of values, given some other values or none.

    Draws go by torch's global random state, as those of all distributions of torch do:
    `torch.manual_seed` makes them repeatable.

    Parameters
    ----------
    n_dimensions : int
        D, of the density.
    batch_shape : sequence of int
    values : dict of int to Tensor
        What is given; each tensor broadcasts to the batch.
    validate_args : bool, optional
        As of all distributions of torch.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    has_rsample = False

    def __init__(
        self,
        n_dimensions: int,
        batch_shape: Any,
        values: Mapping[int, Tensor],
        validate_args: bool | None = None,
    ) -> None:
        self.n_dimensions, self.values = n_dimensions, dict(values)
        self.asked = [d for d in range(n_dimensions) if d not in values]
        super().__init__(Size(batch_shape), Size([len(self.asked)]), validate_args)

    @property
    def given(self) -> list[int]:
        """Dimensions whose values are given."""
        return list(self.values)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density in nats of rows of the dimensions that are not given.

        Parameters
        ----------
        value : Tensor
            Its shape broadcasts to that of a batch of rows.
        """
        if self._validate_args:
            self._validate_sample(value)
        rows = value.expand(_shapes(value.shape, self.batch_shape + self.event_shape))
        return self._log_prob(self._completed(rows))

    def sample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008  as torch has it
        """Draw rows of the dimensions that are not given, exactly."""
        shape = self._extended_shape(Size(sample_shape))
        blank = self._blank(shape)
        if blank.numel() == 0:
            return blank
        generator = Generator(self._generator_device()).manual_seed(_global_seed())
        with torch.no_grad():
            return self._draw(self._completed(blank), generator)[..., self.asked]

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        """The same distribution for a larger batch."""
        shape = _shapes(Size(batch_shape), self.batch_shape)
        other: Self = type(self).__new__(type(self)) if _instance is None else _instance
        other.__dict__.update(self.__dict__)
        other.values = {d: value.expand(shape) for d, value in self.values.items()}
        other._batch_shape = shape
        return other

    def _completed(self, rows: Tensor) -> Tensor:
        """Rows of all D dimensions, with what is given."""
        x = rows.new_empty(*rows.shape[:-1], self.n_dimensions)
        x[..., self.asked] = rows
        for d, value in self.values.items():
            x[..., d] = value.to(x)
        return x

    @abc.abstractmethod
    def _blank(self, shape: Size) -> Tensor:
        """A tensor of a shape, of the density's type and on its device, that will be drawn."""

    @abc.abstractmethod
    def _generator_device(self) -> torch.device:
        """Where the density wants its random numbers."""

    @abc.abstractmethod
    def _log_prob(self, x: Tensor) -> Tensor:
        """Log densities, (...), of complete rows, (..., D)."""

    @abc.abstractmethod
    def _draw(self, x: Tensor, generator: Generator) -> Tensor:
        """Rows of the shape of x, in which what is given stays."""


class ModuleDistribution(AbstractRowDistribution):
    """Distribution of the rows of a module; of a bank of M models a batch of M distributions.

    Parameters
    ----------
    module : AbstractDensity
    validate_args : bool, optional
    """

    def __init__(self, module: "AbstractDensity", validate_args: bool | None = None) -> None:
        self.module = module
        models = [] if module.n_models == 1 else [module.n_models]
        super().__init__(module.n_dimensions, models, {}, validate_args)

    @constraints.dependent_property
    def support(self) -> Any:
        """Real vectors, or vectors of 0 and 1."""
        family = getattr(self.module, "family", None)
        bits = family is not None and family.discrete
        return _independent(constraints.boolean if bits else constraints.real, 1)

    def _blank(self, shape: Size) -> Tensor:
        return torch.empty(shape, dtype=self.module.dtype, device=self.module.device)

    def _generator_device(self) -> torch.device:
        return self.module.device

    def _log_prob(self, x: Tensor) -> Tensor:
        M, D = self.module.n_models, self.n_dimensions
        by_model = x.reshape(-1, M, D).transpose(0, 1)  # (M, n, D): models are the last of a batch
        return self.module.log_prob(by_model).reshape(M, -1).T.reshape(x.shape[:-1])

    def _draw(self, x: Tensor, generator: Generator) -> Tensor:
        M, D = self.module.n_models, self.n_dimensions
        draws = self.module.sample(x.numel() // (M * D), generator)
        return draws.reshape(M, -1, D).transpose(0, 1).reshape(x.shape)


class ChainDistribution(ModuleDistribution):
    """Distribution of the dimensions of a module given those that come first in its order.

    Parameters
    ----------
    module : AbstractChain
        One model.
    values : mapping of int to float or Tensor
    validate_args : bool, optional
    """

    module: "AbstractChain"

    def __init__(
        self, module: "AbstractChain", values: Values, validate_args: bool | None = None
    ) -> None:
        if module.n_models != 1:
            raise ValueError(f"given is for one model; this is a bank of {module.n_models}.")
        own = checked_values(values, module.n_dimensions, module.dtype, module.device)
        first = module.order[0, : len(own)].tolist()
        if set(first) != set(own):
            raise ValueError(
                f"This model goes along one order of its dimensions, {module.order[0].tolist()}:"
                f" it is conditioned on the first of them alone, {sorted(first)}; got"
                f" {sorted(own)}. Models that predict any column from any others take any"
                " (RNADE.distribution, TableDensity.distribution)."
            )
        self.module = module
        batch = next(iter(own.values())).shape
        AbstractRowDistribution.__init__(self, module.n_dimensions, batch, own, validate_args)

    def _log_prob(self, x: Tensor) -> Tensor:
        terms = self.module.log_conditionals(x.reshape(-1, self.n_dimensions))
        return terms[:, self.asked].sum(-1).reshape(x.shape[:-1])

    def _draw(self, x: Tensor, generator: Generator) -> Tensor:
        rows, order = x.reshape(-1, self.n_dimensions), self.module.order[0]
        for position in range(len(self.values), self.n_dimensions):
            conditional = self.module._conditional(position, rows[:, order[:position]])
            rows[:, order[position]] = conditional.sample(generator)
        return rows.reshape(x.shape)


class TableDistribution(AbstractRowDistribution):
    """Distribution of the columns of a table of any kind, given any others.

    Values are numbers and codes of levels, in float64; NaN in `log_prob` is a cell that is not
    observed. There is no gradient.

    Parameters
    ----------
    table : AbstractTableDensity
    values : mapping of int to float or Tensor
    """

    def __init__(self, table: "AbstractTableDensity", values: Values | None = None) -> None:
        self.table = table
        own = checked_values(values or {}, table.n_dimensions, torch.float64, "cpu")
        batch = next(iter(own.values())).shape if own else ()
        # Cells may be missing, which the checks of torch do not know.
        super().__init__(table.n_dimensions, batch, own, validate_args=False)

    @constraints.dependent_property
    def support(self) -> Any:
        """Vectors of numbers."""
        return _independent(constraints.real, 1)

    def _blank(self, shape: Size) -> Tensor:
        return torch.full(shape, torch.nan, dtype=torch.float64)

    def _generator_device(self) -> torch.device:
        return torch.device("cpu")

    @torch.no_grad()
    def _log_prob(self, x: Tensor) -> Tensor:
        from rnade.nn.ensemble import log_average
        from rnade.nn.questions import log_densities
        from rnade.nn.table import TableDensity

        X = x.reshape(-1, self.n_dimensions).double().cpu().numpy()
        known = np.isin(np.arange(self.n_dimensions), self.given)
        if isinstance(self.table, TableDensity):
            found = log_average(log_densities(self.table, X, known))
        else:  # marginals of these are exact
            cells = (self.table.cells(Y) for Y in (X, np.where(known, X, np.nan)))
            all_of_it, first = (self.table.log_prob(own).double().cpu() for own in cells)
            found = all_of_it - first
        return found.reshape(x.shape[:-1]).to(x)

    def _draw(self, x: Tensor, generator: Generator) -> Tensor:
        from rnade.nn.questions import draw
        from rnade.nn.table import TableDensity

        X = x.reshape(-1, self.n_dimensions).numpy()
        if not self.values:
            drawn = self.table.sample(len(X), generator)
        elif isinstance(self.table, TableDensity):
            drawn = draw(self.table, X, generator, complete=False)
        else:
            drawn = self.table.impute(X, "draw", generator)
            for d, indicator in self.table.indicators.items():
                drawn[drawn[:, indicator] == 1, d] = np.nan
        return torch.as_tensor(drawn).reshape(x.shape)


def checked_values(
    values: Values, n_dimensions: int, dtype: torch.dtype, device: Any
) -> dict[int, Tensor]:
    """What is given, as tensors of one shape.

    Raises
    ------
    ValueError
        If there is no such dimension, nothing is left to ask for, or a value is not finite.
    """
    for d in values:
        if not isinstance(d, int) or not 0 <= d < n_dimensions:
            raise ValueError(f"Expected given by dimension, 0 to {n_dimensions - 1}; got {d!r}.")
    if len(values) == n_dimensions:
        raise ValueError("All dimensions are given: leave out those to ask for.")
    tensors = [torch.as_tensor(v, dtype=dtype, device=device) for v in values.values()]
    for d, tensor in zip(values, tensors, strict=True):
        if not torch.isfinite(tensor).all():
            raise ValueError(f"Expected finite values of dimension {d}; got {tensor.tolist()}.")
    shaped = _broadcast(*tensors) if tensors else ()
    return dict(zip(values, shaped, strict=True))


def _global_seed() -> int:
    """Draw a seed from torch's global random state, by which all of its distributions go."""
    return int(torch.randint(2**62, ()))
