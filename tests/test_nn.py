"""Modules: every property on every entry of the table of constructors."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Generator

from rnade.families import GaussianMixture
from rnade.nn import RNADEModule
from rnade.nn.bank import AbstractBank
from tests.conftest import (
    BINARY_MODULES,
    CHAINS,
    MODULES,
    REAL_MODULES,
    TIED_MODULES,
    make_module,
    make_rows,
)

REAL_CHAINS = [name for name in REAL_MODULES if name in CHAINS]


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("D", [1, 4])
def test_conditionals_sum_to_log_prob(name, D):
    module = make_module(name, D)
    x = make_rows(module, 5)
    terms = module.log_conditionals(x)
    assert terms.shape == (5, D)
    torch.testing.assert_close(terms.sum(1), module.log_prob(x))


@pytest.mark.parametrize("name", CHAINS)
def test_output_d_ignores_inputs_d_and_later(name):
    """For all pairs of dimensions, in the model's own order, by gradients."""
    D = 5
    module = make_module(name, D)
    x = make_rows(module, 6).requires_grad_()
    rank = module.order[0].argsort()
    for d in range(D):
        # z_d rather than log p(x_d): the latter depends on x_d itself.
        before = [j for j in range(D) if rank[j] < rank[d]]
        ordered = sorted(before, key=lambda j: int(rank[j]))
        z = module.conditional(d, x[:, ordered]).z
        if before:
            (g,) = torch.autograd.grad(z.square().sum(), x)
            for j in range(D):
                assert (g[:, j].abs().sum() > 0) == (j in before), (d, j)
        (g,) = torch.autograd.grad(module.log_conditionals(x)[:, d].sum(), x)
        later = [j for j in range(D) if rank[j] > rank[d]]
        # 0, but for the rounding of a mixture's differences of logarithms.
        torch.testing.assert_close(g[:, later], torch.zeros_like(g[:, later]), atol=1e-14, rtol=0)


@pytest.mark.parametrize("name", CHAINS)
def test_conditional_objects_give_the_same_terms(name):
    module = make_module(name, 4)
    x = make_rows(module, 5)
    terms = module.log_conditionals(x)
    for position, d in enumerate(module.order[0].tolist()):
        before = module.order[0, :position]
        conditional = module.conditional(d, x[:, before])
        torch.testing.assert_close(conditional.log_prob(x[:, d]), terms[:, d])


@pytest.mark.parametrize("name", TIED_MODULES)
def test_conditionals_one_after_the_other_are_those_of_each_dimension(name):
    module = make_module(name, 4)
    module.set_floor(torch.full((4,), 0.1))
    x = make_rows(module, 5)
    terms = module.log_conditionals(x)
    met = []
    for d, conditional in module.conditionals(x):
        torch.testing.assert_close(conditional.log_prob(x[:, d]), terms[:, d])
        alone = module.conditional(d, x[:, met])
        torch.testing.assert_close(conditional.cdf(x[:, d]), alone.cdf(x[:, d]))
        torch.testing.assert_close(conditional.quantile(0.3), alone.quantile(0.3))
        met.append(d)
    assert met == module.order[0].tolist()


@pytest.mark.parametrize("name", TIED_MODULES)
def test_conditionals_do_not_depend_on_how_many_are_computed_at_a_time(name, monkeypatch):
    module = make_module(name, 4)
    x = make_rows(module, 5)
    ((columns, block),) = module.conditional_blocks(x)
    assert columns == module.order[0].tolist()
    monkeypatch.setattr("rnade.nn.autoregressive._ELEMENTS", 1)
    assert [d for d, _ in module.conditional_blocks(x)] == [[d] for d in columns]
    for at, (d, conditional) in enumerate(module.conditionals(x)):
        torch.testing.assert_close(conditional.cdf(x[:, d]), block.cdf(x[:, columns])[:, at])


def test_conditionals_are_of_one_model():
    with pytest.raises(ValueError, match="bank of 2"):
        next(RNADEModule(3, 2, n_models=2).conditionals(torch.zeros(1, 3)))


@pytest.mark.parametrize("name", REAL_MODULES)
@pytest.mark.parametrize("D", [1, 2, 3])
def test_density_integrates_to_one(name, D):
    module = make_module(name, D)
    with torch.no_grad():
        for name, p in module.named_parameters():  # keeps the mass inside the grid
            factor = {"V": 0.3, "W": 0.3, "b": 0.5}.get(name.rpartition(".")[2], 1.0)
            p.mul_(factor)
        n = {1: 20_001, 2: 601, 3: 121}[D]
        axis = torch.linspace(-14, 14, n, dtype=torch.float64)
        grid = torch.cartesian_prod(*[axis] * D).reshape(-1, D)
        mass = module.log_prob(grid).exp().sum() * (axis[1] - axis[0]) ** D
    assert mass.item() == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("name", BINARY_MODULES)
@pytest.mark.parametrize("D", [1, 5])
def test_probabilities_sum_to_one(name, D):
    module = make_module(name, D)
    rows = torch.tensor(list(itertools.product([0.0, 1.0], repeat=D)), dtype=torch.float64)
    assert module.log_prob(rows).exp().sum().item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", REAL_CHAINS)
def test_samples_follow_the_density(name, seed):
    """Kolmogorov-Smirnov on each conditional's probability integral transform."""
    D, n = 4, 3000
    module = make_module(name, D, seed)
    with torch.no_grad():
        x = module.sample(n, Generator().manual_seed(seed))
        for position, d in enumerate(module.order[0].tolist()):
            u = module.conditional(d, x[:, module.order[0, :position]]).cdf(x[:, d])
            assert scipy.stats.kstest(u.numpy(), "uniform").pvalue > 1e-4


@pytest.mark.parametrize("name", REAL_MODULES)
def test_samples_fall_into_cells_as_often_as_the_density_says(name, seed):
    """A chi-squared test over squares of the plane, of models that have no conditionals too."""
    n, edges = 4000, np.linspace(-3, 3, 7)
    module = make_module(name, 2, seed)
    axis = torch.linspace(-3, 3, 601, dtype=torch.float64)
    middle = (axis[1:] + axis[:-1]) / 2
    with torch.no_grad():
        density = module.log_prob(torch.cartesian_prod(middle, middle)).exp().view(600, 600)
        x = module.sample(n, Generator().manual_seed(seed)).numpy()
    inside = density.view(6, 100, 6, 100).sum((1, 3)).numpy().ravel() * 0.01**2
    counts = np.histogram2d(x[:, 0], x[:, 1], bins=(edges, edges))[0].ravel()
    expected = n * np.append(inside, 1 - inside.sum())
    counts = np.append(counts, n - counts.sum())
    few = expected < 8  # together they are one cell
    expected = np.append(expected[~few], expected[few].sum())
    counts = np.append(counts[~few], counts[few].sum())
    assert scipy.stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue > 1e-4


@pytest.mark.parametrize("name", BINARY_MODULES)
def test_binary_samples_follow_the_probabilities(name, seed):
    D, n = 3, 6000
    module = make_module(name, D, seed)
    rows = torch.tensor(list(itertools.product([0.0, 1.0], repeat=D)), dtype=torch.float64)
    with torch.no_grad():
        x = module.sample(n, Generator().manual_seed(seed))
        expected = n * module.log_prob(rows).exp().numpy()
    counts = np.bincount((x @ torch.tensor([4.0, 2.0, 1.0]).double()).long(), minlength=8)
    assert scipy.stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-4


def test_samples_and_density_agree_by_energy_distance(seed):
    """Draws of a model with V = 0 against draws from the same product of mixtures by NumPy."""
    module = RNADEModule(3, 4, GaussianMixture(2), generator=Generator().manual_seed(seed))
    with torch.no_grad():
        module.V.zero_()
        module.b.copy_(torch.randn(1, 3, 6, generator=Generator().manual_seed(seed)))
    n = 400
    x = module.sample(n, Generator().manual_seed(seed)).numpy()
    rng = np.random.default_rng(seed)
    alpha, mu, sigma = np.split(module.b[0].detach().numpy(), 3, axis=1)
    alpha = np.exp(alpha) / np.exp(alpha).sum(1, keepdims=True)
    y = np.empty((n, 3))
    for d in range(3):
        k = rng.choice(2, size=n, p=alpha[d] / alpha[d].sum())
        y[:, d] = rng.normal(mu[d, k], np.exp(sigma[d, k]))

    def energy(a, b):
        def mean(p, q):
            return np.linalg.norm(p[:, None] - q[None], axis=-1).mean()

        return 2 * mean(a, b) - mean(a, a) - mean(b, b)

    both = np.concatenate([x, y])
    null = []
    for _ in range(60):
        shuffled = rng.permutation(both)
        null.append(energy(shuffled[:n], shuffled[n:]))
    assert energy(x, y) <= np.max(null) * 1.5


@pytest.mark.parametrize("name", REAL_CHAINS)
def test_constrained_samples_stay_in_range_and_follow_the_truncated_conditionals(name, seed):
    D, n = 3, 2000
    module = make_module(name, D, seed)
    low = torch.tensor([-0.5, -torch.inf, 1.0]).double()
    high = torch.tensor([0.5, 0.0, torch.inf]).double()
    with torch.no_grad():
        x = module.sample(n, Generator().manual_seed(seed), low=low, high=high)
        assert (x >= low).all()
        assert (x <= high).all()
        for position, d in enumerate(module.order[0].tolist()):
            conditional = module.conditional(d, x[:, module.order[0, :position]])
            at = [conditional.cdf(t.expand(n)) for t in (low[d], high[d])]
            inside = at[1] - at[0]
            usable = inside > 1e-9  # elsewhere the difference of two cdfs has no digits left
            u = ((conditional.cdf(x[:, d]) - at[0]) / inside)[usable]
            if usable.sum() > 100:
                assert scipy.stats.kstest(u.numpy(), "uniform").pvalue > 1e-4


@pytest.mark.parametrize("name", MODULES)
def test_same_seed_same_numbers(name):
    module = make_module(name, 3)
    a, b = (module.sample(5, Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(a, b)
    assert not torch.equal(a, module.sample(5, Generator().manual_seed(4)))
    first, second = make_module(name, 3, seed=8), make_module(name, 3, seed=8)
    for p, q in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        assert torch.equal(p, q)


def test_no_seed_gives_fresh_numbers():
    module = make_module("rnade-mog", 3)
    assert not torch.equal(module.sample(5), module.sample(5))


@pytest.mark.parametrize("name", MODULES)
def test_chunks_change_nothing(name, monkeypatch):
    module = make_module(name, 4)
    x = make_rows(module, 23)
    with torch.no_grad():
        whole = module.log_prob(x)
        monkeypatch.setattr("rnade.chunks.ELEMENTS", 40)
        monkeypatch.setattr("rnade.nn.mixture.AbstractGaussianMixture.chunk_rows", lambda m: 7)
        in_chunks = module.log_prob(x)
        drawn = module.sample(9, Generator().manual_seed(0))
    torch.testing.assert_close(whole, in_chunks)
    assert drawn.shape == (9, 4)


@pytest.mark.parametrize("name", CHAINS)
def test_bank_of_models_is_its_members(name):
    """Rows given once serve every member; rows given per member stay with theirs."""
    one, other = make_module(name, 3), make_module(name, 3, seed=11)
    bank = AbstractBank.stack([one, other])
    x = make_rows(one, 4)
    expected = torch.stack([one.log_prob(x), other.log_prob(x)])
    torch.testing.assert_close(bank.log_prob(x), expected)
    torch.testing.assert_close(bank.log_prob(torch.stack([x, x])), expected)
    torch.testing.assert_close(bank.log_conditionals(x).sum(-1), expected)
    assert bank.sample(6, Generator().manual_seed(0)).shape == (2, 6, 3)
    for member, alone in zip((0, 1), (one, other), strict=True):
        torch.testing.assert_close(bank[member].log_prob(x), alone.log_prob(x))


def test_nade_with_tied_weights_uses_w_twice():
    module = make_module("nade-tied", 4)
    assert torch.equal(module.tied_parameters().V[..., 0], module.W)
    assert "V" not in dict(module.named_parameters())


def test_fvsbn_is_logistic_regression():
    module = make_module("fvsbn", 4)
    x = make_rows(module, 6)
    terms = module.log_conditionals(x)
    for d in range(4):
        logit = x[:, :d] @ module.V[0, d, :d, 0] + module.b[0, d, 0]
        expected = torch.distributions.Bernoulli(logits=logit).log_prob(x[:, d])
        torch.testing.assert_close(terms[:, d], expected)


def test_floor_bounds_every_component():
    module = make_module("rnade-mog", 2)
    module.set_floor(torch.tensor([0.5, 0.0]))
    conditional = module.conditional(0, torch.zeros(3, 0).double())
    _, _, log_sigma = module.family.constrained(conditional.z - 50, conditional.log_floor)
    torch.testing.assert_close(log_sigma.exp(), torch.full_like(log_sigma, 0.5))
    assert module.tied_parameters().log_floor[0, 1] == -torch.inf


def test_state_and_copies_carry_everything():
    module = make_module("rnade-random-order", 4)
    module.set_floor(torch.full((4,), 0.2))
    x = make_rows(module, 3)
    expected = module.log_prob(x)
    fresh = RNADEModule(4, 7, GaussianMixture(2)).double()
    fresh.log_prob(x)  # what it remembers of its order must not outlive the new state
    fresh.load_state_dict(module.state_dict())
    for other in (fresh, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        torch.testing.assert_close(other.log_prob(x), expected)


def test_start_from_gives_the_columns_means():
    rows = torch.randn(300, 2, generator=Generator().manual_seed(0)) + torch.tensor([3.0, -2.0])
    module = RNADEModule(2, 5, GaussianMixture(4), generator=Generator().manual_seed(0))
    module.start_from(rows)
    mean = module.sample(4000, Generator().manual_seed(0)).mean(0)
    torch.testing.assert_close(mean, rows.mean(0), atol=0.15, rtol=0)


@pytest.mark.parametrize("name", ["rnade-mog", "nade", "fvbn"])
def test_start_from_counts_rows_by_their_weights(name):
    module, again = make_module(name, 3), make_module(name, 3)
    rows = make_rows(module, 30)
    weights = torch.arange(30) % 3
    module.start_from(rows, weights=weights.float())
    again.start_from(rows.repeat_interleave(weights, 0))
    for p, q in zip(module.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_log_prob_of_a_module_is_summed_by_the_backend(monkeypatch):
    """On a GPU the sum is then made on chip: what is timed there is what users get."""
    module = make_module("rnade-mog", 3)
    asked = []
    monkeypatch.setattr(
        "rnade.backends.cpu.api.log_prob", lambda *a: asked.append(a) or a[0].x[..., 0]
    )
    x = make_rows(module, 4)
    torch.testing.assert_close(module.log_prob(x), x[:, 0])
    assert len(asked) == 1


def test_backend_choice_is_given_with_its_reason():
    choice = make_module("rnade-mog", 3).backend_choice()
    assert choice.name in ("vectorised", "cpu")
    assert choice.reason


BAD_CALLS = {
    "columns": (
        lambda m: m.log_prob(torch.zeros(5, 4).double()),
        ValueError,
        r"Expected x of shape \(B, 3\); got \(5, 4\)",
    ),
    "dtype": (
        lambda m: m.log_prob(torch.zeros(5, 3)),
        TypeError,
        r"Expected x of dtype torch.float64.*got torch.float32",
    ),
    "n": (lambda m: m.sample(0), ValueError, "n must be a whole number >= 1; got 0"),
    "low": (
        lambda m: m.sample(2, low=torch.zeros(2)),
        ValueError,
        r"Expected low of shape \(3,\); got \(2,\)",
    ),
    "low-high": (
        lambda m: m.sample(2, low=torch.ones(3), high=torch.tensor([2.0, 1.0, 2.0])),
        ValueError,
        "low < high .* got 1 and 1 in dimension 1",
    ),
    "d": (
        lambda m: m.conditional(3, torch.zeros(1, 3).double()),
        ValueError,
        "Expected d from 0 to 2; got 3",
    ),
    "before": (
        lambda m: m.conditional(2, torch.zeros(1, 1).double()),
        ValueError,
        r"has 2 dimensions before it: expected x_before of shape \(B, 2\)",
    ),
    "D": (lambda m: RNADEModule(0), ValueError, "n_dimensions must be a whole number >= 1"),
    "H": (
        lambda m: RNADEModule(3, -1),
        ValueError,
        "n_hidden must be a whole number >= 1; got -1",
    ),
    "activation": (
        lambda m: RNADEModule(3, activation="rely"),
        ValueError,
        "Unknown activation 'rely'.*Did you mean 'relu'",
    ),
    "permutation": (
        lambda m: RNADEModule(3, order=[0, 0, 1]),
        ValueError,
        "order must be a permutation of 0 to 2",
    ),
    "order": (
        lambda m: RNADEModule(3, order="shuffled"),
        ValueError,
        "order must be None, 'raster', 'random' or a permutation; got 'shuffled'",
    ),
    "backend": (
        lambda m: RNADEModule(3, backend="gpuu").backend_choice(),
        ValueError,
        "Unknown backend 'gpuu'",
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_input_is_told_what_is_wrong(name):
    call, error, message = BAD_CALLS[name]
    with pytest.raises(error, match=message):
        call(make_module("rnade-mog", 3))
