"""NADE and FVSBN on three binary data sets, beside the published figures.

    rnade reproduce binary --data-dir FOLDER

Each job trains one setting with `N_ORDERS` orders of the columns at once, as one bank: the file's
own order first, the others random. "One order" is that first model; "all orders" is the mean of
the densities of all, log p = logsumexp_m log p_m - log M. For either, the setting is chosen by the
validation rows alone; the test rows are scored once by every setting, and only the chosen one's
score is shown.

Two recipes: NADE's own (plain gradient descent, 500 sigmoid units, early stopping, the rate chosen
by validation) and ours (Adam, averaged weights, weight decay chosen by validation).
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor

from rnade.data import BINARY_SETS, load_binary
from rnade.evaluation import mean_score
from rnade.nn import AbstractAutoregressive, FVSBNModule, NADEModule
from rnade.nn.ensemble import log_average
from rnade.reproduce.core.experiment import AbstractExperiment, Choice, Context, Result, Settings
from rnade.reproduce.core.layout import Cell, ResultTable
from rnade.reproduce.core.plans import read_plan, targets
from rnade.reproduce.core.runner import Job, Record
from rnade.training import MODERN, Recipe, train

N_ORDERS = 8
SEED = 0

_PLAN = read_plan("binary")
MODELS, RECIPES, SET_LABELS = (_PLAN[name] for name in ("models", "recipes", "datasets"))


def _grid(model: str, recipe: str, dataset: str) -> list[Settings]:
    """Settings among which validation chooses."""
    own = _PLAN["grids"]["rates"]
    if recipe == "ours":
        own = _PLAN["grids"]["fvsbn" if model == "fvsbn" else "units"][dataset]
    return [_PLAN["settings"][recipe] | settings for settings in own]


class BinaryExperiment(AbstractExperiment):
    """NADE and FVSBN on mushrooms, DNA and NIPS-0-12."""

    name = "binary"
    title = _PLAN["table"]["title"]
    datasets = BINARY_SETS
    models = tuple(MODELS)

    def plan(self, choice: Choice) -> list[list[Job]]:
        """One job for each data set, model, recipe and setting, each a group of its own."""
        self.chosen_folds(choice)
        return [
            [job]
            for dataset in self.chosen_datasets(choice)
            for model in self.chosen_models(choice)
            for recipe in RECIPES
            for job in _jobs(dataset, model, recipe, choice)
        ]

    def result(self, job: Job, context: Context) -> Result:
        """Train a job's bank of orders and score all rows by it."""
        data = load_binary(job.key["dataset"], context.store)
        parts = [
            torch.as_tensor(part, dtype=torch.float32).to(context.device)
            for part in (data.train, data.validation, data.test)
        ]
        return train_bank(job, *parts)

    def tables(self, choice: Choice, records: Mapping[str, Record]) -> list[ResultTable]:
        """One table: models, recipes, one order or all; by data set."""
        published = targets("binary")
        datasets = self.chosen_datasets(choice)
        columns = [SET_LABELS[dataset] for dataset in datasets]
        n_orders = 2 if choice.quick else N_ORDERS
        lines = {}
        for model, recipe, (orders, label) in itertools.product(
            self.chosen_models(choice),
            RECIPES,
            (("one", "one order"), ("all", f"{n_orders} orders")),
        ):
            beside = MODELS[model]["published"].get(orders)
            lines[f"{MODELS[model]['label']}, {RECIPES[recipe]}, {label}"] = [
                _chosen_cell(
                    [
                        records[job.identity]
                        for job in _jobs(dataset, model, recipe, choice)
                        if job.identity in records
                    ],
                    orders,
                    published["figures"][dataset].get(beside),
                )
                for dataset in datasets
            ]
        words = {**_PLAN["table"], "columns": columns, "bold": columns}
        return [ResultTable.of(words, lines, source=published["source"])]


def train_bank(job: Job, train_rows: Tensor, validation: Tensor, test: Tensor) -> Result:
    """Train the orders of one setting at once; give scores of each order and of their mixture."""
    settings = dict(job.settings)
    n_orders, seed = settings.pop("n_orders"), settings.pop("seed")
    n_hidden = settings.pop("n_hidden", None)
    recipe = replace(MODERN, **settings)
    module = make_bank(job.key["model"], train_rows.shape[1], n_hidden, n_orders, recipe, seed)
    module = module.to(train_rows.device)
    module.start_from(train_rows)
    batches = Generator(train_rows.device).manual_seed(seed)
    outcome = train(module, train_rows, recipe, generator=batches, validation=validation)
    return {
        "best_epoch": outcome.best_epoch,
        "n_epochs": outcome.history[-1]["epoch"],
        "n_train": len(train_rows),
        "backend": module.backend_choice().name,
        "validation": _scores(module, validation),
        "test": _scores(module, test),
    }


def make_bank(
    model: str, D: int, n_hidden: int | None, n_orders: int, recipe: Recipe, seed: int
) -> AbstractAutoregressive:
    """Make a bank whose first model takes the columns as they come, the others at random."""
    generator = Generator().manual_seed(seed)
    random = [torch.randperm(D, generator=generator) for _ in range(n_orders - 1)]
    order = torch.stack([torch.arange(D), *random])
    if model == "fvsbn":
        return FVSBNModule(D, order=order, n_models=n_orders, generator=generator)
    assert n_hidden is not None
    return NADEModule(
        D,
        n_hidden,
        tied_weights=model == "nade-tied",
        order=order,
        n_models=n_orders,
        generator=generator,
        weight_scale=recipe.weight_scale,
    )


@torch.no_grad()
def _scores(module: AbstractAutoregressive, rows: Tensor) -> Result:
    """Mean log density under every order and under their average, in float64."""
    by_order = module.double().log_prob(rows.double())
    return {
        "by_order": [_mean(row) for row in by_order],
        "all_orders": _mean(log_average(by_order)),
    }


def _mean(scores: Tensor) -> dict[str, float]:
    summary = mean_score(scores.cpu().numpy())
    return {"mean": summary.mean, "standard_error": summary.standard_error}


def _jobs(dataset: str, model: str, recipe: str, choice: Choice) -> list[Job]:
    key = {"dataset": dataset, "model": model, "recipe": recipe}
    jobs = []
    for settings in _grid(model, recipe, dataset)[: 1 if choice.quick else None]:
        full = {**settings, "n_orders": N_ORDERS, "seed": SEED}
        if choice.quick:
            full |= _PLAN["settings"]["quick"]
        if model == "fvsbn":
            full.pop("n_hidden", None)
        jobs.append(Job(key, full))
    return jobs


def _chosen_cell(records: Sequence[Record], orders: str, published: float | None) -> Cell:
    """Test score of the setting that validates best."""

    def score(record: Record, part: str) -> Any:
        scores = record["result"][part]
        return scores["by_order"][0] if orders == "one" else scores["all_orders"]

    if not records:
        return Cell(published=published)
    best = max(records, key=lambda record: score(record, "validation")["mean"])
    test = score(best, "test")
    return Cell(test["mean"], test["standard_error"], published)


EXPERIMENT = BinaryExperiment()
