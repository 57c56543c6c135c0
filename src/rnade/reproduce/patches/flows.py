"""Normalising flows of zuko on the patches of Table 2, to stand beside ours on the same ones."""

import math
import time
from importlib.util import find_spec
from typing import Any

import torch
from torch import Generator, Tensor

from rnade.batch import Batch
from rnade.columns.linear import LinearPart
from rnade.data.patches import Bsds300
from rnade.exceptions import warn_caller
from rnade.nn import AbstractDensity
from rnade.reproduce.core.density import Density, Fitted
from rnade.reproduce.core.experiment import Settings
from rnade.reproduce.patches.models import N_START, ColumnSource


class FlowModule(AbstractDensity):
    """A flow of zuko as one of our modules, to be scored."""

    def __init__(self, flow: Any, n_dimensions: int) -> None:
        super().__init__(n_dimensions)
        self.flow = flow

    def _log_prob(self, batch: Batch) -> Tensor:
        scores: Tensor = self.flow().log_prob(batch.x)
        return scores

    def _sample(self, n: int, generator: Generator, *bounds: Tensor | None) -> Tensor:
        raise NotImplementedError("Flows are scored here, not drawn from.")


def fit_flow(settings: Settings, data: Bsds300) -> Fitted | None:
    """Train a flow by Adam on fresh patches for a stated time; None where there is no zuko.

    The rate falls by a cosine of the time that has passed. Updates whose gradient is not finite
    are skipped and counted.
    """
    if find_spec("zuko") is None:
        warn_caller(
            "zuko is not installed, so its flows are left out: pip install 'rnade[peers]'",
            UserWarning,
        )
        return None
    import zuko

    device = data.train.device
    generator = Generator(device).manual_seed(settings["seed"])
    start = data.train.draw(N_START, generator)
    D = start.shape[1]
    with torch.random.fork_rng(devices=[]):  # zuko draws starting weights from the global state
        torch.manual_seed(settings["seed"])
        flow = getattr(zuko.flows, settings["flow"])(
            D, transforms=settings["transforms"], hidden_features=settings["hidden"]
        ).to(device)
    linear = LinearPart.fit(start, torch.arange(D, device=device))
    density = Density(FlowModule(flow, D), linear)
    source = ColumnSource(data.train, density, settings["n_symmetries"])
    rate, budget = settings["learning_rate"], settings["seconds"]
    optimiser = torch.optim.Adam(flow.parameters(), lr=rate)
    began, updates, skipped = time.perf_counter(), 0, 0
    while (passed := (time.perf_counter() - began) / budget) < 1:
        optimiser.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * passed)) / 2
        loss = -flow().log_prob(source.draw(settings["batch_size"], generator)).mean()
        optimiser.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(flow.parameters(), settings["clip_norm"])
        if torch.isfinite(norm):  # also waits for the device, so that the time is the work's
            optimiser.step()
        else:
            skipped += 1
        updates += 1
    details = {
        "fit_seconds": round(time.perf_counter() - began, 3),
        "n_updates": updates,
        "skipped": skipped,
        "n_parameters": density.n_parameters,
    }
    return Fitted(density, details)
