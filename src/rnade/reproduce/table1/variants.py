"""Why Table 1 comes out as it does: the paper's protocol with one thing changed at a time.

    rnade reproduce table1-variants --data-dir FOLDER

Each variant searches the same part of the paper's grid. Its models are then chosen and finished
in several ways, since these cost next to nothing once the grid is trained.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from rnade.data import load_uci
from rnade.nn.ensemble import log_average
from rnade.reproduce.core.experiment import Choice, Context, Result, Settings
from rnade.reproduce.core.layout import Cell, ResultTable
from rnade.reproduce.core.plans import targets
from rnade.reproduce.core.runner import Job, Record
from rnade.reproduce.table1.folds import FoldRows, log_densities, log_terms
from rnade.reproduce.table1.protocol import Protocol, Searched, retrained, search
from rnade.reproduce.table1.repeats import has_common_value, split_by_value
from rnade.reproduce.table1.table import (
    FOLD_SEED,
    PLAN,
    SET_LABELS,
    AbstractUciExperiment,
    row_facts,
)
from rnade.typing import Array

# A third of the paper's grid: every number of components, and rates and decays apart.
PART = tuple(itertools.product((2, 5, 10, 20), (0.1, 0.025), (2.0, 1.0, 0.1, 0.0)))
# Training rows that hold a value before it counts as repeated.
OFTEN = 5


@dataclass(frozen=True)
class Variant:
    """The paper's protocol with something changed: a setting, the family or the folds.

    The family may be one of `table1.families`; red wine has the authors' own folds.
    """

    label: str
    protocol: Protocol
    family: str
    fold_seed: int


def _variant(
    label: str,
    family: str = "gaussian",
    fold_seed: int = FOLD_SEED,
    recipe: Mapping[str, Any] = MappingProxyType({}),
    **changes: Any,
) -> Variant:
    # One thing is changed in what the paper prints, which has no momentum here.
    protocol = Protocol(PART, recipe={"momentum": 0.0, **recipe}, **changes)
    return Variant(label, protocol, family, fold_seed)


VARIANTS = {name: _variant(**entry) for name, entry in PLAN["variants"].items()}
# How models of a searched grid are chosen and finished, as the table calls it.
RULES: dict[str, str] = PLAN["rules"]
ROW_RULES: dict[str, str] = PLAN["row_rules"]


class Table1Variants(AbstractUciExperiment):
    """What moves RNADE-MoG's figures in Table 1."""

    name = "table1-variants"
    title = "Table 1: the paper's protocol with one thing changed"
    models = tuple(VARIANTS)
    quick_unless_chosen = ("boston",)

    def settings(self, dataset: str, model: str, choice: Choice) -> Settings:
        """What a variant's results depend on."""
        variant = VARIANTS[model]
        facts = {
            "fold_seed": variant.fold_seed,
            "quick": choice.quick,
            "family": variant.family,
        }
        return facts | _protocol(variant, quick=choice.quick).settings(variant.family)

    def execute(self, jobs: Sequence[Job], context: Context) -> Iterator[tuple[Job, Result]]:
        """Train a variant's grid in all folds, and finish it by every rule."""
        first = jobs[0]
        variant = VARIANTS[first.key["model"]]
        folds = self.fold_rows(jobs, load_uci(first.key["dataset"], context.store))
        protocol = _protocol(variant, quick=first.settings["quick"])
        searched = search(variant.family, folds, context.device, protocol)
        by_fold = [int(found.validation.argmax()) for found in searched]
        one = int(np.mean([found.validation for found in searched], axis=0).argmax())
        finals, commons = (
            retrained(variant.family, folds, context.device, protocol, searched, chosen)
            for chosen in (by_fold, [one] * len(folds))
        )
        for job, fold, found, c, final, common in zip(
            jobs, folds, searched, by_fold, finals, commons, strict=True
        ):
            terms = log_terms(final.module, fold.test)
            scores = terms.sum(1)
            result = {
                "rules": {
                    "paper": float(scores.mean()),
                    "one_setting": float(log_densities(common.module, fold.test).mean()),
                    **_without_retraining(found, c, one, fold),
                },
                **row_facts(scores),
                "by_value": nats_by_value(terms, fold),
                "setting": list(protocol.grid[c]),
                "one_setting": list(protocol.grid[one]),
                "best_epoch": found.trials[c].best_epoch,
                "validation": float(found.validation[c]),
                "grid_validation": _short(found.validation),
                "grid_test": _short(found.test),
                "grid_skipped": found.skipped.tolist(),
            }
            yield job, result

    def tables(self, choice: Choice, records: Mapping[str, Record]) -> list[ResultTable]:
        """A table for each data set: variants by rules."""
        rules = {**RULES, **ROW_RULES}
        published = targets("table1")["figures"]
        return [
            ResultTable.of(
                {**PLAN["tables"]["variants"], "columns": [*rules.values()]},
                {
                    VARIANTS[name].label: _line(records, dataset, name, rules)
                    for name in self.chosen_models(choice)
                },
                data=SET_LABELS[dataset],
                n=len(PART),
                published=published[dataset]["RNADE-MoG"],
            )
            for dataset in self.chosen_datasets(choice)
        ]


def _protocol(variant: Variant, *, quick: bool) -> Protocol:
    if not quick:
        return variant.protocol
    own = variant.protocol
    return replace(own, grid=PART[::16], recipe={**own.recipe, "epochs": 10})


def _without_retraining(found: Searched, c: int, one: int, fold: FoldRows) -> dict[str, float]:
    """Test scores by the rules that need no further training, where they apply."""
    clean = np.where(found.skipped == 0, found.validation, -np.inf)
    of_clean = {"no_skips": float(found.test[clean.argmax()])} if np.isfinite(clean).any() else {}
    best = np.argsort(-found.validation)[:10]
    by_conditional = np.nan_to_num(found.validation_terms, nan=-np.inf).argmax(0)
    conditionals = np.arange(len(by_conditional))
    each = np.stack([log_densities(found.trials[m].module, fold.test) for m in best])
    return {
        "before": float(found.test[c]),
        "one_setting_before": float(found.test[one]),
        **of_clean,
        "by_conditional": float(found.test_terms.T[conditionals, by_conditional].sum()),
        "averaged": float(log_average(torch.as_tensor(each)).mean()),
        "best_by_test": float(np.nanmax(found.test)),
    }


def nats_by_value(terms: Array, fold: FoldRows) -> dict[str, float]:
    """What a test row's nats come from: values that training rows hold often, and all others."""
    often = has_common_value(fold.test, fold.all_training, OFTEN)
    repeated, others = split_by_value(terms, often)
    return {"n_repeated": float(often.sum(1).mean()), "repeated": repeated, "others": others}


def by_rule(result: Mapping[str, Any]) -> dict[str, Any]:
    """Give a fold's scores by rule; where no run went without a bad update, that rule has none."""
    scores = {**result, **result["rules"]}
    if 0 not in result["grid_skipped"]:
        scores.pop("no_skips", None)  # older records have some run's there
    return scores


def _line(
    records: Mapping[str, Record], dataset: str, name: str, rules: Iterable[str]
) -> list[Cell]:
    """One variant's cells by rule; a rule that came later is not in older records."""
    wanted = {"dataset": dataset, "model": name}.items()
    scores = [by_rule(r["result"]) for r in records.values() if wanted <= r["job"].items()]
    return [
        Cell.mean_of([each[rule] for each in scores])
        if scores and all(rule in each for each in scores)
        else Cell()
        for rule in rules
    ]


def _short(values: Array) -> list[float | None]:
    """Numbers for the record, to a thousandth; None for what is not finite."""
    return [round(float(v), 3) if np.isfinite(v) else None for v in values]


EXPERIMENT = Table1Variants()
