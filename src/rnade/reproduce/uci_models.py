"""The simplest models of Table 1: the Gaussian, and `RNADE()` as it is."""

import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from scipy.stats import multivariate_normal

from rnade.exceptions import SpikeWarning
from rnade.reproduce.uci_folds import Fitted, FoldRows


def fit_gaussian(folds: Sequence[FoldRows], device: torch.device, quick: bool) -> Iterator[Fitted]:
    """Fit the full-covariance Gaussian by its closed form."""
    for fold in folds:
        rows = fold.all_training
        density = multivariate_normal(rows.mean(0), np.cov(rows, rowvar=False, ddof=0))
        yield Fitted(np.asarray(density.logpdf(fold.test)), {})


def fit_default(folds: Sequence[FoldRows], device: torch.device, quick: bool) -> Iterator[Fitted]:
    """`RNADE()` with no settings at all, one fold after the other."""
    from rnade.estimators import RNADE

    for fold in folds:
        model = RNADE(random_state=fold.number, device=str(device))
        if quick:
            model.set_params(epochs=3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SpikeWarning)  # of repeated values, as is well known
            model.fit(fold.all_training)
        details = {
            "validation": model.held_out_score().mean,
            "n_members": len(model.members_),
            "fit_seconds": model.fit_seconds_,
        }
        yield Fitted(model.score_samples(fold.test), details)
