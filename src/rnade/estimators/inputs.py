"""X as users give it (arrays and data frames of any kind), checked, as a float64 matrix."""

from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike
from sklearn.utils.validation import _check_sample_weight, check_array, validate_data

from rnade.columns import Resolution, Standardiser, dependent_columns, find_spikes
from rnade.columns.sources import is_missing
from rnade.exceptions import SpikeWarning, TrainingWarning, warn_caller
from rnade.typing import Array

# Beyond this a column's square overflows float32 on the way.
LARGEST_VALUE = 1e30
# Below this a column's scale has too few digits of its own, or no inverse.
SMALLEST_SPREAD = 1e-290
# Rows below which hardly anything can be learned.
FEW_ROWS = 20
# Estimators that take tables of any kind.
TAKE_ALL = "RNADE, FVBN and MixtureOfColumns"
# What columns hold that are no numbers, by the first letters of the name of their type.
_HELD = {"Str": "text", "Cat": "categories", "Enum": "categories", "Date": "dates"}


def check_rows(estimator: Any, X: Any, *, fitting: bool, missing: bool = False) -> Array:
    """Return X as a finite float64 array of shape (N, D), or say what is wrong and where.

    Column names of data frames are kept when fitting and checked afterwards. Missing cells are
    NaN, of estimators that take them.

    Parameters
    ----------
    estimator : scikit-learn estimator
    X : array-like or data frame of shape (N, D)
    fitting : bool
        Whether X defines the columns, or must agree with those that were fitted.
    missing : bool
        Whether cells may be missing (NaN).
    """
    frame = nw.from_native(X, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        raise TypeError(
            f"X is a lazy frame ({type(X).__module__}.{type(X).__name__}), which holds no rows"
            " yet: call its collect() first."
        )
    if isinstance(frame, nw.DataFrame):
        values = _frame_values(estimator, frame)
        # The frame's names first; the values are checked below.
        validate_data(estimator, X, reset=fitting, skip_check_array=True)
        X = values
    else:
        # Refused here and not below: with a useful message, and before any conversion.
        if isinstance(X, str | bytes) or type(X) is dict:
            raise TypeError(f"Expected X to be a table of numbers; got {type(X).__name__}.")
        if isinstance(X, np.ma.MaskedArray):
            X = np.ma.filled(X.astype(np.float64), np.nan)
        is_array = isinstance(X, np.ndarray) and X.dtype.kind in "OUS"
        if is_array and is_of_numbers(estimator):
            X = _object_values(estimator, X)
        validate_data(estimator, X, reset=fitting, dtype="numeric", ensure_all_finite=False)
    X = check_array(
        X,
        dtype=np.float64,
        ensure_all_finite=False,
        ensure_min_samples=2 if fitting else 1,
        estimator=estimator,
    )
    _check_finite(estimator, X, missing)
    return np.asarray(X, dtype=np.float64)


def check_weights(sample_weight: ArrayLike | None, X: Array) -> Array | None:
    """Return the weights of X's rows as float64, none negative; None stays None."""
    if sample_weight is None:
        return None
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    return np.asarray(weights)


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


def is_of_numbers(estimator: Any) -> bool:
    """Whether an estimator takes nothing but numbers, whatever it is fitted to."""
    columns = getattr(estimator, "columns", "real")
    return isinstance(columns, str) and columns == "real"


def takes(estimator: Any, held: str) -> str:
    """Say what an estimator takes, what X holds instead, and which one takes that."""
    name, other = type(estimator).__name__, f"{TAKE_ALL} take tables of any kind."
    if not is_of_numbers(estimator):
        return f"{name} was fitted to complete columns of numbers; {held}. Fit it to such rows."
    if hasattr(estimator, "columns"):
        name, other = f"{name}(columns='real')", "columns='auto' takes tables of any kind."
    complete = "" if estimator._takes_missing else "complete "
    return f"{name} takes {complete}columns of {estimator._columns_of}; {held}. {other}"


def _object_values(estimator: Any, X: Any) -> Any:
    """An array of Python objects, NaN for those that mean a missing cell; text is refused."""
    if X.dtype.kind == "O":
        X = np.where(np.frompyfunc(is_missing, 1, 1)(X).astype(bool), np.nan, X)
    try:
        X.astype(np.float64)
    except ValueError:  # of text; TypeErrors are left to scikit-learn
        raise ValueError(takes(estimator, "X holds text (strings)")) from None
    except TypeError:
        pass
    return X


def floats(table: pa.Table) -> Array | None:
    """Give columns of one floating-point type as a matrix of it, missing cells as NaN.

    None for all other tables. Arrow makes it in one go: column by column takes several times as
    long, and keeps other threads from running.
    """
    if not table.num_rows or set(table.schema.types) not in ({pa.float32()}, {pa.float64()}):
        return None
    parts = [batch.to_tensor(null_to_nan=True).to_numpy() for batch in table.to_batches()]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _frame_values(estimator: Any, frame: nw.DataFrame[Any]) -> Array:
    """Numeric columns as float64, missing cells as NaN."""
    native = nw.to_native(frame)
    matrix = floats(native) if isinstance(native, pa.Table) else None
    if matrix is not None:
        return matrix.astype(np.float64, copy=False)
    columns, wrong = [], []
    for (name, kind), column in zip(frame.schema.items(), frame.iter_columns(), strict=True):
        if kind.is_numeric() or kind == nw.Boolean:
            columns.append(column.cast(nw.Float64).to_numpy())
            continue
        # Columns of Python objects may hold numbers all the same.
        values = column.to_list() if kind == nw.Object else []
        missing = column.is_null().to_list() if values else []
        values = [None if gone else v for v, gone in zip(values, missing, strict=True)]
        other = next((v for v in values if not isinstance(v, Real | Decimal | None)), None)
        if values and other is None:
            columns.append(np.array([np.nan if v is None else v for v in values], np.float64))
        else:
            held = type(other).__name__.capitalize() if values else str(kind)
            held = next((word for start, word in _HELD.items() if held.startswith(start)), held)
            wrong.append(f"column {name!r} holds {held}")
    if wrong:
        raise ValueError(takes(estimator, some(wrong)))
    return np.column_stack(columns) if columns else np.empty((len(frame), 0))


def is_harmless(X: Array) -> bool:
    """Whether no value of X is missing, infinite or too large, found in one fast pass."""
    flat = X.ravel(order="K")
    with np.errstate(over="ignore"):
        return float(np.dot(flat, flat)) < LARGEST_VALUE**2


def _check_finite(estimator: Any, X: Array, missing: bool) -> None:
    labels = column_labels(estimator)
    if is_harmless(X):
        return
    finite = np.isfinite(X) | (np.isnan(X) & (missing or estimator._takes_missing))
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        wrong = (
            f"Input X holds {int((~finite).sum())} missing or infinite values (NaN or inf); the"
            f" first is {X[row, column]} in row {row}, {labels[column]}"
        )
        if np.isinf(X).any():
            raise ValueError(f"{wrong}. Infinite values have no density: drop those rows.")
        raise ValueError(takes(estimator, wrong.replace("Input X", "X")))
    large = np.abs(X) > LARGEST_VALUE
    if large.any():
        row, column = np.argwhere(large)[0]
        raise ValueError(
            f"Input X holds values beyond {LARGEST_VALUE:g}, too large to compute with: the first"
            f" is {X[row, column]:g} in row {row}, {labels[column]}. Rescale that column."
        )


def check_not_constant(estimator: Any, X: Array) -> None:
    """Raise a ValueError that names the columns in which all rows are the same."""
    empty = np.isnan(X).all(axis=0)
    if empty.any():
        labels = [column_labels(estimator)[d] for d in np.flatnonzero(empty)]
        raise ValueError(f"No cell is observed in {some(labels)} of X: leave out such columns.")
    spread = np.nanmax(X, axis=0) - np.nanmin(X, axis=0)
    # A column of one value plus rounding error is constant too.
    constant = spread <= 1e-14 * np.nanmax(np.abs(X), axis=0)
    if constant.any():
        labels = [column_labels(estimator)[d] for d in np.flatnonzero(constant)]
        raise ValueError(
            f"X is constant in {some(labels)}: the density of a constant is infinite. Leave out"
            f" such columns (all {len(X)} rows have the same value there)."
        )
    tiny = [
        label
        for label, s in zip(column_labels(estimator), spread, strict=True)
        if s < SMALLEST_SPREAD
    ]
    if tiny:
        raise ValueError(
            f"Values of {some(tiny)} differ by less than {SMALLEST_SPREAD:g}, too little to"
            " compute with. Rescale such columns."
        )


def prepare_real(
    estimator: Any, X: Array, weights: Array | None
) -> tuple[Standardiser, Resolution]:
    """Look at real-valued columns: how to standardise them, how they are rounded.

    Warns of all that lets a density grow without bound.
    """
    check_not_constant(estimator, X)
    resolution = Resolution.measure(X)
    warn_of_spikes(estimator, X, resolution)
    return Standardiser.fit(X, weights), resolution


def warn_of_spikes(estimator: Any, X: Array, resolution: Resolution) -> None:
    """Warn of columns on which a density can spike, and say what is done about it."""
    labels = column_labels(estimator)
    rounded = [label for label, step in zip(labels, resolution.steps, strict=True) if step > 0]
    if rounded:
        remedy = (
            "; dequantize=True spreads each value over its rounding interval"
            if hasattr(estimator, "dequantize")
            else ""
        )
        warn_caller(
            f"Whole-number or heavily repeated values in {some(rounded)}: a density can spike on"
            " them, so log-likelihoods there say little. With sigma_floor='auto' no component is"
            f" narrower than the column's resolution{remedy}.",
            SpikeWarning,
        )
    spikes = [
        f"{spike.value:g} in {labels[spike.column]} ({spike.share:.0%} of the rows"
        + ("; a code for missing values?)" if spike.apart else ")")
        for spike in find_spikes(X, resolution)
    ]
    if spikes:
        warn_caller(
            f"Single values are repeated: {some(spikes)}. A density can spike on them without"
            " bound, so log-likelihoods there say little. Take codes for missing values out, and"
            " leave out columns that are mostly one value, or set sigma_floor.",
            SpikeWarning,
        )
    dependent = [labels[d] for d in dependent_columns(X)]
    if dependent:
        warn_caller(
            f"Exact functions of the columns before: {some(dependent)}. Such rows lie in a plane,"
            " where a density has no bound, so log-likelihoods are inflated. Leave out copies,"
            " sums and other linear functions of columns.",
            SpikeWarning,
        )


def warn_of_few_rows(n_rows: int) -> None:
    """Warn where there are too few rows to learn from."""
    if n_rows < FEW_ROWS:
        warn_caller(
            f"{n_rows} rows are too few to learn a density from, or to judge one by: scores and"
            f" p-values say little with fewer than {FEW_ROWS}.",
            TrainingWarning,
        )
