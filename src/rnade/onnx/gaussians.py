"""Gaussians beside the networks of a table, as part of an ONNX graph (`rnade.nn.gaussians`)."""

import math
from collections.abc import Mapping, Sequence

from rnade.columns.partition import ColumnCells
from rnade.nn.gaussians import FARTHEST, LEAST_VARIANCE, LOGISTIC_SCALE, Gaussians
from rnade.onnx.cells import Cells, component_log_terms
from rnade.onnx.graph import Graph, Value


def with_gaussians(
    g: Graph,
    of_networks: Value,
    gaussians: Gaussians,
    d: int,
    column: ColumnCells,
    cells: Sequence[Cells],
    given: Mapping[int, Value],
) -> Value:
    """Log densities of column d by networks, (B,), with the Gaussians' share mixed in.

    Parameters
    ----------
    given : mapping of int to Value of bool, each of shape (B,)
        For each other column, of which rows its cell is given.
    """
    share = float(gaussians.share[d])
    if not share:
        return of_networks
    start = {name: t.double().cpu().numpy()[None] for name, t in gaussians.state_dict().items()}
    log_weight, mean, C = (g.constant(start[n]) for n in ("log_alpha", "mu", "covariance"))
    for e, told in given.items():
        here = told.real().unsqueeze(-1)  # (B, 1)
        row = C.take(e, 2)  # (1 or B, K, D)
        variance = g("Max", row.take(e, 2), LEAST_VARIANCE)
        gain = row / variance.unsqueeze(-1)
        t = cells[e].position.clip(-FARTHEST, FARTHEST).unsqueeze(-1)
        apart = (t - mean.take(e, 2)) * here
        log_weight = log_weight - (apart * apart / variance + variance.log()) * here * 0.5
        mean = mean + gain * apart.unsqueeze(-1)
        C = C - gain.unsqueeze(-1) * row.unsqueeze(2) * here.unsqueeze(-1).unsqueeze(-1)
    mu, variance = mean.take(d, 2), g("Max", C.take(d, 2).take(d, 2), LEAST_VARIANCE)
    log_scale = variance.log() * 0.5 + math.log(LOGISTIC_SCALE)
    own = cells[d]
    parts = component_log_terms(
        g,
        g.concat([mu, log_scale], -1).unsqueeze(0),
        own.position.unsqueeze(0).unsqueeze(-1),
        own.log_width.unsqueeze(0).unsqueeze(-1),
        [column],
        gaussians.n_components,
    ).take(0)
    log_weight = log_weight - log_weight.logsumexp().unsqueeze(-1)
    beside = (parts + log_weight).logsumexp() + column.log_inside
    both = g.logaddexp(of_networks + math.log1p(-share), beside + math.log(share))
    return g.where(own.code >= 0.0, both, of_networks)
