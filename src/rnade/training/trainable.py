"""What the gradient loop needs of a module."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from torch import Tensor, nn


@runtime_checkable
class Trainable(Protocol):
    """A bank of M scores of rows, each tensor of parameters with a leading axis M.

    Every `AbstractAutoregressive` is one. So is a bank whose members each score the rows in a way
    of their own, such as the conditionals of FVBN.
    """

    @property
    def n_models(self) -> int:
        """M."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """What is trained."""

    def decayed(self) -> list[str]:
        """Names of the parameters that weight decay touches."""

    def log_prob(self, x: Tensor) -> Tensor:
        """Score of each row, of shape (B,), or (M, B) for a bank; what validation looks at."""

    def weighted_log_likelihood(
        self, x: Tensor, weights: Tensor, *, scale_mean_gradient: bool = False
    ) -> Tensor:
        """Sum over rows of `weights`, of shape (M, B), times `log_prob`; of shape (M,)."""
