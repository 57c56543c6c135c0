"""How much of a score on Ionosphere comes of exact values that many rows have.

    RNADE_DATA=FOLDER python -m benchmarks.common_values

Of each setting of Table 1's ensemble one model is trained in each fold, that of the first part,
and its test score is split into the terms of common values and of all others. Writes
results/table1/common_values.json; about ten minutes on one core.
"""

import json
from dataclasses import asdict
from typing import Any

import torch

from benchmarks.table1_page import COMMON_VALUES
from rnade.data import DataStore, load_uci
from rnade.records import run_facts
from rnade.reproduce.core.banks import train_all
from rnade.reproduce.table1.ensembles import CANDIDATES, N_PARTS, SETTINGS, Parts, members_of
from rnade.reproduce.table1.folds import FoldRows, log_terms
from rnade.reproduce.table1.repeats import has_common_value, split_by_value
from rnade.reproduce.table1.table import FOLD_SEED

# A value that at least this share of a column's rows has can be no accident.
COMMON = 0.02


def split_scores(fold: FoldRows, epochs: int | None = None) -> list[dict[str, Any]]:
    """Nats a test row from common values and from others, of one model of each setting."""
    parts = Parts.of(fold)
    first_of_each = members_of(parts, CANDIDATES, torch.device("cpu"), epochs)[::N_PARTS]
    is_common = has_common_value(fold.test, parts.rows, COMMON * len(parts.rows))
    splits = []
    for candidate, model in zip(CANDIDATES, train_all(first_of_each), strict=True):
        common, others = split_by_value(log_terms(model.module, fold.test), is_common)
        splits.append(
            {
                "of": asdict(candidate),
                "epochs": model.best_epoch,
                "common": common,
                "others": others,
            }
        )
    return splits


if __name__ == "__main__":
    facts = run_facts("python -m benchmarks.common_values", **SETTINGS, common=COMMON)
    table = load_uci("ionosphere", DataStore())
    folds = [FoldRows.of(table, fold, k) for k, fold in enumerate(table.folds(10, seed=FOLD_SEED))]
    facts["folds"] = [split_scores(fold) for fold in folds]
    COMMON_VALUES.write_text(json.dumps(facts, indent=1) + "\n")
