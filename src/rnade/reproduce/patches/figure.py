"""What Figures 1 and 3 share: one job, which depends on rows of Table 2."""

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from rnade.reproduce.core.density import Density
from rnade.reproduce.core.experiment import AbstractExperiment, Choice, Context, Result, Settings
from rnade.reproduce.core.layout import Cell, ResultTable
from rnade.reproduce.core.pictures import as_files
from rnade.reproduce.core.runner import Job, Record
from rnade.reproduce.patches.rows import settings_of
from rnade.reproduce.patches.table2 import load_patches, model_of
from rnade.reproduce.patches.tables import WORDS

# Test patches that are described or compared; the quick version takes a hundredth.
N_PATCHES = 10_000


class AbstractPatchFigure(AbstractExperiment):
    """A figure of models that Table 2 keeps.

    `shown` are the rows of Table 2 that it shows, `rows` those of its own table, and `facts` what
    else its numbers depend on.
    """

    datasets = ("bsds300",)
    models = ("all",)
    shown: ClassVar[tuple[str, ...]]
    rows: ClassVar[tuple[str, ...]]
    facts: ClassVar[Settings]

    @abc.abstractmethod
    def numbers(self, models: Mapping[str, Density], test: Tensor, n: int) -> Result:
        """What is drawn and laid out, of the models by their rows and n of the test patches."""

    @abc.abstractmethod
    def lines(self, numbers: Result) -> dict[str, list[Cell]]:
        """Lay out the figure's numbers as lines of cells."""

    @abc.abstractmethod
    def draw(self, numbers: Result) -> Any:
        """Draw the figure."""

    def settings(self, dataset: str, model: str, choice: Choice) -> Settings:
        """What the figure depends on: all that its models do."""
        models = {name: settings_of(name, quick=choice.quick) for name in self.shown}
        return {**self.facts, "quick": choice.quick, "models": models}

    def result(self, job: Job, context: Context) -> Result:
        """Compute the numbers of the figure by models that are stored, or else trained."""
        quick = job.settings["quick"]
        patches = load_patches(context.store, context.device, quick)
        models = {
            name: model_of(name, patches, context, quick=quick).density for name in self.shown
        }
        return self.numbers(models, patches.test, N_PATCHES // (100 if quick else 1))

    def tables(self, choice: Choice, records: Mapping[str, Record]) -> list[ResultTable]:
        """Lay out what is drawn; empty lines without a record."""
        lines: dict[str, list[Cell]] = {row: [] for row in self.rows}
        for record in records.values():
            lines = self.lines(record["result"])
        return [ResultTable.of(WORDS[self.name], lines, n=N_PATCHES)]

    def pictures(self, choice: Choice, records: Mapping[str, Record]) -> dict[str, bytes]:
        """Draw the figure as PNG and SVG."""
        for record in records.values():
            return as_files(self.draw(record["result"]), self.name)
        return {}
