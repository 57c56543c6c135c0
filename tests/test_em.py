"""EM: its sums, its updates and its loop, against scikit-learn, closed forms and each other."""

import warnings

import numpy as np
import pytest
import scipy.stats
import torch
from sklearn.decomposition import FactorAnalysis
from sklearn.mixture import GaussianMixture
from torch import Generator

from rnade.batch import Batch
from rnade.exceptions import SingularDataError
from rnade.nn import (
    GaussianModule,
    MixtureOfFactorAnalyzersModule,
    MixtureOfGaussiansModule,
    RNADEModule,
)
from rnade.training import EMSettings, FreshRows, fit_mixture
from rnade.training.em import Size, fit_sizes, starting_components
from rnade.training.em.matrices import not_below_floor
from rnade.training.em.steps import FactorSteps, GaussianSteps, row_counts, steps_for
from tests.conftest import random_components
from tests.test_training import repeated, whole_weights

PLAIN = EMSettings(max_iter=30, tol=0.0, patience=None)
NO_FLOOR = 0.0


def make_rows(seed: int, n: int = 400, D: int = 5, K: int = 3) -> torch.Tensor:
    """Rows of a few correlated clusters."""
    rng = np.random.default_rng(seed)
    clusters = [
        rng.normal(size=(n // K + 1, D)) @ rng.normal(size=(D, D)) + 3 * rng.normal(size=D)
        for _ in range(K)
    ]
    X = np.concatenate(clusters)[:n]
    return torch.as_tensor((X - X.mean(0)) / X.std(0))


def floor(x: torch.Tensor, value: float) -> torch.Tensor:
    return torch.full((x.shape[1],), value, dtype=torch.float64)


def started(module, x, seed=0, method="k-means++"):
    generator = Generator().manual_seed(seed)
    start = starting_components(
        x, module.n_components, method, generator, n_models=module.n_models
    )
    module = module.double()
    module.set_components(*start)
    return module, start


def fitted(module, x, settings=PLAIN, seed=0, floor_value=1e-8, **options):
    module, _ = started(module, x, seed)
    outcome = fit_mixture(
        module,
        x,
        settings,
        floor=floor(x, floor_value),
        generator=Generator().manual_seed(seed),
        **options,
    )
    return module, outcome


KINDS = {
    "mog-1": lambda D: MixtureOfGaussiansModule(D, 1),
    "mog-4": lambda D: MixtureOfGaussiansModule(D, 4),
    "mfa-2-1": lambda D: MixtureOfFactorAnalyzersModule(D, 2, 1),
    "mfa-3-2": lambda D: MixtureOfFactorAnalyzersModule(D, 3, 2),
    "mfa-2-D": lambda D: MixtureOfFactorAnalyzersModule(D, 2, D),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("problem", range(6))
def test_em_never_lowers_the_training_likelihood(kind, problem):
    x = make_rows(problem, n=[60, 300][problem % 2], D=[2, 5, 17][problem % 3])
    _, outcome = fitted(KINDS[kind](x.shape[1]), x, seed=problem)
    scores = [row["train"] for row in outcome.history]
    assert len(scores) >= 2
    assert outcome.history[-1]["revived"] == 0
    assert np.diff(scores).min() > -1e-9
    assert scores[-1] > scores[0] or kind == "mog-1"


def test_em_never_goes_down_at_the_floor_either():
    """Half of the rows lie on a line: the floor holds, and is the best covariance under it."""
    x = make_rows(1, D=3)
    x[:200, 1] = 0.5 * x[:200, 0]
    _, outcome = fitted(MixtureOfGaussiansModule(3, 3), x, floor_value=1e-4)
    assert np.diff([row["train"] for row in outcome.history]).min() > -1e-9


@pytest.mark.parametrize("K", [1, 3])
def test_agrees_with_scikit_learn_from_the_same_start(K, seed):
    x = make_rows(seed, n=500, D=6, K=K)
    module, start = started(MixtureOfGaussiansModule(6, K), x, seed)
    fit_mixture(module, x, PLAIN, floor=floor(x, NO_FLOOR), generator=Generator())
    other = GaussianMixture(
        K,
        reg_covar=0,
        tol=0,
        max_iter=PLAIN.max_iter,
        weights_init=start.alpha[0].numpy(),
        means_init=start.mu[0].numpy(),
        precisions_init=torch.linalg.inv(start.covariance[0]).numpy(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged
        other.fit(x.numpy())
    ours = module.log_prob(x).detach().numpy()
    np.testing.assert_allclose(ours, other.score_samples(x.numpy()), atol=1e-6)
    np.testing.assert_allclose(module.covariances()[0].detach(), other.covariances_, atol=1e-6)


@pytest.mark.parametrize("q", [1, 3])
def test_one_component_agrees_with_factor_analysis(q, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 6)) + 0.8 * rng.normal(size=(500, 6))
    x = torch.as_tensor(X - X.mean(0))
    settings = EMSettings(max_iter=3000, tol=1e-9, patience=None)
    _, outcome = fitted(MixtureOfFactorAnalyzersModule(6, 1, q), x, settings, seed)
    other = FactorAnalysis(q, svd_method="lapack", tol=1e-4, max_iter=5000).fit(x.numpy())
    # Theirs stops a little earlier.
    assert outcome.best_score == pytest.approx(other.score(x.numpy()), abs=1e-3)
    assert outcome.best_score > other.score(x.numpy()) - 1e-6


@pytest.mark.parametrize("D", [1, 4, 20])
def test_as_many_factors_as_columns_make_a_mixture_of_gaussians(D):
    components = random_components(1, 3, D, Generator().manual_seed(0))
    mog = MixtureOfGaussiansModule(D, 3).double()
    mfa = MixtureOfFactorAnalyzersModule(D, 3, D).double()
    mog.set_components(*components)
    mfa.set_components(*components)
    x = torch.randn(50, D, generator=Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(mfa.log_prob(x), mog.log_prob(x))
    torch.testing.assert_close(mfa.covariances(), mog.covariances())


def test_em_of_both_ends_at_the_same_likelihood():
    x = make_rows(0, n=600, D=3, K=1)
    settings = EMSettings(max_iter=3000, tol=1e-9, patience=None)
    scores = [
        fitted(module, x, settings)[1].best_score
        for module in (MixtureOfGaussiansModule(3, 1), MixtureOfFactorAnalyzersModule(3, 1, 3))
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)


@pytest.mark.parametrize("q", [1, 3, 5])
def test_factor_densities_are_those_of_scipy(q):
    generator = Generator().manual_seed(q)
    module = MixtureOfFactorAnalyzersModule(5, 2, q).double()
    with torch.no_grad():
        for p in (module.Lambda, module.mu, module.log_psi):
            p.copy_(torch.randn(p.shape, generator=generator))
        module.log_psi.sub_(6)  # little noise, where the plain Woodbury identity loses digits
    x = torch.randn(20, 5, generator=generator, dtype=torch.float64)
    expected = np.zeros((20, 2))
    for k in range(2):
        L = module.Lambda[0, k].detach().numpy()
        C = L @ L.T + np.diag(module.log_psi[0, k].detach().exp().numpy())
        mean = module.mu[0, k].detach().numpy()
        expected[:, k] = scipy.stats.multivariate_normal(mean, C).logpdf(x.numpy())
    expected = np.logaddexp(*(expected.T + np.log(0.5)))
    np.testing.assert_allclose(module.log_prob(x).detach(), expected, rtol=1e-9)


@pytest.mark.parametrize("module", [GaussianModule(4), MixtureOfGaussiansModule(4, 3)])
def test_densities_are_those_of_scipy(module):
    module = module.double()
    K = module.n_components
    alpha, mu, C = random_components(1, K, 4, Generator().manual_seed(0))
    module.set_components(alpha, mu, C)
    x = torch.randn(20, 4, generator=Generator().manual_seed(1), dtype=torch.float64)
    terms = [
        scipy.stats.multivariate_normal(mu[0, k], C[0, k]).logpdf(x) + np.log(float(alpha[0, k]))
        for k in range(K)
    ]
    expected = scipy.special.logsumexp(terms, axis=0)
    np.testing.assert_allclose(module.log_prob(x).detach(), expected, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_weights_and_banks_change_no_sum(kind, monkeypatch):
    x = make_rows(3, n=90)
    module, _ = started(KINDS[kind](5), x)
    steps = steps_for(module, floor(x, 1e-8))
    whole = steps.gather(x, torch.ones(90, dtype=torch.float64))
    monkeypatch.setattr(type(module), "chunk_rows", lambda m: 17)
    in_chunks = steps.gather(x, torch.ones(90, dtype=torch.float64))
    # Row 0 twice is row 0 with weight 2.
    twice = steps.gather(torch.cat([x, x[:1]]), torch.ones(91, dtype=torch.float64))
    weights = torch.ones(90, dtype=torch.float64)
    weights[0] = 2
    weighted = steps.gather(x, weights)
    torch.testing.assert_close(whole, in_chunks)
    torch.testing.assert_close(twice, weighted)


@pytest.mark.parametrize("kind", ["mog-4", "mfa-3-2"])
def test_a_bank_is_its_members(kind):
    x, held_out = make_rows(4), make_rows(4, n=100)
    one = KINDS[kind](5)
    sizes = {"n_factors": one.n_factors} if hasattr(one, "n_factors") else {}
    bank = type(one)(5, one.n_components, **sizes, n_models=2).double()
    generator = Generator().manual_seed(0)
    start = starting_components(x, one.n_components, "random", generator, n_models=2)
    bank.set_components(*start)
    members = [bank[m] for m in range(2)]
    options = {"floor": floor(x, 1e-8), "generator": generator, "validation": held_out}
    outcome = fit_mixture(bank, x, PLAIN, **options)
    for m, member in enumerate(members):
        alone = fit_mixture(member, x, PLAIN, **options)
        assert alone.best_score == pytest.approx(outcome.best_score[m], abs=1e-10)
        assert alone.best_epoch == outcome.best_epoch[m]
        torch.testing.assert_close(bank[m].log_prob(x), member.log_prob(x))


def test_minibatch_steps_are_averages_of_old_and_new():
    x = make_rows(5, n=200)
    module, _ = started(MixtureOfGaussiansModule(5, 2), x)
    steps = GaussianSteps(module, floor(x, 1e-8))
    sums = steps.gather(x[:80], torch.ones(80, dtype=torch.float64))
    old, new = [t.clone() for t in steps.current()], steps.maximised(sums)
    steps.move(sums, 0.3)
    for now, a, b in zip(steps.current(), old, new, strict=True):
        torch.testing.assert_close(now, 0.7 * a + 0.3 * b)


@pytest.mark.parametrize("kind", ["mog-4", "mfa-3-2"])
def test_minibatch_em_ends_near_batch_em(kind, seed):
    x = make_rows(seed, n=2000)
    _, batch = fitted(KINDS[kind](5), x, EMSettings(max_iter=200, patience=None), seed)
    settings = EMSettings(max_iter=400, batch_size=300, step_size=0.1, patience=None)
    module, _ = fitted(KINDS[kind](5), x, settings, seed)
    score = module.log_prob(x).mean().item()
    assert score > batch.best_score - 0.1


def test_step_sizes_fall_linearly_to_zero():
    x = make_rows(6)
    settings = EMSettings(max_iter=100, batch_size=50, step_size=0.2, patience=None)
    _, outcome = fitted(MixtureOfGaussiansModule(5, 2), x, settings)
    assert [row["epoch"] for row in outcome.history] == list(range(0, 101, 10))
    np.testing.assert_allclose(
        [row["rate"] for row in outcome.history], np.linspace(0.2, 0, 11), atol=1e-12
    )


def test_early_stopping_keeps_the_best_on_held_out_rows():
    x = make_rows(7, n=60, D=6)
    held_out = make_rows(7, n=400, D=6)[200:]
    settings = EMSettings(max_iter=200, tol=0.0, patience=5)
    module, outcome = fitted(MixtureOfGaussiansModule(6, 8), x, settings, validation=held_out)
    scores = [row["validation"] for row in outcome.history]
    assert outcome.best_epoch == int(np.argmax(scores))
    assert len(scores) == outcome.best_epoch + 6  # over-fitting was seen, and ended it
    assert module.log_prob(held_out).mean().item() == pytest.approx(max(scores))


def test_training_ends_at_a_target():
    x = make_rows(8)
    _, outcome = fitted(MixtureOfGaussiansModule(5, 3), x)
    scores = [row["train"] for row in outcome.history]
    target = (scores[0] + scores[-1]) / 2
    _, again = fitted(MixtureOfGaussiansModule(5, 3), x, target=target)
    assert again.train_at_best >= target
    assert again.history[-2]["train"] < target


@pytest.mark.parametrize("kind", ["mog-4", "mfa-3-2"])
def test_dead_components_are_revived(kind):
    x = make_rows(9)
    module, _ = started(KINDS[kind](5), x)
    with torch.no_grad():
        module.mu[0, 1] = 1e4  # no row is anywhere near
    outcome = fit_mixture(
        module, x, PLAIN, floor=floor(x, 1e-6), generator=Generator().manual_seed(0)
    )
    assert outcome.history[0]["revived"] == 0
    assert outcome.history[1]["revived"] == 1
    assert module.log_alpha[0, 1].exp() > 1e-3
    assert all(np.isfinite(row["train"]) for row in outcome.history)


def test_minibatches_leave_components_without_rows_in_place():
    x = make_rows(10)
    module, _ = started(MixtureOfFactorAnalyzersModule(5, 3, 2), x)
    with torch.no_grad():
        module.mu[0, 1] = 1e4
    steps = FactorSteps(module, floor(x, 1e-8))
    before = steps.current()
    steps.move(steps.gather(x, torch.ones(len(x), dtype=torch.float64)), 0.5)
    after = steps.current()
    torch.testing.assert_close(after.mu[0, 1], before.mu[0, 1])
    torch.testing.assert_close(after.Lambda[0, 1], before.Lambda[0, 1])
    torch.testing.assert_close(after.alpha[0, 1], before.alpha[0, 1] / 2)


def test_the_floor_is_the_best_covariance_above_it():
    """Against a search over covariances L L' + diag(floor), for one singular sample."""
    S = torch.tensor([[1.0, 0.999], [0.999, 1.0]], dtype=torch.float64)
    least = torch.tensor([0.04, 0.01], dtype=torch.float64)

    def expected_log_density(C):
        return -torch.logdet(C) - torch.linalg.solve(C, S).trace()

    ours = not_below_floor(S, least)
    assert torch.linalg.eigvalsh(ours - torch.diag(least)).min() > -1e-12
    L = torch.eye(2, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([L], max_iter=500, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        value = -expected_log_density(L @ L.T + torch.diag(least))
        value.backward()
        return value

    optimiser.step(loss)
    best = expected_log_density(L @ L.T + torch.diag(least)).item()
    assert expected_log_density(ours).item() == pytest.approx(best, abs=1e-6)
    roomy = torch.eye(2, dtype=torch.float64)
    torch.testing.assert_close(not_below_floor(roomy, least), roomy)


class Drawn:
    """A source of rows drawn from a mixture."""

    device = torch.device("cpu")

    def __init__(self, module):
        self.module = module

    def draw(self, n, generator):
        return self.module.sample(n, generator)


def test_minibatches_of_fresh_rows(seed):
    """EM on rows never seen twice finds the mixture that they come from."""
    generator = Generator().manual_seed(seed)
    truth = MixtureOfGaussiansModule(3, 2).double()
    truth.set_components(*random_components(1, 2, 3, generator))
    found = MixtureOfGaussiansModule(3, 2).double()
    start = truth.sample(200, generator)
    found.set_components(*starting_components(start, 2, "k-means++", generator))
    settings = EMSettings(max_iter=200, batch_size=2000, step_size=0.3, patience=None)
    source = FreshRows(Drawn(truth), generator, n_known=10)
    options = {"floor": torch.zeros(3), "generator": generator}
    fit_mixture(found, source, settings, **options)
    x = truth.sample(20_000, generator)
    difference = (truth.log_prob(x) - found.log_prob(x)).mean()
    assert abs(difference) < 5e-3  # of 19 parameters, in effect from tens of thousands of rows
    with pytest.raises(ValueError, match="expected a batch_size, got None"):
        fit_mixture(found, source, PLAIN, **options)


def test_singular_components_are_explained():
    x = make_rows(11)
    x[:, 2] = x[:, 0] + x[:, 1]
    with pytest.raises(SingularDataError, match="became singular.*fewer components, or a sigma_"):
        fitted(MixtureOfGaussiansModule(5, 2), x, floor_value=0.0)
    with pytest.raises(SingularDataError, match="noise of a column became 0.*sigma_floor"):
        fitted(MixtureOfFactorAnalyzersModule(5, 2, 5), x * 0.0 + x[:1], floor_value=0.0)


def test_float32_ends_near_float64():
    x = make_rows(12, n=1000)
    _, outcome = fitted(MixtureOfGaussiansModule(5, 3), x)
    single, _ = started(MixtureOfGaussiansModule(5, 3), x)
    single = single.float()
    fit_mixture(single, x.float(), PLAIN, floor=floor(x, 1e-8), generator=Generator())
    scores = single.double().log_prob(x).mean()
    assert scores.item() == pytest.approx(outcome.best_score, abs=1e-3)


@pytest.mark.parametrize("method", ["k-means++", "random"])
@pytest.mark.parametrize("n", [2, 3, 500])
def test_starts_are_usable_whatever_the_rows(method, n):
    for x in (make_rows(0, n=max(n, 2)), torch.ones(n, 3).double()):
        start = starting_components(x, 4, method, Generator().manual_seed(0), n_models=2)
        assert start.mu.shape == (2, 4, x.shape[1])
        torch.testing.assert_close(start.alpha.sum(1), torch.ones(2).double())
        assert torch.linalg.eigvalsh(start.covariance).min() > 0.9e-6


def test_clusters_are_found():
    rng = np.random.default_rng(0)
    centres = np.array([[0, 0], [10, 0], [0, 10]])
    x = torch.as_tensor(np.concatenate([rng.normal(c, 1, size=(100, 2)) for c in centres]))
    start = starting_components(x, 3, "k-means++", Generator().manual_seed(0))
    found = start.mu[0].numpy()
    assert np.abs(found[np.lexsort(found.T.round())] - centres).max() < 0.5


def test_bad_settings_are_told():
    with pytest.raises(ValueError, match="max_iter must be a whole number >= 1; got 0"):
        EMSettings(max_iter=0)
    with pytest.raises(ValueError, match="step_size must be a number > 0 and <= 1; got 2"):
        EMSettings(step_size=2)
    with pytest.raises(ValueError, match="Unknown init 'kmeans'.*Did you mean 'k-means"):
        starting_components(make_rows(0), 2, "kmeans", Generator())
    with pytest.raises(ValueError, match="n_factors must be at most the number of columns, 3"):
        MixtureOfFactorAnalyzersModule(3, 2, 4)
    holes = Batch(make_rows(0), seen=make_rows(0) > 0)
    with pytest.raises(ValueError, match="fit_sizes expects complete rows; use fit_mixture"):
        fit_sizes([holes], [Size(2, 1)], PLAIN, seeds=[0], floor=torch.zeros(5))
    with pytest.raises(TypeError, match="no EM for a RNADEModule"):
        steps_for(RNADEModule(3), torch.zeros(3))


# ------------------------------------------------------------------------ weights of rows


@pytest.mark.parametrize("method", ["k-means++", "random"])
def test_starts_of_weighted_rows_are_those_of_repeated_rows(method, seed):
    x, w = make_rows(seed, n=70), whole_weights(70, seed)
    got, expected = (
        starting_components(rows, 4, method, Generator().manual_seed(seed), n_models=3, weights=n)
        for rows, n in ((x, w), (repeated(x, w), None))
    )
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    assert got.mu.unique(dim=0).shape[0] == 3  # each model has a start of its own
    assert all(len(mu.unique(dim=0)) == 4 for mu in got.mu)


@pytest.mark.parametrize(("kind", "shrinkage"), [("mog-4", 0.0), ("mog-4", 7.0), ("mfa-3-2", 0.0)])
def test_em_on_weighted_rows_is_em_on_repeated_rows(kind, shrinkage):
    """With held-out rows that have weights too, and a component that must be revived."""
    everything = make_rows(0, n=600)
    x, held_out = everything[::3], everything[1::3]
    w, v = whole_weights(200, 0), whole_weights(200, 1)

    def fit(rows, left, **weights):
        module, _ = started(KINDS[kind](5), x)
        with torch.no_grad():
            module.mu[0, 1] = 1e4
        options = {"floor": floor(x, 1e-6), "generator": Generator().manual_seed(0)}
        outcome = fit_mixture(
            module, rows, PLAIN, shrinkage=shrinkage, validation=left, **options, **weights
        )
        return module, outcome

    ours, told = fit(x, held_out, weights=w, validation_weights=v)
    theirs, expected = fit(repeated(x, w), repeated(held_out, v))
    assert told.best_epoch == expected.best_epoch > 1
    for row, other in zip(told.history, expected.history, strict=True):
        assert row["train"] == pytest.approx(other["train"], abs=1e-6)
        assert row["validation"] == pytest.approx(other["validation"], abs=1e-6)
        assert row["revived"] == other["revived"]
    assert told.history[-1]["revived"] == 1
    torch.testing.assert_close(ours.log_prob(x), theirs.log_prob(x), rtol=0, atol=1e-5)


def test_weights_of_any_small_scale_are_the_same():
    """Such as those that sum to 1: they cannot count rows."""
    x, w = make_rows(0, n=80), whole_weights(80, 0)
    for small in (1 / w.sum(), 1e-6):
        counts = row_counts(Batch(x, w * small))
        torch.testing.assert_close(counts.mean(), torch.tensor(1.0).double())
        torch.testing.assert_close(counts / counts.sum(), w / w.sum())
    assert torch.equal(row_counts(Batch(x, w)), w)


def test_each_mixture_of_a_bank_stops_as_it_would_alone():
    x, held_out = make_rows(7, n=60, D=4), make_rows(7, n=300, D=4)[200:]
    settings = EMSettings(max_iter=100, tol=1e-3, patience=4)
    generator = Generator().manual_seed(1)
    bank = MixtureOfGaussiansModule(4, 3, n_models=4).double()
    bank.set_components(*starting_components(x, 3, "random", generator, n_models=4))
    members = [bank[m] for m in range(4)]
    options = {"floor": floor(x, 1e-6), "generator": generator, "validation": held_out}
    outcome = fit_mixture(bank, x, settings, **options)
    alone = [fit_mixture(member, x, settings, **options) for member in members]
    assert len({len(told.history) for told in alone}) > 1
    assert outcome.best_epoch == [told.best_epoch for told in alone]
    np.testing.assert_allclose(outcome.best_score, [told.best_score for told in alone])
