"""Ensembles: an average of densities is one; terms sum to it; draws follow the weights."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import kstest
from torch import Generator

from rnade.families import GaussianMixture
from rnade.nn import EnsembleModule, RNADEModule
from tests.conftest import make_module


def make_parts(D=2):
    """Banks of different shapes and orders."""
    return [
        RNADEModule.stack([make_module("rnade-random-order", D, seed=s) for s in range(2)]),
        make_module("rnade-mol", D, seed=5),
    ]


WEIGHTS = [0.2, 0.5, 0.3]


def test_it_is_the_weighted_average_of_its_members():
    module = EnsembleModule(make_parts(), WEIGHTS)
    x = torch.randn(6, 2, generator=Generator().manual_seed(0), dtype=torch.float64)
    members = [module.member(m) for m in range(3)]
    expected = logsumexp(
        [m.log_prob(x).detach().numpy() for m in members],
        axis=0,
        b=np.asarray(WEIGHTS)[:, None],
    )
    np.testing.assert_allclose(module.log_prob(x).detach().numpy(), expected, rtol=1e-6)


def test_it_integrates_to_one():
    module = EnsembleModule(make_parts(), WEIGHTS)
    axis = torch.linspace(-25, 25, 1501, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    with torch.no_grad():
        mass = module.log_prob(grid).exp().sum() * (axis[1] - axis[0]) ** 2
    assert mass.item() == pytest.approx(1, abs=2e-3)


def test_terms_sum_to_the_log_density_even_far_out():
    module = EnsembleModule(make_parts(), WEIGHTS)
    x = torch.randn(6, 2, generator=Generator().manual_seed(0), dtype=torch.float64)
    x[0] = 1e4
    with torch.no_grad():
        terms = module.log_conditionals(x)
        torch.testing.assert_close(terms.sum(1), module.log_prob(x))
    assert torch.isfinite(terms).all()


def test_terms_of_equal_members_are_the_members_own():
    one = make_module("rnade-mog", 3)
    module = EnsembleModule([RNADEModule.stack([one, one, one])])
    x = torch.randn(5, 3, generator=Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(module.log_conditionals(x), one.log_conditionals(x))


def test_draws_follow_the_weights_and_the_members():
    left, right = (RNADEModule(1, 2, GaussianMixture(1)).double() for _ in range(2))
    with torch.no_grad():
        for module, mean in ((left, -5.0), (right, 5.0)):
            for p in module.parameters():
                p.zero_()
            module.b[0, 0, 1] = mean
    module = EnsembleModule([left, right], [1, 3])
    x = module.sample(4000, Generator().manual_seed(0))[:, 0]
    assert (x > 0).double().mean().item() == pytest.approx(0.75, abs=0.03)
    assert kstest(x[x > 0].numpy() - 5, "norm").pvalue > 0.001
    low = module.sample(100, Generator().manual_seed(0), low=torch.tensor([0.0]).double())
    assert (low >= 0).all()


def test_weights_are_found_and_held_towards_equal_ones():
    good, bad = make_module("rnade-mog", 2), make_module("rnade-mog", 2)
    with torch.no_grad():
        bad.b[:, :, 3:6] += 20.0  # its means are far from any row
    module = EnsembleModule([RNADEModule.stack([good, bad])])
    rows = good.sample(98, Generator().manual_seed(0))
    module.fit_weights(rows)
    # All 98 rows and one of the prior's two for the good member.
    torch.testing.assert_close(module.log_weights.exp()[0, 0].item(), 0.99)
    module.fit_weights(rows[:2])
    torch.testing.assert_close(module.log_weights.exp()[0, 0].item(), 0.75)


def test_a_chosen_member_sees_rows_as_its_own():
    """Under the ensemble's own draws, the chosen member's first conditional is uniform."""
    parts = [make_module("rnade-mog", 2, seed=s) for s in range(3)]
    module = EnsembleModule(parts, WEIGHTS)
    generator = Generator().manual_seed(0)
    x = module.sample(3000, generator)
    with torch.no_grad():
        chosen = module.choose_members(x, generator)
        u = torch.empty(len(x), dtype=torch.float64)
        for m, part in enumerate(parts):
            at = chosen == m
            u[at] = part.conditional(1, x[at, :1]).cdf(x[at, 1])
    assert kstest(u.numpy(), "uniform").pvalue > 0.001


def test_bad_weights_and_members_are_told():
    with pytest.raises(ValueError, match=r"Expected 3 weights >= 0, not all 0; got \[1.0, 2.0\]"):
        EnsembleModule(make_parts(), [1.0, 2.0])
    module = EnsembleModule(make_parts())
    with pytest.raises(IndexError, match="Expected a member from 0 to 2"):
        module.member(3)
    with pytest.raises(TypeError, match="use member"):
        module[0]
