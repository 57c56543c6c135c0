"""A model and a table in, findings out. Trains nothing but the two plain references."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rnade._version import __version__
from rnade.report.asked import Asked, is_binary, sampled_values
from rnade.report.calibration import LEAST_JUDGED, ColumnCalibration, calibrations
from rnade.report.cautions import look_for_cautions
from rnade.report.dependence import Gain, gains
from rnade.report.findings import MOST_SHOWN, Findings, Table
from rnade.report.fitted import compare, describe
from rnade.report.oddness import find_odd
from rnade.report.references import reference_scores
from rnade.report.resemblance import (
    Correlation,
    closest_columns,
    marginals,
    most_dependent,
    mutual_information,
    pairs,
)
from rnade.report.sentences import sentences
from rnade.report.tables import (
    MOST_CORRELATED,
    N_POINTS,
    gains_given_others,
    gains_of_kinds,
    study_table,
)
from rnade.report.words import plural
from rnade.typing import Array

# Rows drawn from the model; as many real ones at most enter correlations. A correlation is then
# known within 0.01. Tables of more than 200 columns take fewer, so that their cost grows with the
# columns alone.
N_SAMPLED, FEWEST_SAMPLED, SAMPLED_CELLS = 20_000, 1000, 4_000_000


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
    rows = asked.rows
    n_sampled = max(FEWEST_SAMPLED, min(N_SAMPLED, SAMPLED_CELLS // len(asked.names)))
    judged = asked.judged()
    if asked.mixed:
        # Of the fitted table the model's own scores too, which are not those out of fold.
        scores = judged.scores
        if rows.role == "fitted":
            scores = np.asarray(estimator.score_samples(asked.given()))
        kinds = study_table(
            asked,
            scores,
            judged,
            source=source,
            places=places,
            dropped_rows=dropped_rows,
            n_sampled=n_sampled,
            random_state=random_state,
        )
        kinds = replace(kinds, cautions=look_for_cautions(asked, scores, kinds))
        return replace(kinds, sentences=sentences(kinds))
    names, every = asked.names, range(len(asked.names))
    fitted = describe(asked)
    absent: list[str] = []
    terms, scores = asked.scored()
    references = _references(asked, absent)
    gained = _gained(asked, terms, references)
    sampled = sampled_values(estimator, n_sampled, random_state)
    found_marginals = marginals(asked, sampled, every)
    # Pairs are looked for among the columns where there is the most to see: all of them would take
    # the square of the columns.
    most_to_see = (
        np.array([column.distance for column in found_marginals])
        if gained is None
        else gained.mean(axis=0)
    )
    if terms is None:
        absent.append(
            f"{fitted.kind} has no log density for single columns, so this page cannot say which"
            " columns make a row odd, nor what each column gains from others."
        )
    ranked = np.argsort(-most_to_see, kind="stable")
    shown, correlated = np.sort(ranked[:MOST_SHOWN]), np.sort(ranked[:MOST_CORRELATED])
    some = asked.values[
        np.linspace(0, len(scores) - 1, min(len(sampled), len(scores))).astype(int)
    ]
    shared = mutual_information(some, shown)
    numbered = np.arange(1, len(scores) + 1) if places is None else places
    found = Findings(
        fitted=fitted,
        table=Table(source, len(scores), dropped_rows, rows.role, len(rows.judged), len(sampled)),
        scores=compare({fitted.kind: scores[rows.judged]} | _totals(references)),
        calibration=_calibration(asked, random_state, absent),
        marginals=found_marginals,
        pairs=None,
        correlation=None,
        oddness=find_odd(asked, judged, numbered),
        gains=[]
        if gained is None
        else gains(names, asked.order, gained, closest_columns(shared, shown)),
        cautions=[],
        sentences={},
        absent=absent,
        version=__version__,
    )
    if len(names) > 1:
        columns = [names[d] for d in correlated]
        found = replace(
            found,
            pairs=pairs(names, most_dependent(shared, shown), asked.values, sampled, N_POINTS),
            correlation=Correlation.of(columns, some[:, correlated], sampled[:, correlated]),
        )
    cautions = look_for_cautions(asked, scores, found)
    return replace(found, cautions=cautions, sentences=sentences(found))


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
    if asked.mixed:
        return gains_of_kinds(asked, gains_given_others(asked), {})
    terms, _ = asked.scored()
    if terms is None:
        raise ValueError(f"{type(estimator).__name__} has no log_conditionals to compare.")
    gained = _gained(asked, terms, reference_scores(asked))
    if gained is None:
        raise ValueError(
            f"Expected more rows to compare columns by themselves with; got {len(asked.X)}."
        )
    return gains(asked.names, asked.order, gained, {})


def _references(asked: Asked, absent: list[str]) -> dict[str, Array]:
    """Scores of the plain models; what there is not is said."""
    references = reference_scores(asked)
    if not references:
        absent.append("There are too few rows to fit a reference model to.")
    elif "Gaussian" not in references and not is_binary(asked.estimator):
        absent.append("A Gaussian with a full covariance takes more rows than columns to fit.")
    return references


def _totals(references: dict[str, Array]) -> dict[str, Array]:
    """One log density a row, also of columns by themselves."""
    return {name: X.sum(axis=1) if X.ndim == 2 else X for name, X in references.items()}


def _gained(asked: Asked, terms: Array | None, references: dict[str, Array]) -> Array | None:
    """What the model's log conditionals are above the log densities of columns by themselves."""
    alone = references.get("independent columns")
    return None if terms is None or alone is None else terms[asked.rows.judged] - alone


def _calibration(asked: Asked, seed: int, absent: list[str]) -> list[ColumnCalibration]:
    judged = asked.rows.judged
    if not hasattr(asked.estimator, "pit"):
        absent.append(
            f"{type(asked.estimator).__name__} has no distribution function for single columns, so"
            " their calibration cannot be checked."
        )
    elif len(judged) < LEAST_JUDGED:
        rows = plural(len(judged), "row")
        absent.append(f"Calibration cannot be judged by {rows}; it takes {LEAST_JUDGED}.")
    else:
        return calibrations(asked, judged, range(len(asked.names)), seed)
    return []
