"""The paper's Figure 2: windows of speech, and samples from a mixture of Gaussians and RNADE.

    rnade reproduce figure2 --data-dir FOLDER

Fifteen test windows drawn at random, and as many samples of a mixture of Gaussians and an RNADE
among those of Table 3's first split; the paper's were a mixture of 200 and an RNADE of 20
components, too large for so little data. Models come from the files that ``rnade
reproduce table3`` left beside its records; what is missing is trained. The records hold the
windows, so that the figure can be drawn again from them alone.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rnade.data.filterbanks import FilterBanks
from rnade.data.windows import N_FRAMES
from rnade.reproduce.core.experiment import AbstractExperiment, Choice, Context, Result, Settings
from rnade.reproduce.core.layout import ResultTable
from rnade.reproduce.core.pictures import as_files, draw_rows
from rnade.reproduce.core.runner import Job, Record
from rnade.reproduce.speech.data import FoldWindows, identity
from rnade.reproduce.speech.models import kept_or_fitted
from rnade.reproduce.speech.rows import ROWS, quick, shown
from rnade.reproduce.speech.table3 import Table3, fold_of, models_of
from rnade.typing import Array

N_WINDOWS = 15
SEED = 0
DATA = "data"


class Figure2(AbstractExperiment):
    """Test windows and samples, side by side."""

    name = "figure2"
    title = "Figure 2: windows of speech and samples"
    datasets = Table3.datasets
    unless_chosen = quick_unless_chosen = Table3.unless_chosen
    models = (DATA, *shown("sample"))

    def settings(self, dataset: str, model: str, choice: Choice) -> Settings:
        """What a line depends on; a model's, on all that its job of Table 3 depends on."""
        facts = {**identity(choice.speech, dataset), "quick": choice.quick}
        if model == DATA:
            return {**facts, "drawing_seed": SEED, "n_windows": N_WINDOWS}
        settings = shown(dataset)[model]
        return {**facts, **(quick(settings) if choice.quick else settings)}

    def plan(self, choice: Choice) -> list[list[Job]]:
        """One job for each line of the figure, of the first fold."""
        plan = super().plan(choice)
        return [[Job({**job.key, "fold": 0}, job.settings) for job in group] for group in plan]

    def result(self, job: Job, context: Context) -> Result:
        """Draw test windows, or samples of a model that is kept or else trained."""
        fold = fold_of(job, context)
        if job.key["model"] == DATA:
            return {"windows": _rounded(_test_windows(fold))}
        density = kept_or_fitted(job, fold, models_of(job, context))
        return {"windows": _rounded(density.sample(N_WINDOWS, SEED))}

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
    pictures = {name: as_pictures(windows) for name, windows in lines.items()}
    return draw_rows(pictures, (low, high), height=1.15, aspect="auto")


EXPERIMENT = Figure2()
