"""What all mixtures of Gaussians share, however their covariances are kept."""

import abc
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn
from torch.distributions import (
    Categorical,
    Distribution,
    MixtureSameFamily,
    MultivariateNormal,
)

from rnade import chunks
from rnade.batch import Batch
from rnade.checks import positive_int
from rnade.families import Conditional, GaussianMixture
from rnade.nn.chain import AbstractChain
from rnade.nn.distribution import Values, checked_values

# Columns of a triangular matrix that are multiplied together.
BLOCK = 16

# Log joint density of rows, (M, B, D), and components: (M, B, K).
LogJoint = Callable[[Tensor], Tensor]


class AbstractGaussianMixture(AbstractChain):
    r"""Mixture of K Gaussians, :math:`\sum_k \alpha_k N(x; \mu_k, \Sigma_k)`.

    Subclasses say how covariances are kept: `covariance_factor` gives their Cholesky factors, and
    `log_joint`, where there is a faster way than these, the way to the densities.

    Parameters
    ----------
    n_dimensions : int
        D.
    n_components : int
        K.
    n_models : int
        M.
    """

    log_alpha: Tensor
    mu: Tensor

    def __init__(self, n_dimensions: int, n_components: int, n_models: int = 1) -> None:
        super().__init__(n_dimensions, n_models)
        self.n_components = positive_int(n_components, "n_components")
        M, K, D = self.n_models, self.n_components, self.n_dimensions
        self.log_alpha = nn.Parameter(-torch.full((M, K), float(K)).log())
        self.mu = nn.Parameter(torch.zeros(M, K, D))

    @abc.abstractmethod
    def covariance_factor(self) -> Float[Tensor, "M K D D"]:
        """Lower triangular L with covariance L L'."""

    def log_joint(self) -> LogJoint:
        """Prepare the function that gives log alpha_k + log N(x; mu_k, Sigma_k).

        What depends on the parameters alone is computed here, once for many chunks of rows.
        """
        return log_joint_of_factors(self.log_alpha, self.mu, self.covariance_factor())

    @torch.no_grad()
    def set_components(
        self,
        alpha: Float[Tensor, "M K"],
        mu: Float[Tensor, "M K D"],
        covariance: Float[Tensor, "M K D D"],
    ) -> None:
        """Take these components, or the nearest that this kind of mixture can be."""
        self.log_alpha.copy_(alpha.log())
        self.mu.copy_(mu)
        self._set_covariance(covariance)

    @abc.abstractmethod
    def _set_covariance(self, covariance: Float[Tensor, "M K D D"]) -> None:
        """Take these covariances, or the nearest that this kind of mixture can have."""

    def covariances(self) -> Float[Tensor, "M K D D"]:
        """Covariance of each component."""
        L = self.covariance_factor()
        return L @ L.mT

    @property
    def order(self) -> Int[Tensor, "M D"]:  # type: ignore[override]
        """Order of the conditionals: the columns' own."""
        return torch.arange(self.n_dimensions, device=self.device).expand(self.n_models, -1)

    def _log_conditionals(self, batch: Batch) -> Tensor:
        self._check_order(batch)
        if batch.seen is None:
            return self._terms(batch.x, self.mu, self.covariance_factor())
        if not bool((batch.seen == batch.seen[:1]).all()):
            raise ValueError("Expected the same cells to be seen by all mixtures of a bank.")
        C, terms = self.covariances(), batch.x.new_zeros(batch.x.shape)
        for rows, columns in patterns(batch.seen[0]):
            at = (slice(None), rows[:, None], columns)
            terms[at] = self._terms(batch.x[at], self.mu[..., columns], factor_of(C, columns))
        return terms

    def _terms(self, x: Tensor, mu: Tensor, L: Tensor) -> Float[Tensor, "M B D"]:
        """Terms of rows by the means and the factors of their columns."""
        # With y = L_k^-1 (x - mu_k) the first d entries of y give the density of the first d
        # dimensions, so that all conditionals come from one triangular solution.
        log_scale = L.diagonal(dim1=-2, dim2=-1).log()  # (M, K, D)

        def terms(x: Tensor) -> Tensor:
            centred = (x[:, None] - mu[:, :, None]).mT  # (M, K, D, B)
            y = torch.linalg.solve_triangular(L, centred, upper=False)
            log_terms = log_normal_terms(y, log_scale[..., None])
            before = self.log_alpha[:, :, None, None] + torch.cat(
                [torch.zeros_like(y[..., :1, :]), log_terms.cumsum(-2)], dim=-2
            )  # (M, K, D + 1, B)
            return before.logsumexp(1).diff(dim=1).mT

        return self._in_chunks(terms, x)

    def _conditional(self, position: int, x_before: Tensor, model: int = 0) -> Conditional:
        return self._given(self.covariance_factor()[model], model, position, x_before)

    def _conditionals(self, x: Float[Tensor, "B D"]) -> Iterator[tuple[list[int], Conditional]]:
        (L,), (mu,) = self.covariance_factor(), self.mu
        y = torch.linalg.solve_triangular(L, (x - mu[:, None]).mT, upper=False)  # (K, D, B)
        log_scale = L.diagonal(dim1=-2, dim2=-1).log()[..., None]  # (K, D, 1)
        log_terms = log_normal_terms(y, log_scale)
        log_weight = self.log_alpha[0][:, None].expand_as(y[:, 0])
        for d in range(self.n_dimensions):
            mean = mu[:, d, None] + (L[:, d, None, :d] @ y[:, :d])[:, 0]
            z = torch.cat([log_weight, mean, log_scale[:, d].expand_as(mean)])  # (3 K, B)
            yield [d], Conditional(GaussianMixture(self.n_components), z.T[:, None])
            log_weight = log_weight + log_terms[:, d]

    def _given(self, L: Tensor, model: int, d: int, x_before: Tensor) -> Conditional:
        """The one-dimensional mixture of dimension d, from the model's factors L (K, D, D)."""
        mu, log_alpha = self.mu[model], self.log_alpha[model]
        centred = (x_before - mu[:, None, :d]).mT  # (K, d, B)
        y = torch.linalg.solve_triangular(L[:, :d, :d], centred, upper=False)
        log_scale = L.diagonal(dim1=-2, dim2=-1).log()  # (K, D)
        log_weight = log_alpha[:, None] + log_normal_terms(y, log_scale[:, :d, None]).sum(1)
        mean = mu[:, d, None] + (L[:, d, None, :d] @ y)[:, 0]
        z = torch.cat([log_weight, mean, log_scale[:, d, None].expand_as(mean)])  # (3 K, B)
        return Conditional(GaussianMixture(self.n_components), z.T)

    def _log_prob(self, batch: Batch) -> Tensor:
        if batch.seen is not None:
            return super()._log_prob(batch)
        self._check_order(batch)
        log_joint = self.log_joint()
        return self._in_chunks(lambda piece: log_joint(piece).logsumexp(-1), batch.x)

    def _check_order(self, batch: Batch) -> None:
        if batch.order is not None:
            raise ValueError(
                f"order is not an option for {type(self).__name__}: it scores rows in the order of"
                " the columns."
            )

    def distribution(self, given: Values | None = None) -> Distribution:
        """The mixture as torch has it; given any dimensions, that of the others.

        Of each component the conditional is a Gaussian, and components are weighted by how likely
        they make what is given.
        """
        log_alpha, mu, C = self.log_alpha, self.mu, self.covariances()
        if self.n_models == 1:
            log_alpha, mu, C = log_alpha[0], mu[0], C[0]
        elif given:
            raise ValueError(f"given is for one model; this is a bank of {self.n_models}.")
        if given:
            values = checked_values(given, self.n_dimensions, self.dtype, self.device)
            g, r = list(values), [d for d in range(self.n_dimensions) if d not in values]
            x = torch.stack(list(values.values()), -1)[..., None, :]  # (..., 1, k)
            known: Any = MultivariateNormal(mu[:, g], C[:, g][..., g])
            log_alpha = log_alpha + known.log_prob(x)
            slope = torch.linalg.solve(C[:, g][..., g], C[:, g][..., r]).mT  # (K, r, k)
            mu = mu[:, r] + (slope @ (x - mu[:, g])[..., None])[..., 0]
            C = C[:, r][..., r] - slope @ C[:, g][..., r]
        return MixtureSameFamily(Categorical(logits=log_alpha), MultivariateNormal(mu, C))

    def chunk_rows(self) -> int:
        """How many rows are best computed together."""
        return max(64, chunks.MIXTURE_ELEMENTS[self.device.type] // self._numbers_per_row())

    def _numbers_per_row(self) -> int:
        """Numbers of the largest array that a density makes of a row."""
        return self.n_models * max(self.n_components, BLOCK) * min(self.n_dimensions, BLOCK)

    def _in_chunks(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        pieces = [function(piece) for piece in torch.split(x, self.chunk_rows(), dim=1)]
        return torch.cat(pieces, dim=1) if len(pieces) != 1 else pieces[0]

    def _sample(
        self, n: int, generator: Generator, low: Tensor | None, high: Tensor | None
    ) -> Tensor:
        L = self.covariance_factor()
        models = range(self.n_models)
        if low is None and high is None:
            return torch.stack([self._draws(n, generator, L[m], m) for m in models])
        sizes = [min(self.chunk_rows(), n - start) for start in range(0, n, self.chunk_rows())]
        pieces = [
            [
                self._draws_along(order, partial(self._given, L[m], m), size, generator, low, high)
                for size in sizes
            ]
            for m, order in enumerate(self.order)
        ]
        return torch.stack([torch.cat(own) for own in pieces])

    def _draws(self, n: int, generator: Generator, L: Tensor, model: int) -> Tensor:
        alpha = self.log_alpha[model].exp()
        k = torch.multinomial(alpha, n, replacement=True, generator=generator)
        x = torch.empty(n, self.n_dimensions, device=self.device, dtype=self.dtype)
        x.normal_(generator=generator)
        # One product a component; the rows' own factors would take n D^2 numbers.
        for component in torch.unique(k).tolist():
            rows = k == component
            x[rows] = self.mu[model, component] + x[rows] @ L[component].mT
        return x


def log_normal_terms(y: Tensor, log_scale: Tensor) -> Tensor:
    """Log densities of independent normal values: y in units of the scale."""
    return -y.square() / 2 - log_scale - math.log(2 * math.pi) / 2


def patterns(seen: Bool[Tensor, "B D"]) -> Iterator[tuple[Tensor, Tensor]]:
    """Groups of rows with the same cells observed: places of the rows, and of the columns.

    >>> seen = torch.tensor([[True, False], [True, True], [True, False]])
    >>> [(rows.tolist(), columns.tolist()) for rows, columns in patterns(seen)]
    [([0, 2], [0]), ([1], [0, 1])]
    """
    distinct, which = torch.unique(seen, dim=0, return_inverse=True)
    rows = which.argsort(stable=True).split(which.bincount(minlength=len(distinct)).tolist())
    for own, cells in zip(rows, distinct, strict=True):
        yield own, cells.nonzero()[:, 0]


def factor_of(
    covariance: Float[Tensor, "M K D D"], columns: Int[Tensor, " o"]
) -> Float[Tensor, "M K o o"]:
    """Cholesky factors of the covariances of some columns."""
    L: Tensor = torch.linalg.cholesky(covariance[..., columns[:, None], columns])
    return L


def triangle_blocks(D: int) -> Iterator[tuple[int, int]]:
    """Rows [start, stop) of a lower triangular matrix, of which only columns < stop are not 0.

    >>> list(triangle_blocks(40))
    [(0, 16), (16, 32), (32, 40)]
    """
    for start in range(0, D, BLOCK):
        yield start, min(start + BLOCK, D)


def log_joint_of_factors(log_alpha: Tensor, mu: Tensor, L: Tensor) -> LogJoint:
    r"""Log joint densities from Cholesky factors.

    :math:`\log\alpha_k - |y|^2/2 - \log|L_k| - (D/2)\log 2\pi` with
    :math:`y = L_k^{-1}x - L_k^{-1}\mu_k`: one matrix product for all components. In blocks of
    rows of the triangle, which leave out most of the zeros: at D = 63, 0.63 of the products.
    """
    M, K, D = mu.shape
    inverse = torch.linalg.solve_triangular(
        L, torch.eye(D, dtype=L.dtype, device=L.device).expand_as(L), upper=False
    )
    shift = -inverse @ mu[..., None]  # (M, K, D, 1)
    log_determinant = L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    constant = log_alpha - log_determinant - D * math.log(2 * math.pi) / 2
    # Of the rows (1, x): the shift comes with the product.
    affine = torch.cat([shift, inverse], dim=-1)
    blocks = [
        (stop, affine[:, :, start:stop, : stop + 1].reshape(M, -1, stop + 1).mT.contiguous())
        for start, stop in triangle_blocks(D)
    ]  # each (M, stop + 1, K * block)

    def log_joint(x: Tensor) -> Tensor:
        with_one = torch.cat([torch.ones_like(x[..., :1]), x], dim=-1)
        squares = x.new_zeros(M, x.shape[1], K)
        for stop, factor in blocks:
            y = (with_one[..., : stop + 1] @ factor).view(M, x.shape[1], K, -1)
            # A norm reads y once; its square and sum would write it again.
            squares = squares + torch.linalg.vector_norm(y, dim=-1).square()
        return constant[:, None] - squares / 2

    return log_joint
