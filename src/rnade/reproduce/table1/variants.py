"""Why Table 1 comes out as it does: the paper's protocol with one thing changed at a time.

    rnade reproduce table1-variants --data-dir FOLDER

Each variant searches the same part of the paper's grid. Its models are then chosen and finished
in several ways, since these cost next to nothing once the grid is trained.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from rnade.data import load_uci
from rnade.nn.ensemble import log_average
from rnade.reproduce.core.experiment import Choice, Context, Result, Settings
from rnade.reproduce.core.layout import Cell, ResultTable
from rnade.reproduce.core.runner import Job, Record
from rnade.reproduce.core.targets import targets
from rnade.reproduce.table1.folds import FoldRows, log_densities, log_terms
from rnade.reproduce.table1.protocol import Protocol, Searched, retrained, search
from rnade.reproduce.table1.repeats import has_common_value, split_by_value
from rnade.reproduce.table1.table import FOLD_SEED, SET_LABELS, AbstractUciExperiment, row_facts
from rnade.typing import Array

# A third of the paper's grid: every number of components, and rates and decays apart.
PART = tuple(itertools.product((2, 5, 10, 20), (0.1, 0.025), (2.0, 1.0, 0.1, 0.0)))
# Variants change one thing in what the paper prints, which has no momentum here.
PRINTED = {"momentum": 0.0}
ON_PART = Protocol(PART, recipe=PRINTED)
# Training rows that hold a value before it counts as repeated.
OFTEN = 5


@dataclass(frozen=True)
class Variant:
    """The paper's protocol with something changed.

    Attributes
    ----------
    label : str
    protocol : Protocol
    family : str
        "gaussian", "laplace" or one of `table1.families`.
    fold_seed : int
        Of the folds; red wine has the authors' own.
    """

    label: str
    protocol: Protocol = ON_PART
    family: str = "gaussian"
    fold_seed: int = FOLD_SEED


def _changed(
    label: str, *, family: str = "gaussian", recipe: Mapping[str, Any] = PRINTED, **changes: Any
) -> Variant:
    protocol = Protocol(PART, recipe={**PRINTED, **recipe}, **changes)
    return Variant(label, protocol, family)


VARIANTS = {
    "paper": _changed("as the paper says"),
    "laplace": Variant("mixtures of Laplaces", family="laplace"),
    "broad": _changed("scales start broad", broad_start=True),
    "broad-laplace": _changed("Laplaces, scales start broad", family="laplace", broad_start=True),
    "released": _changed(
        "scales start broad, decay of c too, momentum 0.9: the authors' released code",
        broad_start=True,
        decayed=("W", "c"),
        recipe={"momentum": 0.9},
    ),
    "weights-0.1": _changed("starting weights of deviation 0.1", recipe={"weight_scale": 0.1}),
    "quantiles": _changed("means start at quantiles", recipe={"spread": "quantile"}),
    "plain-gradient": _changed(
        "gradient of the means as it is", recipe={"scale_mean_gradient": False}
    ),
    "decay-all": _changed("decay of V and c too", decayed=("W", "c", "V")),
    "momentum": _changed("momentum 0.9", recipe={"momentum": 0.9}),
    "clipped": _changed("gradient clipped at norm 10", recipe={"clip_norm": 10.0}),
    "last-epoch": _changed("no early stopping in the search", early_stopping=False),
    "floor-0.01": _changed("scales at least 0.01", sigma_floor=0.01),
    "floor-0.1": _changed("scales at least 0.1", sigma_floor=0.1),
    "sigmoid": _changed("sigmoid units", activation="sigmoid"),
    "random-order": _changed("columns in a random order", order="random"),
    "variance": Variant(
        "gradient of the means times the variance, as in Newton's method", family="gaussian-newton"
    ),
    "softplus": Variant(
        "scales log(1 + exp(10 z)) / 10, as in old parts of the authors' code",
        family="gaussian-softplus",
    ),
    "softplus-written-out": Variant(
        "such scales, where float32 rounds them to 0 below 6e-9", family="gaussian-written-out"
    ),
    "softplus-tanh": Variant(
        "such scales, and fractions softmax(10 tanh z)", family="gaussian-softplus-tanh"
    ),
    "softplus-laplace": Variant(
        "mixtures of Laplaces with such scales", family="laplace-softplus"
    ),
    "folds-1": Variant("other folds", fold_seed=1),
    "folds-2": Variant("other folds again", fold_seed=2),
}

# How models of a searched grid are chosen and finished, as the table calls it.
RULES = {
    "paper": "chosen by fold, retrained (the paper's rule)",
    "before": "not retrained",
    "one_setting": "one setting for all folds, retrained",
    "one_setting_before": "one setting, not retrained",
    "no_skips": "of runs without a bad update, not retrained",
    "by_conditional": "chosen by conditional, not retrained",
    "averaged": "average of the grid's best ten, not retrained",
    "best_by_test": "best by the test rows themselves",
}
ROW_RULES = {
    "median": "median row, the paper's rule",
    "without_worst": "without each fold's worst row, the paper's rule",
}


class Table1Variants(AbstractUciExperiment):
    """What moves RNADE-MoG's figures in Table 1."""

    name = "table1-variants"
    title = "Table 1: the paper's protocol with one thing changed"
    models = tuple(VARIANTS)
    quick_sets = ("boston",)

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
        return [
            ResultTable(
                f"{SET_LABELS[dataset]}: RNADE with one thing changed",
                "Test log-likelihood, nats per row: mean over folds, ± its standard error. Every"
                f" row searches the same {len(PART)} of the paper's 96 settings. The paper's"
                f" RNADE-MoG: {targets('table1')['figures'][dataset]['RNADE-MoG']}.",
                "changed",
                [*RULES.values(), *ROW_RULES.values()],
                {
                    VARIANTS[name].label: _cells(records, dataset, name)
                    for name in self.chosen_models(choice)
                },
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


def _cells(records: Mapping[str, Record], dataset: str, name: str) -> dict[str, Cell]:
    """One variant's cells by rule; a rule that came later is not in older records."""
    wanted = {"dataset": dataset, "model": name}.items()
    scores = [by_rule(r["result"]) for r in records.values() if wanted <= r["job"].items()]
    return {
        column: Cell.mean_of([each[rule] for each in scores])
        for rule, column in {**RULES, **ROW_RULES}.items()
        if scores and all(rule in each for each in scores)
    }


def _short(values: Array) -> list[float | None]:
    """Numbers for the record, to a thousandth; None for what is not finite."""
    return [round(float(v), 3) if np.isfinite(v) else None for v in values]


EXPERIMENT = Table1Variants()
