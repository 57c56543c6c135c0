"""`RNADE` on tables with categories, integers, dates, zeros and missing cells."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from rnade import RNADE, Real, RNADESearchCV, load
from rnade.columns.partition import ColumnCells
from rnade.exceptions import SpikeWarning, TableWarning
from rnade.report import study

SMALL = {"n_hidden": 8, "epochs": 3, "random_state": 0}


def frame(n: int = 120, seed: int = 0) -> pd.DataFrame:
    """Columns of all kinds; the count and the city go together, 10 % of some cells missing."""
    rng = np.random.default_rng(seed)
    city = rng.integers(0, 3, n)
    table = pd.DataFrame(
        {
            "city": np.array(["Oslo", "Rome", "Bonn"])[city],
            "rooms": rng.poisson(1 + 4 * city),
            "income": rng.lognormal(3, 0.5, n),
            "rain": np.where(rng.random(n) < 0.4, 0.0, rng.exponential(size=n)),
            "owner": rng.random(n) < 0.5,
            "grade": pd.Categorical.from_codes(
                rng.integers(0, 3, n), ["low", "mid", "high"], ordered=True
            ),
            "since": pd.Timestamp("2020-03-01") + pd.to_timedelta(rng.integers(0, 400, n), "D"),
        }
    )
    table.loc[rng.random(n) < 0.1, "income"] = np.nan
    table.loc[rng.random(n) < 0.1, "city"] = None
    return table


@pytest.fixture(scope="module")
def fitted() -> RNADE:
    return RNADE(**SMALL).fit(frame())


def test_kinds_come_from_dtypes(fitted):
    kinds = {column.name: column.kind for column in fitted.schema_.columns}
    assert kinds == {
        "city": "category",
        "rooms": "integer",
        "income": "real",
        "rain": "real",
        "owner": "category",
        "grade": "category",
        "since": "date",
    }
    atoms = {column.name: column.atoms for column in fitted.schema_.columns if column.atoms}
    assert atoms == {"rain": (0.0,)}


def test_samples_pass_for_the_table(fitted):
    real, drawn = frame(), fitted.sample(300, random_state=0)
    assert drawn.dtypes.equals(real.dtypes)
    assert list(drawn.columns) == list(real.columns)
    assert set(drawn.city) <= {"Oslo", "Rome", "Bonn"}
    assert drawn.rooms.between(real.rooms.min(), real.rooms.max()).all()
    assert (drawn.income > 0).all()
    assert (drawn.since.dt.normalize() == drawn.since).all()
    assert drawn.grade.cat.ordered
    assert 0.2 < (drawn.rain == 0).mean() < 0.6
    assert not drawn.isna().any().any()
    pd.testing.assert_frame_equal(drawn, fitted.sample(300, random_state=0))


@pytest.mark.parametrize("library", [pl.from_pandas, pa.Table.from_pandas])
def test_frames_of_other_libraries_give_the_same_and_come_back_as_themselves(library, fitted):
    table = frame()
    if library is pl.from_pandas:
        table["grade"] = table["grade"].astype(str)
    other = library(table)
    model = RNADE(**SMALL).fit(other)
    assert type(model.sample(3)) is type(other)
    assert np.isfinite(model.score_samples(other)).all()
    if library is not pl.from_pandas:
        np.testing.assert_allclose(
            model.score_samples(other), fitted.score_samples(frame()), rtol=1e-6
        )


def test_scores_are_of_what_is_observed(fitted):
    table = frame()[:6].astype({"rooms": "Int64", "owner": "boolean"})
    complete = fitted.score_samples(table)
    table.loc[0, "income"] = np.nan
    table.loc[1] = pd.NA
    scores = fitted.score_samples(table)
    assert scores[1] == 0
    np.testing.assert_array_equal(scores[2:], complete[2:])
    assert np.isfinite(scores).all()
    assert fitted.log_conditionals(table)[1].tolist() == [0] * 7


def test_levels_never_seen_are_unlikely_and_no_error(fitted):
    usual = frame()[:5].assign(city="Rome")
    new = usual.assign(city="Atlantis")
    assert (fitted.score_samples(new) < fitted.score_samples(usual)).all()
    assert np.isfinite(fitted.score_samples(new)).all()


def test_numbers_far_outside_are_unlikely_and_no_error(fitted):
    usual = frame()[:5]
    far = usual.assign(rooms=10**6)
    assert np.isfinite(fitted.score_samples(far)).all()
    assert (fitted.score_samples(far) < fitted.score_samples(usual)).all()


def test_what_is_loaded_equals_what_was_saved(tmp_path, fitted):
    fitted.save(tmp_path / "m.rnade")
    again = load(tmp_path / "m.rnade")
    np.testing.assert_array_equal(again.score_samples(frame()), fitted.score_samples(frame()))
    drawn = (model.sample(9, random_state=1) for model in (again, fitted))
    pd.testing.assert_frame_equal(*drawn)
    assert again.schema_ == fitted.schema_
    assert again.network_ == fitted.network_


def test_kinds_given_by_the_user_are_kept_in_files(tmp_path):
    kinds = {"rooms": "category", "rain": Real(atoms=[0], low=0), "owner": "leave-out"}
    model = RNADE(**SMALL, columns=kinds).fit(frame())
    assert "owner" in model.schema_.left_out
    model.save(tmp_path / "m.rnade")
    assert load(tmp_path / "m.rnade").columns["rain"] == Real(atoms=[0], low=0)
    assert (model.sample(200, random_state=0).rain >= 0).all()


def test_informative_missing_cells_are_learned_and_drawn():
    table = frame(300)
    table.loc[table.rooms > 5, "income"] = np.nan
    model = RNADE(random_state=0, n_hidden=16, missing="informative", ensemble=None).fit(table)
    drawn = model.sample(1500, random_state=0)
    share, real = drawn.income.isna().mean(), table.income.isna().mean()
    assert abs(share - real) < 0.08
    gone = drawn.income.isna()
    assert drawn.rooms[gone].mean() > drawn.rooms[~gone].mean() + 1


def test_densities_with_informative_missing_cells_sum_to_1():
    """Over what is observed and what is missing, of a column of levels with gaps."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.choice(["x", "y"], 200), "b": rng.random(200) < 0.5})
    table.loc[rng.random(200) < 0.4, "a"] = None
    model = RNADE(**SMALL | {"epochs": 8}, missing="informative").fit(table)
    every = pd.DataFrame({"a": ["x", "y", None, "new"] * 2, "b": [True] * 4 + [False] * 4})
    assert np.exp(model.score_samples(every)).sum() == pytest.approx(1, abs=1e-6)
    gone = model.sample(4000, random_state=0).a.isna().mean()
    assert gone == pytest.approx(np.exp(model.score_samples(every))[[2, 6]].sum(), abs=0.04)


def test_row_weights_count_in_cells():
    """A table with a row of weight 3 is cut as one that has the row three times."""
    x = np.array([1.0, 5.0, 5.0, 9.0, 2.0])
    weights = np.array([3.0, 1.0, 1.0, 1.0, 1.0])
    weighted = ColumnCells.of_numbers(x, whole=True, weights=weights)
    repeated = ColumnCells.of_numbers(np.repeat(x, weights.astype(int)), whole=True)
    assert np.argmax(weighted.shares) == np.argmax(repeated.shares)
    levels = ColumnCells.of_levels(np.array([0.0, 1.0]), 2, weights=np.array([9.0, 1.0]))
    assert levels.shares[0] > 2 * levels.shares[1]


def test_what_goes_together_is_learned():
    """Mean log-likelihood of unseen rows above that of independent columns."""
    model = RNADE(random_state=0, n_hidden=32, ensemble=None).fit(frame(800))
    new = frame(400, seed=1)[["city", "rooms"]].dropna()

    def scores(*known: str) -> np.ndarray:
        """Of some columns alone, all others missing."""
        return model.score_samples(new[list(known)].reindex(columns=frame(1).columns))

    together, city, rooms = scores("city", "rooms"), scores("city"), scores("rooms")
    assert (together - city - rooms).mean() > 0.3


def test_pit_is_uniform_and_missing_where_cells_are():
    model = RNADE(random_state=0, n_hidden=16, ensemble=None).fit(frame(800))
    new = frame(500, seed=2)
    u = model.pit(new, random_state=0)
    assert (np.isnan(u) == new.isna().to_numpy()).all()
    for d in range(u.shape[1]):
        column = u[~np.isnan(u[:, d]), d]
        assert stats.kstest(column, "uniform").statistic < 0.12


def test_p_values_are_uniform_on_new_rows():
    settings = {"n_hidden": 16, "ensemble": None, "validation_fraction": 0.4}
    model = RNADE(random_state=0, **settings).fit(frame(700))
    p = model.pvalue(frame(700, seed=3))
    assert 0.01 < (p <= 0.05).mean() < 0.11
    assert 0.4 < (p <= 0.5).mean() < 0.6


def test_row_weights_of_0_are_as_if_the_rows_were_not_there():
    table = frame()
    weights = np.where(np.arange(120) < 100, 1.0, 0.0)
    model = RNADE(**SMALL).fit(table, sample_weight=weights)
    assert model.n_rows_ == 100


def test_a_killed_fit_goes_on_to_the_same_numbers(tmp_path):
    whole = RNADE(**SMALL).fit(frame())
    again = RNADE(**SMALL, checkpoint=tmp_path).fit(frame())
    resumed = RNADE(**SMALL, checkpoint=tmp_path).fit(frame())
    for model in (again, resumed):
        np.testing.assert_array_equal(model.score_samples(frame()), whole.score_samples(frame()))


def test_pipelines_and_extra_columns(fitted):
    pipeline = make_pipeline(FunctionTransformer(), RNADE(**SMALL)).fit(frame())
    assert np.isfinite(pipeline.score_samples(frame())).all()
    more = frame().assign(extra="x")[["extra", *frame().columns[::-1]]]
    np.testing.assert_array_equal(fitted.score_samples(more), fitted.score_samples(frame()))


def test_arrays_with_missing_cells_and_whole_numbers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    model = RNADE(**SMALL).fit(X)
    assert isinstance(model.sample(4), np.ndarray)
    assert np.isfinite(model.score_samples(X)).all()
    whole = rng.integers(0, 5, size=(80, 2))
    counts = RNADE(**SMALL).fit(whole)
    assert {column.kind for column in counts.schema_.columns} == {"integer"}
    grid = np.stack(np.meshgrid(np.arange(-200, 200), np.arange(-200, 200)), -1).reshape(-1, 2)
    assert np.exp(counts.score_samples(grid)).sum() == pytest.approx(1, abs=2e-3)


def test_masked_arrays_and_marks_are_missing():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)).round(3)
    masked = np.ma.MaskedArray(X, mask=rng.random(X.shape) < 0.2)
    by_mask = RNADE(**SMALL).fit(masked)
    by_nan = RNADE(**SMALL).fit(masked.filled(np.nan))
    np.testing.assert_array_equal(by_mask.score_samples(X), by_nan.score_samples(X))
    marked = pd.DataFrame(np.where(masked.mask, -999, X), columns=["a", "b"])
    by_mark = RNADE(**SMALL, na=[-999]).fit(marked)
    np.testing.assert_allclose(
        by_mark.score_samples(marked[:9]), by_nan.score_samples(masked.filled(np.nan)[:9])
    )


def test_codes_for_missing_cells_are_suspected_aloud():
    table = frame()
    table["age"] = np.where(np.arange(120) % 10 == 0, -999, np.arange(120) % 7 + 30)
    with pytest.warns(TableWarning, match="'age' holds -999"):
        RNADE(**SMALL).fit(table)


def test_real_complete_tables_are_as_ever():
    X = np.random.default_rng(0).normal(size=(60, 2))
    settings = SMALL | {"ensemble": None}
    named = pd.DataFrame(X, columns=["a", "b"]).assign(id=np.arange(60))
    expected = RNADE(**settings, columns="real").fit(X).score_samples(X)
    np.testing.assert_array_equal(RNADE(**settings).fit(X).score_samples(X), expected)
    model = RNADE(**settings).fit(named)
    assert model.schema_.left_out.keys() == {"id"}
    np.testing.assert_array_equal(model.score_samples(named), expected)
    assert list(model.sample(3).columns) == ["a", "b"]


BAD = {
    "level where a number was": ({"rooms": "many"}, "'rooms'"),
    "fraction": ({"rooms": 2.5}, "'rooms'"),
    "infinity": ({"income": np.inf}, "'income'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_cells_are_told_what_and_where(name, fitted):
    change, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        fitted.score_samples(frame()[:5].assign(**change))


def test_a_missing_column_is_named(fitted):
    with pytest.raises(ValueError, match="rooms"):
        fitted.score_samples(frame().drop(columns="rooms"))


def test_settings_of_other_tables_are_refused():
    with pytest.raises(ValueError, match="recipe='paper' is for tables of complete real-valued"):
        RNADE(recipe="paper").fit(frame())
    with pytest.raises(ValueError, match="'rastr'"):
        RNADE(**SMALL, order="rastr").fit(frame())
    with pytest.raises(ValueError, match="permutation of 0 to 6"):
        RNADE(**SMALL, order=[1, 0]).fit(frame())
    with pytest.raises(ValueError, match="low and high are for tables of complete"):
        RNADE(**SMALL).fit(frame()).sample(2, low=np.zeros(7))
    with pytest.raises(ValueError, match="Column x2 of X cannot be used: constant"):
        RNADE(**SMALL).fit(np.column_stack([np.arange(40) % 7, np.ones(40, dtype=int)]))


def test_settings_are_searched_as_a_bank():
    base = RNADE(**SMALL)
    grid = {"learning_rate": [0.002, 1e-6], "n_components": [2, 3]}
    search = RNADESearchCV(base, grid, cv=2, random_state=0).fit(frame())
    assert search.best_params_["learning_rate"] == 0.002  # the other learns nothing
    assert search.best_estimator_.schema_ is not None
    assert np.isfinite(search.score_samples(frame())).all()
    assert list(search.sample(2).columns) == list(frame().columns)
    with pytest.raises(ValueError, match="refit='ensemble' is for tables of complete real-valued"):
        RNADESearchCV(base, grid, cv=2, refit="ensemble").fit(frame())
    with pytest.raises(ValueError, match="Give a param_grid"):
        RNADESearchCV(base, cv=2).fit(frame())
    with pytest.raises(ValueError, match="A list of settings to average is for tables"):
        RNADE(**SMALL, ensemble=[{}]).fit(frame())


def test_conditional_quantiles_hold_their_share(fitted):
    low, high = fitted.conditional_quantiles(frame(), [0.1, 0.9])
    rooms = frame().rooms.to_numpy()
    inside = (rooms >= low[:, 1]) & (rooms <= high[:, 1])
    assert inside.mean() > 0.7
    density = fitted.column_density(fitted.schema_.encode(frame())[0][:3], 0)
    assert density.probabilities().shape == (3, 3)


def test_rounded_real_columns_are_told_of():
    table = frame().assign(size=np.random.default_rng(0).normal(size=120).round(1))
    with pytest.warns(SpikeWarning, match="repeated values in column 'size'"):
        RNADE(**SMALL).fit(table)


@pytest.mark.parametrize("how", ["mean", "median", "likeliest", "draw"])
def test_missing_cells_are_filled_and_others_kept(how, fitted):
    table = frame(60, seed=4)
    filled = fitted.impute(table, how=how, random_state=0)
    assert not filled.isna().any().any()
    seen = table.notna()
    for name in table:
        assert (filled[name][seen[name]] == table[name][seen[name]]).all()
    complete = table.dropna()
    pd.testing.assert_frame_equal(
        fitted.impute(complete, how=how).reset_index(drop=True),
        complete.reset_index(drop=True),
        check_dtype=False,
    )


def test_fillings_know_the_other_cells():
    """Counts of a Gaussian pair by closed form: the mean of one given the other."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=1500)
    table = pd.DataFrame({"a": a, "b": 0.9 * a + 0.3 * rng.normal(size=1500)})
    table.loc[rng.random(1500) < 0.1, "b"] = np.nan
    model = RNADE(random_state=0, n_hidden=64, ensemble=None).fit(table)
    asked = pd.DataFrame({"a": [-1.5, 0.0, 1.5], "b": [np.nan] * 3})
    np.testing.assert_allclose(model.impute(asked).b, [-1.35, 0, 1.35], atol=0.2)
    np.testing.assert_allclose(model.impute(asked, "median").b, [-1.35, 0, 1.35], atol=0.25)
    drawn = [model.impute(asked, "draw", random_state=seed).b for seed in range(200)]
    np.testing.assert_allclose(np.mean(drawn, 0), [-1.35, 0, 1.35], atol=0.25)
    np.testing.assert_allclose(np.std(drawn, 0), 0.3, atol=0.2)


def test_what_cannot_be_filled_is_refused(fitted):
    with pytest.raises(ValueError, match="Unknown how 'mode'"):
        fitted.impute(frame(), how="mode")
    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(ValueError, match="fitted without the networks that answer questions"):
        RNADE(**SMALL | {"ensemble": None}).fit(X).impute(X)


def test_dates_come_back_as_dates():
    rng = np.random.default_rng(0)
    day = [datetime.date(2024, 1, 1) + datetime.timedelta(int(k)) for k in rng.integers(0, 90, 60)]
    table = pl.DataFrame({"day": day, "n": rng.poisson(3, 60)})
    drawn = RNADE(**SMALL).fit(table).sample(20, random_state=0)
    assert drawn.schema == table.schema
    assert min(day) <= drawn["day"].min() <= drawn["day"].max() <= max(day)


def some_table(n: int = 120, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    columns = {"a": rng.normal(size=n), "c": rng.choice(["x", "y", "z"], n)}
    return pd.DataFrame({**columns, "k": rng.poisson(4, n)})


def test_informative_missing_cells_are_filled_too():
    table = some_table()
    table.loc[::9, "a"] = np.nan
    model = RNADE(**SMALL, missing="informative").fit(table)
    for how in ("mean", "draw"):
        assert model.impute(table, how, random_state=0).notna().all().all()


def test_a_table_of_constants_with_gaps_has_its_gaps_modelled():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({c: np.where(rng.random(80) < 0.3, np.nan, 7.0) for c in "kj"})
    drawn = RNADE(**SMALL, missing="informative").fit(table).sample(200, random_state=0)
    assert drawn.isna().mean().between(0.1, 0.6).all()


def test_huge_whole_numbers_are_kept_apart_as_categories_and_else_left_out_with_the_reason():
    rng = np.random.default_rng(0)
    table = some_table().assign(h=2**60 + rng.integers(0, 4, 120))
    model = RNADE(**SMALL, columns={"h": "category"}).fit(table)
    shares = model.sample(400, random_state=0)["h"].value_counts(normalize=True)
    assert len(shares) == 4
    assert shares.max() < 0.5
    assert "last digits" in RNADE(**SMALL).fit(table).schema_.left_out["h"]


def test_settings_that_decide_what_columns_are_cannot_be_searched():
    with pytest.raises(ValueError, match="columns, missing cannot be searched over"):
        RNADESearchCV(RNADE(**SMALL), {"missing": ["ignore"], "columns": ["auto"]}).fit(
            some_table()
        )


def test_a_masked_array_names_its_constant_column():
    X = np.ma.masked_array(np.random.default_rng(0).normal(size=(60, 3)), mask=False)
    X[::5, 0] = np.ma.masked
    X[:, 2] = 5.0
    with pytest.raises(ValueError, match="Column x3 of X cannot be used: constant"):
        RNADE(**SMALL).fit(X)


def test_draws_keep_to_bounds_even_of_a_single_value():
    column = pd.Series(np.nan, index=range(120))
    column[[10, 60]] = 0.0
    table = some_table().assign(s=column.where(column.isna(), 0.0))
    table.loc[11, "s"] = 60.25
    for seed in range(4):
        settings = SMALL | {"random_state": seed, "ensemble": None}
        model = RNADE(**settings, columns={"s": Real(low=0, atoms=[])}).fit(table)
        assert model.sample(200, random_state=0)["s"].min() >= 0


def test_a_row_with_nothing_observed_is_no_outlier():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(120, 2)) * 1e-6, columns=["a", "b"])
    table.loc[::10, "a"] = np.nan
    table.loc[4] = np.nan
    model = RNADE(**SMALL).fit(table)
    assert model.pvalue(table)[4] == 1
    assert model.score_samples(table)[4] == 0
    assert 5 not in [row.row for row in study(model, table).oddness.rows]


def test_rows_of_weight_0_are_ignored():
    table = some_table()
    table.loc[:29, "c"] = "ghost"
    table.loc[5, "a"] = np.inf
    weights = np.r_[np.zeros(30), np.ones(90)]
    model = RNADE(**SMALL).fit(table, sample_weight=weights)
    assert model.schema_.columns[1].levels == ("x", "y", "z")
    again = RNADE(**SMALL).fit(table[30:], sample_weight=weights[30:])
    np.testing.assert_array_equal(model.score_samples(table[30:]), again.score_samples(table[30:]))


def test_times_of_day_and_durations_come_back_as_whole_as_they_were():
    rng = np.random.default_rng(0)
    hours = [datetime.time(int(h)) for h in rng.integers(0, 24, 120)]
    table = some_table().assign(t=pd.to_timedelta(rng.integers(0, 30, 120), "D"), h=hours)
    drawn = RNADE(**SMALL).fit(table).sample(50, random_state=0)
    assert (drawn["t"] % pd.Timedelta(days=1) == pd.Timedelta(0)).all()
    assert all(t.minute == t.second == t.microsecond == 0 for t in drawn["h"])


def test_dates_left_as_text_are_warned_of():
    """As pandas.read_csv gives them: no word of it, and a column would be gone unseen."""
    days = pd.date_range("2024-01-01", periods=len(some_table()), freq="D").strftime("%Y-%m-%d")
    for table in (some_table(), some_table()[["a"]]):
        with pytest.warns(TableWarning, match="Column 'day' is left out: .*convert it to dates"):
            RNADE(**SMALL).fit(table.assign(day=days))


def test_tables_without_rows_and_with_equal_names_are_refused():
    model = RNADE(**SMALL).fit(some_table())
    with pytest.raises(ValueError, match="0 sample"):
        model.score_samples(some_table()[:0])
    with pytest.raises(ValueError, match=r"rows and columns; got shape \(0, 3\)"):
        RNADE(**SMALL).fit(some_table()[:0])
    with pytest.raises(ValueError, match="got 'a' more than once: rename the duplicates"):
        RNADE(**SMALL).fit(some_table().set_axis(["a", "a", "k"], axis=1))


def test_arrays_of_numpys_own_text_are_taken():
    text = some_table()[["c", "k"]].astype(str).to_numpy(dtype=np.dtypes.StringDType())
    assert RNADE(**SMALL).fit(text).schema_.columns[0].levels == ("x", "y", "z")


def test_networks_of_an_earlier_table_are_forgotten():
    model = RNADE(**SMALL | {"ensemble": None}).fit(some_table())
    model.fit(np.random.default_rng(0).normal(size=(60, 2)))
    assert not hasattr(model, "network_")


def test_codes_that_were_text_may_come_as_whole_numbers():
    table = some_table().assign(code=lambda t: t["k"].astype(str))
    model = RNADE(**SMALL).fit(table)
    as_numbers = table.assign(code=table["k"])
    np.testing.assert_array_equal(model.score_samples(table), model.score_samples(as_numbers))
