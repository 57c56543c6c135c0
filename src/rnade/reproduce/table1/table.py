"""The paper's Table 1: five UCI data sets, ten folds.

    rnade reproduce table1 --data-dir FOLDER

Columns are standardised by the mean and population standard deviation of a fold's training rows
(validation rows among them), and log-likelihoods are of the standardised data, as in the paper.
Each fold's model is fitted to all its training rows and scored on its test rows. Beside the
paper's columns stand `RNADE()` with no settings at all, and estimators of other libraries.
"""

import abc
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import groupby
from typing import Any, ClassVar

import numpy as np

from rnade.data import UCI_SETS, DataStore, UciSet, load_uci
from rnade.evaluation import mean_score
from rnade.reproduce.core.experiment import AbstractExperiment, Choice, Context, Result, Settings
from rnade.reproduce.core.layout import Cell, ResultTable
from rnade.reproduce.core.plans import read_plan, targets
from rnade.reproduce.core.runner import Job, Record
from rnade.reproduce.core.statistics import best_group
from rnade.reproduce.table1.columns import COLUMNS
from rnade.reproduce.table1.folds import FoldRows
from rnade.typing import Array

# Of the folds of all sets but red wine, which has the authors' own.
FOLD_SEED = 0
PLAN = read_plan("table1")
SET_LABELS: dict[str, str] = PLAN["datasets"]


class AbstractUciExperiment(AbstractExperiment):
    """An experiment on ten folds of each of five UCI data sets."""

    datasets = UCI_SETS
    n_folds, quick_folds = 10, 2

    def fold_rows(self, jobs: Sequence[Job], table: UciSet) -> list[FoldRows]:
        """Rows of the jobs' folds."""
        folds = table.folds(self.n_folds, seed=jobs[0].settings["fold_seed"])
        numbers = sorted({job.key["fold"] for job in jobs})
        return [FoldRows.of(table, folds[number], number) for number in numbers]

    def fitted_together(self, models: Sequence[str]) -> list[list[str]]:
        """Groups of models that come of one fit."""
        return [[model] for model in models]

    def plan(self, choice: Choice) -> list[list[Job]]:
        """One job a fold and model; a group has all folds of a model, or of models of one fit."""
        return [
            [
                Job({"dataset": d, "model": m, "fold": fold}, self.settings(d, m, choice))
                for fold in self.chosen_folds(choice)
                for m in models
            ]
            for d in self.chosen_datasets(choice)
            for models in self.fitted_together(self.chosen_models(choice))
        ]


class AbstractUciTable(AbstractUciExperiment):
    """Average test log-likelihood of the columns of Table 1.

    `words` are of the table, `figures` published ones by data set and label, and
    `extra_settings` what results depend on besides folds and models.
    """

    words: ClassVar[dict[str, Any]]
    figures: ClassVar[dict[str, dict[str, float]]] = {}
    extra_settings: ClassVar[Settings] = {}

    models = tuple(COLUMNS)
    quick_unless_chosen = ("red-wine", "ionosphere", "boston")

    @abc.abstractmethod
    def load(self, dataset: str, store: DataStore) -> UciSet:
        """Read a data set and prepare it."""

    def settings(self, dataset: str, model: str, choice: Choice) -> Settings:
        """What the result of a model's job depends on."""
        facts = {"fold_seed": FOLD_SEED, "quick": choice.quick}
        return facts | self.extra_settings | COLUMNS[model].settings

    def fitted_together(self, models: Sequence[str]) -> list[list[str]]:
        """Models that stand beside each other and have the same fit."""
        return [list(same) for _, same in groupby(models, key=lambda m: COLUMNS[m].fit)]

    def execute(self, jobs: Sequence[Job], context: Context) -> Iterator[tuple[Job, Result]]:
        """Fit all folds of a data set and a model, or models of one fit, and score each."""
        first = jobs[0]
        column = COLUMNS[first.key["model"]]
        if column.needs is not None and find_spec(column.needs) is None:
            warnings.warn(
                f"{column.needs} is not installed, so {column.label} is left out: pip install"
                " 'rnade[peers]', then run the same command again.",
                UserWarning,
                stacklevel=2,
            )
            return
        rows = self.fold_rows(jobs, self.load(first.key["dataset"], context.store))
        fitted = column.fit(rows, context.device, first.settings["quick"])
        for fold, whole in zip(rows, fitted, strict=True):
            for job in (job for job in jobs if job.key["fold"] == fold.number):
                own = whole.also.get(job.key["model"], whole)
                mean = mean_score(own.scores)
                figures = {
                    "test": mean.mean,
                    "standard_error": mean.standard_error,
                    "n_test": mean.n_rows,
                    "n_train": len(fold.all_training),
                }
                yield job, figures | row_facts(own.scores) | own.details

    def tables(self, choice: Choice, records: Mapping[str, Record]) -> list[ResultTable]:
        """One table: models by data sets, bold by the paper's test."""
        lines: dict[str, list[Cell]] = {m: [] for m in self.chosen_models(choice)}
        datasets = self.chosen_datasets(choice)
        for dataset in datasets:
            scores = scores_by_model(records, dataset)
            bold = best_group(scores)
            for model, line in lines.items():
                published = self.figures.get(dataset, {}).get(COLUMNS[model].label)
                line.append(
                    Cell.mean_of(scores[model], published, bold=model in bold)
                    if model in scores
                    else Cell(published=published)
                )
        words = {**self.words, "columns": [SET_LABELS[dataset] for dataset in datasets]}
        return [ResultTable.of(words, {COLUMNS[m].label: line for m, line in lines.items()})]


def row_facts(scores: Array) -> Result:
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


class Table1(AbstractUciTable):
    """The data as they are."""

    name = "table1"
    words = PLAN["tables"]["table1"]
    title = words["title"]
    figures = targets("table1")["figures"]

    def load(self, dataset: str, store: DataStore) -> UciSet:
        """Read a data set."""
        return load_uci(dataset, store)


EXPERIMENT = Table1()
