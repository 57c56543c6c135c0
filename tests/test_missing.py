"""Mixtures of real-valued columns with missing cells, against closed forms, scipy and themselves.

And what models say that take no such tables.
"""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import stats
from torch import Generator

from rnade import (
    FVBN,
    FVSBN,
    NADE,
    RNADE,
    Gaussian,
    MixtureOfFactorAnalyzers,
    MixtureOfGaussians,
    load,
)
from rnade.nn import MixtureOfFactorAnalyzersModule, MixtureOfGaussiansModule
from rnade.nn.mixture import patterns
from rnade.training import EMSettings, fit_mixture
from rnade.training.em import starting_components
from rnade.training.em.steps import steps_for

MODULES = {
    "mog-1": lambda D: MixtureOfGaussiansModule(D, 1),
    "mog-3": lambda D: MixtureOfGaussiansModule(D, 3),
    "mog-3-bank": lambda D: MixtureOfGaussiansModule(D, 3, n_models=2),
    "mfa-3-2": lambda D: MixtureOfFactorAnalyzersModule(D, 3, 2),
}
ESTIMATORS = {
    "gaussian": Gaussian(random_state=0),
    "mog": MixtureOfGaussians(3, random_state=0),
    "mog-restarts": MixtureOfGaussians([1, 2], n_init=2, init="random", random_state=0),
    "mog-minibatch": MixtureOfGaussians(2, batch_size=50, max_iter=40, random_state=0),
    "mfa": MixtureOfFactorAnalyzers([1, 2], 2, random_state=0),
}


def table(seed: int = 0, n: int = 240, missing: float = 0.25) -> np.ndarray:
    """Two clusters of correlated columns in different units; the first row is all missing."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(2, 3, 3))
    X = np.concatenate([rng.normal(size=(n // 2, 3)) @ A + 3 * i for i, A in enumerate(root)])
    X[rng.random(X.shape) < missing] = np.nan
    X[0] = np.nan
    return X * [1, 100, 0.01] + [0, 5, 0]


def standardised(X: np.ndarray) -> torch.Tensor:
    return torch.as_tensor((X - np.nanmean(X, 0)) / np.nanstd(X, 0))


def started(kind: str, x: torch.Tensor, seed: int = 0):
    module = MODULES[kind](x.shape[1]).double()
    start = starting_components(
        x.nan_to_num(),
        module.n_components,
        "k-means++",
        Generator().manual_seed(seed),
        n_models=module.n_models,
        seen=~x.isnan(),
    )
    module.set_components(*start)
    return module


# ---------------------------------------------------------------- EM


@pytest.mark.parametrize("kind", MODULES)
def test_em_never_lowers_the_likelihood_of_the_observed_cells(kind, seed):
    x = standardised(table(seed))
    module = started(kind, x, seed)
    outcome = fit_mixture(
        module,
        x.nan_to_num(),
        EMSettings(max_iter=40, tol=0.0, patience=None),
        floor=torch.full((3,), 1e-8),
        generator=Generator(),
        seen=~x.isnan(),
    )
    scores = np.array([row["train"] for row in outcome.history])
    assert np.diff(scores, axis=0).min() > -1e-10
    assert (scores[-1] > scores[0] + 0.01).all()
    last = module.log_prob(x, seen=~x.isnan()).mean(-1).detach()
    np.testing.assert_allclose(last, scores[-1])


@pytest.mark.parametrize("kind", MODULES)
def test_complete_rows_have_the_same_sums_by_patterns(kind):
    x = standardised(table(missing=0.0))[1:]
    module = started(kind, x)
    steps, ones = steps_for(module, torch.zeros(3)), torch.ones(len(x))
    plain = steps.gather(x, ones)
    found = steps.gather(x, ones, list(patterns(torch.ones_like(x, dtype=torch.bool))))
    assert plain.keys() <= found.keys()
    for name, t in plain.items():
        got = found[name]
        if name == "second":  # of which the lower triangle counts
            got, t = got.tril(), t.tril()
        torch.testing.assert_close(got, t)


@pytest.mark.parametrize("kind", MODULES)
def test_expected_sums_are_those_of_the_conditional_normal(kind):
    """Of one row with a gap, by the textbook's formulas and scipy's densities."""
    x = standardised(table())
    module = started(kind, x)
    row, seen = (
        torch.tensor([[0.3, torch.nan, -0.4]]).double(),
        torch.tensor([[True, False, True]]),
    )
    sums = steps_for(module, torch.zeros(3)).gather(row, torch.ones(1), list(patterns(seen)))
    C, mu = module.covariances()[0].detach().numpy(), module.mu[0].detach().numpy()
    o = [0, 2]
    log_joint = [
        stats.multivariate_normal(m[o], c[np.ix_(o, o)]).logpdf(row[0, o].numpy())
        for m, c in zip(mu, C, strict=True)
    ] + module.log_alpha[0].detach().numpy()
    r = np.exp(log_joint - np.logaddexp.reduce(log_joint))
    np.testing.assert_allclose(sums["n"][0], r)
    A = np.stack([np.linalg.solve(c[np.ix_(o, o)], c[o, 1]) for c in C])
    mean = mu[:, 1] + (A * (row[0, o].numpy() - mu[:, o])).sum(1)
    variance = C[:, 1, 1] - (A * C[:, o, 1]).sum(1)
    np.testing.assert_allclose(sums["first"][0, :, 1], r * mean)
    np.testing.assert_allclose(sums["first"][0, :, 0], r * 0.3)
    np.testing.assert_allclose(sums["second"][0, :, 1, 1], r * (mean**2 + variance))
    np.testing.assert_allclose(sums["second"][0, :, 2, 1], r * mean * -0.4)


def test_cells_missing_below_a_threshold_give_the_factored_regression():
    """Little and Rubin's monotone pattern, whose likeliest parameters have a closed form.

    The second column is missing where the first is large, so that complete rows are biased.
    """
    rng = np.random.default_rng(0)
    a = rng.normal(10, 2, size=500)
    b = 3 - 0.8 * a + rng.normal(size=500)
    X = np.column_stack([a, np.where(a > 11, np.nan, b)])
    slope, at_zero = np.polyfit(a[a <= 11], b[a <= 11], 1)
    left = np.var(b[a <= 11] - at_zero - slope * a[a <= 11])
    covariance = np.var(a) * np.array([[1, slope], [slope, slope**2]]) + np.diag([0, left])
    model = Gaussian(random_state=0).fit(X)  # trained again on all rows
    np.testing.assert_allclose(model.mean_, [a.mean(), at_zero + slope * a.mean()], rtol=1e-4)
    np.testing.assert_allclose(model.covariance_, covariance, rtol=1e-3)
    assert abs(np.nanmean(X[:, 1]) - model.mean_[1]) > 0.5


def test_no_other_gaussian_is_likelier(seed):
    """Observed cells by scipy: any small step from what is fitted goes down."""
    X = table(seed)[1:]
    model = Gaussian(random_state=0).fit(X)
    rng = np.random.default_rng(seed)
    unit = np.nanstd(X, 0)

    def score(mean, covariance):
        return sum(
            stats.multivariate_normal(mean[o], covariance[np.ix_(o, o)]).logpdf(x[o])
            for x in X
            if (o := ~np.isnan(x)).any()
        )

    best = score(model.mean_, model.covariance_)
    assert best / len(X) == pytest.approx(model.score(X))
    for _ in range(20):
        step, root = 0.02 * rng.normal(size=3), 0.02 * rng.normal(size=(3, 3))
        turned = np.eye(3) + root * unit[:, None] / unit
        other = turned @ model.covariance_ @ turned.T
        assert score(model.mean_ + step * unit, other) < best


# ---------------------------------------------------------------- estimators


@pytest.mark.parametrize("name", ESTIMATORS)
def test_scores_are_those_of_the_marginals(name):
    X = table()
    model = ESTIMATORS[name].fit(X)
    if name == "gaussian":
        parts = [(1.0, model.mean_, model.covariance_)]
    else:
        parts = list(zip(model.weights_, model.means_, model.covariances_, strict=True))
    expected = [
        np.log(
            sum(
                w * stats.multivariate_normal(m[o], C[np.ix_(o, o)]).pdf(x[o]) if o.any() else w
                for w, m, C in parts
            )
        )
        for x, o in zip(X, ~np.isnan(X), strict=True)
    ]
    scores = model.score_samples(X)
    np.testing.assert_allclose(scores, expected, atol=1e-9)
    assert scores[0] == pytest.approx(0)
    terms = model.log_conditionals(X)
    np.testing.assert_allclose(terms.sum(1), scores)
    assert (terms[np.isnan(X)] == 0).all()
    assert model.score(X, sample_weight=np.ones(len(X))) == pytest.approx(scores.mean())


@pytest.mark.parametrize("name", ESTIMATORS)
def test_models_of_gaps_sample_rank_and_are_saved(name, tmp_path):
    X = table()
    model = ESTIMATORS[name].fit(X)
    drawn = model.sample(4000, random_state=0)
    assert np.isfinite(drawn).all()
    np.testing.assert_allclose(drawn.mean(0) / np.nanstd(X, 0), 0, atol=4)
    assert ((model.pvalue(X) > 0) & (model.pvalue(X) <= 1)).all()
    model.save(tmp_path / "m.rnade")
    np.testing.assert_array_equal(
        load(tmp_path / "m.rnade").score_samples(X), model.score_samples(X)
    )


def test_pit_is_of_the_observed_cells_given_those_before():
    X = table()
    model = Gaussian(random_state=0).fit(X)
    u = model.pit(X, random_state=0)
    np.testing.assert_array_equal(np.isnan(u), np.isnan(X))
    row = np.flatnonzero((np.isnan(X) == [False, True, False]).all(1))[0]
    m, C = model.mean_, model.covariance_
    slope = C[0, 2] / C[0, 0]
    last = stats.norm(m[2] + slope * (X[row, 0] - m[0]), np.sqrt(C[2, 2] - slope * C[0, 2])).cdf(
        X[row, 2]
    )
    np.testing.assert_allclose(
        u[row, [0, 2]], [stats.norm(m[0], C[0, 0] ** 0.5).cdf(X[row, 0]), last]
    )
    low = model.conditional_quantiles(X, 0.05)
    np.testing.assert_array_equal(np.isnan(low), np.isnan(X))


def test_pits_of_a_right_model_are_uniform():
    rng = np.random.default_rng(1)
    X = MixtureOfGaussians(2, random_state=0).fit(table()).sample(1500, random_state=0)
    X[rng.random(X.shape) < 0.3] = np.nan
    u = MixtureOfGaussians(2, random_state=0).fit(X).pit(X)
    for column in u.T:
        assert stats.kstest(column[~np.isnan(column)], "uniform").pvalue > 1e-3


def test_the_number_of_components_is_chosen_with_gaps_too():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2)) + 8 * rng.integers(0, 2, size=(600, 1))
    X[rng.random(X.shape) < 0.3] = np.nan
    model = MixtureOfGaussians([1, 2], random_state=0).fit(X)
    assert model.n_components_ == 2
    np.testing.assert_allclose(np.sort(model.means_[:, 0]), [0, 8], atol=0.4)


def test_a_row_of_weight_two_is_two_rows():
    X = table()
    w = np.r_[np.full(20, 2.0), np.ones(len(X) - 20)]
    weighted = Gaussian(random_state=0).fit(X, sample_weight=w)
    twice = Gaussian(random_state=0).fit(np.r_[X, X[:20]])
    np.testing.assert_allclose(weighted.standardiser_.scale, twice.standardiser_.scale)
    np.testing.assert_allclose(weighted.mean_, twice.mean_, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(weighted.covariance_, twice.covariance_, rtol=2e-3, atol=1e-4)


FORMS = {
    "masked": lambda X: np.ma.masked_invalid(X),
    "none": lambda X: np.where(np.isnan(X), None, X),
    "na": lambda X: np.where(np.isnan(X), pd.NA, X),
    "pandas": lambda X: pd.DataFrame(X).set_axis(list("abc"), axis=1),
    "nullable": lambda X: pd.DataFrame(X).set_axis(list("abc"), axis=1).astype("Float64"),
    "objects": lambda X: pd.DataFrame(np.where(np.isnan(X), pd.NA, X), columns=list("abc")),
    "polars": lambda X: pl.DataFrame(X, schema=["a", "b", "c"]).fill_nan(None),
    "arrow": lambda X: pl.DataFrame(X, schema=["a", "b", "c"]).fill_nan(None).to_arrow(),
}


@pytest.mark.parametrize("form", FORMS)
def test_missing_cells_may_be_written_in_any_way(form):
    X = table()
    expected = ESTIMATORS["mog"].fit(X).score_samples(X)
    given = FORMS[form](X)
    np.testing.assert_array_equal(ESTIMATORS["mog"].fit(given).score_samples(given), expected)


def test_columns_of_which_nothing_can_be_learned_are_named():
    X = table()
    empty = np.column_stack([X, np.full(len(X), np.nan)])
    with pytest.raises(ValueError, match="No cell is observed in column 3 of X: leave out such"):
        MixtureOfGaussians(2).fit(empty)
    constant = np.column_stack([X, np.where(np.isnan(X[:, 0]), np.nan, 7.0)])
    with pytest.raises(ValueError, match="X is constant in column 3"):
        Gaussian().fit(constant)
    with pytest.raises(ValueError, match="column 3 can be computed exactly from the columns"):
        Gaussian().fit(np.column_stack([X, X[:, 0]]))
    X[3, 1] = np.inf
    with pytest.raises(ValueError, match="the first is inf in row 3, column 1. Infinite values"):
        MixtureOfGaussians(2).fit(X)


# ---------------------------------------------------------------- who takes what

NUMBERS = np.random.default_rng(0).normal(size=(30, 2))
CITY = pd.DataFrame(NUMBERS, columns=["a", "b"]).assign(city=["Oslo", "Rome", "Bonn"] * 10)
DAYS = CITY.assign(city=pd.Timestamp("2020-01-01"))
GAP = pd.DataFrame(NUMBERS, columns=["a", "b"])
GAP.loc[4, "b"] = np.nan
COMPLETE = {
    r"FVBN\(columns='real'\)": FVBN(columns="real"),
    r"RNADE\(columns='real'\)": RNADE(columns="real"),
}
OF_LEVELS = {"NADE": NADE(), "FVSBN": FVSBN()}
OF_NUMBERS = COMPLETE | {
    "Gaussian": Gaussian(),
    "MixtureOfGaussians": MixtureOfGaussians(),
    "MixtureOfFactorAnalyzers": MixtureOfFactorAnalyzers(),
}


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_models_of_numbers_say_which_take_other_tables(name):
    model, other = OF_NUMBERS[name], "take tables of any kind|takes tables of any kind"
    took = f"{name} takes {'complete ' if name in COMPLETE else ''}columns of numbers"
    for X in (CITY, pl.from_pandas(CITY)):
        with pytest.raises(ValueError, match=f"^{took}; column 'city' holds text. .*({other})"):
            model.fit(X)
    with pytest.raises(ValueError, match=f"^{took}; column 'city' holds dates. .*({other})"):
        model.fit(DAYS)
    for X in (CITY.to_numpy(), CITY.to_numpy().astype(str)):
        with pytest.raises(ValueError, match=f"^{took}; X holds text .*({other})"):
            model.fit(X)


@pytest.mark.parametrize("name", COMPLETE | OF_LEVELS)
def test_models_of_complete_columns_say_which_take_missing_cells(name):
    where = r"X holds 1 missing .* the first is nan in row 4, column"
    for X in (GAP, GAP.to_numpy()):
        with pytest.raises(ValueError, match=f"^{name} takes complete columns of .* {where}.*any"):
            (COMPLETE | OF_LEVELS)[name].fit(X)


def test_a_model_of_a_complete_table_says_so_when_asked_for_gaps():
    model = RNADE(n_hidden=2, epochs=1, ensemble=None, random_state=0).fit(NUMBERS)
    with pytest.raises(ValueError, match="^RNADE was fitted to complete columns of numbers; X"):
        model.score_samples(GAP.to_numpy())
