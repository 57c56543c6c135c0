"""The paper's tables and figures, each from one command: ``rnade reproduce NAME``."""

from importlib import import_module

from rnade.checks import unknown_name
from rnade.reproduce.experiment import AbstractExperiment

# Where each experiment stands; it is imported when it is asked for.
EXPERIMENTS = {
    "binary": "rnade.reproduce.binary",
    "table1": "rnade.reproduce.table1",
    "table2": "rnade.reproduce.table2",
    "table3": "rnade.reproduce.table3",
    "figure1": "rnade.reproduce.figure1",
    "figure2": "rnade.reproduce.figure2",
    "figure3": "rnade.reproduce.figure3",
    "table1-dequantised": "rnade.reproduce.table1_dequantised",
    "table1-variants": "rnade.reproduce.table1_variants",
}


def get_experiment(name: str) -> AbstractExperiment:
    """Give the experiment called `name`."""
    if name not in EXPERIMENTS:
        raise unknown_name(name, list(EXPERIMENTS), "experiment")
    experiment: AbstractExperiment = import_module(EXPERIMENTS[name]).EXPERIMENT
    return experiment


__all__ = ["EXPERIMENTS", "AbstractExperiment", "get_experiment"]
