"""A model and a table in, findings out. Trains nothing but the two plain references."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rnade._version import __version__
from rnade.estimators.scoring import Judged
from rnade.report.asked import Asked, is_binary
from rnade.report.calibration import LEAST_JUDGED, ColumnCalibration, calibrations
from rnade.report.cautions import look_for_cautions
from rnade.report.cells import alone, gains_given_others
from rnade.report.dependence import Gain, gains
from rnade.report.findings import MOST_SHOWN, Findings, Table, TableFindings
from rnade.report.fitted import compare, describe
from rnade.report.kinds import describe_columns
from rnade.report.marginals import marginals
from rnade.report.oddness import find_odd
from rnade.report.references import reference_scores
from rnade.report.resemblance import (
    closest_columns,
    correlations,
    information,
    most_dependent,
    pairs,
)
from rnade.report.sentences import sentences
from rnade.report.words import listed, plural
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
    names, values, rows, fitted = asked.names, asked.values, asked.rows, describe(asked)
    judged, absent = asked.judged(), list[str]()
    scores, references, gained = (_of_kinds if asked.mixed else _of_numbers)(asked, judged, absent)
    n_sampled = max(FEWEST_SAMPLED, min(N_SAMPLED, SAMPLED_CELLS // len(names)))
    sampled = asked.sampled(n_sampled, random_state)
    compared = marginals(asked, sampled, range(len(names)))
    # Pairs are looked for among the columns where there is the most to see: all of them would take
    # the square of the columns.
    most_to_see = _means(gained) if gained is not None else [one.distance for one in compared]
    ranked = np.argsort(-np.nan_to_num(most_to_see), kind="stable")
    shown, correlated = np.sort(ranked[:MOST_SHOWN]), np.sort(ranked[:MOST_CORRELATED])
    some = values[np.linspace(0, len(values) - 1, min(len(sampled), len(values))).astype(int)]
    shared = information(asked, some, shown)
    calibration = _calibration(asked, random_state, absent)
    correlation, unordered = correlations(asked, correlated, some, sampled)
    if asked.mixed and len(names) > MOST_CORRELATED:
        absent.append(
            f"Correlations are of the {MOST_CORRELATED} columns that gain the most from others."
        )
    if unordered:
        absent.append(
            f"Levels without an order have no rank correlation: {listed(unordered)} left out of"
            " the correlations."
        )
    numbered = np.arange(1, len(values) + 1) if places is None else places
    dependent = most_dependent(shared, shown)
    several = len(names) > 1
    parts: dict[str, Any] = {
        "fitted": fitted,
        "table": Table(
            source, len(values), dropped_rows, rows.role, len(rows.judged), len(sampled)
        ),
        "scores": compare({fitted.kind: scores[rows.judged]} | references),
        "calibration": calibration,
        "marginals": compared,
        "pairs": pairs(names, dependent, values, sampled, N_POINTS, asked.columns)
        if several
        else None,
        "correlation": correlation if len(correlation.columns) > 1 else None,
        "oddness": find_odd(asked, judged, numbered),
        "gains": []
        if gained is None
        else gains(names, _order(asked), gained, closest_columns(shared, shown)),
        "cautions": [],
        "sentences": {},
        "absent": absent,
        "version": __version__,
    }
    found = Findings(**parts)
    if asked.mixed:
        kinds = describe_columns(estimator.schema_, values, asked.new_levels())
        found = TableFindings(**parts, columns=kinds)
    cautions = look_for_cautions(asked, scores, found)
    return replace(found, cautions=cautions, sentences=sentences(found))


def gains_of(estimator: Any, X: Any, *, random_state: int = 0) -> list[Gain]:
    """What each column gains from those before it, alone of all findings; the seed is of `Rows`.

    Of a table with levels, integers, dates or missing cells what it gains from all others.
    """
    asked = Asked.of(estimator, X, random_state)
    gained: Array | None
    if asked.mixed:
        gained = gains_given_others(asked)
    else:
        terms, _ = asked.scored()
        if terms is None:
            raise ValueError(f"{type(estimator).__name__} has no log_conditionals to compare.")
        gained = _gained(asked, terms, reference_scores(asked))
    if gained is None:
        raise ValueError(
            f"Expected more rows to compare columns by themselves with; got {len(asked.X)}."
        )
    return gains(asked.names, _order(asked), gained, {})


Parts = tuple[Array, dict[str, Array], Array | None]


def _of_numbers(asked: Asked, judged: Judged, absent: list[str]) -> Parts:
    """Log densities of all rows, those of the judged ones under plain models, and gains, (n, D).

    There are gains only where the model has log densities of single columns. What there is not is
    said.
    """
    terms, scores = asked.scored()
    references = reference_scores(asked)
    if not references:
        absent.append("There are too few rows to fit a reference model to.")
    elif "Gaussian" not in references and not is_binary(asked.estimator):
        absent.append("A Gaussian with a full covariance takes more rows than columns to fit.")
    if terms is None:
        absent.append(
            f"{type(asked.estimator).__name__} has no log density for single columns, so this page"
            " cannot say which columns make a row odd, nor what each column gains from others."
        )
    totals = {name: X.sum(axis=1) if X.ndim == 2 else X for name, X in references.items()}
    return scores, totals, _gained(asked, terms, references)


def _of_kinds(asked: Asked, judged: Judged, absent: list[str]) -> Parts:
    """The same of a model of a table with levels, integers, dates, atoms or missing cells."""
    absent.append(
        "A Gaussian takes complete columns of numbers, so none is set beside this model."
    )
    scores = judged.scores
    if asked.rows.role == "fitted":  # by the model itself, and not out of fold
        scores = np.asarray(asked.estimator.score_samples(asked.given()))
    by_columns = np.nansum(alone(asked, asked.rows.judged), axis=1)
    return scores, {"independent columns": by_columns}, gains_given_others(asked)


def _gained(asked: Asked, terms: Array | None, references: dict[str, Array]) -> Array | None:
    """What the model's log conditionals are above the log densities of columns by themselves."""
    own = references.get("independent columns")
    return None if terms is None or own is None else terms[asked.rows.judged] - own


def _order(asked: Asked) -> list[int] | None:
    """The model's order of columns; None of tables of any kind, which are asked in all orders."""
    return None if asked.mixed else asked.order


def _means(gained: Array) -> Array:
    """Mean of what is observed of each column; NaN where nothing is."""
    n = (~np.isnan(gained)).sum(axis=0)
    return np.where(n > 0, np.nansum(gained, axis=0) / np.maximum(n, 1), np.nan)


def _calibration(asked: Asked, seed: int, absent: list[str]) -> list[ColumnCalibration]:
    judged = asked.rows.judged
    if not hasattr(asked.estimator, "pit"):
        absent.append(
            f"{type(asked.estimator).__name__} has no distribution function for single columns, so"
            " their calibration cannot be checked."
        )
        return []
    if len(judged) < LEAST_JUDGED:
        rows = plural(len(judged), "row")
        absent.append(f"Calibration cannot be judged by {rows}; it takes {LEAST_JUDGED}.")
        return []
    n = (~np.isnan(asked.values[judged])).sum(axis=0)
    few = [name for name, m in zip(asked.names, n, strict=True) if m < LEAST_JUDGED]
    if few:
        absent.append(
            f"The calibration of {listed(few)} cannot be judged: it takes {LEAST_JUDGED} observed"
            " cells among the judged rows."
        )
    return calibrations(asked, judged, range(len(asked.names)), seed)
