"""Families: densities integrate to 1, agree with scipy, with their samples and their gradients."""

import numpy as np
import pytest
import scipy.stats
import torch
from scipy.integrate import quad
from torch import Generator

from rnade.families import (
    REGISTRY,
    Bernoulli,
    Conditional,
    GaussianMixture,
    LaplaceMixture,
    make_family,
)
from rnade.families.mixture import AbstractMixture
from tests.conftest import FAMILIES, MIXTURES

SCIPY = {GaussianMixture: scipy.stats.norm, LaplaceMixture: scipy.stats.laplace}


def draw_z(family, shape, seed=0):
    generator = Generator().manual_seed(seed)
    return torch.randn(*shape, family.n_outputs, generator=generator, dtype=torch.float64)


def scipy_mixture(family, z, floor=0.0):
    """Mixing fractions and frozen scipy components of one z."""
    alpha, mu, sigma = np.split(z.numpy(), 3)
    alpha = np.exp(alpha) / np.exp(alpha).sum()
    sigma = np.sqrt(np.exp(2 * sigma) + floor**2)
    return alpha, [SCIPY[type(family)](m, s) for m, s in zip(mu, sigma, strict=True)]


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("floor", [None, 0.3])
def test_mixture_agrees_with_scipy(name, floor, seed):
    family = MIXTURES[name]
    z = draw_z(family, (), seed)
    alpha, components = scipy_mixture(family, z, floor or 0.0)
    x = np.linspace(-6, 6, 41)
    log_floor = None if floor is None else torch.tensor(floor, dtype=torch.float64).log()
    pdf = sum(a * c.pdf(x) for a, c in zip(alpha, components, strict=True))
    cdf = sum(a * c.cdf(x) for a, c in zip(alpha, components, strict=True))
    tx = torch.tensor(x)
    zs = z.expand(len(x), -1)
    np.testing.assert_allclose(family.log_prob(tx, zs, log_floor).exp(), pdf, rtol=1e-12)
    np.testing.assert_allclose(family.cdf(tx, zs, log_floor), cdf, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", MIXTURES)
def test_mixture_integrates_to_one(name, seed):
    family = MIXTURES[name]
    z = draw_z(family, (), seed)
    _, mu, log_sigma = torch.split(z, family.n_components)
    breaks = torch.cat([mu, mu - 8 * log_sigma.exp(), mu + 8 * log_sigma.exp()])
    mass, _ = quad(
        lambda x: family.log_prob(torch.tensor(x, dtype=torch.float64), z).exp().item(),
        -400,
        400,
        points=sorted(breaks.tolist()),
        limit=400,
    )
    assert mass == pytest.approx(1, abs=1e-8)


def test_bernoulli_sums_to_one_and_agrees_with_scipy():
    family, z = Bernoulli(), draw_z(Bernoulli(), (20,))
    p = scipy.special.expit(z[:, 0].numpy())
    for value in (0.0, 1.0):
        x = torch.full((20,), value).double()
        expected = scipy.stats.bernoulli(p).logpmf(value)
        np.testing.assert_allclose(family.log_prob(x, z), expected, rtol=1e-12)
        np.testing.assert_allclose(
            family.cdf(x, z), scipy.stats.bernoulli(p).cdf(value), rtol=1e-12
        )


@pytest.mark.parametrize("name", MIXTURES)
def test_samples_follow_the_cdf(name, seed):
    family = MIXTURES[name]
    z = draw_z(family, (), seed)
    x = family.sample(z.expand(4000, -1), generator=Generator().manual_seed(seed))
    p = scipy.stats.kstest(family.cdf(x, z.expand(4000, -1)).numpy(), "uniform").pvalue
    assert p > 1e-4


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize(
    ("low", "high"),
    [(-0.5, 1.0), (2.0, None), (None, -3.0), (30.0, 31.0), (-1e3, -999.0), (60.0, None)],
)
def test_truncated_samples_follow_the_truncated_cdf(name, low, high, seed):
    """Far into the tail too, where the mass of the range underflows."""
    family = MIXTURES[name]
    z = draw_z(family, (), seed)
    n = 4000
    bounds = {
        k: None if b is None else torch.tensor(b).double()
        for k, b in (("low", low), ("high", high))
    }
    generator = Generator().manual_seed(seed)
    x = family.sample(z.expand(n, -1), generator=generator, **bounds)
    assert (x >= (low if low is not None else -np.inf)).all()
    assert (x <= (high if high is not None else np.inf)).all()
    # An independent distribution function: the density integrated numerically in logs.
    left = low if low is not None else x.min().item() - 5
    right = high if high is not None else x.max().item() + 5
    grid = torch.linspace(left, right, 200_001, dtype=torch.float64)
    log_pdf = family.log_prob(grid, z.expand(len(grid), -1))
    density = torch.exp(log_pdf - log_pdf.max()).numpy()
    cumulative = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    u = np.interp(x.numpy(), grid.numpy(), cumulative / cumulative[-1])
    assert scipy.stats.kstest(u, "uniform").pvalue > 1e-4


def test_truncated_bernoulli_takes_the_value_that_is_left():
    z = torch.zeros(50, 1).double()
    half = torch.tensor(0.5).double()
    generator = Generator().manual_seed(0)
    assert (Bernoulli().sample(z, generator=generator, low=half) == 1).all()
    assert (Bernoulli().sample(z, generator=generator, high=half) == 0).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_reference_epilogue_agrees_with_torch_and_autograd(name, seed):
    family = FAMILIES[name]
    z = draw_z(family, (30,), seed).requires_grad_()
    x = torch.randn(30, generator=Generator().manual_seed(seed), dtype=torch.float64)
    x = ((x > 0).double() if name == "bernoulli" else x).requires_grad_()
    log_p = family.log_prob(x, z)
    d_x, d_z = torch.autograd.grad(log_p.sum(), (x, z))
    reference = family.reference_epilogue(x.detach().numpy(), z.detach().numpy(), None)
    np.testing.assert_allclose(log_p.detach(), reference.log_prob, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(d_z, reference.d_z, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(d_x, reference.d_x, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("extreme", [1e3, 1e10, 1e30, -1e30])
def test_value_and_gradient_stay_finite_for_any_output_of_the_network(name, dtype, extreme):
    family = MIXTURES[name]
    base = draw_z(family, (), 0).to(dtype)
    for i in range(family.n_outputs):
        z = base.clone()
        z[i] = extreme
        z.requires_grad_()
        log_p = family.log_prob(torch.tensor(0.7, dtype=dtype), z)
        (gradient,) = torch.autograd.grad(log_p, z)
        assert torch.isfinite(log_p)
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("name", MIXTURES)
def test_scaled_mean_gradient_is_the_exact_one_times_sigma(name, seed):
    family: AbstractMixture = MIXTURES[name]
    K = family.n_components
    z = draw_z(family, (10,), seed).requires_grad_()
    x = torch.linspace(-2, 2, 10).double()
    exact, scaled = family.log_prob(x, z), family.log_prob(x, z, scale_mean_gradient=True)
    torch.testing.assert_close(exact, scaled)
    (g,) = torch.autograd.grad(exact.sum(), z)
    (h,) = torch.autograd.grad(scaled.sum(), z)
    sigma = z[:, 2 * K :].exp()
    torch.testing.assert_close(h[:, K : 2 * K], (g[:, K : 2 * K] * sigma).detach())
    torch.testing.assert_close(h[:, :K], g[:, :K])
    torch.testing.assert_close(h[:, 2 * K :], g[:, 2 * K :])


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("spread", ["quantile", "range"])
def test_starting_biases_cover_each_column(name, spread):
    family: AbstractMixture = MIXTURES[name]
    rows = torch.randn(500, 3, generator=Generator().manual_seed(0)).double()
    rows[:, 1] = 5 + 2 * rows[:, 1]
    b = family.starting_biases(rows, spread=spread)
    log_alpha, mu, _ = family.constrained(b)
    assert torch.allclose(log_alpha.exp().sum(-1), torch.ones(3).double())
    assert (mu >= rows.amin(0)[:, None]).all()
    assert (mu <= rows.amax(0)[:, None]).all()
    # The start must beat a standard normal by far on the column that is not standard.
    x = rows[:, 1]
    ours = family.log_prob(x, b[1].expand(500, -1)).mean()
    assert ours > scipy.stats.norm.logpdf(x.numpy()).mean() + 5


def test_bernoulli_starts_at_the_smoothed_share_of_ones():
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    b = Bernoulli().starting_biases(rows)
    np.testing.assert_allclose(torch.sigmoid(b[:, 0]), [3 / 5, 1 / 5], rtol=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("spread", ["quantile", "range"])
def test_a_row_of_weight_3_starts_as_three_rows_do(name, spread, seed):
    """And one of weight 0 as none: rows in any order, repeated values among them."""
    family = FAMILIES[name]
    rng = np.random.default_rng(seed)
    rows = torch.tensor(rng.normal(size=(40, 3)).round(1))
    rows = (rows > 0).double() if family.discrete else rows
    rows[7] = 1.0 if family.discrete else 50.0
    weights = torch.tensor(rng.integers(0, 4, size=40)).double()
    weights[7] = 0
    repeated = rows.repeat_interleave(weights.long(), 0)
    expected = family.starting_biases(repeated, spread=spread)
    torch.testing.assert_close(
        family.starting_biases(rows, weights=weights, spread=spread), expected
    )
    ones = family.starting_biases(rows, weights=torch.ones(40), spread=spread)
    torch.testing.assert_close(ones, family.starting_biases(rows, spread=spread))


def test_weighted_starts_are_those_of_closed_forms():
    """Two values with weights 1 and 3: quantiles, deviation and odds by hand."""
    rows, weights = torch.tensor([[0.0], [4.0]]).double(), torch.tensor([1.0, 3.0])
    b = GaussianMixture(4).starting_biases(rows, weights=weights)
    # Shares 1/8 | 3/8, 5/8, 7/8 of the summed weight 4, of which the first value has one quarter.
    np.testing.assert_allclose(b[0, 4:8], [0.0, 4.0, 4.0, 4.0])
    np.testing.assert_allclose(b[0, 8:], np.log(np.sqrt(4.0**2 * 0.25 * 0.75)))
    b = GaussianMixture(3).starting_biases(rows, weights=weights, spread="range")
    np.testing.assert_allclose(b[0, 3:6], [1.0, 2.0, 3.0])
    odds = Bernoulli().starting_biases(rows / 4, weights=weights)
    np.testing.assert_allclose(odds, np.log((3 + 1) / (1 + 1)))


@pytest.mark.parametrize("name", REGISTRY)
def test_every_family_says_what_it_is(name):
    family = make_family(name, 3)
    assert type(family) is REGISTRY[name]
    assert family.name == name
    like = torch.zeros(5000, dtype=torch.float64)
    noise = family.noise(like, Generator().manual_seed(0))
    assert (noise is None) == (not family.has_scale)
    z = draw_z(family, ())
    floor = torch.tensor(3.0).double()
    x = torch.tensor(1.0).double()
    # A floor changes the density of what has a scale, and of nothing else.
    assert (family.log_prob(x, z) != family.log_prob(x, z, floor)) == family.has_scale
    drawn = family.sample(z.expand(200, -1), generator=Generator().manual_seed(0))
    assert (drawn == drawn.round()).all() == family.discrete


@pytest.mark.parametrize("name", MIXTURES)
def test_noise_is_drawn_from_the_standard_component(name):
    family = MIXTURES[name]
    noise = family.noise(torch.zeros(5000, dtype=torch.float64), Generator().manual_seed(0))
    assert scipy.stats.kstest(noise.numpy(), SCIPY[type(family)].cdf).pvalue > 1e-4


def test_every_family_has_kernels_or_a_reason():
    """Of the tied networks on the CPU and on the GPU, and of the GPU's separate networks."""
    from rnade.backends.cpu import families as cpu
    from rnade.backends.gpu import launch, networks_launch

    for kernels, reasons in (
        (cpu.KERNELS, cpu.WITHOUT),
        (launch.FAMILIES, launch.WITHOUT),
        (networks_launch.FAMILIES, networks_launch.WITHOUT),
    ):
        for name in REGISTRY:
            assert (name in kernels) != bool(reasons.get(name)), name
        assert set(kernels) | set(reasons) == set(REGISTRY)


def test_spread_must_be_known():
    with pytest.raises(ValueError, match="spread must be 'quantile' or 'range'; got 'even'"):
        GaussianMixture(2).starting_biases(torch.zeros(3, 2), spread="even")


def test_conditional_agrees_with_its_family():
    family = GaussianMixture(2)
    z = draw_z(family, (5,))
    conditional = Conditional(family, z)
    x = torch.linspace(-1, 1, 5).double()
    torch.testing.assert_close(conditional.pdf(x), family.log_prob(x, z).exp())
    torch.testing.assert_close(conditional.cdf(x), family.cdf(x, z))
    assert conditional.sample(Generator().manual_seed(0)).shape == (5,)


@pytest.mark.parametrize(("given", "nearest"), [("gausian", "gaussian"), ("Laplacian", "laplace")])
def test_unknown_family_names_the_nearest(given, nearest):
    with pytest.raises(ValueError, match=f"Unknown family '{given}'.*Did you mean '{nearest}'"):
        make_family(given, 3)


@pytest.mark.parametrize("wrong", [0, -1, True])
def test_number_of_components_is_checked(wrong):
    with pytest.raises(ValueError, match=r"n_components must be a whole number >= 1; got"):
        GaussianMixture(wrong)


def test_bernoulli_says_which_value_is_not_binary():
    with pytest.raises(ValueError, match=r"only values 0 and 1 .* got 2 \(1 such values\)"):
        Bernoulli().check_support(torch.tensor([0.0, 1.0, 2.0]))


def test_families_compare_by_what_they_are():
    assert GaussianMixture(3) == make_family("gaussian", 3)
    assert GaussianMixture(3) != GaussianMixture(4)
    assert GaussianMixture(3) != LaplaceMixture(3)
    assert hash(GaussianMixture(3)) == hash(GaussianMixture(3))


@pytest.mark.parametrize("q", [0.001, 0.05, 0.5, 0.975])
@pytest.mark.parametrize("log_floor", [None, -1.0])
def test_quantiles_invert_the_distribution_function(q, log_floor):
    """One component against scipy; several through their own distribution function."""
    floor = None if log_floor is None else torch.tensor(log_floor, dtype=torch.float64)
    z = torch.tensor([[0.0, 3000.0, -2.0], [0.0, -0.5, 1.0]], dtype=torch.float64)
    sigma = np.sqrt(np.exp(2 * z[:, 2].numpy()) + (0 if floor is None else np.exp(-2)))
    for family, law in (
        (GaussianMixture(1), scipy.stats.norm),
        (LaplaceMixture(1), scipy.stats.laplace),
    ):
        found = Conditional(family, z, floor).quantile(q)
        np.testing.assert_allclose(found, law.ppf(q, z[:, 1].numpy(), sigma), rtol=1e-12)
    z = torch.randn(20, 12, generator=Generator().manual_seed(0), dtype=torch.float64)
    mixture = Conditional(GaussianMixture(4), z, floor)
    torch.testing.assert_close(mixture.cdf(mixture.quantile(q)), torch.full_like(z[..., 0], q))


def test_quantiles_of_a_binary_value_are_0_or_1():
    conditional = Conditional(Bernoulli(), torch.tensor([[0.0], [2.0], [-2.0]]))
    assert conditional.quantile(0.3).tolist() == [0, 1, 0]
    assert conditional.quantile(0.95).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match=r"q strictly between 0 and 1; got 1"):
        conditional.quantile(1.0)
