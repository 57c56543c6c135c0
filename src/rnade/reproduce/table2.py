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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from rnade.data import DataStore
from rnade.data.patches import Bsds300, fixed_labelled_patches, load_bsds300, turned
from rnade.evaluation import mean_score, standard_error_by_group
from rnade.reproduce.experiment import AbstractExperiment, Choice, Context
from rnade.reproduce.layout import ResultTable
from rnade.reproduce.patch_models import PatchModel, fitted_or_stored
from rnade.reproduce.patch_remarks import (
    fit_orders,
    log_mass_in_range,
    out_of_range,
    sample_in_range,
)
from rnade.reproduce.patch_rows import ROWS, settings_of
from rnade.reproduce.patch_tables import patch_tables
from rnade.reproduce.runner import Job, Record
from rnade.reproduce.statistics import log_mean_density
from rnade.reproduce.zoran_weiss import read_mixture

Result = dict[str, Any]

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

    def plan(self, choice: Choice) -> list[list[Job]]:
        """One job a row, each a group of its own."""
        self.chosen_folds(choice)
        self.chosen_datasets(choice)
        return [[_job(model, quick=choice.quick)] for model in self.chosen_models(choice)]

    def execute(self, jobs: Sequence[Job], context: Context) -> Iterator[tuple[Job, Result]]:
        """Train and score rows; the Zoran and Weiss row waits until a file is given."""
        for job in jobs:
            settings = job.settings
            if settings["kind"] == "stored-mixture" and context.mixture_file is None:
                continue
            patches = load_patches(context.store, context.device, settings.get("quick", False))
            yield job, _RESULTS[settings["kind"]](job, patches, context)

    def tables(self, choice: Choice, records: Mapping[str, Record]) -> list[ResultTable]:
        """The paper's table, ours, and the two remarks."""
        by_name = {record["job"]["model"]: record["result"] for record in records.values()}
        return patch_tables(self.chosen_models(choice), by_name)


@dataclass(frozen=True, eq=False)
class Patches:
    """Sources of patches, and those on which all models are scored.

    Attributes
    ----------
    sources : Bsds300
    test, train : Tensors of shape (N, D)
    test_image, train_image : int64 Tensors of shape (N,)
    turned_scores : dict
        By folder of models, row and symmetry, log densities of the turned test patches: ensembles
        share members.
    """

    sources: Bsds300
    test: Tensor
    test_image: Tensor
    train: Tensor
    train_image: Tensor
    turned_scores: dict[tuple[Path, str, int], Tensor] = dataclasses.field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.test.device


@functools.lru_cache(maxsize=1)
def load_patches(store: DataStore, device: torch.device, quick: bool) -> Patches:
    """Read BSDS300 and draw the patches that are scored."""
    return draw_patches(
        load_bsds300(store, device=device), N_TEST // (QUICK_SHARE if quick else 1)
    )


def draw_patches(sources: Bsds300, n: int) -> Patches:
    """Draw the patches that are scored: n of the test images, n of the training images."""
    test, train = (fixed_labelled_patches(s, n) for s in (sources.test, sources.train))
    return Patches(sources, *test, *train)


def model_of(
    name: str, patches: Patches, context: Context, *, quick: bool
) -> tuple[PatchModel, Result]:
    """Give a row's model: as it is stored, else trained and stored."""
    settings = settings_of(name, quick=quick)
    folder = context.models_of("table2", quick=quick)
    fitted = fitted_or_stored(name, settings, patches.sources, folder)
    return fitted.model, fitted.details


def _job(model: str, *, quick: bool) -> Job:
    return Job({"dataset": "bsds300", "model": model}, settings_of(model, quick=quick))


def _one_model(job: Job, patches: Patches, context: Context) -> Result:
    quick = job.settings.get("quick", False)
    model, details = model_of(job.key["model"], patches, context, quick=quick)
    return {**score_both(model.log_prob, patches), **details}


def _ensemble(job: Job, patches: Patches, context: Context) -> Result:
    """Mean density of several models and turned patches, each with equal weight."""
    quick, turns = job.settings.get("quick", False), range(job.settings["n_symmetries"])
    names = job.settings["members"]
    found = [model_of(name, patches, context, quick=quick) for name in names]
    known, folder = patches.turned_scores, context.models_of("table2", quick=quick)
    for (name, (model, _)), g in itertools.product(zip(names, found, strict=True), turns):
        if (folder, name, g) not in known:
            known[folder, name, g] = model.log_prob(turned(patches.test, g))
    scores = torch.stack([known[folder, name, g] for name in names for g in turns])
    log_prob = log_mean_density(scores)
    return {
        "test": summary(log_prob.cpu().numpy(), patches.test_image),
        "n_parameters": sum(model.n_parameters for model, _ in found),
        "fit_seconds": round(sum(details["fit_seconds"] for _, details in found), 3),
        "n_densities": len(found) * len(turns),
    }


def _orders(job: Job, patches: Patches, context: Context) -> Result:
    bank, details = fit_orders(job.settings, patches.sources)
    test = bank.log_prob(patches.test).cpu().numpy()
    scores = [summary(row, patches.test_image) for row in test]
    n = job.settings["n_runs"]
    return {"raster": scores[:n], "random": scores[n:], **details}


def _range(job: Job, patches: Patches, context: Context) -> Result:
    quick = job.settings.get("quick", False)
    model, _ = model_of(job.settings["of"], patches, context, quick=quick)
    n = N_RANGE // (QUICK_SHARE if quick else 1)
    x, image = patches.test[:n], patches.test_image[:n]
    scores = model.log_prob(x).cpu().numpy()
    result: Result = {"test": summary(scores, image)}
    for name, log_mass in zip(("fixed", "running"), log_mass_in_range(model, x), strict=True):
        result[name] = summary(-log_mass.cpu().numpy(), image)
    generator = Generator(patches.device).manual_seed(0)
    drawn = {
        "data": x,
        "free": model.sample(n, generator),
        "limited": sample_in_range(model, n, generator),
    }
    result["out_of_range"] = {k: float(out_of_range(v).double().mean()) for k, v in drawn.items()}
    return result


def _stored_mixture(job: Job, patches: Patches, context: Context) -> Result:
    assert context.mixture_file is not None
    mixture, facts = read_mixture(context.mixture_file)
    model = PatchModel.raw(mixture.to(patches.device))
    details = {"n_parameters": model.n_parameters, **facts}
    return {**score_both(model.log_prob, patches), **details}


_RESULTS = {
    "mixture": _one_model,
    "rnade": _one_model,
    "ensemble": _ensemble,
    "bank": _orders,
    "range": _range,
    "stored-mixture": _stored_mixture,
}


def score_both(log_prob: Any, patches: Patches) -> Result:
    """Score test patches and training patches."""
    return {
        "test": summary(log_prob(patches.test).cpu().numpy(), patches.test_image),
        "train": summary(log_prob(patches.train).cpu().numpy(), patches.train_image),
    }


def summary(scores: Any, image: Tensor) -> Result:
    """Mean of scores, its standard error over patches, and over images."""
    scores = np.asarray(scores, dtype=np.float64)
    mean = mean_score(scores)
    by_image = standard_error_by_group(scores, image.cpu().numpy())
    return {**dataclasses.asdict(mean), "by_image": by_image}


EXPERIMENT = Table2()
