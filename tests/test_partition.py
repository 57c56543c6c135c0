"""Columns cut into cells: shares, densities and draws add up, by sums, integrals and scipy."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from rnade.backends import heads
from rnade.backends.heads import Layout, starting_biases
from rnade.columns.partition import CODE, LOG_WIDTH, WITHIN, ColumnCells
from rnade.nn.column_density import ColumnDensity

K = 3


def columns(seed: int, n: int = 300) -> dict[str, ColumnCells]:
    rng = np.random.default_rng(seed)
    numbers = ColumnCells.of_numbers
    money = np.where(rng.random(n) < 0.3, 0.0, rng.lognormal(size=n))
    heaped = np.where(
        rng.random(n) < 0.5, 50 * rng.integers(1, 20, n), rng.integers(1, 900, n)
    ).astype(float)
    return {
        "levels": ColumnCells.of_levels(rng.integers(0, 4, n).astype(float), 6),
        "many levels": ColumnCells.of_levels(rng.integers(0, 700, 2 * n).astype(float), 900),
        "counts": numbers(rng.poisson(2.0, n).astype(float), whole=True),
        "heaped": numbers(heaped, whole=True),
        "few rows": numbers(np.array([3.0, 3.0, 7.0]), whole=True),
        "real": numbers(rng.normal(5, 2, n), whole=False),
        "atoms": numbers(money, whole=False, atoms=[0.0]),
        "two atoms": numbers(
            np.concatenate([rng.uniform(0, 9, n), np.zeros(40), np.full(40, 9.0)]),
            whole=False,
            atoms=[0.0, 9.0],
        ),
        "only atoms": numbers(rng.choice([1.0, 2.5], n), whole=False, atoms=[1.0, 2.5]),
        "bounded": numbers(rng.beta(2, 2, n), whole=False, low=0, high=1),
        "touching bounds": numbers(
            np.append(rng.beta(2, 2, n), [0.0, 1.0]), whole=False, low=0, high=1
        ),
    }


NAMES = list(columns(0))
WHOLE = [name for name in NAMES if columns(0)[name].measure != 2]
REAL = [name for name in NAMES if columns(0)[name].measure == 2]


def density(column: ColumnCells, n_rows: int, seed: int, n_models: int = 2) -> ColumnDensity:
    """The same random outputs for so many rows."""
    generator = torch.Generator().manual_seed(seed)
    start = starting_biases([column], K).double()
    z = start + torch.randn(n_models, 1, len(start), dtype=torch.float64, generator=generator)
    return ColumnDensity(column, z.expand(-1, n_rows, -1), K)


def probability(column: ColumnCells, x: np.ndarray, seed: int) -> np.ndarray:
    return np.exp(density(column, len(x), seed).log_prob(x))


def support(column: ColumnCells) -> np.ndarray:
    """Levels with one not seen, or whole numbers far beyond the range."""
    if column.measure == 0:
        return np.arange(len(column.points) + 1.0)
    first, last = column.edges[[0, -1]] + [0.5, -0.5]
    width = 400 * max(1.0, last - first)
    return np.arange(first - width, last + width + 1)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", WHOLE)
def test_probabilities_sum_to_1(name, seed):
    column = columns(seed)[name]
    assert probability(column, support(column), seed).sum() == pytest.approx(1, abs=2e-4)


def integral(column: ColumnCells, seed: int, low: float, high: float) -> float:
    """Of the density between low and high, without atoms."""

    def at(x: float) -> float:
        return float(probability(column, np.array([x]), seed)[0])

    ends = [*column.edges, *column.atoms]
    marks = np.unique(np.clip([low, *ends, high], low, high))
    total = 0.0
    for a, b in pairwise(marks):
        total += integrate.quad(at, np.nextafter(a, b), np.nextafter(b, a), epsabs=1e-9)[0]
    return total


@pytest.mark.parametrize("name", REAL)
def test_densities_integrate_to_1(name):
    column = columns(0)[name]
    low, high = column.reach
    width = max(high - low, 1e-3)
    steps = width * np.array([0.01, 0.1, 1, 10, 1e3, 1e6])
    ends = np.concatenate([low - steps[::-1], [low, high], high + steps])
    ends = np.clip(ends, column.bounds[0], column.bounds[1])
    total = sum(integral(column, 0, a, b) for a, b in pairwise(ends) if b > a)
    total += probability(column, column.atoms, 0).sum()
    assert total == pytest.approx(1, abs=3e-4)


@pytest.mark.parametrize("name", NAMES)
def test_distribution_functions_add_up_densities(name):
    column, seed = columns(1)[name], 1
    if column.measure == 2:
        low, high = column.reach
        x = low + (high - low) * np.array([0.2, 0.55, 0.9])
        cdf = density(column, 3, seed).cdf(x)
        for i in range(2):
            between = integral(column, seed, x[i], x[i + 1])
            inner = column.atoms[(column.atoms > x[i]) & (column.atoms <= x[i + 1])]
            between += probability(column, inner, seed).sum()
            assert cdf[i + 1] - cdf[i] == pytest.approx(between, abs=1e-4)
    else:
        x = support(column)
        expected = probability(column, x, seed).cumsum()
        found = density(column, len(x), seed)
        np.testing.assert_allclose(found.cdf(x), expected, atol=2e-4)
        np.testing.assert_allclose(found.cdf(x, strictly=True)[1:], expected[:-1], atol=2e-4)


@pytest.mark.parametrize("q", [0.03, 0.4, 0.5, 0.97])
@pytest.mark.parametrize("name", NAMES)
def test_quantiles_are_the_smallest_values_of_their_share(name, q):
    found = density(columns(2)[name], 1, 2)
    x = found.quantile(q)
    column = found.column
    step = 1.0 if column.measure != 2 else 1e-6 * max(1.0, abs(float(x[0])))
    last = len(column.points) - 1.0 if column.measure == 0 else column.reach[1]
    last = np.floor(last) if column.measure == 1 else last
    assert found.cdf(x)[0] >= min(q, found.cdf(np.array([last]))[0]) - 1e-9
    low = column.reach[0] if column.measure else 0.0
    assert x[0] - step < low or found.cdf(x - step)[0] < q + 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_draws_follow_the_distribution_and_stay_in_the_table(name):
    column = columns(3)[name]
    n = 4000
    found = density(column, n, 3)
    x = found.sample(torch.Generator().manual_seed(0))
    cells = column.encode(x)
    assert (cells[:, CODE] >= 0).all()  # never outside
    low, high = found.cdf(x, strictly=True), found.cdf(x)
    drawn = np.random.default_rng(0).uniform(size=n)
    u = low + drawn * (high - low)
    # What lies outside the range is left out of draws: a small, known share.
    u = (u - found.cdf(np.full(n, column.reach[0]), strictly=True)) if column.measure else u
    outside = np.exp(column.outside[0])
    assert stats.kstest(u, "uniform").statistic < 0.035 + outside
    if column.measure == 0:
        assert set(x) <= set(column.points)


@pytest.mark.parametrize("name", [n for n in NAMES if "levels" not in n])
def test_means_are_those_of_draws(name):
    found = density(columns(4)[name], 20_000, 4)
    x = found.sample(torch.Generator().manual_seed(1))
    error = x.std() / np.sqrt(len(x))
    assert abs(found.mean()[0] - x.mean()) < 5 * error + 0.01 * x.std()


def test_new_levels_have_the_probability_that_is_kept_for_them():
    codes = np.array([0.0] * 40 + [1.0] * 9 + [2.0])
    column = ColumnCells.of_levels(codes, 3)
    found = density(column, 1, 0)
    kept = np.exp(column.outside[0])
    np.testing.assert_allclose(np.exp(found.log_prob(np.array([3.0]))), kept)
    assert found.probabilities().sum() == pytest.approx(1 - kept)
    assert kept == pytest.approx(1.5 / 52)  # one of 50 rows has a level of its own


def test_values_beyond_a_bound_have_no_density_and_others_some():
    column = columns(0)["bounded"]
    x = np.array([-0.1, 0.0001, 0.9999, 1.2])
    p = probability(column, x, 0)
    assert (p > 0).tolist() == [False, True, True, False]


@pytest.mark.parametrize("whole", [True, False])
def test_numbers_outside_the_range_have_a_low_density(whole):
    x = np.random.default_rng(0).integers(0, 50, 500).astype(float)
    column = ColumnCells.of_numbers(x if whole else x + 0.1 * x**1.1, whole=whole)
    p = probability(column, np.array([25.0, 80.0, 1e6, -1e9]), 0)
    assert np.isfinite(np.log(p)).all()
    assert (np.diff(p) < 0).all()


def test_heaps_are_known():
    """A value that many rows share has its share, even beside others in one cell."""
    rng = np.random.default_rng(0)
    x = np.where(rng.random(2000) < 0.5, 1000 * rng.integers(1, 40, 2000), rng.integers(1, 40_000))
    column = ColumnCells.of_numbers(x.astype(float), whole=True)
    log_p = column.encode(np.array([7000.0, 7001.0]))
    p = column.shares[log_p[:, CODE].astype(int)] * np.exp(log_p[:, WITHIN])
    assert p[0] > 20 * p[1]
    assert p[0] == pytest.approx((x == 7000).mean(), rel=0.5)


def test_huge_whole_numbers_take_no_room():
    column = ColumnCells.of_numbers(np.array([0.0, 5.0, 1e12, 3e14]), whole=True)
    found = density(column, 50, 0)
    assert np.isfinite(found.log_prob(found.sample(torch.Generator().manual_seed(0)))).all()
    assert np.isfinite(found.mean()).all()


def test_starting_outputs_give_the_shares_of_the_table():
    for column in columns(5).values():
        z = starting_biases([column], K).double()[None, None]
        found = ColumnDensity(column, z, K)
        share = 0.7 if column.has_smooth else 1.0
        np.testing.assert_allclose(found.cells[0], share * column.shares, rtol=1e-5)


def test_log_masses_are_those_of_scipy():
    low = torch.tensor([-800.0, -30.0, -1.0, 0.5, 20.0, 600.0], dtype=torch.float64)
    high = low + torch.tensor([3.0, 0.01, 2.5, 1e-6, 1.0, 50.0], dtype=torch.float64)
    found = heads.log_mass(low, high).numpy()
    expected = np.log(stats.logistic.cdf(high[1:4]) - stats.logistic.cdf(low[1:4]))
    np.testing.assert_allclose(found[1:4], expected, rtol=1e-5)
    assert found[0] == pytest.approx(float(high[0]), abs=0.1)  # e^high (1 - e^-3)
    assert found[5] == pytest.approx(-600.0, abs=1e-6)


def test_arrays_and_back():
    for column in columns(0).values():
        again = ColumnCells.from_arrays(column.arrays())
        x = np.linspace(-3, 8, 40).round(1 if column.measure == 2 else 0)
        np.testing.assert_array_equal(again.encode(x), column.encode(x))


def test_levels_have_no_smooth_scale():
    layout = Layout([columns(0)["levels"]], K)
    assert layout.n_outputs == 6
    assert (columns(0)["levels"].encode(np.arange(7.0))[:, LOG_WIDTH] == -np.inf).all()


def test_components_far_outside_the_range_are_at_its_nearer_end():
    """Densities by integration: a component 60 scales beyond the last value falls from there."""
    x = np.random.default_rng(0).normal(size=300)
    column = ColumnCells.of_numbers(x, whole=False)
    z = torch.full((1, 1, column.n_cells + 3), -40.0, dtype=torch.float64)
    last = column.ends[1]
    z[..., column.n_cells :] = torch.tensor([0.0, last + 6.0, np.log(0.1)])
    found = ColumnDensity(column, z.expand(-1, 3000, -1), 1)
    grid = np.linspace(*column.reach, 4001)[1:-1]
    p = np.exp(ColumnDensity(column, z.expand(-1, len(grid), -1), 1).log_prob(grid))
    mean = np.trapezoid(p * grid, grid) / np.trapezoid(p, grid)
    assert found.mean()[0] == pytest.approx(mean, abs=0.02)
    assert found.sample(torch.Generator().manual_seed(0)).mean() == pytest.approx(mean, abs=0.02)
    middle = found.quantile(0.5)
    assert found.cdf(middle)[0] == pytest.approx(0.5, abs=1e-6)
    assert middle[0] == pytest.approx(np.interp(0.5, p.cumsum() / p.sum(), grid), abs=0.02)


def test_values_that_differ_in_the_last_digit_have_no_cell_of_their_own():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(size=2000), np.full(60, 0.3), np.full(60, 0.1 * 3)])
    column = ColumnCells.of_numbers(x, whole=False)
    assert column.encode(np.array([0.3, 0.1 * 3]))[:, WITHIN].max() < 6
    spike = ColumnCells.of_numbers(
        np.concatenate([np.zeros(50), [0.1 + 0.2 - 0.3], rng.uniform(size=100)]),
        whole=False,
        atoms=[0.0],
    )
    assert np.isfinite(spike.cell_cdf(np.array([0.0, 1e-17, 0.5]))).all()


def test_far_and_huge_whole_numbers_have_a_density():
    column = ColumnCells.of_numbers(np.arange(101.0), whole=True)
    assert np.isfinite(probability(column, np.array([1e16, -1e16]), 0)).all()
    assert (probability(column, np.array([1e16, -1e16]), 0) > 0).all()
    nanoseconds = 1.7e18 + np.random.default_rng(0).integers(0, 10**16, 300)
    stamps = ColumnCells.of_numbers(nanoseconds, whole=True)
    assert np.isfinite(density(stamps, 300, 0).log_prob(nanoseconds)).all()


def test_columns_without_a_value_are_cut_all_the_same():
    none = np.empty(0)
    for column in (
        ColumnCells.of_levels(none, 3),
        ColumnCells.of_numbers(none, whole=True),
        ColumnCells.of_numbers(none, whole=False),
    ):
        assert np.isfinite(density(column, 2, 0).log_prob(np.array([0.0, 1.0]))).all()


def test_means_of_cells_are_those_of_values_spread_evenly_on_the_smooth_scale():
    column = ColumnCells.of_numbers(np.random.default_rng(0).lognormal(0, 3, 500), whole=False)
    t = column.position(column.edges[-2:])
    x = column.at_position(np.linspace(*t, 200_001))
    assert column.cell_means()[-1] == pytest.approx(x.mean(), rel=1e-4)
