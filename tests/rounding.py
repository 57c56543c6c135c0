"""Float32 by the textbook: the accuracy that kernels are held to.

Plain torch in float32 is no measure of a kernel. The order of its sums, and with it the luck of
its rounding, changes with the processor. Here plain torch runs in float64, but each result is
rounded to float32 and each sum is taken one term after the other, so that its errors are those
that the lengths of the sums and the sizes of their terms allow, and the same on every machine.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

aten = torch.ops.aten
UNIT = 2.0**-24  # most that rounding to float32 changes a number, relative to it


class TextbookFloat32(TorchDispatchMode):
    """Within it, float64 operations of torch, also of backward passes, give float32's results."""

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        compute = SUMS.get(function.overloadpacket, function)
        result = compute(*arguments, **(keywords or {}))
        aliases = [r.alias_info for r in function._schema.returns]
        if any(alias is not None and alias.is_write for alias in aliases):
            return result.copy_(rounded(result))
        is_view = any(alias is not None for alias in aliases)
        return result if is_view else tree_map(rounded, result)


def rounded(t):
    """The nearest numbers of float32, in float64."""
    is_double = isinstance(t, torch.Tensor) and t.dtype == torch.float64
    return t.float().double() if is_double else t


def _sum_along(x, dim):
    total = torch.zeros_like(x.select(dim, 0))
    for term in x.unbind(dim):
        total = rounded(total + term)
    return total


def _sum(x, dims=None, keepdim=False, *, dtype=None):
    """One dimension after the other."""
    for dim in [d % x.ndim for d in dims] if dims else range(x.ndim):
        x = _sum_along(x, dim).unsqueeze(dim)
    if keepdim:
        return x
    kept = [n for d, n in enumerate(x.shape) if dims and d not in [e % x.ndim for e in dims]]
    return x.reshape(kept)


def _cumsum(x, dim, *, dtype=None):
    sums = [x.select(dim, 0)]
    for term in x.unbind(dim)[1:]:
        sums.append(rounded(sums[-1] + term))
    return torch.stack(sums, dim)


def _product(a, b):
    total = torch.zeros((*a.shape[:-1], b.shape[-1]), dtype=a.dtype)
    for column, row in zip(a.unbind(-1), b.unbind(-2), strict=True):
        total = rounded(total + rounded(column[..., :, None] * row[..., None, :]))
    return total


SUMS = {aten.sum: _sum, aten.cumsum: _cumsum, aten.mm: _product, aten.bmm: _product}


def textbook_and_truth(function, *arguments):
    """What a function of plain torch gives by the textbook, and in float64."""
    with TextbookFloat32():
        textbook = function(*arguments)
    return textbook, function(*arguments)


def errors(got, truth):
    """Root mean square error of each tensor."""
    pairs = zip(got, truth, strict=True)
    return torch.stack([(a.detach().cpu().double() - b).square().mean().sqrt() for a, b in pairs])


def assert_accurate(got, textbook, truth, names, units=0):
    """Errors at most twice those of the textbook, in the root mean square of each tensor.

    In few numbers the textbook may be lucky: some `units` of the largest are allowed besides.
    """
    assert [t.shape for t in got] == [t.shape for t in truth]
    sizes = torch.stack([t.abs().max() for t in truth])
    found, allowed = errors(got, truth), 2 * errors(textbook, truth) + units * UNIT * sizes
    assert (found <= allowed).all(), dict(zip(names, (found / allowed).tolist(), strict=True))
