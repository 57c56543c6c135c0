"""The paper's Table 3: windows of speech, 11 frames of 20 filter banks and the energy.

    rnade reproduce table3 --data-dir FOLDER                    # the sample of 16 speakers
    rnade reproduce table3 --timit FOLDER                       # TIMIT, as in the paper
    rnade reproduce table3 --speech FOLDER --split-by speaker   # any WAV or FLAC files

Features are standardised by the training frames, and log-likelihoods are of the standardised data.
TIMIT's two sa sentences, which every speaker reads, are left out. TIMIT trains on its training
part, tests on the 24 speakers of the core test set and validates on the other test speakers. Other
speech is split by speaker: 3 of 16 test and 2 validate, of 40 and more a tenth each, in five
splits that test different speakers. Where a row has several settings, the validation speakers of a
split choose among them; test windows are scored by every setting, and only the chosen one's score
is shown.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rnade.evaluation import mean_score, standard_error_by_group
from rnade.reproduce.core.experiment import AbstractExperiment, Choice, Context, Result
from rnade.reproduce.core.layout import ResultTable
from rnade.reproduce.core.runner import Job, Record
from rnade.reproduce.speech.data import N_FOLDS, FoldWindows, identity, load_fold
from rnade.reproduce.speech.models import SpeechDensity, fit, keep
from rnade.reproduce.speech.rows import ROWS, quick
from rnade.reproduce.speech.tables import lay_out
from rnade.typing import Array

# Windows of each part in a quick look: more than there are dimensions.
QUICK_WINDOWS = 600


class Table3(AbstractExperiment):
    """Log-likelihood of mixtures of Gaussians and RNADE on speech."""

    name = "table3"
    title = "Table 3: speech"
    datasets = ("sample", "timit", "folder")
    rows = ROWS
    models = tuple(ROWS)
    unless_chosen = quick_unless_chosen = ("sample",)
    n_folds, quick_folds = N_FOLDS, 1

    def plan(self, choice: Choice) -> list[list[Job]]:
        """One job a setting and fold.

        The folds of a setting train together; but a model of the paper's size fills the device
        alone, and fold by fold a run that is stopped loses less.
        """
        plan = []
        for dataset in self.chosen_datasets(choice):
            facts = {**identity(choice.speech, dataset), "quick": choice.quick}
            folds = self.chosen_folds(choice)[: 1 if dataset == "timit" else None]
            for model in self.chosen_models(choice):
                row = self.rows[model]
                grid = row.grid_for(dataset)
                grid = [quick(grid[0])] if choice.quick else grid
                groups = [[k] for k in folds] if row.of_the_paper else [list(folds)]
                for settings, group in itertools.product(grid, groups):
                    key = {"dataset": dataset, "model": model}
                    plan.append([Job({**key, "fold": k}, {**facts, **settings}) for k in group])
        return plan

    def execute(self, jobs: Sequence[Job], context: Context) -> Iterator[tuple[Job, Result]]:
        """Fit one setting to all folds of a data set, and score each."""
        folds = [fold_of(job, context) for job in jobs]
        fitted = fit(jobs[0].settings, folds)
        for job, fold, (density, details) in zip(jobs, folds, fitted, strict=True):
            keep(density, job, models_of(job, context))
            yield job, score(density, fold) | details | {"data": fold.facts}

    def tables(self, choice: Choice, records: Mapping[str, Record]) -> list[ResultTable]:
        """Lay out, for each data set, the table, its errors, the comparisons and the splits."""
        return [
            table
            for dataset in self.chosen_datasets(choice)
            for table in lay_out(dataset, self.chosen_models(choice), list(records.values()))
        ]


def models_of(job: Job, context: Context) -> Path:
    """Where the models of Table 3 are kept."""
    return context.models_of("table3", quick=job.settings["quick"])


def fold_of(job: Job, context: Context) -> FoldWindows:
    """Read the windows of a job's fold; few of them for a quick look."""
    fold = load_fold(
        job.key["dataset"], job.key["fold"], context.speech, context.store, context.device
    )
    return fold.thinned(QUICK_WINDOWS) if job.settings["quick"] else fold


def score(density: SpeechDensity, fold: FoldWindows) -> Result:
    """Mean log-likelihoods of all parts with their errors, and test means by utterance."""
    result: Result = {}
    for part, rows in (("train", fold.train), ("test", fold.test)):
        scores, utterances = density.log_prob(rows), fold.utterance_of[part]
        mean = mean_score(scores)
        result[part] = {
            "mean": mean.mean,
            "error_by_window": mean.standard_error,
            "error_by_utterance": _finite(standard_error_by_group(scores, utterances)),
        }
        if part == "test":
            result["utterances"] = _by_utterance(scores, utterances)
    result["validation"] = {"mean": float(density.log_prob(fold.validation).mean())}
    return result


def _by_utterance(scores: Array, utterance_of: NDArray[np.int64]) -> Result:
    """Windows and mean of each utterance: what differences between models are tested by."""
    n = np.bincount(utterance_of)
    means = np.bincount(utterance_of, weights=scores) / n
    return {"n_windows": n.tolist(), "mean": [round(float(m), 4) for m in means]}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


EXPERIMENT = Table3()
