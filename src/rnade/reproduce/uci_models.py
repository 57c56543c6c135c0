"""The models of Table 1, each fitted to all folds of a data set at once."""

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from scipy.stats import multivariate_normal

from rnade.exceptions import SpikeWarning
from rnade.reproduce import peers
from rnade.reproduce.ensembles import SETTINGS as ENSEMBLE_SETTINGS
from rnade.reproduce.ensembles import fit_ensembles
from rnade.reproduce.paper_protocol import COMPONENTS, DECAYS, N_HIDDEN, RATES, fit_paper
from rnade.reproduce.uci_folds import Column, Fitted, FoldRows
from rnade.training import PAPER


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


_PAPER_SETTINGS = {
    "components": list(COMPONENTS),
    "rates": list(RATES),
    "decays": list(DECAYS),
    "n_hidden": N_HIDDEN,
    "recipe": dataclasses.asdict(PAPER),
}


def _flow(kind: str) -> Column:
    return Column(
        f"zuko {kind}",
        partial(peers.fit_peer, partial(peers.fit_flow, kind), peers.FLOWS),
        {
            "grid": peers.FLOWS,
            "hidden": list(peers.HIDDEN),
            "batch_size": peers.BATCH,
            "epochs": peers.EPOCHS,
            "patience": peers.PATIENCE,
        },
        needs="zuko",
    )


COLUMNS = {
    "gaussian": Column("Gaussian", fit_gaussian, {}),
    "rnade-mog": Column("RNADE-MoG", partial(fit_paper, "gaussian"), _PAPER_SETTINGS),
    "rnade-mol": Column("RNADE-MoL", partial(fit_paper, "laplace"), _PAPER_SETTINGS),
    "rnade-default": Column("RNADE(), our default", fit_default, {}),
    "rnade-ensemble": Column("RNADE, ensemble", fit_ensembles, ENSEMBLE_SETTINGS),
    "gaussian-mixture": Column(
        "scikit-learn GaussianMixture",
        partial(peers.fit_peer, peers.fit_mixture, peers.MIXTURES),
        {"grid": peers.MIXTURES},
    ),
    "kernel-density": Column(
        "scikit-learn KernelDensity",
        partial(peers.fit_peer, peers.fit_kernels, peers.KERNELS),
        {"grid": peers.KERNELS},
    ),
    "zuko-nsf": _flow("NSF"),
    "zuko-maf": _flow("MAF"),
}
