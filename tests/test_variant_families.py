"""Families of Table 1's variants: densities, gradients, and what computes them."""

import numpy as np
import pytest
import scipy.stats
import torch
from scipy.integrate import quad
from scipy.special import softmax
from torch import Generator

from rnade.families import GaussianMixture, LaplaceMixture
from rnade.nn import RNADEModule
from rnade.reproduce.table1.families import (
    VARIANT_FAMILIES,
    AbstractSoftplusMixture,
    any_family,
)

K = 3
OLDER = [n for n, f in VARIANT_FAMILIES.items() if issubclass(f, AbstractSoftplusMixture)]
SCIPY = {GaussianMixture: scipy.stats.norm, LaplaceMixture: scipy.stats.laplace}


def draw_z(seed, scale=0.3):
    generator = Generator().manual_seed(seed)
    return scale * torch.randn(3 * K, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", OLDER)
def test_density_is_a_mixture_with_the_scales_it_says(name, seed):
    family, z = VARIANT_FAMILIES[name](K), draw_z(seed)
    z_alpha, mu, z_sigma = np.split(z.numpy(), 3)
    alpha = softmax(10 * np.tanh(z_alpha) if "tanh" in name else z_alpha)
    sigma = np.log(1 + np.exp(10 * z_sigma)) / 10
    component = next(law for kind, law in SCIPY.items() if isinstance(family, kind))
    x = np.linspace(-3, 3, 61)
    density = (alpha * component(mu, sigma).pdf(x[:, None])).sum(1)
    ours = family.log_prob(torch.tensor(x), z.expand(len(x), -1))
    np.testing.assert_allclose(ours, np.log(density), rtol=1e-10)


@pytest.mark.parametrize("name", VARIANT_FAMILIES)
def test_density_integrates_to_one(name, seed):
    family, z = VARIANT_FAMILIES[name](K), draw_z(seed)
    mu, sigma = family.constrained(z).mu, family.constrained(z).log_sigma.exp()
    breaks = torch.cat([mu, mu - 8 * sigma, mu + 8 * sigma])
    mass, _ = quad(
        lambda x: family.log_prob(torch.tensor(x, dtype=torch.float64), z).exp().item(),
        -60,
        60,
        points=sorted(breaks.tolist()),
        limit=400,
    )
    assert mass == pytest.approx(1, abs=1e-8)


@pytest.mark.parametrize("name", VARIANT_FAMILIES)
def test_gradient_agrees_with_finite_differences_and_the_reference(name, seed):
    family = VARIANT_FAMILIES[name](K)
    x = torch.tensor([-1.3, 0.2, 0.9], dtype=torch.float64)
    z = torch.stack([draw_z(seed + i) for i in range(3)]).requires_grad_()
    torch.autograd.gradcheck(family.log_prob, (x, z))
    (gradient,) = torch.autograd.grad(family.log_prob(x, z).sum(), z)
    told = family.reference_epilogue(x.numpy(), z.detach().numpy(), None)
    np.testing.assert_allclose(told.log_prob, family.log_prob(x, z).detach(), rtol=1e-10)
    np.testing.assert_allclose(told.d_z, gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", [name for name in OLDER if name != "gaussian-written-out"])
def test_no_output_of_the_network_breaks_the_gradient(name, dtype):
    family = VARIANT_FAMILIES[name](2)
    for z_sigma in (-1e10, -100.0, -3.7, -3.0, 0.0, 3.7, 100.0):
        z = torch.tensor([0.1, -0.1, 0.0, 0.5, z_sigma, z_sigma], dtype=dtype, requires_grad=True)
        value = family.log_prob(torch.tensor(0.5, dtype=dtype), z)
        (gradient,) = torch.autograd.grad(value, z)
        assert value.isfinite()
        assert gradient.isfinite().all()


@pytest.mark.parametrize("z_sigma", [-1e10, -100.0, -3.71, -3.69, -2.5, 0.0, 3.7, 100.0])
@pytest.mark.parametrize("name", [name for name in OLDER if name != "gaussian-written-out"])
def test_the_reference_is_finite_where_torch_is(name, z_sigma):
    family = VARIANT_FAMILIES[name](2)
    x = torch.tensor([0.5], dtype=torch.float64)
    # The second mean is the value itself, however narrow its component.
    z = torch.tensor([[0.1, -0.1, 0.0, 0.5, z_sigma, z_sigma]], dtype=torch.float64)
    z.requires_grad_()
    value = family.log_prob(x, z)
    (gradient,) = torch.autograd.grad(value.sum(), z)
    told = family.reference_epilogue(x.numpy(), z.detach().numpy(), None)
    np.testing.assert_allclose(told.log_prob, value.detach(), rtol=1e-10)
    np.testing.assert_allclose(told.d_z, gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in OLDER if name != "gaussian-written-out"])
def test_scales_far_out_are_those_of_the_limits(name):
    """log(1 + exp(y)) is exp(y) far below 0 and y far above, each to the last digit."""
    z = torch.tensor([-1e10, -100.0, -3.71, 3.71, 100.0], dtype=torch.float64, requires_grad=True)
    log_scale = VARIANT_FAMILIES[name]._log_scale(z)
    (slope,) = torch.autograd.grad(log_scale.sum(), z)
    below, above = z.detach().numpy()[:3], z.detach().numpy()[3:]
    expected = [*(10 * below - np.log(10)), *np.log(above)]
    np.testing.assert_allclose(log_scale.detach(), expected, rtol=1e-14)
    np.testing.assert_allclose(slope, [10, 10, 10, *(1 / above)], rtol=1e-14)


@pytest.mark.parametrize(("z_sigma", "usable"), [(-1.5, True), (-1.7, False)])
def test_written_out_float32_loses_scales_below_its_last_digit(z_sigma, usable):
    """log(1 + exp(10 z)) is 3e-7 and 4e-8: half a digit of 1 in float32 is 6e-8."""
    family = any_family("gaussian-written-out", 1)
    z = torch.tensor([0.0, 0.0, z_sigma], requires_grad=True)
    (gradient,) = torch.autograd.grad(family.log_prob(torch.tensor(0.0), z), z)
    assert bool(gradient.isfinite().all()) == usable


def test_a_narrow_scale_moves_ten_times_as_fast_in_logs():
    z_sigma = torch.tensor([-2.0, -1.0, 3.0], dtype=torch.float64, requires_grad=True)
    z = torch.cat([torch.zeros(6, dtype=torch.float64), z_sigma])
    log_sigma = any_family("gaussian-softplus", 3).constrained(z).log_sigma
    (slope,) = torch.autograd.grad(log_sigma.sum(), z_sigma)
    # Where sigma is large it is z itself.
    np.testing.assert_allclose(slope, [10, 10, 1 / 3], rtol=1e-4)


@pytest.mark.parametrize("name", OLDER)
def test_scales_start_near_the_spacing_of_the_means(name):
    rows = torch.linspace(-2, 2, 50, dtype=torch.float64)[:, None]
    family = any_family(name, K)
    start = family.starting_biases(rows, spread="range")
    spacing = 4 / (K + 1)
    expected = family._starting_scale(torch.tensor(spacing)).item()
    assert start[0, 2 * K :].tolist() == pytest.approx([expected] * K)
    sigma = family.constrained(start[0]).log_sigma.exp()
    np.testing.assert_allclose(sigma, expected, rtol=1e-3)


@pytest.mark.parametrize("name", VARIANT_FAMILIES)
def test_plain_torch_computes_models_and_says_why(name):
    model = RNADEModule(3, 4, any_family(name, K), generator=Generator().manual_seed(0))
    choice = model.backend_choice()
    assert choice.name == "vectorised"
    assert f"no CPU kernel for the family {name!r}" in choice.reason
    rows = torch.randn(50, 3, generator=Generator().manual_seed(1))
    model.start_from(rows, spread="range")
    assert model.log_prob(rows).isfinite().all()


def test_newton_multiplies_the_gradient_of_the_means_by_the_variance(seed):
    family, z = any_family("gaussian-newton", K), draw_z(seed).requires_grad_()
    x = torch.tensor(0.4, dtype=torch.float64)
    exact, scaled = (
        torch.autograd.grad(family.log_prob(x, z, scale_mean_gradient=on), z)[0]
        for on in (False, True)
    )
    variance = torch.exp(2 * z[2 * K :])
    np.testing.assert_allclose(scaled[K : 2 * K], (exact[K : 2 * K] * variance).detach())
    np.testing.assert_allclose(scaled[:K], exact[:K])
    np.testing.assert_allclose(scaled[2 * K :], exact[2 * K :])
