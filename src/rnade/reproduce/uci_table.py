"""What both tables of the UCI data sets share: their jobs, how they are done, and their layout."""

import abc
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import groupby
from typing import Any, ClassVar

import numpy as np

from rnade.data import UCI_SETS, DataStore, UciSet
from rnade.evaluation import mean_score
from rnade.reproduce.experiment import AbstractExperiment, Choice, Context
from rnade.reproduce.layout import Cell, ResultTable
from rnade.reproduce.runner import Job, Record
from rnade.reproduce.statistics import best_group, over_folds
from rnade.reproduce.uci_columns import COLUMNS
from rnade.reproduce.uci_folds import FoldRows
from rnade.typing import Array

# What the quick version runs, unless told otherwise.
QUICK_SETS = ("red-wine", "ionosphere", "boston")
# Of the folds of all sets but red wine, which has the authors' own.
FOLD_SEED = 0
MODELS = {name: column.label for name, column in COLUMNS.items()}
SET_LABELS = {
    "red-wine": "Red wine",
    "white-wine": "White wine",
    "parkinsons": "Parkinsons",
    "ionosphere": "Ionosphere",
    "boston": "Boston housing",
}


class AbstractUciTable(AbstractExperiment):
    """Average test log-likelihood on five UCI data sets, over ten folds.

    Attributes
    ----------
    note : str
        What the figures are.
    figures : dict
        Published ones, by data set and label.
    extra_settings : dict
        What results depend on besides folds and models.
    """

    note: ClassVar[str]
    figures: ClassVar[dict[str, dict[str, float]]] = {}
    extra_settings: ClassVar[dict[str, Any]] = {}

    datasets = UCI_SETS
    models = tuple(MODELS)
    n_folds = 10

    @abc.abstractmethod
    def load(self, dataset: str, store: DataStore) -> UciSet:
        """Read a data set and prepare it."""

    def chosen_datasets(self, choice: Choice) -> tuple[str, ...]:
        """The chosen data sets; without a choice the quick version takes the three smallest."""
        if choice.quick and choice.datasets is None:
            return QUICK_SETS
        return super().chosen_datasets(choice)

    def plan(self, choice: Choice) -> list[list[Job]]:
        """One job a fold and model; a group has all folds of a model, or of models of one fit."""
        folds = range(2) if choice.quick and choice.folds is None else self.chosen_folds(choice)
        models = self.chosen_models(choice)
        together = [list(same) for _, same in groupby(models, key=lambda m: COLUMNS[m].fit)]
        return [
            [self._job(dataset, m, fold, quick=choice.quick) for fold in folds for m in group]
            for dataset in self.chosen_datasets(choice)
            for group in together
        ]

    def execute(
        self, jobs: Sequence[Job], context: Context
    ) -> Iterator[tuple[Job, dict[str, Any]]]:
        """Fit all folds of a data set and a model, or models of one fit, and score each."""
        first = jobs[0]
        column = COLUMNS[first.key["model"]]
        if column.needs is not None and find_spec(column.needs) is None:
            warnings.warn(
                f"{column.needs} is not installed, so {column.label} is left out: pip install"
                " 'rnade[peers]', then give the same command again.",
                UserWarning,
                stacklevel=2,
            )
            return
        table = self.load(first.key["dataset"], context.store)
        folds = table.folds(self.n_folds, seed=FOLD_SEED)
        numbers = sorted({job.key["fold"] for job in jobs})
        rows = [FoldRows.of(table, folds[number], number) for number in numbers]
        fitted = column.fit(rows, context.device, first.settings["quick"])
        for fold, whole in zip(rows, fitted, strict=True):
            n_train = len(fold.all_training)
            for job in (job for job in jobs if job.key["fold"] == fold.number):
                own = whole.also.get(job.key["model"], whole)
                yield job, _summary(own.scores, n_train) | row_facts(own.scores) | own.details

    def tables(self, choice: Choice, records: Mapping[str, Record]) -> list[ResultTable]:
        """One table: models by data sets, bold by the paper's test."""
        cells: dict[tuple[str, str], Cell] = {}
        for dataset in self.chosen_datasets(choice):
            scores = scores_by_model(records, dataset)
            bold = best_group(scores) if scores else set()
            for model, label in MODELS.items():
                published = self.figures.get(dataset, {}).get(label)
                cell = Cell(published=published)
                if model in scores:
                    mean = over_folds(scores[model])
                    error = mean.standard_error if mean.n_rows > 1 else None
                    cell = Cell(mean.mean, error, published, bold=model in bold)
                cells[label, SET_LABELS[dataset]] = cell
        return [
            ResultTable(
                self.title,
                self.note,
                "model",
                [MODELS[model] for model in self.chosen_models(choice)],
                [SET_LABELS[dataset] for dataset in self.chosen_datasets(choice)],
                cells,
            )
        ]

    def _job(self, dataset: str, model: str, fold: int, *, quick: bool) -> Job:
        settings = {
            "fold_seed": FOLD_SEED,
            "quick": quick,
            **self.extra_settings,
            **COLUMNS[model].settings,
        }
        return Job({"dataset": dataset, "model": model, "fold": fold}, settings)


def _summary(scores: Array, n_train: int) -> dict[str, Any]:
    mean = mean_score(scores)
    return {
        "test": mean.mean,
        "standard_error": mean.standard_error,
        "n_test": mean.n_rows,
        "n_train": n_train,
    }


def row_facts(scores: Array) -> dict[str, Any]:
    """Say how far a few rows make the mean: the median, the lowest, and the mean without it."""
    ordered = np.sort(scores)
    return {
        "median": float(np.median(scores)),
        "worst": [float(score) for score in ordered[:3]],
        "without_worst": float(ordered[1:].mean()),
    }


def scores_by_model(records: Mapping[str, Record], dataset: str) -> dict[str, Array]:
    """Fold means of each model, on the folds that all of the models have."""
    found: dict[str, dict[int, float]] = {}
    for record in records.values():
        job = record["job"]
        if job["dataset"] == dataset:
            found.setdefault(job["model"], {})[job["fold"]] = record["result"]["test"]
    common = sorted(set.intersection(*(set(folds) for folds in found.values()))) if found else []
    return {m: np.array([folds[k] for k in common]) for m, folds in found.items() if common}
