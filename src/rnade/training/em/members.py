"""Mixtures of Gaussians as members of an average, each with a part of the rows left out."""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rnade.backends.threads import threads_for
from rnade.batch import Batch
from rnade.nn.mog import MixtureOfGaussiansModule
from rnade.training.em.loop import fit_mixture, n_products
from rnade.training.em.progress import EMSettings
from rnade.training.em.starts import starting_components
from rnade.training.member import Outcome

SETTINGS = EMSettings(max_iter=100, tol=1e-3, patience=5)
# No component is narrower than this share of a column's standard deviation.
LEAST_SCALE = 1e-3


def fit_member(
    rows: Batch,
    left_out: Batch | None,
    n_components: int,
    floor: Float[Tensor, " D"],
    seed: int,
    *,
    settings: EMSettings = SETTINGS,
) -> tuple[MixtureOfGaussiansModule, Outcome]:
    """Fit a mixture by EM, in float64, whose covariances are shrunk to their average.

    By as many rows' worth as there are columns, so that a component of few rows keeps a volume.

    Parameters
    ----------
    rows : Batch
        x of shape (N, D), standardised; cells may be missing.
    left_out : Batch or None
        Rows by which EM is stopped.
    n_components : int
        Fewer are taken of very few rows.
    floor : Tensor of shape (D,)
        Smallest standard deviation of a component in any direction, column by column.
    seed : int
    settings : EMSettings
    """
    device, D = rows.x.device, rows.x.shape[1]
    generator = Generator(device).manual_seed(seed)
    K = min(n_components, max(1, len(rows.x) // 2))
    module = MixtureOfGaussiansModule(D, K).to(device, torch.float64)
    variance = floor.to(device, torch.float64).clamp_min(LEAST_SCALE) ** 2
    x, weights, seen, _ = rows.map(lambda t: t if t.dtype == torch.bool else t.double())
    held_out = None if left_out is None else left_out.x.double()
    with threads_for(n_products(module, len(x))):
        start = starting_components(
            x, K, "k-means++", generator, weights=weights, floor=variance, seen=seen
        )
        module.set_components(*start)
    outcome = fit_mixture(
        module,
        x,
        settings,
        floor=variance,
        generator=generator,
        shrinkage=float(D),
        validation=held_out,
        weights=weights,
        validation_weights=None if left_out is None else left_out.weights,
        seen=seen,
        validation_seen=None if left_out is None else left_out.seen,
    )
    return module, outcome
