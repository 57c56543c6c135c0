"""The rows of Table 3: the paper's, and each kind of model with settings chosen by validation."""

import dataclasses
from dataclasses import dataclass, field

from rnade.reproduce.core.experiment import Settings
from rnade.reproduce.core.plans import read_plan
from rnade.training import EMSettings, Recipe, make_recipe

SEED = 0
_PLAN = read_plan("speech")
PAPER_SPEECH = make_recipe(**_PLAN["recipes"]["paper"])


@dataclass(frozen=True)
class Row:
    """A row of the table, whether the paper has it too or not.

    The validation speakers choose among the settings of its grid, fold by fold.
    """

    label: str
    grid: list[Settings] = field(repr=False)
    of_the_paper: bool = False


def changed(settings: Recipe | EMSettings) -> Settings:
    """Those settings that are not the defaults: a setting added later makes no other job."""
    return {
        f.name: getattr(settings, f.name)
        for f in dataclasses.fields(settings)
        if getattr(settings, f.name) != f.default
    }


def mixture(n_components: int, shrinkage: float, em: EMSettings) -> Settings:
    """Settings of a mixture of Gaussians."""
    return {
        "model": "mog",
        "n_components": n_components,
        "shrinkage": shrinkage,
        "em": changed(em),
        "seed": SEED,
    }


def rnade(
    family: str,
    n_hidden: int,
    n_components: int,
    recipe: Recipe,
    *,
    residuals: bool = False,
    n_orders: int = 1,
) -> Settings:
    """Settings of RNADE."""
    if family == "laplace":
        # The paper multiplies the gradient of means by their deviation for Gaussians only.
        recipe = recipe.with_changes(scale_mean_gradient=False)
    return {
        "model": "rnade",
        "family": family,
        "n_hidden": n_hidden,
        "n_components": n_components,
        "recipe": changed(recipe),
        "residuals": residuals,
        "n_orders": n_orders,
        "seed": SEED,
    }


def _settings(entry: Settings) -> Settings:
    if "em" in entry:
        return mixture(**entry | {"em": EMSettings(**entry["em"])})
    return rnade(**entry | {"recipe": make_recipe(**entry["recipe"])})


ROWS = {
    name: Row(**row | {"grid": [_settings(entry) for entry in row["grid"]]})
    for name, row in _PLAN["rows"].items()
}
# What Figure 2 samples from.
SHOWN: dict[str, Settings] = {name: ROWS[name].grid[i] for name, i in _PLAN["shown"].items()}


def quick(settings: Settings) -> Settings:
    """Make the settings small enough to show in seconds that all works."""
    if settings["model"] == "mog":
        em = {**settings["em"], "max_iter": 3}
        if "batch_size" in em:
            em["batch_size"] = 500
        return {**settings, "n_components": 2, "em": em}
    recipe = {**settings["recipe"], "epochs": 2, "batches_per_epoch": 5, "batch_size": 25}
    n_orders = min(2, settings["n_orders"])
    return {**settings, "n_hidden": 8, "n_components": 2, "recipe": recipe, "n_orders": n_orders}
