"""The rows of Table 3: the paper's, and each kind of model with settings chosen by validation."""

import dataclasses
from dataclasses import dataclass, field

from rnade.reproduce.core.experiment import Settings
from rnade.training import MODERN, PAPER, PAPER_EM, EMSettings, Recipe

SEED = 0

# The paper's recipe for image patches, which it also used for speech. There nothing overfitted;
# here an early end is needed, and a look at the validation speakers each epoch tells when.
PAPER_SPEECH = PAPER.with_changes(
    learning_rate=0.001,
    batch_size=25,
    epochs=200,
    batches_per_epoch=1000,
    momentum=0.9,
    weight_decay=0.001,
    patience=5,
)
# Minibatch EM as in the paper, with an early end. Of 26,000 windows, 20,000 are no small batch.
PAPER_SPEECH_EM = dataclasses.replace(PAPER_EM, patience=3)
# Rows' worth of the average covariance: without it, components of a few hundred windows in 231
# dimensions are singular. Of 100, 300 and 1,000 the first split's validation speakers chose 300.
SHRINKAGE = 300.0


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes
    ----------
    label : str
        As the paper has it, if it does.
    published : str or None
        Its name among the published figures.
    grid : list of dict
        Settings among which the validation speakers choose, fold by fold.
    """

    label: str
    published: str | None
    grid: list[Settings] = field(repr=False)


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


def _paper_rows() -> dict[str, Row]:
    rows = {}
    for n in (50, 100, 200, 300):
        grid = [mixture(n, SHRINKAGE, PAPER_SPEECH_EM)]
        rows[f"mog-{n}"] = Row(f"MoG N={n}", f"MoG N={n}", grid)
    for name, family in (("MoG", "gaussian"), ("MoL", "laplace")):
        for k in (10, 20):
            label = f"RNADE-{name} K={k}"
            grid = [rnade(family, 1024, k, PAPER_SPEECH)]
            rows[f"rnade-{name.lower()}-{k}"] = Row(label, label, grid)
    return rows


# Sizes and shrinkages of mixtures, over which EM over all rows is quick.
_AMOUNTS = {5: (3.0, 10.0), 10: (3.0, 10.0, 30.0), 15: (3.0, 10.0)}
_FULL_EM = EMSettings(max_iter=100, tol=0.01, patience=2)
# Adam with averaged weights, on residuals.
_ADAM = MODERN.with_changes(
    learning_rate=0.005, batch_size=256, epochs=40, patience=5, weight_decay=5.0
)
# Orders of an average: forwards and backwards in time, up and down in frequency.
N_ORDERS = 4


def _chosen_rows() -> dict[str, Row]:
    mixtures = [mixture(n, a, _FULL_EM) for n, amounts in _AMOUNTS.items() for a in amounts]

    def settings(family: str, *sizes: tuple[int, float]) -> list[Settings]:
        return [
            rnade(family, H, 3, _ADAM.with_changes(weight_decay=decay), residuals=True)
            for H, decay in sizes
        ]

    gaussians = settings("gaussian", (1024, 5.0), (256, 5.0), (256, 1.0))
    orders = rnade("gaussian", 1024, 3, _ADAM, residuals=True, n_orders=N_ORDERS)
    return {
        "mog": Row("MoG, chosen", None, mixtures),
        "rnade-mog": Row("RNADE-MoG, chosen", None, gaussians),
        # Of the size and decay that Gaussians chose in every split.
        "rnade-mol": Row("RNADE-MoL, chosen", None, settings("laplace", (1024, 5.0))),
        "rnade-mog-orders": Row(f"RNADE-MoG, mean of {N_ORDERS} orders", None, [orders]),
    }


ROWS: dict[str, Row] = {**_paper_rows(), **_chosen_rows()}

# The settings that Figure 2 samples from, among those of their rows: the mixture that validation
# chose in every split of the sample, and the smaller RNADE, which is nearly as good as the one
# chosen and is trained without a GPU.
SHOWN: dict[str, Settings] = {
    "mog": mixture(10, 3.0, _FULL_EM),
    "rnade-mog": rnade("gaussian", 256, 3, _ADAM, residuals=True),
}


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
