"""An ensemble: the average density of several models, exact like each of them."""

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from rnade.batch import Batch
from rnade.chunks import rows_at_a_time
from rnade.nn.bank import AbstractBank
from rnade.nn.base import AbstractDensity
from rnade.nn.chain import AbstractChain
from rnade.nn.orders import Permutation


def log_average(
    log_densities: Float[Tensor, "M B"], log_weights: Float[Tensor, " M"] | None = None
) -> Float[Tensor, " B"]:
    """Log of the average of M densities, which is a density itself.

    Parameters
    ----------
    log_densities : Tensor of shape (M, B)
        -inf is a density of 0.
    log_weights : Tensor of shape (M,), optional
        Logarithms of weights that sum to 1; None for equal ones.
    """
    if log_weights is None:
        return torch.logsumexp(log_densities, 0) - math.log(len(log_densities))
    return torch.logsumexp(log_densities + log_weights[:, None], 0)


def log_averages(
    log_densities: Float[Tensor, "M B"],
    log_weights: Float[Tensor, " M"],
    groups: Bool[Tensor, "G M"],
) -> Float[Tensor, "G B"]:
    """Log of the average of each group of some of M densities, by their weights.

    Parameters
    ----------
    log_densities : Tensor of shape (M, B)
    log_weights : Tensor of shape (M,)
        They need not sum to 1.
    groups : bool Tensor of shape (G, M)
    """
    return torch.stack(
        [log_average(log_densities[own], log_weights[own].log_softmax(0)) for own in groups]
    )


class EnsembleModule(AbstractDensity):
    r"""Weighted average of the densities of several models.

    .. math:: p(x) = \sum_m w_m \, p_m(x)

    Members may differ in order, shape and weights. An average of densities is a density: it
    integrates to 1, and a draw is a draw of a member chosen by its weight.

    Parameters
    ----------
    parts : sequence of AbstractChain
        Banks of members; members of one shape share a bank.
    weights : sequence of float, optional
        One for each member, in the order of the banks; None for equal ones.
    """

    log_weights: Tensor

    def __init__(
        self, parts: Sequence[AbstractChain], weights: Sequence[float] | None = None
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
    def of(
        modules: Sequence[AbstractChain], weights: Sequence[float] | None = None
    ) -> "EnsembleModule":
        """Average single models, by weights or evenly; those of one shape form a bank."""
        order = EnsembleModule.sorted_by_shape(modules)
        groups = groupby((modules[i] for i in order), key=lambda module: module.signature())
        own = None if weights is None else [weights[i] for i in order]
        return EnsembleModule([AbstractBank.stack(list(g)) for _, g in groups], own)

    @staticmethod
    def sorted_by_shape(modules: Sequence[AbstractChain]) -> list[int]:
        """Places of the modules in the order in which `of` has them as members."""
        seen: dict[str, int] = {}
        ranks = [seen.setdefault(str(module.signature()), len(seen)) for module in modules]
        return sorted(range(len(modules)), key=lambda i: ranks[i])

    @property
    def n_members(self) -> int:
        """How many models are averaged."""
        return sum(part.n_models for part in self._banks())

    def member(self, m: int) -> AbstractChain:
        """One of the models, as a copy."""
        for part in self._banks():
            if m < part.n_models:
                return part[m]
            m -= part.n_models
        raise IndexError(f"Expected a member from 0 to {self.n_members - 1}; got {m}.")

    def member_log_prob(
        self,
        x: Float[Tensor, "B D"],
        *,
        seen: Tensor | None = None,
        order: Permutation | None = None,
    ) -> Float[Tensor, "n_members B"]:
        """Log density of each row under each member."""

        def of_members(rows: Tensor, **more: Any) -> Tensor:
            found = [part.log_prob(rows, **more).view(part.n_models, -1) for part in self._banks()]
            return torch.cat(found)

        return torch.cat(self._by_rows(of_members, x, seen, order), 1)

    def group_log_prob(
        self, x: Float[Tensor, "B D"], groups: Bool[Tensor, "G n_members"]
    ) -> Float[Tensor, "G B"]:
        """Log density of each row by the average of each group of members.

        Members that are in no group are not computed.
        """
        wanted = groups.any(0).nonzero()[:, 0]
        some = self if len(wanted) == self.n_members else self._of(wanted.tolist())
        return log_averages(
            some.member_log_prob(x), self.log_weights[0][wanted], groups[:, wanted]
        )

    def _of(self, members: Sequence[int]) -> "EnsembleModule":
        """An average of some of the members, in their order."""
        parts, first = [], 0
        for part in self._banks():
            own = [m - first for m in members if first <= m < first + part.n_models]
            parts += [part[own]] if own else []
            first += part.n_models
        return EnsembleModule(parts)

    def responsibilities(self, x: Float[Tensor, "B D"]) -> Float[Tensor, "n_members B"]:
        """Probability that each row came from each member."""
        return (self.member_log_prob(x) + self.log_weights[0][:, None]).softmax(0)

    def log_conditionals(
        self,
        x: Float[Tensor, "B D"],
        *,
        seen: Tensor | None = None,
        order: Permutation | None = None,
    ) -> Float[Tensor, "B D"]:
        r"""D terms of each row that sum to `log_prob`: how much each dimension explains.

        A term is the mean of the members' own :math:`\log p_m(x_d \mid x_{<d})`, each member
        weighed by its responsibility :math:`r_m` for the row, less an equal share of
        :math:`\sum_m r_m \log (r_m / w_m)`, at most the logarithm of the number of members. The
        term of a cell that is not observed is 0.
        """
        return torch.cat(self._by_rows(self._terms, x, seen, order))

    def _by_rows(
        self,
        compute: Callable[..., Tensor],
        x: Tensor,
        seen: Tensor | None,
        order: Permutation | None,
    ) -> list[Tensor]:
        """What `compute` gives for some rows after the other."""
        size = rows_at_a_time(self.n_members * self.n_dimensions)
        starts = range(0, max(len(x), 1), size)
        return [
            compute(
                x[at : at + size],
                seen=None if seen is None else seen[at : at + size],
                order=order,
            )
            for at in starts
        ]

    def _banks(self) -> list[AbstractChain]:
        return list(self.parts)  # type: ignore[arg-type]

    def _log_prob(self, batch: Batch) -> Float[Tensor, "M B"]:
        seen, order = (None if t is None else t[0] for t in (batch.seen, batch.order))
        members = self.member_log_prob(batch.x[0], seen=seen, order=order)
        return log_average(members, self.log_weights[0])[None]

    def _terms(self, x: Float[Tensor, "B D"], **more: Any) -> Float[Tensor, "B D"]:
        found = [part.log_conditionals(x, **more) for part in self._banks()]
        terms = torch.cat([t.view(-1, *x.shape) for t in found])
        joint = terms.sum(2) + self.log_weights[0][:, None]
        total = torch.logsumexp(joint, 0)
        r = joint.softmax(0)
        # 0 times the term of a member that gives the row no density is 0.
        mean = torch.where(r[:, :, None] > 0, r[:, :, None] * terms, 0.0).sum(0)
        seen = torch.ones_like(x) if more["seen"] is None else more["seen"].to(x)
        share = (total - mean.sum(1)) / seen.sum(1).clamp_min(1)
        return mean + share[:, None] * seen

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
