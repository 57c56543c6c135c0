"""Banks of separate networks: the GPU kernel against plain torch, and plain torch against scipy.

As in `test_gpu`, without a GPU the kernel runs under Triton's interpreter in a process of its own.
"""

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Generator

from rnade.backends import networks
from rnade.backends.gpu import networks_launch
from rnade.backends.networks import Networks
from rnade.backends.spec import Spec
from rnade.batch import Batch
from rnade.families import Bernoulli, GaussianMixture, LaplaceMixture
from tests.interpreter import assert_passes_under_the_interpreter
from tests.rounding import assert_accurate, textbook_and_truth
from tests.test_gpu import DEVICE, HAS_TRITON, INTERPRETING, UNITS, needs_kernels

# M, B, D, H, and whether there is a floor. Tiles are 16 to 64 wide.
SIZES = {
    "ones": (1, 1, 1, 1, False),
    "bank": (3, 5, 4, 5, True),
    "tiles": (2, 17, 17, 33, False),
    "blocks": (2, 70, 3, 16, True),
}
CASES = [
    *((GaussianMixture(3), "relu", size) for size in SIZES),
    *((LaplaceMixture(2), "relu", size) for size in ("bank", "tiles")),
    (GaussianMixture(20), "sigmoid", "bank"),
]


@pytest.mark.skipif(INTERPRETING, reason="this is the inner run")
@pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")
def test_network_kernel_under_the_interpreter():
    assert_passes_under_the_interpreter(__file__, more_than=15)


def draw(family, size, dtype=torch.float64, device="cpu"):
    """Rows, weights and networks, the same numbers in any precision."""
    M, B, D, H, floored = SIZES[size]
    generator = Generator().manual_seed(0)

    def normal(*shape):
        drawn = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return drawn.float().to(device, dtype)

    own = torch.arange(M) % D
    seen = torch.rand(M, D, generator=generator) < 0.6
    seen[torch.arange(M), own] = False
    P = family.n_outputs
    made = Networks(
        0.5 * normal(M, D, H),
        0.5 * normal(M, H),
        normal(M, H, P) / H**0.5,
        0.5 * normal(M, P),
        own.to(device),
        seen.to(device),
        normal(M) - 1 if floored else None,
    )
    return normal(M, B, D), normal(M, B), made


def gradients(x, weights, made, family, activation, scaled):
    """The weighted sums and their gradients to W, c, V and b, each model's times its number."""
    leaves = [t.detach().clone().requires_grad_() for t in made.trained]
    given = made._replace(**dict(zip("WcVb", leaves, strict=True)))
    spec = Spec(family, activation, scale_mean_gradient=scaled)
    value = networks.weighted_log_likelihood(Batch(x, weights), given, spec)
    upstream = torch.arange(1, len(value) + 1).to(value)
    return [value.detach(), *torch.autograd.grad(value, leaves, upstream)]


def test_densities_are_those_of_scipy():
    """Network by network and row by row, in NumPy."""
    family = GaussianMixture(3)
    x, _, made = draw(family, "bank")
    got = networks.log_prob(Batch(x), made, Spec(family, "relu")).numpy()
    W, c, V, b, own, seen, log_floor = (t.numpy() for t in made)
    for m in range(len(x)):
        for row, value in zip(x[m].numpy(), got[m], strict=True):
            a = c[m] + sum(row[j] * W[m, j] for j in range(len(row)) if seen[m, j])
            z = V[m].T @ np.maximum(a, 0) + b[m]
            alpha, mu = special.softmax(z[:3]), z[3:6]
            sigma = np.hypot(np.exp(z[6:]), np.exp(log_floor[m]))
            right = np.log(sum(alpha * stats.norm(mu, sigma).pdf(row[own[m]])))
            assert value == pytest.approx(right, abs=1e-10)


@needs_kernels
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("family", "activation", "size"), CASES)
def test_kernel_gradient(family, activation, size, scaled):
    settings = family, activation, scaled
    measure = textbook_and_truth(gradients, *draw(family, size), *settings)
    single = draw(family, size, torch.float32, DEVICE)
    assert networks_launch.serves(single[2], family)
    got = gradients(*single, *settings)
    assert_accurate(got, *measure, ("value", "W", "c", "V", "b"), UNITS)


@needs_kernels
@pytest.mark.parametrize(("family", "activation", "size"), CASES)
def test_kernel_value(family, activation, size, monkeypatch):
    monkeypatch.setattr(networks_launch, "SCORED_ROWS", 64)
    x, _, made = draw(family, size)
    right = networks.log_prob(Batch(x), made, Spec(family, activation))
    x, _, made = draw(family, size, torch.float32, DEVICE)
    with torch.no_grad():
        got = networks.log_prob(Batch(x), made, Spec(family, activation))
        shared = networks.log_prob(Batch(x[:1].expand_as(x)), made, Spec(family, activation))
    torch.testing.assert_close(got.cpu().double(), right, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(shared[0], got[0], rtol=0, atol=0)


@needs_kernels
def test_kernel_does_not_depend_on_the_others():
    family = GaussianMixture(3)
    x, weights, made = draw(family, "bank", torch.float32, DEVICE)
    together = gradients(x, weights, made, family, "relu", False)
    one = Networks(*[None if t is None else t[:1] for t in made])
    alone = gradients(x[:1], weights[:1], one, family, "relu", False)
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a[:1], b, rtol=0, atol=0)


@needs_kernels
def test_no_rows_give_no_gradient():
    family = GaussianMixture(3)
    x, weights, made = draw(family, "bank", torch.float32, DEVICE)
    got = gradients(x[:, :0], weights[:, :0], made, family, "relu", False)
    assert all(not t.any() for t in got)


def test_what_the_kernel_takes():
    _, _, made = draw(GaussianMixture(3), "bank", torch.float32)
    assert networks_launch.serves(made, GaussianMixture(3)) == INTERPRETING
    assert not networks_launch.serves(made, Bernoulli())
    _, _, made = draw(GaussianMixture(3), "bank")
    assert not networks_launch.serves(made, GaussianMixture(3))
