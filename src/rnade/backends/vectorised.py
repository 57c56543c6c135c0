"""Plain torch on any device: an exclusive cumulative sum and a batched product a layer.

Stores tensors of size M x D x B x H, so large batches are better given in chunks; autograd works
through all of it, any number of times. The fast paths are judged by this one and by the reference.
"""

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from rnade.backends.parameters import Parameters
from rnade.backends.spec import Activation, Spec
from rnade.batch import Batch


def outputs(batch: Batch, parameters: Parameters, spec: Spec) -> Float[Tensor, "M D B P"]:
    """The numbers z_d = V_d' h_d + b_d for every dimension, from which a family makes densities.

    With an order, dimension `order[m, 0]` comes first, `order[m, 1]` second and so on; the result
    is laid out by dimension all the same.
    """
    W, order = parameters.W, batch.order
    xt = batch.x.transpose(1, 2)  # (M, D, B)
    if order is not None:
        xt = torch.take_along_dim(xt, order[:, :, None], dim=1)
        W = torch.take_along_dim(W, order[:, :, None], dim=1)
    increments = xt[..., None] * W[:, :, None, :]  # (M, D, B, H)
    a = increments.cumsum(1) - increments + parameters.c[:, None, None, :]
    if order is not None:
        a = torch.take_along_dim(a, order.argsort(1)[:, :, None, None], dim=1)
    psi = parameters.rho[:, :, None, None] * a
    h = hidden(psi, spec.activation, parameters.U, parameters.u)
    return torch.matmul(h, parameters.V) + parameters.b[:, :, None, :]


def hidden(
    psi: Float[Tensor, "M *D B H"],
    activation: Activation,
    U: Float[Tensor, "M L H H"] | None,
    u: Float[Tensor, "M L *D H"] | None,
) -> Float[Tensor, "M *D B H"]:
    """Hidden units h from psi: g(psi), or psi after the residual layers where there are any."""
    if U is None or u is None:
        return activate(psi, activation)
    s = psi
    for U_l, u_l in zip(U.unbind(1), u.unbind(1), strict=True):
        # One product over the rows of all dimensions, which share the layer's weights.
        product = torch.bmm(activate(s, activation).flatten(1, -2), U_l).view_as(s)
        s = s + product + u_l.unsqueeze(-2)
    return s


def log_conditionals(batch: Batch, parameters: Parameters, spec: Spec) -> Float[Tensor, "M B D"]:
    """The D terms log p(x_d | x_<d) of each row, laid out by dimension whatever the order."""
    floor = parameters.log_floor
    terms = spec.family.log_prob(
        batch.x.transpose(1, 2),
        outputs(batch, parameters, spec),
        None if floor is None else floor[:, :, None],
        scale_mean_gradient=spec.scale_mean_gradient,
    )
    return terms.transpose(1, 2)


def log_prob(batch: Batch, parameters: Parameters, spec: Spec) -> Float[Tensor, "M B"]:
    """Log density of each row in nats: the sum of `log_conditionals`."""
    return log_conditionals(batch, parameters, spec).sum(-1)


def weighted_log_likelihood(
    batch: Batch, parameters: Parameters, spec: Spec
) -> Float[Tensor, " M"]:
    """Sum over rows of weight times log density, for each model."""
    return weighted_sum(log_conditionals(batch, parameters, spec), batch.weights)


def weighted_sum(
    terms: Float[Tensor, "M B D"], weights: Float[Tensor, "M B *D"] | None
) -> Float[Tensor, " M"]:
    """Sum of terms times weights, of rows or of cells."""
    if weights is not None and weights.ndim == 3:
        return (weights * terms).sum((1, 2))
    rows = terms.sum(-1)
    return (rows if weights is None else weights * rows).sum(-1)


def sample(
    n: int,
    parameters: Parameters,
    spec: Spec,
    *,
    order: Int[Tensor, "M D"] | None = None,
    generator: Generator,
    low: Float[Tensor, " D"] | None = None,
    high: Float[Tensor, " D"] | None = None,
) -> Float[Tensor, "M n D"]:
    """Exact draws, one dimension after the other, in O(DH) a row (O(DH^2) with residual layers).

    With `low` and `high` each conditional is truncated to that column's range.
    """
    W, c, rho, V, b, log_floor, U, u = parameters
    M, D, H = W.shape
    x = W.new_zeros(M, n, D)
    a = c[:, None, :].expand(M, n, H)
    member = torch.arange(M, device=W.device)
    for i in range(D):
        # d has one entry for each model: the dimension that comes i-th in its order.
        d = torch.full_like(member, i) if order is None else order[:, i]
        u_d = None if u is None else u[member, :, d]
        h = hidden(rho[member, d][:, None, None] * a, spec.activation, U, u_d)
        z = torch.baddbmm(b[member, d][:, None, :], h, V[member, d])  # (M, n, P)
        x_d = spec.family.sample(
            z,
            None if log_floor is None else log_floor[member, d][:, None],
            generator=generator,
            low=None if low is None else low[d][:, None],
            high=None if high is None else high[d][:, None],
        )
        x[member, :, d] = x_d
        a = a + x_d[..., None] * W[member, d][:, None, :]
    return x


def activate(psi: Tensor, activation: Activation) -> Tensor:
    """g(psi)."""
    if activation == "relu":
        return torch.relu(psi)
    if activation == "sigmoid":
        return torch.sigmoid(psi)
    return psi
