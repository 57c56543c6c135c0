"""Columns less what is linear in the columns before them: exact, and undone exactly."""

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rnade.exceptions import SingularDataError

# Share of every correlation that is always left out, so that columns which determine each other
# have a linear part too.
LEAST_SHRUNK = 1e-6


@dataclass(frozen=True, eq=False)
class LinearPart:
    r"""Affine map :math:`y = A (x - m)` that takes the linear part out of every conditional.

    :math:`y_d` is the error of the best linear prediction of :math:`x_d` from the columns before
    it in an order, in units of its own standard deviation. A is lower triangular along that order,
    so that an autoregressive density of y is one of x in the same order, as if each conditional
    had linear connections from the columns before it. A standard normal density of y is the
    Gaussian of x. With the covariance :math:`\Sigma = L L'` of the ordered columns, A is
    :math:`L^{-1}`, its rows and columns put back in their places.

    Attributes
    ----------
    mean : Tensor of shape (D,)
        m, in float64.
    A : Tensor of shape (D, D)
        In float64, with a positive diagonal.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[0.0, 1.0], [2.0, 4.0], [4.0, 9.0], [6.0, 14.0]])
    >>> y = LinearPart.fit(x).transform(x)
    >>> torch.cov(y.T, correction=0).round(decimals=4).abs()
    tensor([[1., 0.],
            [0., 1.]])
    """

    mean: Float[Tensor, " D"]
    A: Float[Tensor, "D D"]

    @classmethod
    def fit(
        cls,
        rows: Float[Tensor, "N D"],
        order: Int[Tensor, " D"] | None = None,
        weights: Float[Tensor, " N"] | None = None,
        *,
        shrink: bool = False,
    ) -> Self:
        """Measure the map on training rows.

        Parameters
        ----------
        rows : Tensor of shape (N, D)
        order : int Tensor of shape (D,), optional
            Of the columns; None for their own.
        weights : Tensor of shape (N,), optional
            Row weights.
        shrink : bool
            Shrink correlations as far as the number of rows calls for (`shrunk`): then any rows
            will do, and a column that others determine too.

        Raises
        ------
        SingularDataError
            If a column is a linear combination of others, or there are too few rows to tell, and
            correlations are not shrunk.
        """
        N, D = rows.shape
        order = torch.arange(D) if order is None else order
        order, x = order.to(rows.device), rows.double()
        w = None if weights is None else weights.double()
        mean = x.mean(0) if w is None else w @ x / w.sum()
        covariance = torch.cov(x[:, order].T, correction=0, aweights=w)
        covariance = covariance.view(D, D)  # of one column it has no axes
        if shrink:
            covariance = shrunk(covariance, N if w is None else float(w.sum() ** 2 / (w @ w)))
        L, failed = torch.linalg.cholesky_ex(covariance)
        if (N <= D and not shrink) or bool(failed):
            raise SingularDataError(
                f"The covariance of {N} rows of {D} dimensions is singular: linear predictions"
                " need many more rows than dimensions, and no dimension that others determine."
            )
        A = torch.zeros_like(L)
        A[order[:, None], order] = torch.linalg.solve_triangular(
            L, torch.eye(D, dtype=L.dtype, device=L.device), upper=False
        )
        return cls(mean, A)

    @property
    def log_determinant_terms(self) -> Float[Tensor, " D"]:
        """What each column adds to the log density of x."""
        return self.A.diagonal().log()

    @property
    def log_determinant(self) -> float:
        """What all columns add together: log p(x) is log p(y) plus this."""
        return float(self.log_determinant_terms.sum())

    def transform(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Rows without their linear part, computed in float64 and given in the rows' precision."""
        return ((x.double() - self.mean) @ self.A.T).to(x.dtype)

    def inverse(self, y: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Rows that `transform` maps to y."""
        x: Tensor = torch.linalg.solve(self.A, y.double().T).T + self.mean
        return x.to(y.dtype)


def shrunk(covariance: Float[Tensor, "D D"], n_rows: float) -> Float[Tensor, "D D"]:
    """A covariance whose correlations are shrunk, the more the fewer the rows; variances stay.

    By the share of the oracle approximating estimator of correlations (Chen, Wiesel, Eldar and
    Hero 2010), and at least `LEAST_SHRUNK`. A column that never changes has a variance of 1.
    """
    D = len(covariance)
    variance = covariance.diagonal()
    scale = torch.where(variance > 0, variance, 1.0).sqrt()
    R = covariance / scale / scale[:, None]
    R.diagonal().fill_(1.0)
    squares = float(R.square().sum())
    spread = (n_rows + 1 - 2 / D) * (squares - D)
    share = 1.0 if spread <= 0 else min(1.0, ((1 - 2 / D) * squares + D**2) / spread)
    R *= 1 - max(share, LEAST_SHRUNK)
    R.diagonal().fill_(1.0)
    return R * scale * scale[:, None]
