"""EM for mixtures of many sizes at once, against EM for one and against closed forms."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.decomposition import FactorAnalysis
from torch import Generator

from rnade.batch import Batch
from rnade.nn import MixtureOfFactorAnalyzersModule
from rnade.training import EMSettings, fit_mixture
from rnade.training.em import Size, fit_sizes, sizes
from rnade.training.em.matrices import symmetric, upper_pairs
from rnade.training.em.starts import clusters
from tests.test_em import floor, make_rows
from tests.test_training import repeated, whole_weights

SIZES = [Size(1, 2), Size(3, 1), Size(3, 5), Size(6, 2)]
PLAIN = EMSettings(max_iter=15, tol=0.0, patience=None)


def make_sets(n_sets=2, weights=False):
    """Sets of unequal length for training, and such sets of held-out rows."""
    sets, held_out = [], []
    for seed in range(n_sets):
        x = make_rows(seed, n=300 + 7 * seed)
        n, generator = 200 + seed, Generator().manual_seed(seed)
        w = torch.rand(len(x), generator=generator).double() + 1
        sets.append(Batch(x[:n], w[:n] if weights else None))
        held_out.append(Batch(x[n:], w[n:] if weights else None))
    return sets, held_out


def fitted(sets, tried, settings, floor_value=1e-6, **options):
    """Mixtures of all sizes; the seed of a set is its number."""
    least, seeds = floor(sets[0].x, floor_value), range(len(sets))
    return fit_sizes(sets, tried, settings, seeds=seeds, floor=least, **options)


def started(x, n_rows, counts, seeds):
    """Clusters as a search over sizes starts from them."""
    generators = [Generator().manual_seed(seed) for seed in seeds]
    uniform = [torch.rand(max(counts), generator=g, dtype=torch.float64) for g in generators]
    return clusters(x, n_rows, counts, torch.stack(uniform), floor(x[0], 1e-6))


def alone(rows, held_out, seed, size, settings, **options):
    """The same mixture, by EM for one, from the same start."""
    x = rows.x
    w = torch.ones(len(x)).double() if rows.weights is None else rows.weights
    start = started(x[None], w[None], [size.n_components], [seed])
    module = MixtureOfFactorAnalyzersModule(x.shape[1], *size).double()
    module.set_components(*start)
    outcome = fit_mixture(
        module,
        x,
        settings,
        floor=floor(x, 1e-6),
        generator=Generator().manual_seed(0),
        validation=held_out.x,
        validation_weights=held_out.weights,
        weights=rows.weights,
        **options,
    )
    return module, outcome


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("chunk", [None, 200])
def test_each_mixture_is_as_if_fitted_alone(weights, chunk, monkeypatch):
    if chunk is not None:
        monkeypatch.setitem(sizes.CHUNK_ELEMENTS, "cpu", chunk * 130)
    sets, held_out = make_sets(weights=weights)
    found = fitted(sets, SIZES, PLAIN, held_out=held_out)
    scores = found.progress
    for r, (rows, left) in enumerate(zip(sets, held_out, strict=True)):
        for g, size in enumerate(SIZES):
            module, outcome = alone(rows, left, r, size, PLAIN)
            assert scores.best_iterations[r, g] == outcome.best_epoch
            assert scores.best_scores[r, g] == pytest.approx(outcome.best_score, abs=1e-6)
            assert scores.train_at_best[r, g] == pytest.approx(outcome.train_at_best, abs=1e-6)
            got = found.module(r, g).log_prob(left.x)
            torch.testing.assert_close(got, module.log_prob(left.x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("settings", [EMSettings(60, tol=1e-2), EMSettings(60, 0.0, patience=3)])
def test_each_mixture_stops_as_if_alone(settings):
    """Also after those that have stopped have left."""
    sets, held_out = make_sets(1)
    scores = fitted(sets, SIZES, settings, held_out=held_out).progress
    outcomes = [alone(sets[0], held_out[0], 0, size, settings)[1] for size in SIZES]
    assert scores.best_iterations[0].tolist() == [outcome.best_epoch for outcome in outcomes]
    assert len({len(outcome.history) for outcome in outcomes}) > 1
    np.testing.assert_allclose(
        scores.best_scores[0], [outcome.best_score for outcome in outcomes], atol=1e-6
    )


def test_stops_at_its_target():
    sets, _ = make_sets()
    full = fitted(sets, SIZES, PLAIN).progress
    targets = full.best_scores - 0.05
    scores = fitted(sets, SIZES, PLAIN, targets=targets).progress
    assert (scores.best_scores >= targets).all()
    assert (scores.best_iterations < full.best_iterations).all()
    assert (scores.best_scores < full.best_scores).all()


def test_goes_on_from_where_it_was():
    sets, _ = make_sets()
    whole = fitted(sets, SIZES, PLAIN)
    half = fitted(sets, SIZES, dataclasses.replace(PLAIN, max_iter=7))
    rest = dataclasses.replace(PLAIN, max_iter=8)
    some = [3, 1]
    again = fitted(sets, [SIZES[g] for g in some], rest, start=half.components_of(some))
    for place, g in enumerate(some):
        for k, rows in enumerate(sets):
            theirs, ours = (
                whole.module(k, g).log_prob(rows.x),
                again.module(k, place).log_prob(rows.x),
            )
            torch.testing.assert_close(ours, theirs)


def test_one_component_agrees_with_factor_analysis():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 6)) + 0.8 * rng.normal(size=(500, 6))
    x = torch.as_tensor(X - X.mean(0))
    settings = EMSettings(max_iter=3000, tol=1e-9, patience=None)
    scores = fitted([Batch(x)], [Size(1, 3), Size(1, 1)], settings, 1e-8).progress
    for g, q in enumerate((3, 1)):
        other = FactorAnalysis(q, svd_method="lapack", tol=1e-4, max_iter=5000).fit(x.numpy())
        assert scores.best_scores[0, g] == pytest.approx(other.score(x.numpy()), abs=1e-3)


def test_more_components_than_rows_end_in_a_usable_mixture():
    x = make_rows(0, n=30, D=3)
    x[:10] = x[0]
    both = [Size(40, 2), Size(2, 3)]
    found = fitted([Batch(x[:20])], both, PLAIN, 1e-4, held_out=[Batch(x[20:])])
    for g in range(2):
        assert torch.isfinite(found.module(0, g).log_prob(x)).all()


def test_dead_components_are_revived():
    """One far row has little weight: a component that starts on it may lose all its rows."""
    generator = Generator().manual_seed(0)
    x = torch.randn(400, 2, dtype=torch.float64, generator=generator)
    x[200:] += 20
    search = sizes._Search(
        [Batch(x)], [], [Size(2, 1), Size(3, 2)], PLAIN, [0], floor(x, 1e-6), None, None
    )
    mu = search.now.mu.clone()
    mu[0, :2] = torch.tensor([[0.0, 0.0], [500.0, -500.0]])  # no row belongs to the second
    search.now = search.now._replace(mu=mu, psi=torch.full_like(search.now.psi, 0.5))
    moments = search._expectation()
    assert moments.n[0, 1] < 1e-3
    now = search._maximised(moments)
    assert now.alpha[0, 1] == pytest.approx(1 / 400)
    assert now.mu[0, 1].min() > 15
    torch.testing.assert_close(now.alpha[0, :2].sum(), torch.tensor(1.0, dtype=torch.float64))
    found = search.run()
    assert found.progress.best_scores[0, 0] > -5
    assert found.outcome(0, 0).history[0]["revived"] == 1
    assert found.outcome(0, 1).history[-1]["revived"] == 0


def test_weighted_rows_are_repeated_rows():
    """In two sets; from starting values to the parameters that are kept."""
    (sets, held_out), settings = make_sets(), EMSettings(max_iter=8, tol=0.0)

    def counted(batches, first):
        return [
            Batch(rows.x, whole_weights(len(rows.x), first + i)) for i, rows in enumerate(batches)
        ]

    def as_rows(batches):
        return [Batch(repeated(*rows[:2])) for rows in batches]

    x, left = counted(sets, 0), counted(held_out, 5)
    got = fitted(x, SIZES, settings, held_out=left)
    expected = fitted(as_rows(x), SIZES, settings, held_out=as_rows(left))
    for name in ("best_scores", "train_at_best", "best_iterations"):
        ours, theirs = (getattr(each.progress, name) for each in (got, expected))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-7)
    for ours, theirs in zip(got.components, expected.components, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_batches_are_refused():
    with pytest.raises(ValueError, match="takes all rows at once; got a batch_size"):
        fitted(make_sets(1)[0], SIZES, EMSettings(batch_size=10))


# ------------------------------------------------------------------ starts


def test_starts_are_clusters():
    """Centres are means of the rows nearest to them, and depend on their own set alone."""
    sets = [make_rows(0, n=200), make_rows(1, n=200)]
    x = torch.stack(sets)
    w = torch.ones(2, 200, dtype=torch.float64)
    alpha, mu, covariance = started(x, w, [2, 5], [3, 4])
    one = started(x[1:], w[1:], [5], [4])
    torch.testing.assert_close(mu[1, 2:], one.mu[0])
    torch.testing.assert_close(covariance[1, 2:], one.covariance[0])
    torch.testing.assert_close(alpha[:, 2:].sum(1), torch.ones(2, dtype=torch.float64))
    for r in range(2):
        centres = mu[r, 2:]
        nearest = torch.cdist(x[r], centres).argmin(1)
        for k in range(5):
            mine = x[r][nearest == k]
            assert (mine.mean(0) - centres[k]).norm() < 0.3
            spread = (mine - centres[k]).T @ (mine - centres[k])
            share = torch.linalg.eigvalsh(covariance[r, 2 + k] * (len(mine) + 6) - spread)
            assert share.min() > -1e-8  # what was added is a covariance


def test_rows_without_weight_are_no_centres():
    x = make_rows(0, n=50)
    w = torch.zeros(1, 50, dtype=torch.float64)
    w[0, :10] = 1
    far = torch.cat([x[:10], x[10:] + 100])
    _, mu, _ = started(far[None], w, [4], [0])
    assert mu.abs().max() < 50


def test_triangles():
    A = torch.randn(3, 4, 4, dtype=torch.float64, generator=Generator().manual_seed(0))
    A = A + A.mT
    i, j = upper_pairs(4, A.device)
    torch.testing.assert_close(symmetric(A[:, i, j], 4), A)
