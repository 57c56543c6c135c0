"""What the columns of Table 1 are given and give back: rows of folds, and scored test rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rnade.batch import Batch
from rnade.data import Fold, UciSet
from rnade.training import ShuffledRows
from rnade.typing import Array


@dataclass(frozen=True)
class FoldRows:
    """Rows of one fold, standardised by the mean and deviation of all its training rows."""

    number: int
    train: Array
    validation: Array
    test: Array

    @staticmethod
    def of(table: UciSet, fold: Fold, number: int) -> "FoldRows":
        """Standardise the rows of a fold."""
        everything = table.X[fold.all_training]
        mean, scale = everything.mean(0), everything.std(0)
        parts = ((table.X[at] - mean) / scale for at in (fold.train, fold.validation, fold.test))
        return FoldRows(number, *parts)

    @property
    def all_training(self) -> Array:
        """Training and validation rows."""
        return np.concatenate([self.train, self.validation])

    def sources(
        self, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> tuple[ShuffledRows, Batch, ShuffledRows]:
        """Rows on which settings are searched, those held out, and all for the chosen one."""
        train, validation, everything = (
            torch.as_tensor(rows, dtype=dtype).to(device)
            for rows in (self.train, self.validation, self.all_training)
        )
        n = self.number
        return ShuffledRows(train, n), Batch(validation), ShuffledRows(everything, n)


@torch.no_grad()
def log_terms(module: Any, rows: Array) -> Array:
    """Each row's terms log p(x_d | x_<d), of shape (N, D), in float64; of a bank (M, N, D)."""
    module = module.double()
    x = torch.as_tensor(rows, dtype=torch.float64).to(module.device)
    return np.asarray(module.log_conditionals(x).cpu().numpy())


@torch.no_grad()
def log_densities(module: Any, rows: Array) -> Array:
    """Log density of each row, of shape (N,), in float64."""
    module = module.double()
    x = torch.as_tensor(rows, dtype=torch.float64).to(module.device)
    return np.asarray(module.log_prob(x).cpu().numpy())


@dataclass(frozen=True)
class Fitted:
    """Log densities of a fold's test rows, and what else is worth recording.

    With them those of other columns that the same fit makes, by their names.
    """

    scores: Array
    details: dict[str, Any] = field(default_factory=dict)
    also: Mapping[str, "Fitted"] = field(default_factory=dict)


# Fits all folds, in a small version if the last argument says so; gives them in their order.
Fit = Callable[[Sequence[FoldRows], torch.device, bool], Iterator[Fitted]]


@dataclass(frozen=True)
class Column:
    """A column of the table: its label, as the paper has it if it does, and how it is fitted.

    Columns that stand beside each other and have the same `fit` are fitted together. The settings
    are for the record. A column may need a package beyond rnade's own.
    """

    label: str
    fit: Fit
    settings: dict[str, Any]
    needs: str | None = None
