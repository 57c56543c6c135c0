"""`MixtureOfColumns`: tables of any kind by latent classes, against sums over all their values."""

import itertools

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import stats
from sklearn.metrics import adjusted_rand_score
from torch import Generator

from rnade import MixtureOfColumns, load
from rnade.batch import Batch
from rnade.columns.partition import ColumnCells
from rnade.exceptions import SpikeWarning
from rnade.nn.latent_classes import LatentClassesModule, log_joint, places
from rnade.nn.table import encoded
from rnade.training import EMSettings
from rnade.training.em.classes import fit_classes
from tests.test_mixed import frame


def levels(n: int = 400, seed: int = 0, missing: float = 0.1) -> tuple[pd.DataFrame, np.ndarray]:
    """Two classes of three columns, and which class each row is of."""
    rng = np.random.default_rng(seed)
    k = rng.integers(0, 2, n)
    table = pd.DataFrame(
        {
            "city": np.array(["Oslo", "Rome", "Bonn"])[np.where(k, 2, rng.integers(0, 2, n))],
            "owner": np.where(k, rng.random(n) < 0.9, rng.random(n) < 0.1),
            "grade": pd.Categorical(np.array(["low", "high"])[k ^ (rng.random(n) < 0.15)]),
        }
    ).astype({"owner": "boolean"})
    return table.mask(rng.random(table.shape) < missing), k


@pytest.fixture(scope="module")
def fitted() -> MixtureOfColumns:
    return MixtureOfColumns(3, random_state=0).fit(levels()[0])


@pytest.fixture(scope="module")
def mixed() -> MixtureOfColumns:
    return MixtureOfColumns([1, 4], random_state=0).fit(frame(400))


def every_row(table: pd.DataFrame) -> pd.DataFrame:
    """All combinations of the levels of a table, and of one that it has not."""
    found = [[*table[name].dropna().unique().tolist()] for name in table]
    found[0].append("Lima")
    found[2].append("middling")
    whole = pd.DataFrame(list(itertools.product(*found)), columns=table.columns)
    return whole.astype({"owner": "boolean"})


def test_probabilities_of_all_rows_sum_to_one(fitted):
    rows = every_row(levels()[0])
    assert len(rows) == 4 * 2 * 3
    p = np.exp(fitted.score_samples(rows))
    assert p.sum() == pytest.approx(1, abs=1e-6)
    for name in rows:
        gaps = rows.assign(**{name: None}).astype({"owner": "boolean"})
        marginal = pd.Series(p).groupby([rows[other] for other in rows if other != name])
        np.testing.assert_allclose(np.exp(fitted.score_samples(gaps)), marginal.transform("sum"))
    nothing = rows[:1].assign(city=None, owner=pd.NA, grade=None).astype({"owner": "boolean"})
    assert fitted.score_samples(nothing) == pytest.approx(0)


def test_conditionals_are_ratios_of_joint_probabilities(fitted):
    rows = every_row(levels()[0])
    rows = rows[(rows.city != "Lima") & (rows.grade != "middling")].reset_index(drop=True)
    p = pd.Series(np.exp(fitted.score_samples(rows)))
    values, seen = fitted.schema_.encode(rows)
    values = np.where(seen, values, np.nan)
    found = fitted.column_density(values, 0).probabilities()
    new = np.exp(fitted.module_.columns[0].outside[0])
    rest = p.groupby([rows.owner, rows.grade]).transform("sum") / (1 - new)
    own = found[np.arange(len(rows)), values[:, 0].astype(int)]
    np.testing.assert_allclose(own, p / rest)
    np.testing.assert_allclose(found.sum(1), 1 - new)


def test_terms_and_scores_agree(mixed):
    table = frame(50, seed=1)
    terms, scores = mixed.log_conditionals(table), mixed.score_samples(table)
    np.testing.assert_allclose(terms.sum(1), scores)
    assert (terms[table.isna().to_numpy()] == 0).all()


def test_a_density_of_numbers_integrates_to_one():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=300), rng.normal(10, 0.5, size=300)])
    table = pd.DataFrame({"x": x, "side": np.where(x > 5, "right", "left")})
    model = MixtureOfColumns(2, random_state=0).fit(table)
    axis = np.linspace(-60, 80, 400_001)
    density = np.exp(model.score_samples(pd.DataFrame({"x": axis, "side": None})))
    assert np.trapezoid(density, axis) == pytest.approx(1, abs=1e-3)


def test_two_planted_classes_are_found(seed):
    table, k = levels(1000, seed)
    model = MixtureOfColumns((1, 2), random_state=0).fit(table)
    assert model.n_components_ == 2
    assert [row["n_components"] for row in model.search_] == [1, 2]
    np.testing.assert_allclose(model.weights_, 0.5, atol=0.08)
    module = model.module_
    x = module.cells(np.where(*_encoded(model, table), np.nan))
    at = places(module.columns, x)
    found = log_joint(at, module.log_alpha, module.log_shares).argmax(1)
    assert adjusted_rand_score(k, found.numpy()) > 0.6


def _encoded(model, table):
    values, seen = model.schema_.encode(table)
    return seen, values


def test_em_never_lowers_the_log_posterior(seed):
    """The likelihood with the Dirichlet priors, one iteration after the other."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.integers(0, 5, 200), rng.normal(size=200)])
    X[:100] += [1, 2]
    X[rng.random(X.shape) < 0.2] = np.nan
    cells = [ColumnCells.of_numbers(x[~np.isnan(x)], whole=i == 0) for i, x in enumerate(X.T)]
    module, prior = LatentClassesModule(cells, 3).double(), 2.0
    x = encoded(cells, X)
    margins = torch.cat([torch.as_tensor(c.shares) for c in cells])
    before = -np.inf
    for n in range(1, 25):
        fit_classes(
            module,
            Batch(x),
            EMSettings(max_iter=n, tol=0.0, patience=None),
            prior=prior,
            generator=Generator().manual_seed(seed),
        )
        log_prior = (margins[:, None] * module.log_shares).sum() + module.log_alpha.mean()
        now = (module.log_prob(x).sum() + prior * log_prior).item()
        assert now > before - 1e-9
        before = now


def test_one_class_has_the_shares_of_the_columns():
    table, _ = levels()
    model = MixtureOfColumns(1, prior=1e-9, retrain=True, random_state=0).fit(table)
    p = model.column_density(np.full((1, 3), np.nan), 0).probabilities()[0]
    shares = table.city.value_counts(normalize=True)
    expected = [shares[level] for level in model.schema_.columns[0].levels]
    np.testing.assert_allclose(p / p.sum(), expected, rtol=1e-6)


def test_draws_follow_the_density(fitted):
    drawn = fitted.sample(20_000, random_state=0)
    assert drawn.dtypes.equals(levels()[0].dtypes)
    assert not drawn.isna().any().any()
    rows = every_row(levels()[0])
    p = pd.Series(np.exp(fitted.score_samples(rows)), pd.MultiIndex.from_frame(rows))
    counts = drawn.value_counts().reindex(p.index, fill_value=0)
    known = counts.index.get_level_values(0) != "Lima"
    known &= counts.index.get_level_values(2) != "middling"
    assert counts[~known].sum() == 0
    expected = p[known] / p[known].sum() * len(drawn)
    assert stats.chisquare(counts[known], expected).pvalue > 1e-3


def test_tables_of_all_kinds_are_sampled_imputed_and_ranked(mixed):
    table = frame(200, seed=2)
    drawn = mixed.sample(50, random_state=0)
    assert drawn.dtypes.equals(table.dtypes)
    pd.testing.assert_frame_equal(drawn, mixed.sample(50, random_state=0))
    filled = mixed.impute(table)
    assert not filled.isna().any().any()
    pd.testing.assert_series_equal(filled.rooms, table.rooms)
    assert 0.3 < mixed.pvalue(table).mean() < 0.7
    u = mixed.pit(table, random_state=0)
    np.testing.assert_array_equal(np.isnan(u), table.isna())
    for column in u.T:
        assert stats.kstest(column[~np.isnan(column)], "uniform").pvalue > 1e-4
    odd = table[:1].assign(income=1e9, city="Atlantis")
    assert mixed.pvalue(odd)[0] < 0.05


def test_it_knows_of_dependence(mixed):
    """In `frame` the city says how many rooms there are."""
    alone = MixtureOfColumns(1, random_state=0).fit(frame(400))
    held_out = frame(2000, seed=3)
    assert mixed.score(held_out) > alone.score(held_out) + 0.2


def test_which_cells_are_missing_is_modelled_if_asked():
    table, _ = levels(missing=0.3)
    model = MixtureOfColumns(2, missing="informative", random_state=0).fit(table)
    shares = model.sample(4000, random_state=0).isna().mean()
    np.testing.assert_allclose(shares, table.isna().mean(), atol=0.06)
    drawn = model.sample_values(4000, random_state=0)[:, :3]
    np.testing.assert_array_equal(np.isnan(drawn).mean(0), shares)


def test_model_files_give_the_same_model(mixed, tmp_path):
    mixed.save(tmp_path / "m.rnade")
    again, table = load(tmp_path / "m.rnade"), frame(60, seed=4)
    np.testing.assert_array_equal(again.score_samples(table), mixed.score_samples(table))
    pd.testing.assert_frame_equal(again.sample(20, random_state=1), mixed.sample(20, 1))
    assert again.n_components_ == mixed.n_components_


def test_frames_and_arrays_give_the_same():
    X = np.random.default_rng(0).normal(size=(200, 2))
    X[::7, 0] = np.nan
    scores = [
        MixtureOfColumns(2, random_state=0).fit(given).score_samples(given)
        for given in (X, np.ma.masked_invalid(X), pd.DataFrame(X, columns=["a", "b"]))
    ]
    given = pl.DataFrame(X, schema=["a", "b"]).fill_nan(None)
    scores.append(MixtureOfColumns(2, random_state=0).fit(given).score_samples(given))
    for other in scores[1:]:
        np.testing.assert_array_equal(other, scores[0])


def test_a_row_of_weight_two_is_two_rows():
    """Of one class, whose shares do not depend on which rows are held out."""
    table, _ = levels(200)
    options = {"n_components": 1, "retrain": True, "random_state": 0, "prior": 1e-9}
    w = np.r_[np.full(50, 2.0), np.ones(150)]
    weighted = MixtureOfColumns(**options).fit(table, sample_weight=w)
    twice = MixtureOfColumns(**options).fit(pd.concat([table, table[:50]]))
    rows = every_row(table).query("city != 'Lima' and grade != 'middling'")
    p, q = (np.exp(model.score_samples(rows)) for model in (weighted, twice))
    np.testing.assert_allclose(p / p.sum(), q / q.sum(), rtol=1e-6)


def test_bad_settings_are_told():
    table, _ = levels(50)
    with pytest.raises(ValueError, match="prior must be a number > 0; got 0"):
        MixtureOfColumns(prior=0).fit(table)
    with pytest.raises(ValueError, match="n_components must be a whole number, a list of them or"):
        MixtureOfColumns("many").fit(table)
    with pytest.raises(ValueError, match=r"Column x2 of X cannot be used: .*Leave it out"):
        MixtureOfColumns(2).fit(np.column_stack([np.arange(30) ** 0.5, np.ones(30)]))
    rounded = np.random.default_rng(0).integers(0, 5, size=(60, 2)) / 2
    with pytest.warns(SpikeWarning, match="columns={name: 'integer'}"):
        MixtureOfColumns(2, columns="real").fit(rounded)
