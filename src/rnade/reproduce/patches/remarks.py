"""What section 4.2 says beside its table: orders of the pixels, and the legal range."""

import copy
import time
from collections.abc import Iterator

import torch
from torch import Generator, Tensor

from rnade.data.patches import Bsds300, fixed_patches, whole_patches
from rnade.families import Conditional
from rnade.nn import RNADEModule
from rnade.reproduce.core.density import CHUNK, Density, Fitted
from rnade.reproduce.core.experiment import Settings
from rnade.reproduce.patches.models import (
    N_START,
    N_VALIDATION,
    make_rnade,
    recipe_of,
    start_biases,
)
from rnade.training import FreshRows, train


def fit_orders(settings: Settings, data: Bsds300) -> Fitted:
    """Train models in raster order and models in random orders as one program.

    All have starting weights of their own and see the same minibatches. The first half of the
    bank takes the pixels in raster order, the other half each in an order of its own.
    """
    began = time.perf_counter()
    device, D, n = data.train.device, data.train.n_dimensions, settings["n_runs"]
    orders = ["raster"] * n + ["random"] * n
    bank = RNADEModule.stack(
        [
            make_rnade({**settings, "seed": settings["seed"] + k, "order": order}, D)
            for k, order in enumerate(orders)
        ]
    ).to(device)
    generator = Generator(device).manual_seed(settings["seed"])
    start_biases(bank, settings, data.train.draw(N_START, generator))
    outcome = train(
        bank,
        FreshRows(data.train, generator),
        recipe_of(settings),
        validation=fixed_patches(data.validation, N_VALIDATION),
    )
    details = {
        "fit_seconds": round(time.perf_counter() - began, 3),
        "best_epoch": outcome.best_epoch,
        "validation": outcome.best_score,
    }
    return Fitted(Density(bank), details)


@torch.no_grad()
def log_mass_in_range(model: Density, x: Tensor) -> tuple[Tensor, Tensor]:
    r"""What limiting the range takes away from a model, log mass of the legal values.

    Pixels lie within 1 of each other, and so within 1 of the patch's mean. Limiting each
    conditional to its legal values divides it by its mass there: the log density of a legal patch
    rises by :math:`-\sum_d \log P(\text{legal } x_d \mid x_{<d})`. The model is an RNADE of the
    patches as they are, in one order.

    Returns
    -------
    fixed, running : Tensors of shape (N,)
        With the range [-1, 1] for every pixel; and with what the pixels before leave of it, from
        the highest less 1 to the lowest plus 1.
    """
    pieces = [_log_masses(_in_double(model), rows.double()) for rows in torch.split(x, CHUNK)]
    fixed, running = (torch.cat(parts) for parts in zip(*pieces, strict=True))
    return fixed, running


def _log_masses(module: RNADEModule, x: Tensor) -> tuple[Tensor, Tensor]:
    fixed, running = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
    one = torch.ones_like(fixed)
    for (_, conditional), (low, high) in zip(
        module.conditionals(x), _legal_ranges(x, module.order[0]), strict=True
    ):
        fixed += _log_mass(conditional, -one, one)
        running += _log_mass(conditional, low, high)
    return fixed, running


def _log_mass(conditional: Conditional, low: Tensor, high: Tensor) -> Tensor:
    return torch.log1p(-(conditional.cdf(low) + (1 - conditional.cdf(high))))


def _legal_ranges(x: Tensor, order: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """What the pixels before each, of rows that may still be filled in, leave of the range."""
    lowest = highest = torch.zeros_like(x[:, 0])  # the mean of the patch is 0
    for d in order.tolist():
        yield highest - 1, lowest + 1
        lowest, highest = torch.minimum(lowest, x[:, d]), torch.maximum(highest, x[:, d])


@torch.no_grad()
def sample_in_range(model: Density, n: int, generator: Generator) -> Tensor:
    """Draw patches, each conditional truncated to the values that the pixels before leave."""
    module = _in_double(model)
    x = torch.zeros(n, module.n_dimensions, dtype=torch.float64, device=module.device)
    ranges = _legal_ranges(x, module.order[0])
    # The conditionals read each pixel of x after it has been drawn.
    for d, conditional in module.conditionals(x):
        low, high = next(ranges)
        x[:, d] = conditional.sample(generator, low=low, high=high)
    return x.float()


def out_of_range(x: Tensor) -> Tensor:
    """Which patches have pixels, the last one too, that are more than 1 apart: shape (N,)."""
    pixels = whole_patches(x).flatten(-2)
    return pixels.amax(-1) - pixels.amin(-1) > 1


def _in_double(model: Density) -> RNADEModule:
    module = copy.deepcopy(model.module).double()
    assert isinstance(module, RNADEModule)
    return module
