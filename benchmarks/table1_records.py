"""Stored records of Table 1 and its studies, by data set and model, for the page on Table 1."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnade.evaluation import mean_score
from rnade.reproduce import get_experiment
from rnade.reproduce.core.experiment import Choice
from rnade.reproduce.core.runner import Record, RecordFile
from rnade.typing import Array

ROOT = Path(__file__).parent.parent


@functools.cache
def records_of(name: str) -> dict[str, Record]:
    """Give the stored records of an experiment's own jobs."""
    stored = RecordFile(ROOT / "results" / name / "records.jsonl").read()
    return get_experiment(name).known(Choice(), stored)[0]


def picked(records: Sequence[Record], dataset: str, model: str) -> list[Record]:
    """Records of one row of a table."""
    wanted = {"dataset": dataset, "model": model}
    return [r for r in records if wanted.items() <= r["job"].items()]


def by_fold(records: Sequence[Record], dataset: str, name: str) -> dict[int, Any]:
    """Results of one row of a table."""
    return {record["job"]["fold"]: record["result"] for record in picked(records, dataset, name)}


def numbers(records: Sequence[Record], dataset: str, model: str, name: str) -> Array:
    """One number of each fold's result, in the order of the folds."""
    found = by_fold(records, dataset, model)
    return np.array([found[fold][name] for fold in sorted(found)])


def mean(values: Array) -> str:
    """Mean over folds and its standard error, as text."""
    if not len(values):
        return ""
    found = mean_score(values)
    error = f" ± {found.standard_error:.2f}" if len(values) > 1 else ""
    return f"{found.mean:.2f}{error}"
