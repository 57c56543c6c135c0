"""Mixtures of factor analysers of many sizes side by side: where each stands, what was kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rnade.nn.mfa import MixtureOfFactorAnalyzersModule
from rnade.training.em.progress import Progress
from rnade.training.em.steps import FactorComponents
from rnade.training.sgd import Outcome


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

    def module(self, which: int, size: int) -> MixtureOfFactorAnalyzersModule:
        """Give the mixture of one set and size."""
        K, q = self.sizes[size]
        first = sum(other.n_components for other in self.sizes[:size])
        own = FactorComponents(*[t[which, None, first : first + K] for t in self.components])
        module = MixtureOfFactorAnalyzersModule(own.mu.shape[-1], K, q).to(own.mu)
        own._replace(Lambda=own.Lambda[..., :q]).give_to(module)
        return module
