"""RNADEs of several settings and orders of the columns, weighted by rows outside their training.

Two rows of Table 1 come of one fit: the networks alone, and with kernel densities of the training
rows among them.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator

from rnade.batch import Batch
from rnade.columns import Resolution
from rnade.families import make_family
from rnade.nn import RNADEModule
from rnade.nn.ensemble import log_average
from rnade.nn.kernels import kernel_log_densities
from rnade.reproduce.core.banks import train_all
from rnade.reproduce.core.plans import read_plan
from rnade.reproduce.table1.folds import Fitted, FoldRows, log_densities
from rnade.reproduce.table1.peers import grid_of
from rnade.reproduce.table1.repeats import has_twin
from rnade.training import MODERN, Member, ShuffledRows, Trained
from rnade.training.stacking import PRIOR_ROWS, stacking_weights
from rnade.typing import Array

# Parts of the training rows: of each setting, a model for each part is stopped early by it.
N_PARTS = 8
N_HIDDEN = 50
N_COMPONENTS = 20
# The row that has kernels, as the table's columns call it.
WITH_KERNELS = "rnade-ensemble-kernels"


@dataclass(frozen=True)
class Candidate:
    """A setting that may get weight."""

    family: str
    weight_decay: float

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.family.capitalize()}s, decay {self.weight_decay:g}"


CANDIDATES = [Candidate(**settings) for settings in read_plan("table1")["candidates"]]
# Those among which scikit-learn's row chooses: no more freedom than that.
KERNEL_CANDIDATES = [(s["kernel"], s["bandwidth"]) for s in grid_of("kernel-density")]
SETTINGS = {
    "candidates": [asdict(candidate) for candidate in CANDIDATES],
    "recipe": asdict(MODERN),
    "n_parts": N_PARTS,
    "n_hidden": N_HIDDEN,
    "n_components": N_COMPONENTS,
    "prior_rows": PRIOR_ROWS,
}
KERNEL_SETTINGS = {**SETTINGS, "kernels": [list(setting) for setting in KERNEL_CANDIDATES]}


@dataclass(frozen=True, eq=False)
class Scored:
    """Log densities of C candidates, whose names are for the record.

    Those of the training rows, (C, N), are each by models that were not trained on it, though a
    network's training was stopped by it; those of the test rows, (C, B), by all models.
    """

    names: list[Any]
    held_out: Array
    test: Array

    def and_also(self, other: "Scored") -> "Scored":
        """The candidates of both."""
        return Scored(
            [*self.names, *other.names],
            np.concatenate([self.held_out, other.held_out]),
            np.concatenate([self.test, other.test]),
        )

    def usable(self) -> "Scored":
        """Those candidates that gave every held-out row a number: a diverged one gets no weight.

        Test rows choose nothing, so that one which gives a test row none is an error.
        """
        good = np.flatnonzero(np.isfinite(self.held_out).all(1))
        names, test = [self.names[c] for c in good], self.test[good]
        bad = np.argwhere(~np.isfinite(test))
        if len(bad):
            c, row = bad[0]
            raise ValueError(
                "Expected finite log densities of the test rows from every candidate that has them"
                f" for all held-out rows; got {test[c, row]} for row {row} from {names[c]}. Give"
                " its scales a larger floor, or do not try it."
            )
        return Scored(names, self.held_out[good], test)


def fit_ensembles(
    folds: Sequence[FoldRows], device: torch.device, quick: bool
) -> Iterator[Fitted]:
    """Mix RNADEs of several settings and orders, without kernel densities and with them.

    Of each setting eight models are trained, the first in the columns' own order and the others
    in random ones. Each leaves out an eighth of the training rows, which stops it early; a
    setting's density is the mean of its eight. All settings, orders and folds train as one bank.
    A setting's weight is the one that makes the left-out rows most likely, each scored by the
    model that left it out: not trained on it, though stopped by it, and with a floor and starting
    biases that come from all training rows. Kernel densities on the training rows compete for
    weight without that advantage: each row is scored by kernels on the other seven parts.
    """
    tried = CANDIDATES[::2] if quick else CANDIDATES
    kernels = KERNEL_CANDIDATES[::7] if quick else KERNEL_CANDIDATES
    parts = [Parts.of(fold) for fold in folds]
    members = [
        member
        for part in parts
        for member in members_of(part, tried, device, epochs=3 if quick else None)
    ]
    trained = iter(train_all(members))
    for fold, part in zip(folds, parts, strict=True):
        by_setting = [[next(trained) for _ in range(N_PARTS)] for _ in tried]
        networks = _score_networks(part, fold.test, by_setting, tried)
        with_kernels = networks.and_also(_score_kernels(part, fold.test, kernels, device))
        is_twin = has_twin(fold.test, part.rows)
        scores, details = _mixed(networks, is_twin)
        yield Fitted(scores, details, {WITH_KERNELS: Fitted(*_mixed(with_kernels, is_twin))})


def _mixed(candidates: Scored, is_twin: NDArray[np.bool_]) -> tuple[Array, dict[str, Any]]:
    """Log densities of the test rows by the best weights, and what is worth recording."""
    kept = candidates.usable()
    weights = stacking_weights(kept.held_out)
    scores, held_out = (
        log_average(torch.as_tensor(each), torch.as_tensor(weights).log()).numpy()
        for each in (kept.test, kept.held_out)
    )
    return scores, {
        "n_twins": int(is_twin.sum()),
        "without_twins": None if is_twin.all() else float(scores[~is_twin].mean()),
        "held_out": float(held_out.mean()),
        "weights": [
            {
                "of": kept.names[c],
                "weight": round(float(weights[c]), 4),
                "held_out": round(float(kept.held_out[c].mean()), 4),
                "test": round(float(kept.test[c].mean()), 4),
            }
            for c in np.argsort(-weights)
        ],
        "n_left_out": len(candidates.names) - len(kept.names),
    }


@dataclass(frozen=True, eq=False)
class Parts:
    """A fold's training rows, shuffled, and the part of each, from 0 to N_PARTS - 1."""

    number: int
    rows: Array
    of_row: NDArray[np.int64]

    @staticmethod
    def of(fold: FoldRows) -> "Parts":
        """Shuffle a fold's training rows and cut them."""
        rows = np.random.default_rng(fold.number).permutation(fold.all_training)
        return Parts(fold.number, rows, np.arange(len(rows)) * N_PARTS // len(rows))


def members_of(
    parts: Parts, candidates: Sequence[Candidate], device: torch.device, epochs: int | None
) -> list[Member]:
    """Give a fold's models, setting by setting, and within a setting part by part."""
    x = torch.as_tensor(parts.rows, dtype=torch.float32).to(device)
    floor = torch.as_tensor(Resolution.measure(parts.rows).floors(np.ones(x.shape[1])))
    part_of = torch.as_tensor(parts.of_row).to(device)
    sets = [
        (ShuffledRows(x[part_of != part], 100 * parts.number + part), Batch(x[part_of == part]))
        for part in range(N_PARTS)
    ]
    made = []
    for candidate, part in itertools.product(candidates, range(N_PARTS)):
        recipe = MODERN.with_changes(weight_decay=candidate.weight_decay, epochs=epochs)
        module = RNADEModule(
            x.shape[1],
            N_HIDDEN,
            make_family(candidate.family, N_COMPONENTS),
            order="random" if part else "raster",
            generator=Generator().manual_seed(100 * parts.number + part),
        ).to(device)
        module.start_from(x, spread=recipe.spread)
        module.set_floor(floor)
        made.append(Member(module, recipe, *sets[part]))
    return made


def _score_networks(
    parts: Parts,
    test: Array,
    by_setting: Sequence[Sequence[Trained]],
    candidates: Sequence[Candidate],
) -> Scored:
    held_out = np.empty((len(candidates), len(parts.rows)))
    by_test = np.empty((len(candidates), len(test)))
    for c, models in enumerate(by_setting):
        for part, model in enumerate(models):
            mine = parts.of_row == part
            held_out[c, mine] = log_densities(model.module, parts.rows[mine])
        each = np.stack([log_densities(model.module, test) for model in models])
        by_test[c] = log_average(torch.as_tensor(each)).numpy()
    return Scored([asdict(c) for c in candidates], held_out, by_test)


def _score_kernels(
    parts: Parts, test: Array, kernels: Sequence[tuple[str, float]], device: torch.device
) -> Scored:
    """Score the rows of each part by kernels on all other rows, test rows by those on all."""

    def scores(centres: Array, rows: Array) -> Array:
        of, x = (torch.as_tensor(each, dtype=torch.float64).to(device) for each in (centres, rows))
        return np.asarray(kernel_log_densities(of, x, kernels).cpu().numpy())

    held_out = np.empty((len(kernels), len(parts.rows)))
    for part in range(N_PARTS):
        mine = parts.of_row == part
        held_out[:, mine] = scores(parts.rows[~mine], parts.rows[mine])
    names = [{"kernel": kernel, "bandwidth": h} for kernel, h in kernels]
    return Scored(names, held_out, scores(parts.rows, test))
