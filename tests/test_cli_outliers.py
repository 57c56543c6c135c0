"""Outliers on the command line: rnade outliers, the oddest rows of rnade score, rnade compare."""

import io
import json
import re

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import scipy.stats

from rnade import load
from rnade.cli import main
from tests.test_cli import succeeded

SEED = ["--random-state", "0"]
QUICK = ["--epochs", "8", "--n-hidden", "32", *SEED]


def people(n=300, seed=0):
    """A table of any kind with names, and two rows that are odd for a reason."""
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 65, n)
    trade = np.where(rng.random(n) < 0.5, "builder", "baker")
    income = 300 * age + np.where(trade == "builder", 25_000, 15_000) + rng.normal(0, 1500, n)
    frame = pd.DataFrame(
        {"name": [f"p{i}" for i in range(n)], "age": age, "trade": trade, "income": income}
    )
    frame["income"] = frame["income"].round(2)
    frame.loc[10, "income"] = 99_000.0
    frame.loc[20, ["age", "income"]] = [21, 46_000.0]
    return frame


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A folder with a table, its outliers' model, and tables and models to compare."""
    folder = tmp_path_factory.mktemp("made")
    people().to_csv(folder / "people.csv", index=False)
    people(120, seed=1).to_csv(folder / "new.csv", index=False)
    arguments = ["outliers", "people.csv", "--id", "name", "--model-file", "m.rnade", *QUICK]
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    frame = pd.DataFrame({"a": x, "b": x + 0.1 * rng.normal(size=400)})
    frame[:200].to_csv(folder / "train.csv", index=False)
    frame[200:].to_csv(folder / "test.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([*arguments, "-q"]) == 0
        for name in ("gaussian", "mog"):
            fit = ["fit", "train.csv", "--model", name, "--random-state", "0", "-q"]
            assert main([*fit, "-o", f"{name}.rnade"]) == 0
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A fresh current folder with all of these in it."""
    for path in made.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def error(result):
    code, _, err = result
    assert code == 2, result
    return err.splitlines()[-1].removeprefix("rnade: error: ")


# ---------------------------------------------------------------- rnade outliers


def test_outliers_of_a_table_in_one_step(rnade):
    code, out, err = rnade("outliers", "people.csv", "--id", "name", "--top", "4", *QUICK)
    assert code == 0
    header, *lines = out.splitlines()
    assert header.split() == ["row", "name", "p_value", "surprise", "value", "expected"]
    assert len(lines) == 4
    found = {cells[1]: cells for cells in (re.split(r" {2,}", line) for line in lines)}
    assert {"p10", "p20"} <= set(found)
    row, _, p_value, surprise, value, expected = found["p10"]
    assert (row, surprise, value) == ("11", "income", "99000")
    low, high = map(float, expected.split(" to "))
    assert 15_000 < low < high < 60_000
    assert float(p_value) <= 0.01
    assert "rows have a p-value of at most 0.01; the smallest possible is 0.0033" in err
    assert "left out column 'name'" not in err  # it names the rows


def test_outliers_are_judged_out_of_fold_and_the_model_is_kept(rnade):
    result = json.loads(
        succeeded(
            rnade("outliers", "people.csv", "--id", "name", "--level", "0.05", "--json", *QUICK)
        )
    )
    model = load("m.rnade", device="cpu")
    assert list(model.feature_names_in_) == ["age", "trade", "income"]
    order = np.lexsort((model.fit_scores_, model.fit_pvalues_))
    expected = [i for i in order if model.fit_pvalues_[i] <= 0.05]
    assert [row["row"] - 1 for row in result["rows"]] == expected
    np.testing.assert_allclose(
        [row["p_value"] for row in result["rows"]], model.fit_pvalues_[expected]
    )
    assert 13 <= len(expected) <= 15  # a twentieth, less where rows tie
    assert result["summary"] == {
        "n_rows": 300,
        "dropped_rows": 0,
        "n_shown": len(expected),
        "level": 0.01,
        "n_at_level": (model.fit_pvalues_ <= 0.01).sum(),
        "smallest_p_value": pytest.approx(1 / 300),
    }


def test_outliers_to_a_file_keep_all_columns(rnade, folder):
    out = succeeded(
        rnade("outliers", "people.csv", "-o", "odd.parquet", "--exclude", "name", *QUICK)
    )
    assert out == ""
    written = pq.read_table(folder / "odd.parquet").to_pandas()
    assert len(written) == 10
    original = people().iloc[written["row"] - 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(written[original.columns], original, check_dtype=False)
    assert "exists already; pass --force" in error(
        rnade("outliers", "people.csv", "-o", "odd.parquet", *QUICK)
    )


def test_outliers_ignore_rows_of_weight_0(rnade, folder):
    frame = people().assign(n=1.0)
    frame.loc[10, "n"] = 0.0
    frame.to_csv("weighted.csv", index=False)
    options = ["--weight", "n", "--exclude", "name", "--level", "0.02", "--json", *QUICK]
    rows = json.loads(succeeded(rnade("outliers", "weighted.csv", *options)))["rows"]
    assert rows
    assert 11 not in [row["row"] for row in rows]


def test_outliers_of_real_columns(rnade, folder):
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    frame = pd.DataFrame({"a": x, "b": 1000 * x + 50 * rng.normal(size=200)})
    frame.loc[7, "b"] = -frame.loc[7, "b"] + 2500
    frame.to_csv("real.csv", index=False)
    out = succeeded(rnade("outliers", "real.csv", "--top", "1", "--epochs", "30", *SEED))
    assert out.splitlines()[1].split()[0] == "8"


# ---------------------------------------------------------------- the oddest rows of rnade score


def test_score_shows_the_oddest_rows_first(rnade):
    out = succeeded(rnade("score", "m.rnade", "new.csv", "--top", "3", "--id", "name", "-q"))
    found = pd.read_csv(io.StringIO(out))
    scored = ["row", "name", "log_density", "p_value", "surprise", "value", "expected"]
    assert list(found) == [*scored, "age", "trade", "income"]
    assert {"p10", "p20"} <= set(found["name"])
    assert found.set_index("name").loc["p10", "surprise"] == "income"
    everything = pd.read_csv(io.StringIO(succeeded(rnade("score", "m.rnade", "new.csv", "-q"))))
    assert list(everything["row"]) == list(range(1, 121))
    by_p = everything.sort_values(["p_value", "log_density"], kind="stable")[:3]
    assert list(found["row"]) == list(by_p["row"])
    pd.testing.assert_series_equal(
        found["income"],
        people(120, seed=1)["income"].iloc[found["row"] - 1].reset_index(drop=True),
    )


def test_score_by_level_and_false_discovery_rate(rnade):
    model = load("m.rnade", device="cpu")
    p = model.pvalue(people(120, seed=1))

    def rows(*options):
        out = succeeded(rnade("score", "m.rnade", "new.csv", "-q", *options))
        return sorted(pd.read_csv(io.StringIO(out))["row"] - 1)

    assert rows("--level", "0.05") == list(np.flatnonzero(p <= 0.05))
    adjusted = scipy.stats.false_discovery_control(p)
    assert rows("--fdr", "0.4") == list(np.flatnonzero(adjusted <= 0.4))
    assert len(rows("--level", "0.2", "--top", "2")) == 2
    assert rows("--level", "0.001") == []
    assert error(rnade("score", "m.rnade", "new.csv", "--level", "0.1", "--fdr", "0.1")) == (
        "Give a level or a false discovery rate (fdr), not both."
    )
    assert "These rows were fitted" in error(
        rnade("score", "m.rnade", "people.csv", "--fdr", "0.1")
    )
    assert "--top" in error(rnade("score", "m.rnade", "new.csv", "--top", "0"))
    assert error(rnade("score", "m.rnade", "new.csv", "--id", "nome")) == (
        "new.csv has no column 'nome' for --id."
    )


@pytest.mark.parametrize("option", [["--level", "2"], ["--level", "0"], ["--top", "0"]])
def test_numbers_out_of_range_are_refused_before_the_fit(rnade, folder, monkeypatch, option):
    fits = []
    monkeypatch.setattr("rnade.RNADE.fit", lambda *a, **k: fits.append(a))
    assert option[0] in error(rnade("outliers", "people.csv", *option))
    assert not fits


def test_columns_of_the_same_name_are_renamed(rnade, folder):
    people(25).assign(value=7).to_csv("clash.csv", index=False)
    found = pd.read_csv(io.StringIO(succeeded(rnade("score", "m.rnade", "clash.csv", "-q"))))
    assert list(found["value (table)"]) == [7] * 25
    assert "value" in found


def test_rows_that_all_models_learned_are_told(rnade, folder):
    """A single network leaves out its own fold and the held-out rows."""
    succeeded(rnade("fit", "people.csv", "--no-ensemble", "--exclude", "name", "-q", *QUICK))
    _, _, err = rnade("score", "people.rnade", "people.csv")
    assert "63 of 300 rows are scored by models that left them out" in err
    assert "rnade fit --score-fitted" in err


# ---------------------------------------------------------------- rnade compare


def test_compare_gives_paired_differences(rnade):
    test = pd.read_csv("test.csv")
    scores = [load(f"{name}.rnade").score_samples(test) for name in ("gaussian", "mog")]
    run = ["compare", "gaussian.rnade", "mog.rnade", "test.csv"]
    result = json.loads(succeeded(rnade(*run, "--json")))
    assert result["n_rows"] == 200
    for told, own in zip(result["models"], scores, strict=True):
        assert told["mean"] == pytest.approx(own.mean())
        assert told["standard_error"] == pytest.approx(scipy.stats.sem(own))
    (difference,) = result["differences"]
    assert (difference["model"], difference["less"]) == ("mog.rnade", "gaussian.rnade")
    assert difference["mean"] == pytest.approx((scores[1] - scores[0]).mean())
    assert difference["standard_error"] == pytest.approx(scipy.stats.sem(scores[1] - scores[0]))
    lines = succeeded(rnade(*run)).splitlines()
    assert [line.split()[0] for line in lines] == ["gaussian.rnade", "mog.rnade"]
    assert f"{difference['mean']:+.3f} ± {difference['standard_error']:.3f}" in lines[1]


def test_compare_says_where_rows_are_not_new(rnade):
    _, _, err = rnade("compare", "gaussian.rnade", "mog.rnade", "train.csv")
    assert "rnade: gaussian.rnade: this is the table that was fitted: 20 of 200 rows" in err


def test_compare_refuses_what_does_not_compare(rnade, folder):
    run = ["compare", "gaussian.rnade"]
    assert error(rnade(*run, "m.rnade", "test.csv")).startswith(
        "gaussian.rnade has a column 'a', which m.rnade does not have: log densities of different"
    )
    frame = pd.read_csv("train.csv")
    frame.assign(b=frame["b"].round()).astype({"b": int}).to_csv("whole.csv", index=False)
    succeeded(rnade("fit", "whole.csv", "-q", *QUICK))
    assert error(rnade(*run, "whole.rnade", "test.csv")) == (
        "gaussian.rnade takes column 'b' as real numbers, whole.rnade as integers: their log"
        " densities do not compare. Fit both with the same --kind."
    )
    assert "Expected two or more models and a table" in error(rnade(*run, "test.csv"))
    assert "more than once" in error(rnade(*run, "gaussian.rnade", "test.csv"))
    assert "cannot be one" in error(rnade(*run, "mog.rnade", "-"))
