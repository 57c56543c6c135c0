"""The columns of Table 1, and the simplest of them: the Gaussian, and `RNADE()` as it is."""

import warnings
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from scipy.stats import multivariate_normal

from rnade.estimators.kinds import CHOICES
from rnade.evaluation import weights_by_kind
from rnade.exceptions import SpikeWarning
from rnade.reproduce.table1 import fvbn, mfa, peers
from rnade.reproduce.table1.ensembles import KERNEL_SETTINGS, WITH_KERNELS, fit_ensembles
from rnade.reproduce.table1.ensembles import SETTINGS as ENSEMBLE_SETTINGS
from rnade.reproduce.table1.folds import Column, Fitted, FoldRows
from rnade.reproduce.table1.protocol import PROTOCOLS, fit_paper


def fit_gaussian(folds: Sequence[FoldRows], device: torch.device, quick: bool) -> Iterator[Fitted]:
    """Fit the full-covariance Gaussian by its closed form."""
    for fold in folds:
        rows = fold.all_training
        density = multivariate_normal(rows.mean(0), np.cov(rows, rowvar=False, ddof=0))
        yield Fitted(np.asarray(density.logpdf(fold.test)))


def fit_default(
    effort: str, folds: Sequence[FoldRows], device: torch.device, quick: bool
) -> Iterator[Fitted]:
    """`RNADE()` with no settings but its effort, one fold after the other."""
    from rnade.estimators import RNADE

    for fold in folds:
        model = RNADE(
            random_state=fold.number,
            device=str(device),
            columns="real",
            questions=False,
            effort=effort,
        )
        if quick:
            model.set_params(epochs=3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SpikeWarning)  # of repeated values, as is well known
            model.fit(fold.all_training)
        details = {
            "validation": model.held_out_score().mean,
            "n_members": len(model.members_),
            "weights": weights_by_kind(model.members_),
            "fit_seconds": model.fit_seconds_,
        }
        yield Fitted(model.score_samples(fold.test), details)


def _paper(label: str, family: str) -> Column:
    return Column(label, partial(fit_paper, family), PROTOCOLS[family].settings(family))


def _effort(label: str, effort: str) -> Column:
    # What is trained, so that records of other kinds are not taken for these.
    kinds = [{"words": kind.words, **kind.changes} for kind in CHOICES[effort]]
    return Column(label, partial(fit_default, effort), {"effort": effort, "kinds": kinds})


COLUMNS = {
    "gaussian": Column("Gaussian", fit_gaussian, {}),
    "mfa": Column("MFA", mfa.fit_mfa, mfa.SETTINGS),
    "fvbn": Column("FVBN", fvbn.fit_fvbn, fvbn.SETTINGS),
    "rnade-mog": _paper("RNADE-MoG", "gaussian"),
    "rnade-mol": _paper("RNADE-MoL", "laplace"),
    "rnade-default": _effort("RNADE(), our default", "default"),
    "rnade-ensemble": Column("RNADE, ensemble", fit_ensembles, ENSEMBLE_SETTINGS),
    WITH_KERNELS: Column("RNADE, ensemble with kernels", fit_ensembles, KERNEL_SETTINGS),
    "gaussian-mixture": peers.peer("gaussian-mixture", peers.fit_mixture),
    "kernel-density": peers.peer("kernel-density", peers.fit_kernels),
    "zuko-nsf": peers.peer("zuko-nsf", partial(peers.fit_flow, "NSF")),
    "zuko-maf": peers.peer("zuko-maf", partial(peers.fit_flow, "MAF")),
}
