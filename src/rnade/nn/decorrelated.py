"""Densities of columns by models of what is not linear in the columns before them."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rnade.backends.spec import Activation
from rnade.batch import Batch
from rnade.columns.linear import LinearPart
from rnade.families import AbstractFamily, Conditional
from rnade.families.base import Rows, RowWeights
from rnade.nn.autoregressive import AbstractAutoregressive
from rnade.nn.bank import AbstractTrainable
from rnade.nn.chain import AbstractChain


class DecorrelatedModule(AbstractChain, AbstractTrainable):
    r"""Density of x by a model of :math:`y = A (x - m)`, each column's linear part taken out.

    .. math:: \log p(x) = \log p_\text{inner}(y) + \sum_d \log A_{dd}

    A is triangular along the model's order (`rnade.columns.linear.LinearPart`), so that each
    conditional of x is one of y, moved and scaled: exact, as if it had linear connections from the
    columns before it.

    A cell that is not observed is taken to be what the columns before it predict, :math:`y_d = 0`.

    Parameters
    ----------
    inner : AbstractAutoregressive
        The model of y, or a bank. Its order is that of the columns.
    """

    A: Tensor
    m: Tensor

    def __init__(self, inner: AbstractAutoregressive) -> None:
        super().__init__(inner.n_dimensions, inner.n_models)
        M, D = self.n_models, self.n_dimensions
        self.inner = inner
        self.register_buffer("A", torch.eye(D).repeat(M, 1, 1))
        self.register_buffer("m", torch.zeros(M, D))

    # What the gradient loop asks of a model, it asks of the inner one.

    @property
    def family(self) -> AbstractFamily:  # type: ignore[override]
        """The one-dimensional conditionals, of y and of x."""
        return self.inner.family

    @property
    def activation(self) -> Activation:  # type: ignore[override]
        """Hidden units of the inner model."""
        return self.inner.activation

    @property
    def log_floor(self) -> Tensor:  # type: ignore[override]
        """Log of the smallest scale of each conditional, in the units of y."""
        return self.inner.log_floor

    @property
    def b(self) -> Tensor:  # type: ignore[override]
        """Biases of the inner model's outputs."""
        return self.inner.b

    @property
    def order(self) -> Tensor:  # type: ignore[override]
        """Which column comes first, second and so on."""
        return self.inner.order

    def decayed(self) -> list[str]:
        return [f"inner.{name}" for name in self.inner.decayed()]

    def n_torch_products(self, n_rows: int) -> int:
        return self.inner.n_torch_products(n_rows)

    @torch.no_grad()
    def start_from(
        self, rows: Rows, *, weights: RowWeights = None, spread: str = "quantile"
    ) -> None:
        """Measure the linear part on some rows, and start as the inner model does from the rest.

        Parameters
        ----------
        rows : Tensor of shape (N, D)
        weights, spread
            As of the inner model.
        """
        starts = []
        for i, order in enumerate(self.order):
            linear = LinearPart.fit(rows, order, weights, shrink=True)
            self.A[i], self.m[i] = linear.A.to(self.A), linear.mean.to(self.m)
            y = linear.transform(rows).to(self.device, self.dtype)
            starts.append(self.family.starting_biases(y, weights=weights, spread=spread))
        self.b.copy_(torch.stack(starts).view_as(self.b))

    def set_floor(self, floor: Float[Tensor, " D"]) -> None:
        """Set the smallest scale of each column's components, in the units of x."""
        scale = self.A.diagonal(dim1=1, dim2=2)
        self.log_floor.copy_((floor.to(self.A) * scale).log().view_as(self.log_floor))
        self._forget()

    def _forget(self) -> None:
        super()._forget()
        self.inner._forget()

    # ---------------------------------------------------------------- densities

    def weighted_log_likelihood(
        self, batch: Batch, *, scale_mean_gradient: bool = False
    ) -> Float[Tensor, " M"]:
        batch = batch._replace(x=self._checked(batch.x))
        own, terms = self._inner_batch(batch), self._log_scales(batch)
        total = terms.sum(-1)
        shift = (total if batch.weights is None else total * batch.weights).sum(-1)
        return shift + self.inner.weighted_log_likelihood(
            own, scale_mean_gradient=scale_mean_gradient
        )

    def _log_conditionals(self, batch: Batch) -> Float[Tensor, "M B D"]:
        return self.inner._log_conditionals(self._inner_batch(batch)) + self._log_scales(batch)

    def _log_prob(self, batch: Batch) -> Float[Tensor, "M B"]:
        own, terms = self._inner_batch(batch), self._log_scales(batch)
        return self.inner._log_prob(own) + terms.sum(-1)

    def _log_scales(self, batch: Batch) -> Float[Tensor, "M B D"]:
        """What each observed cell adds to the log density for its change of units."""
        terms = self.A.diagonal(dim1=1, dim2=2).log()[:, None]
        return terms.expand(batch.x.shape) if batch.seen is None else terms * batch.seen

    def _inner_batch(self, batch: Batch) -> Batch:
        if batch.order is not None:
            raise ValueError(
                "order is not an option here: the linear part was taken out along the model's own."
            )
        x, seen = batch.x, batch.seen
        # In float64: of columns that nearly determine each other only small differences are left.
        centred, A = x.double() - self.m.double()[:, None], self.A.double()
        if seen is None:
            return batch._replace(x=(centred @ A.mT).to(x.dtype))
        L = torch.linalg.inv(A)  # x - m = L y
        y = torch.zeros_like(centred)
        models = torch.arange(self.n_models, device=x.device)
        for at in self.order.T:  # of each model the column at one place of its order
            predicted = (y * L[models, at][:, None]).sum(-1)
            own = centred[models, :, at], seen.expand(x.shape)[models, :, at]
            error = (own[0] - predicted) * A[models, at, at][:, None]
            y[models, :, at] = torch.where(own[1], error, 0.0)
        return batch._replace(x=y.to(x.dtype))

    # ---------------------------------------------------------------- conditionals and draws

    def _conditional(self, position: int, x_before: Tensor, model: int = 0) -> Conditional:
        order, A, m = self.order[model], self.A[model], self.m[model]
        before, d = order[:position], order[position]
        centred = x_before - m[before]
        y = centred @ A[before[:, None], before].T
        own = self.inner._conditional(position, y, model)
        predicted = m[d] - centred @ A[d, before] / A[d, d]
        return own.moved(predicted, -A[d, d].log())

    def _conditionals(self, x: Float[Tensor, "B D"]) -> Iterator[tuple[list[int], Conditional]]:
        (y,) = self._inner_batch(Batch(x[None])).x
        A, scale = self.A[0], self.A[0].diagonal()
        # Of each column what the linear prediction is: x_d less its error.
        predicted = x - y / scale
        for columns, conditional in self.inner._conditionals(y):
            at = torch.as_tensor(columns, device=A.device)
            yield columns, conditional.moved(predicted[:, at], -scale[at].log())

    def _sample(
        self, n: int, generator: Generator, low: Tensor | None, high: Tensor | None
    ) -> Float[Tensor, "M n D"]:
        if low is None and high is None:
            y = self.inner._sample(n, generator, None, None)
            x: Tensor = torch.linalg.solve(self.A.double(), y.double().mT).mT
            return (x + self.m.double()[:, None]).to(y.dtype)
        drawn = [
            self._draws_along(order, partial(self._conditional, model=i), n, generator, low, high)
            for i, order in enumerate(self.order)
        ]
        return torch.stack(drawn)

    def backend_choice(self) -> Any:
        """Which backend computes the inner model's densities, and why."""
        return self.inner.backend_choice()

    def signature(self) -> list[str]:
        return [self.inner.backend, *super().signature()]
