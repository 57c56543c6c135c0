"""Columns brought to mean 0 and standard deviation 1, with what that adds to a log density."""

from dataclasses import dataclass

import numpy as np

from rnade.typing import Array


@dataclass(frozen=True)
class Standardiser:
    """Affine map of each column to mean 0 and standard deviation 1 over the training rows."""

    mean: Array
    scale: Array

    @classmethod
    def fit(cls, X: Array, weights: Array | None = None) -> "Standardiser":
        """Weighted mean and population standard deviation of each column's observed cells."""
        seen = ~np.isnan(X)
        if not seen.all():
            own = [
                cls.fit(x[at, None], None if weights is None else weights[at])
                for x, at in zip(X.T, seen.T, strict=True)
            ]
            return cls(*[np.concatenate([getattr(o, n) for o in own]) for n in ("mean", "scale")])
        mean = np.average(X, axis=0, weights=weights)
        centred = X - mean
        # In units of the largest value, whose square neither overflows nor vanishes.
        unit = np.abs(centred).max(axis=0)
        unit = np.where(unit > 0, unit, 1.0)
        variance = np.average((centred / unit) ** 2, axis=0, weights=weights)
        return cls(mean, unit * np.sqrt(variance))

    @classmethod
    def identity(cls, n_columns: int) -> "Standardiser":
        """The map that changes nothing, for binary data."""
        return cls(np.zeros(n_columns), np.ones(n_columns))

    @property
    def log_determinant_terms(self) -> Array:
        """What each column adds to the log density, in the data's own units: -log scale."""
        return -np.log(self.scale)

    @property
    def log_determinant(self) -> float:
        """What all columns add together."""
        return float(self.log_determinant_terms.sum())

    def transform(self, X: Array) -> Array:
        """Standardised columns."""
        return (X - self.mean) / self.scale

    def inverse(self, Z: Array) -> Array:
        """Columns in the data's own units."""
        return Z * self.scale + self.mean
