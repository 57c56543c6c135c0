"""What RNADE-MoG's lead on speech comes from: Table 3's chosen model with one thing changed.

    rnade reproduce table3-variants --data-dir FOLDER

The sample's splits, sizes and early end are those of ``rnade reproduce table3``; so are the ways
to give other speech.
"""

from collections.abc import Mapping

import numpy as np

from rnade.reproduce.core.experiment import Choice
from rnade.reproduce.core.layout import Cell, ResultTable
from rnade.reproduce.core.runner import Record
from rnade.reproduce.speech.rows import VARIANTS
from rnade.reproduce.speech.table3 import Table3
from rnade.reproduce.speech.tables import Chosen, Lines, chosen_of, common_splits, means, table_of

FIRST = next(iter(VARIANTS))


class Table3Variants(Table3):
    """The chosen RNADE-MoG, taken apart."""

    name = "table3-variants"
    title = "Table 3: what makes the difference"
    rows = VARIANTS
    models = tuple(VARIANTS)

    def tables(self, choice: Choice, records: Mapping[str, Record]) -> list[ResultTable]:
        """One table a data set, of the splits that all its lines have."""
        return [
            lay_out(chosen_of(dataset, self.chosen_models(choice), list(records.values())))
            for dataset in self.chosen_datasets(choice)
        ]


def lay_out(found: Chosen) -> ResultTable:
    """One line a variant; one without records is empty."""
    splits = common_splits(found)
    lines: Lines = {VARIANTS[model].label: [] for model in found}
    for model, folds in ((model, folds) for model, folds in found.items() if folds):
        test = means(folds, "test", splits)
        first = {} if model == FIRST else found.get(FIRST, {})
        lines[VARIANTS[model].label] = [
            Cell.mean_of(means(folds, "train", splits)),
            Cell.mean_of(test),
            Cell.mean_of(test - means(first, "test", splits)) if first else Cell(),
            Cell(float(np.mean([folds[k]["result"]["best_epoch"] for k in splits]))),
        ]
    return table_of("variants", found, lines, n=len(splits))


EXPERIMENT = Table3Variants()
