"""Densities of cells by heads and links together, and their gradient."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rnade.backends import heads
from rnade.backends.heads import Layout
from rnade.columns.links import UNAVAILABLE
from rnade.columns.partition import N_FEATURES

# Beyond a cell's own four features (`rnade.columns.partition`): its value, and what each link of
# its column says of it (`rnade.columns.links`).
VALUE, FIRST_LINK = N_FEATURES, N_FEATURES + 1

Layouts = Layout | Sequence[Layout]


def log_densities(
    z: Tensor, gates: Tensor, x: Tensor, given: Tensor | None, layout: Layouts
) -> Tensor:
    """Log density of every cell, of shape (M, B, D), without a gradient.

    Parameters
    ----------
    z : Tensor of shape (M, B, P)
        Outputs of the heads.
    gates : Tensor of shape (M, B, D, R)
        Logits of the links' shares.
    x : Tensor of shape (B, D, ...) or (M, B, D, ...)
        Cells.
    given : bool Tensor of shape (..., B, D, R), or None
        Whether all sources of a link are given; None where there are no links.
    layout : Layout, or a sequence of M of them
        Of several the outputs of model m are the first of ``z[m]``, as many as its layout has.
    """
    terms = _of_heads(z, x[..., :N_FEATURES], layout)
    if given is None:
        return terms
    return torch.logsumexp(with_links(terms, gates, _said(x, gates), given)[0], -1)


def weighted_log_likelihood(
    z: Tensor, gates: Tensor, x: Tensor, weights: Tensor, given: Tensor | None, layout: Layouts
) -> Tensor:
    """Sum of weights times log densities over rows and columns, for each model, (M,).

    Parameters
    ----------
    z, gates, x, given, layout
        As of `log_densities`.
    weights : Tensor of shape (M, B, D)
        Of cells; 0 where a cell is not to count.
    """
    cells = x[..., :N_FEATURES]
    if given is None:
        return _weighted_of_heads(z, cells, weights, layout)
    # The gradient of a mixture is that of its parts' logarithms, each weighted by the share that
    # the part has in the value; so the heads need no other kernels than without links.
    of_heads = _of_heads(z, cells, layout)
    parts, log_shares = with_links(of_heads, gates, _said(x, gates), given)
    parts = parts.detach()
    blame = parts.softmax(-1)
    of_heads = _weighted_of_heads(z, cells, weights * blame[..., 0], layout)
    bound = of_heads + torch.einsum("mbd,mbdr,mbdr->m", weights, blame, log_shares)
    value = torch.where(weights != 0, weights * torch.logsumexp(parts, -1), 0.0).sum((1, 2))
    return bound + (value - bound).detach()


def _of_heads(z: Tensor, cells: Tensor, layout: Layouts) -> Tensor:
    if isinstance(layout, Layout):
        return heads.log_densities(z, cells, layout)
    each = zip(z, cells, layout, strict=True)
    return torch.cat(
        [heads.log_densities(z[None, :, : own.n_outputs], x, own) for z, x, own in each]
    )


def _weighted_of_heads(z: Tensor, cells: Tensor, weights: Tensor, layout: Layouts) -> Tensor:
    if isinstance(layout, Layout):
        return heads.weighted_log_likelihood(z, cells, weights, layout)
    # Unbound at once: the gradient of M slices of z would be M tensors of its size.
    each = zip(z.unbind(), cells, weights, layout, strict=True)
    found = [
        heads.weighted_log_likelihood(z[None, :, : own.n_outputs], x[None], w[None], own)
        for z, x, w, own in each
    ]
    return torch.cat(found)


def _said(x: Tensor, gates: Tensor) -> Tensor:
    """What the links say of each cell."""
    return x[..., FIRST_LINK : FIRST_LINK + gates.shape[-1]]


def with_links(
    of_heads: Tensor, gates: Tensor, terms: Tensor, given: Tensor
) -> tuple[Tensor, Tensor]:
    """Log densities of a mixture's parts, heads first and then links, and their log shares.

    Parameters
    ----------
    of_heads : Tensor of shape (...)
    gates : Tensor of shape (..., R)
        Logits of the links' shares; that of the heads is 0.
    terms : Tensor of shape (..., R)
        What the links say (`Link.terms`).
    given : bool Tensor of shape (..., R)
        Whether all sources of a link are given.

    Returns
    -------
    two Tensors of shape (..., 1 + R)
    """
    there = given & (terms < UNAVAILABLE)
    lowest = torch.finfo(gates.dtype).min / 16  # finite, for gradients
    gates = torch.where(there, gates, lowest)
    log_shares = torch.cat([torch.zeros_like(gates[..., :1]), gates], -1).log_softmax(-1)
    terms = torch.where(there, terms, 0.0).expand(gates.shape)
    return torch.cat([of_heads[..., None], terms], -1) + log_shares, log_shares
