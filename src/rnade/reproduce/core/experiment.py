"""What an experiment must say: its jobs, how they are done, and how results are laid out."""

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch

from rnade.checks import positive_int, unknown_name
from rnade.data import DataStore
from rnade.data.speech import SpeechFolder
from rnade.reproduce.core.layout import ResultTable
from rnade.reproduce.core.runner import Job, Record

Settings = dict[str, Any]
Result = dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """Which part of an experiment to run; None takes all, and a number of folds the first N.

    The quick version is small and has few settings: it shows that all works.
    """

    quick: bool = False
    datasets: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    folds: int | None = None
    speech: SpeechFolder = field(default_factory=SpeechFolder)


@dataclass(frozen=True)
class Context:
    """Where data comes from, where to compute and where records go.

    For Table 2 also the file of Zoran and Weiss's mixture, for Table 3 where sound files are.
    """

    store: DataStore
    device: torch.device
    folder: Path = Path()
    mixture_file: Path | None = None
    speech: SpeechFolder = field(default_factory=SpeechFolder)

    def models_of(self, experiment: str, *, quick: bool) -> Path:
        """Where an experiment keeps its models, whichever asks: in a folder beside this one."""
        return self.folder.parent / f"{experiment}{'-quick' if quick else ''}" / "models"


class AbstractExperiment(abc.ABC):
    """An experiment: a plan of jobs, the doing of them, and tables of their records.

    A subclass gives either `settings` and `result`, if it has one job for each data set and model
    that is done on its own, or its own `plan` and `execute`.

    Attributes
    ----------
    name : str
        What the command line calls it.
    title : str
    datasets, models : tuples of str
        What can be chosen.
    n_folds : int
        Folds there are; 0 where the data has a fixed split.
    unless_chosen, quick_unless_chosen : tuples of str, or None
        Data sets that a run takes, and a quick one, where none are chosen; None for all.
    quick_folds : int or None
        Folds that a quick run takes where their number is not chosen.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    datasets: ClassVar[tuple[str, ...]]
    models: ClassVar[tuple[str, ...]]
    n_folds: ClassVar[int] = 0
    unless_chosen: ClassVar[tuple[str, ...] | None] = None
    quick_unless_chosen: ClassVar[tuple[str, ...] | None] = None
    quick_folds: ClassVar[int | None] = None

    def settings(self, dataset: str, model: str, choice: Choice) -> Settings:
        """What the result of a model's jobs on a data set depends on."""
        raise NotImplementedError

    def result(self, job: Job, context: Context) -> Result | None:
        """Do a job; None where something that it needs is not given."""
        raise NotImplementedError

    def plan(self, choice: Choice) -> list[list[Job]]:
        """Groups of jobs; those of a group are executed together."""
        self.chosen_folds(choice)  # says so if there are none to choose
        return [
            [Job({"dataset": dataset, "model": model}, self.settings(dataset, model, choice))]
            for dataset in self.chosen_datasets(choice)
            for model in self.chosen_models(choice)
        ]

    def execute(self, jobs: Sequence[Job], context: Context) -> Iterator[tuple[Job, Result]]:
        """Do the jobs of a group, and give the result of each as plain JSON values."""
        for job in jobs:
            result = self.result(job, context)
            if result is not None:
                yield job, result

    @abc.abstractmethod
    def tables(self, choice: Choice, records: Mapping[str, Record]) -> list[ResultTable]:
        """Lay out the records of the plan's jobs, given by the identity of their job."""

    def pictures(self, choice: Choice, records: Mapping[str, Record]) -> dict[str, bytes]:
        """Draw the records: contents of files by their names; an experiment may have none."""
        return {}

    def known(
        self, choice: Choice, records: Mapping[str, Record]
    ) -> tuple[dict[str, Record], int]:
        """Records of the plan's own jobs; and how many of its jobs have none."""
        wanted = {job.identity for group in self.plan(choice) for job in group}
        known = {identity: record for identity, record in records.items() if identity in wanted}
        return known, len(wanted) - len(known)

    def chosen_datasets(self, choice: Choice) -> tuple[str, ...]:
        """The chosen data sets, in the experiment's order."""
        default = self.quick_unless_chosen if choice.quick else self.unless_chosen
        return _chosen(choice.datasets or default, self.datasets, "data set")

    def chosen_models(self, choice: Choice) -> tuple[str, ...]:
        """The chosen models, in the experiment's order."""
        return _chosen(choice.models, self.models, "model")

    def chosen_folds(self, choice: Choice) -> range:
        """Numbers of the chosen folds."""
        if choice.folds is None:
            return range(self.n_folds)[: self.quick_folds if choice.quick else None]
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
