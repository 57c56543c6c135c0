"""Mixtures of factor analysers of many sizes side by side: where each stands, what was kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from rnade.nn.mfa import MixtureOfFactorAnalyzersModule
from rnade.training.run import HistoryRow
from rnade.training.sgd import Outcome


class Size(NamedTuple):
    """Of a mixture: components K and factors q."""

    n_components: int
    n_factors: int


class Components(NamedTuple):
    """Parameters of C components in each of R sets."""

    alpha: Float[Tensor, "R C"]
    mu: Float[Tensor, "R C D"]
    Lambda: Float[Tensor, "R C D q"]
    psi: Float[Tensor, "R C D"]

    def where(self, chosen: Tensor, other: "Components") -> "Components":
        """Those of `chosen` components, of shape (R, C), and of another's for the rest."""
        pairs = zip(self, other, strict=True)
        return Components(
            *[torch.where(chosen.view(*chosen.shape, *[1] * (a.ndim - 2)), a, b) for a, b in pairs]
        )

    def of(self, at: Tensor) -> "Components":
        """Some components of every set."""
        return Components(*[t[:, at] for t in self])


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
    components : Components
        Those that were kept.
    best_scores, train_at_best : Tensor of shape (R, G)
        Mean log-likelihood of the validation rows (training rows where there are none) and of the
        training rows, of the parameters kept.
    best_iterations : Tensor of shape (R, G)
    curves : Tensor of shape (iterations, 3, R, G)
        Mean log-likelihoods of training and validation rows, and how many components have been
        revived, before each iteration; scores are NaN once a mixture has stopped, and where
        there are no validation rows.
    seconds : list of float
        When each iteration began.
    """

    sizes: list[Size]
    components: Components
    best_scores: Tensor
    train_at_best: Tensor
    best_iterations: Tensor
    curves: Tensor
    seconds: list[float]

    def outcome(self, which: int, size: int) -> Outcome:
        """What training gave for the mixture of one set and size."""
        train, validation, revived = self.curves[:, :, which, size].unbind(1)
        n = int((~train.isnan()).sum())
        held_out = None if validation.isnan().all() else validation.tolist()
        history: list[HistoryRow] = [
            {
                "epoch": epoch,
                "rate": 1.0,
                "train": score,
                "validation": None if held_out is None else held_out[epoch],
                "seconds": round(self.seconds[epoch], 3),
                "skipped": 0,
                "revived": int(revived[epoch]),
            }
            for epoch, score in enumerate(train[:n].tolist())
        ]
        return Outcome(
            history,
            int(self.best_iterations[which, size]),
            float(self.best_scores[which, size]),
            float(self.train_at_best[which, size]),
        )

    def module(self, which: int, size: int) -> MixtureOfFactorAnalyzersModule:
        """Give the mixture of one set and size."""
        K, q = self.sizes[size]
        first = sum(other.n_components for other in self.sizes[:size])
        alpha, mu, Lambda, psi = (t[which, first : first + K] for t in self.components)
        module = MixtureOfFactorAnalyzersModule(mu.shape[-1], K, q).to(mu)
        with torch.no_grad():
            module.log_alpha.copy_(alpha.log()[None])
            module.mu.copy_(mu[None])
            module.Lambda.copy_(Lambda[None, ..., :q])
            module.log_psi.copy_(psi.log()[None])
        return module
