"""An ensemble: the average density of several models, exact like each of them."""

from collections.abc import Sequence
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from rnade.nn.autoregressive import AbstractAutoregressive
from rnade.nn.base import AbstractDensity

# Numbers (rows times members times dimensions) that are scored at a time: 128 MiB in float64.
CHUNK_ELEMENTS = 2**24
# Steps of expectation maximisation by which `fit_weights` finds the weights.
WEIGHT_STEPS = 50


class EnsembleModule(AbstractDensity):
    r"""Weighted average of the densities of several autoregressive models.

    .. math:: p(x) = \sum_m w_m \, p_m(x)

    Members may differ in order, shape and weights. An average of densities is a density: it
    integrates to 1, and a draw is a draw of a member chosen by its weight.

    Parameters
    ----------
    parts : sequence of AbstractAutoregressive
        Banks of members; members of one shape share a bank.
    weights : sequence of float, optional
        One for each member, in the order of the banks; None for equal ones.
    """

    log_weights: Tensor

    def __init__(
        self, parts: Sequence[AbstractAutoregressive], weights: Sequence[float] | None = None
    ) -> None:
        super().__init__(parts[0].n_dimensions)
        self.parts = nn.ModuleList(parts)
        n = self.n_members
        given = torch.ones(n, device="cpu") if weights is None else torch.tensor(list(weights))
        if len(given) != n or not (given >= 0).all() or not given.sum() > 0:
            raise ValueError(f"Expected {n} weights >= 0, not all 0; got {given.tolist()}.")
        log_weights = (given.double() / given.double().sum()).log()
        self.register_buffer("log_weights", log_weights.to(parts[0].device, parts[0].dtype)[None])

    @staticmethod
    def of(modules: Sequence[AbstractAutoregressive]) -> "EnsembleModule":
        """Average single models with equal weights; those of one shape form a bank."""
        order = EnsembleModule.sorted_by_shape(modules)
        groups = groupby((modules[i] for i in order), key=lambda module: module.signature())
        return EnsembleModule([AbstractAutoregressive.stack(list(g)) for _, g in groups])

    @staticmethod
    def sorted_by_shape(modules: Sequence[AbstractAutoregressive]) -> list[int]:
        """Places of the modules in the order in which `of` has them as members."""
        seen: dict[str, int] = {}
        ranks = [seen.setdefault(str(module.signature()), len(seen)) for module in modules]
        return sorted(range(len(modules)), key=lambda i: ranks[i])

    @property
    def n_members(self) -> int:
        """How many models are averaged."""
        return sum(part.n_models for part in self._banks())

    def member(self, m: int) -> AbstractAutoregressive:
        """One of the models, as a copy."""
        for part in self._banks():
            if m < part.n_models:
                return part[m]
            m -= part.n_models
        raise IndexError(f"Expected a member from 0 to {self.n_members - 1}; got {m}.")

    def member_log_prob(self, x: Float[Tensor, "B D"]) -> Float[Tensor, "n_members B"]:
        """Log density of each row under each member."""
        size = max(1, CHUNK_ELEMENTS // (self.n_members * self.n_dimensions))
        pieces = [
            torch.cat([part.log_prob(rows).view(part.n_models, -1) for part in self._banks()])
            for rows in torch.split(x, size)
        ]
        return torch.cat(pieces, 1)

    def responsibilities(self, x: Float[Tensor, "B D"]) -> Float[Tensor, "n_members B"]:
        """Probability that each row came from each member."""
        return (self.member_log_prob(x) + self.log_weights[0][:, None]).softmax(0)

    def log_conditionals(self, x: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        r"""D terms of each row that sum to `log_prob`: how much each dimension explains.

        A term is the mean of the members' own :math:`\log p_m(x_d \mid x_{<d})`, each member
        weighed by its responsibility :math:`r_m` for the row, less an equal share of
        :math:`\sum_m r_m \log (r_m / w_m)`, at most the logarithm of the number of members.
        """
        size = max(1, CHUNK_ELEMENTS // (self.n_members * self.n_dimensions))
        return torch.cat([self._terms(rows) for rows in torch.split(x, size)])

    @torch.no_grad()
    def fit_weights(self, x: Float[Tensor, "B D"], row_weights: Tensor | None = None) -> None:
        """Find weights that make these rows likely, held towards equal ones by a prior.

        The prior counts as one row for each member, so that few rows change little.
        """
        log_p = self.member_log_prob(x)
        n = self.n_members
        rows = torch.ones_like(log_p[0]) if row_weights is None else row_weights.to(log_p)
        rows = rows / rows.mean()
        log_w = torch.full_like(self.log_weights[0], 1 / n).log()
        for _ in range(WEIGHT_STEPS):
            r = (log_p + log_w[:, None]).softmax(0)
            # A row that no member gives any density says nothing about their weights.
            counts = torch.where(torch.isfinite(r), r * rows, 0.0).sum(1) + 1
            log_w = (counts / counts.sum()).log()
        self.log_weights.copy_(log_w[None])

    def _banks(self) -> list[AbstractAutoregressive]:
        return list(self.parts)  # type: ignore[arg-type]

    def _log_prob(self, x: Float[Tensor, "M B D"]) -> Float[Tensor, "M B"]:
        joint = self.member_log_prob(x[0]) + self.log_weights[0][:, None]
        return torch.logsumexp(joint, 0)[None]

    def _terms(self, x: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        terms = torch.cat(
            [part.log_conditionals(x).view(part.n_models, *x.shape) for part in self._banks()]
        )
        joint = terms.sum(2) + self.log_weights[0][:, None]
        total = torch.logsumexp(joint, 0)
        r = joint.softmax(0)
        # 0 times the term of a member that gives the row no density is 0.
        mean = torch.where(r[:, :, None] > 0, r[:, :, None] * terms, 0.0).sum(0)
        return mean + ((total - mean.sum(1)) / self.n_dimensions)[:, None]

    def _sample(
        self, n: int, generator: Generator, low: Tensor | None, high: Tensor | None
    ) -> Float[Tensor, "M n D"]:
        weights = self.log_weights[0].exp()
        chosen = torch.multinomial(weights, n, replacement=True, generator=generator)
        x = weights.new_empty(n, self.n_dimensions)
        for m in range(self.n_members):
            at = (chosen == m).nonzero().flatten()
            if len(at):
                x[at] = self.member(m).sample(len(at), generator, low=low, high=high)
        return x[None]

    def choose_members(self, x: Float[Tensor, "B D"], generator: Generator) -> Int[Tensor, " B"]:
        """A member for each row, drawn by its responsibility for the row.

        If rows come from the ensemble, each row given its chosen member comes from that member:
        what is true of one member's conditionals is then true of the chosen ones'.
        """
        r = self.responsibilities(x)
        return torch.multinomial(r.T, 1, generator=generator)[:, 0]

    def signature(self) -> list[str]:
        """Ensembles are not stacked in banks."""
        raise TypeError("An ensemble cannot be a member of a bank.")

    def __getitem__(self, members: int | Sequence[int]) -> "EnsembleModule":
        """Ensembles are not banks."""
        raise TypeError("An ensemble is one density; use member(m) for one of its models.")
