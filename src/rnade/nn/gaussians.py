r"""A mixture of Gaussians beside the networks of a table of numbers, to predict any column.

Smooth columns that depend on each other nearly linearly are predicted better by Gaussians than by
networks, which no single column tells beforehand. On the smooth scale t of each column,

.. math:: p(t) = \sum_k \alpha_k N(t; \mu_k, \Sigma_k)

gives, for any column d and any given others, the shares, means and variances of K components:
given cells change them one at a time, in closed form. A share w_d of column d's distribution is
theirs, as components of the kind that heads have (`rnade.backends.heads`), logistic with the same
mean and variance; so that they are cut off at the ends of the range like these, and densities,
distribution functions, quantiles and draws need nothing else.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rnade.backends.heads import (
    LARGEST_LOG_SCALE,
    SMALLEST_LOG_SCALE,
    Layout,
    component_log_densities,
)
from rnade.columns.partition import CODE, POSITION

# Scale of a logistic distribution of variance 1.
LOGISTIC_SCALE = math.sqrt(3) / math.pi
# Positions further out than this tell no more.
FARTHEST = 4.0
# Conditional variances are no smaller: of a column that others determine, rounding would decide.
LEAST_VARIANCE = math.exp(2 * SMALLEST_LOG_SCALE)


class Gaussians(nn.Module):
    """Mixture of K Gaussians on the smooth scales of D columns, and its share of each column.

    Attributes
    ----------
    log_alpha : Tensor of shape (K,)
    mu : Tensor of shape (K, D)
    covariance : Tensor of shape (K, D, D)
    share : Tensor of shape (D,)
        How much of each column's distribution is the mixture's, between 0 and 1.
    """

    log_alpha: Tensor
    mu: Tensor
    covariance: Tensor
    share: Tensor

    def __init__(self, n_columns: int, n_components: int) -> None:
        super().__init__()
        D, K = n_columns, n_components
        self.register_buffer("log_alpha", torch.full((K,), -math.log(K)))
        self.register_buffer("mu", torch.zeros(K, D))
        self.register_buffer("covariance", torch.eye(D).repeat(K, 1, 1))
        self.register_buffer("share", torch.full((D,), 0.5))

    @property
    def n_components(self) -> int:
        """K."""
        return len(self.log_alpha)

    @property
    def numbers_of_a_row(self) -> int:
        """That a row takes whose given cells are its own."""
        return self.covariance.numel()

    def in_single_precision(self) -> "Gaussians":
        """The same mixture in float32."""
        return copy.deepcopy(self).float()

    def start(self, n: int) -> "Given":
        """Components for n rows of which nothing is given yet."""
        log_weight = self.log_alpha.expand(n, -1)
        columns = list(range(len(self.share)))
        return Given(self, columns, log_weight, self.mu.expand(n, -1, -1), self.covariance[None])

    def given(self, cells: Tensor, known: Tensor) -> "Given":
        """Components given the known cells of each row.

        Parameters
        ----------
        cells : Tensor of shape (n, D, 4 or more)
        known : bool Tensor of shape (n, D)
        """
        found = self.start(len(cells))
        for d in known.any(0).nonzero()[:, 0].tolist():
            found.tell(d, cells[:, d], known[:, d], last=bool(known[:, d].all()))
        return found


@dataclass
class Components:
    """Of one column of B rows, K logistic components each and the share of the column they have.

    Attributes
    ----------
    share : float
    log_weight, mu, log_scale : Tensor of shape (B, K)
        Logarithms of weights that are 1 together, means, and logarithms of scales.
    """

    share: float
    log_weight: Tensor
    mu: Tensor
    log_scale: Tensor

    def log_densities(self, cells: Tensor, layout: Layout) -> Tensor:
        """Log density of one cell of each row that lies inside the range, (B,).

        Parameters
        ----------
        cells : Tensor of shape (B, 4 or more)
        layout : Layout
            Of the column alone.
        """
        z = torch.cat([self.mu, self.log_scale], -1)[:, None]
        each = component_log_densities(z, cells[:, None], layout)[:, 0]
        inside: Tensor = layout.log_inside.to(z)
        return inside + torch.logsumexp(self.log_weight + each, -1)

    def mixed(self, of_networks: Tensor, cells: Tensor, layout: Layout) -> Tensor:
        """Log densities by networks, (..., B), with these components' share mixed in."""
        if not self.share:
            return of_networks
        both = torch.logaddexp(
            of_networks + math.log1p(-self.share),
            self.log_densities(cells, layout) + math.log(self.share),
        )
        return torch.where(cells[:, CODE] >= 0, both, of_networks)

    @classmethod
    def joined(cls, parts: Sequence["Components"]) -> "Components":
        """Those of all rows of several parts."""
        names = ("log_weight", "mu", "log_scale")
        return cls(parts[0].share, *(torch.cat([getattr(p, n) for p in parts]) for n in names))

    def take(self, rows: Tensor | slice) -> "Components":
        """Those of some rows, in float64 on the CPU."""
        each = (self.log_weight, self.mu, self.log_scale)
        return Components(self.share, *(t[rows].double().cpu() for t in each))


class Given:
    """The components of each of n rows, given some of its cells.

    Covariances do not depend on what the given cells hold, so that rows of which the same cells
    are given have them in common.

    Attributes
    ----------
    columns : list of int
        That can still be asked for, in the order of the means and covariances.
    """

    def __init__(
        self,
        gaussians: Gaussians,
        columns: list[int],
        log_weight: Tensor,
        mean: Tensor,
        covariance: Tensor,
    ) -> None:
        self.gaussians, self.columns = gaussians, columns
        self._log_weight, self._mean, self._covariance = log_weight, mean, covariance
        self._own = False  # whether no other has these tensors

    def copy(self) -> "Given":
        """The same, to be told of other cells."""
        return Given(self.gaussians, self.columns, self._log_weight, self._mean, self._covariance)

    def tell(self, d: int, cells: Tensor, seen: Tensor, *, last: bool) -> None:
        """Condition on a cell of each row in which it is seen.

        Parameters
        ----------
        d : int
        cells : Tensor of shape (n, 4 or more)
        seen : bool Tensor of shape (n,)
        last : bool
            Whether the column is not asked for any more, of whatever row.
        """
        j, C = self.columns.index(d), self._covariance  # (1 or n, K, D, D)
        stays = [i for i in range(len(self.columns)) if i != j or not last]
        rest = torch.tensor(stays, dtype=torch.int64, device=C.device)
        variance = C[..., j, j].clamp_min(LEAST_VARIANCE)
        row = C[..., j, :].index_select(-1, rest)
        gain = row / variance[..., None]
        if not bool(seen.all()):
            gain = torch.where(seen[:, None, None], gain, 0.0)
        t = cells[:, POSITION].to(self._mean).clamp(-FARTHEST, FARTHEST)
        apart = torch.where(seen[:, None], t[:, None] - self._mean[..., j], 0.0)  # (n, K)
        log_term = -0.5 * (apart.square() / variance + variance.log())
        self._log_weight = self._log_weight + torch.where(seen[:, None], log_term, 0.0)
        self._mean = self._mean.index_select(-1, rest) + gain * apart[..., None]
        C = C.index_select(-2, rest).index_select(-1, rest) if last else C
        n, K, r = gain.shape
        changed = torch.baddbmm(
            C.expand(n, K, r, r).reshape(n * K, r, r),
            gain.reshape(n * K, r, 1),
            row.expand_as(gain).reshape(n * K, 1, r),
            alpha=-1,
        )
        self._covariance = changed.view(n, K, r, r)
        self.columns = [self.columns[i] for i in stays]

    def tell_of(self, d: int, rows: Tensor, cells: Tensor) -> None:
        """Condition some rows on a cell of each, in place.

        Parameters
        ----------
        d : int
        rows : int64 Tensor of shape (k,)
        cells : Tensor of shape (k, 4 or more)
        """
        n = len(self._mean)
        if not self._own:
            self._log_weight, self._mean = self._log_weight.clone(), self._mean.clone()
            self._covariance = self._covariance.expand(n, -1, -1, -1).clone()
            self._own = True
        part = self.rows(rows)
        seen = torch.ones(len(cells), dtype=torch.bool, device=cells.device)
        part.tell(d, cells, seen, last=False)
        self._log_weight[rows], self._mean[rows] = part._log_weight, part._mean
        self._covariance[rows] = part._covariance

    def rows(self, rows: Tensor | slice) -> "Given":
        """Some rows."""
        C = self._covariance
        own = C if len(C) == 1 else C[rows]
        return Given(self.gaussians, self.columns, self._log_weight[rows], self._mean[rows], own)

    def components(self, d: int) -> Components:
        """The components of a column that is not given."""
        j = self.columns.index(d)
        variance = self._covariance[..., j, j].clamp_min(LEAST_VARIANCE)
        log_scale = 0.5 * variance.log() + math.log(LOGISTIC_SCALE)
        log_scale = log_scale.clamp(SMALLEST_LOG_SCALE, LARGEST_LOG_SCALE)
        mean = self._mean[..., j]
        return Components(
            float(self.gaussians.share[d]),
            self._log_weight.log_softmax(-1),
            mean,
            log_scale.expand_as(mean),
        )
