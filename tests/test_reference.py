"""The oracle itself, against finite differences and closed forms."""

import numpy as np
import pytest
import scipy.stats
import torch
from scipy.special import expit

from rnade.backends import reference
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec
from rnade.batch import Batch
from rnade.families import Bernoulli, GaussianMixture
from tests.conftest import FAMILIES

M, D, H, B = 2, 4, 5, 3


def draw_parameters(family, seed=0, floor=None):
    rng = np.random.default_rng(seed)
    P = family.n_outputs
    return Parameters(
        W=torch.tensor(rng.normal(size=(M, D, H))),
        c=torch.tensor(rng.normal(size=(M, H))),
        rho=torch.tensor(rng.uniform(0.5, 1.5, size=(M, D))),
        V=torch.tensor(0.5 * rng.normal(size=(M, D, H, P))),
        b=torch.tensor(rng.normal(size=(M, D, P))),
        log_floor=None if floor is None else torch.full((M, D), np.log(floor)).double(),
    )


def draw_rows(family, seed=0):
    x = np.random.default_rng(seed + 100).normal(size=(M, B, D))
    return torch.tensor((x > 0).astype(float) if family.discrete else x)


ORDERS = [[2, 0, 3, 1], [3, 1, 2, 0]]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("activation", ["relu", "sigmoid", "identity"])
@pytest.mark.parametrize("order", [None, ORDERS])
@pytest.mark.parametrize("floor", [None, 0.4])
@pytest.mark.parametrize("gaps", [False, True])
def test_every_gradient_agrees_with_finite_differences(name, activation, order, floor, gaps):
    """Also of rows with weights and with cells that are not seen."""
    family = FAMILIES[name]
    parameters, spec = draw_parameters(family, floor=floor), Spec(family, activation)
    rng = np.random.default_rng(7)
    batch = Batch(
        draw_rows(family),
        torch.tensor(rng.uniform(size=(M, B))) if gaps else None,
        torch.tensor(rng.uniform(size=(M, B, D)) < 0.6) if gaps else None,
        None if order is None else torch.tensor(order),
    )
    exact = reference.gradients(batch, parameters, spec)

    def total(**changed):
        rows = batch._replace(x=changed.pop("x", batch.x))
        terms = reference.log_conditionals(rows, parameters._replace(**changed), spec)
        return (terms.sum(-1) * (1 if batch.weights is None else batch.weights.numpy())).sum()

    for field in ("W", "c", "rho", "V", "b", "x"):
        value = batch.x if field == "x" else getattr(parameters, field)
        gradient = getattr(exact, field)
        # Along random directions: one number holds all entries to account.
        for _ in range(3):
            direction = torch.tensor(rng.normal(size=value.shape))
            step = 1e-6
            difference = (
                total(**{field: value + step * direction})
                - total(**{field: value - step * direction})
            ) / (2 * step)
            expected = (gradient * direction.numpy()).sum()
            assert difference == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_cells_that_are_not_seen_leave_the_marginal():
    """Exact where they come last in the order: what comes before does not look at them."""
    family = GaussianMixture(2)
    parameters, spec = draw_parameters(family), Spec(family, "sigmoid")
    order = torch.tensor(ORDERS)
    x, seen = draw_rows(family), torch.ones(M, B, D, dtype=torch.bool)
    whole = reference.log_conditionals(Batch(x, order=order), parameters, spec)
    for m in range(M):
        seen[m, :, order[m, 2:]] = False
        x[m, :, order[m, 2:]] = torch.nan
    terms = reference.log_conditionals(Batch(x, None, seen, order), parameters, spec)
    np.testing.assert_allclose(terms, np.where(seen, whole, 0))


def test_without_output_weights_it_is_a_product_of_mixtures():
    family = GaussianMixture(3)
    parameters = draw_parameters(family)
    parameters.V.zero_()
    x = draw_rows(family)
    terms = reference.log_conditionals(Batch(x), parameters, Spec(family))
    for m in range(M):
        for d in range(D):
            z_alpha, mu, z_sigma = np.split(parameters.b[m, d].numpy(), 3)
            alpha = np.exp(z_alpha) / np.exp(z_alpha).sum()
            pdf = sum(
                a * scipy.stats.norm(mean, s).pdf(x[m, :, d])
                for a, mean, s in zip(alpha, mu, np.exp(z_sigma), strict=True)
            )
            np.testing.assert_allclose(terms[m, :, d], np.log(pdf), rtol=1e-12)


@pytest.mark.parametrize("n_seen", [D, 2])
def test_one_linear_component_is_a_multivariate_gaussian(n_seen):
    """With identity units, one component and constant scales the joint is Gaussian.

    The first dimensions alone, the others not seen, have its marginal.
    """
    family = GaussianMixture(1)
    parameters = draw_parameters(family)
    parameters.V[..., [0, 2]] = 0  # only the means depend on earlier dimensions
    x, seen = draw_rows(family), torch.zeros(M, B, D, dtype=torch.bool)
    seen[..., :n_seen] = True
    terms = reference.log_conditionals(Batch(x, seen=seen), parameters, Spec(family, "identity"))
    for model in range(M):
        W, c, rho, V, b = (t[model].numpy() for t in parameters.trained)
        # Row by row: x_d = m_d + sum_{j<d} A[d, j] x_j + sigma_d e_d.
        A, m = np.zeros((D, D)), np.zeros(D)
        for d in range(D):
            readout = rho[d] * V[d, :, 1]
            m[d] = b[d, 1] + c @ readout
            A[d, :d] = W[:d] @ readout
        inverse = np.linalg.inv(np.eye(D) - A)
        sigma = np.diag(np.exp(b[:, 2]))
        mean, covariance = inverse @ m, inverse @ sigma**2 @ inverse.T
        first = slice(n_seen)
        joint = scipy.stats.multivariate_normal(mean[first], covariance[first, first])
        expected = joint.logpdf(x[model, :, first].numpy())
        np.testing.assert_allclose(terms[model].sum(1), expected, rtol=1e-9)


def test_nade_follows_equation_1():
    family = Bernoulli()
    parameters = draw_parameters(family)._replace(rho=torch.ones(M, D).double())
    x = draw_rows(family)
    terms = reference.log_conditionals(Batch(x), parameters, Spec(family, "sigmoid"))
    for m in range(M):
        W, c, _, V, b = (t[m].numpy() for t in parameters.trained)
        for d in range(D):
            h = expit(x[m, :, :d].numpy() @ W[:d] + c)
            p = expit(h @ V[d, :, 0] + b[d, 0])
            right = np.log(np.where(x[m, :, d] == 1, p, 1 - p))
            np.testing.assert_allclose(terms[m, :, d], right)
