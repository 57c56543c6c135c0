"""A model and a table in, findings out. Trains nothing but the two plain references."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rnade._version import __version__
from rnade.columns import as_fitted
from rnade.report import sentences
from rnade.report.asked import Asked, ReferenceScores
from rnade.report.calibration import LEAST_JUDGED, ColumnCalibration, calibrate
from rnade.report.cautions import look_for_cautions
from rnade.report.dependence import Gain, gains
from rnade.report.findings import MOST_SHOWN, Findings, Table
from rnade.report.fitted import compare, describe
from rnade.report.oddness import find_odd
from rnade.report.resemblance import (
    Correlation,
    closest_columns,
    marginal,
    most_dependent,
    mutual_information,
    pairs,
    rank_correlation,
)
from rnade.report.words import plural
from rnade.typing import Array

# Rows drawn from the model; as many real ones at most enter correlations. A correlation is then
# known within 0.01. Tables of more than 200 columns take fewer, so that their cost grows with the
# columns alone.
N_SAMPLED, FEWEST_SAMPLED, SAMPLED_CELLS = 20_000, 1000, 4_000_000
# Every pair of so many columns is correlated; of wider tables, those that gain the most.
MOST_CORRELATED = 300
# Points in each cell of the matrix of pairs.
N_POINTS = 700


def study(
    estimator: Any,
    X: Any,
    *,
    source: str = "the table",
    places: NDArray[np.int64] | None = None,
    dropped_rows: int = 0,
    random_state: int = 0,
) -> Findings:
    """Find out what a model found in a table, and how far to trust it.

    Every row is scored; rows are sampled down only to be drawn or correlated. Sections that need
    what a model does not have (`log_conditionals`, `pit`) are left out, and `absent` says so.

    Parameters
    ----------
    estimator : fitted estimator
        Anything with `score_samples`, `sample` and `n_features_in_`.
    X : array-like or data frame of shape (N, D)
        A frame may have more columns than the model.
    source : str
        Name of the table, for people.
    places : array of shape (N,), optional
        Which row of the file each row is, counted from 1.
    dropped_rows : int
        Rows of the file left out for a missing cell.
    random_state : int
        Seed of samples, of the randomised transform and of the split for the references.

    Returns
    -------
    Findings
    """
    asked = Asked.of(estimator, X, random_state)
    rows, names = asked.rows, asked.names
    fitted = describe(estimator, names)
    absent: list[str] = []
    terms, scores = asked.scored()
    references = asked.reference_scores()
    compared = compare({fitted.kind: scores[rows.judged]} | _reference_lines(references, absent))
    sampled = estimator.sample(_n_sampled(len(names)), random_state=random_state)
    marginals = [
        marginal(name, asked.values[:, d], sampled[:, d], float(asked.steps[d]))
        for d, name in enumerate(names)
    ]
    # Pairs are looked for among the columns where there is the most to see: all of them would take
    # the square of the columns.
    ranked = np.argsort([-column.distance for column in marginals], kind="stable")
    gained = None if terms is None or references is None else terms[rows.judged] - references.alone
    if terms is None:
        absent.append(
            f"{fitted.kind} has no log density for single columns, so this page cannot say which"
            " columns make a row odd, nor what each column gains from others."
        )
    elif gained is not None:
        ranked = np.argsort(-gained.mean(axis=0), kind="stable")
    some = _some(asked.values, len(sampled))
    shown, correlated = np.sort(ranked[:MOST_SHOWN]), np.sort(ranked[:MOST_CORRELATED])
    shared = mutual_information(some, shown)
    found_gains = (
        [] if gained is None else gains(names, asked.order, gained, closest_columns(shared, shown))
    )
    numbered = np.arange(1, len(scores) + 1) if places is None else places
    oddness = find_odd(asked, scores, terms, sampled, numbered)
    share_odd = next(t.share for t in oddness.thresholds if t.level == 0.01)
    several = len(names) > 1
    found = Findings(
        fitted=fitted,
        table=Table(source, len(scores), dropped_rows, rows.role, len(rows.judged), len(sampled)),
        scores=compared,
        calibration=_calibration(asked, random_state, absent),
        marginals=marginals,
        pairs=pairs(names, most_dependent(shared, shown), asked.values, sampled, N_POINTS)
        if several
        else None,
        correlation=Correlation(
            [names[d] for d in correlated],
            rank_correlation(some[:, correlated]),
            rank_correlation(sampled[:, correlated]),
        )
        if several
        else None,
        oddness=oddness,
        gains=found_gains,
        cautions=look_for_cautions(asked, fitted, scores, compared, found_gains, share_odd),
        sentences={},
        absent=absent,
        version=__version__,
    )
    found.sentences.update(_sentences(found))
    return found


def gains_of(estimator: Any, X: Any, *, random_state: int = 0) -> list[Gain]:
    """What each column gains from those before it, alone of all findings.

    Parameters
    ----------
    estimator : fitted estimator with `log_conditionals`
    X : array-like or data frame of shape (N, D)
    random_state : int
        Of the split for columns by themselves.
    """
    asked = Asked.of(estimator, X, random_state)
    terms, _ = asked.scored()
    references = asked.reference_scores()
    if terms is None:
        raise ValueError(f"{type(estimator).__name__} has no log_conditionals to compare.")
    if references is None:
        raise ValueError(
            f"Expected more rows to compare columns by themselves with; got {len(asked.X)}."
        )
    return gains(asked.names, asked.order, terms[asked.rows.judged] - references.alone, {})


def _n_sampled(n_columns: int) -> int:
    return max(FEWEST_SAMPLED, min(N_SAMPLED, SAMPLED_CELLS // n_columns))


def _some(X: Array, most: int) -> Array:
    """Rows at even distances, so many at most."""
    return np.asarray(X[np.linspace(0, len(X) - 1, min(most, len(X))).astype(int)])


def _reference_lines(references: ReferenceScores | None, absent: list[str]) -> dict[str, Array]:
    """Log densities of the judged rows by the name of the reference model."""
    if references is None:
        absent.append("There are too few rows to fit a reference model to.")
        return {}
    alone = {"independent columns": references.alone.sum(axis=1)}
    if references.gaussian is not None:
        return {"Gaussian": references.gaussian} | alone
    if not references.of_bits:
        absent.append("A Gaussian with a full covariance takes more rows than columns to fit.")
    return alone


def _calibration(asked: Asked, seed: int, absent: list[str]) -> list[ColumnCalibration]:
    estimator = asked.estimator
    if not hasattr(estimator, "pit"):
        absent.append(
            f"{type(estimator).__name__} has no distribution function for single columns, so their"
            " calibration cannot be checked."
        )
        return []
    n_judged = len(asked.rows.judged)
    if n_judged < LEAST_JUDGED:
        absent.append(
            f"Calibration cannot be judged by {plural(n_judged, 'row')}; it takes {LEAST_JUDGED}."
        )
        return []
    judged = as_fitted(estimator, asked.X[asked.rows.judged])
    return calibrate(asked.names, estimator.pit(judged, random_state=seed))


def _sentences(found: Findings) -> dict[str, str]:
    fitted, table = found.fitted, found.table
    said = {
        "summary": sentences.summary(fitted, table),
        "comparison": sentences.comparison(found.scores, table, binary=fitted.binary),
        "marginals": sentences.marginals(found.marginals),
        "oddness": sentences.oddness(found.oddness, table),
    }
    if fitted.curve is not None:
        said["curve"] = sentences.curve(fitted)
    if found.calibration:
        said["calibration"] = sentences.calibration(found.calibration, table.n_judged)
    if found.correlation is not None:
        said["correlation"] = sentences.correlation(found.correlation)
    if found.gains:
        said["gains"] = sentences.gains(found.gains)
    return said
