"""Reports on tables with levels, integers, dates, atoms and missing cells."""

import json
import math
from html.parser import HTMLParser

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.stats
from sklearn.metrics import mutual_info_score

mpl.use("Agg")
import matplotlib.dates as mdates
import matplotlib.pyplot as plt

from rnade import RNADE, plot
from rnade.columns import Column
from rnade.exceptions import TableWarning
from rnade.report import render, study
from rnade.report.asked import Asked
from rnade.report.cells import alone
from rnade.report.kinds import date_words
from rnade.report.marginals import column_marginal
from rnade.report.resemblance import cell_bins, mutual_information, rank_correlation
from tests.browser import Browser, find_browser

QUICK = {"n_hidden": 8, "epochs": 2, "random_state": 0, "device": "cpu"}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</style><script>document.title='taken'</script>",
    "' onmouseover='alert(3)",
    "&lt;b&gt; &amp;",
    "$x" * 200,
]


def table(n=400, seed=0):
    """One column of each kind, some with missing cells."""
    rng = np.random.default_rng(seed)
    sizes = ["small", "medium", "large"]
    start = pd.Timestamp("2024-01-01")
    frame = pd.DataFrame(
        {
            "city": rng.choice(["Oslo", "Rome", "Lima"], n, p=[0.6, 0.3, 0.1]),
            "size": pd.Categorical(rng.choice(sizes, n), sizes, ordered=True),
            "member": rng.uniform(size=n) < 0.2,
            "temperature": rng.normal(10, 5, n),
            "rain": np.where(rng.uniform(size=n) < 0.6, 0.0, rng.gamma(2, 2, n)),
            "visits": rng.poisson(4, n),
            "day": start + pd.to_timedelta(rng.integers(0, 700, n), "D"),
            "time": start + pd.to_timedelta(rng.integers(0, 40_000, n), "m"),
        }
    )
    for name, share in {"city": 0.1, "temperature": 0.2, "rain": 0.15, "day": 0.05}.items():
        frame.loc[rng.uniform(size=n) < share, name] = None
    return frame


@pytest.fixture(scope="module")
def mixed():
    frame = table()
    model = RNADE(**QUICK).fit(frame)
    return model, frame, study(model, frame, source="t.csv")


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    plt.close("all")


def by_column(findings):
    return {one.column: one for one in findings}


def kinds(found):
    return {caution.kind: caution for caution in found.cautions}


class Tags(HTMLParser):
    """Names and attributes of all tags of a page."""

    def __init__(self, page):
        super().__init__()
        self.names, self.attributes = [], set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.attributes |= {name for name, _ in attrs}


def checked(found):
    """The page and the data, as any page and data must be."""
    page = render(found)
    tags = Tags(page)
    assert not {"script", "img"} & set(tags.names)
    assert not {name for name in tags.attributes if name.startswith("on")}
    assert ">nan" not in page
    assert "None" not in page
    return page, json.loads(json.dumps(found.as_json(), allow_nan=False))


# ---------------------------------------------------------------- figures


def test_shares_of_levels_are_those_of_pandas(mixed):
    _, frame, found = mixed
    _, data = checked(found)
    told = {one["column"]: one for one in data["marginals"]}
    for name in ("city", "size", "member"):
        expected = frame[name].value_counts(normalize=True)
        expected.index = expected.index.astype(str)
        shares = dict(zip(told[name]["levels"], told[name]["real"], strict=True))
        assert shares == pytest.approx(expected.to_dict())
        assert sum(told[name]["sampled"]) == pytest.approx(1)
        # Hardly trained, and so close to the shares of the columns.
        assert told[name]["distance"] < 0.1
    assert told["size"]["levels"] == ["small", "medium", "large"]
    assert told["size"]["kind"] == "ordered category"


def test_missing_shares_are_those_of_pandas(mixed):
    _, frame, found = mixed
    page, data = checked(found)
    expected = frame.isna().mean().to_dict()
    assert {c["column"]: c["missing"] for c in data["columns"]} == pytest.approx(expected)
    told = {one["column"]: one["missing"] for one in data["marginals"]}
    assert told == pytest.approx(expected)
    assert f"{100 * expected['temperature']:.0f}\N{NO-BREAK SPACE}% missing" in page
    all_cells = 100 * frame.isna().to_numpy().mean()
    assert found.sentences["missing"].startswith(f"{all_cells:.2g}\N{NO-BREAK SPACE}% of all")
    assert "4 of 8 columns have missing cells" in found.sentences["missing"]


def test_atoms_stand_apart_from_the_histogram(mixed):
    model, frame, found = mixed
    rain, seen = by_column(found.marginals)["rain"], frame["rain"].dropna()
    drawn = model.sample(found.table.n_sampled, random_state=0)["rain"]
    assert rain.atoms.tolist() == [0.0]
    assert rain.real_atoms[0] == pytest.approx((seen == 0).mean())
    assert rain.sampled_atoms[0] == pytest.approx((drawn == 0).mean())
    inside = seen[(seen != 0) & seen.between(rain.edges[0], rain.edges[-1])]
    assert rain.real.sum() == pytest.approx(len(inside) / len(seen))
    assert rain.distance == pytest.approx(scipy.stats.ks_2samp(seen, drawn).statistic)
    page, _ = checked(found)
    share = f"{100 * (seen == 0).mean():.0f}"
    assert f"<p>0: {share}\N{NO-BREAK SPACE}% real" in page


def test_bins_of_integers_hold_whole_numbers(mixed):
    _, frame, found = mixed
    visits = by_column(found.marginals)["visits"]
    np.testing.assert_allclose(visits.edges % 1, 0.5)
    counts = frame["visits"].value_counts(normalize=True)
    for left, right, share in zip(visits.edges, visits.edges[1:], visits.real, strict=False):
        assert right - left == 1
        assert share == pytest.approx(counts.get(int(left + 0.5), 0.0))


def test_dates_are_written_as_dates(mixed):
    _, frame, found = mixed
    page, _ = checked(found)
    first, last = frame["day"].min(), frame["day"].max()
    card = page.split('<h4 title="day">')[1].split("</h4>")[1]
    ends = card.split('class="ends">')[1].split("</div>")[0]
    low, high = (pd.Timestamp(part.split("</span>")[0]) for part in ends.split("<span>")[1:3])
    assert first - pd.Timedelta(days=5) <= low < high <= last + pd.Timedelta(days=5)
    assert date_words(19_723, "day") == str(np.datetime64(19_723, "D"))
    oslo = pd.Timestamp("2024-07-01 12:00", tz="Europe/Oslo")
    assert date_words(oslo.timestamp(), "second", zone="Europe/Oslo") == "2024-07-01 12:00:00"
    assert date_words(-62_135_596_800.0, "second") == "0001-01-01 00:00:00"
    assert date_words(1e18, "day") == "9999-12-31"


def test_calibration_counts_observed_cells_of_held_out_rows(mixed):
    model, frame, found = mixed
    held_out = frame.iloc[model.fitted_rows_.held_out]
    assert (found.table.role, found.table.n_judged) == ("fitted", len(held_out))
    told = {one.column: int(one.counts.sum()) for one in found.calibration}
    assert told == held_out.notna().sum().to_dict()
    assert all(math.isfinite(one.distance) for one in found.calibration)
    worst = max(found.calibration, key=lambda one: one.distance)
    n = int(held_out[worst.column].notna().sum())
    chance = scipy.stats.kstwo.ppf(1 - 0.01 / len(told), n)
    assert found.sentences["calibration"].endswith(f"explains {100 * chance:.2g}.")


def test_scores_are_the_models_beside_independent_columns(mixed):
    model, frame, found = mixed
    held_out = frame.iloc[model.fitted_rows_.held_out]
    assert [line.model for line in found.scores] == ["RNADE", "independent columns"]
    assert found.scores[0].score.mean == pytest.approx(model.score(held_out))
    assert any(sentence.startswith("A Gaussian takes complete") for sentence in found.absent)


def test_columns_alone_are_distributions(mixed):
    model, frame, _ = mixed
    rows = pd.concat([frame.iloc[[0]]] * 100, ignore_index=True)
    rows["visits"] = np.arange(-30, 70)
    rows["city"] = ["Lima", "Oslo", "Rome", "Bonn"] * 25
    terms = alone(Asked.of(model, rows), np.arange(100))
    city, visits = 0, 5
    assert np.exp(terms[:4, city]).sum() == pytest.approx(1)
    assert np.exp(terms[:, visits]).sum() == pytest.approx(1, abs=1e-4)
    shares = frame["city"].value_counts(normalize=True)
    np.testing.assert_allclose(np.exp(terms[:3, city]), shares.sort_index(), atol=0.03)
    missing = frame.iloc[np.flatnonzero(frame["city"].isna())[:1]]
    assert np.isnan(alone(Asked.of(model, missing), np.arange(1))[0, city])


def test_density_alone_integrates_to_one(mixed):
    model, frame, _ = mixed
    grid = np.arange(-20.0, 60.0, 0.01) + 0.005
    rows = pd.concat([frame.iloc[[0]]] * len(grid), ignore_index=True)
    rows["temperature"], rows["rain"] = grid, grid
    asked = Asked.of(model, rows)
    temperature, rain = alone(asked, np.arange(len(grid)))[:, [3, 4]].T
    assert np.exp(temperature).sum() * 0.01 == pytest.approx(1, abs=0.02)
    zero = alone(Asked.of(model, rows[:1].assign(rain=0.0)), np.arange(1))[0, 4]
    assert np.exp(rain).sum() * 0.01 + np.exp(zero) == pytest.approx(1, abs=0.02)
    share = (frame["rain"].dropna() == 0).mean()
    assert np.exp(zero) == pytest.approx(share, abs=0.03)


def test_information_is_that_of_rows_with_both_cells():
    rng = np.random.default_rng(0)
    n = 3000
    x = np.where(rng.uniform(size=n) < 0.2, np.nan, rng.integers(0, 4, n))
    y = np.where(rng.uniform(size=n) < 0.7, x, rng.integers(0, 4, n).astype(float))
    column = Column("a", "category", levels=tuple("abcd"))
    bins = np.stack([cell_bins(column, x), cell_bins(column, y)], axis=1)
    both = ~np.isnan(x) & ~np.isnan(y)
    expected = mutual_info_score(x[both], y[both]) - 9 / (2 * both.sum())
    found = mutual_information(bins, np.arange(2))
    np.testing.assert_allclose(found, [[0, expected], [expected, 0]], atol=1e-9)
    assert mutual_information(np.full((5, 2), -1), np.arange(2)).tolist() == [[0, 0], [0, 0]]


def test_rank_correlation_cells():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3))
    X[:, 1] += X[:, 0]
    expected = scipy.stats.spearmanr(X).statistic
    np.testing.assert_allclose(rank_correlation(X), expected, atol=1e-12)
    X[rng.uniform(size=X.shape) < 0.3] = np.nan
    expected = pd.DataFrame(X).corr(method="spearman")
    np.testing.assert_allclose(rank_correlation(X), expected, atol=0.01)
    X[:, 2] = np.nan
    assert rank_correlation(X)[2].tolist() == [0, 0, 1]
    X[:, 2] = 1.0
    assert rank_correlation(X)[2].tolist() == [0, 0, 1]


def test_correlations_are_of_columns_with_ranks(mixed):
    *_, found = mixed
    assert found.correlation.columns == [c for c in found.fitted.columns if c != "city"]
    assert any("“city” left out" in sentence for sentence in found.absent)


def test_a_copied_column_gains_its_entropy():
    rng = np.random.default_rng(0)
    a = rng.choice(["x", "y", "z"], 800, p=[0.5, 0.3, 0.2])
    frame = pd.DataFrame({"a": a, "b": a, "c": rng.choice(["u", "v"], 800)})
    model = RNADE(n_hidden=32, epochs=25, random_state=0, device="cpu").fit(frame)
    found = study(model, frame)
    gained = {gain.column: gain for gain in found.gains}
    entropy = scipy.stats.entropy(frame["a"].value_counts())
    assert gained["a"].gain == pytest.approx(entropy, abs=0.15)
    assert gained["c"].gain == pytest.approx(0, abs=0.05)
    assert (gained["a"].closest, gained["b"].closest) == ("b", "a")
    assert found.correlation is None
    assert "repeated" not in kinds(found)  # levels repeat by nature
    page, _ = checked(found)
    assert "times as likely, and is closest to" in page
    assert "spread were left" not in page


# ---------------------------------------------------------------- odd rows


def test_odd_cells_are_told_with_what_was_expected(mixed):
    model, frame, _ = mixed
    rows = table(40, seed=3)
    rows.loc[11, ["city", "temperature", "rain", "day"]] = [
        "<b>Bonn</b>",
        10.0,
        0.0,
        rows["day"].dropna().iloc[0],
    ]
    rows.loc[12, "temperature"] = 90.0
    rows.loc[13, "day"] = pd.Timestamp("2033-03-03")
    found = study(model, rows)
    page, data = checked(found)
    told = {row.row: row.reasons[0] for row in found.oddness.rows if row.reasons}
    city, temperature, day = told[12], told[13], told[14]
    shares = frame["city"].value_counts(normalize=True)
    assert (city.column, city.value, city.known) == ("city", "<b>Bonn</b>", False)
    assert city.likeliest == shares.idxmax()
    assert city.likeliest_probability == pytest.approx(shares.max(), abs=0.1)
    assert city.probability < 0.02
    assert "&lt;b&gt;Bonn&lt;/b&gt;</b>, a new level; expected Oslo" in page
    assert (temperature.column, temperature.value) == ("temperature", 90.0)
    low, high = frame["temperature"].quantile([0.05, 0.95])
    np.testing.assert_allclose([temperature.low, temperature.high], [low, high], atol=4)
    assert (day.column, day.value) == ("day", "2033-03-03")
    ends = frame["day"].quantile([0.05, 0.95])
    for end, expected in zip((day.low, day.high), ends, strict=True):
        assert abs(pd.Timestamp(end) - expected) < pd.Timedelta(days=40)
    assert f"<b>2033-03-03</b>, expected {day.low} to {day.high}" in page
    assert kinds(found)["outside"].title.startswith("2 rows")
    assert kinds(found)["new-levels"].title.startswith("1 row")
    assert "“city” (“<b>Bonn</b>”)" in kinds(found)["new-levels"].text
    assert data["oddness"]["rows"][0]["reasons"][0]["kind"] in ("category", "real", "date")


def test_new_levels_are_counted(mixed):
    model, *_ = mixed
    rows = table(100, seed=4)
    rows["city"] = rows["city"].where(rows.index % 10 > 0, "Bonn").where(rows.index != 5, "Ulm")
    found = study(model, rows)
    city = by_column(found.columns)["city"]
    assert (city.n_new, city.new_levels) == (11, ["Bonn", "Ulm"])
    shares = rows["city"].value_counts(normalize=True)
    marginal = by_column(found.marginals)["city"]
    assert marginal.new == pytest.approx(shares["Bonn"] + shares["Ulm"])
    expected = [shares.get(level, 0.0) for level in marginal.levels]
    np.testing.assert_allclose(marginal.real, expected)
    # Scored as new levels, and not as missing cells.
    assert found.scores[0].score.mean == pytest.approx(model.score(rows))
    assert "new levels" in checked(found)[0]


def test_another_table_of_one_level_and_nothing_observed(mixed):
    model, *_ = mixed
    rows = table(60, seed=5)
    rows["city"], rows["member"] = "Rome", True
    rows["temperature"] = np.nan
    rows = rows.astype({"visits": "Int64", "member": "boolean"}).reindex([*range(59), -1])
    found = study(model, rows)
    page, data = checked(found)
    assert found.table.role == "other"
    assert by_column(found.marginals)["city"].real.tolist() == [0.0, 0.0, 1.0]
    temperature = by_column(found.marginals)["temperature"]
    assert temperature.missing == 1
    assert math.isnan(temperature.distance)
    assert "all missing" in page
    assert "temperature" not in {one.column for one in found.calibration}
    assert "temperature" not in {gain.column for gain in found.gains}
    assert any("calibration of “temperature”" in sentence for sentence in found.absent)
    assert "“temperature” (100" in kinds(found)["missing-more"].text
    told = {c["column"]: c["missing"] for c in data["columns"]}
    assert told == pytest.approx(rows.isna().mean().to_dict())
    assert "Independent columns are as they were in the rows" in page


def test_a_table_of_which_nothing_is_observed(mixed):
    model, *_ = mixed
    rows = table(5).astype({"visits": "Int64", "member": "boolean"}).reindex([-1, -2])
    found = study(model, rows)
    page, _ = checked(found)
    assert "No cell of this table is observed" in page
    assert found.gains == found.calibration == []
    with pytest.raises(ValueError, match=r"Expected X to have rows; got shape \(0, 8\)"):
        study(model, table(5)[:0])


@pytest.mark.parametrize("n", [1, 3])
def test_few_rows(mixed, n):
    model, *_ = mixed
    checked(study(model, table(n, seed=6)))


# ---------------------------------------------------------------- words, names, kinds of tables


def test_words_are_right_for_any_kind(mixed):
    *_, found = mixed
    page, _ = checked(found)
    for words in ("standard deviation", "has a full covariance", "columns before it", "spread w"):
        assert words not in page
    assert "Independent columns are a probability for each level" in page
    assert "given the other cells of the row" in page


def test_a_model_of_real_numbers_has_no_word_of_kinds():
    X = np.random.default_rng(0).normal(size=(200, 2))
    found = study(RNADE(**QUICK, ensemble=None).fit(X), X)
    page, data = render(found), found.as_json()
    assert "columns" not in data
    assert "missing" not in data["sentences"]
    assert set(data["marginals"][0]) == {"column", "edges", "real", "sampled", "distance"}
    assert set(data["pairs"]) == {"columns", "real", "sampled", "low", "high"}
    assert ".levels" not in page
    assert "has a full covariance" in page


def hostile():
    rng = np.random.default_rng(0)
    columns = {name: rng.choice(HOSTILE, 200) for name in HOSTILE[:3]}
    columns |= {name: rng.normal(size=200) for name in HOSTILE[3:]}
    frame = pd.DataFrame(columns)
    frame.loc[rng.uniform(size=200) < 0.1, HOSTILE[4]] = None
    model = RNADE(**QUICK).fit(frame)
    frame.loc[3, HOSTILE[0]] = "<script>new()</script>"
    return study(model, frame, source=HOSTILE[0])


def test_hostile_names_and_levels_are_words():
    page, data = checked(hostile())
    assert "&lt;script&gt;new()&lt;/script&gt;" in page
    assert page.count("</style>") == 1
    assert data["columns"][0]["new_levels"] == ["<script>new()</script>"]


def test_frames_of_other_libraries(mixed):
    model, *_ = mixed
    rows = table(80, seed=7)
    rows.loc[2, "city"] = "Bonn"
    expected = study(model, rows)
    given = pl.from_pandas(rows)
    for other in (given, given.to_arrow(), given.with_columns(more=pl.lit(1))):
        told = study(model, other)
        assert told.as_json()["columns"] == expected.as_json()["columns"]
        assert told.sentences == expected.sentences


def test_arrays_with_missing_cells():
    X = np.random.default_rng(0).normal(size=(200, 3))
    X[::5, 1] = np.nan
    found = study(RNADE(**QUICK).fit(X), X)
    checked(found)
    assert [c.missing for c in found.columns] == [0.0, 0.2, 0.0]
    many = [f"l{i}" for i in np.random.default_rng(0).integers(0, 40, 200)]
    rows = [[level, float(x)] for level, x in zip(many, X[:, 0], strict=True)]
    model = RNADE(**QUICK).fit(np.array(rows, dtype=object))
    page, _ = checked(study(model, np.array([*rows, ["new", 0.0]], dtype=object)))
    assert f"{len(set(many)) - 6} others" in page
    assert "(“new”)" in page


def test_informative_missing_cells_are_missing_among_samples():
    frame = table(300)[["city", "temperature", "visits"]]
    model = RNADE(**QUICK, missing="informative").fit(frame)
    found = study(model, frame)
    page, _ = checked(found)
    told = by_column(found.columns)
    assert told["city is missing"].kind == "indicator"
    indicator = by_column(found.marginals)["city is missing"]
    share = frame["city"].isna().mean()
    np.testing.assert_allclose(indicator.real, [1 - share, share])
    assert indicator.sampled[1] == pytest.approx(share, abs=0.1)
    assert "tells the missing cells of" in page
    # What is usual of a column is known from drawn cells that are there.
    drawn = model.sample(2000, random_state=0)
    seen = drawn["temperature"].notna().to_numpy()
    assert 0 < seen.sum() < 2000
    observed = Asked.of(model, frame).sampled(2000, 0)
    np.testing.assert_array_equal(np.isnan(observed[:, 1]), ~seen)
    surprise = model.surprise(drawn)
    np.testing.assert_array_equal(np.isnan(surprise[:, 1]), ~seen)
    assert np.nanmean(surprise[:, 1]) == pytest.approx(0, abs=1e-9)


def test_notes_and_left_out_columns_are_told():
    frame = table(200)[["city", "visits"]].assign(only="same", code=np.arange(200) / 7)
    frame.loc[:20, "code"] = -999.0
    with pytest.warns(TableWarning, match="-999"):
        model = RNADE(**QUICK).fit(frame)
    found = study(model, frame)
    assert set(found.fitted.left_out) == {"only"}
    page, _ = checked(found)
    assert "-999" in kinds(found)["table"].text
    assert "only: " in page


# ---------------------------------------------------------------- numbers of one column


def test_a_rounded_column_with_an_atom_between_its_steps():
    """Samples are rounded as real values are, but for atoms, which are exact."""
    rng = np.random.default_rng(0)
    real = np.where(rng.uniform(size=4000) < 0.3, 0.123, np.round(rng.uniform(0, 5, 4000)))
    sampled = np.where(rng.uniform(size=4000) < 0.3, 0.123, rng.uniform(-0.5, 5.5, 4000))
    column = Column("a", "real", atoms=(0.123,))
    found = column_marginal(column, real, sampled, 1.0)
    assert found.distance < 0.1
    only = column_marginal(column, np.full(9, 0.123), np.full(9, 0.123), 0.0)
    assert (only.real_atoms[0], only.real.sum(), only.distance) == (1.0, 0.0, 0.0)


# ---------------------------------------------------------------- pictures


def test_bars_of_levels_are_shares(mixed):
    model, frame, _ = mixed
    ax = plot.marginals(model, frame, ["city"], n_samples=500)
    shares = frame["city"].value_counts(normalize=True)
    heights = [bar.get_height() for bar in ax.containers[0]]
    np.testing.assert_allclose(heights, shares)
    assert [label.get_text() for label in ax.get_xticklabels()] == list(shares.index)
    assert "missing" in ax.get_title()
    ax.figure.canvas.draw()


def test_pictures_of_every_kind(mixed):
    model, frame, found = mixed
    axes = plot.marginals(model, frame, n_samples=200)
    assert len(axes) == 8
    axes[0].figure.canvas.draw()
    day = dict(zip(frame.columns, axes, strict=True))["day"]
    low, high = mdates.num2date(day.get_xlim())
    assert (low.year, high.year) == (2023, 2025) or (low.year, high.year) == (2024, 2025)
    assert any("-" in label.get_text() for label in day.get_xticklabels())
    rain = dict(zip(frame.columns, axes, strict=True))["rain"]
    spike = next(line for line in rain.lines if line.get_label() == "real, single value")
    assert spike.get_ydata()[0] == pytest.approx((frame["rain"].dropna() == 0).mean())
    assert plot.pairs(model, frame, n_points=50).shape == (5, 5)
    assert plot.pairs(model, frame, ["city", "day"], n_points=50).shape == (2, 2)
    held_out = frame.iloc[model.fitted_rows_.held_out]
    for ax in (
        plot.correlation(model, frame, n_samples=200),
        plot.scores(model, frame),
        plot.gains(model, frame),
        plot.learning_curve(model),
        *plot.calibration(model, held_out),
    ):
        ax.figure.canvas.draw()
    bars = plot.gains(model, frame).patches
    assert [bar.get_width() for bar in bars] == [gain.gain for gain in found.gains]
    assert plot.gains(model, frame).get_xlabel() == "gain from other columns, nats"
    display = plot.CalibrationDisplay.from_estimator(model, held_out, "rain")
    np.testing.assert_array_equal(
        display.found.counts, by_column(found.calibration)["rain"].counts
    )


def test_pictures_that_cannot_be_drawn(mixed):
    model, frame, _ = mixed
    with pytest.raises(ValueError, match="at least 20 observed cells in column 'rain'"):
        plot.calibration(model, frame.assign(rain=np.nan), ["rain"])
    levels = RNADE(**QUICK).fit(frame[["city"]].assign(other=list("abcd") * 100))
    with pytest.raises(ValueError, match="at least two columns of numbers"):
        plot.correlation(levels, frame[["city"]].assign(other="a"), n_samples=50)


def test_scores_of_new_levels_are_drawn_as_they_are_scored(mixed):
    model, *_ = mixed
    rows = table(50, seed=8).assign(city="Bonn")
    display = plot.ScoresDisplay.from_estimator(model, rows)
    assert display.found.edges[-1] == pytest.approx(model.score_samples(rows).max())


# ---------------------------------------------------------------- in a browser


@pytest.mark.skipif(
    find_browser() is None, reason="no chromium (Debian: apt-get install chromium)"
)
@pytest.mark.parametrize("width", [360, 1100])
def test_pages_open_without_errors(mixed, tmp_path, width):
    *_, found = mixed
    with Browser() as browser:
        for name, one in {"mixed": found, "hostile": hostile()}.items():
            path = tmp_path / f"{name}.html"
            path.write_text(render(one), encoding="utf-8")
            tab = browser.open(path, width=width)
            assert tab.problems == []
            assert tab.requests == [path.as_uri()]
            assert tab.evaluate("document.documentElement.scrollWidth") == width
            assert tab.evaluate("document.scripts.length + document.images.length") == 0
            empty = "[...document.querySelectorAll('svg')].filter(s => !s.children.length).length"
            assert tab.evaluate(empty) == 0
        assert tab.evaluate("document.querySelectorAll('.levels').length") == 3
