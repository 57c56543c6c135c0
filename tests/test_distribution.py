"""Densities as torch.distributions: shapes, conditionals and draws against other ways to them."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch.distributions import Distribution, Independent, Normal, kl_divergence

from rnade import RNADE, Gaussian, MixtureOfColumns, MixtureOfGaussians
from rnade.nn import GaussianModule, RNADEModule
from tests.conftest import BINARY_MODULES, CHAINS, MODULES, REAL_MODULES, make_module, make_rows

D = 4
MIXTURES = ["gaussian", "mog", "mfa", "mfa-full"]
# Draws of torch's distributions go by its global random state, which is theirs to change.
pytestmark = pytest.mark.changes_global_state


@pytest.mark.parametrize("name", MODULES)
def test_log_prob_is_that_of_the_module(name):
    module = make_module(name, D)
    x = make_rows(module, 6)
    distribution = module.distribution()
    assert isinstance(distribution, Distribution)
    assert distribution.event_shape == (D,)
    assert distribution.batch_shape == ()
    expected = module.log_prob(x)
    torch.testing.assert_close(distribution.log_prob(x), expected)
    torch.testing.assert_close(distribution.log_prob(x.reshape(2, 3, D)), expected.reshape(2, 3))
    torch.testing.assert_close(distribution.log_prob(x[0]), expected[0])


@pytest.mark.parametrize("name", MODULES)
def test_draws_repeat_by_the_global_seed_and_have_any_shape(name):
    distribution = make_module(name, D).distribution()
    torch.manual_seed(3)
    first, second = distribution.sample((5, 2)), distribution.sample((5, 2))
    assert first.shape == (5, 2, D)
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(distribution.sample((5, 2)), first)
    assert distribution.sample().shape == (D,)
    if name not in MIXTURES:  # torch's own, which refuse
        assert distribution.sample((0,)).shape == (0, D)


@pytest.mark.parametrize("name", BINARY_MODULES)
def test_bits_are_checked(name):
    distribution = make_module(name, D).distribution()
    with pytest.raises(ValueError, match="support"):
        distribution.log_prob(torch.full((D,), 0.5, dtype=torch.float64))


@pytest.mark.parametrize("name", REAL_MODULES)
def test_nan_is_refused(name):
    distribution = make_module(name, D).distribution()
    with pytest.raises(ValueError, match="support"):
        distribution.log_prob(torch.full((D,), torch.nan, dtype=torch.float64))


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("k", [1, D - 1])
def test_given_and_the_rest_make_the_whole(name, k):
    """p(rest | first) p(first) = p(all); p(first) is that of rows with nothing else observed."""
    module = make_module(name, D)
    x = make_rows(module, 7)
    first = module.order[0, :k].tolist()
    rest = [d for d in range(D) if d not in first]
    distribution = module.distribution({d: x[:, d] for d in first})
    assert distribution.batch_shape == (7,)
    assert distribution.event_shape == (D - k,)
    seen = torch.zeros(7, D, dtype=torch.bool)
    seen[:, first] = True
    found = distribution.log_prob(x[:, rest]) + module.log_prob(x, seen=seen)
    torch.testing.assert_close(found, module.log_prob(x))


@pytest.mark.parametrize("name", ["rnade-mog", "rnade-random-order", "fvbn", "mog", "nade"])
def test_draws_given_the_first_follow_the_conditional(name, seed):
    """The last dimension given all others: draws against its own distribution function."""
    module = make_module(name, 3)
    x = make_rows(module, 1)[0]
    *first, last = module.order[0].tolist()
    torch.manual_seed(seed)
    draws = module.distribution({d: x[d].item() for d in first}).sample((2000,))
    assert draws.shape == (2000, 1)
    conditional = module.conditional(last, x[None, first])
    if name == "nade":
        share = conditional.pdf(torch.ones(1, dtype=torch.float64)).item()
        assert abs(draws.mean().item() - share) < 5 * (share * (1 - share) / 2000) ** 0.5
        return

    def cdf(values):
        given = torch.as_tensor(np.atleast_1d(values))[:, None]
        return conditional.cdf(given)[:, 0].detach().numpy()

    assert stats.kstest(draws[:, 0].numpy(), cdf).pvalue > 1e-3


def test_mixtures_are_conditioned_on_any_dimension():
    """Against the textbook's Gaussian."""
    module = make_module("gaussian", 3)
    mean, C = module.mu[0, 0].detach().numpy(), module.covariances()[0, 0].detach().numpy()
    distribution = module.distribution({1: 0.7})
    at = C[[0, 2], 1] / C[1, 1]
    expected = stats.multivariate_normal(
        mean[[0, 2]] + at * (0.7 - mean[1]), C[np.ix_([0, 2], [0, 2])] - np.outer(at, C[1, [0, 2]])
    )
    x = np.array([0.3, -1.2])
    assert distribution.log_prob(torch.tensor(x)).item() == pytest.approx(expected.logpdf(x))


def test_a_bank_is_a_batch():
    bank = RNADEModule(3, 5, n_models=2, generator=torch.Generator().manual_seed(0)).double()
    distribution = bank.distribution()
    assert distribution.batch_shape == (2,)
    torch.manual_seed(0)
    x = distribution.sample((6,))
    assert x.shape == (6, 2, 3)
    expected = torch.stack([bank[m].log_prob(x[:, m]) for m in range(2)], 1)
    torch.testing.assert_close(distribution.log_prob(x), expected)
    with pytest.raises(ValueError, match="given is for one model; this is a bank of 2"):
        bank.distribution({0: 1.0})
    with pytest.raises(ValueError, match="given is for one model"):
        GaussianModule(3, n_models=2).distribution({0: 1.0})


def test_it_works_with_the_rest_of_torch():
    """Expanded as Pyro's plates do; log densities that differentiate; Monte Carlo divergence."""
    module = make_module("rnade-mog", 2)
    distribution = module.distribution()
    wide = distribution.expand((3, 4))
    x = make_rows(module, 1)[0].requires_grad_()
    assert wide.sample((5,)).shape == (5, 3, 4, 2)
    assert wide.log_prob(x).shape == (3, 4)
    (gradient,) = torch.autograd.grad(distribution.log_prob(x), x)
    step = torch.tensor([1e-5, 0.0], dtype=torch.float64)
    slope = (distribution.log_prob(x + step) - distribution.log_prob(x - step)) / 2e-5
    assert gradient[0].item() == pytest.approx(slope.item(), rel=1e-5)
    given = module.distribution({0: torch.zeros(4)}).expand((3, 4))
    assert given.log_prob(torch.zeros(1, dtype=torch.float64)).shape == (3, 4)
    with pytest.raises(NotImplementedError):
        kl_divergence(distribution, Independent(Normal(torch.zeros(2), torch.ones(2)), 1))


def test_what_cannot_be_given_is_said():
    module = RNADEModule(3, 4, order=[2, 0, 1])
    with pytest.raises(ValueError, match=r"the first of them alone, \[2\]; got \[0\]"):
        module.distribution({0: 1.0})
    with pytest.raises(ValueError, match="0 to 2; got 3"):
        module.distribution({3: 1.0})
    with pytest.raises(ValueError, match="All dimensions are given"):
        module.distribution({0: 1.0, 1: 1.0, 2: 1.0})
    with pytest.raises(ValueError, match="finite values of dimension 2"):
        module.distribution({2: torch.nan})
    with pytest.raises(ValueError, match="averages models along different orders"):
        make_module("ensemble", 3).distribution({0: 1.0})


# -------------------------------------------------------------------- fitted models


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    n = 300
    trade = rng.integers(0, 2, n)
    height = rng.normal(170, 9, n)
    return pd.DataFrame(
        {
            "trade": np.array(["baker", "smith"])[trade],
            "height": height,
            "weight": 0.9 * height - 80 + 6 * trade + rng.normal(0, 5, n),
        }
    )


@pytest.fixture(scope="module")
def fitted(people):
    return RNADE(n_hidden=16, epochs=3, random_state=0).fit(people)


def test_a_mixed_table_given_others(fitted, people):
    whole = fitted.distribution()
    values = torch.as_tensor(fitted.schema_.encode(people[:4])[0])
    np.testing.assert_allclose(whole.log_prob(values), fitted.score_samples(people[:4]))
    given = fitted.distribution({"trade": "smith", "weight": 80.0})
    assert given.event_shape == (1,)
    x = np.array([160.0, 175.0])
    expected = fitted.conditional("height", {"trade": "smith", "weight": 80.0})
    found = given.log_prob(torch.tensor(x)[:, None]).numpy()
    np.testing.assert_allclose(found, [expected.log_pdf([v])[0] for v in x], rtol=1e-9)
    torch.manual_seed(0)
    draws = given.sample((400,))[:, 0].numpy()
    assert abs(draws.mean() - expected.mean()[0]) < 5 * draws.std() / 20
    with pytest.raises(ValueError, match="takes values, not ranges"):
        fitted.distribution({"weight": (70, 80)})


def test_missing_cells_count_nothing(fitted, people):
    values = torch.as_tensor(fitted.schema_.encode(people[:4])[0]).clone()
    values[:, 1] = torch.nan
    found = fitted.distribution().log_prob(values).numpy()
    np.testing.assert_allclose(found, fitted.score_samples(people[:4].assign(height=np.nan)))


def test_latent_classes_given_others(people):
    model = MixtureOfColumns(n_components=3, random_state=0).fit(people)
    given = model.distribution({"trade": "baker"})
    values = torch.tensor([[165.0, 70.0], [180.0, 75.0]], dtype=torch.float64)
    both = pd.DataFrame(values.numpy(), columns=["height", "weight"]).assign(trade="baker")
    alone = pd.DataFrame({"trade": ["baker"], "height": np.nan, "weight": np.nan})
    expected = model.score_samples(both[people.columns]) - model.score_samples(alone)
    np.testing.assert_allclose(given.log_prob(values).numpy(), expected)
    torch.manual_seed(0)
    assert given.sample((50,)).shape == (50, 2)


@pytest.mark.parametrize(
    "model",
    [
        RNADE(ensemble=None, n_hidden=8, epochs=3, random_state=0),
        Gaussian(),
        MixtureOfGaussians(2, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_real_columns_are_in_the_data_s_units(model, people):
    X = people[["height", "weight"]]
    model.fit(X)
    values = torch.tensor(X[:5].to_numpy())
    found = model.distribution().log_prob(values).detach().numpy()
    np.testing.assert_allclose(found, model.score_samples(X[:5]))
    given = model.distribution({"height": 170.0})
    x = torch.tensor([[72.0], [80.0]], dtype=torch.float64)
    rows = torch.cat([torch.full_like(x, 170.0), x], 1)
    # Up to what does not depend on the weight.
    joint = model.distribution().log_prob(rows).detach()
    own = given.log_prob(x).detach()
    assert (own - joint)[0].item() == pytest.approx((own - joint)[1].item())
    grid = torch.linspace(0, 200, 4001, dtype=torch.float64)
    total = torch.trapezoid(given.log_prob(grid[:, None]).detach().exp(), grid)
    assert total.item() == pytest.approx(1, abs=1e-4)
    with pytest.raises(ValueError, match="no column 'heigth'. Did you mean"):
        model.distribution({"heigth": 170.0})
