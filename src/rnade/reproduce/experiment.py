"""What an experiment must say: its jobs, how they are done, and how results are laid out."""

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from rnade.checks import positive_int, unknown_name
from rnade.data import DataStore
from rnade.reproduce.layout import ResultTable
from rnade.reproduce.runner import Job, Record
from rnade.reproduce.speech_data import DATA_FOLDER, SpeechFolder


@dataclass(frozen=True)
class Choice:
    """Which part of an experiment to run; None takes all.

    Attributes
    ----------
    quick : bool
        A small version with few settings, which shows that all works.
    datasets, models : tuple of str, or None
    folds : int or None
        The first so many.
    speech : SpeechFolder
        For experiments on speech.
    """

    quick: bool = False
    datasets: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    folds: int | None = None
    speech: SpeechFolder = DATA_FOLDER


@dataclass(frozen=True)
class Context:
    """Where data comes from, where to compute and where results go.

    Attributes
    ----------
    store : DataStore
    device : torch.device
    folder : Path
        Of the records; what else an experiment keeps goes there too.
    mixture_file : Path or None
        Zoran and Weiss's mixture, for Table 2.
    speech : SpeechFolder
        For experiments on speech.
    """

    store: DataStore
    device: torch.device
    folder: Path = Path()
    mixture_file: Path | None = None
    speech: SpeechFolder = DATA_FOLDER


class AbstractExperiment(abc.ABC):
    """An experiment: a plan of jobs, the doing of them, and tables of their records.

    Attributes
    ----------
    name : str
        What the command line calls it.
    title : str
    datasets, models : tuples of str
        What can be chosen.
    n_folds : int
        Folds there are; 0 where the data has a fixed split.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    datasets: ClassVar[tuple[str, ...]]
    models: ClassVar[tuple[str, ...]]
    n_folds: ClassVar[int] = 0

    @abc.abstractmethod
    def plan(self, choice: Choice) -> list[list[Job]]:
        """Groups of jobs; those of a group are executed together."""

    @abc.abstractmethod
    def execute(
        self, jobs: Sequence[Job], context: Context
    ) -> Iterator[tuple[Job, dict[str, Any]]]:
        """Do the jobs of a group, and give the result of each as plain JSON values."""

    @abc.abstractmethod
    def tables(self, choice: Choice, records: Mapping[str, Record]) -> list[ResultTable]:
        """Lay out the records of the plan's jobs, given by the identity of their job."""

    def pictures(self, records: Mapping[str, Record], folder: Path) -> list[Path]:
        """Draw what the records hold into files in `folder`; most experiments have no pictures."""
        return []

    def chosen_datasets(self, choice: Choice) -> tuple[str, ...]:
        """The chosen data sets, in the experiment's order."""
        return _chosen(choice.datasets, self.datasets, "data set")

    def chosen_models(self, choice: Choice) -> tuple[str, ...]:
        """The chosen models, in the experiment's order."""
        return _chosen(choice.models, self.models, "model")

    def chosen_folds(self, choice: Choice) -> range:
        """Numbers of the chosen folds."""
        if choice.folds is None:
            return range(self.n_folds)
        if not self.n_folds:
            raise ValueError(f"{self.name} has a fixed split and no folds to choose from.")
        if positive_int(choice.folds, "folds") > self.n_folds:
            raise ValueError(f"folds must be at most {self.n_folds}; got {choice.folds}.")
        return range(choice.folds)


def _chosen(given: tuple[str, ...] | None, known: tuple[str, ...], what: str) -> tuple[str, ...]:
    if given is None:
        return known
    for name in given:
        if name not in known:
            raise unknown_name(name, list(known), what)
    return tuple(name for name in known if name in given)
