"""Starts of EM for several numbers of components on several sets of rows, all at once.

As `starts` with "k-means++", but the spread of K centres is the first part of the spread of more:
one sequence of rows serves all numbers of components.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rnade.training.em_steps import GaussianTarget, not_below_floor
from rnade.training.starts import N_ROUNDS, SMALLEST_VARIANCE


def nested_starts(
    x: Float[Tensor, "R N D"],
    weights: Float[Tensor, "R N"],
    counts: Sequence[int],
    seeds: Sequence[int],
    floor: Float[Tensor, " D"],
) -> GaussianTarget:
    """Clusters for each number of components in each set.

    Parameters
    ----------
    x : Tensor of shape (R, N, D)
    weights : Tensor of shape (R, N)
        A row of weight 0 is as good as absent.
    counts : sequence of int
        Numbers of components.
    seeds : sequence of R ints
        A set's start depends on its own alone.
    floor : Tensor of shape (D,)
        Smallest variance along each column, if above 1e-6.

    Returns
    -------
    GaussianTarget
        Fractions, means and covariances of all components side by side: of shapes (R, C),
        (R, C, D) and (R, C, D, D) with C the sum of `counts`.
    """
    R, N, D = x.shape
    most, S = max(counts), len(counts)
    n_rows = (weights > 0).sum(1).to(x)[:, None, None]  # (R, 1, 1)
    w = weights[..., None] * (n_rows / weights.sum(1)[:, None, None])  # (R, N, 1), 1 on average
    centres = _spread_rows(x, weights, most, seeds)[:, None].repeat(1, S, 1, 1)  # (R, S, most, D)
    used = torch.arange(most) < torch.tensor(list(counts))[:, None]
    used = used.to(x.device)  # (S, most)

    def hard() -> Tensor:
        """Weights of rows in clusters, (R, N, S * most)."""
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
    i, j = upper_pairs(D, x.device)
    n = member.sum(1).view(R, S, most)
    first = (member.mT @ x).view(R, S, most, D)
    second = symmetric(member.mT @ (x[..., i] * x[..., j]), D).view(R, S, most, D, D)
    # About the centres: sums of (x - c)(x - c)'.
    cross = first[..., None] * centres[..., None, :]
    square = centres[..., None] * centres[..., None, :]
    scatter = second - cross - cross.mT + n[..., None, None] * square
    within = scatter.sum(2, keepdim=True) / n_rows[..., None, None]
    covariance = (scatter + (D + 1) * within) / (n + D + 1)[..., None, None]
    alpha = (n + 1) / (n_rows + used.sum(-1, keepdim=True))
    least = floor.clamp_min(SMALLEST_VARIANCE)
    return GaussianTarget(
        alpha[:, used], centres[:, used], not_below_floor(covariance[:, used], least)
    )


def _spread_rows(x: Tensor, weights: Tensor, K: int, seeds: Sequence[int]) -> Tensor:
    """Rows (R, K, D) drawn one by one, each with odds in proportion to its squared distance."""
    uniform = torch.stack(
        [
            torch.rand(K, generator=Generator().manual_seed(seed), dtype=torch.float64)
            for seed in seeds
        ]
    ).to(x)
    odds = weights.to(x)
    distances = torch.full_like(odds, torch.inf)
    centres = []
    for k in range(K):
        cumulative = odds.cumsum(1)
        at = torch.searchsorted(cumulative, uniform[:, k, None] * cumulative[:, -1:], right=True)
        # Of a row with odds, whatever the rounding of the sums.
        last = x.shape[1] - 1 - (odds > 0).flip(1).int().argmax(1, keepdim=True)
        at = torch.minimum(at, last)
        centres.append(x.gather(1, at[..., None].expand(-1, -1, x.shape[2])))
        distances = torch.minimum(distances, (x - centres[-1]).square().sum(-1))
        odds = weights * distances
        # Where every row is a centre already, any will do.
        odds = torch.where(odds.sum(1, keepdim=True) > 0, odds, weights)
    return torch.cat(centres, dim=1)


def upper_pairs(D: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows and columns of the upper triangle of a D x D matrix."""
    i, j = torch.triu_indices(D, D, device=device)
    return i, j


def symmetric(upper: Float[Tensor, "... T"], D: int) -> Float[Tensor, "... D D"]:
    """Matrices from their upper triangles."""
    i, j = upper_pairs(D, upper.device)
    place = torch.empty(D, D, dtype=torch.int64, device=upper.device)
    place[i, j] = place[j, i] = torch.arange(len(i), device=upper.device)
    return upper[..., place]
