"""The oracle itself, against finite differences and closed forms."""

import numpy as np
import pytest
import scipy.stats
from scipy.special import expit

from rnade.backends import reference
from rnade.backends.reference import ReferenceParameters
from rnade.families import Bernoulli, GaussianMixture
from tests.conftest import FAMILIES

D, H, B = 4, 5, 3


def draw_parameters(family, seed=0, floor=None):
    rng = np.random.default_rng(seed)
    P = family.n_outputs
    return ReferenceParameters(
        W=rng.normal(size=(D, H)),
        c=rng.normal(size=H),
        rho=rng.uniform(0.5, 1.5, size=D),
        V=0.5 * rng.normal(size=(D, H, P)),
        b=rng.normal(size=(D, P)),
        log_floor=None if floor is None else np.full(D, np.log(floor)),
    )


def draw_rows(family, seed=0):
    x = np.random.default_rng(seed + 100).normal(size=(B, D))
    return (x > 0).astype(float) if isinstance(family, Bernoulli) else x


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("activation", ["relu", "sigmoid", "identity"])
@pytest.mark.parametrize("order", [None, [2, 0, 3, 1]])
@pytest.mark.parametrize("floor", [None, 0.4])
def test_every_gradient_agrees_with_finite_differences(name, activation, order, floor):
    family = FAMILIES[name]
    parameters, x = draw_parameters(family, floor=floor), draw_rows(family)
    exact = reference.gradients(x, parameters, family, activation, order)

    def total(**changed):
        rows = changed.pop("x", x)
        return reference.log_conditionals(
            rows, parameters._replace(**changed), family, activation, order
        ).sum()

    for field in ("W", "c", "rho", "V", "b", "x"):
        value = x if field == "x" else getattr(parameters, field)
        gradient = getattr(exact, field)
        rng = np.random.default_rng(7)
        # Along random directions: one number holds all entries to account.
        for _ in range(3):
            direction = rng.normal(size=value.shape)
            step = 1e-6
            difference = (
                total(**{field: value + step * direction})
                - total(**{field: value - step * direction})
            ) / (2 * step)
            assert difference == pytest.approx((gradient * direction).sum(), rel=1e-6, abs=1e-6)


def test_without_output_weights_it_is_a_product_of_mixtures():
    family = GaussianMixture(3)
    parameters = draw_parameters(family)
    parameters = parameters._replace(V=np.zeros_like(parameters.V))
    x = draw_rows(family)
    terms = reference.log_conditionals(x, parameters, family, "relu")
    for d in range(D):
        z_alpha, mu, z_sigma = np.split(parameters.b[d], 3)
        alpha = np.exp(z_alpha) / np.exp(z_alpha).sum()
        pdf = sum(
            a * scipy.stats.norm(m, s).pdf(x[:, d])
            for a, m, s in zip(alpha, mu, np.exp(z_sigma), strict=True)
        )
        np.testing.assert_allclose(terms[:, d], np.log(pdf), rtol=1e-12)


def test_one_linear_component_is_a_multivariate_gaussian():
    """With identity units, one component and constant scales the joint is Gaussian."""
    family = GaussianMixture(1)
    rng = np.random.default_rng(0)
    parameters = draw_parameters(family)
    V = parameters.V.copy()
    V[:, :, 0] = V[:, :, 2] = 0  # only the means depend on earlier dimensions
    parameters = parameters._replace(V=V)
    # Row by row: x_d = m_d + sum_{j<d} A[d, j] x_j + sigma_d e_d.
    A, m = np.zeros((D, D)), np.zeros(D)
    for d in range(D):
        readout = parameters.rho[d] * V[d, :, 1]
        m[d] = parameters.b[d, 1] + parameters.c @ readout
        A[d, :d] = parameters.W[:d] @ readout
    inverse = np.linalg.inv(np.eye(D) - A)
    sigma = np.diag(np.exp(parameters.b[:, 2]))
    x = rng.normal(size=(B, D))
    terms = reference.log_conditionals(x, parameters, family, "identity")
    joint = scipy.stats.multivariate_normal(inverse @ m, inverse @ sigma**2 @ inverse.T)
    np.testing.assert_allclose(terms.sum(1), joint.logpdf(x), rtol=1e-9)


def test_nade_follows_equation_1():
    family = Bernoulli()
    parameters = draw_parameters(family)._replace(rho=np.ones(D))
    W, c, V, b = parameters.W, parameters.c, parameters.V, parameters.b
    x = draw_rows(family)
    terms = reference.log_conditionals(x, parameters, family, "sigmoid")
    for d in range(D):
        h = expit(x[:, :d] @ W[:d] + c)
        p = expit(h @ V[d, :, 0] + b[d, 0])
        np.testing.assert_allclose(terms[:, d], np.log(np.where(x[:, d] == 1, p, 1 - p)))
