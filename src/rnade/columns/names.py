"""A model's columns: their names, and rows with and without them."""

from typing import Any

import numpy as np

from rnade.typing import Array


def column_names(estimator: object) -> list[str]:
    """Give the names of a model's columns; x1, x2, ... if it was fitted without names."""
    if is_mixed(estimator):
        return [str(name) for name in estimator.schema_.names]  # type: ignore[attr-defined]
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        return [str(name) for name in names]
    n_columns: int = estimator.n_features_in_  # type: ignore[attr-defined]
    return [f"x{d}" for d in range(1, n_columns + 1)]


def is_mixed(estimator: object) -> bool:
    """Whether a model's table has anything but complete columns of real numbers."""
    return bool(getattr(estimator, "_mixed", False))


def is_read_by_kind(estimator: object) -> bool:
    """Whether a model reads tables by its schema: it has levels, or is of a mixed table."""
    schema = getattr(estimator, "schema_", None)
    has_levels = schema is not None and any(c.kind == "category" for c in schema.columns)
    return has_levels or is_mixed(estimator)


def as_fitted(estimator: Any, X: Array) -> Any:
    """Give rows the column names, and kinds, that the model was fitted with, if it has any."""
    if is_read_by_kind(estimator):
        return estimator.schema_.decode(np.where(np.isnan(X), 0.0, X), ~np.isnan(X))
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return X
    import pyarrow as pa

    return pa.table(dict(zip(map(str, names), X.T, strict=True)))


def as_values(estimator: Any, X: Any) -> Array:
    """Give rows as a matrix of numbers (N, D) in the model's order of columns.

    Columns of a frame, which may have more, are taken by name. Of a table with columns of any kind
    they are numbers, codes of levels, and NaN for missing cells.
    """
    if is_read_by_kind(estimator):
        values, seen = estimator.schema_.encode(X)
        return np.where(seen, values, np.nan)
    import narwhals.stable.v1 as nw

    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        if hasattr(estimator, "feature_names_in_"):
            missing = [name for name in column_names(estimator) if name not in frame.columns]
            if missing:
                raise ValueError(f"X has no column {missing[0]!r}, which the model was fitted to.")
            frame = frame.select(column_names(estimator))
        columns = [column.cast(nw.Float64).to_numpy() for column in frame.iter_columns()]
        values = np.column_stack(columns)
    else:
        values = np.asarray(X, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != estimator.n_features_in_ or len(values) < 1:
        raise ValueError(
            f"Expected X of shape (N, {estimator.n_features_in_}) with N >= 1; got {values.shape}."
        )
    if not np.isfinite(values).all():
        raise ValueError("X holds missing or infinite values: drop those rows or fill them in.")
    return values
