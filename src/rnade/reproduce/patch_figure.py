"""What Figures 1 and 3 share: one job, which depends on rows of Table 2."""

from typing import Any, ClassVar

from rnade.reproduce.experiment import AbstractExperiment, Choice
from rnade.reproduce.patch_rows import settings_of
from rnade.reproduce.runner import Job


class AbstractPatchFigure(AbstractExperiment):
    """A figure of models that Table 2 keeps.

    Attributes
    ----------
    shown : tuple of str
        The rows of Table 2 that it shows.
    facts : dict
        What else its numbers depend on.
    """

    datasets = ("bsds300",)
    models = ("all",)
    shown: ClassVar[tuple[str, ...]]
    facts: ClassVar[dict[str, Any]]

    def plan(self, choice: Choice) -> list[list[Job]]:
        """One job."""
        self.chosen_folds(choice)
        self.chosen_datasets(choice)
        settings = {
            **self.facts,
            "quick": choice.quick,
            "models": {name: settings_of(name, quick=choice.quick) for name in self.shown},
        }
        key = {"dataset": "bsds300", "model": "all"}
        return [[Job(key, settings)] for _ in self.chosen_models(choice)]
