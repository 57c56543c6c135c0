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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor

from rnade.data import BINARY_SETS, load_binary
from rnade.evaluation import mean_score
from rnade.nn import AbstractAutoregressive, FVSBNModule, NADEModule
from rnade.reproduce.experiment import AbstractExperiment, Choice, Context
from rnade.reproduce.layout import Cell, ResultTable
from rnade.reproduce.runner import Job, Record
from rnade.reproduce.statistics import log_mean_density
from rnade.reproduce.targets import targets
from rnade.training import MODERN, Recipe, train

N_ORDERS = 8
SEED = 0

MODELS = ("fvsbn", "nade", "nade-tied")
RECIPES = ("nade", "ours")
LABELS = {"fvsbn": "FVSBN", "nade": "NADE", "nade-tied": "NADE, tied output weights"}
RECIPE_LABELS = {"nade": "NADE's recipe", "ours": "our recipe"}
SET_LABELS = {"mushrooms": "mushrooms", "dna": "DNA", "nips": "NIPS-0-12"}

Settings = dict[str, Any]

# NADE's own recipe, with minibatches of 10 in place of single rows and so ten times the rate.
_NADE: Settings = {
    "n_hidden": 500,
    "optimiser": "sgd",
    "batch_size": 10,
    "epochs": 100,
    "schedule": "linear",
    "warmup": 0.0,
    "momentum": 0.0,
    "averaging": 0.0,
    "patience": 10,
    "clip_norm": None,
    "weight_scale": 0.01,
}
_OURS: Settings = {"epochs": 100, "averaging": 0.99, "patience": 20}


def _grid(model: str, recipe: str, dataset: str) -> list[Settings]:
    """Settings among which validation chooses."""
    if recipe == "nade":
        return [{**_NADE, "learning_rate": rate} for rate in (0.5, 0.1)]
    if model == "fvsbn":
        return [
            {**_OURS, "learning_rate": rate, "weight_decay": decay}
            for rate, decay in _FVSBN_GRID[dataset]
        ]
    return [
        {**_OURS, "n_hidden": units, "learning_rate": 0.02, "weight_decay": decay}
        for units, decay in _NADE_GRID[dataset]
    ]


# Rate and weight decay; units and weight decay. The less data for each column, the more decay.
_FVSBN_GRID = {
    "mushrooms": [(0.1, 0.0), (0.1, 0.01)],
    "dna": [(0.03, 0.2), (0.03, 0.4)],
    "nips": [(0.01, 3.0), (0.01, 7.0)],
}
_NADE_GRID = {
    "mushrooms": [(200, 0.02), (200, 0.1)],
    "dna": [(100, 0.3), (100, 0.6)],
    "nips": [(100, 5.0), (100, 10.0)],
}
_QUICK: Settings = {"epochs": 2, "batches_per_epoch": 5, "n_hidden": 8}


class BinaryExperiment(AbstractExperiment):
    """NADE and FVSBN on mushrooms, DNA and NIPS-0-12."""

    name = "binary"
    title = "NADE and FVSBN on binary data"
    datasets = BINARY_SETS
    models = MODELS

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

    def execute(self, jobs: Sequence[Job], context: Context) -> Iterator[tuple[Job, Settings]]:
        """Train each job's bank of orders and score all rows by it."""
        for job in jobs:
            data = load_binary(job.key["dataset"], context.store)
            parts = [
                torch.as_tensor(part, dtype=torch.float32).to(context.device)
                for part in (data.train, data.validation, data.test)
            ]
            yield job, train_bank(job, *parts)

    def tables(self, choice: Choice, records: Mapping[str, Record]) -> list[ResultTable]:
        """One table: models, recipes, one order or all; by data set."""
        published = targets("binary")
        rows: list[str] = []
        cells: dict[tuple[str, str], Cell] = {}
        for model in self.chosen_models(choice):
            for recipe in RECIPES:
                for orders, label in (("one", "one order"), ("all", _all_orders(choice))):
                    row = f"{LABELS[model]}, {RECIPE_LABELS[recipe]}, {label}"
                    rows.append(row)
                    for dataset in self.chosen_datasets(choice):
                        jobs = _jobs(dataset, model, recipe, choice)
                        known = [records[j.identity] for j in jobs if j.identity in records]
                        figure = published["figures"][dataset].get(_published_name(model, orders))
                        cells[row, SET_LABELS[dataset]] = _chosen_cell(known, orders, figure)
        columns = [SET_LABELS[dataset] for dataset in self.chosen_datasets(choice)]
        return [
            ResultTable(
                self.title,
                "Test log-likelihood, nats per row, ± its standard error over test rows; settings"
                " chosen by validation rows. In brackets the published figure and the difference"
                f" ({published['source']}). Bold: the highest of a column.",
                "model",
                rows,
                columns,
                _with_best_bold(cells, columns),
            )
        ]


def train_bank(job: Job, train_rows: Tensor, validation: Tensor, test: Tensor) -> Settings:
    """Train the orders of one setting at once; give scores of each order and of their mixture."""
    model, settings = job.key["model"], dict(job.settings)
    n_orders, seed = settings.pop("n_orders"), settings.pop("seed")
    n_hidden = settings.pop("n_hidden", None)
    recipe = replace(MODERN, **settings)
    generator = Generator().manual_seed(seed)
    module = _make_module(model, train_rows.shape[1], n_hidden, n_orders, recipe, generator)
    module = module.to(train_rows.device)
    module.start_from(train_rows)
    batches = Generator(train_rows.device).manual_seed(seed)
    outcome = train(module, train_rows, recipe, generator=batches, validation=validation)
    result: Settings = {
        "best_epoch": _listed(outcome.best_epoch),
        "n_epochs": outcome.history[-1]["epoch"],
        "n_train": len(train_rows),
        "backend": module.backend_choice().name,
    }
    for part, rows in (("validation", validation), ("test", test)):
        by_order = _scores(module, rows)
        mixture = log_mean_density(by_order)
        result[part] = {
            "by_order": [_mean(row) for row in by_order],
            "all_orders": _mean(mixture),
        }
    return result


def _make_module(
    model: str, D: int, n_hidden: int | None, n_orders: int, recipe: Recipe, generator: Generator
) -> AbstractAutoregressive:
    """Make a bank whose first model takes the columns as they come, the others at random."""
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
def _scores(module: AbstractAutoregressive, rows: Tensor) -> Tensor:
    """Log densities of every row under every order, in float64, of shape (M, N)."""
    return module.double().log_prob(rows.double()).view(module.n_models, -1)


def _mean(scores: Tensor) -> dict[str, float]:
    summary = mean_score(scores.cpu().numpy())
    return {"mean": summary.mean, "standard_error": summary.standard_error}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _jobs(dataset: str, model: str, recipe: str, choice: Choice) -> list[Job]:
    key = {"dataset": dataset, "model": model, "recipe": recipe}
    jobs = []
    for settings in _grid(model, recipe, dataset)[: 1 if choice.quick else None]:
        full = {**settings, "n_orders": N_ORDERS, "seed": SEED}
        if choice.quick:
            full |= {**_QUICK, "n_orders": 2}
        if model == "fvsbn":
            full.pop("n_hidden", None)
        jobs.append(Job(key, full))
    return jobs


def _all_orders(choice: Choice) -> str:
    return f"{2 if choice.quick else N_ORDERS} orders"


def _published_name(model: str, orders: str) -> str:
    """The published model to set beside ours: ensembles are known of NADE alone."""
    if model == "fvsbn":
        return "FVSBN" if orders == "one" else ""
    return "NADE" if orders == "one" else "EoNADE"


def _chosen_cell(records: Sequence[Record], orders: str, published: float | None) -> Cell:
    """Test score of the setting that validates best."""

    def score(record: Record, part: str) -> dict[str, float]:
        scores = record["result"][part]
        found: dict[str, float] = (
            scores["by_order"][0] if orders == "one" else scores["all_orders"]
        )
        return found

    if not records:
        return Cell(published=published)
    best = max(records, key=lambda record: score(record, "validation")["mean"])
    test = score(best, "test")
    return Cell(test["mean"], test["standard_error"], published)


def _with_best_bold(
    cells: Mapping[tuple[str, str], Cell], columns: Sequence[str]
) -> dict[tuple[str, str], Cell]:
    marked = dict(cells)
    for column in columns:
        found = [
            (c.value, at) for at, c in cells.items() if at[1] == column and c.value is not None
        ]
        if found:
            _, at = max(found)
            marked[at] = replace(cells[at], bold=True)
    return marked


EXPERIMENT = BinaryExperiment()
