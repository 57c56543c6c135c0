"""Networks that predict any column from any others, and their minibatches."""

from itertools import permutations

import numpy as np
import pytest
import torch

from rnade import RNADE, load
from rnade.backends import heads
from rnade.batch import Batch
from rnade.columns.partition import N_FEATURES, ColumnCells
from rnade.nn.any_order import GIVEN, ROLE, SEED, AnyOrderModule, _hashed
from rnade.nn.table import TableDensity, encoded
from rnade.training import Bank, Member, make_recipe
from rnade.training.any_order import POWER, AnyOrderRows, with_roles


def table(seed: int = 0, n: int = 90) -> tuple[list[ColumnCells], np.ndarray]:
    """Levels, counts that depend on them, a real column with zeros; some cells missing."""
    rng = np.random.default_rng(seed)
    level = rng.integers(0, 3, n).astype(float)
    count = rng.poisson(1 + 3 * level).astype(float)
    money = np.where(rng.random(n) < 0.3, 0.0, rng.lognormal(size=n))
    X = np.column_stack([level, count, money])
    columns = [
        ColumnCells.of_levels(level, 3),
        ColumnCells.of_numbers(count, whole=True),
        ColumnCells.of_numbers(money, whole=False, atoms=[0.0]),
    ]
    X[rng.random(X.shape) < 0.1] = np.nan
    return columns, X


def make(columns: list[ColumnCells], seed: int = 0, **more: object) -> AnyOrderModule:
    settings = {"n_hidden": 7, "n_layers": 2, "n_components": 2, "dropout": 0.0} | more
    generator = torch.Generator().manual_seed(seed)
    module = AnyOrderModule(columns, generator=generator, **settings).double()
    with torch.no_grad():
        module.V.normal_(0, 0.5, generator=generator)
    return module


def parts(columns: list[ColumnCells], X: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    x = encoded(columns, X)
    return x[..., :N_FEATURES], x[..., -1] > 0


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_a_walk_gives_what_conditionals_give(order):
    columns, X = table()
    module = make(columns, n_models=2)
    cells, seen = parts(columns, X)
    terms = module.log_conditionals(cells, seen, order)
    given = torch.zeros_like(seen)
    for d in order:
        z = module.conditionals(cells, given & seen, d)
        layout = heads.Layout([columns[d]], 2)
        expected = heads.log_prob(z, cells[None, :, d : d + 1], layout)[..., 0]
        expected = torch.where(seen[:, d], expected, 0.0)
        torch.testing.assert_close(terms[..., d], expected)
        given[:, d] = True


def test_what_is_not_given_does_not_matter():
    columns, X = table()
    module = make(columns)
    cells, seen = parts(columns, X)
    given = seen & torch.tensor([True, False, False])
    changed = cells.clone()
    changed[:, 1:] = parts(columns, X[::-1].copy())[0][:, 1:]
    z = module.conditionals(cells, given, 2)
    torch.testing.assert_close(module.conditionals(changed, given, 2), z, rtol=0, atol=0)
    other = cells.clone()
    other[:, 0] = cells.flip(0)[:, 0]
    assert (module.conditionals(other, given, 2) != z).any()


def test_that_a_cell_was_seen_is_told_apart_from_its_value():
    columns, X = table()
    module = make(columns)
    cells, _ = parts(columns, np.nan_to_num(X))
    none, all_of_them = torch.zeros(90, 3, dtype=torch.bool), torch.ones(90, 3, dtype=torch.bool)
    blind, sighted = (module.conditionals(cells, given, 0) for given in (none, all_of_them))
    assert (blind != sighted).any()


def test_weighted_terms_of_cuts_are_log_densities_along_orders_on_average():
    columns, X = table(n=4)
    module = make(columns)
    cells, seen = parts(columns, X)
    orders = map(list, permutations(range(3)))
    along = [module.log_conditionals(cells, seen, order).sum(-1)[0] for order in orders]
    expected = torch.stack(along).mean(0)
    n = 30_000
    generator = torch.Generator().manual_seed(0)
    roles = with_roles(cells.repeat(n, 1, 1), seen.repeat(n, 1), generator)
    with torch.no_grad():
        found = module.log_prob(roles[None]).view(n, 4)
    error = found.std(0) / n**0.5
    assert ((found.mean(0) - expected).abs() < 5 * error + 1e-9).all()


def test_roles_are_those_of_a_cut():
    columns, X = table()
    cells, seen = parts(columns, X)
    x = with_roles(cells, seen, torch.Generator().manual_seed(0))
    role = x[..., ROLE]
    assert (role[~seen] == 0).all()
    # A cell that is predicted counts the less, the more often cuts leave so many.
    left = (role > 0).sum(-1)[seen.all(-1)]
    asked = role[seen.all(-1)]
    for j in (1, 2, 3):
        of_j = asked[left == j]
        probability = (j / 3) ** (1 / POWER) - ((j - 1) / 3) ** (1 / POWER)
        expected = torch.tensor([GIVEN] * (3 - j) + [1 / (j * probability)] * j).to(of_j)
        torch.testing.assert_close(of_j.sort(-1)[0], expected.expand_as(of_j))
    torch.testing.assert_close(x[..., :N_FEATURES], cells)
    assert (x[..., SEED] == x[:, :1, SEED]).all()


def test_the_loss_and_its_gradient_are_those_of_plain_torch():
    columns, X = table()
    module = make(columns, dropout=0.3)
    cells, seen = parts(columns, X)
    x = with_roles(cells, seen, torch.Generator().manual_seed(1))[None]
    weights = torch.linspace(0.1, 2, 90, dtype=torch.float64)[None]
    value = module.weighted_log_likelihood(Batch(x, weights))
    found = torch.autograd.grad(value.sum(), list(module.parameters()))
    z = torch.baddbmm(module.b, module._hidden_units(x, x[..., :1, SEED]), module.V)
    terms = heads.log_prob(z, x[..., :N_FEATURES], module.layout)
    role = x[..., ROLE].clamp_min(0)
    plain = (torch.where(role > 0, role * terms, 0.0).sum(-1) * weights).sum()
    expected = torch.autograd.grad(plain, list(module.parameters()))
    torch.testing.assert_close(value.sum(), plain)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_leaves_out_its_share_and_keeps_the_mean(rate):
    seed = torch.rand(400, 1, generator=torch.Generator().manual_seed(0))
    left_out = (_hashed(seed, 64, 0) < round(rate * 2**8)).float().unbind(-1)  # of four layers
    for own in left_out:
        assert own.mean() == pytest.approx(rate, abs=0.02)
        assert own.mean(0).max() < rate + 0.12  # every unit
        assert own.mean(1).max() < rate + 0.35  # every row
    assert (left_out[0] * left_out[1]).mean() == pytest.approx(rate**2, abs=0.02)
    module = make(table()[0], dropout=rate, n_hidden=64).float()
    s = torch.randn(1, 400, 64, generator=torch.Generator().manual_seed(1))
    kept, whole = module._hidden(s, seed[None]), module._hidden(s, None)
    assert (kept == 0).float().mean() == pytest.approx(rate, abs=0.03)
    assert kept.mean().item() == pytest.approx(whole.mean().item(), abs=0.05)


def test_a_bank_trains_each_network_as_if_alone():
    columns, X = table(n=60)
    x = encoded(columns, X).float()
    cells, seen = x[..., :N_FEATURES], x[..., -1] > 0
    recipe = make_recipe("modern", epochs=3, batch_size=20, batches_per_epoch=4)

    def member(seed: int) -> Member:
        generator = torch.Generator().manual_seed(seed)
        source = AnyOrderRows(cells, seen, generator)
        held_out = Batch(with_roles(cells, seen, torch.Generator().manual_seed(9)))
        return Member(make(columns, seed).float(), recipe, source, held_out)

    together = Bank([member(0), member(1)])
    together.advance()
    alone = Bank([member(1)])
    alone.advance()
    first, second = together.results()[1].module, alone.results()[0].module
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert (
        together.results()[0].history[-1]["validation"]
        > together.results()[0].history[0]["validation"]
    )


@pytest.mark.parametrize("n_models", [1, 2])
def test_table_densities_sum_to_1(n_models):
    """Over all rows of three columns with probabilities, some cells not observed."""
    rng = np.random.default_rng(0)
    columns = [
        ColumnCells.of_levels(rng.integers(0, 2, 50).astype(float), 2),
        ColumnCells.of_levels(rng.integers(0, 3, 50).astype(float), 3),
        ColumnCells.of_numbers(rng.integers(0, 4, 50).astype(float), whole=True),
    ]
    orders = torch.tensor([[0, 1, 2], [2, 0, 1], [1, 2, 0]])
    density = TableDensity(columns, make(columns, n_models=n_models), orders)
    axes = [0, 1, 2], [0, 1, 2, 3], np.arange(-300, 300.0)
    grid = np.stack(np.meshgrid(*axes), -1).reshape(-1, 3)
    with torch.no_grad():
        assert density.log_prob(density.cells(grid)).exp().sum() == pytest.approx(1, abs=1e-3)
        some = np.unique(np.where([True, False, True], grid, np.nan)[:, [0, 2]], axis=0)
        some = np.insert(some, 1, np.nan, axis=1)
        assert density.log_prob(density.cells(some)).exp().sum() == pytest.approx(1, abs=1e-3)
        terms = density.log_conditionals(density.cells(grid[:40]))
        torch.testing.assert_close(terms.sum(1), density.log_prob(density.cells(grid[:40])))
        nothing = density.log_prob(density.cells(np.full((2, 3), np.nan)))
    assert (nothing == 0).all()


def test_draws_follow_the_density():
    rng = np.random.default_rng(0)
    columns = [ColumnCells.of_levels(rng.integers(0, 2, 50).astype(float), 2) for _ in range(3)]
    orders = torch.tensor([[0, 1, 2], [2, 1, 0]])
    density = TableDensity(columns, make(columns, n_models=2), orders)
    X = density.sample(20_000, torch.Generator().manual_seed(0))
    rows = np.stack(np.meshgrid([0, 1], [0, 1], [0, 1]), -1).reshape(-1, 3).astype(float)
    with torch.no_grad():
        p = density.log_prob(density.cells(rows)).exp().numpy()
    found = np.array([(X == row).all(1).mean() for row in rows])
    p = p / p.sum()
    assert (np.abs(found - p) < 5 * np.sqrt(p * (1 - p) / len(X)) + 1e-6).all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_fits_and_scores_as_the_cpu_scores(tmp_path):
    _, X = table(n=400)
    model = RNADE(random_state=0, n_hidden=16, epochs=4, device="cuda").fit(X)
    assert model.history_[-1]["validation"] > model.history_[0]["validation"]
    model.save(tmp_path / "m.rnade")
    there = load(tmp_path / "m.rnade", device="cpu")
    np.testing.assert_allclose(model.score_samples(X), there.score_samples(X), rtol=1e-6)
    assert there.sample(5, random_state=0).shape == (5, 3)
