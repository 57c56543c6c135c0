"""The paper's Table 2: patches of natural images (BSDS300).

    rnade reproduce table2 --data-dir FOLDER

Models are trained on fresh patches of 180 images, stopped by patches of 20 others, and scored on a
million patches of 100 test images and a million of the training images. Beside the paper's rows
stand ours, on the same test patches, and the two remarks of section 4.2. Models are kept in the
folder `models` beside the records, and what is there is not trained again.
"""

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor

from rnade.data import DataStore
from rnade.data.patches import Bsds300, fixed_labelled_patches, load_bsds300, turned
from rnade.evaluation import mean_score, standard_error_by_group
from rnade.nn.ensemble import log_average
from rnade.reproduce.core.density import Density, Fitted
from rnade.reproduce.core.experiment import AbstractExperiment, Choice, Context, Result, Settings
from rnade.reproduce.core.layout import ResultTable
from rnade.reproduce.core.runner import Job, Record
from rnade.reproduce.patches.flows import fit_flow
from rnade.reproduce.patches.models import fitted_or_stored
from rnade.reproduce.patches.remarks import (
    fit_orders,
    log_mass_in_range,
    out_of_range,
    sample_in_range,
)
from rnade.reproduce.patches.rows import ROWS, settings_of
from rnade.reproduce.patches.tables import patch_tables
from rnade.reproduce.patches.zoran_weiss import read_mixture

N_TEST = 1_000_000
# Patches on which the range is limited, and draws that are counted.
N_RANGE = 100_000
QUICK_SHARE = 500  # the quick version scores so many times fewer


class Table2(AbstractExperiment):
    """Average log-likelihood of 8 x 8 patches."""

    name = "table2"
    title = "Table 2: patches of natural images"
    datasets = ("bsds300",)
    models = tuple(ROWS)

    def settings(self, dataset: str, model: str, choice: Choice) -> Settings:
        """Settings of a row."""
        return settings_of(model, quick=choice.quick)

    def result(self, job: Job, context: Context) -> Result | None:
        """Train and score a row; the Zoran and Weiss row waits until a file is given."""
        settings = job.settings
        if settings["kind"] == "stored-mixture" and context.mixture_file is None:
            return None
        patches = load_patches(context.store, context.device, settings.get("quick", False))
        return _RESULTS[settings["kind"]](job, patches, context)

    def tables(self, choice: Choice, records: Mapping[str, Record]) -> list[ResultTable]:
        """The paper's table, ours, and the two remarks."""
        by_name = {record["job"]["model"]: record["result"] for record in records.values()}
        return patch_tables(self.chosen_models(choice), by_name)


@dataclass(frozen=True, eq=False)
class Patches:
    """Sources of patches; those on which all models are scored, (N, D), and the image of each.

    `turned_scores` has log densities of the turned test patches by folder of models, row and
    symmetry: ensembles share members.
    """

    sources: Bsds300
    test: Tensor
    test_image: Tensor
    train: Tensor
    train_image: Tensor
    turned_scores: dict[tuple[Path, str, int], Tensor] = dataclasses.field(default_factory=dict)


@functools.lru_cache(maxsize=1)
def load_patches(store: DataStore, device: torch.device, quick: bool) -> Patches:
    """Read BSDS300 and draw the patches that are scored."""
    return scored_patches(
        load_bsds300(store, device=device), N_TEST // (QUICK_SHARE if quick else 1)
    )


def scored_patches(sources: Bsds300, n: int) -> Patches:
    """Draw the patches that are scored: n of the test images, n of the training images."""
    test, train = (fixed_labelled_patches(s, n) for s in (sources.test, sources.train))
    return Patches(sources, *test, *train)


def model_of(name: str, patches: Patches, context: Context, *, quick: bool) -> Fitted:
    """Give a row's model: as it is stored, else trained and stored."""
    folder = context.models_of("table2", quick=quick)
    return fitted_or_stored(name, settings_of(name, quick=quick), patches.sources, folder)


def _one_model(job: Job, patches: Patches, context: Context) -> Result:
    quick = job.settings.get("quick", False)
    fitted = model_of(job.key["model"], patches, context, quick=quick)
    return score_both(fitted.density, patches) | fitted.details


def _ensemble(job: Job, patches: Patches, context: Context) -> Result:
    """Mean density of several models and turned patches, each with equal weight."""
    quick, turns = job.settings.get("quick", False), range(job.settings["n_symmetries"])
    found = {
        name: model_of(name, patches, context, quick=quick) for name in job.settings["members"]
    }
    known, folder = patches.turned_scores, context.models_of("table2", quick=quick)
    for name, g in itertools.product(found, turns):
        if (folder, name, g) not in known:
            known[folder, name, g] = found[name].density.log_prob(turned(patches.test, g))
    scores = torch.stack([known[folder, name, g] for name in found for g in turns])
    return {
        "test": summary(log_average(scores), patches.test_image),
        "n_parameters": sum(each.density.n_parameters for each in found.values()),
        "fit_seconds": round(sum(each.details["fit_seconds"] for each in found.values()), 3),
        "n_densities": len(scores),
    }


def _flow(job: Job, patches: Patches, context: Context) -> Result | None:
    found = fit_flow(job.settings, patches.sources)
    return None if found is None else score_both(found.density, patches) | found.details


def _orders(job: Job, patches: Patches, context: Context) -> Result:
    fitted = fit_orders(job.settings, patches.sources)
    test = fitted.density.log_prob(patches.test)
    scores, n = [summary(row, patches.test_image) for row in test], job.settings["n_runs"]
    return {"raster": scores[:n], "random": scores[n:], **fitted.details}


def _range(job: Job, patches: Patches, context: Context) -> Result:
    quick = job.settings.get("quick", False)
    model = model_of(job.settings["of"], patches, context, quick=quick).density
    n = N_RANGE // (QUICK_SHARE if quick else 1)
    x, image = patches.test[:n], patches.test_image[:n]
    fixed, running = log_mass_in_range(model, x)
    generator = Generator(x.device).manual_seed(0)
    drawn = {
        "data": x,
        "free": model.sample(n, generator),
        "limited": sample_in_range(model, n, generator),
    }
    return {
        "test": summary(model.log_prob(x), image),
        "fixed": summary(-fixed, image),
        "running": summary(-running, image),
        "out_of_range": {k: float(out_of_range(v).double().mean()) for k, v in drawn.items()},
    }


def _stored_mixture(job: Job, patches: Patches, context: Context) -> Result:
    assert context.mixture_file is not None
    mixture, facts = read_mixture(context.mixture_file)
    model = Density(mixture.to(patches.test.device))
    return score_both(model, patches) | {"n_parameters": model.n_parameters, **facts}


_RESULTS = {
    "mixture": _one_model,
    "rnade": _one_model,
    "ensemble": _ensemble,
    "flow": _flow,
    "bank": _orders,
    "range": _range,
    "stored-mixture": _stored_mixture,
}


def score_both(model: Density, patches: Patches) -> Result:
    """Score test patches and training patches."""
    return {
        "test": summary(model.log_prob(patches.test), patches.test_image),
        "train": summary(model.log_prob(patches.train), patches.train_image),
    }


def summary(scores: Tensor, image: Tensor) -> Result:
    """Mean of scores, its standard error over patches, and over images."""
    values = scores.double().cpu().numpy()
    by_image = standard_error_by_group(values, image.cpu().numpy())
    return {**dataclasses.asdict(mean_score(values)), "by_image": by_image}


EXPERIMENT = Table2()
