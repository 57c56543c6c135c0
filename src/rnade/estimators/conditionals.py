"""What the conditionals of a model say of the cells of a row: terms, probabilities, intervals."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor

from rnade.checks import number_between
from rnade.estimators.scoring import AbstractScoringEstimator
from rnade.estimators.settings import make_rng
from rnade.families import Conditional
from rnade.nn import EnsembleModule
from rnade.typing import Array

# Rows looked at together: few enough for a processor's cache to hold what is computed of them.
CHUNK_ROWS = 4096
# Rows drawn from the model to see what is typical of each column. A log conditional varies by
# about 1 nat from row to row, so that 2,000 rows place its mean within about 0.02 nats. Wide
# tables, where a row takes longer, have fewer: 200 place it within 0.07.
_MOST_DRAWN, _FEWEST_DRAWN, _CELLS_DRAWN = 2000, 200, 400_000


class AbstractConditionalsEstimator(AbstractScoringEstimator):
    """Density estimator that tells the columns of a row apart: all that this package has."""

    # A density with `log_conditionals` and `conditionals` too.
    module_: Any

    _typical: Array  # once it is known

    def log_conditionals(self, X: Any) -> Array:
        """The D terms log p(x_d | x_<d) of each row, in nats; they sum to `score_samples`.

        A term is a log density in the column's own units, so that terms of different columns do
        not compare: a term says that a cell is unusual only beside what is typical of its column.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)

        Returns
        -------
        array of shape (N, D)
        """
        check_is_fitted(self)
        return self._terms(self._encode(self._check_rows(X)))

    def _terms(self, X: Array) -> Array:
        terms = self._in_chunks(X, lambda module, x: module.log_conditionals(x))
        return terms + self.standardiser_.log_determinant_terms

    def surprise(self, X: Any) -> Array:
        """How unexpected each cell is: nats by which it is less likely than is typical there.

        The same unit for every column, whatever the column's own: the mean log conditional of the
        column, over rows drawn from the model, minus that of the cell. The cell with the largest
        surprise of a row is the one that makes it an outlier; about 0 is usual.

        Models that answer questions (`RNADE`, by default, and `MixtureOfColumns`) judge a cell
        given all other observed cells of its row; others given the columns before it.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)

        Returns
        -------
        array of shape (N, D)
            NaN where a cell is missing. Columns are those of `log_conditionals`.
        """
        check_is_fitted(self)
        return self._typical_terms() - self._cell_terms(self._encode(self._to_explain(X)))

    def _to_explain(self, X: Any) -> Array:
        """X as a matrix of numbers; NaN where a cell is missing."""
        return self._check_rows(X)

    def _cell_terms(self, X: Array) -> Array:
        """Log conditional of each cell, by which its surprise is measured; NaN where missing."""
        return np.where(np.isnan(X), np.nan, self._terms(X))

    def _typical_terms(self) -> Array:
        """Mean log conditional of each column over rows drawn from the model, of shape (D,).

        That is minus the column's entropy given what its conditionals know. Being the model's
        own, the yardstick is the same for every table, and serves a table of one row.
        """
        if "_typical" not in self.__dict__:
            n = max(_FEWEST_DRAWN, min(_MOST_DRAWN, _CELLS_DRAWN // self.n_features_in_))
            terms = self._cell_terms(self.sample_values(n, random_state=0))
            # A drawn cell may be missing, where the model says so.
            seen = ~np.isnan(terms)
            self._typical = np.nansum(terms, axis=0) / np.maximum(seen.sum(axis=0), 1)
        return self._typical

    def expected(
        self, X: Any, level: float = 0.9, *, where: ArrayLike | None = None
    ) -> tuple[Any, Any]:
        """What the model expected of each cell, given what `surprise` judges it by.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
        level : float
            Share of the central interval.
        where : array of bool, shape (N, D), optional
            Cells to compute, all by default.

        Returns
        -------
        low, high : arrays of shape (N, D)
            Ends of the interval in the table's own terms; of levels without an order both are the
            likeliest level. Cells that were not asked for are NaN, or None in tables that have
            other columns than numbers.
        """
        check_is_fitted(self)
        return self._expected(X, number_between(level, "level", 0, 1 - 1e-9, open_low=True), where)

    def _expected(self, X: Any, level: float, where: ArrayLike | None) -> tuple[Any, Any]:
        low, high = self.conditional_quantiles(X, ((1 - level) / 2, (1 + level) / 2), where=where)
        return low, high

    def pit(self, X: Any, random_state: Any = None) -> Array:
        """Probability integral transform: where each value falls in its conditional, from 0 to 1.

        Entry d of a row is the probability that the model gives to values below x_d given the
        columns before it. Over rows like those fitted, each column of the result is uniform if
        the model is right, and independent of the others.

        A value rounded to a step stands for the interval of that width around it, and a binary
        value for a jump: there the result is drawn evenly from the interval's or the jump's range
        of probabilities (the randomised transform), which is uniform in the same way. NaN where a
        cell is missing.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
        random_state : int, RandomState instance or None
            Of those draws, and of the model of an average by which a row is judged.

        Returns
        -------
        array of shape (N, D)
        """
        check_is_fitted(self)
        X = self._encode(self._check_rows(X))
        rng = make_rng(random_state)
        below, above = self._reach()
        u: Array = np.full_like(X, np.nan)
        for cells, x, conditional in self._conditionals(X, int(rng.randint(2**31 - 1))):
            columns = cells[1][0]
            upper = conditional.cdf(x + torch.from_numpy(above[columns]).to(x)).cpu().numpy()
            u[cells] = upper
            wide = below[columns] + above[columns] > 0
            if wide.any():
                lower = conditional.cdf(x - torch.from_numpy(below[columns]).to(x)).cpu().numpy()
                drawn = rng.uniform(size=(wide.sum(), len(x))).T
                u[cells[0], columns[wide]] = lower[:, wide] + (upper - lower)[:, wide] * drawn
        return u

    def conditional_quantiles(
        self, X: Any, q: ArrayLike, *, where: ArrayLike | None = None
    ) -> Array:
        """The values below which the model puts the shares `q` of each conditional.

        ``conditional_quantiles(X, [0.05, 0.95])`` bounds what the model expected of each cell in
        nine of ten cases, given the columns before it.

        Parameters
        ----------
        X : array-like or data frame of shape (N, D)
        q : float or array-like of floats
            Strictly between 0 and 1.
        where : array of bool, shape (N, D), optional
            Cells to compute, all by default; the others are NaN.

        Returns
        -------
        array of shape (N, D), or (len(q), N, D) for several
            In the data's units; NaN where a cell is missing.
        """
        check_is_fitted(self)
        X = self._encode(self._check_rows(X))
        shares, wanted = check_asked(q, where, X.shape)
        Z = np.full((len(shares), *X.shape), np.nan)
        for cells, _, conditional in self._conditionals(X, seed=0):
            at = wanted[cells]
            rows, columns = (index[at] for index in np.broadcast_arrays(*cells))
            few = conditional[torch.from_numpy(at)]
            for i, share in enumerate(shares if at.any() else []):
                Z[i, rows, columns] = few.quantile(share).cpu().numpy()
        values = np.where(wanted, self.standardiser_.inverse(Z), np.nan)
        return values if np.ndim(q) else np.asarray(values[0])

    def _reach(self) -> tuple[Array, Array]:
        """How far below and above itself a value of each column reaches, standardised."""
        scale = self.standardiser_.scale
        if self._binary:
            return np.ones_like(scale), np.zeros_like(scale)
        steps = np.zeros_like(scale) if self.resolution_ is None else self.resolution_.steps
        return steps / scale / 2, steps / scale / 2

    # Whether values are 0 and 1.
    _binary = False

    def _conditionals(
        self, X: Array, seed: int
    ) -> Iterator[tuple[tuple[NDArray[np.int64], NDArray[np.int64]], Tensor, Conditional]]:
        """For some rows and columns at a time: where, standardised values, conditionals.

        Models of an average have orders of their own. There each row is given to one of them,
        drawn by how likely it is that the row came from it: if the average is right, so are the
        conditionals of the model drawn.

        Yields
        ------
        (array of shape (n, 1), array of shape (1, k)), Tensor of shape (n, k), Conditional
            Rows and columns, as NumPy indexes cells; one density for each cell.
        """
        module = self.module_
        averaged = isinstance(module, EnsembleModule)
        generator = Generator(module.device).manual_seed(seed)
        for start in range(0, len(X), CHUNK_ROWS):
            x = self._standardised(module, X[start : start + CHUNK_ROWS])
            none = torch.zeros(len(x), dtype=torch.int64, device=x.device)
            chosen = module.choose_members(x, generator) if averaged else none
            for m in sorted(set(chosen.tolist())):
                at = (chosen == m).nonzero()
                member = module.member(m) if averaged else module
                for columns, conditional in member.conditional_blocks(x[at[:, 0]]):
                    cells = start + at.cpu().numpy(), np.array([columns])
                    yield cells, x[at, columns], conditional


def check_asked(
    q: ArrayLike, where: ArrayLike | None, shape: tuple[int, ...]
) -> tuple[list[float], NDArray[np.bool_]]:
    """Check the shares that are asked for, and the cells of a table of which they are."""
    if np.ndim(q) > 1:
        raise ValueError(f"Expected q to be a number or a list of them; got {q!r}.")
    shares = [float(share) for share in np.atleast_1d(np.asarray(q))]
    wanted = np.ones(shape, dtype=bool) if where is None else np.asarray(where)
    if wanted.dtype != bool or wanted.shape != shape:
        raise ValueError(
            f"Expected `where` to be an array of bool of shape {shape};"
            f" got {wanted.dtype} of shape {wanted.shape}."
        )
    return shares, wanted
