"""Where EM starts: components on random rows, or the clusters of k-means."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from rnade.batch import Batch
from rnade.checks import unknown_name
from rnade.chunks import rows_at_a_time
from rnade.training.em.matrices import not_below_floor, symmetric, upper_pairs
from rnade.training.em.steps import GaussianComponents, row_counts

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
    seen: Bool[Tensor, "N D"] | None = None,
) -> GaussianComponents:
    """Initial components of a mixture, K for each of M models.

    Parameters
    ----------
    rows : Tensor of shape (N, D)
    n_components : int
        K.
    method : "k-means++" or "random"
        "random" puts components of the rows' own covariance on K random rows, all different where
        there are as many. "k-means++" makes `clusters`.
    generator : torch.Generator
        On the rows' device.
    n_models : int
        M: each gets a start of its own.
    weights : Tensor of shape (N,), optional
        Row weights, all positive: a row of weight 2 is two rows.
    floor : Tensor of shape (D,), optional
        Smallest variance of a component along each column, if above 1e-6.
    seen : bool Tensor of shape (N, D), optional
        Which cells are observed; None for all. Others are filled with standard normal noise, of
        which rows that are standardised keep the spread of their columns.

    Returns
    -------
    GaussianComponents
        Fractions (M, K), means (M, K, D) and covariances (M, K, D, D), in float64.
    """
    if method not in STARTS:
        raise unknown_name(method, STARTS, "init")
    K, D = n_components, rows.shape[1]
    x, n = rows.double()[None], row_counts(Batch(rows, weights))[None]
    if seen is not None:
        x = torch.where(seen, x, torch.empty_like(x).normal_(generator=generator))
    x, n = some_rows(x, n, max(N_CLUSTERED, 10 * K), generator)
    least = (x.new_zeros(D) if floor is None else floor.to(x)).clamp_min(SMALLEST_VARIANCE)
    if method == "k-means++":
        uniform = torch.rand(n_models, K, dtype=x.dtype, device=x.device, generator=generator)
        return clusters(x.expand(n_models, -1, -1), n.expand(n_models, -1), [K], uniform, least)
    share = n[0, :, None] / n.sum()
    centred = x[0] - (share * x[0]).sum(0)
    covariance = not_below_floor((share * centred).T @ centred, least)
    # Efraimidis and Spirakis (2006): rows drawn without replacement, in proportion to weights. Two
    # components on equal rows would stay equal for ever, so that duplicates count as one.
    distinct, which = torch.unique(x[0], dim=0, return_inverse=True)
    odds = x.new_zeros(len(distinct)).index_add_(0, which, n[0])
    uniform = torch.rand(n_models, len(distinct), device=x.device, generator=generator).double()
    at = (uniform.log() / odds).argsort(1, descending=True).repeat(1, -(-K // len(distinct)))
    mu = distinct[at[:, :K]]
    return GaussianComponents(
        torch.full_like(mu[..., 0], 1 / K), mu, covariance.expand(n_models, K, D, D)
    )


def some_rows(
    x: Float[Tensor, "R N D"], n: Float[Tensor, "R N"], limit: int, generator: Generator
) -> tuple[Float[Tensor, "R L D"], Float[Tensor, "R L"]]:
    """At most `limit` rows of each set at random, with the numbers of rows they stand for."""
    if x.shape[1] <= limit:
        return x, n
    places = torch.randperm(x.shape[1], device=generator.device, generator=generator)
    places = places[:limit].to(x.device)
    return x[:, places], n[:, places]


def clusters(
    x: Float[Tensor, "R N D"],
    n_rows: Float[Tensor, "R N"],
    sizes: Sequence[int],
    uniform: Float[Tensor, "R K"],
    floor: Float[Tensor, " D"],
) -> GaussianComponents:
    """Clusters of each of some numbers of components in each of R sets of rows, all at once.

    K centres are spread over the rows (Arthur and Vassilvitskii, 2007) and improved by k-means;
    means and covariances are those of the clusters, each covariance shrunk towards their average
    by D + 1 rows' worth, since a cluster of few rows has none of its own. The spread of K centres
    is the first part of the spread of more: one sequence of rows serves all sizes.

    Parameters
    ----------
    x : Tensor of shape (R, N, D)
    n_rows : Tensor of shape (R, N)
        How many rows each row stands for; one of 0 is ignored.
    sizes : sequence of int
        Numbers of components, K at most.
    uniform : Tensor of shape (R, K)
        Between 0 and 1, one for each centre; a set's start depends on its own alone.
    floor : Tensor of shape (D,)
        Smallest variance along each column, if above 1e-6.

    Returns
    -------
    GaussianComponents
        Fractions, means and covariances of all components side by side: of shapes (R, C),
        (R, C, D) and (R, C, D, D) with C the sum of `sizes`.
    """
    R, N, D = x.shape
    most, S = uniform.shape[1], len(sizes)
    w, total = n_rows[..., None], n_rows.sum(1)[:, None, None]
    centres = _spread_rows(x, n_rows, uniform)[:, None].repeat(1, S, 1, 1)
    used = torch.arange(most) < torch.tensor(list(sizes))[:, None]
    used = used.to(x.device)  # (S, K)

    def hard() -> Tensor:
        """Rows in clusters, (R, N, S * K)."""
        flat = centres.view(R, S * most, D)
        squares = flat.square().sum(-1)[:, None] - 2 * x @ flat.mT  # less the rows' own squares
        distances = squares.view(R, N, S, most).masked_fill_(~used, torch.inf)
        member = torch.zeros_like(distances).scatter_(
            -1, distances.argmin(-1, keepdim=True), w[..., None].expand(-1, -1, S, 1)
        )
        return member.view(R, N, S * most)

    for _ in range(N_ROUNDS):
        member = hard()
        n = member.sum(1)[..., None]
        means = (member.mT @ x / n.clamp_min(1e-12)).view(R, S, most, D)
        centres = torch.where(n.view(R, S, most, 1) > 0, means, centres)
    member = hard()
    n = member.sum(1).view(R, S, most)
    first = (member.mT @ x).view(R, S, most, D)
    second = _second_moments(x, member).view(R, S, most, D, D)
    # About the centres: sums of (x - c)(x - c)'.
    cross = first[..., None] * centres[..., None, :]
    square = centres[..., None] * centres[..., None, :]
    scatter = second - cross - cross.mT + n[..., None, None] * square
    within = scatter.sum(2, keepdim=True) / total[..., None, None]
    covariance = (scatter + (D + 1) * within) / (n + D + 1)[..., None, None]
    alpha = (n + 1) / (total + used.sum(-1, keepdim=True))
    least = floor.clamp_min(SMALLEST_VARIANCE)
    return GaussianComponents(
        alpha[:, used], centres[:, used], not_below_floor(covariance[:, used], least)
    )


def _second_moments(x: Float[Tensor, "R N D"], member: Float[Tensor, "R N C"]) -> Tensor:
    """Sums of x x' over the rows of each cluster, (R, C, D, D)."""
    R, _, D = x.shape
    i, j = upper_pairs(D, x.device)
    size = rows_at_a_time(R * len(i))
    pieces = zip(*(torch.split(t, size, dim=1) for t in (x, member)), strict=True)
    total = x.new_zeros(R, member.shape[2], len(i))
    for rows, mine in pieces:
        total += mine.mT @ (rows[..., i] * rows[..., j])
    return symmetric(total, D)


def _spread_rows(x: Tensor, n_rows: Tensor, uniform: Tensor) -> Tensor:
    """Rows (R, K, D) drawn one by one, each with odds in proportion to its squared distance.

    Each takes one uniform number along the cumulative odds of the rows, so that a row of weight 2
    starts what two equal rows side by side would.
    """
    odds = n_rows
    distances = torch.full_like(odds, torch.inf)
    centres: list[Tensor] = []
    for u in uniform.T:
        cumulative = odds.cumsum(1)
        at = torch.searchsorted(cumulative, u[:, None] * cumulative[:, -1:], right=True)
        # Of a row with odds, whatever the rounding of the sums.
        last = x.shape[1] - 1 - (odds > 0).flip(1).int().argmax(1, keepdim=True)
        at = torch.minimum(at, last)
        centres.append(x.gather(1, at[..., None].expand(-1, -1, x.shape[2])))
        distances = torch.minimum(distances, (x - centres[-1]).square().sum(-1))
        odds = n_rows * distances
        # Where every row is a centre already, any will do.
        odds = torch.where(odds.sum(1, keepdim=True) > 0, odds, n_rows)
    return torch.cat(centres, dim=1)
