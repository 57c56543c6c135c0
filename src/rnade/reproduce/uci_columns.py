"""The columns of Table 1."""

from functools import partial

from rnade.reproduce import peers, uci_fvbn, uci_mfa
from rnade.reproduce.ensembles import KERNEL_SETTINGS, WITH_KERNELS, fit_ensembles
from rnade.reproduce.ensembles import SETTINGS as ENSEMBLE_SETTINGS
from rnade.reproduce.paper_protocol import PROTOCOLS, fit_paper
from rnade.reproduce.uci_folds import Column
from rnade.reproduce.uci_models import fit_default, fit_gaussian


def _paper(label: str, family: str) -> Column:
    return Column(label, partial(fit_paper, family), PROTOCOLS[family].settings(family))


def _flow(kind: str) -> Column:
    return Column(
        f"zuko {kind}",
        partial(peers.fit_peer, partial(peers.fit_flow, kind), peers.FLOWS, peers.QUICK_FLOWS),
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
    "mfa": Column("MFA", uci_mfa.fit_mfa, uci_mfa.SETTINGS),
    "fvbn": Column("FVBN", uci_fvbn.fit_fvbn, uci_fvbn.SETTINGS),
    "rnade-mog": _paper("RNADE-MoG", "gaussian"),
    "rnade-mol": _paper("RNADE-MoL", "laplace"),
    "rnade-default": Column("RNADE(), our default", fit_default, {}),
    "rnade-ensemble": Column("RNADE, ensemble", fit_ensembles, ENSEMBLE_SETTINGS),
    WITH_KERNELS: Column("RNADE, ensemble with kernels", fit_ensembles, KERNEL_SETTINGS),
    "gaussian-mixture": Column(
        "scikit-learn GaussianMixture",
        partial(peers.fit_peer, peers.fit_mixture, peers.MIXTURES, peers.MIXTURES[:2]),
        {"grid": peers.MIXTURES},
    ),
    "kernel-density": Column(
        "scikit-learn KernelDensity",
        partial(peers.fit_peer, peers.fit_kernels, peers.KERNELS, peers.KERNELS[-2:]),
        {"grid": peers.KERNELS},
    ),
    "zuko-nsf": _flow("NSF"),
    "zuko-maf": _flow("MAF"),
}
