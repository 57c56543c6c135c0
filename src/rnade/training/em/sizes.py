r"""EM for mixtures of factor analysers of many sizes, on several sets of rows, as one program.

All components of all sizes stand side by side: with C components in each of R sets, one product
gives all densities :math:`N(x; \mu_c, \Lambda_c\Lambda_c^\top + \Psi_c)`, and one all weighted
second moments. Only the responsibilities are normalised mixture by mixture. Fewer factors are
factors whose loadings are 0, which EM leaves at 0.

The maximisation step needs no sums over factors: the factors are linear in the rows, so that each
component's weighted mean and covariance tell all. That costs O(D^2) for each row and component
whatever the number of factors: right for tables of few columns and a search over sizes, which
`steps`, in O(D q), is not made for.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor

from rnade.batch import Batch
from rnade.nn.mfa import MixtureOfFactorAnalyzersModule, Posterior, factors_of
from rnade.nn.mixture import BLOCK, log_joint_of_factors
from rnade.training.em.matrices import symmetric, upper_pairs
from rnade.training.em.progress import EMSettings, Progress
from rnade.training.em.starts import N_CLUSTERED, clusters, some_rows
from rnade.training.em.steps import DEAD_ROWS, FactorComponents, regressed, row_counts, where
from rnade.training.member import HistoryRow, Outcome
from rnade.training.scoring import side_by_side

# Numbers in the largest array that a step makes, by device.
CHUNK_ELEMENTS = {"cpu": 2**22, "cuda": 2**28}


class Size(NamedTuple):
    """Of a mixture: components K and factors q."""

    n_components: int
    n_factors: int


class Layout:
    """Where the components of each of G mixtures stand, and which mixture a component is of."""

    def __init__(self, sizes: Sequence[Size], device: torch.device) -> None:
        counts = torch.tensor([size.n_components for size in sizes])
        first = counts.cumsum(0) - counts
        k = torch.arange(int(counts.max()))
        # Beyond a mixture's own components stands place C, which has no mass.
        self.places = torch.where(k < counts[:, None], first[:, None] + k, int(counts.sum())).to(
            device
        )
        self.mixture_of = torch.arange(len(sizes)).repeat_interleave(counts).to(device)

    def by_mixture(self, values: Tensor, missing: float) -> Tensor:
        """Values (..., C) as (..., G, K), with `missing` beyond a mixture's own components."""
        return F.pad(values, (0, 1), value=missing)[..., self.places]

    def to_components(self, values: Tensor) -> Tensor:
        """Values (..., G) for each component of the mixtures, (..., C)."""
        return values[..., self.mixture_of]


@dataclass(frozen=True)
class Sized:
    """Mixtures of G sizes, fitted to R sets of rows.

    Attributes
    ----------
    sizes : list of Size
    components : FactorComponents
        Those that were kept, of all sizes side by side; fewer factors are loadings of 0.
    progress : Progress
        Scores of each set and size, of shape (R, G).
    """

    sizes: list[Size]
    components: FactorComponents
    progress: Progress

    def outcome(self, which: int, size: int) -> Outcome:
        """What training gave for the mixture of one set and size."""
        return self.progress.outcome((which, size))

    def components_of(self, sizes: Sequence[int]) -> FactorComponents:
        """Give the components of some sizes, side by side, of every set."""
        counts = [K for K, _ in self.sizes]
        places = torch.split(torch.arange(sum(counts), device=self.components.mu.device), counts)
        return self.components.of(torch.cat([places[size] for size in sizes]))

    def module(self, which: int, size: int) -> MixtureOfFactorAnalyzersModule:
        """Give the mixture of one set and size."""
        K, q = self.sizes[size]
        own = FactorComponents(*[t[which, None] for t in self.components_of([size])])
        module = MixtureOfFactorAnalyzersModule(own.mu.shape[-1], K, q).to(own.mu)
        own._replace(Lambda=own.Lambda[..., :q]).give_to(module)
        return module


class _Moments(NamedTuple):
    """Of each component's rows: weight, mean and covariance; and scores of each mixture."""

    n: Tensor  # (R, C)
    mean: Tensor  # (R, C, D)
    covariance: Tensor  # (R, C, D, D)
    log_likelihood: Tensor  # (R, G), mean over rows
    worst: Tensor  # (R, G, D): the row that is least likely


@torch.no_grad()
def fit_sizes(
    sets: Sequence[Batch],
    sizes: Sequence[Size],
    settings: EMSettings,
    *,
    seeds: Sequence[int],
    held_out: Sequence[Batch] = (),
    floor: Float[Tensor, " D"],
    start: FactorComponents | None = None,
    targets: Float[Tensor, "R G"] | None = None,
    on_epoch: Callable[[HistoryRow], None] | None = None,
) -> Sized:
    """Fit mixtures of all sizes to each set of rows, and keep the parameters that score best.

    A mixture stops as it would alone: once an iteration gains less than `settings.tol`, after
    `settings.patience` iterations without a better validation score, or at its target.

    Parameters
    ----------
    sets : sequence of R Batch
        Training rows, x of shape (N, D) in float64 on one device.
    sizes : sequence of G Size
    settings : EMSettings
        Without minibatches.
    seeds : sequence of R ints
        Of the starts: a set's depends on its own alone.
    held_out : sequence of R Batch, optional
        Held-out rows of each set: the parameters that score best on them are kept.
    floor : Tensor of shape (D,)
        Smallest variance of the noise along each column.
    start : FactorComponents, optional
        Components of all sizes that training goes on from, as `Sized.components_of` gives them;
        without it they start as clusters.
    targets : Tensor of shape (R, G), optional
        Mean log-likelihoods of the training rows at which a mixture stops.
    on_epoch : callable, optional
        Called after each iteration with the scores of the best mixtures so far.
    """
    if settings.batch_size is not None:
        raise ValueError("A search over sizes takes all rows at once; got a batch_size.")
    return _Search(sets, held_out, sizes, settings, seeds, floor, start, targets).run(on_epoch)


class _Search:
    """State of the mixtures that still train, and of what was kept of all."""

    def __init__(
        self,
        sets: Sequence[Batch],
        held_out: Sequence[Batch],
        sizes: Sequence[Size],
        settings: EMSettings,
        seeds: Sequence[int],
        floor: Tensor,
        start: FactorComponents | None,
        targets: Tensor | None,
    ) -> None:
        if any(rows.seen is not None for rows in (*sets, *held_out)):
            raise ValueError("fit_sizes expects complete rows; use fit_mixture for missing cells.")
        x = sets[0].x
        self.sizes, self.settings, self.floor = list(sizes), settings, floor.to(x)
        self.training = side_by_side(sets)
        self.validation = side_by_side(held_out) if held_out else None
        self.n_rows = torch.stack([row_counts(rows).sum(0, keepdim=True) for rows in sets])
        if targets is None:
            targets = x.new_full((len(sets), len(sizes)), math.inf)
        self.progress = Progress(settings, targets.to(x))
        self.layout = Layout(sizes, x.device)
        self.now = self._clusters(seeds) if start is None else start
        self.kept = FactorComponents(*[t.clone() for t in self.now])
        self.at = torch.arange(self.now.alpha.shape[1], device=x.device)  # places among the kept
        self.revived = torch.zeros_like(self.progress.best_iterations)
        self.live = torch.arange(len(sizes), device=x.device)  # of which a mixture still trains

    def run(self, on_epoch: Callable[[HistoryRow], None] | None = None) -> Sized:
        """Iterate until every mixture has stopped."""
        progress = self.progress
        for iteration in range(self.settings.max_iter + 1):
            moments = self._expectation()
            self._look(iteration, moments.log_likelihood)
            if on_epoch is not None:
                held_out = None if self.validation is None else float(progress.best_scores.max())
                train = float(progress.train_at_best.max())
                on_epoch({"epoch": iteration, "train": train, "validation": held_out})
            if iteration == self.settings.max_iter or not bool(progress.running.any()):
                break
            self.now = self._maximised(moments)
            self._pack()
        return Sized(self.sizes, self.kept, progress)

    def _clusters(self, seeds: Sequence[int]) -> FactorComponents:
        """Clusters of each number of components; of their correlations the largest factors."""
        counts = sorted({size.n_components for size in self.sizes})
        x, weights, *_ = self.training
        assert weights is not None
        generators = [Generator().manual_seed(seed) for seed in seeds]
        uniform = [torch.rand(counts[-1], generator=g, dtype=torch.float64) for g in generators]
        x, n_rows = some_rows(
            x, weights * self.n_rows, N_CLUSTERED, Generator().manual_seed(seeds[0])
        )
        alpha, mu, covariance = clusters(x, n_rows, counts, torch.stack(uniform).to(x), self.floor)
        first = dict(zip(counts, torch.tensor([0, *counts]).cumsum(0).tolist(), strict=False))
        at = torch.cat([torch.arange(first[K], first[K] + K) for K, _ in self.sizes]).to(mu.device)
        most = max(size.n_factors for size in self.sizes)
        of_factors = {}
        for q in {size.n_factors for size in self.sizes}:
            Lambda, psi = factors_of(covariance, q)
            of_factors[q] = F.pad(Lambda, (0, most - q)), torch.maximum(psi, self.floor)
        pieces = [[t[:, first[K] : first[K] + K] for t in of_factors[q]] for K, q in self.sizes]
        Lambda, psi = (torch.cat(parts, dim=1) for parts in zip(*pieces, strict=True))
        return FactorComponents(alpha[:, at], mu[:, at], Lambda, psi)

    # ---------------------------------------------------------------- the two steps

    def _expectation(self) -> _Moments:
        """Moments of every component's rows at the present parameters."""
        x, weights, *_ = self.training
        assert weights is not None
        R, _, D = x.shape
        C, G = self.now.alpha.shape[1], len(self.live)
        i, j = upper_pairs(D, x.device)
        n, first = x.new_zeros(R, C), x.new_zeros(R, C, D)
        second, total = x.new_zeros(R, C, len(i)), x.new_zeros(R, G)
        lowest, worst = x.new_full((R, G), math.inf), x.new_zeros(R, G, D)
        for rows, log_joint, log_p in self._densities(x):
            w = weights[:, rows] * self.n_rows
            r = (log_joint - self.layout.to_components(log_p)).exp_().mul_(w[..., None])
            piece = x[:, rows]
            n += r.sum(1)
            first += r.mT @ piece
            second += r.mT @ (piece[..., i] * piece[..., j])
            total += (log_p * weights[:, rows, None]).sum(1)
            low, at = log_p.masked_fill(w[..., None] == 0, math.inf).min(1)
            found = piece.gather(1, at[..., None].expand(-1, -1, D))
            worst = torch.where((low < lowest)[..., None], found, worst)
            lowest = torch.minimum(low, lowest)
        mean = first / n.clamp_min(DEAD_ROWS)[..., None]
        covariance = symmetric(second / n.clamp_min(DEAD_ROWS)[..., None], D)
        covariance = covariance - mean[..., None] * mean[..., None, :]
        return _Moments(n, mean, covariance, total, worst)

    def _densities(self, x: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Chunks of rows with log joint densities (R, B, C) and log densities (R, B, G)."""
        alpha, mu, Lambda, psi = self.now
        L = torch.linalg.cholesky(Lambda @ Lambda.mT + torch.diag_embed(psi))
        log_joint_of = log_joint_of_factors(alpha.log(), mu, L)
        numbers = alpha.numel() * min(x.shape[-1], BLOCK)
        size = max(1, CHUNK_ELEMENTS[x.device.type] // numbers)
        for start in range(0, x.shape[1], size):
            rows = slice(start, start + size)
            log_joint = log_joint_of(x[:, rows])
            yield rows, log_joint, self.layout.by_mixture(log_joint, -math.inf).logsumexp(-1)

    def _maximised(self, moments: _Moments) -> FactorComponents:
        """Regress each component's rows on its factors; what is left is noise.

        With z the factors' posterior mean given u = x - mu, z = B u: its covariance with u and
        its own follow from the covariance of the rows, S: S B' and B S B' + the posterior's.
        """
        n, mean, S = moments[:3]
        _, mu, Lambda, psi = self.now
        B, posterior, _ = Posterior.of(Lambda, Lambda / psi[..., None])
        z, u_z = (B @ (mean - mu)[..., None])[..., 0], S @ B.mT
        variance = S.diagonal(dim1=-2, dim2=-1)
        constant, loadings, noise = regressed(mean, variance, z, u_z, posterior + B @ u_z)
        moved = FactorComponents(
            n / self.n_rows, constant, loadings, torch.maximum(noise, self.floor)
        )
        alive = n > DEAD_ROWS
        # A dead component's moments mean nothing: it stays as it is, without mass.
        moved = where(alive, moved, self.now._replace(alpha=moved.alpha))
        return moved if bool(alive.all()) else self._revived(moved, alive, moments.worst)

    def _revived(self, now: FactorComponents, alive: Tensor, worst: Tensor) -> FactorComponents:
        """Put one dead component of each mixture on its least likely row.

        With the shape of the mixture's heaviest component, as `AbstractSteps.revive` does.
        """
        dead = self.layout.by_mixture((~alive).to(worst), 0.0)  # (R, G, K)
        heaviest = self.layout.by_mixture(now.alpha, -1.0).argmax(-1)
        wanted = dead.amax(-1) > 0
        self.revived[:, self.live] += wanted
        places = self.layout.places.expand(len(worst), -1, -1)
        here, like = (
            places.gather(-1, at[..., None])[..., 0] for at in (dead.argmax(-1), heaviest)
        )  # (R, G)
        which, mixture = wanted.nonzero(as_tuple=True)
        here, like = here[wanted], like[wanted]
        alpha, mu, Lambda, psi = (t.clone() for t in now)
        share = 1 / self.n_rows
        alpha *= 1 - self.layout.to_components(wanted.to(alpha)) * share
        alpha[which, here] = share[which, 0]
        mu[which, here] = worst[which, mixture]
        Lambda[which, here], psi[which, here] = Lambda[which, like], psi[which, like]
        return FactorComponents(alpha, mu, Lambda, psi)

    # ---------------------------------------------------------------- who goes on

    def _look(self, iteration: int, train: Tensor) -> None:
        """Keep the parameters of the mixtures that score best; stop those that are done."""
        held_out = None
        if self.validation is not None:
            x, weights, *_ = self.validation
            assert weights is not None
            pieces = self._densities(x)
            scores = [(log_p * weights[:, rows, None]).sum(1) for rows, _, log_p in pieces]
            held_out = self._of_all(torch.stack(scores).sum(0))
        better = self.progress.look(iteration, self._of_all(train), held_out, self.revived)
        chosen = self.layout.to_components(better[:, self.live])
        best = where(chosen, self.now, self.kept.of(self.at))
        for kept, new in zip(self.kept, best, strict=True):
            kept[:, self.at] = new

    def _of_all(self, values: Tensor) -> Tensor:
        """Values of the live sizes, (R, live), for all sizes, (R, G); NaN for those that left."""
        everyone = torch.full_like(self.progress.best_scores, math.nan)
        everyone[:, self.live] = values
        return everyone

    def _pack(self) -> None:
        """Go on with the sizes that some set still trains, once they are half of those here."""
        wanted = self.progress.running[:, self.live].any(0)
        if 2 * int(wanted.sum()) > len(wanted):
            return
        components = self.layout.to_components(wanted).nonzero()[:, 0]
        self.now, self.at = self.now.of(components), self.at[components]
        self.live = self.live[wanted]
        self.layout = Layout([self.sizes[g] for g in self.live.tolist()], self.at.device)
