"""Bernoulli conditional for binary data (NADE and FVSBN)."""

import numpy as np
import torch
from jaxtyping import Float, Shaped
from scipy.special import expit
from torch import Generator, Tensor

from rnade.families.base import AbstractFamily, Epilogue, Floor, Outputs, Rows, RowWeights, Values
from rnade.typing import Array


class Bernoulli(AbstractFamily):
    r"""Binary value with :math:`p(x=1) = \mathrm{sigm}(z)`, the paper's equation 1."""

    name = "bernoulli"
    n_components = 1
    n_outputs = 1  # the log odds
    discrete = True
    has_scale = False

    def log_prob(
        self, x: Values, z: Outputs, log_floor: Floor = None, *, scale_mean_gradient: bool = False
    ) -> Values:
        z = z.squeeze(-1)
        return x * z - torch.nn.functional.softplus(z)

    def cdf(self, x: Values, z: Outputs, log_floor: Floor = None) -> Values:
        off = torch.sigmoid(-z.squeeze(-1))
        return torch.where(x < 0, torch.zeros_like(off), torch.where(x < 1, off, 1.0))

    def sample(
        self,
        z: Outputs,
        log_floor: Floor = None,
        *,
        generator: Generator,
        low: Values | None = None,
        high: Values | None = None,
    ) -> Values:
        """One draw for each z; a range that excludes 0 or 1 leaves the other."""
        p = torch.sigmoid(z.squeeze(-1))
        x = (torch.rand(p.shape, dtype=p.dtype, device=p.device, generator=generator) < p).to(p)
        if low is not None:
            x = torch.where(low > 0, torch.ones_like(x), x)
        if high is not None:
            x = torch.where(high < 1, torch.zeros_like(x), x)
        return x

    def starting_biases(
        self, rows: Rows, *, weights: RowWeights = None, spread: str = "quantile"
    ) -> Float[Tensor, "D P"]:
        """Log odds of each column, with one row of each value added so that none is infinite."""
        ones = (rows.sum(0) if weights is None else weights.to(rows) @ rows) + 1
        total = rows.shape[0] if weights is None else weights.to(rows).sum()
        return torch.log(ones / (total + 2 - ones)).unsqueeze(-1)

    def check_support(self, x: Shaped[Tensor, "..."]) -> None:
        """Only 0 and 1 have a probability."""
        wrong = (x != 0) & (x != 1)
        if wrong.any():
            raise ValueError(
                f"Expected only values 0 and 1 for binary data; got {x[wrong][0].item():g}"
                f" ({int(wrong.sum())} such values)."
            )

    def reference_epilogue(self, x: Array, z: Array, log_floor: float | None) -> Epilogue:
        z = z[:, 0]
        log_p = x * z - np.logaddexp(0, z)
        return Epilogue(log_p, (x - expit(z))[:, None], z)
