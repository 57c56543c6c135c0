"""The tensors of a tied autoregressive network, with their leading model axis."""

from typing import Literal, NamedTuple, get_args

from torch import Tensor

from rnade.checks import unknown_name

Activation = Literal["relu", "sigmoid", "identity"]


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
    def weights(self) -> list[Tensor]:
        """Tensors that are trained: all but the floor, without those that are not there."""
        return [t for t in (*self[:5], self.U, self.u) if t is not None]


def check_activation(name: object) -> Activation:
    """Return `name` if it is an activation, else raise an error that gives the nearest one."""
    known = get_args(Activation)
    if name not in known:
        raise unknown_name(name, list(known), "activation")
    return name  # type: ignore[return-value]
