"""X as users give it (arrays and data frames of any kind), checked, as a float64 matrix."""

import warnings
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
from sklearn.utils.validation import check_array, validate_data

from rnade.columns import Resolution
from rnade.exceptions import SpikeWarning
from rnade.families.base import Array

# Beyond this a column's square overflows float32 on the way.
LARGEST_VALUE = 1e30


def check_rows(estimator: Any, X: Any, *, fitting: bool) -> Array:
    """Return X as a finite float64 array of shape (N, D), or say what is wrong and where.

    Column names of data frames are kept when fitting and checked afterwards.

    Parameters
    ----------
    estimator : scikit-learn estimator
    X : array-like or data frame of shape (N, D)
    fitting : bool
        Whether X defines the columns, or must agree with those that were fitted.
    """
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        values = _frame_values(frame)
        # The frame's names first; the values are checked below.
        validate_data(estimator, X, reset=fitting, skip_check_array=True)
        X = values
    else:
        # Refused here and not below: with a useful message, and before any conversion.
        if isinstance(X, str | bytes) or type(X) is dict:
            raise TypeError(f"Expected X to be a table of numbers; got {type(X).__name__}.")
        validate_data(estimator, X, reset=fitting, dtype="numeric", ensure_all_finite=False)
    X = check_array(
        X,
        dtype=np.float64,
        ensure_all_finite=False,
        ensure_min_samples=2 if fitting else 1,
        estimator=estimator,
    )
    _check_finite(X, column_labels(estimator))
    return np.asarray(X, dtype=np.float64)


def column_labels(estimator: Any) -> list[str]:
    """Names of the columns for messages: those of the frame, else "column 0", "column 1", ..."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return [f"column {d}" for d in range(estimator.n_features_in_)]
    return [f"column {str(name)!r}" for name in names]


def some(labels: list[str], limit: int = 8) -> str:
    """Join labels for a message, the first few of many."""
    rest = len(labels) - limit
    return ", ".join(labels[:limit]) + (f" and {rest} more" if rest > 0 else "")


def _frame_values(frame: nw.DataFrame[Any]) -> Array:
    """Numeric columns as float64, missing cells as NaN."""
    wrong = [
        f"{name!r} ({kind})"
        for name, kind in frame.schema.items()
        if not (kind.is_numeric() or kind == nw.Boolean)
    ]
    if wrong:
        plural = "s" if len(wrong) > 1 else ""
        raise ValueError(
            f"Column{plural} {some(wrong)} of X hold{'' if plural else 's'} no numbers: leave"
            " such columns out or turn them into numbers first."
        )
    columns = [column.cast(nw.Float64).to_numpy() for column in frame.iter_columns()]
    if not columns:
        return np.empty((len(frame), 0))
    return np.column_stack(columns)


def _check_finite(X: Array, labels: list[str]) -> None:
    finite = np.isfinite(X)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise ValueError(
            f"Input X holds {int((~finite).sum())} missing or infinite values (NaN or inf); the"
            f" first is {X[row, column]} in row {row}, {labels[column]}. Drop those rows or fill"
            " them in first."
        )
    large = np.abs(X) > LARGEST_VALUE
    if large.any():
        row, column = np.argwhere(large)[0]
        raise ValueError(
            f"Input X holds values beyond {LARGEST_VALUE:g}, too large to compute with: the first"
            f" is {X[row, column]:g} in row {row}, {labels[column]}. Rescale that column."
        )


def check_not_constant(estimator: Any, X: Array) -> None:
    """Raise a ValueError that names the columns in which all rows are the same."""
    spread = np.ptp(X, axis=0)
    # A column of one value plus rounding error is constant too.
    constant = spread <= 1e-14 * np.abs(X).max(axis=0)
    if constant.any():
        labels = [label for label, c in zip(column_labels(estimator), constant, strict=True) if c]
        raise ValueError(
            f"X is constant in {some(labels)}: the density of a constant is infinite. Leave out"
            f" such columns (all {len(X)} rows have the same value there)."
        )


def warn_of_spikes(estimator: Any, resolution: Resolution) -> None:
    """Warn of columns on which a density can spike, and say what is done about it."""
    labels = column_labels(estimator)
    rounded = [label for label, step in zip(labels, resolution.steps, strict=True) if step > 0]
    if rounded:
        remedy = (
            "; dequantize=True spreads each value over its rounding interval"
            if hasattr(estimator, "dequantize")
            else ""
        )
        warnings.warn(
            f"Whole-number or heavily repeated values in {some(rounded)}: a density can spike on"
            " them, so log-likelihoods there say little. With sigma_floor='auto' no component is"
            f" narrower than the column's resolution{remedy}.",
            SpikeWarning,
            stacklevel=4,
        )
