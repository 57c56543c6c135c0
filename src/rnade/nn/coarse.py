"""Densities of rows of any table at a coarse scale: for outliers, not for likelihoods."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rnade.nn.mog import MixtureOfGaussiansModule


class CoarseModule(nn.Module):
    r"""Mixtures of Gaussians that are nowhere narrower than a good part of a standard deviation.

    A density as sharp as the data allow differs by many nats between usual rows: values that
    repeat, and columns that nearly determine each other, make narrow peaks. This one tells apart
    only what lies far from all rows. Numbers are standardised; of a column of levels each frequent
    one is a number of its own, 0 or 1; a missing cell is as usual as can be, at the mean.

    Parameters
    ----------
    levels : sequence of sequences of int, or None for each column
        Codes of the levels that are told apart; None for a number.
    mixtures : MixtureOfGaussiansModule
        G of them, in the space of the encoded columns: each has left out other rows.

    Attributes
    ----------
    mean, scale : Tensor of shape (E,)
        Of the encoded columns.
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self, levels: Sequence[Sequence[int] | None], mixtures: MixtureOfGaussiansModule
    ) -> None:
        super().__init__()
        self.levels = [None if own is None else [int(code) for code in own] for own in levels]
        self.mixtures = mixtures
        self.register_buffer("mean", torch.zeros(mixtures.n_dimensions))
        self.register_buffer("scale", torch.ones(mixtures.n_dimensions))

    def encoded(self, values: Float[Tensor, "B D"]) -> Float[Tensor, "B E"]:
        """Rows as the mixtures take them; NaN marks a missing cell."""
        cells = encoded(values.to(self.mean), self.levels)
        return ((cells - self.mean) / self.scale).nan_to_num(0.0)

    def log_prob(self, values: Float[Tensor, "B D"]) -> Float[Tensor, "G B"]:
        """Log density of each row by each mixture, in the space of the encoded columns."""
        found: Tensor = self.mixtures.log_prob(self.encoded(values))
        return found.view(self.mixtures.n_models, -1)


def encoded(
    values: Float[Tensor, "B D"], levels: Sequence[Sequence[int] | None]
) -> Float[Tensor, "B E"]:
    """Numbers as they are, and 0 or 1 for each level that is told apart; NaN stays NaN."""
    found = []
    for x, own in zip(values.T, levels, strict=True):
        if own is None:
            found.append(x)
        else:
            known = torch.where(x.isnan(), torch.nan, 1.0).to(x)
            found += [known * (x == code) for code in own]
    return torch.stack(found, 1)
