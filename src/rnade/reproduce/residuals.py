"""Rows with the linear part of every conditional taken out: what RNADE is then left to learn."""

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rnade.exceptions import SingularDataError


@dataclass(frozen=True, eq=False)
class Residuals:
    r"""What is left of each dimension after its linear prediction from those before it.

    With the training rows' mean and covariance :math:`\Sigma = L L'`, dimensions in the given
    order, :math:`z = L^{-1}(x - \bar x)`: :math:`z_d` is the error of the best linear prediction
    of :math:`x_d` from :math:`x_{<d}`, in units of its own deviation. It depends on
    :math:`x_{\le d}` alone, so that an autoregressive density of z is one of x in the same order,
    as if each conditional had linear connections from the dimensions before it. A standard normal
    density of z is the Gaussian of x.

    Attributes
    ----------
    order : int Tensor of shape (D,)
    mean : Tensor of shape (D,)
        Of the rows, in that order.
    L : Tensor of shape (D, D)
        Lower triangular.
    """

    order: Int[Tensor, " D"]
    mean: Float[Tensor, " D"]
    L: Float[Tensor, "D D"]

    @classmethod
    def fit(cls, rows: Float[Tensor, "N D"], order: Int[Tensor, " D"]) -> Self:
        """Take mean and covariance of training rows, in float64."""
        x = rows[:, order.to(rows.device)].double()
        return cls(order.to(rows.device), x.mean(0), factor_of_covariance(x))

    def of(self, rows: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Residuals of rows, in the rows' precision."""
        centred = rows[:, self.order].double() - self.mean
        z: Tensor = torch.linalg.solve_triangular(self.L, centred.T, upper=False).T
        return z.to(rows.dtype).contiguous()

    def undo(self, z: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Rows that have these residuals."""
        ordered = z.double() @ self.L.T + self.mean
        return ordered[:, self.order.argsort()].to(z.dtype)

    @property
    def log_determinant(self) -> float:
        """Of dz/dx: to be added to the log density of z."""
        return -float(self.L.diagonal().log().sum())


def factor_of_covariance(x: Float[Tensor, "N D"]) -> Float[Tensor, "D D"]:
    """L, lower triangular, of the rows' covariance L L': the best linear predictions are in it."""
    L, failed = torch.linalg.cholesky_ex(torch.cov(x.T, correction=0))
    if len(x) <= x.shape[1] or bool(failed):
        raise SingularDataError(
            f"The covariance of {len(x)} rows of {x.shape[1]} dimensions is singular: linear"
            " predictions need many more rows than dimensions."
        )
    factor: Tensor = L
    return factor
