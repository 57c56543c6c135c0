"""Questions on the command line: ask, impute, and draws given what is known."""

import csv
import datetime as dt
import doctest
import importlib
import io
import random
import re
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rnade import RNADE, load
from rnade.cli.ask import _shows_pictures
from rnade.cli.blocks import bar, skyline, span
from rnade.cli.conditions import (
    Condition,
    Interval,
    Question,
    parse_conditions,
    parse_question,
    write_condition,
    write_question,
)
from rnade.cli.given import read_value
from rnade.columns import Column
from rnade.tables import read_frame, write_table
from tests.commands import error, told, work_in
from tests.commands import succeeded as done
from tests.test_cli_tables import NAMES, TINY, fit_both, make_table

SETTINGS = {"n_hidden": 8, "n_layers": 1, "epochs": 2, "ensemble": None, "random_state": 0}


def make_rows():
    """The table of all kinds, with ids that no model takes, in front and at the end."""
    table = make_table()
    table = table.add_column(0, "code", pa.array([f"{i:05d}" for i in range(120)]))
    return table.append_column("note", pa.array([f"of {i}, NA" for i in range(120)]))


@pytest.fixture(scope="session")
def fitted(tmp_path_factory):
    return fit_both(tmp_path_factory.mktemp("asked"), make_rows())


@pytest.fixture
def folder(fitted, tmp_path, monkeypatch):
    return work_in(tmp_path, monkeypatch, fitted)


def cells_of(text, separator=","):
    return list(csv.reader(io.StringIO(text), delimiter=separator))


# ------------------------------------------------------------------ questions as text

PIECES = ["a", "B", "é", " ", "  ", "|", ",", "=", ".", "..", "'", '"', "-", "1", "\n", "''"]


def random_text(rng, smallest):
    """Text of whatever has a meaning in a question, and of what has none."""
    return "".join(rng.choice(PIECES) for _ in range(rng.randint(smallest, 5)))


def random_question(rng):
    def value():
        if rng.random() < 0.5:
            return random_text(rng, 0)
        ends = [random_text(rng, 0), None if rng.random() < 0.3 else random_text(rng, 0)]
        rng.shuffle(ends)
        return Interval(*ends)

    names = list(dict.fromkeys(random_text(rng, 1) for _ in range(rng.randint(1, 5))))
    return Question(names[0], tuple(Condition(name, value()) for name in names[1:]))


@pytest.mark.parametrize("seed", range(10))
def test_questions_are_read_as_they_were_written(seed):
    rng = random.Random(seed)
    for _ in range(300):
        question = random_question(rng)
        text = write_question(question)
        assert parse_question(text) == question, text
        if question.given:
            texts = [write_condition(condition) for condition in question.given]
            assert parse_conditions(texts) == question.given
            assert parse_conditions([", ".join(texts)]) == question.given


def test_blanks_and_quotes_do_not_matter():
    expected = Question("pay", (Condition("age", Interval("30", "40")), Condition("sex", "F")))
    for text in (
        "pay|age=30..40,sex=F",
        "  pay  |  age = 30 .. 40 ,  sex = F ",
        "'pay' | \"age\" = '30'..\"40\", 'sex'='F'",
    ):
        assert parse_question(text) == expected


def test_only_what_has_to_be_is_in_quotes():
    given = (Condition("it's", "2020-01-01 18:30"), Condition("x", "a=b"))
    expected = "price eur | it's=2020-01-01 18:30, x='a=b'"
    assert write_question(Question("price eur", given)) == expected


def test_points_within_and_beside_intervals():
    def value(text):
        return parse_conditions([f"a..b={text}"])[0].value

    assert value("1.5..2.5") == Interval("1.5", "2.5")
    assert value(".5...7") == Interval(".5", ".7")
    assert value("..-1") == Interval(None, "-1")
    assert value("'1..2'") == "1..2"
    assert value("''") == ""


QUESTION_ERRORS = {
    "": "Cannot read '': expected a column to ask about, such as in income | age=40.",
    "| age=40": "expected a column to ask about",
    "pay |": "Cannot read 'pay |': expected NAME=VALUE, such as age=40.",
    "pay | age=40,": "expected NAME=VALUE, such as age=40.",
    "pay, age": "ask about one column at a time, such as pay; put a name or value that holds",
    "pay=3": "expected a column, then | and NAME=VALUE; put a name",
    "pay | age": "expected NAME=VALUE, such as age=40, but got 'age'.",
    "pay | age, sex=F": "but got 'age'.",
    "pay | age>30": "got 'age>30'; intervals are written as age=30..40, age=30.. or age=..40.",
    "pay | age=": "expected a value of 'age', such as age=40.",
    "pay | =3": "expected NAME=VALUE, such as age=40.",
    "pay | age=..": "the interval of 'age' has no end; expected one such as 30.. or ..40.",
    "pay | age=1..2..3": "'..' follows the value of 'age', not a comma; put a name or value",
    "pay | age=40 sex=F": "'=' follows the value of 'age', not a comma; put a name or value",
    "pay | age=40 | sex=F": "'|' follows the value of 'age', not a comma",
    "'pay": "Cannot read \"'pay\": a quote ' is never closed.",
    "'pay'x | age=4": "expected one of | , = after a quote; got 'x | age=4'.",
    "pay | pay=3": "'pay' is what is asked for, so it cannot be given too.",
    "pay | age=3, age=4": "Column 'age' is given more than once.",
}


@pytest.mark.parametrize("text", QUESTION_ERRORS)
def test_what_is_no_question(text):
    with pytest.raises(ValueError, match=re.escape(QUESTION_ERRORS[text])):
        parse_question(text)


def test_a_column_is_given_once_in_all_options():
    with pytest.raises(ValueError, match="Column 'age' is given more than once"):
        parse_conditions(["age=3", "sex=F, age=4"])


@pytest.mark.parametrize("name", ["blocks", "conditions", "given", "kinds", "terminal"])
def test_docstring_examples(name):
    result = doctest.testmod(importlib.import_module(f"rnade.cli.{name}"))
    assert result.attempted > 0
    assert result.failed == 0


# ------------------------------------------------------------------ values by kind

COLUMNS = {
    "city": Column("city", "category", levels=("Oslo", "Rome"), dtype="string"),
    "ok": Column("ok", "category", levels=(False, True), dtype="bool"),
    "grade": Column("grade", "category", levels=(1, 2, 5), ordered=True, dtype="int64"),
    "rings": Column("rings", "integer", dtype="int64"),
    "rain": Column("rain", "real", dtype="double"),
    "day": Column("day", "date", dtype="date32[day]", unit="day"),
    "at": Column("at", "date", dtype="timestamp[s]", unit="second", step=60),
    "there": Column("there", "date", dtype="timestamp[us, tz=Asia/Tokyo]", unit="second"),
    "noon": Column("noon", "real", dtype="time64[us]"),
    "took": Column("took", "real", dtype="duration[s]"),
}
TOKYO = dt.timezone(dt.timedelta(hours=9))


@pytest.mark.parametrize(
    ("name", "word", "value"),
    [
        ("city", "Rome", "Rome"),
        ("ok", "TRUE", True),
        ("ok", "0", False),
        ("grade", "5", 5),
        ("grade", "2.0", 2),
        ("rings", "-3", -3),
        ("rings", "1e3", 1000),
        ("rain", "2", 2.0),
        ("rain", "-.5e-3", -0.0005),
        ("day", "2020-02-29", dt.date(2020, 2, 29)),
        ("day", "2020-02-29 00:00", dt.date(2020, 2, 29)),
        ("at", "2021-03-01T12:30", dt.datetime(2021, 3, 1, 12, 30)),
        ("at", "2021-03-01", dt.datetime(2021, 3, 1)),
        ("there", "2021-03-01 09:00", dt.datetime(2021, 3, 1, 9, tzinfo=TOKYO)),
        ("there", "2021-03-01 00:00Z", dt.datetime(2021, 3, 1, 9, tzinfo=TOKYO)),
        ("noon", "12:30", dt.time(12, 30)),
        ("took", "1.5", dt.timedelta(seconds=1.5)),
    ],
)
def test_words_are_values_of_their_columns(name, word, value):
    found = read_value(word, COLUMNS[name])
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "word", "message"),
    [
        ("city", "rome", "Column 'city' has no level 'rome'; did you mean 'Rome'? It has 'Oslo',"),
        ("city", "Ulm", "Column 'city' has no level 'Ulm'; it has 'Oslo', 'Rome'."),
        ("ok", "yes", "Column 'ok' has no level 'yes'; it has 'false', 'true'."),
        ("grade", "3", "Column 'grade' has no level '3'; it has '1', '2', '5'."),
        ("grade", "top", "Column 'grade' has no level 'top'; it has '1', '2', '5'."),
        ("rings", "2.5", "Column 'rings' holds whole numbers, such as 40; got '2.5'."),
        ("rings", "inf", "Column 'rings' holds whole numbers, such as 40; got 'inf'."),
        ("rain", "much", "Column 'rain' holds numbers, such as 12.5; got 'much'."),
        ("rain", "inf", "Column 'rain' holds numbers, such as 12.5; got 'inf'."),
        ("rain", "nan", "Column 'rain' holds numbers, such as 12.5; got 'nan'."),
        ("day", "31.12.2020", "Column 'day' holds dates, such as 2020-12-31; got '31.12.2020'."),
        ("day", "2020-02-29 10:00", "such as 2020-12-31; got '2020-02-29 10:00'."),
        ("at", "soon", "Column 'at' holds dates, such as 2020-12-31 18:30; got 'soon'."),
        ("at", "2021-03-01T12:30Z", "Column 'at' has no time zone; got '2021-03-01T12:30Z'."),
        ("noon", "noon", "Column 'noon' holds times of day, such as 18:30; got 'noon'."),
        ("took", "long", "holds spans of time in seconds, such as 12.5; got 'long'."),
    ],
)
def test_words_that_are_no_values(name, word, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read_value(word, COLUMNS[name])


def test_of_many_levels_the_first_are_told():
    column = Column("c", "category", levels=tuple(f"level {i}" for i in range(40)))
    with pytest.raises(ValueError, match=r"it has 'level 0', .*'level 11' and 28 more\.$"):
        read_value("xyz", column)


# ------------------------------------------------------------------ pictures


def test_bars_have_the_length_of_their_share():
    found = [bar(share, 4) for share in (0, 0.25, 0.5, 1, 2, -1)]
    assert found == ["", "█", "██", "████", "████", ""]
    lengths = [len(bar(i / 100, 30)) for i in range(101)]
    assert lengths == sorted(lengths)
    assert max(lengths) == 30


def test_a_skyline_is_as_high_as_its_values():
    lines = skyline([0, 1, 2, 4], 4)
    assert [len(line) for line in lines] == [4] * 4
    assert ["".join(line[i] for line in lines).count("█") for i in range(4)] == [0, 1, 2, 4]
    assert skyline([1000, 1e-9], 1) == ["█▁"]
    assert skyline([0, 0], 2) == ["  ", "  "]


def test_a_span_is_drawn_where_it_is():
    assert span(0, 2, 4) == "├─┼─┤"
    assert span(2, 2, 2) == "  ┼"
    assert span(1, 1, 3) == " ┼─┤"


# ------------------------------------------------------------------ impute


@pytest.mark.parametrize("how", ["mean", "median", "likeliest"])
def test_impute_fills_missing_cells_and_changes_no_other(rnade, folder, how):
    code, out, err = rnade("impute", "m.rnade", "t.csv", "--how", how)
    assert code == 0
    before, after = cells_of((folder / "t.csv").read_text()), cells_of(out)
    expected = load("m.rnade").impute(make_table(), how=how).to_pylist()
    assert after[0] == before[0] == ["code", *NAMES, "note"]
    for old, new, row in zip(before[1:], after[1:], expected, strict=True):
        for name, was, now in zip(before[0], old, new, strict=True):
            assert now == (was or str(row[name]))
    n_city, n_gap = (make_table()[name].null_count for name in ("city", "gap"))
    assert err == (
        f"rnade: filled {n_city + n_gap} missing cells in 120 rows: city {n_city}, gap {n_gap}\n"
    )


def test_means_are_the_default(rnade):
    means = done(rnade("impute", "m.rnade", "t.csv", "--how", "mean"))
    assert done(rnade("impute", "m.rnade", "t.csv")) == means
    assert rnade("impute", "m.rnade", "t.csv", "-q")[1:] == (means, "")


def test_imputing_nothing_changes_nothing(rnade, folder):
    complete = done(rnade("impute", "m.rnade", "t.csv"))
    (folder / "c.csv").write_text(complete)
    code, out, err = rnade("impute", "m.rnade", "c.csv", "--how", "draw")
    assert (code, out) == (0, complete)
    assert err == "rnade: no cell is missing in the columns of the model: nothing to fill\n"


def test_filled_cells_look_like_those_beside_them(rnade, folder):
    """Separator, decimal comma, True for true; codes, blanks and NA elsewhere are left alone."""
    (folder / "e.csv").write_text(
        "\n".join(
            ["zip;pay;ok;more"]
            + [f"0{i};{i % 7},{i % 4}5;{'TRUE' if i % 2 else 'FALSE'}; NA " for i in range(60)]
            + ["060;;TRUE;-", "061;3,50;; x", "062;-;NA;"]
        )
    )
    given = ("--kind", "ok=boolean", "--columns", "pay,ok")
    done(rnade("fit", "e.csv", "-q", *given, *TINY))
    out = done(rnade("impute", "e.rnade", "e.csv"))
    before, after = (cells_of(t, ";") for t in ((folder / "e.csv").read_text(), out))
    assert after[:61] == before[:61]
    filled = load("e.rnade").impute(read_frame("e.csv", ["pay", "ok"])[0].cells).to_pylist()
    for row in (60, 61, 62):
        pay, ok = after[row + 1][1:3]
        assert float(pay.replace(",", ".")) == pytest.approx(filled[row]["pay"])
        assert ok == str(filled[row]["ok"]).upper()
        assert [after[row + 1][i] for i in (0, 3)] == [before[row + 1][i] for i in (0, 3)]
    assert "," in after[61][1]
    assert after[62][1] == "3,50"
    (folder / "again.csv").write_text(out)
    assert read_frame("again.csv", ["pay", "ok"])[0].cells.to_pylist()[60:] == filled[60:]


def test_names_that_a_header_leaves_out_stay_so(rnade, folder):
    text = (folder / "t.csv").read_text()
    (folder / "e.csv").write_text(text.replace("code,", ",", 1))
    done(rnade("fit", "e.csv", "-q", *TINY))
    assert done(rnade("impute", "e.rnade", "e.csv")).startswith(f",{','.join(NAMES)},note\n00000,")
    header = done(rnade("impute", "e.rnade", "e.csv", "--draws", 1)).splitlines()[0]
    assert header == f"draw,,{','.join(NAMES)},note"


def test_impute_reads_standard_input(rnade, folder, monkeypatch):
    expected = done(rnade("impute", "m.rnade", "t.csv"))
    source = io.TextIOWrapper(io.BytesIO((folder / "t.csv").read_bytes()))
    monkeypatch.setattr("sys.stdin", source)
    assert done(rnade("impute", "m.rnade", "-")) == expected


def test_dates_of_a_column_are_of_one_form(rnade, folder):
    lines = [f"{1 + i % 28}.{1 + i % 12}.2020,{i % 5}" for i in range(60)]
    (folder / "e.csv").write_text("\n".join(["day,n", *lines, ",3"]))
    done(rnade("fit", "e.csv", "-q", *TINY))
    code, out, err = rnade("impute", "e.rnade", "e.csv")
    assert code == 0
    found = [dt.date.fromisoformat(row[0]) for row in cells_of(out)[1:]]
    assert found[:60] == [dt.date(2020, 1 + i % 12, 1 + i % 28) for i in range(60)]
    assert "rnade: dates of column 'day' are rewritten as 2020-12-31\n" in err
    assert [row[1] for row in cells_of(out)[1:]] == [*(str(i % 5) for i in range(60)), "3"]
    # Those of this form, with a time or not, are left alone.
    lines = [f"2020-{1 + i % 12:02}-{1 + i % 28:02}T0{i % 9}:30,{i % 5}" for i in range(60)]
    (folder / "iso.csv").write_text("\n".join(["day,n", *lines, ",3"]))
    done(rnade("fit", "iso.csv", "-q", *TINY))
    code, out, err = rnade("impute", "iso.rnade", "iso.csv")
    assert code == 0
    assert out.splitlines()[1:-1] == lines
    assert "rewritten" not in err
    # Without a missing date there is no need to.
    (folder / "few.csv").write_text("day,n\n31.1.2020,\n")
    assert done(rnade("impute", "e.rnade", "few.csv")).startswith("day,n\n31.1.2020,")


@pytest.mark.parametrize("name", ["f.parquet", "f.feather"])
def test_impute_writes_types(rnade, folder, name):
    done(rnade("impute", "m.rnade", "t.csv", "-o", name))
    table = read_frame(name)[0].cells
    assert table.column_names == ["code", *NAMES, "note"]
    assert table["code"].to_pylist() == make_rows()["code"].to_pylist()  # 00007 stays as it is
    filled = load("m.rnade").impute(make_table())
    for column in NAMES:
        assert table[column].to_pylist() == filled[column].to_pylist()


def test_columns_that_are_not_in_the_model_lose_nothing(rnade, folder):
    columns = {
        "number": [str(i) for i in range(60)],
        "padded": [f"{i:03}" for i in range(60)],
        "some": ["x", *map(str, range(59))],
        "empty": [""] * 60,
        "gaps": ["", *map(str, range(59))],
    }
    write_table({"n": [i % 5 for i in range(60)], **columns}, "e.csv")
    done(rnade("fit", "e.csv", "-q", "--columns", "n", "--kind", "n=category", *TINY))
    (folder / "few.csv").write_text((folder / "e.csv").read_text() + ",,,,,\n")
    done(rnade("impute", "e.rnade", "few.csv", "-o", "f.parquet"))
    found = pq.read_table("f.parquet").to_pydict()
    assert found.pop("n")[-1] is not None
    assert found == {
        "number": [*range(60), None],
        "padded": [*columns["padded"], None],
        "some": [*columns["some"], None],
        "empty": [None] * 61,
        "gaps": [None, *range(59), None],
    }


def test_impute_keeps_the_types_of_a_file(rnade, folder):
    levels = pa.DictionaryArray.from_arrays(
        pa.array([None, 2, 1, 0] * 30, pa.int8()), ["Rome", "Oslo", "Bonn"], ordered=True
    )
    table = make_rows().set_column(1, "city", levels)
    table = table.set_column(8, "gap", table["gap"].cast(pa.int16()))
    table = table.append_column("list", pa.array([[1, 2]] * 120))
    pq.write_table(table, "t.parquet")
    done(rnade("impute", "m.rnade", "t.parquet", "-o", "f.parquet"))
    found = pq.read_table("f.parquet")
    table = pq.read_table("t.parquet")
    assert found.schema.types == table.schema.types
    city = found["city"].combine_chunks()
    assert city.dictionary.to_pylist() == ["Rome", "Oslo", "Bonn"]
    for name in found.column_names:
        for was, now in zip(table[name].to_pylist(), found[name].to_pylist(), strict=True):
            assert now is not None
            assert was in (None, now)


def test_types_that_cannot_hold_a_filling_are_widened(rnade, folder):
    rng = np.random.default_rng(0)
    rain = rng.normal(size=90)
    pq.write_table(pa.table({"x": pa.array(rain), "c": ["u", "v", "w"] * 30}), "e.parquet")
    done(rnade("fit", "e.parquet", "-q", *TINY))
    model = load("e.rnade")
    for x in (pa.array([1, None, 2]), pa.nulls(3)):
        table = pa.table({"c": pa.array(["u", "v", None]), "x": x})
        pq.write_table(table, "few.parquet")
        done(rnade("impute", "e.rnade", "few.parquet", "-o", "f.parquet", "--force"))
        found = pq.read_table("f.parquet")
        assert found.column_names == ["c", "x"]
        real = table.set_column(1, "x", x.cast(pa.float64()))
        assert found.to_pylist() == model.impute(real).to_pylist()
        assert found["x"][1].as_py() % 1 != 0


def test_multiple_imputation(rnade, folder):
    args = ("impute", "m.rnade", "t.csv", "--draws", 3, "--seed", 5)
    out = done(rnade(*args))
    assert done(rnade(*args)) == out
    assert done(rnade(*args[:-1], 6)) != out
    header, *rows = cells_of(out)
    assert header == ["draw", "code", *NAMES, "note"]
    assert [row[0] for row in rows] == [str(1 + i // 120) for i in range(360)]
    before = cells_of((folder / "t.csv").read_text())[1:]
    parts = [[row[1:] for row in rows[120 * k : 120 * k + 120]] for k in range(3)]
    assert parts[0] != parts[1] != parts[2] != parts[0]
    for part in parts:
        for old, new in zip(before, part, strict=True):
            assert all(now and was in ("", now) for was, now in zip(old, new, strict=True))
    expected = load("m.rnade").impute(make_table(), "draw", n_draws=3, random_state=5)
    for part, table in zip(parts, expected, strict=True):
        assert [row[8] for row in part] == [str(n) for n in table["gap"].to_pylist()]


def test_one_draw_is_no_column(rnade):
    out = done(rnade("impute", "m.rnade", "t.csv", "--how", "draw", "--random-state", 5))
    assert cells_of(out)[0] == ["code", *NAMES, "note"]


def test_impute_as_json(rnade, folder):
    found = told(rnade("impute", "m.rnade", "t.csv", "--json"))
    filled = load("m.rnade").impute(make_table()).to_pylist()
    assert found["summary"] == {
        "how": "mean",
        "draws": None,
        "n_rows": 120,
        "filled": {name: make_table()[name].null_count for name in ("city", "gap")},
    }
    for row, expected in zip(found["rows"], filled, strict=True):
        assert row["gap"] == expected["gap"]
        assert row["rain"] == pytest.approx(expected["rain"])
        assert row["day"] == expected["day"].isoformat()
        assert row["at"] == expected["at"].isoformat(" ")
        assert row["ok"] is expected["ok"]
    found = told(rnade("impute", "m.rnade", "t.csv", "--json", "-o", "f.csv"))
    assert found["output"] == "f.csv"
    assert "rows" not in found
    assert (folder / "f.csv").read_text() == done(rnade("impute", "m.rnade", "t.csv"))


def test_impute_takes_further_marks(rnade, folder):
    gone = [
        {k: None if v in ("Rome", 3) else v for k, v in row.items()}
        for row in make_table().to_pylist()
    ]
    table = pa.Table.from_pylist(gone, make_table().schema)
    expected = load("m.rnade").impute(table)["city"].to_pylist()
    pq.write_table(make_rows(), "t.parquet")
    for name in ("t.csv", "t.parquet"):
        out = done(rnade("impute", "m.rnade", name, "--na", "Rome,3"))
        assert [row[1] for row in cells_of(out)[1:]] == expected


def test_impute_when_missing_cells_are_informative(rnade):
    rows = cells_of(done(rnade("impute", "i.rnade", "t.csv")))
    assert all(cell for row in rows for cell in row)


def test_impute_of_a_model_without_names(rnade, folder):
    rows = np.array([[i % 3, "xyz"[i % 3], i % 7 / 3 + i / 1000] for i in range(40)], dtype=object)
    RNADE(**SETTINGS).fit(rows).save("bare.rnade")
    (folder / "e.csv").write_text("a,b,c\n1,,0.5\n,x,2\n")
    out = done(rnade("impute", "bare.rnade", "e.csv"))
    assert out.splitlines()[0] == "a,b,c"
    assert [row[2] for row in cells_of(out)[1:]] == ["0.5", "2"]
    assert cells_of(out)[1][0] == "1"
    assert all(cell for row in cells_of(out) for cell in row)


PLAIN = ["--n-hidden", "4", "--n-components", "3", "--epochs", "2", "--batches-per-epoch", "2"]


@pytest.mark.parametrize("more", [[], ["--kind", "real"]])
def test_tables_of_real_columns_are_asked_too(rnade, folder, more):
    rng = np.random.default_rng(0)
    a = rng.normal(size=120)
    write_table({"a": a, "b": a + rng.normal(size=120)}, "e.csv")
    done(rnade("fit", "e.csv", "-q", *more, *PLAIN, "--random-state", "0"))
    model = load("e.rnade")
    (folder / "few.csv").write_text("id,b,a\n07,,0.50\n08,1.5,\n")
    rows = cells_of(done(rnade("impute", "e.rnade", "few.csv")))
    assert rows[0] == ["id", "b", "a"]
    assert [rows[1][0], rows[1][2], *rows[2][:2]] == ["07", "0.50", "08", "1.5"]
    b, a = float(rows[1][1]), float(rows[2][2])
    assert b == pytest.approx(model.conditional("b", {"a": 0.5}).mean()[0])
    assert a == pytest.approx(model.conditional("a", {"b": 1.5}).mean()[0])
    found = told(rnade("ask", "e.rnade", "b | a=0.5", "--json"))
    assert found["mean"] == pytest.approx(b)
    drawn = cells_of(done(rnade("sample", "e.rnade", "-n", 5, "--given", "a=0.5..0.75")))
    assert drawn[0] == ["a", "b"]
    assert all(0.5 <= float(row[0]) <= 0.75 for row in drawn[1:])


@pytest.mark.parametrize("without", ["--no-questions", "--no-ensemble"])
def test_models_without_networks_for_questions_say_so(rnade, folder, without):
    rng = np.random.default_rng(0)
    write_table({"a": rng.normal(size=60), "b": rng.normal(size=60)}, "e.csv")
    done(rnade("fit", "e.csv", "-q", without, *PLAIN))
    assert error(rnade("ask", "e.rnade", "a")) == (
        "This model has no networks that answer questions about some columns given others. Fit it"
        " again without --no-questions, --no-ensemble and --recipe paper."
    )
    assert done(rnade("sample", "e.rnade"))


IMPUTE_ERRORS = {
    "how": (["--how", "best"], "Invalid value for '--how'"),
    "draws of means": (
        ["--draws", 2, "--how", "mean"],
        "--draws is for --how draw; got --how mean.",
    ),
    "no draws": (["--draws", 0], "n_draws must be a whole number >= 1; got 0."),
    "format": (["-o", "f.txt"], "Expected a file name ending in .csv, .parquet or .feather"),
    "input": (["-o", "t.csv", "--force"], "Cannot write t.csv: it is an input too (t.csv)."),
    "columns": (["--columns", "city"], "--columns is for models fitted without column names"),
}


@pytest.mark.parametrize("case", IMPUTE_ERRORS)
def test_imputations_that_cannot_be(rnade, case):
    given, message = IMPUTE_ERRORS[case]
    assert message in error(rnade("impute", "m.rnade", "t.csv", *given))


def test_a_column_that_counts_draws_is_not_doubled(rnade, folder):
    write_table(make_table().append_column("draw", pa.array([1] * 120)), "e.csv")
    assert error(rnade("impute", "m.rnade", "e.csv", "--draws", 2)) == (
        "e.csv has a column 'draw', which --draws would add; rename it first."
    )
    assert done(rnade("impute", "m.rnade", "e.csv"))


@pytest.mark.parametrize(
    ("model", "who"),
    [
        (["gaussian"], "Gaussian models"),
        (["fvbn", "--epochs", "1"], "FVBN models of complete real-valued columns"),
    ],
)
def test_other_models_answer_no_questions(rnade, folder, model, who):
    rng = np.random.default_rng(0)
    write_table({"x": rng.normal(size=40), "y": rng.normal(size=40)}, "e.csv")
    done(rnade("fit", "e.csv", "-q", "--model", *model))
    expected = (
        f"{who} do not answer questions about some columns given others. Fit one that does with"
        " --model rnade."
    )
    for command in (["impute", "e.rnade", "e.csv"], ["ask", "e.rnade", "x"]):
        assert error(rnade(*command)) == expected
    assert error(rnade("sample", "e.rnade", "--given", "x=1")) == expected


# ------------------------------------------------------------------ sample


def drawn(rnade, *given, n=200):
    options = [word for condition in given for word in ("--given", condition)]
    done(rnade("sample", "m.rnade", "-n", n, "--seed", 3, "-o", "s.csv", "--force", *options))
    table, _ = read_frame("s.csv")
    assert table.n_rows == n
    assert list(table.names) == NAMES
    return table.cells.to_pydict()


def test_draws_have_what_is_given(rnade):
    rows = drawn(rnade, "city=Rome", "day=2020-02-29, ok=FALSE", "rings=3", "grade=2")
    assert set(rows["city"]) == {"Rome"}
    assert set(rows["day"]) == {dt.date(2020, 2, 29)}
    assert set(rows["ok"]) == {False}
    assert set(rows["rings"]) == {3}
    assert set(rows["grade"]) == {2}
    assert len(set(rows["rain"])) > 50


@pytest.mark.parametrize(
    ("condition", "name", "low", "high"),
    [
        ("rings=3..5", "rings", 3, 5),
        ("rings=..2", "rings", 0, 2),
        ("rain=1.5..", "rain", 1.5, 1e9),
        ("day=2020-03-01..2020-03-31", "day", dt.date(2020, 3, 1), dt.date(2020, 3, 31)),
        (
            "at=2021-03-02 12:00..2021-03-03",
            "at",
            dt.datetime(2021, 3, 2, 12),
            dt.datetime(2021, 3, 3),
        ),
        ("grade=2..3", "grade", 2, 3),
    ],
)
def test_draws_lie_in_intervals(rnade, condition, name, low, high):
    values = drawn(rnade, condition)[name]
    assert all(low <= value <= high for value in values)
    assert len(set(values)) > 1


def test_draws_given_several_intervals(rnade):
    code, out, err = rnade("sample", "m.rnade", "-n", 9, "--given", "rings=3..5,rain=1..2")
    assert code == 0
    rows = cells_of(out)[1:]
    assert all(3 <= int(row[1]) <= 5 and 1 <= float(row[2]) <= 2 for row in rows)
    assert err == "rnade: several intervals are given: rows are kept by weights, not exactly\n"
    assert rnade("sample", "m.rnade", "-q", "--given", "rings=3..5,rain=1..2")[2] == ""


def test_seeds_of_draws(rnade):
    args = ("sample", "m.rnade", "-n", 5, "--given", "city=Rome")
    out = done(rnade(*args, "--seed", 1))
    assert done(rnade(*args, "--random-state", 1)) == out
    assert done(rnade(*args, "--seed", 2)) != out


def test_sample_as_json(rnade, folder):
    args = ("sample", "m.rnade", "-n", 3, "--seed", 1, "--given", "day=2020-02-29", "--json")
    found = told(rnade(*args))
    assert found["n_rows"] == len(found["rows"]) == 3
    assert found["given"] == {"day": "2020-02-29"}
    assert found["method"] == "exact"
    assert [row["day"] for row in found["rows"]] == ["2020-02-29"] * 3
    found = told(rnade(*args, "-o", "s.csv"))
    assert found["output"] == "s.csv"
    assert "rows" not in found
    given = ("--given", "rain=1..2", "--given", "rings=1..4")
    assert told(rnade("sample", "m.rnade", "--json", *given))["method"] == "weighted"


GIVEN_ERRORS = {
    "citty=Rome": "The model has no column 'citty'; did you mean 'city'? It has 'city', 'rings',",
    "income=3": "The model has no column 'income'; it has 'city', 'rings', 'rain', 'day', 'at',",
    "code=3": "Column 'code' is not in the model: looks like row numbers (0 to 119, each once).",
    "city=Roma": "Column 'city' has no level 'Roma'; did you mean 'Rome'? It has 'Bonn', 'Oslo',",
    "rings=2.5": "Column 'rings' holds whole numbers, such as 40; got '2.5'.",
    "rings=1..x": "Column 'rings' holds whole numbers, such as 40; got 'x'.",
    "rain=3..1": "The interval 3..1 of column 'rain' ends below where it begins; swap its ends.",
    "grade=3..1": "The interval 3..1 of column 'grade' ends below where it begins; swap its ends.",
    "city=A..B": "The levels of column 'city' have no order, so that there are no intervals of",
    "ok=0..1": "The levels of column 'ok' have no order, so that there are no intervals of them:"
    " give one of 'false', 'true'. A level with .. in it stands in quotes.",
    "day=2030-01-01..": "No value of column 'day' lies in 2030-01-01..: the table that was fitted",
    "rings": "Cannot read 'rings': expected NAME=VALUE, such as age=40, but got 'rings'.",
}


@pytest.mark.parametrize("condition", GIVEN_ERRORS)
def test_conditions_that_cannot_be(rnade, condition):
    expected = GIVEN_ERRORS[condition]
    assert error(rnade("sample", "m.rnade", "--given", condition)).startswith(expected)
    if condition != "rings":
        message = error(rnade("ask", "m.rnade", f"gap | {condition}"))
        assert message.startswith(expected)


# ------------------------------------------------------------------ ask


def asked(rnade, question, *more):
    return told(rnade("ask", "m.rnade", question, "--json", *more))


def test_ask_about_numbers(rnade):
    found = asked(rnade, "rain | city=Rome, ok=1")
    known = load("m.rnade").conditional("rain", {"city": "Rome", "ok": True})
    assert found["question"] == "rain | city=Rome, ok=1"
    assert found["column"] == "rain"
    assert found["kind"] == "real"
    assert found["given"] == {"city": "Rome", "ok": "1"}
    assert found["method"] == "exact"
    assert found["mean"] == pytest.approx(known.mean()[0])
    assert found["median"] == pytest.approx(known.quantile(0.5)[0])
    assert found["interval"]["level"] == 0.9
    for end, q in (("low", 0.05), ("high", 0.95)):
        assert found["interval"][end] == pytest.approx(known.quantile(q)[0])
    (zero,) = found["single_values"]
    assert zero == {"value": 0.0, "probability": pytest.approx(known.pdf(0.0)[0])}
    # Bins side by side, which together have all but the tails and the single value.
    bins = found["bins"]
    assert [one["high"] for one in bins[:-1]] == [one["low"] for one in bins[1:]]
    total = sum(one["probability"] for one in bins)
    assert bins[0]["low"] == 0.0
    assert total == pytest.approx(known.cdf(bins[-1]["high"])[0] - known.cdf(0.0)[0])
    assert total > 0.98 - zero["probability"]
    inner = bins[10]
    share = known.cdf(inner["high"])[0] - known.cdf(inner["low"])[0]
    assert inner["probability"] == pytest.approx(share)


def test_single_values_are_not_in_the_bins(rnade, folder):
    rng = np.random.default_rng(0)
    write_table({"x": np.where(rng.random(200) < 0.5, 0, rng.normal(size=200))}, "e.csv")
    done(rnade("fit", "e.csv", "-q", *TINY))
    found = told(rnade("ask", "e.rnade", "x", "--json"))
    (zero,) = found["single_values"]
    assert zero["probability"] > 0.2
    shares = [one["probability"] for one in found["bins"]]
    assert 0.98 < zero["probability"] + sum(shares) < 0.995
    (around,) = [one for one in found["bins"] if one["low"] < 0 <= one["high"]]
    assert around["probability"] < 0.5 * zero["probability"]


@pytest.mark.parametrize("question", ["rings", "rings | city=Oslo", "day | ok=true"])
def test_bins_of_whole_numbers(rnade, question):
    found = asked(rnade, question)
    bins, total = found["bins"], sum(one["probability"] for one in found["bins"])
    assert 0.98 < total <= 1 + 1e-9
    if found["column"] == "rings":
        assert all(one["low"] == one["high"] for one in bins)
        if "Oslo" in question:
            known = load("m.rnade").conditional("rings", {"city": "Oslo"})
            for one in bins:
                assert one["probability"] == pytest.approx(known.pdf(one["low"])[0])
    else:
        ends = [(dt.date.fromisoformat(b["low"]), dt.date.fromisoformat(b["high"])) for b in bins]
        assert all(a[1] + dt.timedelta(1) == b[0] for a, b in pairwise(ends))
        assert isinstance(dt.date.fromisoformat(found["mean"]), dt.date)


def test_ask_about_times(rnade):
    found = asked(rnade, "at | day=2020-03-01..2020-03-31")
    low, high = (dt.datetime.fromisoformat(found["interval"][end]) for end in ("low", "high"))
    assert dt.datetime(2021, 3, 1, 12) <= low < dt.datetime.fromisoformat(found["median"]) < high
    assert found["given"] == {"day": "2020-03-01..2020-03-31"}
    assert re.fullmatch(r"2021-03-\d\d \d\d:\d\d:00", found["median"])


def test_ask_about_levels(rnade):
    found = asked(rnade, "city | rain=0")
    known = load("m.rnade").conditional("city", {"rain": 0.0})
    shares = dict(zip(known.levels, known.probabilities()[0], strict=True))
    got = {one["level"]: one["probability"] for one in found["probabilities"]}
    assert got == pytest.approx(shares)
    assert list(got.values()) == sorted(got.values(), reverse=True)
    assert found["likeliest"] == next(iter(got))
    assert not {"mean", "median", "bins"} & set(found)
    assert {one["level"] for one in asked(rnade, "ok")["probabilities"]} == {True, False}


def test_ordered_levels_have_a_median(rnade):
    found = asked(rnade, "grade | rings=4")
    shares = {one["level"]: one["probability"] for one in found["probabilities"]}
    reached = np.cumsum([shares[level] for level in (1, 2, 3)])
    assert found["median"] == 1 + int((reached < 0.5).sum())
    assert found["interval"]["low"] == 1 + int((reached < 0.05).sum())


def test_ask_without_conditions(rnade):
    """The column alone, as a row that has nothing else is scored."""
    model = load("m.rnade")
    got = {one["level"]: one["probability"] for one in asked(rnade, "city")["probabilities"]}
    schema = make_table().schema
    alone = pa.Table.from_pylist([{"city": city} for city in got], schema)
    shares = np.exp(model.score_samples(alone))
    np.testing.assert_allclose(list(got.values()), shares / shares.sum())
    # That a cell is not given does not mean that it is missing.
    found = told(rnade("ask", "i.rnade", "gap", "--json"))
    informed = load("i.rnade").conditional("gap", pa.table({"gap": pa.nulls(1)}))
    assert found["mean"] == pytest.approx(informed.mean()[0])


@pytest.mark.parametrize("level", [0.5, 0.99])
def test_levels_of_intervals(rnade, level):
    found = asked(rnade, "rain", "--level", level)["interval"]
    known = load("m.rnade").conditional("rain", pa.table({"rain": pa.nulls(1)}))
    low, high = known.interval(level)
    assert found == {
        "level": level,
        "low": pytest.approx(low[0]),
        "high": pytest.approx(high[0]),
    }


def test_intervals_tell_their_method(rnade):
    assert asked(rnade, "rain | rings=3..5")["method"] == "exact"
    assert asked(rnade, "rings | rain=0.5..1")["method"] == "weighted"
    text = done(rnade("ask", "m.rnade", "rings | rain=0.5..1"))
    assert "method         weighted (draws stand for what lies in the intervals)\n" in text


def test_answers_as_text(rnade):
    found = asked(rnade, "rain | city=Rome")
    low, high = found["interval"]["low"], found["interval"]["high"]
    share = found["single_values"][0]["probability"]
    assert done(rnade("ask", "m.rnade", "rain|city = Rome")).splitlines() == [
        "rain | city=Rome",
        f"mean           {found['mean']:.6g}",
        f"median         {found['median']:.6g}",
        f"90 % interval  {low:.6g} to {high:.6g}",
        f"exactly 0      {100 * share:.1f} %",
        "method         exact",
    ]
    lines = done(rnade("ask", "m.rnade", "ok")).splitlines()
    assert lines[:3] == ["ok", "method  exact", ""]
    shares = {one["level"]: one["probability"] for one in asked(rnade, "ok")["probabilities"]}
    assert sorted(lines[3:]) == [
        f"false   {100 * shares[False]:.1f} %",
        f"true    {100 * shares[True]:.1f} %",
    ]


def in_a_terminal(rnade, monkeypatch, question, width):
    monkeypatch.setattr("rnade.cli.ask._shows_pictures", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    return done(rnade("ask", "m.rnade", question)).splitlines()


@pytest.mark.parametrize("width", [20, 50, 200])
def test_pictures_fit_the_terminal(rnade, monkeypatch, width):
    lines = in_a_terminal(rnade, monkeypatch, "rain", width)
    picture = lines[lines.index("") + 1 :]
    n_bins = min(width - 2, 60)
    assert len(picture) == 8
    assert max(map(len, picture)) == n_bins
    assert set("".join(picture[:6])) <= set(" ▁▂▃▄▅▆▇█")
    assert any(line[i] == "█" for line in picture[:1] for i in range(len(line)))
    assert set(picture[6]) <= set(" ├─┼┤")
    assert picture[7].startswith("0 ")


def test_pictures_of_whole_numbers_and_levels(rnade, monkeypatch):
    lines = in_a_terminal(rnade, monkeypatch, "rings", 80)
    found = asked(rnade, "rings")
    bins, picture = found["bins"], lines[lines.index("") + 1 :]
    values = [one["low"] for one in bins]
    marks = {"├": found["interval"]["low"], "┼": found["median"], "┤": found["interval"]["high"]}
    for mark, value in marks.items():
        assert picture[-2].index(mark) == 3 * values.index(value) + 1
    assert max(map(len, picture)) == 3 * len(bins)
    assert picture[-1].split() == [str(bins[0]["low"]), str(bins[-1]["high"])]
    lines = in_a_terminal(rnade, monkeypatch, "city", 80)
    shares = [one["probability"] for one in asked(rnade, "city")["probabilities"]]
    for line, share in zip(lines[3:], shares, strict=True):
        assert line.endswith(f" %  {bar(share, 60)}")


def test_no_pictures_outside_a_terminal(rnade, monkeypatch):
    text = done(rnade("ask", "m.rnade", "rain"))
    assert text.isascii()
    assert done(rnade("ask", "m.rnade", "city")).isascii()

    class Terminal(io.StringIO):
        encoding = "ascii"

        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdout", Terminal())
    assert not _shows_pictures()
    Terminal.encoding = "utf-8"
    assert _shows_pictures()


def test_of_many_levels_the_likeliest_ten_are_told(rnade, folder):
    words = [f"w{min(i % 17, i % 13)}" for i in range(200)]
    write_table({"word": words, "n": np.arange(200) % 7}, "e.csv")
    done(rnade("fit", "e.csv", "-q", *TINY))
    found = told(rnade("ask", "e.rnade", "word", "--json"))["probabilities"]
    lines = done(rnade("ask", "e.rnade", "word")).splitlines()[3:]
    assert [line.split()[0] for line in lines[:10]] == [one["level"] for one in found[:10]]
    rest = sum(one["probability"] for one in found[10:])
    assert lines[10:] == [f"{len(found) - 10} others  {100 * rest:5.1f} %"]


def test_names_in_quotes(rnade, folder):
    rng = np.random.default_rng(0)
    table = {
        "price | eur": rng.gamma(2, size=60),
        "a=b, c": ["x, y", "it's", "1..2"] * 20,
        'the "day"': [dt.date(2020, 1, 1 + i % 28) for i in range(60)],
    }
    pq.write_table(pa.table(table), "e.parquet")
    done(rnade("fit", "e.parquet", "-q", *TINY))
    question = "'price | eur' | 'a=b, c'='1..2', the \"day\"=2020-01-05"
    found = told(rnade("ask", "e.rnade", question, "--json"))
    assert found["column"] == "price | eur"
    assert found["question"] == question
    given = {"a=b, c": "1..2", 'the "day"': dt.date(2020, 1, 5)}
    expected = load("e.rnade").conditional("price | eur", given).mean()[0]
    assert found["mean"] == pytest.approx(expected)
    rows = done(rnade("sample", "e.rnade", "-n", 5, "--given", "\"a=b, c\"='x, y'"))
    assert [row[1] for row in cells_of(rows)[1:]] == ["x, y"] * 5


ASK_ERRORS = {
    "reign": "The model has no column 'reign'; did you mean 'rain'? It has 'city', 'rings',",
    "note": "Column 'note' is not in the model: looks like an id",
    "rain | rain=1": "Cannot read 'rain | rain=1': 'rain' is what is asked for, so it cannot be",
    "rain |": "Cannot read 'rain |': expected NAME=VALUE, such as age=40.",
    "rain, city": "Cannot read 'rain, city': ask about one column at a time",
}


@pytest.mark.parametrize("question", ASK_ERRORS)
def test_questions_that_cannot_be(rnade, question):
    assert error(rnade("ask", "m.rnade", question)).startswith(ASK_ERRORS[question])


def test_questions_are_read_before_the_model(rnade):
    assert error(rnade("ask", "none.rnade", "rain |")).startswith("Cannot read")
    assert error(rnade("sample", "none.rnade", "--given", "rain")).startswith("Cannot read")


@pytest.mark.parametrize("level", [0, 1, -2])
def test_intervals_hold_a_share(rnade, level):
    assert error(rnade("ask", "m.rnade", "rain", "--level", level)).startswith(
        "level must be a number > 0 and <="
    )
