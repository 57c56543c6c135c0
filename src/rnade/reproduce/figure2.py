"""The paper's Figure 2: windows of speech, and samples from a mixture of Gaussians and RNADE.

    rnade reproduce figure2 --data-dir FOLDER

Fifteen test windows drawn at random, and as many samples of a mixture of Gaussians and an RNADE
among those of Table 3's first split; the paper's were a mixture of 200 and an RNADE of 20
components, too large for so little data. Models come from the files that ``rnade
reproduce table3`` left beside its records; what is missing is trained. The records hold the
windows, so that the figure can be drawn again from them alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rnade.data.filterbanks import FilterBanks
from rnade.data.windows import N_FRAMES
from rnade.reproduce.experiment import AbstractExperiment, Choice, Context
from rnade.reproduce.layout import ResultTable
from rnade.reproduce.pictures import as_files, new_figure
from rnade.reproduce.runner import Job, Record
from rnade.reproduce.speech_data import FoldWindows
from rnade.reproduce.speech_files import keep, kept
from rnade.reproduce.speech_models import SpeechDensity, fit
from rnade.reproduce.speech_rows import ROWS, SHOWN, quick
from rnade.reproduce.table3 import EXPERIMENT as TABLE_3
from rnade.reproduce.table3 import fold_of, models_of
from rnade.typing import Array

N_WINDOWS = 15
SEED = 0
DATA = "data"


class Figure2(AbstractExperiment):
    """Test windows and samples, side by side."""

    name = "figure2"
    title = "Figure 2: windows of speech and samples"
    datasets = TABLE_3.datasets
    models = (DATA, *SHOWN)

    def chosen_datasets(self, choice: Choice) -> tuple[str, ...]:
        """The sample, unless others are named."""
        return TABLE_3.chosen_datasets(choice)

    def plan(self, choice: Choice) -> list[list[Job]]:
        """One job for each line of the figure."""
        self.chosen_folds(choice)
        return [
            [_job(dataset, model, choice)]
            for dataset in self.chosen_datasets(choice)
            for model in self.chosen_models(choice)
        ]

    def execute(
        self, jobs: Sequence[Job], context: Context
    ) -> Iterator[tuple[Job, dict[str, Any]]]:
        """Draw test windows, or samples of a model that is kept or else trained."""
        for job in jobs:
            fold = fold_of(job, context)
            if job.key["model"] == DATA:
                windows = _test_windows(fold)
                yield job, {"windows": _rounded(windows)}
                continue
            windows = _density(job, fold, context).sample(N_WINDOWS, SEED)
            yield job, {"windows": _rounded(windows)}

    def tables(self, choice: Choice, records: Mapping[str, Record]) -> list[ResultTable]:
        """Nothing: it is a figure."""
        return []

    def pictures(self, choice: Choice, records: Mapping[str, Record]) -> dict[str, bytes]:
        """Draw the figure as PNG and SVG, once all its lines are there."""
        lines = {
            record["job"]["model"]: np.array(record["result"]["windows"])
            for record in records.values()
        }
        if not all(model in lines for model in self.models):
            return {}
        figure = draw_windows({_label(model): lines[model] for model in self.models})
        return as_files(figure, self.name)


def _job(dataset: str, model: str, choice: Choice) -> Job:
    key = {"dataset": dataset, "model": model, "fold": 0}
    return Job(key, _settings(dataset, model, choice))


def _settings(dataset: str, model: str, choice: Choice) -> dict[str, Any]:
    """What a line depends on; for a model, all that its job of Table 3 depends on."""
    facts = {**choice.speech.identity(dataset), "quick": choice.quick}
    if model == DATA:
        return {**facts, "drawing_seed": SEED, "n_windows": N_WINDOWS}
    return {**facts, **(quick(SHOWN[model]) if choice.quick else SHOWN[model])}


def _density(job: Job, fold: FoldWindows, context: Context) -> SpeechDensity:
    """The model that Table 3 kept of this job, or else one trained now."""
    folder = models_of(job, context)
    density = kept(job, folder, context.device)
    if density is None:
        density = next(iter(fit(job.settings, [fold]))).density
        keep(density, job, folder)
    return density


def _test_windows(fold: FoldWindows) -> torch.Tensor:
    chosen = np.random.default_rng(SEED).choice(len(fold.test), N_WINDOWS, replace=False)
    return fold.test[torch.as_tensor(chosen).to(fold.test.device)]


def _rounded(windows: torch.Tensor) -> list[list[float]]:
    return [[round(v, 3) for v in row] for row in windows.double().cpu().tolist()]


def _label(model: str) -> str:
    return "test windows" if model == DATA else ROWS[model].label.split(",")[0]


def as_pictures(windows: Array) -> Array:
    """Shape windows so that time goes to the right and the energy is the bottom row.

    Parameters
    ----------
    windows : array of shape (n, 231)
        Frame after frame; in each the energy first, then filters from low to high.

    Returns
    -------
    array of shape (n, 21, 11)
        Rows from the top of the picture down: the highest filter first, the energy last.
    """
    frames = windows.reshape(len(windows), N_FRAMES, FilterBanks().n_features)
    return np.ascontiguousarray(frames.transpose(0, 2, 1)[:, ::-1])


def draw_windows(lines: Mapping[str, Array]) -> Any:
    """Draw lines of windows, each under its name, on one scale of greys."""
    low, high = np.quantile(np.concatenate(list(lines.values())), [0.005, 0.995])
    n = max(len(windows) for windows in lines.values())
    figure = new_figure(0.62 * n + 1.6, 1.15 * len(lines))
    axes = figure.subplots(len(lines), n, squeeze=False)
    for line, (name, windows) in zip(axes, lines.items(), strict=True):
        for ax, picture in zip(line, as_pictures(windows), strict=True):
            ax.imshow(picture, cmap="gray", vmin=low, vmax=high, aspect="auto")
            ax.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    return figure


EXPERIMENT = Figure2()
