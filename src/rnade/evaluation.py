"""Figures about held-out rows: mean log-likelihood, its standard errors, conformal p-values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rnade.checks import number_between
from rnade.typing import Array


@dataclass(frozen=True)
class MeanScore:
    """A mean log-likelihood in nats per row, and its standard error over rows."""

    mean: float
    standard_error: float
    n_rows: int


def mean_score(scores: Array, weights: Array | None = None) -> MeanScore:
    """Summarise log densities of independent rows, which may have weights.

    The standard error is that of a weighted mean, sqrt(sum w^2 (s - mean)^2) / sum w, times
    sqrt(n / (n - 1)); for equal weights the usual one.
    """
    n = len(scores)
    if weights is None:
        error = float(scores.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
        return MeanScore(float(scores.mean()), error, n)
    mean = np.average(scores, weights=weights)
    square = np.square(weights * (scores - mean)).sum() / weights.sum() ** 2
    error = float(np.sqrt(square * n / (n - 1))) if n > 1 else float("nan")
    return MeanScore(float(mean), error, n)


def standard_error_by_group(scores: Array, groups: NDArray[np.int64]) -> float:
    """Standard error of the mean where the rows of a group (an image, a speaker) go together.

    Groups are taken as drawn at random, rows within one as drawn from it: the deviations from the
    mean are added up within each group, and these sums are independent. NaN for one group.

    Parameters
    ----------
    scores : array of shape (N,)
    groups : array of shape (N,)
        The number of each row's group.
    """
    sums = np.bincount(groups, weights=scores - scores.mean())
    n = np.count_nonzero(np.bincount(groups))
    if n < 2:
        return float("nan")
    return float(np.sqrt(n / (n - 1) * np.square(sums).sum()) / len(scores))


# Log densities that differ by less, relative to their size, are equal: the last digits of a row's
# log density depend on the rows that are computed beside it, and equal rows are to tie.
TIE = 1e-9


@dataclass(frozen=True)
class Calibration:
    """Log densities of rows by models that did not learn from them, for p-values.

    The rows form groups. Of an average of models, the first group are the rows that `fit` held
    out, scored by all models; each further one are rows that some of the models have left out,
    scored by these. One model has the first group alone.

    Attributes
    ----------
    scores : array of shape (n,)
        Group after group, ascending within each.
    weights : array of shape (n,)
        Row weights, with mean 1.
    sizes : int array of shape (G,), optional
        How many rows each group has; None for one group.
    models : bool array of shape (G, M), optional
        Which of the M models score each group; None for one group, scored by the model itself.
    shifts : array of shape (G,), optional
        How much more all models together give a typical row than those of each group do.
    """

    scores: Array
    weights: Array
    sizes: NDArray[np.int64] | None = None
    models: NDArray[np.bool_] | None = None
    shifts: Array | None = None

    @classmethod
    def from_scores(cls, scores: Array, weights: Array | None = None) -> "Calibration":
        """Make one group of the scores of held-out rows."""
        return cls.from_groups([scores], None if weights is None else [weights])

    @classmethod
    def from_groups(
        cls,
        scores: Sequence[Array],
        weights: Sequence[Array] | None = None,
        models: NDArray[np.bool_] | None = None,
        shifts: Array | None = None,
    ) -> "Calibration":
        """Sort the scores of each group, its rows' weights beside them.

        Parameters
        ----------
        scores : sequence of arrays
            Of each group.
        weights : sequence of arrays, optional
            Of the same rows; None for equal ones.
        models, shifts
            As the attributes.
        """
        weights = [np.ones_like(own) for own in scores] if weights is None else weights
        mean = np.concatenate(weights).mean()
        ascending = [_sorted(*own) for own in zip(scores, weights, strict=True)]
        return cls(
            np.concatenate([own for own, _ in ascending]),
            np.concatenate([own for _, own in ascending]) / mean,
            np.array([len(own) for own in scores]) if len(scores) > 1 else None,
            models,
            shifts,
        )

    @property
    def n_groups(self) -> int:
        """G."""
        return 1 if self.sizes is None else len(self.sizes)

    def group(self, g: int) -> tuple[Array, Array]:
        """Scores and weights of the rows of one group; group 0 are those that `fit` held out."""
        if self.sizes is None:
            return self.scores, self.weights
        end = int(self.sizes[: g + 1].sum())
        own = slice(end - int(self.sizes[g]), end)
        return self.scores[own], self.weights[own]

    @property
    def smallest(self) -> float:
        """The smallest p-value possible, 1 / (1 + n)."""
        return float(1 / (1 + self.weights.sum()))

    def pvalue(self, scores: Array) -> Array:
        """Cross-conformal p-value: the share of calibration rows that are at most as likely.

        Each group compares a row with its own rows under its own models. The row itself counts as
        one of all n, (1 + #{calibration <= score}) / (n + 1), so that among rows like the training
        data p <= alpha happens with a probability of about alpha (at most alpha for one group).

        Parameters
        ----------
        scores : array of shape (n_new,), or (G, n_new) for several groups
            Log densities of new rows by the models of each group.
        """
        by_group = np.atleast_2d(scores)
        if len(by_group) != self.n_groups:
            raise ValueError(
                f"Expected scores by the models of {self.n_groups} groups; got {len(by_group)}."
            )
        mass = sum(mass_below(*self.group(g), own) for g, own in enumerate(by_group))
        return np.asarray((1 + mass) / (1 + self.weights.sum()))

    def quantile(self, share: float) -> float:
        """The log density below which a share of rows like those fitted fall.

        As all models together score them.
        """
        pooled = self.pooled()
        middles = np.cumsum(pooled.weights) - pooled.weights / 2
        return float(np.interp(share, middles / pooled.weights.sum(), pooled.scores))

    def pooled(self) -> "Calibration":
        """All rows as one group, their scores shifted to those of all models together.

        For thresholds of log densities, which p-values of several groups do not have: these are
        about right, where the p-values are exact.
        """
        if self.shifts is None or self.sizes is None:
            return self
        return Calibration(
            *_sorted(self.scores + np.repeat(self.shifts, self.sizes), self.weights)
        )


def mass_below(scores: Array, weights: Array, limits: Array) -> Array:
    """Weight of the rows that are at most as likely as each limit.

    Parameters
    ----------
    scores : array of shape (n,), ascending
    weights : array of shape (n,)
    limits : array of shape (m,)

    Returns
    -------
    array of shape (m,)
    """
    # A log density of -inf stays what it is.
    slack = TIE * np.clip(np.abs(limits), 1.0, 1e300)
    below = np.searchsorted(scores, limits + slack, side="right")
    return np.concatenate([[0.0], np.cumsum(weights)])[below]


def left_out_pvalues(
    scores: Sequence[Array], held_out: Array, weights: Sequence[Array], shifts: Array
) -> Array:
    """P-values of the very rows that calibrate: the share of rows that are at most as likely.

    A row counts itself as one of n rows, (1 + #{others <= score}) / n. Rows that were held out are
    compared with those of a group under the models of this group; rows of different groups, which
    no model has both left out, by their log densities shifted to those of all models together.

    Parameters
    ----------
    scores : sequence of G arrays
        Log densities of the rows of each group by its models; of the first, the held-out rows, by
        all models.
    held_out : array of shape (G, n_0)
        Log densities of the held-out rows by the models of each group.
    weights : sequence of G arrays
    shifts : array of shape (G,)
        As of `Calibration`.

    Returns
    -------
    array of shape (n,)
        Group after group, in the order of `scores`.
    """
    mean = np.concatenate(weights).mean()
    weights = [own / mean for own in weights]
    # Rows of all groups but the first together, as all models would score them.
    shifted = [own + shift for own, shift in zip(scores, shifts, strict=True)]
    none = np.empty(0)
    pooled = _sorted(np.concatenate([none, *shifted[1:]]), np.concatenate([none, *weights[1:]]))
    below = [mass_below(*_sorted(scores[0], weights[0]), scores[0])]
    for own, w, by_models, alike in zip(
        scores[1:], weights[1:], held_out[1:], shifted[1:], strict=True
    ):
        below[0] = below[0] + mass_below(*_sorted(own, w), by_models)
        unseen = mass_below(*_sorted(by_models, weights[0]), own)
        below.append(mass_below(*pooled, alike) + unseen)
    w = np.concatenate(weights)
    return np.asarray((1 + np.concatenate(below) - w) / (1 + w.sum() - w))


def benjamini_hochberg(p_values: ArrayLike, fdr: float) -> NDArray[np.bool_]:
    """Which rows to report so that about a share `fdr` of those reported, at most, are usual ones.

    The largest k is taken for which k of the n p-values are at most k / n * fdr. Conformal
    p-values depend on each other in a way for which this holds (Bates et al. 2023).

    Parameters
    ----------
    p_values : array-like of shape (n,)
        NaN where a row has none; such rows are not reported, nor counted.
    fdr : float
        False discovery rate, above 0 and at most 1.

    Returns
    -------
    bool array of shape (n,)

    References
    ----------
    Benjamini and Hochberg (1995), Controlling the false discovery rate.
    Bates, Candes, Lei, Romano and Sesia (2023), Testing for outliers with conformal p-values.

    Examples
    --------
    >>> benjamini_hochberg([0.001, 0.8, 0.03, 0.02], fdr=0.1)
    array([ True, False,  True,  True])
    """
    number_between(fdr, "fdr", 0, 1, open_low=True)
    p = np.asarray(p_values, dtype=np.float64)
    known = np.sort(p[~np.isnan(p)])
    enough = np.flatnonzero(known <= np.arange(1, len(known) + 1) / len(known) * fdr)
    # NaN is never at most anything.
    return np.asarray(p <= (known[enough[-1]] if len(enough) else -np.inf))


def networks_of(members: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The members of an average that were trained by epochs, as mixtures of Gaussians are not.

    All, if there are only mixtures.
    """
    return [member for member in members if not member.get("mixture")] or list(members)


def weights_by_kind(members: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What share of an average each kind of model has, by its words, the largest first.

    Parameters
    ----------
    members : sequence of mappings
        As `RNADE.members_`; those of files of earlier versions name no kinds.
    """
    found: dict[str, float] = {}
    for member in members:
        if member.get("kind"):
            found[member["kind"]] = found.get(member["kind"], 0.0) + member["weight"]
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def _sorted(scores: Array, weights: Array) -> tuple[Array, Array]:
    order = np.argsort(scores, kind="stable")
    return scores[order], weights[order]
