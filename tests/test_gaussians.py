"""Gaussians beside the networks that answer questions, against closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp
from torch import Generator

from rnade import RNADE, load
from rnade.batch import Batch
from rnade.columns.partition import POSITION, ColumnCells
from rnade.nn.any_order import AnyOrderModule
from rnade.nn.gaussians import FARTHEST, LOGISTIC_SCALE, Gaussians
from rnade.nn.questions import column_given, draw, log_densities
from rnade.nn.table import TableDensity
from rnade.training.gaussians import fit_gaussians

K, D = 3, 4


def rows(n: int = 500, seed: int = 0) -> np.ndarray:
    """Two groups of rows, columns that depend on each other, one of them skewed."""
    rng = np.random.default_rng(seed)
    z = rng.multivariate_normal(np.zeros(D), 0.3 + 0.7 * np.eye(D), n)
    z[:, 1] += 2 * (rng.random(n) < 0.4)
    z[:, 3] = np.exp(0.5 * z[:, 3])
    return z


def cut(X: np.ndarray) -> list[ColumnCells]:
    return [ColumnCells.of_numbers(x, whole=False, n_cells=3) for x in X.T]


def some_gaussians(seed: int = 0, share: float = 0.6) -> Gaussians:
    rng = np.random.default_rng(seed)
    found = Gaussians(D, K).double()
    A = rng.normal(size=(K, D, D))
    found.covariance.copy_(torch.as_tensor(A @ A.transpose(0, 2, 1) / D + 0.3 * np.eye(D)))
    found.mu.copy_(torch.as_tensor(rng.normal(size=(K, D))))
    found.log_alpha.copy_(torch.as_tensor(rng.normal(size=K)).log_softmax(0))
    found.share.fill_(share)
    return found


def table_of(X: np.ndarray, gaussians: Gaussians | None) -> TableDensity:
    columns = cut(X)
    networks = AnyOrderModule(
        columns, 7, n_layers=2, n_components=2, generator=Generator().manual_seed(0)
    )
    with torch.no_grad():
        networks.V.normal_(0, 0.5, generator=Generator().manual_seed(1))
    orders = torch.tensor([[0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]])
    return TableDensity(columns, networks, orders, gaussians=gaussians).double()


def closed_form(g: Gaussians, t: np.ndarray, known: np.ndarray, d: int) -> list[np.ndarray]:
    """Log weights, means and variances of column d given the known positions of one row."""
    log_weight, mean, variance = [], [], []
    for k in range(K):
        mu, S = g.mu[k].numpy(), g.covariance[k].numpy()
        own, across = S[np.ix_(known, known)], S[d, known]
        log_weight.append(float(g.log_alpha[k]))
        if known.any():
            log_weight[-1] += stats.multivariate_normal.logpdf(t[known], mu[known], own)
        solved = np.linalg.solve(own, across)
        mean.append(mu[d] + solved @ (t[known] - mu[known]))
        variance.append(S[d, d] - solved @ across)
    return [np.array(log_weight) - logsumexp(log_weight), np.array(mean), np.array(variance)]


@pytest.mark.parametrize("alike", [True, False], ids=["same cells given", "each row its own"])
def test_components_are_those_of_the_conditional_mixture(alike):
    X, g, rng = rows(20), some_gaussians(), np.random.default_rng(1)
    table, d = table_of(X, g), 2
    known = np.tile(rng.random(D) < 0.6, (20, 1)) if alike else rng.random((20, D)) < 0.5
    known[:, d] = False
    cells = table.cells(X)
    found = g.given(cells, torch.as_tensor(known)).components(d)
    t = cells[..., POSITION].clamp(-FARTHEST, FARTHEST).numpy()
    for i in range(20):
        log_weight, mean, variance = closed_form(g, t[i], known[i], d)
        np.testing.assert_allclose(found.log_weight[i], log_weight, atol=1e-9)
        np.testing.assert_allclose(found.mu[i], mean, atol=1e-9)
        own = stats.logistic(scale=np.exp(found.log_scale[i].numpy()))
        np.testing.assert_allclose(own.var(), variance, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_that_others_determine_are_no_trouble(dtype):
    X = rows(50)
    X[:, 1] = X[:, 0]
    table = table_of(X, some_gaussians())
    one = torch.tensor([[1.0, 1, 0.5, 0.5], [1, 1, 0.5, 0.5], [0.5, 0.5, 1, 0], [0.5, 0.5, 0, 1]])
    table.gaussians.covariance.copy_(one.repeat(K, 1, 1))
    gaussians = table.gaussians.to(dtype)
    known = torch.ones(50, D, dtype=torch.bool)
    known[:, 2] = False
    found = gaussians.given(table.cells(X).to(dtype), known).components(2)
    for part in (found.log_weight, found.mu, found.log_scale):
        assert part.isfinite().all()
    assert found.mu.abs().max() < 10


def test_rows_can_be_told_of_different_columns():
    X, g = rows(6), some_gaussians()
    cells = table_of(X, g).cells(X)
    known = torch.zeros(6, D, dtype=torch.bool)
    known[:3, 0], known[3:, 1], known[1, 3] = True, True, True
    expected = g.given(cells, known).components(2)
    walked = g.start(6)
    untouched = walked.copy()
    first, second = torch.arange(3), torch.arange(3, 6)
    walked.tell_of(0, first, cells[first, 0])
    walked.tell_of(1, second, cells[second, 1])
    walked.tell_of(3, torch.tensor([1]), cells[1:2, 3])
    found = walked.components(2)
    torch.testing.assert_close(found.mu, expected.mu)
    torch.testing.assert_close(found.log_weight, expected.log_weight)
    torch.testing.assert_close(untouched.components(2).mu, g.mu[:, 2].expand(6, -1))


@pytest.mark.parametrize("share", [0.3, 1.0 - 1e-9])
def test_distributions_with_gaussians_have_mass_1_and_one_distribution_function(share):
    X = rows()
    table = table_of(X, some_gaussians(share=share))
    for d in (0, 3):
        density = column_given(table, d, X[:1])
        first, last = table.columns[d].reach
        grid = np.linspace(first, last, 100_001)[1:-1]
        each = density.take(np.zeros(len(grid), dtype=np.int64))
        p = np.exp(each.log_prob(grid))
        summed = np.concatenate([[0], np.cumsum((p[1:] + p[:-1]) / 2 * np.diff(grid))])
        assert summed[-1] == pytest.approx(density.inside, abs=1e-3)
        below = density.cdf(np.array([first]))  # in the tail outside the range
        np.testing.assert_allclose(each.cdf(grid), below + summed, atol=1e-3)
        assert density.cdf(np.array([1e9])) == pytest.approx(1)
        middle = density.quantile(0.5)
        assert density.cdf(middle) == pytest.approx(0.5, abs=1e-6)
        mean = np.trapezoid(p * grid, grid) / np.trapezoid(p, grid)
        assert density.mean() == pytest.approx(mean, abs=0.02)


def test_the_gaussians_share_is_what_they_add():
    """With a share w a density is (1 - w) times the networks' and w times the logistic mixture."""
    X, w, d = rows(), 0.35, 0
    g = some_gaussians(share=w)
    without, both = (column_given(table_of(X, own), d, X[:30]) for own in (None, g))
    table = table_of(X, g)
    cells = table.cells(X[:30])
    t, column = cells[..., POSITION].numpy(), table.columns[d]
    known = np.arange(D) != d
    expected = np.empty(30)
    for i in range(30):
        log_weight, mean, variance = closed_form(g, t[i].clip(-FARTHEST, FARTHEST), known, d)
        own = stats.logistic(mean, np.sqrt(variance) * LOGISTIC_SCALE)
        low, high = column.ends
        slope = (column.position(X[i : i + 1, d] + 1e-6) - t[i, d]) / 1e-6  # dt / dx
        kept = own.cdf(high) - own.cdf(low)
        p = np.exp(log_weight) @ (own.pdf(t[i, d]) / kept) * slope * math.exp(column.log_inside)
        expected[i] = w * p.item()
    got = np.exp(both.log_prob(X[:30, d])) - (1 - w) * np.exp(without.log_prob(X[:30, d]))
    inside = (X[:30, d] > column.reach[0]) & (X[:30, d] < column.reach[1])
    np.testing.assert_allclose(got[inside], expected[inside], rtol=1e-4)


def test_joint_densities_are_products_of_conditionals_along_orders():
    X = rows(40)
    table = table_of(X, some_gaussians())
    given = np.zeros((40, D), dtype=bool)
    given[::2, 1], given[1::3, 3] = True, True
    along = log_densities(table, X, given).numpy()
    for r, order in enumerate(table.orders.tolist()):
        total = np.zeros(40)
        known = np.where(given, X, np.nan)
        for d in order:
            term = column_given(table, d, known).log_prob(X[:, d])
            total += np.where(given[:, d], 0, term)
            known[:, d] = X[:, d]
        np.testing.assert_allclose(along[r], total, atol=1e-9)
    np.testing.assert_allclose(
        table.log_prob(table.cells(X)),
        logsumexp(log_densities(table, X, np.zeros(D, bool)).numpy(), axis=0) - math.log(3),
        atol=1e-9,
    )


def test_draws_agree_with_densities():
    """Each drawn cell has an even place in its distribution given what came before it."""
    X = rows()
    table = table_of(X, some_gaussians())
    table.orders = table.orders[:1]
    known = np.full((3000, D), np.nan)
    known[:, 0] = X[:1, 0]
    drawn = draw(table, known, Generator().manual_seed(0), complete=True)
    whole = table.sample(3000, Generator().manual_seed(1))
    generator = Generator().manual_seed(2)
    for rows_drawn, first in ((drawn, 1), (whole, 0)):
        for d in range(first, D):
            before = np.where(np.arange(D) < d, rows_drawn, np.nan)
            places = column_given(table, d, before).transform(rows_drawn[:, d], generator)
            assert stats.kstest(places, "uniform").pvalue > 1e-3
    places = table.pit(whole, generator)
    assert min(stats.kstest(p, "uniform").pvalue for p in places.T) > 1e-3


def test_gaussian_tables_give_the_gaussians_their_share_and_others_none():
    rng = np.random.default_rng(0)
    smooth = rng.multivariate_normal(np.zeros(3), 0.1 * np.eye(3) + 0.9, 900)
    spiky = rng.choice([-1.0, 0.0, 1.0], (900, 3)) + 1e-4 * rng.normal(size=(900, 3))
    for X, trained, low, high in ((smooth, False, 0.5, 1.0), (spiky, True, 0.0, 0.1)):
        columns = [ColumnCells.of_numbers(x, whole=False, n_cells=3) for x in X.T]
        network = AnyOrderModule(columns, 8, n_components=3, generator=Generator().manual_seed(0))
        if trained:  # as a network would be that knows where the values are
            with torch.no_grad():
                network.V.zero_()
                for start, column in zip(network.layout.starts.tolist(), columns, strict=True):
                    place = start + column.n_cells
                    network.b[0, 0, start:place] = -20.0
                    network.b[0, 0, place : place + 3] = 0.0
                    t = [column.position(np.array([v])).item() for v in (-1.0, 0.0, 1.0)]
                    network.b[0, 0, place + 3 : place + 6] = torch.tensor(t)
                    network.b[0, 0, place + 6 : place + 9] = -7.0
        table = TableDensity(columns, network, torch.arange(3)[None])
        told = [Batch(table.cells(part)[..., :-1]) for part in (X[:800], X[800:])]
        found = fit_gaussians(columns, network, *told, seed=0)
        shares = np.zeros(3) if found is None else found.share.numpy()
        assert ((shares >= low) & (shares <= high)).all()


def test_a_fitted_model_predicts_by_them_and_files_keep_them(tmp_path):
    """Of a Gaussian truth: conditional means and densities within sampling error."""
    rng = np.random.default_rng(0)
    S = 0.1 * np.eye(5) + 0.9
    X, new = (rng.multivariate_normal(np.zeros(5), S, n) for n in (1200, 400))
    model = RNADE(random_state=0, columns="real", ensemble=[{"epochs": 2}], epochs=12).fit(X)
    assert model.questions_.gaussians is not None
    assert model.questions_network_["n_gaussians"] == model.questions_.gaussians.n_components
    solved = np.linalg.solve(S[1:, 1:], S[0, 1:])
    truth = stats.norm(new[:, 1:] @ solved, np.sqrt(S[0, 0] - solved @ S[0, 1:]))
    asked = model.conditional(0, np.column_stack([np.full(400, np.nan), new[:, 1:]]))
    assert np.abs(asked.mean() - truth.mean()).mean() < 0.1 * truth.std().mean()
    gap = truth.logpdf(new[:, 0]) - asked.log_pdf(new[:, 0])
    assert gap.mean() < 0.05
    holes = np.where(rng.random(new.shape) < 0.3, np.nan, new)
    model.save(tmp_path / "one.rnade")
    other = load(tmp_path / "one.rnade")
    np.testing.assert_array_equal(model.impute(holes), other.impute(holes))
    np.testing.assert_array_equal(model.score_samples(holes), other.score_samples(holes))
