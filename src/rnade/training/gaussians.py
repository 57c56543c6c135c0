"""Fitting the Gaussians beside networks that answer questions: how many, and their shares."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Generator

from rnade.batch import Batch
from rnade.columns.partition import CODE, POSITION, ColumnCells
from rnade.nn.any_order import GIVEN, ROLE, AnyOrderModule
from rnade.nn.gaussians import Gaussians
from rnade.nn.mixed_heads import log_densities
from rnade.training.any_order import with_roles
from rnade.training.em.members import fit_member
from rnade.training.stacking import stacking_weights
from rnade.typing import Array

# Components that are tried, with so many rows for each at least.
SIZES, ROWS_OF_A_COMPONENT = (1, 2, 4, 8, 16, 32), 20
# Numbers in all covariances: each row takes as many where its given cells are its own.
MOST_NUMBERS = 6000
# Rows that they are fitted to.
MOST_ROWS = 20_000
# No component is narrower than this on the smooth scale: columns with narrower peaks are left to
# the networks.
FLOOR = 0.01
# Held-out rows by which shares are found, and cuts of each.
SHARED_ROWS, CUTS = 1000, 4
# Smaller shares than this are none; and the largest.
LEAST_SHARE, MOST_SHARE = 0.02, 0.999


def fit_gaussians(
    columns: Sequence[ColumnCells],
    network: AnyOrderModule,
    training: Batch,
    held_out: Batch,
    seed: int,
) -> Gaussians | None:
    """Fit Gaussians to complete rows of numbers, and find their share of each column.

    Their number is chosen by the held-out rows, and so is each share: stacking, as of the models
    of an average, of the columns that random cuts of these rows leave, given the others.

    Parameters
    ----------
    columns : sequence of ColumnCells
    network : AnyOrderModule
        Trained, M = 1.
    training, held_out : Batch
        Cells, x of shape (N, D, 5 + R).

    Returns
    -------
    Gaussians, or None where they earn no share or the table is too wide
    """
    D = len(columns)
    some = training.map(lambda t: t[:MOST_ROWS])
    rows, left_out = (b._replace(x=b.x[..., POSITION].double()) for b in (some, held_out))
    floor = torch.full((D,), FLOOR)
    best, kept = -math.inf, None
    for size in SIZES:
        if (size > 1 and len(rows.x) < ROWS_OF_A_COMPONENT * size) or size * D**2 > MOST_NUMBERS:
            break
        module, outcome = fit_member(rows, left_out, size, floor, seed)
        if not outcome.best_score > best:
            break
        best, kept = outcome.best_score, module
    if kept is None:
        return None
    found = Gaussians(D, kept.n_components).to(rows.x)
    found.log_alpha.copy_(kept.log_alpha[0].detach())
    found.mu.copy_(kept.mu[0].detach())
    found.covariance.copy_(kept.covariances()[0].detach())
    found.share.copy_(torch.as_tensor(_shares(found, network, held_out, seed)))
    # As files keep it.
    return found.float() if bool((found.share > 0).any()) else None


@torch.no_grad()
def _shares(gaussians: Gaussians, network: AnyOrderModule, held_out: Batch, seed: int) -> Array:
    """The Gaussians' share of each column, by what held-out rows leave and what is given."""
    cells = held_out.x[:SHARED_ROWS].repeat(CUTS, 1, 1)
    w = held_out.weights
    weights = np.ones(len(cells)) if w is None else w[:SHARED_ROWS].repeat(CUTS).cpu().numpy()
    seen = torch.ones(cells.shape[:2], dtype=torch.bool, device=cells.device)
    x = with_roles(cells, seen, Generator(cells.device).manual_seed(seed))
    z, gates, x, links = network._parts(x[None].to(network.c), None)
    of_network = log_densities(z, gates, x, links, network.layout)[0].double()  # (B, D)
    given = x[0, ..., ROLE] == GIVEN
    known = gaussians.given(cells.double(), given)
    found = np.zeros(gaussians.share.shape)
    for d in range(len(found)):
        asked = ~given[:, d] & (cells[:, d, CODE] >= 0)
        own = known.components(d).log_densities(cells[:, d].double(), network.layout_of(d))
        both = torch.stack([of_network[asked, d], own[asked]])
        good = both.isfinite().all(0)
        if bool(good.any()):
            at = (asked.nonzero()[:, 0][good]).cpu().numpy()
            found[d] = stacking_weights(both[:, good].cpu().numpy(), weights[at])[1]
    return np.where(found < LEAST_SHARE, 0.0, np.minimum(found, MOST_SHARE))
