"""The two steps of EM for mixtures of Gaussians and of factor analysers.

Sums over rows are gathered apart from the update they lead to: sums of chunks and of minibatches
are added up, so that data of any size streams through. They are kept in float64.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rnade.batch import Batch
from rnade.exceptions import SingularDataError
from rnade.nn.mfa import MixtureOfFactorAnalyzersModule
from rnade.nn.mixture import (
    AbstractGaussianMixture,
    LogJoint,
    factor_of,
    log_joint_of_factors,
    triangle_blocks,
)
from rnade.nn.mog import MixtureOfGaussiansModule
from rnade.training.em.matrices import not_below_floor, spd_inverse

# A component that explains less than this many rows is dead.
DEAD_ROWS = 1e-3


# Sums over rows, weighted by responsibilities; see `AbstractSteps.gather`.
Sums = dict[str, Tensor]
# Gives further sums of rows (M, B, D), weighted by r (M, B, K); also given the sums "n" of r.
MoreSums = Callable[[Tensor, Tensor, Tensor], Sums]
# Places of rows that have the same cells observed, and of their columns.
Patterns = Sequence[tuple[Tensor, Tensor]]


def row_counts(rows: Batch) -> Float[Tensor, " N"]:
    """How many rows each of N rows stands for, in float64: its weight, 1 without any.

    Weights that are below 1 on average are scaled up to that: they cannot count rows, and those
    that sum to 1, say, must not make a thousand rows weigh no more than one.
    """
    if rows.weights is None:
        return rows.x.new_ones(len(rows.x), dtype=torch.float64)
    weights = rows.weights.double()
    return weights / weights[weights > 0].mean().clamp_max(1.0)


class GaussianComponents(NamedTuple):
    """Parameters of K Gaussians in each of M models, in the form that minibatches average."""

    alpha: Float[Tensor, "M K"]
    mu: Float[Tensor, "M K D"]
    covariance: Float[Tensor, "M K D D"]


class FactorComponents(NamedTuple):
    """Parameters of K factor analysers in each of M models, in the form that is averaged."""

    alpha: Float[Tensor, "M K"]
    mu: Float[Tensor, "M K D"]
    Lambda: Float[Tensor, "M K D q"]
    psi: Float[Tensor, "M K D"]

    def of(self, at: Tensor) -> "FactorComponents":
        """Some components of every model."""
        return FactorComponents(*[t[:, at] for t in self])

    @torch.no_grad()
    def give_to(self, module: MixtureOfFactorAnalyzersModule) -> None:
        """Make them the module's own."""
        module.log_alpha.copy_(self.alpha.log())
        module.mu.copy_(self.mu)
        module.Lambda.copy_(self.Lambda)
        module.log_psi.copy_(self.psi.log())


T = TypeVar("T", GaussianComponents, FactorComponents)


def where(chosen: Bool[Tensor, "M K"], components: T, other: T) -> T:
    """The `chosen` components, and others for the rest."""
    pairs = zip(components, other, strict=True)
    return type(components)(
        *[torch.where(chosen.view(*chosen.shape, *[1] * (a.ndim - 2)), a, b) for a, b in pairs]
    )


class AbstractSteps(abc.ABC, Generic[T]):
    """Expectation and maximisation for one kind of mixture.

    Parameters
    ----------
    module : AbstractGaussianMixture
    floor : Tensor of shape (D,)
        Smallest variance of a component along each column; 0 for none.
    """

    def __init__(self, module: AbstractGaussianMixture, floor: Float[Tensor, " D"]) -> None:
        self.module = module
        self.floor = floor.to(module.device, torch.float64)
        self._has_floor = bool((self.floor > 0).all())
        shape = module.n_models, module.n_components
        self._failed = torch.zeros(shape, dtype=torch.bool, device=module.device)

    @torch.no_grad()
    def gather(
        self,
        rows: Float[Tensor, "N D"],
        weights: Float[Tensor, " N"],
        patterns: Patterns | None = None,
    ) -> Sums:
        """Sums over rows at the module's parameters: the expectation step.

        Rows and weights may be on another device: they pass through the module's in chunks.

        Parameters
        ----------
        rows : Tensor of shape (N, D)
        weights : Tensor of shape (N,)
        patterns : sequence of pairs of Tensor, optional
            From `rnade.nn.mixture.patterns`, of rows with missing cells: sums are then expected
            ones, given the observed cells. None for complete rows.

        Returns
        -------
        dict of Tensor, in float64
            "weight" of shape (M,), of all rows; "log_likelihood", (M,); weighted by
            responsibilities "n", (M, K), and "first", (M, K, D), of x; and those of `_prepared`.
        """
        if patterns is None:
            return self._gathered(rows, weights, self.module.log_joint(), self._prepared())
        log_alpha, mu, C = self.module.log_alpha, self.module.mu, self.module.covariances()
        total: Sums = {}
        for at, own in patterns:
            columns = own.to(mu.device)
            L = factor_of(C, columns)
            log_joint_of = log_joint_of_factors(log_alpha, mu[..., columns], L)
            sums = self._gathered(
                rows[at[:, None], own], weights[at], log_joint_of, second_moments
            )
            _add(total, _completed(sums, columns, mu.double(), C.double(), L.double()))
        return self._of_moments(total)

    @abc.abstractmethod
    def _of_moments(self, sums: Sums) -> Sums:
        """All sums, from those of `second_moments` of complete rows."""

    def _gathered(
        self, rows: Tensor, weights: Tensor, log_joint_of: LogJoint, more_sums: MoreSums
    ) -> Sums:
        module, M = self.module, self.module.n_models
        size = module.chunk_rows()
        total: Sums = {}
        for x, w in zip(torch.split(rows, size), torch.split(weights, size), strict=True):
            x, w = x.to(module.device, module.dtype), w.to(module.device, module.dtype)
            x = x.expand(M, *x.shape)
            log_joint = log_joint_of(x)
            log_p = log_joint.logsumexp(-1, keepdim=True)
            r = (log_joint - log_p).exp() * w[:, None]
            w, n = w.double(), r.sum(1, dtype=torch.float64)
            sums = {
                "weight": w.sum().repeat(M),
                "log_likelihood": (log_p[..., 0].double() * w).sum(1),
                "n": n,
                "first": (r.mT @ x).double(),
                **more_sums(x, r, n),
            }
            _add(total, sums)
        return total

    @abc.abstractmethod
    def _prepared(self) -> MoreSums:
        """The function that gives further sums."""

    @abc.abstractmethod
    def current(self) -> T:
        """Copies of the module's parameters, in float64."""

    @abc.abstractmethod
    def maximised(self, sums: Sums) -> T:
        """Parameters from sums; components that no row belongs to stay as they are."""

    @abc.abstractmethod
    def take(self, target: T) -> None:
        """Give the module these parameters."""

    def check(self) -> None:
        """Raise a SingularDataError if a component has become singular since the start.

        Apart from `take`, which need then not be waited for: a GPU that is asked something after
        every iteration stands still meanwhile.
        """
        if bool(self._failed.any()):
            raise SingularDataError(
                f"The covariance of component {int(self._failed.nonzero()[0, 1])} became singular:"
                " its rows lie in a plane, or are too few. Use fewer components, or a sigma_floor"
                " above 0."
            )

    def _of_living(self, sums: Sums, moved: T) -> T:
        """Leave components that no row belongs to as they are, but for their fractions."""
        return where(sums["n"] > DEAD_ROWS, moved, self.current()._replace(alpha=moved.alpha))

    @torch.no_grad()
    def move(self, sums: Sums, step_size: float = 1.0) -> None:
        """Step from the module's parameters towards those of the maximisation step."""
        target = self.maximised(sums)
        if step_size < 1:
            pairs = zip(self.current(), target, strict=True)
            target = type(target)(*[torch.lerp(old, new, step_size) for old, new in pairs])
        self.take(target)

    @torch.no_grad()
    def revive(self, model: int, component: int, row: Float[Tensor, " D"], alpha: float) -> None:
        """Put a dead component on a row, with the shape of the model's heaviest component."""
        fractions, means, *shapes = target = self.current()
        heaviest = int(fractions[model].argmax())
        fractions[model] *= 1 - alpha
        fractions[model, component] = alpha
        means[model, component] = row
        for shape in shapes:
            shape[model, component] = shape[model, heaviest]
        self.take(target)


class GaussianSteps(AbstractSteps[GaussianComponents]):
    """EM for a mixture of Gaussians with full covariances.

    Parameters
    ----------
    module : MixtureOfGaussiansModule
    floor : Tensor of shape (D,)
        Smallest variance of a component along each column; 0 for none.
    shrinkage : float
        Rows' worth of the average covariance within components that each covariance is made of
        besides its own rows: 0 for maximum likelihood, infinity for one covariance shared by all.
        With more than D of them a component of few rows keeps a volume.
    """

    module: MixtureOfGaussiansModule

    def __init__(
        self,
        module: MixtureOfGaussiansModule,
        floor: Float[Tensor, " D"],
        shrinkage: float = 0.0,
    ) -> None:
        super().__init__(module, floor)
        self.shrinkage = shrinkage

    def _prepared(self) -> MoreSums:
        return second_moments

    def _of_moments(self, sums: Sums) -> Sums:
        return sums

    def current(self) -> GaussianComponents:
        m, L = self.module, self.module.L.detach().double()
        return GaussianComponents(_copy(m.log_alpha).exp(), _copy(m.mu), L @ L.mT)

    def maximised(self, sums: Sums) -> GaussianComponents:
        """Weighted means and covariances, the latter not below the floor in any direction."""
        n, weight = sums["n"].clamp_min(DEAD_ROWS)[..., None], sums["weight"][:, None]
        mu = sums["first"] / n
        covariance = _from_lower(sums["second"]) / n[..., None] - mu[..., None] * mu[..., None, :]
        if self.shrinkage:
            within = (sums["n"][..., None, None] * covariance).sum(1, keepdim=True)
            within = within / weight[..., None, None]
            own = n[..., None] / (n[..., None] + self.shrinkage)
            covariance = torch.lerp(within.expand_as(covariance), covariance, own)
        if self._has_floor:
            covariance = not_below_floor(covariance, self.floor)
        return self._of_living(sums, GaussianComponents(sums["n"] / weight, mu, covariance))

    def take(self, target: GaussianComponents) -> None:
        """Give the module these parameters; what fails is noted on the device, for `check`."""
        self.module.log_alpha.copy_(target.alpha.log())
        self.module.mu.copy_(target.mu)
        L, failed = torch.linalg.cholesky_ex(target.covariance)
        self._failed |= failed > 0
        self.module.L.copy_(L)


class FactorSteps(AbstractSteps[FactorComponents]):
    """EM for a mixture of factor analysers (Ghahramani and Hinton, 1996, section 3)."""

    module: MixtureOfFactorAnalyzersModule

    def _of_moments(self, sums: Sums) -> Sums:
        """Sums of `_prepared`: factors are linear in x, so that second moments give them."""
        posterior, mu = self.module.posterior(), self.module.mu.double()
        W, n = posterior.weights.double(), sums["n"][..., None]
        first, second = sums["first"], _from_lower(sums["second"])
        from_mean = first - n * mu
        cross = second - first[..., None] * mu[..., None, :]  # of x (x - mu)'
        squares = cross - mu[..., None] * from_mean[..., None, :]
        spread = n[..., None] * posterior.covariance.double()
        return sums | {
            "squares": second.diagonal(dim1=-2, dim2=-1),
            "factors": (W @ from_mean[..., None])[..., 0],
            "cross": cross @ W.mT,
            "factor_squares": W @ squares @ W.mT + spread,
        }

    def _prepared(self) -> MoreSums:
        """The function that gives sums of x * x and of the factors z.

        "squares", (M, K, D); "factors", (M, K, q); "cross", of x z', (M, K, D, q);
        "factor_squares", of z z', (M, K, q, q).
        """
        posterior = self.module.posterior()
        M, K, q, D = posterior.weights.shape
        factor_weights = posterior.weights.reshape(M, K * q, D).mT
        shift = (posterior.weights @ self.module.mu[..., None]).view(M, 1, K * q)

        def sums_of(x: Tensor, r: Tensor, n: Tensor) -> Sums:
            z = torch.baddbmm(-shift, x, factor_weights).view(M, -1, K, q).transpose(1, 2)
            weighted = z * r.mT[..., None]  # (M, K, B, q)
            spread = n[..., None, None] * posterior.covariance.double()
            return {
                "squares": (r.mT @ x.square()).double(),
                "factors": weighted.sum(2, dtype=torch.float64),
                "cross": (weighted.mT @ x[:, None]).mT.double(),
                "factor_squares": (weighted.mT @ z).double() + spread,
            }

        return sums_of

    def current(self) -> FactorComponents:
        m = self.module
        return FactorComponents(
            _copy(m.log_alpha).exp(), _copy(m.mu), _copy(m.Lambda), _copy(m.log_psi).exp()
        )

    def maximised(self, sums: Sums) -> FactorComponents:
        """Regress x on the factors and a constant; what is left is noise, not below the floor."""
        n = sums["n"].clamp_min(DEAD_ROWS)[..., None]
        x, z = sums["first"] / n, sums["factors"] / n
        variance = sums["squares"] / n - x * x
        x_z = sums["cross"] / n[..., None] - x[..., None] * z[..., None, :]
        z_z = sums["factor_squares"] / n[..., None] - z[..., None] * z[..., None, :]
        # A dead component's sums are all 0; it is put back below.
        alive = sums["n"] > DEAD_ROWS
        eye = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
        z_z = torch.where(alive[..., None, None], z_z, eye)
        mu, Lambda, noise = regressed(x, variance, z, x_z, z_z)
        alpha = sums["n"] / sums["weight"][:, None]
        noise = torch.maximum(noise, self.floor)
        return self._of_living(sums, FactorComponents(alpha, mu, Lambda, noise))

    def take(self, target: FactorComponents) -> None:
        """Give the module these parameters, after a look at them."""
        if bool((target.psi <= 0).any()):
            raise SingularDataError(
                "The noise of a column became 0 in a component: its rows lie in a plane, or are"
                " too few. Use fewer components or factors, or a sigma_floor above 0."
            )
        target.give_to(self.module)


def regressed(
    x: Float[Tensor, "*K D"],
    variance: Float[Tensor, "*K D"],
    z: Float[Tensor, "*K q"],
    x_z: Float[Tensor, "*K D q"],
    z_z: Float[Tensor, "*K q q"],
) -> tuple[Float[Tensor, "*K D"], Float[Tensor, "*K D q"], Float[Tensor, "*K D"]]:
    """Regress rows on their factors, from the means of both, variances and covariances.

    Gives the constant, the loadings and the variance of what is left.
    """
    loadings = x_z @ spd_inverse(z_z)
    constant = x - (loadings @ z[..., None])[..., 0]
    return constant, loadings, variance - (loadings * x_z).sum(-1)


def second_moments(x: Tensor, r: Tensor, n: Tensor) -> Sums:
    """Sums "second", lower triangles of x x', (M, K, D, D)."""
    (M, B, D), K = x.shape, r.shape[-1]
    second = torch.zeros(M, K, D, D, dtype=torch.float64, device=x.device)
    # Products of pairs of columns, times the responsibilities of all components at once:
    # half the work of a product for each component, and none of its weighted copies.
    for start, stop in triangle_blocks(D):
        pairs = (x[:, :, start:stop, None] * x[:, :, None, :stop]).reshape(M, B, -1)
        second[:, :, start:stop, :stop] = (r.mT @ pairs).view(M, K, -1, stop)
    return {"second": second}


def _completed(sums: Sums, columns: Tensor, mu: Tensor, C: Tensor, L: Tensor) -> Sums:
    r"""Expected sums of complete rows, from those of the columns that are observed.

    Given its observed cells o and a component, a row is normal with mean
    :math:`A x_o + b` and covariance S, where :math:`A = \Sigma_{\cdot o} \Sigma_{oo}^{-1}`: the
    identity, and S is 0, in the observed columns themselves.
    """
    A = torch.cholesky_solve(C[..., columns, :], L).mT  # (M, K, D, o)
    A[..., columns, :] = torch.eye(len(columns), dtype=A.dtype, device=A.device)
    S = C - A @ C[..., columns, :]
    S[..., columns, :], S[..., columns] = 0.0, 0.0
    b = mu - (A @ mu[..., columns, None])[..., 0]
    n, x = sums["n"][..., None], (A @ sums["first"][..., None])[..., 0]
    cross = x[..., None] * b[..., None, :]
    second = A @ _from_lower(sums["second"]) @ A.mT + cross + cross.mT
    second += n[..., None] * (b[..., None] * b[..., None, :] + S)
    return sums | {"first": x + n * b, "second": second}


def _add(total: Sums, sums: Sums) -> None:
    for name, t in sums.items():
        total[name] = total[name].add_(t) if name in total else t


def _from_lower(triangle: Tensor) -> Tensor:
    """Symmetric matrices from their lower triangles."""
    return triangle.tril() + triangle.tril(-1).mT


def _copy(t: Tensor) -> Tensor:
    return t.detach().to(torch.float64, copy=True)


def steps_for(
    module: AbstractGaussianMixture, floor: Float[Tensor, " D"], shrinkage: float = 0.0
) -> AbstractSteps[Any]:
    """The steps of EM for this kind of mixture."""
    if isinstance(module, MixtureOfGaussiansModule):
        return GaussianSteps(module, floor, shrinkage)
    if shrinkage:
        raise ValueError("Only mixtures of Gaussians with full covariances take shrinkage.")
    if isinstance(module, MixtureOfFactorAnalyzersModule):
        return FactorSteps(module, floor)
    raise TypeError(f"There is no EM for a {type(module).__name__}.")
