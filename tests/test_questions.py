"""Questions to a fitted table: any columns given any others, draws, imputation, prediction."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.metrics import get_scorer, log_loss
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from rnade import RNADE, load
from rnade.nn.any_order import AnyOrderModule
from rnade.nn.questions import log_densities
from rnade.training import Bank
from rnade.training.run import Run
from tests.test_mixed import SMALL, frame

CORRELATION = 0.8


def gaussian(n: int, seed: int = 0) -> pd.DataFrame:
    """Two correlated Gaussian columns in units of their own, and one that is independent."""
    z = np.random.default_rng(seed).normal(size=(n, 3))
    b = CORRELATION * z[:, 0] + np.sqrt(1 - CORRELATION**2) * z[:, 1]
    return pd.DataFrame({"a": 5 + 2 * z[:, 0], "b": 100 * b, "c": z[:, 2]})


def truth_of_b(a: float) -> stats.rv_continuous:
    return stats.norm(100 * CORRELATION * (a - 5) / 2, 100 * np.sqrt(1 - CORRELATION**2))


@pytest.fixture(scope="module")
def mixed() -> RNADE:
    return RNADE(random_state=0, n_hidden=32, epochs=15).fit(frame(600))


@pytest.fixture(scope="module")
def plain() -> RNADE:
    return RNADE(effort="fast", random_state=0).fit(gaussian(2500))


# -------------------------------------------------------------------- one column given others


@pytest.mark.parametrize("name", ["city", "rooms", "income", "rain", "owner", "grade", "since"])
def test_conditionals_of_all_kinds_have_mass_1(name, mixed):
    """Over levels, over whole numbers, over an interval and its tails, by sums and quadrature."""
    given = {"income": 20.0} if name != "income" else {"city": "Rome"}
    conditional = mixed.conditional(name, given)
    assert conditional.method == "exact"
    if conditional.levels is not None:
        np.testing.assert_allclose(conditional.probabilities().sum(1), 1)
        assert conditional.pdf([*conditional.levels]).sum() == pytest.approx(1, abs=0.01)
    elif name == "rooms":
        assert conditional.pdf(np.arange(-500, 500)).sum() == pytest.approx(1, abs=1e-3)
    elif name == "since":
        days = np.datetime64("2018-01-01") + np.arange(2000)
        assert conditional.pdf(days).sum() == pytest.approx(1, abs=1e-3)
    else:
        grid = np.linspace(-30, 300, 40_001)
        mass = np.trapezoid(np.where(grid == 0, 0, conditional.pdf(grid)), grid)
        atom = conditional.pdf(0.0)[0] if name == "rain" else 0
        assert mass + atom == pytest.approx(1, abs=0.01)


def test_nothing_need_be_given(mixed):
    unknown = mixed.conditional("city", frame(1)[["income"]] * np.nan)
    np.testing.assert_array_equal(
        mixed.conditional("city").probabilities(), unknown.probabilities()
    )


def test_columns_that_are_not_there_are_told_with_those_that_are(mixed):
    with pytest.raises(ValueError, match=r"no column 'zzz'. It has 'city', .*'since'\."):
        mixed.conditional("zzz", {})


@pytest.mark.parametrize("name", ["rooms", "income", "rain", "since"])
def test_quantiles_invert_the_distribution_function(name, mixed):
    conditional = mixed.conditional(name, frame(20, seed=1))
    for q in (0.1, 0.5, 0.9):
        assert (conditional.cdf(conditional.quantile(q)) >= q - 1e-6).all()
    low, high = conditional.interval(0.5)
    np.testing.assert_array_equal(low, conditional.quantile(0.25))
    np.testing.assert_array_equal(conditional.quantile([0.25, 0.75])[:, 1], high)


def test_conditionals_do_not_depend_on_an_order(mixed):
    """One column given all others is the same along every order of one network."""
    table, one = mixed.module_, frame(30, seed=1)
    values, seen = mixed.schema_.encode(one)
    given = np.ones(values.shape, dtype=bool)
    given[:, 2] = False
    along = log_densities(table, np.where(seen, values, np.nan), given).numpy()
    by_network = along.reshape(-1, table.networks.n_models, len(one))
    np.testing.assert_allclose(by_network, by_network[:1].repeat(len(by_network), 0), atol=1e-9)
    observed = one.income.notna()
    np.testing.assert_allclose(
        mixed.log_density(one, given=[n for n in one if n != "income"])[observed],
        mixed.conditional("income", one).log_pdf(one.income)[observed],
        atol=1e-9,
    )


def test_values_are_in_the_tables_own_terms(mixed):
    rows = frame(5, seed=1)
    assert set(mixed.conditional("city", rows).mode()) <= {"Oslo", "Rome", "Bonn"}
    assert mixed.conditional("owner", rows).median().dtype == bool
    assert mixed.conditional("rooms", rows).median().dtype == np.int64
    assert mixed.conditional("rooms", rows).mean().dtype == np.float64
    since = mixed.conditional("since", rows)
    assert since.mean().dtype.kind == "M"
    assert (since.median() >= np.datetime64("2020-03-01")).all()
    assert (
        since.cdf("2030-01-01").round(6).tolist()
        == since.cdf(datetime.date(2030, 1, 1)).round(6).tolist()
    )
    assert list(mixed.conditional("grade", rows).levels) == ["low", "mid", "high"]
    assert mixed.conditional("city", rows).sample(3, random_state=0).shape == (5, 3)
    assert repr(mixed.conditional("city", rows)) == "<Conditional of 'city', 5 rows, exact>"
    assert len(mixed.conditional("city", {"rooms": 3})) == 1
    np.testing.assert_array_equal(
        mixed.conditional("city", rows).pdf([["Oslo"], ["Rome"]]).shape, (2, 5)
    )


def test_times_with_a_zone_come_back_with_it():
    rng = np.random.default_rng(0)
    day = pd.Timestamp("2024-01-01", tz="Europe/Paris") + pd.to_timedelta(rng.random(80) * 90, "D")
    model = RNADE(**SMALL).fit(pd.DataFrame({"at": day, "n": rng.poisson(3, 80)}))
    at = model.conditional("at", {"n": 2})
    assert at.median()[0].utcoffset() in {datetime.timedelta(hours=1), datetime.timedelta(hours=2)}
    assert 0 < at.cdf("2024-02-01")[0] < 1


def test_gaussian_conditionals_match_their_closed_form(plain):
    """Means, intervals and distribution functions of b given a, and of c given anything."""
    for a in (3.0, 5.0, 7.0):
        truth, found = truth_of_b(a), plain.conditional("b", {"a": a})
        assert found.mean()[0] == pytest.approx(truth.mean(), abs=15)
        np.testing.assert_allclose(np.ravel(found.interval(0.8)), truth.interval(0.8), atol=25)
        grid = truth.ppf([0.1, 0.3, 0.5, 0.7, 0.9])
        np.testing.assert_allclose(found.cdf(grid), truth.cdf(grid), atol=0.1)
    alone = plain.conditional("c", {"a": 7.0, "b": -50.0})
    np.testing.assert_allclose(alone.cdf([-1.0, 0.0, 1.0]), stats.norm.cdf([-1, 0, 1]), atol=0.1)


def test_a_fit_killed_while_training_for_questions_goes_on_to_the_same_answers(
    tmp_path, monkeypatch
):
    table = gaussian(300)
    whole = RNADE(random_state=0, epochs=4).fit(table)
    model = RNADE(random_state=0, epochs=4, checkpoint=tmp_path / "kept")
    epochs, one_epoch = [], Run.one_epoch

    def killed(self, *arguments):
        if isinstance(self.module, AnyOrderModule):
            epochs.append(self.epoch)
            if epochs == [0, 1, 2]:
                raise OSError("killed")
        return one_epoch(self, *arguments)

    monkeypatch.setitem(Bank.__init__.__kwdefaults__, "checkpoint_every", 0.0)
    monkeypatch.setattr(Run, "one_epoch", killed)
    with pytest.raises(OSError, match="killed"):
        model.fit(table)
    assert model._beside is None  # nothing of the table stays behind
    model.fit(table)
    assert epochs[3] == 2  # not from the start
    given = {"a": 6.0}
    np.testing.assert_array_equal(
        model.conditional("b", given).cdf([-50, 0, 50]),
        whole.conditional("b", given).cdf([-50, 0, 50]),
    )


def test_conditional_draws_follow_their_distribution(plain):
    """One column exactly; of several, along orders that differ a little, near the truth."""
    given = {"a": 6.5, "c": 0.5}
    conditional = plain.conditional("b", given)
    for drawn in (plain.sample(1500, 0, given=given).b, conditional.sample(1500, 0)[0]):
        assert stats.kstest(conditional.cdf(drawn), "uniform").pvalue > 1e-3
    drawn = plain.sample(1500, random_state=0, given={"a": 6.5})
    assert (drawn.a == 6.5).all()
    assert stats.kstest(drawn.b, truth_of_b(6.5).cdf).statistic < 0.1
    assert stats.kstest(drawn.c, "norm").statistic < 0.1


@pytest.mark.parametrize("name", ["rooms", "rain", "income", "city"])
def test_places_of_draws_in_their_distribution_are_uniform(name, mixed):
    conditional = mixed.conditional(name, frame(1500).drop(columns=name))
    drawn = conditional.sample(1, random_state=0)[:, 0]
    places = conditional.transform(drawn, random_state=1)
    assert stats.kstest(places, "uniform").pvalue > 1e-3
    assert np.isnan(conditional.transform([None] * 1500)).all()


def test_places_are_not_for_ranges(mixed):
    with pytest.raises(ValueError, match="stand for one"):
        mixed.conditional("rooms", {"income": (10, 20)}).transform([2])


def test_draws_of_mixed_columns_follow_their_conditionals(mixed):
    drawn = mixed.sample(3000, random_state=0, given={"city": "Bonn"})
    assert (drawn.city == "Bonn").all()
    rooms = mixed.conditional("rooms", {"city": "Bonn"})
    counts = drawn.rooms.value_counts(normalize=True)
    for value in (7, 8, 9, 10):
        assert counts.get(value, 0) == pytest.approx(rooms.pdf(value)[0], abs=0.03)
    assert drawn.dtypes.equals(frame(5).dtypes)


# -------------------------------------------------------------------- several columns


def test_log_density_of_gaussians_matches_its_closed_form(plain):
    new = gaussian(400, seed=1)
    truth = stats.norm.logpdf(new.c) + [
        truth_of_b(a).logpdf(b) for a, b in zip(new.a, new.b, strict=True)
    ]
    assert np.mean(plain.log_density(new, given=["a"]) - truth) == pytest.approx(0, abs=0.12)
    # And as a product of the two, in whichever way it is written.
    whole = plain.log_density(new)
    parts = plain.log_density(new, given=["a"]) + plain.log_density(new[["a"]])
    assert np.abs(whole - parts).mean() < 0.1


def test_along_an_order_densities_are_products(mixed):
    """p(rest | first) p(first) = p(all) exactly, along one network's order."""
    table, one = mixed.module_, frame(20, seed=1)
    values, seen = mixed.schema_.encode(one)
    X = np.where(seen, values, np.nan)
    order = table.orders[0].tolist()
    first = np.isin(np.arange(7), order[:3])
    none = np.zeros(7, dtype=bool)
    alone = log_densities(table, np.where(first, X, np.nan), none)[0]
    rest = log_densities(table, X, first)[0]
    np.testing.assert_allclose(alone + rest, log_densities(table, X, none)[0], atol=1e-9)


def test_what_is_given_can_be_said_in_three_ways(mixed):
    rows = frame(6, seed=1).assign(city="Rome", rooms=3)
    by_name = mixed.log_density(rows, given=["city", "rooms"])
    by_value = mixed.log_density(rows.drop(columns="city"), given={"city": "Rome", "rooms": 3})
    cells = np.zeros((6, 7), dtype=bool)
    cells[:, :2] = True
    np.testing.assert_allclose(by_name, by_value, atol=1e-9)
    np.testing.assert_allclose(by_name, mixed.log_density(rows, given=cells), atol=1e-9)
    found, spread = mixed.log_density(rows, given=["city"], return_spread=True)
    assert found.shape == spread.shape == (6,)
    assert (spread > 0).all()
    np.testing.assert_allclose(mixed.log_density(rows), mixed.score_samples(rows), atol=1e-9)
    assert (mixed.log_density(rows[["city"]], given=["city"]) == 0).all()


# -------------------------------------------------------------------- ranges


def test_ranges_agree_with_rejection(plain):
    """The conditional of b given a range of a is that of draws whose a lies in it."""
    every = plain.sample(30_000, random_state=0, given={"c": 0.0})
    kept = every[(every.a >= 6) & (every.a <= 8)]
    found = plain.conditional("b", {"a": (6, 8), "c": 0.0})
    assert found.method == "weighted"
    grid = np.quantile(kept.b, [0.1, 0.25, 0.5, 0.75, 0.9])
    np.testing.assert_allclose(found.cdf(grid), [0.1, 0.25, 0.5, 0.75, 0.9], atol=0.05)
    assert found.mean()[0] == pytest.approx(kept.b.mean(), abs=8)
    assert found.quantile(0.5)[0] == pytest.approx(kept.b.median(), abs=10)
    drawn = plain.sample(3000, random_state=1, given={"a": (6, 8), "c": 0.0})
    assert drawn.a.between(6, 8).all()
    assert stats.ks_2samp(drawn.b, kept.b).statistic < 0.06
    both = plain.sample(3000, random_state=1, given={"a": (6, 8), "b": (None, 50)})
    twice = plain.sample(30_000, random_state=2)
    twice = twice[twice.a.between(6, 8) & (twice.b <= 50)]
    assert (both.b <= 50).all()
    assert stats.ks_2samp(both.a, twice.a).statistic < 0.1
    assert stats.ks_2samp(both.b, twice.b).statistic < 0.1


def test_few_values_of_a_range_are_all_looked_at(mixed):
    """Against the sum over each of them."""
    found = mixed.conditional("city", {"rooms": (2, 5), "owner": True})
    assert found.method == "exact"
    weights = mixed.conditional("rooms", {"owner": True}).pdf(np.arange(2, 6))
    each = [mixed.conditional("city", {"rooms": k, "owner": True}) for k in range(2, 6)]
    mean = np.average([c.probabilities()[0] for c in each], axis=0, weights=weights)
    np.testing.assert_allclose(found.probabilities()[0], mean, atol=1e-9)
    assert mixed.conditional("city", {"grade": ("mid", "high")}).method == "exact"
    income = mixed.conditional("income", {"rooms": (2, 5), "owner": True})
    below = [mixed.conditional("income", {"rooms": k, "owner": True}).cdf(20) for k in range(2, 6)]
    expected = np.average(np.ravel(below), weights=weights)
    assert income.cdf(20)[0] == pytest.approx(expected, abs=1e-9)
    sampled = mixed.conditional("income", {"rooms": (2, 5)}).sample(200, random_state=0)
    assert sampled.shape == (1, 200)


def test_densities_given_a_range_are_those_of_draws(plain):
    """Of b given that a lies in a range, against a histogram of draws."""
    drawn = plain.sample(40_000, random_state=3)
    kept = drawn[drawn.a.between(6, 8)]
    at = np.array([0.0, 60.0, 120.0])
    found = np.exp(plain.log_density(pd.DataFrame({"b": at}), given={"a": (6, 8)}))
    shares = [((kept.b > b - 10) & (kept.b < b + 10)).mean() / 20 for b in at]
    np.testing.assert_allclose(found, shares, rtol=0.25, atol=3e-4)
    several = plain.log_density(pd.DataFrame({"b": at}), given={"a": (6, 8), "c": (-1, 1)})
    np.testing.assert_allclose(np.exp(several), found, rtol=0.25, atol=3e-4)


# -------------------------------------------------------------------- missing cells


def tables() -> dict[str, object]:
    table = frame(40, seed=4)
    text = table.assign(grade=table.grade.astype(str))
    return {
        "pandas": table.set_index(np.arange(40)[::-1] // 2),
        "pandas-nullable": table.astype({"rooms": "Int64", "owner": "boolean"}),
        "polars": pl.from_pandas(text),
        "pyarrow": pa.Table.from_pandas(table),
    }


@pytest.mark.parametrize("name", tables())
@pytest.mark.parametrize("how", ["mean", "median", "likeliest", "draw"])
def test_imputing_keeps_all_that_was_there(name, how, mixed):
    table = tables()[name]
    filled = mixed.impute(table, how=how, random_state=0)
    assert type(filled) is type(table)
    before, after = (
        pa.Table.from_pandas(t) if name.startswith("pandas") else t for t in (table, filled)
    )
    before, after = (t.to_arrow() if name == "polars" else t for t in (before, after))
    assert after.schema.equals(before.schema)
    for column in before.column_names:
        old, new = before[column].to_pylist(), after[column].to_pylist()
        assert None not in new
        assert all(o is None or o == n for o, n in zip(old, new, strict=True))


def test_imputing_nothing_changes_nothing(mixed, plain):
    table = frame(50, seed=2).dropna().assign(id=lambda t: [f"r{i}" for i in range(len(t))])
    pd.testing.assert_frame_equal(mixed.impute(table), table)
    pd.testing.assert_frame_equal(plain.impute(gaussian(20)), gaussian(20))
    holes = table.assign(note=None)
    holes.loc[holes.index[3], "income"] = np.nan
    filled = mixed.impute(holes)
    assert filled.note.isna().all()  # which the model does not know
    assert filled.income.notna().all()
    assert np.isnan(holes.income.iloc[3])


def test_observed_cells_are_kept_to_the_last_bit(mixed):
    """Even where the model knows them less finely, as the nanoseconds of times."""
    rng = np.random.default_rng(0)
    at = pd.Series(pd.to_datetime(1_700_000_000_000_000_000 + rng.integers(0, 10**15, 60)))
    table = pd.DataFrame({"at": at, "n": rng.poisson(3, 60)})
    model = RNADE(**SMALL).fit(table)
    gaps = table.mask(rng.random((60, 2)) < 0.2)
    filled = model.impute(gaps)
    assert filled["at"].notna().all()
    pd.testing.assert_series_equal(filled["at"].where(gaps["at"].notna()), gaps["at"])


def test_several_draws_differ_and_spread_as_they_should(plain):
    holes = gaussian(300, seed=5).assign(b=np.nan)
    drawn = plain.impute(holes, how="draw", n_draws=8, random_state=0)
    assert len(drawn) == 8
    b = np.stack([table.b for table in drawn])
    assert (b[0] != b[1]).all()
    means = [truth_of_b(a).mean() for a in holes.a]
    assert (b - means).std() == pytest.approx(truth_of_b(5).std(), rel=0.15)
    assert np.mean(b - means) == pytest.approx(0, abs=10)
    again = plain.impute(holes, how="draw", n_draws=8, random_state=0)
    pd.testing.assert_frame_equal(again[3], drawn[3])


def test_a_rows_cells_are_drawn_together(plain):
    """The correlation of a and b survives where both are missing."""
    holes = gaussian(1500, seed=6).assign(a=np.nan, b=np.nan)
    drawn = plain.impute(holes, how="draw", random_state=0)
    assert np.corrcoef(drawn.a, drawn.b)[0, 1] == pytest.approx(CORRELATION, abs=0.08)


def test_draws_copy_what_is_copied_to_the_last_digit():
    """A column that repeats another, in numbers that float32 does not hold."""
    rng = np.random.default_rng(0)
    first = 1_700_000_000 + rng.integers(0, 10**6, 300)
    table = pd.DataFrame({"first": first, "again": first, "n": rng.poisson(3, 300)})
    model = RNADE(random_state=0, n_hidden=16, epochs=8).fit(table)
    gaps = table.astype({"again": "Int64"})
    gaps.loc[:99, "again"] = pd.NA
    drawn = model.impute(gaps, how="draw", random_state=0)
    assert (drawn.again == table["first"]).mean() > 0.9


def test_rows_with_gaps_are_completed_by_samples(plain, mixed):
    holes = gaussian(5, seed=7).assign(b=np.nan)
    drawn = plain.sample(3, random_state=0, given=holes)
    assert len(drawn) == 15
    np.testing.assert_array_equal(drawn.a, np.repeat(holes.a, 3))
    assert drawn.b.nunique() == 15
    some = mixed.sample(given=frame(6, seed=8)[["city", "rooms"]], random_state=0)
    assert some.rooms.tolist() == frame(6, seed=8).rooms.tolist()
    assert not some.isna().any().any()


def test_cells_that_are_informatively_missing_are_filled_as_if_they_were_seen():
    table = frame(300)
    table.loc[table.rooms > 5, "income"] = np.nan
    model = RNADE(**SMALL, missing="informative").fit(table)
    for how in ("mean", "draw"):
        assert model.impute(table, how=how, random_state=0).income.notna().all()
    assert model.sample(50, random_state=0, given={"income": 20.0}).income.tolist() == [20.0] * 50
    gone = model.sample(200, random_state=0, given={"rooms": 9}).income.isna().mean()
    assert gone > 0.3
    told = model.conditional("income is missing", {"rooms": 9})
    assert told.probabilities()[0, 1] == pytest.approx(gone, abs=0.2)


def test_plain_rows_with_gaps_have_scores(plain):
    new = gaussian(30, seed=9)
    whole = plain.score_samples(new)
    gaps = new.copy()
    gaps.loc[:9, "b"] = np.nan
    scores = plain.score_samples(gaps)
    np.testing.assert_allclose(scores[10:], whole[10:], rtol=1e-12)
    truth = stats.norm.logpdf(new.a, 5, 2) + stats.norm.logpdf(new.c)
    assert np.mean(scores[:10] - truth[:10]) == pytest.approx(0, abs=0.3)
    with pytest.raises(ValueError, match="inf"):
        plain.score_samples(gaps.assign(a=np.inf))


# -------------------------------------------------------------------- prediction


def test_a_classifier_of_levels(mixed):
    predictor, new = mixed.as_predictor("city"), frame(300, seed=3).dropna()
    assert is_classifier(predictor)
    assert list(predictor.classes_) == ["Bonn", "Oslo", "Rome"]
    X, y = new.drop(columns="city"), new.city
    p = predictor.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1)
    np.testing.assert_array_equal(p, predictor.predict_proba(new))
    assert predictor.score(X, y) == predictor.score(new) > 0.6
    assert get_scorer("neg_log_loss")(predictor, X, y) == pytest.approx(-log_loss(y, p))
    assert log_loss(y, p) < np.log(3)


def test_a_regressor_of_numbers(plain):
    predictor, new = plain.as_predictor("b"), gaussian(400, seed=4)
    assert is_regressor(predictor)
    assert predictor.score(new[["a", "c"]], new.b) == pytest.approx(CORRELATION**2, abs=0.1)
    low, high = predictor.predict_quantiles(new, [0.05, 0.95]).T
    assert 0.84 < ((new.b >= low) & (new.b <= high)).mean() < 0.96
    assert predictor.predict_quantiles(new, 0.5).shape == (400,)


def test_predictors_are_cross_validated_and_stand_in_pipelines(mixed):
    small = RNADE(**SMALL).fit(frame(90).dropna())
    table = frame(90).dropna()
    scores = cross_val_score(
        small.as_predictor("owner"), table.drop(columns="owner"), table.owner, cv=2
    )
    assert scores.shape == (2,)
    pipeline = make_pipeline(FunctionTransformer(), small.as_predictor("rooms"))
    fitted = clone(pipeline).fit(table, table.rooms)
    assert np.isfinite(fitted.predict(table)).all()
    assert len(pipeline.predict(table)) == len(table)
    # Levels that are numbers stay levels in a fresh fit.
    codes = table.city.astype("category").cat.codes.to_numpy()
    model = RNADE(**SMALL).fit(table.assign(city=pd.Categorical(codes)))
    again = clone(model.as_predictor("city")).fit(table.drop(columns="city"), codes)
    assert list(again.classes_) == [0, 1, 2]


def test_predictors_of_arrays_take_them_with_and_without_the_column():
    X = gaussian(200).to_numpy()
    model = RNADE(effort="fast", epochs=3, random_state=0).fit(X)
    predictor = model.as_predictor("x2")
    without = np.delete(X, 1, axis=1)
    np.testing.assert_array_equal(predictor.predict(X), predictor.predict(without))
    np.testing.assert_array_equal(predictor.predict(X), model.as_predictor(1).predict(X))
    for rows in (X, without):
        fresh = clone(predictor).fit(rows, X[:, 1])
        assert fresh.predict(without).shape == (200,)
    assert cross_val_score(predictor, without, X[:, 1], cv=2).shape == (2,)
    filled = model.impute(np.where(np.arange(3) == 1, np.nan, X[:5]))
    assert isinstance(filled, np.ndarray)
    np.testing.assert_array_equal(filled[:, [0, 2]], X[:5][:, [0, 2]])


# -------------------------------------------------------------------- files, settings, errors


def test_the_networks_are_in_the_file(tmp_path, plain):
    plain.save(tmp_path / "m.rnade")
    again, rows = load(tmp_path / "m.rnade"), gaussian(9, seed=1)
    np.testing.assert_array_equal(again.log_density(rows), plain.log_density(rows))
    np.testing.assert_array_equal(again.score_samples(rows), plain.score_samples(rows))
    assert again.questions_network_ == plain.questions_network_


def test_complete_rows_score_as_without_the_networks(tmp_path):
    X = gaussian(80).to_numpy()
    settings = {"epochs": 3, "random_state": 0}
    with_them, without = (RNADE(**settings, questions=q).fit(X) for q in (True, False))
    np.testing.assert_array_equal(with_them.score_samples(X), without.score_samples(X))
    np.testing.assert_array_equal(with_them.sample(5, 1), without.sample(5, 1))
    assert without.questions_ is None
    assert not without.answers_questions
    without.save(tmp_path / "m.rnade")
    for model in (without, load(tmp_path / "m.rnade")):
        for ask in (
            lambda m: m.conditional("x1", {"x2": 0.0}),
            lambda m: m.log_density(X),
            lambda m: m.impute(X),
            lambda m: m.sample(2, given={"x2": 0.0}),
            lambda m: m.as_predictor("x1"),
        ):
            with pytest.raises(ValueError, match="Fit it again with questions=True"):
                ask(model)
        with pytest.raises(ValueError, match="missing or infinite"):
            model.score_samples(np.full((2, 3), np.nan))
    for other in ({"ensemble": None}, {"recipe": "paper"}):
        assert RNADE(**settings, **other).fit(X).questions_ is None


def test_real_columns_by_decree_are_asked_too(tmp_path):
    table = gaussian(80)
    model = RNADE(epochs=3, random_state=0, columns="real").fit(table)
    assert model.schema_ is None
    model.save(tmp_path / "m.rnade")
    for each in (model, load(tmp_path / "m.rnade")):
        assert each.conditional("b", {"a": 5}).mean().shape == (1,)
        assert list(each.impute(table.assign(b=np.nan)).columns) == ["a", "b", "c"]


def test_row_weights_count_in_questions():
    """Rows of weight 0 are as if they were not there."""
    near, far = gaussian(150), gaussian(150, seed=1).assign(b=1e4)
    table = pd.concat([near, far + np.random.default_rng(0).normal(size=far.shape)])
    model = RNADE(epochs=3, random_state=0).fit(table, sample_weight=np.repeat([1.0, 0.0], 150))
    assert model.conditional("b", {"a": 5.0}).quantile(0.99)[0] < 5000


BAD_GIVEN = {
    "unknown column": ({"citty": "Oslo"}, "no column 'citty'. Did you mean 'city'"),
    "unknown level": ({"city": "Atlantis"}, "no level 'Atlantis'; it has 'Bonn', 'Oslo', 'Rome'"),
    "text for a number": ({"rooms": "many"}, "'rooms' should hold numbers"),
    "fraction": ({"rooms": 2.5}, "whole numbers"),
    "infinity": ({"income": np.inf}, "infinite"),
    "nothing": ({}, "given is empty"),
    "missing": ({"rooms": None}, "missing value"),
    "list": ({"city": ["Oslo", "Rome"]}, "one value of column 'city'"),
    "range without an order": ({"city": ("Bonn", "Rome")}, "have no order"),
    "range the wrong way round": ({"income": (30, 10)}, "low <= high"),
    "range of three": ({"income": (1, 2, 3)}, "a tuple"),
    "range outside": ({"income": (-50, -40)}, "No value of column 'income' lies in"),
    "no whole number in a range": ({"rooms": (2.2, 2.8)}, "No value of column 'rooms' lies in"),
    "no date": ({"since": "soon"}, "Write dates as 2024-12-31"),
}


@pytest.mark.parametrize("name", BAD_GIVEN)
def test_bad_conditions_are_told(name, mixed):
    given, message = BAD_GIVEN[name]
    for ask in (mixed.conditional, lambda _, given: mixed.sample(2, given=given)):
        with pytest.raises(ValueError, match=message):
            ask("grade", given)


def test_bad_questions_are_told(mixed, plain):
    with pytest.raises(ValueError, match="asked for and given at once"):
        mixed.conditional("city", {"city": "Oslo"})
    with pytest.raises(ValueError, match="no column 'town'"):
        mixed.as_predictor("town")
    with pytest.raises(ValueError, match="holds dates or times"):
        mixed.as_predictor("since")
    with pytest.raises(ValueError, match="levels, which have no mean"):
        mixed.conditional("city", {"rooms": 3}).mean()
    with pytest.raises(ValueError, match="holds no levels"):
        mixed.conditional("rooms", {"city": "Oslo"}).probabilities()
    with pytest.raises(ValueError, match="between 0 and 1"):
        mixed.conditional("rooms", {"city": "Oslo"}).quantile(1.5)
    with pytest.raises(ValueError, match="n_draws is for how='draw'"):
        mixed.impute(frame(5), n_draws=3)
    with pytest.raises(ValueError, match="given is empty"):
        mixed.log_density(frame(5), given=[])
    with pytest.raises(ValueError, match="a list of column names"):
        mixed.log_density(frame(5), given="city")
    with pytest.raises(ValueError, match=r"shape \(5, 7\); got \(5, 2\)"):
        mixed.log_density(frame(5), given=np.zeros((5, 2), dtype=bool))
    with pytest.raises(ValueError, match="no column 'city', which it was fitted with"):
        mixed.log_density(pd.DataFrame({"town": ["Oslo"]}))
    with pytest.raises(ValueError, match="do not go with given"):
        plain.sample(2, given={"a": 5.0}, low=np.zeros(3))
    out = frame(80).assign(one=1)
    with pytest.raises(ValueError, match=r"'one' was left out of the model \(constant"):
        RNADE(**SMALL).fit(out).conditional("one", {"rooms": 3})


def test_rows_with_gaps_have_no_p_value_where_held_out_rows_had_none():
    X = np.random.default_rng(0).normal(size=(120, 3))
    model = RNADE(random_state=0, epochs=2).fit(X)
    assert model.pvalue(X).shape == (120,)
    X[7, 1] = np.nan
    assert np.isfinite(model.score_samples(X)).all()
    with pytest.raises(ValueError, match="Row 7 has missing cells, and p-values compare"):
        model.pvalue(X)
