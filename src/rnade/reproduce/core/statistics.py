"""The paired t-test over folds, and what the paper's use of it calls the best group."""

from collections.abc import Mapping

import numpy as np
from scipy import stats

from rnade.typing import Array

SIGNIFICANCE = 0.05


def paired_p_value(a: Array, b: Array) -> float:
    """Two-sided p-value of the paired t-test that scores on the same folds have the same mean."""
    difference = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    n = len(difference)
    if n < 2:
        return 1.0
    error = difference.std(ddof=1) / np.sqrt(n)
    if error == 0:
        return 1.0 if difference[0] == 0 else 0.0
    return float(2 * stats.t.sf(abs(difference.mean()) / error, df=n - 1))


def best_group(scores: Mapping[str, Array]) -> set[str]:
    """Models that the paper would print in bold, of all with their scores on the same folds.

    All others are significantly worse than at least one of them, by a paired t-test on the folds'
    mean log-likelihoods: taken from the best mean downwards, a model joins the group unless one
    in the group is better than it at this level. The test is two-sided; the paper does not say.
    """
    group: list[str] = []
    for name in sorted(scores, key=lambda name: -float(np.mean(scores[name]))):
        if all(paired_p_value(scores[best], scores[name]) >= SIGNIFICANCE for best in group):
            group.append(name)
    return set(group)
