"""The command line on tables with columns of any kind: types, missing cells, messages."""

import datetime as dt
import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from rnade import RNADE, load
from rnade.cli import main
from rnade.cli.kinds import in_our_words, parse_kinds
from rnade.columns import Category, Real
from rnade.tables import read_frame, write_table

TINY = ["--n-hidden", "8", "--n-layers", "1", "--epochs", "2", "--no-ensemble"]
TINY += ["--random-state", "0"]
NAMES = ["city", "rings", "rain", "day", "at", "ok", "grade", "gap"]


def make_table(n=120, seed=0):
    """One column of each kind, two with missing cells."""
    rng = np.random.default_rng(seed)
    first = dt.date(2020, 1, 5)
    days = [first + dt.timedelta(int(d)) for d in rng.integers(0, 300, n)]
    noon = dt.datetime(2021, 3, 1, 12)
    return pa.table(
        {
            "city": pa.array(rng.choice(["Oslo", "Rome", "Bonn"], n), mask=rng.random(n) < 0.1),
            "rings": pa.array(rng.poisson(4, n)),
            "rain": pa.array(np.where(rng.random(n) < 0.4, 0, rng.gamma(2, size=n))),
            "day": pa.array(days),
            "at": pa.array(
                [noon + dt.timedelta(minutes=int(m)) for m in rng.integers(0, 9999, n)],
                pa.timestamp("s"),
            ),
            "ok": pa.array(rng.random(n) < 0.5),
            "grade": pa.array(rng.integers(1, 4, n)),
            "gap": pa.array(rng.integers(0, 9, n), mask=rng.random(n) < 0.2),
        }
    )


@pytest.fixture(scope="session")
def fitted(tmp_path_factory):
    """A folder with a table and two models of it: missing cells ignored, and informative."""
    folder = tmp_path_factory.mktemp("fitted")
    data = str(folder / "t.csv")
    write_table(make_table(), data)
    for name, more in (("m", ["--kind", "grade=ordinal"]), ("i", ["--missing", "informative"])):
        assert main(["fit", data, "-q", "-o", str(folder / f"{name}.rnade"), *more, *TINY]) == 0
    return folder


@pytest.fixture
def folder(fitted, tmp_path, monkeypatch):
    for name in ("t.csv", "m.rnade", "i.rnade"):
        (tmp_path / name).write_bytes((fitted / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RNADE_DEBUG", raising=False)
    return tmp_path


@pytest.fixture
def no_training(monkeypatch):
    """Stop a fit before it trains; gives the list of what was to be fitted."""
    asked = []

    def stop(self, X, y=None, sample_weight=None):
        asked.append((self, X))
        raise ValueError("stopped before training")

    monkeypatch.setattr(RNADE, "fit", stop)
    return asked


def done(result):
    assert result[0] == 0, result
    return result[1]


def error(result):
    code, out, err = result
    assert (code, out) == (2, ""), result
    return err.splitlines()[-1].removeprefix("rnade: error: ")


# ------------------------------------------------------------------ fit


def test_fit_takes_a_table_as_it_is(rnade):
    code, out, err = rnade("fit", "t.csv", "-o", "new.rnade", "--kind", "grade=ordinal", *TINY)
    assert code == 0
    assert out.startswith("RNADE of 120 rows and 8 columns, saved as new.rnade\n")
    table = make_table()
    gone = {name: table[name].null_count / 120 for name in ("city", "gap")}
    assert [line.removeprefix("rnade: ") for line in err.splitlines()[:8]] == [
        f"column 'city': category (3 levels: Bonn, Oslo, Rome; {gone['city']:.1%} missing)",
        "column 'rings': integer",
        "column 'rain': real (single values 0)",
        "column 'day': date (in days)",
        "column 'at': date (in whole minutes)",
        "column 'ok': category (2 levels: False, True)",
        "column 'grade': ordered category (3 levels: 1, 2, 3)",
        f"column 'gap': integer ({gone['gap']:.1%} missing)",
    ]
    model = load("new.rnade")
    assert list(model.feature_names_in_) == NAMES
    assert model.columns == {"grade": "ordinal"}
    assert model.n_rows_ == 120  # no row was dropped


def test_fit_quietly_says_nothing(rnade, no_training):
    code, _, err = rnade("fit", "t.csv", "-q")
    assert (code, len(err.splitlines())) == (2, 1)


def test_the_types_of_parquet_and_feather_files_are_kept(rnade, folder, no_training):
    table = make_table()
    table = table.set_column(0, "city", table["city"].dictionary_encode())
    table = table.set_column(4, "at", table["at"].cast(pa.timestamp("us", "UTC")))
    pq.write_table(table, "t.parquet")
    feather.write_feather(table, "t.feather")
    for name in ("t.parquet", "t.feather"):
        rnade("fit", name)
        assert no_training[-1][1].schema.types == table.schema.types


def test_options_of_reading_reach_typed_columns(rnade, folder, no_training):
    (folder / "e.csv").write_text("town;pay;w\nA;1,5;1\nB;2,25;2\nA;;1\nB;1,5;0\n")
    rnade("fit", "e.csv", "--weight", "w")
    table = no_training[-1][1]
    assert table["pay"].to_pylist() == [1.5, 2.25, None, 1.5]
    assert table.column_names == ["town", "pay"]
    rnade("fit", "e.csv", "--exclude", "town,w")
    assert no_training[-1][1].column_names == ["pay"]
    (folder / "e.csv").write_text("A|1.5\nB|2.5\nA|3\nB|4\n")
    rnade("fit", "e.csv", "--no-header", "--separator", "pipe", "--kind", "2=integer")
    message = error(rnade("fit", "e.csv", "--kind", "2=integer"))
    assert message == (
        "e.csv: column 'x2' should hold whole numbers but holds 1.5 in line 1. Round it, or pass"
        " --kind x2=real when fitting."
    )


@pytest.mark.parametrize("how", ["error", "drop", "ignore", "informative"])
def test_what_happens_to_missing_cells(rnade, folder, no_training, how):
    result = rnade("fit", "t.csv", "--missing", how)
    table = make_table()
    n_missing = table["city"].null_count + table["gap"].null_count
    complete = len(table) - sum(None in row.values() for row in table.to_pylist())
    if how == "error":
        first = next(i for i, row in enumerate(table.to_pylist()) if None in row.values())
        name = next(n for n, v in table.to_pylist()[first].items() if v is None)
        assert error(result).startswith(
            f"t.csv has {n_missing} missing cells, the first in line {first + 2}, column {name!r};"
        )
        return
    estimator, rows = no_training[-1]
    assert estimator.missing == ("informative" if how == "informative" else "ignore")
    assert len(rows) == (complete if how == "drop" else 120)
    told = f"left out {120 - complete} of 120 rows for a missing cell" in result[2]
    assert told == (how == "drop")


def test_an_empty_column_drops_no_row(rnade, folder, no_training):
    (folder / "e.csv").write_text("a,b,c\n1,,x\n2,,y\n4,,\n")
    _, _, err = rnade("fit", "e.csv", "--missing", "drop")
    assert len(no_training[-1][1]) == 2
    assert "rnade: left out column 'b': all cells are missing\n" in err
    assert error(rnade("fit", "e.csv", "--columns", "a,b")) == (
        "e.csv: column 'b' cannot be used: all cells are missing."
    )
    (folder / "e.csv").write_text("a,c\n1,\n2,\n,x\n,y\n")
    assert error(rnade("fit", "e.csv", "--missing", "drop")) == (
        "e.csv: no row is left, each has a missing cell (most in column 'a')."
    )


def test_marks_of_missing_cells(rnade, folder, no_training):
    """The usual ones among numbers; among words only those that can be nothing else."""
    (folder / "e.csv").write_text(
        "n,word,day\n1,red,2020-01-01\n?,?,-\n-,NA,2020-01-03\n4,null,?\n999,-,2020-01-04\n"
    )
    _, _, err = rnade("fit", "e.csv")
    table = no_training[-1][1]
    assert table["n"].to_pylist() == [1, None, None, 4, 999]
    assert table["word"].to_pylist() == ["red", "?", None, None, "-"]
    assert table["day"].null_count == 2
    for mark in "?-":
        told = f"column 'word' holds {mark!r} once, read as a level; if it marks missing cells"
        assert f'rnade: {told}, pass --na "{mark}"\n' in err
    _, _, err = rnade("fit", "e.csv", "--na", "-,999")
    estimator, table = no_training[-1]
    assert table["n"].to_pylist() == [1, None, None, 4, None]
    assert table["word"].to_pylist() == ["red", "?", None, None, None]
    assert estimator.na == ("-", "999", 999.0)
    assert "holds '-'" not in err


def test_marks_serve_all_models(rnade, folder):
    (folder / "e.csv").write_text("a,b\n1,x\n999.0,2\n3,4\n5,7\n2,8\n")
    assert "line 2, column 'b': 'x' is not a number" in error(
        rnade("fit", "e.csv", "--model", "gaussian")
    )
    message = error(rnade("fit", "e.csv", "--model", "gaussian", "--na", "x,999"))
    assert message.startswith("e.csv has 2 missing cells, the first in line 2, column 'b'")
    assert error(rnade("fit", "e.csv", "--kind", "real", "--na", "x,999")) == message


def test_columns_that_are_named_are_kept(rnade, folder, no_training):
    lines = [f"{7 * i},n{i},{i % 5 / 3}" for i in range(40)]
    (folder / "e.csv").write_text("id,name,x\n" + "\n".join(lines))
    _, _, err = rnade("fit", "e.csv")
    assert "left out column 'id': looks like an id (40 different whole numbers)\n" in err
    assert "left out column 'name': looks like an id (40 different texts in 40 rows)\n" in err
    assert "rnade: column 'id' is kept if --columns names it\n" in err
    _, _, err = rnade("fit", "e.csv", "--columns", "id,name,x")
    assert no_training[-1][0].columns == {"id": "integer", "name": "category"}
    assert "left out" not in err


def test_an_index_without_a_name_is_left_out(rnade, folder, no_training):
    (folder / "e.csv").write_text(",x\na,1.5\nb,2\nc,4\n")
    _, _, err = rnade("fit", "e.csv")
    assert no_training[-1][1].column_names == ["x"]
    assert "left out column 'x1': row numbers or names (3 different values)\n" in err
    rnade("fit", "e.csv", "--columns", "x1,x")
    assert no_training[-1][1].column_names == ["x1", "x"]


def test_kinds_by_hand(rnade, folder, no_training):
    (folder / "e.csv").write_text("zip,n,b,t\n00501,1,0,x\n10001,2,1,y\n00501,3,0,x\n")
    _, _, err = rnade("fit", "e.csv")
    assert "'00501' has leading zeros; if they are codes, pass --kind zip=category\n" in err
    given = ("zip=category", "n=real", "b=boolean", "t=leave-out")
    _, _, err = rnade("fit", "e.csv", *(w for kind in given for w in ("--kind", kind)))
    estimator, table = no_training[-1]
    assert table["zip"].to_pylist() == ["00501", "10001", "00501"]
    assert estimator.columns == {"zip": "category", "n": "real", "b": "boolean"}
    assert "rnade: left out column 't': left out as asked for\n" in err
    assert "rnade: column 'b': category (2 levels: False, True)\n" in err


def test_all_columns_real_is_as_ever(rnade, folder):
    code, _, err = rnade("fit", "t.csv", "-o", "r.rnade", "--kind", "real", *TINY)
    assert code == 2
    assert "missing cell" in err
    more = ("--kind", "real", "--missing", "drop", "-o", "r.rnade")
    code, _, err = rnade("fit", "t.csv", *more, *TINY)
    assert code == 0
    assert "left out column 'city': text (such as " in err
    model = load("r.rnade")
    assert model.columns == "real"
    assert model.schema_ is None
    assert list(model.feature_names_in_) == ["rings", "rain", "ok", "grade", "gap"]
    assert done(rnade("score", "r.rnade", "t.csv", "--missing", "drop"))


KIND_ERRORS = {
    "unknown column": (["citty=category"], "t.csv has no column 'citty'; did you mean 'city'?"),
    "unknown kind": (["city=catgory"], "Did you mean 'category'?"),
    "no kind": (["city"], "Expected --kind NAME=KIND, such as --kind city=category, or --kind"),
    "twice": (["ok=real", "ok=integer"], "--kind names column 'ok' more than once."),
    "real and more": (["real", "ok=integer"], "--kind real, for all columns, must be the only"),
    "no numbers": (
        ["city=real"],
        "'Oslo' is not a number; fix the cell, or pass --na \"Oslo\" if it marks a missing cell.",
    ),
    "not booleans": (["city=boolean"], "'Oslo' is not true or false; fix the cell, or pass --na"),
    "no dates": (["city=date"], "'Oslo' is not a date; fix the cell, or pass --na"),
}


@pytest.mark.parametrize("case", KIND_ERRORS)
def test_kinds_that_cannot_be(rnade, folder, case):
    (folder / "t.csv").write_text((folder / "t.csv").read_text().replace("Rome", "Oslo"))
    given, expected = KIND_ERRORS[case]
    assert expected in error(rnade("fit", "t.csv", *(w for k in given for w in ("--kind", k))))


def test_kinds_are_for_models_that_take_them(rnade):
    assert error(rnade("fit", "t.csv", "--model", "mog", "--kind", "ok=real")) == (
        "--kind is an option for --model rnade or fvbn, not mog."
    )
    message = error(rnade("fit", "t.csv", "--exclude", "ok", "--kind", "ok=real"))
    assert message == "--kind names column 'ok', which is not one of those to use."


def test_a_network_for_each_column_takes_the_same_tables(rnade, folder):
    few = ["--n-hidden", "8", "--epochs", "2", "--random-state", "0"]
    out = done(rnade("fit", "t.csv", "--model", "fvbn", "--kind", "grade=ordinal", *few))
    assert out.startswith("FVBN of 120 rows and 8 columns")
    about = done(rnade("info", "t.rnade"))
    assert "  grade: ordered category (3 levels: 1, 2, 3)\n" in about
    assert "networks: n_networks=8, n_hidden=8, " in about
    scored = json.loads(done(rnade("score", "t.rnade", "t.csv", "--json", "-q")))
    expected = load("t.rnade").score_samples(make_table())
    np.testing.assert_allclose([row["log_density"] for row in scored["rows"]], expected)
    drawn = done(rnade("sample", "t.rnade", "-n", "3", "--given", "city=Rome")).splitlines()
    assert [line.split(",")[0] for line in drawn] == ["city", *["Rome"] * 3]
    assert "median" in json.loads(done(rnade("ask", "t.rnade", "rings | city=Rome", "--json")))
    done(rnade("report", "t.rnade", "t.csv"))
    assert (folder / "report.html").exists()
    message = error(rnade("fit", "t.csv", "--model", "fvbn", "--n-hidden", "2,4", "--force"))
    assert message.endswith("this one has others. Give one number.")


@pytest.mark.parametrize("option", [["--search"], ["--recipe", "paper"]])
def test_what_only_real_columns_can_have(rnade, option):
    assert error(rnade("fit", "t.csv", *option)) == (
        f"{' '.join(option)} is for tables of complete real-valued columns; column 'city' is not"
        f" one (category). Leave {option[0]} out, or pass --kind real."
    )


def test_search_takes_what_is_left_of_a_table(rnade, folder):
    rng = np.random.default_rng(0)
    columns = {"name": [f"n{i}" for i in range(60)], "x": rng.normal(size=60)}
    write_table({**columns, "y": rng.normal(size=60), "k": np.ones(60)}, "e.csv")
    given = ("--search", "--n-components", "2", "--learning-rate", "0.01", *TINY)
    done(rnade("fit", "e.csv", "-q", *given))
    model = load("e.rnade")
    assert list(model.feature_names_in_) == ["x", "y"]
    assert set(model.origin_["left_out"]) == {"name", "k"}


def test_stray_words(rnade, folder, no_training):
    """Among at least half numbers a word is an error; otherwise the numbers are levels."""
    (folder / "e.csv").write_text("a,b\n1,2\nx,3\n4,7\n9,9\n")
    assert error(rnade("fit", "e.csv")) == (
        "e.csv: line 3, column 'a': 'x' is not a number, as most of the column is; fix the cell,"
        ' or pass --na "x" if it marks a missing cell, or --kind a=category if it is a level.'
    )
    rnade("fit", "e.csv", "--kind", "a=category")
    assert no_training[-1][1]["a"].to_pylist() == ["1", "x", "4", "9"]
    rnade("fit", "e.csv", "--na", "x")
    assert no_training[-1][1]["a"].to_pylist() == [1, None, 4, 9]
    (folder / "e.csv").write_text("a,b\n1,2\nx,3\ny,7\n?,9\nx,8\n")
    rnade("fit", "e.csv")
    assert no_training[-1][1]["a"].to_pylist() == ["1", "x", "y", "?", "x"]
    (folder / "e.csv").write_text("a,b\n2020-01-01,2\nsoon,3\n2020-01-05,7\n2020-01-05,9\n")
    assert "line 3, column 'a': 'soon' is not a date, as most of the column is" in error(
        rnade("fit", "e.csv")
    )


def test_too_many_levels(rnade, folder):
    words = [f"w{i}" for i in range(10_001)]
    write_table({"a b": words * 3, "x": np.arange(30_003.0) % 7 / 3}, "e.csv")
    assert error(rnade("fit", "e.csv")) == (
        "e.csv: column 'a b' has 10001 levels, more than the 10000 that a category can have. Pass"
        " --kind 'a b=leave-out', or merge levels first."
    )


def test_codes_for_missing_cells_are_noted(rnade, folder, no_training):
    rng = np.random.default_rng(0)
    write_table({"n": np.where(np.arange(90) % 5, rng.integers(0, 9, 90), -999)}, "e.csv")
    _, _, err = rnade("fit", "e.csv")
    assert (
        "rnade: Column 'n' holds -999 in 18 rows: a code for missing cells? If so, pass --na"
        ' "-999".\n'
    ) in err
    rnade("fit", "e.csv", "--na", "-999")
    assert no_training[-1][1]["n"].null_count == 18


def test_money_is_no_id(rnade, folder, no_training):
    money = [f"${x:,.2f}" for x in np.linspace(5, 5000, 90)]
    write_table({"n": np.arange(90) ** 2 % 17, "money": money}, "e.csv")
    _, _, err = rnade("fit", "e.csv")
    assert (
        "rnade: left out column 'money': text that looks like numbers (such as '$5.00'); convert"
        " it to plain numbers\n"
    ) in err
    assert err.count("money") == 1


def test_notes_are_told_once(rnade, folder):
    rng = np.random.default_rng(0)
    write_table({"n": np.where(np.arange(90) % 5, rng.integers(0, 9, 90), -999)}, "e.csv")
    code, _, err = rnade("fit", "e.csv", *TINY)
    assert code == 0
    assert err.count("a code for missing cells") == 1
    assert "warning" not in err


def test_what_the_estimator_was_told_is_in_the_file(rnade, folder):
    (folder / "e.csv").write_text(
        "a,b,c,d\n" + "\n".join(f"{i % 3},{'xyz'[i % 3]},k,{i}" for i in range(40))
    )
    out = done(rnade("fit", "e.csv", "--json", "--na", "z", "--exclude", "d", *TINY))
    result = json.loads(out)
    assert result["columns"] == ["a", "b"]
    assert result["left_out"] == {"c": "constant ('k' in every row)", "d": "not chosen"}
    assert result["kinds"][1] == {
        "name": "b",
        "kind": "category",
        "details": "2 levels: x, y; 32.5% missing",
    }
    model = load("e.rnade")
    assert model.origin_["left_out"] == result["left_out"]
    assert model.schema_.na == ("z",)
    # The mark is known from the model alone.
    code, out, _ = rnade("score", "e.rnade", "e.csv", "--json")
    seen = model.schema_.encode(read_frame("e.csv")[0].cells)[1]
    assert code == 0
    assert not seen[2, 1]
    x = read_frame("e.csv", na=["z"])[0].cells
    scores = [row["log_density"] for row in json.loads(out)["rows"]]
    np.testing.assert_allclose(scores, model.score_samples(x))


# ------------------------------------------------------------------ score


def test_score(rnade):
    code, out, err = rnade("score", "m.rnade", "t.csv", "--json")
    assert code == 0
    rows = json.loads(out)["rows"]
    model, table = load("m.rnade"), make_table()
    # The fitted table, whose rows are scored by networks that left them out, if any did.
    known, learned = model.fit_scores_, model.score_samples(table)
    expected = np.where(np.isnan(known), learned, known)
    np.testing.assert_allclose([row["log_density"] for row in rows], expected)
    np.testing.assert_allclose([row["p_value"] for row in rows], model.pvalue(table))
    surprise = model.surprise(table)
    for i, row in enumerate(table.to_pylist()):
        observed = [d for d, value in enumerate(row.values()) if value is not None]
        assert rows[i]["surprise"] == NAMES[max(observed, key=lambda d: surprise[i, d])]
    assert "dropped" not in err


def test_score_by_the_types_of_the_model(rnade, folder):
    """Few rows of a CSV file may look otherwise than the table that was fitted."""
    (folder / "few.csv").write_text(
        "more,gap,ok,city,rings,rain,day,at,grade\nz,,1,7,3,0,2020-02-01,2021-03-02,2\n"
    )
    code, out, err = rnade("score", "m.rnade", "few.csv")
    assert code == 0
    assert "columns not in the model are ignored: 'more'\n" in err
    row = make_table().slice(0, 1).to_pylist()[0] | {
        **{"city": "7", "rings": 3, "rain": 0.0, "day": dt.date(2020, 2, 1), "ok": True},
        **{"at": dt.datetime(2021, 3, 2), "grade": 2, "gap": None},
    }
    expected = load("m.rnade").score_samples(pa.Table.from_pylist([row], make_table().schema))
    assert float(out.splitlines()[1].split(",")[1]) == pytest.approx(expected[0])


def test_a_new_level_has_a_low_density_and_is_named(rnade, folder):
    lines = (folder / "t.csv").read_text().splitlines()
    known = next(line for line in lines if line.startswith("Oslo"))
    new = known.replace("Oslo", "Paris")
    (folder / "few.csv").write_text("\n".join([lines[0], known, new]))
    rows = json.loads(done(rnade("score", "m.rnade", "few.csv", "--json")))["rows"]
    assert rows[1]["log_density"] < rows[0]["log_density"] - 1
    assert rows[1]["surprise"] == "city"


def test_rows_without_a_cell(rnade, folder):
    (folder / "few.csv").write_text(",".join(NAMES) + "\n" + "," * 7 + "\nOslo" + "," * 7 + "\n")
    code, out, err = rnade("score", "m.rnade", "few.csv")
    assert code == 0
    assert out.splitlines()[1] == "1,0,1" + "," * 11
    assert ",city,Oslo," in out.splitlines()[2]
    assert "rnade: 1 row has no cell that the model knows: log_density is 0" in err
    found = json.loads(done(rnade("score", "m.rnade", "few.csv", "--json")))["rows"][0]
    told = {"row": 1, "log_density": 0.0, "p_value": 1.0, "surprise": None}
    assert found == {**told, "value": None, "expected": None, **dict.fromkeys(NAMES)}


def test_missing_cells_are_no_surprise_whatever_the_unit(rnade, folder):
    """In a small unit log densities are high, and the 0 of a cell that is not there is low."""
    rng = np.random.default_rng(0)
    gone = rng.random(120) < 0.3
    table = pa.table(
        {"c": ["u", "v", "v"] * 40, "x": pa.array(rng.normal(0, 1e-9, 120), mask=gone)}
    )
    write_table(table, "e.csv")
    done(rnade("fit", "e.csv", "-q", *TINY))
    write_table(table.set_column(0, "c", pa.nulls(120, pa.string())), "few.csv")
    rows = json.loads(done(rnade("score", "e.rnade", "few.csv", "--json")))["rows"]
    assert {row["surprise"] for row, is_gone in zip(rows, gone, strict=True) if is_gone} == {None}
    assert {row["p_value"] for row, is_gone in zip(rows, gone, strict=True) if is_gone} == {1.0}
    rows = json.loads(done(rnade("score", "e.rnade", "e.csv", "--json")))["rows"]
    assert {row["surprise"] for row, is_gone in zip(rows, gone, strict=True) if is_gone} == {"c"}


def test_missing_cells_when_scoring(rnade, folder):
    assert "--missing informative is an option for rnade fit" in error(
        rnade("score", "m.rnade", "t.csv", "--missing", "informative")
    )
    assert "missing cells, the first in line" in error(
        rnade("score", "m.rnade", "t.csv", "--missing", "error")
    )
    out = done(rnade("score", "m.rnade", "t.csv", "--missing", "drop", "--json"))
    complete = [i for i, row in enumerate(make_table().to_pylist(), 1) if None not in row.values()]
    assert [row["row"] for row in json.loads(out)["rows"]] == complete
    # Further marks are missing cells too.
    pq.write_table(make_table(), "t.parquet")
    table = make_table().to_pylist()
    gone = [{k: None if v in ("Rome", 3) else v for k, v in row.items()} for row in table]
    expected = load("m.rnade").score_samples(pa.Table.from_pylist(gone, make_table().schema))
    for name in ("t.csv", "t.parquet"):
        out = done(rnade("score", "m.rnade", name, "--na", "Rome,3", "--json"))
        scores = [row["log_density"] for row in json.loads(out)["rows"]]
        np.testing.assert_allclose(scores, expected, rtol=1e-9)


def test_missing_cells_may_be_the_surprise(rnade, folder):
    lines = (folder / "t.csv").read_text().splitlines()
    (folder / "few.csv").write_text("\n".join([lines[0], *lines[1:40]]))
    found = json.loads(done(rnade("score", "i.rnade", "few.csv", "--json")))["rows"]
    names = {*NAMES, "city is missing", "gap is missing"}
    assert {row["surprise"] for row in found} <= names
    assert any("is missing" in row["surprise"] for row in found)


def edited(folder, old, new, line):
    lines = (folder / "t.csv").read_text().splitlines()
    cells = lines[line - 1].split(",")
    cells[NAMES.index(old)] = new
    lines[line - 1] = ",".join(cells)
    (folder / "bad.csv").write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("name", "cell", "message"),
    [
        ("rings", "many", "line 9, column 'rings': 'many' is not a number; fix the cell, or pass"),
        ("ok", "perhaps", "line 9, column 'ok': 'perhaps' is not true or false; fix the cell"),
        ("day", "soon", "line 9, column 'day': 'soon' is not a date; fix the cell"),
        (
            "rings",
            "2.5",
            "column 'rings' should hold whole numbers but holds 2.5 in line 9. Round",
        ),
        ("rain", "inf", "column 'rain' holds an infinite value, first inf in line 9. Replace it"),
        (
            "day",
            "2020-01-05 10:00",
            "without a time of day but holds 2020-01-05 10:00:00 in line 9",
        ),
    ],
)
def test_cells_that_the_model_cannot_take(rnade, folder, name, cell, message):
    edited(folder, name, cell, 9)
    assert error(rnade("score", "m.rnade", "bad.csv")).startswith("bad.csv: ")
    assert message in error(rnade("score", "m.rnade", "bad.csv"))


def test_new_types_are_named_with_the_row(rnade, folder):
    table = make_table()
    words = pa.array([str(n) for n in table["rings"].to_pylist()])
    pq.write_table(table.set_column(1, "rings", words), "bad.parquet")
    message = error(rnade("score", "m.rnade", "bad.parquet"))
    assert message == (
        f"bad.parquet: column 'rings' should hold numbers but holds text, first"
        f" {words[0].as_py()!r} in row 1. Convert the column to numbers; if such text marks"
        " missing cells, pass it in --na when fitting."
    )
    pq.write_table(table.drop_columns(["ok"]), "less.parquet")
    assert "less.parquet has no column 'ok'" in error(rnade("score", "m.rnade", "less.parquet"))


def test_a_column_may_be_missing_altogether_in_new_rows(rnade, folder):
    table = make_table()
    pq.write_table(table.set_column(1, "rings", pa.nulls(120)), "e.parquet")
    write_table(table.set_column(1, "rings", pa.nulls(120)), "e.csv")
    expected = load("m.rnade").score_samples(table.set_column(1, "rings", pa.nulls(120)))
    for name in ("e.csv", "e.parquet"):
        rows = json.loads(done(rnade("score", "m.rnade", name, "--json")))["rows"]
        np.testing.assert_allclose([row["log_density"] for row in rows], expected, rtol=1e-9)
        assert "rings" not in {row["surprise"] for row in rows}


def test_models_without_names_go_by_position(rnade, folder):
    rows = np.array([[i % 3, "xyz"[i % 3], i % 7 / 3 + i / 1000] for i in range(40)], dtype=object)
    kinds = {"x1": Category(), "x3": Real(atoms=())}
    settings = {"n_hidden": 8, "n_layers": 1, "epochs": 2, "ensemble": None, "random_state": 0}
    model = RNADE(columns=kinds, **settings).fit(rows)
    model.save("bare.rnade")
    (folder / "e.csv").write_text("\n".join(f"{a},{b},{c}" for a, b, c in rows))
    found = json.loads(done(rnade("score", "bare.rnade", "e.csv", "--json")))["rows"]
    np.testing.assert_allclose([r["log_density"] for r in found], model.score_samples(rows))
    (folder / "e.csv").write_text("\n".join(f"{a},{b},{c},7" for a, b, c in rows))
    assert error(rnade("score", "bare.rnade", "e.csv")) == (
        "e.csv has 4 columns; the model, which has no column names, expects 3. Choose them with"
        " --columns."
    )
    assert done(rnade("score", "bare.rnade", "e.csv", "--columns", "1,2,3"))
    assert done(rnade("sample", "bare.rnade")).startswith("x1,x2,x3\n")


# ------------------------------------------------------------------ sample and info


@pytest.mark.parametrize("name", ["s.csv", "s.parquet", "s.feather"])
def test_sample_gives_names_and_types(rnade, name):
    done(rnade("sample", "m.rnade", "-n", 50, "--random-state", 0, "-o", name))
    table = read_frame(name)[0].cells
    # Parquet knows no seconds.
    unit = "ms" if name == "s.parquet" else "s"
    types = [
        pa.timestamp(unit) if pa.types.is_timestamp(t) else t for t in make_table().schema.types
    ]
    assert table.schema.types == types
    assert table.column_names == NAMES
    assert set(table["city"].to_pylist()) <= {"Oslo", "Rome", "Bonn"}
    assert set(table["grade"].to_pylist()) <= {1, 2, 3}
    assert all(at.second == 0 for at in table["at"].to_pylist())
    assert sum(column.null_count for column in table.columns) == 0


def test_sampled_text(rnade):
    lines = done(rnade("sample", "m.rnade", "-n", 30, "--random-state", 0)).splitlines()
    assert lines[0] == ",".join(NAMES)
    for line in lines[1:]:
        city, rings, _, day, at, ok, grade, gap = line.split(",")
        assert city in ("Oslo", "Rome", "Bonn")
        assert ok in ("true", "false")
        assert f"{int(rings)} {int(grade)} {int(gap)}" == f"{rings} {grade} {gap}"
        assert dt.date.fromisoformat(day).isoformat() == day
        assert dt.datetime.fromisoformat(at).isoformat(" ") == at


def test_draws_have_missing_cells_when_informative(rnade):
    done(rnade("sample", "i.rnade", "-n", 300, "--random-state", 0, "-o", "s.csv"))
    table = read_frame("s.csv")[0].cells
    gone = {name: table[name].null_count for name in table.column_names}
    assert gone["city"] > 0
    assert gone["gap"] > 0
    assert sum(gone.values()) == gone["city"] + gone["gap"]
    assert list(gone) == NAMES


def test_categories_of_parquet_come_back(rnade, folder):
    table = pa.table(
        {
            "c": pa.array(["a, b", "c"] * 30).dictionary_encode(),
            "x": np.random.default_rng(0).normal(size=60),
        }
    )
    pq.write_table(table, "e.parquet")
    done(rnade("fit", "e.parquet", "-q", *TINY))
    done(rnade("sample", "e.rnade", "-n", 9, "-o", "s.parquet"))
    assert pq.read_table("s.parquet").schema.types == table.schema.types
    done(rnade("sample", "e.rnade", "-n", 9, "-o", "s.csv"))
    assert set(read_frame("s.csv")[0].cells["c"].to_pylist()) <= {"a, b", "c"}


def test_draws_of_a_pandas_model_need_no_pandas(rnade, folder, monkeypatch):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"c": pd.Categorical(["u", "v"] * 30), "n": np.arange(60) % 7})
    settings = {"n_hidden": 8, "n_layers": 1, "epochs": 2, "ensemble": None, "random_state": 0}
    RNADE(**settings).fit(frame).save("p.rnade")
    monkeypatch.setitem(sys.modules, "pandas", None)
    lines = done(rnade("sample", "p.rnade", "-n", 5)).splitlines()
    assert lines[0] == "c,n"
    assert {line.split(",")[0] for line in lines[1:]} <= {"u", "v"}


def test_info(rnade):
    text = done(rnade("info", "m.rnade"))
    model = load("m.rnade")
    city = make_table()["city"].null_count / 120
    gap = make_table()["gap"].null_count / 120
    assert "columns (8): city, rings, rain, day, at, ok, grade, gap\n" in text
    assert f"  city: category (3 levels: Bonn, Oslo, Rome; {city:.1%} missing)\n" in text
    assert (
        "log densities: levels and integers have probabilities, real columns densities per unit,"
        " single values (atoms) probabilities\n"
    ) in text
    assert f"missing cells: city {city:.1%}, gap {gap:.1%}\n" in text
    assert "kept for new levels: city " in text
    assert "networks: n_networks=1, n_hidden=8, n_layers=" in text
    found = json.loads(done(rnade("info", "m.rnade", "--json")))
    assert [kind["name"] for kind in found["kinds"]] == NAMES
    assert found["network"] == model.network_
    assert found["missing"] == {"city": pytest.approx(city), "gap": pytest.approx(gap)}
    reserved = found["new_level_probability"]
    assert set(reserved) == {"city", "ok", "grade"}
    # What a level that was never seen gets, alone in its row.
    alone = {name: pa.nulls(1, make_table()[name].type) for name in NAMES}
    for name, value in (("city", "Paris"), ("grade", 7)):
        row = pa.table(alone | {name: pa.array([value])})
        assert np.exp(model.score_samples(row)) == pytest.approx(reserved[name])


def test_info_tells_what_was_left_out(rnade, folder):
    lines = [f"{i % 3},k,{7 * i}" for i in range(40)]
    (folder / "e.csv").write_text("n,k,id\n" + "\n".join(lines))
    done(rnade("fit", "e.csv", "-q", *TINY))
    text = done(rnade("info", "e.rnade"))
    reason = "looks like an id (40 different whole numbers)"
    assert f"left out: k: constant ('k' in every row); id: {reason}\n" in text
    assert json.loads(done(rnade("info", "e.rnade", "--json")))["left_out"]["id"] == reason


# ------------------------------------------------------------------ words


def test_kinds_are_parsed():
    assert parse_kinds([]) == {}
    assert parse_kinds(["a=b=real"]) == {"a=b": "real"}
    assert parse_kinds(["real"]) is None


def test_python_words_become_options(folder):
    (folder / "e.csv").write_text("# made\n\na,b\n1,2\n3,4\n")
    frame, _ = read_frame("e.csv")
    for said, ours in {
        "x in row 1. Go": "x in line 5. Go",
        'pass columns={"it\'s": "real"} or': "pass --kind 'it'\"'\"'s=real' or",
        "pass na=['?', -999, -9.0].": 'pass --na "?,-999,-9".',
        "in na=[...] when": "in --na when",
        'see missing="informative"': "see --missing informative",
        "Convert it, e.g. with pandas' dt.tz_localize or polars' dt.replace_time_zone.": (
            "Convert it."
        ),
    }.items():
        assert in_our_words(said, frame) == ours
