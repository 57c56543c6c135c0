"""What single columns tell of others: found by counting, mixed with what a network says."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import chisquare

from rnade import RNADE, load
from rnade.backends import heads
from rnade.batch import Batch
from rnade.columns.links import UNAVAILABLE, Link, find_links
from rnade.columns.partition import N_FEATURES, ColumnCells
from rnade.nn.any_order import GIVEN, ROLE, AnyOrderModule
from rnade.nn.mixed_heads import FIRST_LINK
from rnade.nn.table import TableDensity, encoded
from rnade.training.any_order import with_roles


def table(seed: int = 0, n: int = 400) -> tuple[list[ColumnCells], np.ndarray]:
    """A level, whole numbers of which one is mostly the sum of two others; some cells missing."""
    rng = np.random.default_rng(seed)
    level = rng.integers(0, 3, n).astype(float)
    a, b = rng.integers(0, 30, (2, n)).astype(float)
    total = np.where(rng.random(n) < 0.8, a + b, rng.integers(0, 58, n))
    again = np.where(rng.random(n) < 0.7, level, rng.integers(0, 3, n))
    X = np.column_stack([level, again, a, b, total])
    columns = [ColumnCells.of_levels(x, 3) for x in X.T[:2]]
    columns += [ColumnCells.of_numbers(x, whole=True) for x in X.T[2:]]
    X[rng.random(X.shape) < 0.05] = np.nan
    return columns, X


def found(columns: list[ColumnCells], X: np.ndarray, weights: np.ndarray | None = None):
    return find_links(columns, X, encoded(columns, X)[..., :N_FEATURES].numpy(), weights)


def make(columns: list[ColumnCells], links: list[Link], **more: object) -> AnyOrderModule:
    settings = {"n_hidden": 7, "n_layers": 1, "n_components": 2, "dropout": 0.0} | more
    generator = torch.Generator().manual_seed(0)
    module = AnyOrderModule(columns, links=links, generator=generator, **settings).double()
    with torch.no_grad():
        module.V.normal_(0, 0.5, generator=generator)
        module.G.normal_(0, 0.5, generator=generator)
    return module


def test_sums_and_pairs_are_found_and_what_is_independent_is_not():
    columns, X = table()
    links = found(columns, X)
    said = {
        k.target: dict(zip(k.sources.astype(int).tolist(), k.signs.tolist(), strict=True))
        for k in links
        if not k.is_table
    }
    assert said == {4: {2: 1, 3: 1}, 2: {4: 1, 3: -1}, 3: {4: 1, 2: -1}}
    tables = {(k.target, int(k.sources[0])) for k in links if k.is_table}
    assert (0, 1) in tables
    assert (1, 0) in tables
    assert not {(0, 2), (2, 0), (1, 3), (2, 3)} & tables


def test_an_equal_column_is_found_and_a_coarse_one_needs_no_link():
    rng = np.random.default_rng(0)
    year = rng.integers(1900, 2000, 500).astype(float)
    late = np.where(rng.random(500) < 0.6, year, year + rng.integers(0, 20, 500))
    few = rng.integers(0, 2, (500, 2)).astype(float)
    X = np.column_stack([year, late, few])
    columns = [ColumnCells.of_numbers(x, whole=True) for x in X.T]
    said = [(k.target, *map(int, k.sources)) for k in found(columns, X) if not k.is_table]
    assert said == [(0, 1), (1, 0)]


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_that_were_counted_do_not_foretell_themselves(weighted):
    columns, X = table()
    w = np.random.default_rng(1).uniform(0.5, 2, len(X)) if weighted else np.ones(len(X))
    w = w / w.mean()
    link = next(k for k in found(columns, X, w) if k.is_table and k.target == 0)
    cells = encoded(columns, X)[..., :N_FEATURES].numpy()
    terms = link.terms(columns, X, cells, w)
    for row in np.flatnonzero(~np.isnan(X[:, [0, 1]]).any(1))[:20]:
        others = np.arange(len(X)) != row
        like = others & (X[:, 1] == X[row, 1])
        right = w[like & (X[:, 0] == X[row, 0])].sum()
        total = w[like & ~np.isnan(X[:, 0])].sum()
        alone = columns[0].shares[int(X[row, 0])]
        expected = np.log((right + link.prior * alone) / (total + link.prior))
        assert terms[row] == pytest.approx(expected + columns[0].log_inside)
    assert (terms[np.isnan(X[:, 1])] == UNAVAILABLE).all()


@pytest.mark.parametrize("sign", [1, -1])  # training gives minus the weights
def test_the_loss_and_its_gradient_are_those_of_the_mixture(sign):
    columns, X = table(n=60)
    links = found(*table())
    module = make(columns, links, dropout=0.3)
    x = encoded(columns, X, links)
    x = with_roles(x[..., :-1], x[..., -1] > 0, torch.Generator().manual_seed(1))[None]
    weights = sign * torch.linspace(0.1, 2, 60, dtype=torch.float64)[None]
    value = module.weighted_log_likelihood(Batch(x, weights))
    gradient = torch.autograd.grad(value.sum(), list(module.parameters()))
    h = module._hidden_units(x, x[..., :1, -1])
    p = heads.log_prob(
        torch.baddbmm(module.b, h, module.V), x[..., :N_FEATURES], module.layout
    ).exp()
    gates = torch.baddbmm(module.g, h, module.G).view(1, 60, 5, -1).exp()
    total = torch.ones_like(p)
    for d, own in enumerate(module.links):
        for r, link in enumerate(own):
            term = x[..., d, FIRST_LINK + r]
            given = (x[..., link.sources.astype(int), ROLE] == GIVEN).all(-1)
            there = given & (term < UNAVAILABLE)
            gate = torch.where(there, gates[..., d, r], 0.0)
            q = torch.where(there, term, 0.0).exp()
            p = p + torch.nn.functional.one_hot(torch.tensor(d), 5) * (gate * q)[..., None]
            total = total + torch.nn.functional.one_hot(torch.tensor(d), 5) * gate[..., None]
    role = x[..., ROLE].clamp_min(0)
    terms = torch.where(role > 0, (p / total).log(), 0.0)
    plain = ((role * terms).sum(-1) * weights).sum()
    torch.testing.assert_close(value.sum(), plain)
    expected = torch.autograd.grad(plain, list(module.parameters()))
    for a, b in zip(gradient, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("d", [0, 4])
def test_conditionals_sum_to_1_and_agree_with_terms_cdf_and_draws(d):
    columns, X = table()
    links = found(columns, X)
    density = TableDensity(columns, make(columns, links, n_models=2), torch.arange(5)[None])
    known = X[~np.isnan(X).any(1)][:3]
    support = np.arange(-3000, 3000.0) if d == 4 else np.arange(4.0)
    for row in known:
        rows = np.repeat(row[None], len(support), 0)
        rows[:, d] = support
        x = density.cells(rows)
        with torch.no_grad():
            column = density.column(d, x, x[..., -1] > 0)
            order = [*[j for j in range(5) if j != d], d]
            terms = density.networks.log_conditionals(x[..., :-1], x[..., -1] > 0, order)
        log_p = column.log_prob(support)
        averaged = terms[..., d].logsumexp(0) - np.log(2)
        np.testing.assert_allclose(log_p, averaged, rtol=1e-9, atol=1e-9)
        assert np.exp(log_p).sum() == pytest.approx(1, abs=2e-3)
        if d == 4:
            far = np.exp(log_p[support < -100]).sum()
            inside = (support > -100) & (support < 200)
            summed = np.cumsum(np.exp(log_p[inside])) + far
            held = (support > columns[4].reach[0]) & (support < columns[4].reach[1])
            mean = np.average(support[held], weights=np.exp(log_p[held]))
            np.testing.assert_allclose(column.mean(), mean, atol=0.1)
            np.testing.assert_allclose(column.cdf(support)[inside], summed, atol=1e-3)
            assert (column.quantile(0.5) == support[inside][np.argmax(summed >= 0.5)]).all()
        drawn = column.sample(torch.Generator().manual_seed(0))
        p = np.exp(log_p)
        bins = [drawn == row[2] + row[3], drawn < row[2] + row[3]] if d == 4 else [drawn == 0]
        of = [support == row[2] + row[3], support < row[2] + row[3]] if d == 4 else [support == 0]
        seen = np.array([b.sum() for b in bins])
        expected = np.array([p[o].sum() for o in of]) * len(drawn)
        rest = len(drawn) - np.array([seen.sum(), expected.sum()])
        assert chisquare([*seen, rest[0]], [*expected, rest[1]]).pvalue > 1e-4


def test_a_fitted_table_fills_sums_and_keeps_its_links_in_its_file(tmp_path):
    _, X = table(n=600)
    frame = pd.DataFrame(X[:, 2:], columns=["a", "b", "total"]).astype("Int64")
    model = RNADE(n_hidden=32, epochs=8, random_state=0, ensemble=None).fit(frame)
    asked = pd.DataFrame({"a": [3, 20, 11], "b": [4, 9, None], "total": [None, None, 30]})
    filled = model.impute(asked.astype("Int64"), "likeliest")
    assert filled["total"].tolist() == [7, 29, 30]
    assert filled["b"][2] == 19
    model.save(tmp_path / "m.rnade")
    again = load(tmp_path / "m.rnade")
    np.testing.assert_array_equal(model.score_samples(frame), again.score_samples(frame))
    drawn = again.sample(400, random_state=0).dropna()
    # By chance it would be a sixtieth.
    assert (drawn["a"] + drawn["b"] == drawn["total"]).mean() > 0.5
