"""The plain models that every page sets beside the fitted one."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, softmax
from scipy.stats import Covariance, multivariate_normal

from rnade.columns import Resolution
from rnade.report.asked import Asked, is_binary
from rnade.typing import Array

# Fewer rows than this to fit a reference to, and there is none.
_LEAST_ROWS = 10
_LOG_2PI = float(np.log(2 * np.pi))
# Added to the variances of standardised columns: columns that repeat each other then do no harm.
_RIDGE = 1e-6

_MOST_COMPONENTS = 10
_ROWS_A_COMPONENT = 50
_EM_STEPS = 60
_PULL = 1e-4
# A column's values, sorted, are put into this many groups of equal size before EM.
_GROUPS = 500


def reference_scores(asked: Asked) -> dict[str, Array]:
    """Log densities of the judged rows under plain models fitted to other rows.

    Returns
    -------
    dict of str to array
        "Gaussian" of shape (n,), unless of bits or of as many columns as rows, whose covariance
        would be singular; "independent columns" of shape (n, D), of each column by itself. Empty
        if there are too few rows.
    """
    folds, values, D = asked.rows.folds, asked.values, len(asked.names)
    fewest = min((len(learned) for learned, _ in folds), default=0)
    if fewest < _LEAST_ROWS or len(asked.rows.judged) < 2:
        return {}

    def scored(log_density: Callable[[Array, Array], Array]) -> Array:
        found = [log_density(values[learned], values[rows]) for learned, rows in folds]
        ascending = np.argsort(np.concatenate([rows for _, rows in folds]))
        return np.concatenate(found)[ascending]

    if is_binary(asked.estimator):
        return {
            "independent columns": scored(
                lambda X, rows: IndependentBits.fit(X).log_densities(rows)
            )
        }
    floors = _floors(asked)
    gaussian = {"Gaussian": scored(gaussian_log_density)} if fewest > D else {}
    alone = scored(lambda X, rows: IndependentMixtures.fit(X, floors).log_densities(rows))
    return gaussian | {"independent columns": alone}


def _floors(asked: Asked) -> Array:
    """Smallest deviation of a component, in units of the column's, as in the model."""
    floor = getattr(asked.estimator, "sigma_floor", "auto")
    if isinstance(floor, str):
        return Resolution(asked.steps).floors(_spread(asked.values))
    return np.full(len(asked.names), float(floor))


def gaussian_log_density(learned: Array, rows: Array) -> Array:
    """Log densities of rows under one Gaussian with the mean and full covariance of others.

    In nats and in the data's units.
    """
    mean, scale = learned.mean(axis=0), _spread(learned)
    Z = (learned - mean) / scale
    factor = np.linalg.cholesky(Z.T @ Z / len(Z) + _RIDGE * np.eye(Z.shape[1]))
    law = multivariate_normal(cov=Covariance.from_cholesky(factor))
    return np.asarray(np.atleast_1d(law.logpdf((rows - mean) / scale)) - np.log(scale).sum())


@dataclass(frozen=True)
class IndependentMixtures:
    """Columns that know nothing of each other, each with its own mixture of Gaussians, (D, K)."""

    log_weights: Array
    means: Array
    deviations: Array

    @classmethod
    def fit(cls, X: Array, floors: Array) -> "IndependentMixtures":
        """Expectation-maximisation over all columns at once.

        Each column's sorted values are first put into groups of equal size, of which mean and
        variance are kept: hundreds of numbers in place of a hundred thousand, and little lost.
        Each variance is pulled a little towards that of the column, so that no component vanishes
        on a single value.

        Parameters
        ----------
        X : array of shape (N, D)
        floors : array of shape (D,)
            Smallest deviation of a component in units of the column's, as in the fitted model:
            without the same floor the two could not be compared on repeated values.
        """
        n = len(X)
        K = int(np.clip(n // _ROWS_A_COMPONENT, 1, _MOST_COMPONENTS))
        scale = _spread(X)
        groups = np.array_split(np.sort((X - X.mean(axis=0)) / scale, axis=0), min(n, _GROUPS))
        size = np.array([len(group) for group in groups]) / n  # (G,)
        center = np.stack([group.mean(axis=0) for group in groups], axis=1)  # (D, G)
        within = np.stack([group.var(axis=0) for group in groups], axis=1)
        at = ((np.arange(K) + 0.5) / K * center.shape[1]).astype(int)
        means = center[:, at].copy()
        # Narrow at the start, or neighbouring components stay together on whole numbers.
        variances = np.full_like(means, 1 / K**2)
        weights = np.full_like(means, 1 / K)
        for _ in range(_EM_STEPS):
            # Of each group under each component, within the group on average: (D, G, K).
            square = (center[:, :, None] - means[:, None]) ** 2 + within[:, :, None]
            log_joint = np.log(weights / np.sqrt(variances))[:, None]
            log_joint = log_joint - 0.5 * square / variances[:, None]
            share = size[:, None] * softmax(log_joint, axis=2)
            mass = share.sum(axis=1) + 1e-12
            weights = mass / mass.sum(axis=1, keepdims=True)
            means = (share * center[:, :, None]).sum(axis=1) / mass
            square = (center[:, :, None] - means[:, None]) ** 2 + within[:, :, None]
            spread = (share * square).sum(axis=1) * n
            variances = (spread + _PULL / K**2) / (mass * n + 1) + floors[:, None] ** 2
        return cls(
            np.log(weights),
            means * scale[:, None] + X.mean(axis=0)[:, None],
            np.sqrt(variances) * scale[:, None],
        )

    def log_densities(self, X: Array) -> Array:
        """Log density of each value in its column, of shape (N, D)."""
        terms = np.empty_like(X)
        constant = self.log_weights - np.log(self.deviations) - 0.5 * _LOG_2PI
        for d in range(X.shape[1]):
            u = (X[:, d, None] - self.means[d]) / self.deviations[d]
            terms[:, d] = logsumexp(constant[d] - 0.5 * u * u, axis=1)
        return terms


@dataclass(frozen=True)
class IndependentBits:
    """Binary columns that know nothing of each other, with the probability of a 1 in each.

    One row of each value is added to those counted.
    """

    probability: Array

    @classmethod
    def fit(cls, X: Array) -> "IndependentBits":
        """Count the ones."""
        return cls((X.sum(axis=0) + 1) / (len(X) + 2))

    def log_densities(self, X: Array) -> Array:
        """Log probability of each bit, of shape (N, D)."""
        return np.where(X > 0.5, np.log(self.probability), np.log1p(-self.probability))


def _spread(X: Array) -> Array:
    """Standard deviations, 1 for a column that never changes."""
    deviation = X.std(axis=0)
    return np.where(deviation > 0, deviation, 1.0)
