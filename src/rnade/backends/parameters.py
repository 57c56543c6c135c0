"""The tensors of a tied autoregressive network, with their leading model axis."""

from typing import NamedTuple

import torch
from torch import Tensor


class Parameters(NamedTuple):
    """Parameters of M models of one shape; every tensor has the leading axis M.

    Attributes
    ----------
    W : Tensor of shape (M, D, H)
        a_{d+1} = a_d + x_d W[d].
    c : Tensor of shape (M, H)
        a_1 = c.
    rho : Tensor of shape (M, D)
        psi_d = rho_d a_d.
    V : Tensor of shape (M, D, H, P)
        z_d = V[d]' h_d + b[d], the numbers that the family turns into a density.
    b : Tensor of shape (M, D, P)
    log_floor : Tensor of shape (M, D) or None
        Logarithm of the smallest scale of each dimension's components; None for no floor.
    U : Tensor of shape (M, L, H, H) or None
        Residual layers between psi and z, which dimensions share: s_d = psi_d, then for each l
        s_d <- s_d + U[l]' g(s_d) + u[l, d], and h_d = s_d. None for none, and h_d = g(psi_d).
    u : Tensor of shape (M, L, D, H) or None
    """

    W: Tensor
    c: Tensor
    rho: Tensor
    V: Tensor
    b: Tensor
    log_floor: Tensor | None = None
    U: Tensor | None = None
    u: Tensor | None = None

    @property
    def trained(self) -> list[Tensor]:
        """Tensors that have gradients: all but the floor, without those that are not there."""
        all_of_them = (self.W, self.c, self.rho, self.V, self.b, self.U, self.u)
        return [t for t in all_of_them if t is not None]

    def wants_gradient(self, x: Tensor) -> bool:
        """Whether a gradient of the rows x or of a parameter will be asked for."""
        return torch.is_grad_enabled() and any(
            t is not None and t.requires_grad for t in (x, *self)
        )
