"""The paper's tables and figures, each from one command: ``rnade reproduce NAME``."""

from importlib import import_module
from typing import TYPE_CHECKING

from rnade.checks import unknown_name

if TYPE_CHECKING:
    from rnade.reproduce.core.experiment import AbstractExperiment

# Where each experiment stands; it is imported when it is asked for.
EXPERIMENTS = {
    "binary": "rnade.reproduce.binary.table",
    "table1": "rnade.reproduce.table1.table",
    "table2": "rnade.reproduce.patches.table2",
    "table3": "rnade.reproduce.speech.table3",
    "figure1": "rnade.reproduce.patches.figure1",
    "figure2": "rnade.reproduce.speech.figure2",
    "figure3": "rnade.reproduce.patches.figure3",
    "table1-dequantised": "rnade.reproduce.table1.dequantised",
    "table1-variants": "rnade.reproduce.table1.variants",
    "table3-variants": "rnade.reproduce.speech.variants",
}


def get_experiment(name: str) -> "AbstractExperiment":
    """Give the experiment called `name`."""
    if name not in EXPERIMENTS:
        raise unknown_name(name, list(EXPERIMENTS), "experiment")
    experiment: AbstractExperiment = import_module(EXPERIMENTS[name]).EXPERIMENT
    return experiment


__all__ = ["EXPERIMENTS", "get_experiment"]
