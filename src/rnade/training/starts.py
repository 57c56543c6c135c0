"""Where EM starts: components from random rows or from clusters."""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rnade.checks import unknown_name
from rnade.training.em_steps import GaussianTarget, not_below_floor

STARTS = ["k-means++", "random"]
# Rows that clusters are made of, and rounds of k-means after the first centres.
N_CLUSTERED = 20_000
N_ROUNDS = 10
# Duplicated rows and collinear columns give clusters without volume: no start is narrower.
SMALLEST_VARIANCE = 1e-6


@torch.no_grad()
def starting_components(
    rows: Float[Tensor, "N D"],
    n_components: int,
    method: str,
    generator: Generator,
    *,
    n_models: int = 1,
    weights: Float[Tensor, " N"] | None = None,
    floor: Float[Tensor, " D"] | None = None,
) -> GaussianTarget:
    """Give each of M models K components to start from.

    Parameters
    ----------
    rows : Tensor of shape (N, D)
    n_components : int
        K.
    method : "k-means++" or "random"
        "random" puts components of the rows' own covariance on K random rows. "k-means++" spreads
        K centres over the rows (Arthur and Vassilvitskii, 2007), improves them by k-means and
        takes means and covariances of the clusters, each shrunk towards their average by D + 1
        rows' worth, since a cluster of few rows has no covariance of its own.
    generator : torch.Generator
        On the rows' device.
    n_models : int
        M: each gets a start of its own.
    weights : Tensor of shape (N,), optional
    floor : Tensor of shape (D,), optional
        Smallest variance of a component along each column, if above 1e-6.

    Returns
    -------
    GaussianTarget
        Fractions (M, K), means (M, K, D) and covariances (M, K, D, D), in float64.
    """
    if method not in STARTS:
        raise unknown_name(method, STARTS, "init")
    starts = [_start(rows, n_components, method, generator, weights) for _ in range(n_models)]
    alpha, mu, covariance = (torch.stack(parts) for parts in zip(*starts, strict=True))
    least = torch.full_like(mu[0, 0], SMALLEST_VARIANCE)
    if floor is not None:
        least = torch.maximum(least, floor.to(least))
    return GaussianTarget(alpha, mu, not_below_floor(covariance, least))


def _start(
    rows: Tensor, K: int, method: str, generator: Generator, weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    x = _some_rows(rows, max(N_CLUSTERED, 10 * K), generator, weights).double()
    N, D = x.shape
    if method == "random":
        at = torch.randperm(N, device=x.device, generator=generator)
        mu = x[at.repeat(-(-K // N))[:K]]
        covariance = torch.cov(x.T, correction=0).reshape(D, D)
        return torch.full_like(mu[:, 0], 1 / K), mu, covariance.repeat(K, 1, 1)
    centres = _spread_rows(x, K, generator)
    for _ in range(N_ROUNDS):
        nearest = torch.cdist(x, centres).argmin(1)
        n, first = _cluster_sums(x, nearest, K)
        centres = torch.where(n[:, None] > 0, first / n[:, None].clamp_min(1), centres)
    nearest = torch.cdist(x, centres).argmin(1)
    n, _ = _cluster_sums(x, nearest, K)
    residual = x - centres[nearest]
    within = residual.T @ residual / N
    second = torch.stack([residual[nearest == k].T @ residual[nearest == k] for k in range(K)])
    shrunk = (second + (D + 1) * within) / (n + D + 1)[:, None, None]
    return (n + 1) / (N + K), centres, shrunk


def _some_rows(rows: Tensor, limit: int, generator: Generator, weights: Tensor | None) -> Tensor:
    if weights is not None:
        n = min(len(rows), limit)
        return rows[torch.multinomial(weights.double(), n, replacement=True, generator=generator)]
    if len(rows) <= limit:
        return rows
    return rows[torch.randperm(len(rows), device=rows.device, generator=generator)[:limit]]


def _spread_rows(x: Tensor, K: int, generator: Generator) -> Tensor:
    """Rows drawn one by one, each with probability proportional to its squared distance."""
    at = torch.randint(len(x), (1,), device=x.device, generator=generator)
    centres = [x[at[0]]]
    distances = (x - centres[0]).square().sum(1)
    for _ in range(K - 1):
        # Where every row is a centre already, any will do.
        odds = torch.where(distances.sum() > 0, distances, torch.ones_like(distances))
        at = torch.multinomial(odds, 1, generator=generator)
        centres.append(x[at[0]])
        distances = torch.minimum(distances, (x - centres[-1]).square().sum(1))
    return torch.stack(centres)


def _cluster_sums(x: Tensor, nearest: Tensor, K: int) -> tuple[Tensor, Tensor]:
    n = torch.bincount(nearest, minlength=K).double()
    first = x.new_zeros(K, x.shape[1]).index_add_(0, nearest, x)
    return n, first
