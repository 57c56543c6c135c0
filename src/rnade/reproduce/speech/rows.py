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

    The validation speakers choose among the settings of its grid, fold by fold: of `grid_of_much`
    where there is much more speech than in the sample, if the row has one.
    """

    label: str
    grid: list[Settings] = field(repr=False)
    grid_of_much: list[Settings] = field(default_factory=list, repr=False)
    of_the_paper: bool = False

    def grid_for(self, dataset: str) -> list[Settings]:
        """Settings that are tried on a data set."""
        return (dataset != "sample" and self.grid_of_much) or self.grid


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
    n_layers: int = 1,
) -> Settings:
    """Settings of RNADE."""
    if family == "laplace":
        # The paper multiplies the gradient of means by their deviation for Gaussians only.
        recipe = recipe.with_changes(scale_mean_gradient=False)
    settings = {
        "model": "rnade",
        "family": family,
        "n_hidden": n_hidden,
        "n_components": n_components,
        "recipe": changed(recipe),
        "residuals": residuals,
        "n_orders": n_orders,
        "seed": SEED,
    }
    # One hidden layer is the paper's model, whose records say nothing of layers.
    return settings | ({"n_layers": n_layers} if n_layers > 1 else {})


def _settings(entry: Settings) -> Settings:
    if "em" in entry:
        return mixture(**entry | {"em": EMSettings(**entry["em"])})
    return rnade(**entry | {"recipe": make_recipe(**entry["recipe"])})


def _row(label: str, of_the_paper: bool = False, **grids: list[Settings]) -> Row:
    made = {name: [_settings(entry) for entry in grid] for name, grid in grids.items()}
    return Row(label, of_the_paper=of_the_paper, **made)


ROWS = {name: _row(**row) for name, row in _PLAN["rows"].items()}
# Of RNADE on the sample, with one thing changed at a time.
VARIANTS = {
    name: _row(row["label"], grid=[row["settings"]]) for name, row in _PLAN["variants"].items()
}


def shown(dataset: str) -> dict[str, Settings]:
    """What Figure 2 samples from."""
    places: dict[str, int] = _PLAN["shown"]["sample" if dataset == "sample" else "much"]
    return {name: ROWS[name].grid_for(dataset)[i] for name, i in places.items()}


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
