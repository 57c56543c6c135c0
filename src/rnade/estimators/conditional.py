"""The distribution of one column given others, in the table's own terms."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from torch import Generator

from rnade.checks import number_between, positive_int
from rnade.columns import Column
from rnade.columns.values import numbers_of, own_terms
from rnade.estimators.settings import make_generator, make_rng
from rnade.nn.column_density import ColumnDensity, quantile_of
from rnade.typing import Array

# Distributions that are looked at together, and quantiles among which a mode is looked for.
_TOGETHER, _SHARES = 16_384, 200


class Conditional:
    """Distributions of one column given others, one for each row that was asked about.

    Values are in the table's own terms: levels as levels, dates as dates, booleans as booleans.
    Levels, whole numbers, days and single values that many rows share have probabilities, other
    numbers densities per unit (of dates and times, per second).

    Attributes
    ----------
    column : str
        Its name.
    levels : array or None
        Of a column of levels.
    method : {"exact", "weighted"}
        "weighted" if ranges of other columns were given that are stood for by draws.
    """

    def __init__(
        self,
        column: Column,
        density: ColumnDensity,
        weights: Array | None = None,
        method: str = "exact",
    ) -> None:
        # With weights, the densities are of values that stand for ranges of one row.
        self.column, self.method = column.name, method
        self.levels = None if column.levels is None else own_terms(column, _codes(column))
        self._column, self._density, self._weights = column, density, weights

    def __len__(self) -> int:
        return len(self._density) if self._weights is None else 1

    def __repr__(self) -> str:
        rows = f"{len(self)} row" + ("s" if len(self) > 1 else "")
        return f"<Conditional of {self.column!r}, {rows}, {self.method}>"

    # ---------------------------------------------------------------- densities

    def log_pdf(self, x: Any) -> Array:
        """Logarithm of `pdf`."""
        return self._of_values(x, ColumnDensity.log_prob, log=True)

    def pdf(self, x: Any) -> Array:
        """Density or probability of a value.

        Parameters
        ----------
        x : value, or array-like of values
            One for all rows, or one for each row; of one row any number. Shapes broadcast as in
            NumPy: (m, 1) gives m values for each of N rows, of shape (m, N).

        Returns
        -------
        array of shape (N,), or as `x` broadcasts with it
            NaN where a value is missing.
        """
        return np.exp(self.log_pdf(x))

    def cdf(self, x: Any) -> Array:
        """Probability of a value of at most x; of levels by their order.

        Parameters
        ----------
        x : as of `pdf`
        """
        return self._of_values(x, ColumnDensity.cdf, log=False)

    def transform(self, x: Any, random_state: Any = None) -> Array:
        """Place of each row's value in its distribution: uniform if the distributions are right.

        The probability integral transform: the probability of a value below x, plus a random part
        of the probability of x itself where it has one.

        Parameters
        ----------
        x : array-like of shape (N,)
        random_state : int, RandomState instance or None

        Returns
        -------
        array of shape (N,)
            NaN where a value is missing.
        """
        if self._weights is not None:
            raise ValueError("Places are for values of rows; these are draws that stand for one.")
        values = np.broadcast_to(numbers_of(self._column, x), len(self))
        return self._density.transform(values, make_generator(random_state))

    def _of_values(self, x: Any, function: Any, *, log: bool) -> Array:
        """What a method of `ColumnDensity` gives for values, averaged over what stands for a row.

        Parameters
        ----------
        x : as of `pdf`
        function : unbound method of ColumnDensity
        log : bool
            Whether it gives logarithms.
        """
        numbers = numbers_of(self._column, x)
        shape = np.broadcast_shapes(numbers.shape, (len(self),))
        rows = np.broadcast_to(numbers, shape).reshape(-1, len(self))
        size = max(1, _TOGETHER // len(self._density))
        parts = [
            self._of_rows(rows[at : at + size], function, log) for at in range(0, len(rows), size)
        ]
        return np.asarray(np.concatenate(parts).reshape(shape))

    def _of_rows(self, numbers: Array, function: Any, log: bool) -> Array:
        """As `_of_values`, of m numbers for each row, (m, N)."""
        seen, J = ~np.isnan(numbers), len(self._density)
        filled = np.where(seen, numbers, 0.0)
        each = np.broadcast_to(filled, (len(filled), J)).ravel()
        density = self._density
        if len(filled) > 1:
            density = density.take(np.tile(np.arange(J), len(filled)))
        found = function(density, each).reshape(len(filled), J)
        if self._weights is not None:
            mean = logsumexp(found, b=self._weights, axis=1) if log else found @ self._weights
            found = mean[:, None]
        return np.where(seen, found, np.nan)

    def probabilities(self) -> Array:
        """Probability of each level, given that it is one of `levels`.

        `pdf` also keeps a small probability for levels that the table did not have.

        Returns
        -------
        array of shape (N, number of levels)
            Rows sum to 1.
        """
        self._need_levels("probabilities")
        found = self._density.probabilities()
        return self._averaged(found / found.sum(1, keepdims=True))

    def _averaged(self, each: Array) -> Array:
        """Average over the draws that stand for one row."""
        return each if self._weights is None else np.asarray(self._weights @ each)[None]

    # ---------------------------------------------------------------- summaries

    def mean(self) -> Any:
        """Mean of numbers or dates; float64 for numbers, whole ones too.

        Returns
        -------
        array of shape (N,)
        """
        if self.levels is not None:
            raise ValueError(
                f"Column {self.column!r} holds levels, which have no mean: use mode() or"
                " probabilities()."
            )
        numbers = self._averaged(self._density.mean())
        return numbers if self._column.kind == "integer" else own_terms(self._column, numbers)

    def median(self) -> Any:
        """Median; of levels by their order."""
        return self.quantile(0.5)

    def mode(self) -> Any:
        """The likeliest level, or for numbers and dates the value of the highest density.

        The latter is looked for among 200 quantiles. A single value with a probability of its own
        (an atom) is the mode if it is likelier than all others together.

        Returns
        -------
        array of shape (N,)
        """
        if self.levels is not None:
            return self.levels[self.probabilities().argmax(1)]
        shares = (np.arange(_SHARES) + 0.5) / _SHARES
        points = np.stack([self._quantiles(float(q)) for q in shares])
        heights = self._of_rows(points, ColumnDensity.log_prob, True)
        atoms = np.isin(points, self._density.column.atoms)
        heights = np.where(atoms & (heights < np.log(0.5)), -np.inf, heights)
        heights = np.where(atoms & (heights >= np.log(0.5)), np.inf, heights)
        return own_terms(self._column, points[heights.argmax(0), np.arange(len(self))])

    def quantile(self, q: ArrayLike) -> Any:
        """Smallest value with a distribution function of at least q.

        Parameters
        ----------
        q : float or sequence of floats
            Strictly between 0 and 1.

        Returns
        -------
        array of shape (N,), or (N, len(q)) for several
            In the table's own terms; within the range of the table.
        """
        shares = np.asarray(q, dtype=np.float64)
        if shares.ndim > 1 or not ((shares > 0) & (shares < 1)).all():
            raise ValueError(f"Expected q between 0 and 1, or a list of such; got {q!r}.")
        found = np.stack([self._quantiles(float(share)) for share in np.atleast_1d(shares)], 1)
        return own_terms(self._column, found if shares.ndim else found[:, 0])

    def _quantiles(self, q: float) -> Array:
        if self._weights is None:
            return self._density.quantile(q)
        if self.levels is not None:
            reached = np.cumsum(self.probabilities(), axis=1) >= q - 1e-12
            return np.asarray(reached.argmax(1), dtype=np.float64)

        def cdf(x: Array) -> Array:
            return np.asarray(self._of_rows(x[None], ColumnDensity.cdf, False)[0])

        return quantile_of(cdf, self._density.column, np.array([q]))

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """Ends of the central interval that holds a share of the distribution.

        Parameters
        ----------
        level : float
            The share: 0.9 leaves 5 % on either side.

        Returns
        -------
        low, high : arrays of shape (N,)
        """
        rest = 1 - number_between(level, "level", 0, 1 - 1e-9, open_low=True)
        return self.quantile(rest / 2), self.quantile(1 - rest / 2)

    # ---------------------------------------------------------------- draws

    def sample(self, n: int = 1, random_state: Any = None) -> Any:
        """Draw values for each row.

        Parameters
        ----------
        n : int
            Draws of each row.
        random_state : int, RandomState instance or None

        Returns
        -------
        array of shape (N, n)
        """
        n, rng = positive_int(n, "n"), make_rng(random_state)
        generator = Generator().manual_seed(int(rng.randint(2**31 - 1)))
        if self._weights is None:
            rows = np.repeat(np.arange(len(self)), n)
        else:
            rows = rng.choice(len(self._weights), n, p=self._weights)
        drawn = [
            self._density.take(rows[at : at + _TOGETHER]).sample(generator)
            for at in range(0, len(rows), _TOGETHER)
        ]
        return own_terms(self._column, np.concatenate(drawn).reshape(len(self), n))

    def _need_levels(self, what: str) -> None:
        if self.levels is None:
            raise ValueError(
                f"Column {self.column!r} holds no levels, so that it has no {what}: use pdf, cdf,"
                " quantile, mean or interval."
            )


def _codes(column: Column) -> Array:
    return np.arange(len(column.levels or ()), dtype=np.float64)
