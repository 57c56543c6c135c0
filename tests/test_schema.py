"""The schema of a table: kinds by type, numbers and back, and what is said about it all."""

import datetime as dt
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import polars.testing
import pyarrow as pa
import pytest

from rnade.columns import Category, Column, Date, Integer, LeaveOut, Real, Schema, make_kind
from rnade.columns.atoms import find_atoms, find_codes

DATES = [dt.date(2020, 2, 29), dt.date(1969, 12, 31), dt.date(2031, 1, 1)]
TIMES = [
    dt.datetime(2020, 2, 29, 23, 59, 59, 123457),
    dt.datetime(1969, 12, 31, 1, 2, 3, 1),
    dt.datetime(2031, 1, 1),
]
SPANS = [dt.timedelta(days=2, microseconds=3), dt.timedelta(seconds=-5), dt.timedelta(0)]
HOURS = [dt.time(1, 2, 3, 4), dt.time(0), dt.time(23, 59, 59, 999999)]
MILLIS = [t.replace(microsecond=t.microsecond // 1000 * 1000) for t in TIMES]
WHOLE = [t.replace(microsecond=0) for t in TIMES]
PRICES = [Decimal("1.25"), Decimal("-3.50"), Decimal("0.00")]
WORDS = ["b", "a", "c"]
NUMBERS = [1.5, -2.25, 0.0]
BOOLS = [True, False, True]

# Name: values, the type in the library, kind expected.
PANDAS = {
    "int64": ([3, -1, 2], "int64", "integer"),
    "int8": ([127, -128, 2], "int8", "integer"),
    "uint16": ([65535, 0, 2], "uint16", "integer"),
    "Int64": ([3, -1, 2], "Int64", "integer"),
    "UInt8": ([255, 0, 2], "UInt8", "integer"),
    "int-arrow": ([3, -1, 2], pd.ArrowDtype(pa.int32()), "integer"),
    "float64": (NUMBERS, "float64", "real"),
    "float32": (NUMBERS, "float32", "real"),
    "Float64": (NUMBERS, "Float64", "real"),
    "float-arrow": (NUMBERS, pd.ArrowDtype(pa.float64()), "real"),
    "str": (WORDS, "str", "category"),
    "object": (WORDS, "object", "category"),
    "string-python": (WORDS, "string[python]", "category"),
    "string-pyarrow": (WORDS, "string[pyarrow]", "category"),
    "string-arrow": (WORDS, pd.ArrowDtype(pa.string()), "category"),
    "category": (WORDS, pd.CategoricalDtype(["c", "b", "a", "z"]), "category"),
    "ordered": (WORDS, pd.CategoricalDtype(["c", "b", "a", "z"], ordered=True), "category"),
    "category-int": ([3, 1, 2], pd.CategoricalDtype([3, 1, 2]), "category"),
    "category-float": (NUMBERS, pd.CategoricalDtype(NUMBERS), "category"),
    "category-object": (WORDS, pd.CategoricalDtype(pd.Index(WORDS, dtype=object)), "category"),
    "bool": (BOOLS, "bool", "category"),
    "boolean": (BOOLS, "boolean", "category"),
    "object-bool": (BOOLS, "object", "category"),
    "datetime-us": (TIMES, "datetime64[us]", "date"),
    "datetime-ns": (TIMES, "datetime64[ns]", "date"),
    "datetime-s": (WHOLE, "datetime64[s]", "date"),
    "datetime-zone": (TIMES, "datetime64[us, Europe/Berlin]", "date"),
    "datetime-offset": (TIMES, "datetime64[us, UTC+01:00]", "date"),
    "datetime-arrow": (TIMES, pd.ArrowDtype(pa.timestamp("ns", "UTC")), "date"),
    "date": (DATES, "object", "date"),
    "date-arrow": (DATES, pd.ArrowDtype(pa.date32()), "date"),
    "timedelta": (SPANS, "timedelta64[us]", "real"),
    "time": (HOURS, "object", "real"),
    "decimal": (PRICES, "object", "real"),
}
POLARS = {
    "Int64": ([3, -1, 2], pl.Int64, "integer"),
    "Int8": ([127, -128, 2], pl.Int8, "integer"),
    "UInt32": ([2**32 - 1, 0, 2], pl.UInt32, "integer"),
    "Float64": (NUMBERS, pl.Float64, "real"),
    "Float32": (NUMBERS, pl.Float32, "real"),
    "String": (WORDS, pl.String, "category"),
    "Categorical": (WORDS, pl.Categorical, "category"),
    "Enum": (WORDS, pl.Enum(["c", "b", "a", "z"]), "category"),
    "Boolean": (BOOLS, pl.Boolean, "category"),
    "Date": (DATES, pl.Date, "date"),
    "Datetime-us": (TIMES, pl.Datetime("us"), "date"),
    "Datetime-ms": (MILLIS, pl.Datetime("ms"), "date"),
    "Datetime-ns": (TIMES, pl.Datetime("ns"), "date"),
    "Datetime-zone": (
        [t.replace(tzinfo=dt.UTC) for t in TIMES],
        pl.Datetime("us", "Europe/Berlin"),
        "date",
    ),
    "Time": (HOURS, pl.Time, "real"),
    "Duration": (SPANS, pl.Duration("us"), "real"),
    "Decimal": (PRICES, pl.Decimal(10, 2), "real"),
}
PYARROW = {
    "int64": ([3, -1, 2], pa.int64(), "integer"),
    "uint8": ([255, 0, 2], pa.uint8(), "integer"),
    "double": (NUMBERS, pa.float64(), "real"),
    "float": (NUMBERS, pa.float32(), "real"),
    "halffloat": (NUMBERS, pa.float16(), "real"),
    "string": (WORDS, pa.string(), "category"),
    "large_string": (WORDS, pa.large_string(), "category"),
    "string_view": (WORDS, pa.string_view(), "category"),
    "dictionary": (WORDS, pa.dictionary(pa.int32(), pa.string()), "category"),
    "dictionary-int": ([3, 1, 2], pa.dictionary(pa.int8(), pa.int64(), True), "category"),
    "bool": (BOOLS, pa.bool_(), "category"),
    "date32": (DATES, pa.date32(), "date"),
    "date64": (DATES, pa.date64(), "date"),
    "timestamp-s": (WHOLE, pa.timestamp("s"), "date"),
    "timestamp-us": (TIMES, pa.timestamp("us"), "date"),
    "timestamp-ns": (TIMES, pa.timestamp("ns"), "date"),
    "timestamp-zone": (
        [t.replace(tzinfo=dt.UTC) for t in TIMES],
        pa.timestamp("us", "Europe/Berlin"),
        "date",
    ),
    "time32": ([t.replace(microsecond=0) for t in HOURS], pa.time32("s"), "real"),
    "time64": (HOURS, pa.time64("us"), "real"),
    "duration": (SPANS, pa.duration("us"), "real"),
    "decimal128": (PRICES, pa.decimal128(10, 2), "real"),
}


def pandas_frame(values, dtype):
    series = pd.Series(values, dtype=dtype)
    return pd.DataFrame({"x": series, "other": np.arange(len(series)) * 0.37})


def polars_frame(values, dtype):
    x = pl.Series("x", values, dtype=dtype)
    return pl.DataFrame([x, pl.Series("other", np.arange(len(x)) * 0.37)])


def pyarrow_frame(values, dtype):
    x = pa.array(values, dtype.value_type) if pa.types.is_dictionary(dtype) else None
    x = pa.array(values, dtype) if x is None else x.dictionary_encode().cast(dtype)
    return pa.table({"x": x, "other": np.arange(len(x)) * 0.37})


def assert_equal(given, wanted):
    if isinstance(wanted, pd.DataFrame):
        pd.testing.assert_frame_equal(given, wanted)
    elif isinstance(wanted, pl.DataFrame):
        polars.testing.assert_frame_equal(given, wanted, check_exact=True)
    else:
        assert given.schema == wanted.schema
        assert given.equals(wanted)


CASES = [
    pytest.param(make, *case, id=f"{library}-{name}")
    for library, make, cases in [
        ("pandas", pandas_frame, PANDAS),
        ("polars", polars_frame, POLARS),
        ("pyarrow", pyarrow_frame, PYARROW),
    ]
    for name, case in cases.items()
]


@pytest.mark.parametrize(("make", "values", "dtype", "kind"), CASES)
def test_a_column_of_any_type_comes_back_as_it_was(make, values, dtype, kind):
    frame = make(values, dtype)
    schema = Schema.infer(frame)
    assert [c.kind for c in schema.columns] == [kind, "real"]
    assert schema.left_out == {}
    encoded, seen = schema.encode(frame)
    assert encoded.dtype == np.float64
    assert seen.all()
    assert_equal(schema.decode(encoded, seen), frame)


NO_MISSING = ("int64", "int8", "uint16", "bool")


def with_missing(make, values, dtype):
    hold_none = make is not pandas_frame or dtype not in NO_MISSING
    return make([values[0], None, *values], dtype if hold_none else "object")


@pytest.mark.parametrize(("make", "values", "dtype", "kind"), CASES)
def test_missing_cells_come_back_as_missing(make, values, dtype, kind):
    frame = with_missing(make, values, dtype)
    schema = Schema.infer(frame)
    assert schema.columns[0].kind == kind
    assert schema.columns[0].missing == pytest.approx(0.2)
    encoded, seen = schema.encode(frame)
    assert seen[:, 0].tolist() == [True, False, True, True, True]
    assert encoded[1, 0] == 0
    assert_equal(schema.decode(encoded, seen), frame)


@pytest.mark.parametrize("dtype", NO_MISSING)
def test_pandas_types_without_missing_cells_become_nullable(dtype):
    values = PANDAS[dtype][0]
    frame = pandas_frame(values, dtype)
    schema = Schema.infer(frame)
    encoded, seen = schema.encode(frame)
    seen[1, 0] = False
    nullable = {"int64": "Int64", "int8": "Int8", "uint16": "UInt16", "bool": "boolean"}[dtype]
    wanted = pandas_frame([values[0], None, values[2]], nullable)
    assert_equal(schema.decode(encoded, seen), wanted)


@pytest.mark.parametrize(("make", "values", "dtype", "kind"), CASES)
def test_a_schema_survives_json(make, values, dtype, kind):
    frame = with_missing(make, values, dtype)
    schema = Schema.infer(frame, missing="informative", na=["?", 999])
    again = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert again == schema
    for column, other in zip(schema.columns, again.columns, strict=True):
        assert list(map(type, column.levels or ())) == list(map(type, other.levels or ()))
    assert_equal(again.decode(*again.encode(frame)), frame)


# Kinds


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("real", Real()),
        ("integer", Integer()),
        ("category", Category()),
        ("ordinal", Category(ordered=True)),
        ("boolean", Category(levels=(False, True))),
        ("date", Date()),
        ("leave-out", LeaveOut()),
    ],
)
def test_kinds_have_names(name, kind):
    assert make_kind(name) == kind
    assert make_kind(kind) is kind
    assert make_kind(type(kind)) == type(kind)()


def test_unknown_kinds_are_refused():
    with pytest.raises(ValueError, match="Unknown kind of column 'ordinl'.*mean 'ordinal'"):
        make_kind("ordinl")
    with pytest.raises(ValueError, match="Unknown kind of column 3; expected one of 'real'"):
        make_kind(3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Real(low=2, high=2), "low must be less than high; got low=2 and high=2. Swap"),
        (lambda: Real(low=float("nan")), "low must be a finite number, or None for no bound"),
        (lambda: Real(high="3"), "high must be a finite number, or None for no bound; got '3'"),
        (lambda: Real(atoms=[0, np.inf]), "atoms must be finite numbers; got inf. Leave it out"),
        (lambda: Real(atoms="many"), "atoms must be \"auto\" or a sequence .* got 'many'"),
        (lambda: Real(atoms=[-1], low=0), "The atom -1 lies outside the bounds low=0.0 and"),
        (lambda: Category(levels=[]), "levels is empty: name at least one level, or pass"),
        (lambda: Category(levels=["a", "b", "a"]), "levels holds 'a' more than once: name each"),
        (lambda: Category(levels="ab"), "levels must be a sequence of levels; got the text 'ab'"),
        (lambda: Category(levels=["a", 1]), "levels mix text and numbers: use one type"),
        (lambda: Category(levels=[None, 1]), "levels must be text, numbers or booleans; got None"),
    ],
)
def test_bad_arguments_of_kinds_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_arguments_of_kinds_are_made_plain():
    kind = Real(atoms=np.array([100, 0, 0.0]), low=np.float32(0), high=100)
    assert kind.atoms == (0.0, 100.0)
    assert type(kind.low) is float
    levels = Category(levels=np.array([3, 1])).levels
    assert levels == (3, 1)
    assert {type(level) for level in levels} == {int}


# Kinds by type


def test_kinds_follow_types_and_never_values():
    frame = pd.DataFrame(
        {
            "flag": [0, 1, 1, 0],
            "number as text": ["1", "2", "2", "1"],
            "measure": [0.5, 1.5, 1.5, 0.5],
        }
    )
    assert [c.kind for c in Schema.infer(frame).columns] == ["integer", "category", "real"]


def test_levels_are_sorted_or_as_declared():
    frame = pl.DataFrame(
        {
            "text": ["b", "c", "a", "b"],
            "shared": pl.Series(["b", "c", "a", "b"], dtype=pl.Categorical),
            "declared": pl.Series(["b", "c", "b", "b"], dtype=pl.Enum(["c", "b", "a"])),
        }
    )
    # Polars keeps the categories of all columns together: only those that occur are levels.
    pl.Series(["q", "z"], dtype=pl.Categorical)
    columns = Schema.infer(frame).columns
    assert [c.levels for c in columns] == [("a", "b", "c"), ("a", "b", "c"), ("c", "b", "a")]
    assert [c.ordered for c in columns] == [False, False, True]


def test_whole_floats_are_integers_only_with_missing_cells():
    frame = pd.DataFrame({"gaps": [1.0, np.nan, 3.0], "full": [1.0, 2.0, 4.0]})
    schema = Schema.infer(frame)
    assert [c.kind for c in schema.columns] == ["integer", "real"]
    first, second = schema.notes
    assert first.startswith("Column 'gaps' is taken as whole numbers: all its values are")
    assert "columns={'gaps': \"real\"}" in first
    assert second.startswith("Column 'full' is taken as real numbers by its type, but all its")
    assert "columns={'full': \"integer\"}" in second
    asked = Schema.infer(frame, columns={"gaps": "real", "full": "integer"})
    assert [c.kind for c in asked.columns] == ["real", "integer"]
    assert asked.notes == ()


def test_everything_real_on_demand():
    frame = pd.DataFrame({"n": [1, 2, 3], "yes": BOOLS, "x": NUMBERS})
    schema = Schema.infer(frame, columns="real")
    assert [(c.kind, c.atoms) for c in schema.columns] == [("real", ())] * 3
    assert schema.is_plain
    back = schema.decode(schema.encode(frame)[0] + 0.5)
    pd.testing.assert_frame_equal(back, frame.astype(float) + 0.5)
    with pytest.raises(ValueError, match="Column 's' should hold numbers but holds text, first"):
        Schema.infer(frame.assign(s=WORDS), columns="real")


def test_kinds_given_by_the_user_win():
    n = 40
    frame = pd.DataFrame(
        {
            "id": range(n),
            "key": [f"k{i}" for i in range(n)],
            "grade": [1, 2, 3, 4] * (n // 4),
            "flag": [0, 1] * (n // 2),
            "share": [0.5, 1.5] * (n // 2),
            "one": ["a"] * n,
            "same": [1.5] * n,
            "gone": [None] * n,
            "drop": range(n),
        }
    )
    schema = Schema.infer(
        frame,
        columns={
            "id": "integer",
            "key": "category",
            "grade": Category(levels=[4, 3, 2, 1, 0], ordered=True),
            "flag": "boolean",
            "share": Real(atoms=[0.5], low=0, high=2),
            "one": Category(levels=["a", "b"]),
            "same": "real",
            "gone": "category",
            "drop": "leave-out",
        },
    )
    assert schema.names == ("id", "key", "grade", "flag", "share", "one")
    assert schema.left_out == {
        "same": "constant (1.5 in every row)",
        "gone": "all cells are missing",
        "drop": "left out as asked for",
    }
    grade, share = schema.columns[2], schema.columns[4]
    assert (grade.levels, grade.ordered) == ((4, 3, 2, 1, 0), True)
    assert (share.atoms, share.low, share.high) == ((0.5,), 0.0, 2.0)
    values, seen = schema.encode(frame)
    np.testing.assert_array_equal(values[:, 2], 4 - frame["grade"])
    pd.testing.assert_frame_equal(schema.decode(values, seen), frame[list(schema.names)])


def test_kinds_for_columns_that_are_not_there_are_refused():
    frame = pd.DataFrame({"income": NUMBERS, "age": NUMBERS})
    with pytest.raises(ValueError, match="columns names 'incom', which is no .*mean 'income'?"):
        Schema.infer(frame, columns={"incom": "real"})
    with pytest.raises(ValueError, match="columns names 2, which is no column of X"):
        Schema.infer(frame.to_numpy(), columns={2: "real"})
    with pytest.raises(ValueError, match='columns must be "auto", "real" or a mapping'):
        Schema.infer(frame, columns=["income"])
    with pytest.raises(ValueError, match="Unknown value of missing 'informativ'.*'informative'"):
        Schema.infer(frame, missing="informativ")
    with pytest.raises(ValueError, match="na must hold text or numbers .* got None"):
        Schema.infer(frame, na=[None])


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (WORDS, "integer", "should hold numbers but holds text, first 'b' in row 0. Convert"),
        (WORDS, "date", "should hold dates but holds text, first 'b' .*pandas.to_datetime"),
        (WORDS, "boolean", "should hold numbers or booleans but holds text, first 'b' in row 0"),
        (DATES, "category", "holds dates, which cannot be categories. Leave the kind"),
        (DATES, "real", "should hold numbers but holds dates, first 2020-02-29 in row 0"),
        (NUMBERS, "integer", "should hold whole numbers but holds 1.5 in row 0. Round it, or"),
        (NUMBERS, Real(low=-2), "holds -2.25 in row 1, below the bound low=-2 that columns gives"),
        (NUMBERS, Real(high=1), "holds 1.5 in row 0, above the bound high=1 that columns gives"),
        (
            WORDS,
            Category(["a", "b"]),
            "holds 'c' in row 2, which is not one of the levels 'a', 'b'",
        ),
        (WORDS, Category([1, 2]), "should hold numbers or booleans but holds text"),
        ([[1], [2], [3]], "category", "holds nested values .*which no kind of column can hold"),
    ],
)
def test_kinds_that_do_not_fit_are_refused(values, kind, message):
    frame = pd.DataFrame({"x": values, "y": NUMBERS})
    with pytest.raises(ValueError, match=f"Column 'x' {message}"):
        Schema.infer(frame, columns={"x": kind})


# Columns left out

LONG = ["Once upon a time there was a model that learned tables. " * 2, "short", "B" * 120]
N = 40
LEFT_OUT = {
    "constant": ([3] * N, r"constant \(3 in every row\)"),
    "constant-text": (["a b"] * N, r"constant \('a b' in every row\)"),
    "constant-float": ([0.1 + 0.2, 0.3] * (N // 2), "constant"),
    "constant-missing": (
        [2.5, None] * (N // 2),
        r"constant \(2.5 where not missing; see missing=",
    ),
    "empty": ([None] * N, "all cells are missing"),
    "key": ([f"k{i}" for i in range(N)], r"looks like an id \(40 different texts in 40 rows\)"),
    "text": ([f"k{i % 24}" for i in range(N)], r"looks like free text \(24 different texts"),
    "long": ((LONG * N)[:N], "looks like free text .half of its texts have over 100 characters"),
    "numbers": (list(range(7, 7 + N))[::-1], r"looks like row numbers \(7 to 46, each once\)"),
    "id": ([i * i for i in range(N)], r"looks like an id \(40 different whole numbers\)"),
    "customer_id": ([i * i for i in range(N)], "looks like an id"),
    "customer id": ([i * i for i in range(N)], "looks like an id"),
    "customerId": ([i * i for i in range(N)], "looks like an id"),
    "ID": ([i * i for i in range(N)], "looks like an id"),
    "list": ([[i] for i in range(N)], "holds nested values"),
    "struct": ([{"a": i} for i in range(N)], "holds nested values"),
    "bytes": ([b"a", b"b"] * (N // 2), "holds binary data"),
}
KEPT = {
    "years": list(range(1980, 1980 + N)),
    "paid": [i * i for i in range(N)],
    "id": [i // 2 for i in range(N)],
    "gaps": [None, *range(N - 1)],
    "few levels": [f"k{i % 20}" for i in range(N)],
    "mixed lengths": (["a" * 300, "b", "c"] * N)[:N],
}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("name", LEFT_OUT)
def test_columns_that_say_nothing_are_left_out(make, name):
    values, reason = LEFT_OUT[name]
    table = make({"y": np.linspace(0, 1, N) ** 2, name: values, "z": [1, 2] * (N // 2)})
    schema = Schema.infer(table)
    assert schema.names == ("y", "z")
    assert list(schema.left_out) == [name]
    assert pd.Series(schema.left_out[name]).str.match(reason).all(), schema.left_out[name]
    back = schema.decode(*schema.encode(table))
    wanted = table.drop(columns=name) if make is pd.DataFrame else None
    wanted = table.drop_columns([name]) if make is pa.table else wanted
    assert_equal(back, table.drop(name) if make is pl.DataFrame else wanted)


@pytest.mark.parametrize("name", KEPT)
def test_columns_that_look_alike_are_kept(name):
    schema = Schema.infer(pd.DataFrame({name: KEPT[name]}))
    assert schema.names == (name,)


def test_few_rows_have_no_ids():
    schema = Schema.infer(pd.DataFrame({"n": range(19), "s": [f"k{i}" for i in range(19)]}))
    assert schema.names == ("n", "s")


def test_declared_order_is_no_id():
    levels = [f"k{i}" for i in range(30)]
    frame = pl.DataFrame({"x": pl.Series(levels, dtype=pl.Enum(levels))})
    assert Schema.infer(frame).columns[0].levels == tuple(levels)


def test_a_table_with_nothing_in_it_is_refused():
    message = "No column of X is left .*'a': constant .*'b': all cells are missing.*Add other"
    with pytest.raises(ValueError, match=message):
        Schema.infer(pd.DataFrame({"a": [1, 1], "b": [None, None]}))
    with pytest.raises(ValueError, match=r"to have rows and columns; got shape \(0, 2\)"):
        Schema.infer(pd.DataFrame({"a": [], "b": []}))


def test_too_many_levels_are_refused():
    levels = [f"k{i}" for i in range(10_001)]
    message = "Column 'x' has 10001 levels, more than the 10000 .*\"leave-out\".*merge levels"
    with pytest.raises(ValueError, match=message):
        Schema.infer(pd.DataFrame({"x": levels * 3}))


# Single values


@pytest.mark.parametrize("n", [50, 200, 1000, 20_000])
@pytest.mark.parametrize("seed", range(10))
def test_atoms_are_found_where_they_are(n, seed):
    rng = np.random.default_rng(seed)
    dry = rng.random(n) < 0.5
    assert find_atoms(np.where(dry, 0, rng.exponential(5, n))) == (0,)
    assert find_atoms(np.where(dry, 0, np.round(0.1 + rng.exponential(5, n), 1))) == (0,)
    assert find_atoms(np.where(dry, 0, np.round(np.exp(7 + rng.normal(size=n)), 2))) == (0,)
    bounded = np.clip(rng.normal(50, 90, n), 0, 100)
    assert find_atoms(bounded) == (0, 100)
    assert find_atoms(np.where(dry, rng.integers(0, 3, n), rng.normal(size=n)))[-1] == 2


@pytest.mark.parametrize("n", [50, 200, 1000, 20_000])
@pytest.mark.parametrize("seed", range(10))
def test_rounded_and_continuous_columns_have_no_atoms(n, seed):
    rng = np.random.default_rng(seed)
    assert find_atoms(rng.normal(size=n)) == ()
    assert find_atoms(np.exp(rng.normal(size=n))) == ()
    for digits in (0, 1, 2):
        assert find_atoms(np.round(rng.normal(size=n), digits)) == ()
        assert find_atoms(np.round(10 * rng.normal(size=n), digits)) == ()
        assert find_atoms(np.round(8.5 + rng.gamma(2, 1, n), digits)) == ()
    assert find_atoms(rng.integers(0, 30, n) / 10) == ()
    assert find_atoms(rng.poisson(4, n).astype(float)) == ()


def test_four_rows_are_no_atom_and_neither_is_a_small_share():
    rest = np.linspace(1, 2, 96)
    assert find_atoms(np.r_[np.zeros(4), rest]) == ()
    assert find_atoms(np.r_[np.zeros(5), rest]) == (0,)
    assert find_atoms(np.r_[np.zeros(15), np.linspace(1, 2, 985)]) == ()
    assert find_atoms(np.r_[np.zeros(21), np.linspace(1, 2, 979)]) == (0,)


def test_atoms_are_found_beside_frequent_values():
    """At the end of a rounded column, where the values next to it are rare."""
    rng = np.random.default_rng(0)
    marks = np.round(np.clip(rng.normal(60, 10, 5000), 0, 95))
    marks[:300] = 100
    assert find_atoms(marks) == (100,)


def test_atoms_are_part_of_the_schema():
    rain = np.r_[np.zeros(50), np.linspace(0.1, 3, 50)]
    schema = Schema.infer(pd.DataFrame({"rain": rain, "x": rain[::-1] ** 2 + np.arange(100)}))
    assert [c.atoms for c in schema.columns] == [(0.0,), ()]
    assert not schema.is_plain
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    rain = pd.DataFrame({"rain": rain})
    assert Schema.infer(rain, columns={"rain": Real(atoms=())}).is_plain
    assert Schema.infer(rain, columns="real").is_plain


# Text that holds numbers or dates

DAYS = pd.date_range("2024-01-01", periods=N, freq="9D")
MISREAD = {
    "days": (DAYS.strftime("%Y-%m-%d"), "dates (such as '2024-01-01'); convert it to dates"),
    "times": (DAYS.strftime("%d.%m.%Y %H:%M"), "dates (such as '01.01.2024 00:00')"),
    "zoned": (DAYS.strftime("%Y-%m-%dT%H:%M:%SZ"), "dates (such as '2024-01-01T00:00:00Z')"),
    "money": ([f"${37 * i + 0.5:,.2f}" for i in range(N)], "numbers (such as '$0.50'); convert"),
    "owed": ([f"-{37 * i + 1} €" for i in range(N)], "numbers (such as '-1 €'); convert it to"),
    "reals": ([f"{i / 8:.3f}" for i in range(N)], "numbers (such as '0.000'); convert it to"),
    "large": ([f"{(i + 1) * 12345:,}" for i in range(N)], "numbers (such as '12,345'); convert"),
}
NOT_MISREAD = {
    "postcode": [f"{i:05d}" for i in range(N)],
    "phone": [f"{i}5550100" for i in range(1, N + 1)],
    "address": [f"10.0.{i}.1" for i in range(N)],
    "plate": [f"ABC {i}" for i in range(N)],
    "version": [f"1.{i}.0" for i in range(N)],
}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("name", MISREAD)
def test_text_of_numbers_and_dates_is_no_id(make, name):
    texts, reason = list(MISREAD[name][0]), MISREAD[name][1]
    schema = Schema.infer(make({"y": np.linspace(0, 1, N) ** 2, name: texts}))
    assert schema.left_out[name].startswith(f"text that looks like {reason}")
    (told,) = schema.misread
    assert told == f"Column {name!r} is left out: {schema.left_out[name]}."


def test_text_of_numbers_is_told_where_it_is_kept():
    percent = [f"{i % 20}%" for i in range(N)]
    schema = Schema.infer(pd.DataFrame({"off": percent}))
    assert schema.names == ("off",)
    assert schema.misread == schema.notes
    assert schema.notes == (
        "Column 'off' is taken as a category, but holds text that looks like numbers (such as"
        " '0%'); convert it to plain numbers.",
    )
    assert not Schema.infer(pd.DataFrame({"off": percent}), columns={"off": "category"}).notes
    rates = Schema.infer(pd.DataFrame({"rate": ["7%", "19%"] * N}))  # categories of their own
    assert rates.names == ("rate",)
    assert not rates.notes


@pytest.mark.parametrize("name", NOT_MISREAD)
def test_codes_of_digits_are_no_numbers(name):
    schema = Schema.infer(pd.DataFrame({"y": np.linspace(0, 1, N) ** 2, name: NOT_MISREAD[name]}))
    assert "looks like an id" in schema.left_out[name]
    assert not schema.misread


# Codes for missing cells


def test_codes_for_missing_cells_are_told_and_left_alone():
    ages = np.r_[np.arange(18, 80), np.arange(18, 80), [-999] * 5]
    frame = pd.DataFrame({"age": ages})
    schema = Schema.infer(frame)
    assert schema.notes == (
        "Column 'age' holds -999 in 5 rows: a code for missing cells? If so, pass na=[-999].",
    )
    assert schema.columns[0].missing == 0
    assert schema.encode(frame)[1].all()
    told = Schema.infer(frame, na=[-999])
    assert told.notes == ()
    assert told.columns[0].missing == pytest.approx(5 / 129)
    np.testing.assert_array_equal(told.encode(frame)[1][:, 0], ages != -999)


def test_codes_lie_apart():
    ages = np.arange(18.0, 80)
    assert find_codes(np.r_[ages, [999] * 3]) == [(999, 3)]
    assert find_codes(np.r_[ages, [-99] * 3]) == [(-99, 3)]
    assert find_codes(np.r_[ages, [999] * 2]) == []
    assert find_codes(np.r_[ages, [-9] * 3]) == []
    assert find_codes(np.r_[ages, [-998] * 3]) == []
    assert find_codes(np.r_[ages, [-99, -999] * 3]) == [(-999, 3), (-99, 3)]
    assert find_codes(np.tile(np.arange(-1.0, 200), 5)) == []
    # Among amounts no number is far, but none else is negative.
    amounts = np.arange(0, 20_000, 7.0)
    assert find_codes(np.r_[amounts, [-999] * 3]) == [(-999, 3)]
    assert find_codes(np.r_[amounts - 5000, [-999] * 3]) == []


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_marks_of_missing_cells(make):
    table = make(
        {
            "text": ["a", "?", "b", "a"],
            "number": [1.5, 2.5, 99.0, 3.25],
            "whole": [99, 1, 2, 2],
            "yes": [True, False, True, True],
        }
    )
    schema = Schema.infer(table, na=["?", 99])
    assert schema.columns[0].levels == ("a", "b")
    _, seen = schema.encode(table)
    assert np.argwhere(~seen).tolist() == [[0, 2], [1, 0], [2, 1]]


def test_marks_in_declared_categories_and_objects():
    frame = pd.DataFrame(
        {
            "c": pd.Categorical(["a", "NA", "b"], categories=["b", "NA", "a"]),
            "o": pd.Series([1.5, "-", 2.5], dtype=object),
        }
    )
    schema = Schema.infer(frame, na=["NA", "-"])
    assert schema.columns[0].levels == ("b", "a")
    assert schema.columns[1].kind == "real"
    assert schema.encode(frame)[1].tolist() == [[True, True], [False, False], [True, True]]


# To numbers


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_numbers_stand_for_what_they_should(make):
    table = make(
        {
            "n": [3, -1, 2],
            "c": WORDS,
            "b": BOOLS,
            "d": DATES,
            "t": TIMES,
            "x": NUMBERS,
        }
    )
    values, seen = Schema.infer(table).encode(table)
    epoch = dt.datetime(1970, 1, 1)
    np.testing.assert_array_equal(values[:, 0], [3, -1, 2])
    np.testing.assert_array_equal(values[:, 1], [1, 0, 2])
    np.testing.assert_array_equal(values[:, 2], [1, 0, 1])
    np.testing.assert_array_equal(values[:, 3], [(d - epoch.date()).days for d in DATES])
    np.testing.assert_allclose(values[:, 4], [(t - epoch).total_seconds() for t in TIMES], 1e-15)
    np.testing.assert_array_equal(values[:, 5], NUMBERS)
    assert seen.all()


def test_columns_are_found_by_name_in_any_library():
    frame = pd.DataFrame({"n": [3, -1, 2], "c": WORDS, "x": NUMBERS})
    schema = Schema.infer(frame)
    values, _ = schema.encode(frame)
    turned = frame[["x", "c", "n"]].assign(more=1)
    for other in (turned, pl.from_pandas(turned), pa.Table.from_pandas(turned)):
        np.testing.assert_array_equal(schema.encode(other)[0], values)
    assert schema.encode(frame.iloc[:0])[0].shape == (0, 3)
    message = "X has no column 'c', which it was fitted with. Did you mean 'cc'"
    with pytest.raises(ValueError, match=message):
        schema.encode(frame.rename(columns={"c": "cc"}))


def test_levels_never_seen_have_a_code_of_their_own():
    frame = pd.DataFrame({"c": WORDS, "g": pd.Categorical([1, 2, 2]), "b": BOOLS})
    schema = Schema.infer(frame)
    new = pd.DataFrame({"c": ["z", "a", None], "g": [2, 7, 1], "b": [False, None, True]})
    values, seen = schema.encode(new)
    assert values[seen].tolist() == [3, 1, 0, 0, 2, 0, 1]
    back = schema.decode(values, seen)
    assert back["c"].isna().tolist() == [True, False, True]
    assert back["g"].isna().tolist() == [False, True, False]


def test_whole_numbers_may_come_as_floats():
    schema = Schema.infer(pd.DataFrame({"n": [1, 5, 7]}))
    values, seen = schema.encode(pd.DataFrame({"n": [7.0, np.nan, 1.0]}))
    assert values.ravel().tolist() == [7, 0, 1]
    assert seen.ravel().tolist() == [True, False, True]


FITTED = pd.DataFrame(
    {
        "n": [1, 5, 7],
        "x": NUMBERS,
        "c": WORDS,
        "d": DATES,
        "t": pd.to_datetime(pd.Series(TIMES)),
        "z": pd.to_datetime(pd.Series(TIMES)).dt.tz_localize("UTC"),
        "g": pd.Categorical([1, 2, 2]),
    }
)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("n", [1, 2.5, 3], "should hold whole numbers but holds 2.5 in row 1. Round it, or pass"),
        ("n", ["1", "2", "3"], "should hold numbers but holds text, first '1' in row 0. Convert"),
        ("x", [None, "?", "3"], "should hold numbers but holds text, first '\\?' in row 1"),
        ("x", [0, np.inf, 1], "holds an infinite value, first inf in row 1. Replace it by a"),
        (
            "x",
            [0, 1, -1e31],
            "holds numbers beyond 1e\\+30, too large .*first -1e\\+31 in row 2. Re",
        ),
        ("x", [10.0, 0, 1], "holds 10.0 in row 0, above the bound high=5 that columns gives"),
        ("x", [0.0, 0, -9], "holds -9.0 in row 2, below the bound low=-5 that columns gives. Cor"),
        ("x", [1, "a", 2], "mixes types: row 0 holds 1 .number., row 1 holds 'a' .text.. Conv"),
        ("c", [1, 2, 3], "should hold text but holds numbers, first 1 in row 0. Convert the"),
        ("c", ["a", True, "b"], "mixes types: row 0 holds 'a' .text., row 1 holds True .bool."),
        ("g", WORDS, "should hold numbers or booleans but holds text, first 'b' in row 0"),
        ("d", WORDS, "should hold dates but holds text, first 'b' in row 0. Convert"),
        ("d", TIMES, "should hold dates without a time of day but holds 2020-02-29 23:59:59.12"),
        ("t", [1, 2, 3], "should hold dates but holds numbers, first 1 in row 0. Convert"),
        ("t", FITTED["z"], "has the time zone UTC, but had none when it was fitted"),
        ("z", FITTED["t"], "has no time zone, but had UTC when it was fitted. Convert"),
        ("n", [[1], [2], [3]], "should hold numbers but holds nested values .list.. Convert"),
    ],
)
def test_what_a_column_cannot_hold_is_named(name, values, message):
    schema = Schema.infer(FITTED, columns={"x": Real(low=-5, high=5)})
    with pytest.raises(ValueError, match=f"^Column '{name}' {message}"):
        schema.encode(FITTED.assign(**{name: values}))


def test_dates_and_dates_with_a_time_stand_in_for_each_other():
    schema = Schema.infer(FITTED)
    days = pd.to_datetime(pd.Series(DATES))
    values, _ = schema.encode(FITTED.assign(d=days, t=DATES))
    np.testing.assert_array_equal(values[:, 3], schema.encode(FITTED)[0][:, 3])
    np.testing.assert_array_equal(values[:, 4], values[:, 3] * 86_400)


def test_mixed_types_are_refused_when_fitting_too():
    with pytest.raises(ValueError, match="Column 'x' mixes types: row 0 holds 1 .number., row 2"):
        Schema.infer(pd.DataFrame({"x": pd.Series([1, None, "a"], dtype=object)}))


def test_huge_whole_numbers_are_told_of():
    notes = Schema.infer(pd.DataFrame({"n": [2**60, 1, 5]})).notes
    assert notes == ("Column 'n' holds whole numbers beyond 2**53, whose last digits are lost.",)


# And back


def test_decoded_numbers_are_rounded_and_kept_in_range():
    frame = pl.DataFrame(
        {
            "i8": pl.Series([1, 2, 3], dtype=pl.Int8),
            "u64": pl.Series([1, 2, 3], dtype=pl.UInt64),
            "i64": [1, 2, 3],
            "d": DATES,
            "t": pl.Series(TIMES, dtype=pl.Datetime("ns")),
            "h": HOURS,
            "p": pl.Series(PRICES, dtype=pl.Decimal(4, 2)),
        }
    )
    schema = Schema.infer(frame)
    back = schema.decode(np.array([[1.6] * 7, [1e25] * 7, [-1e25] * 7]))
    assert back.schema == frame.schema
    assert back["i8"].to_list() == [2, 127, -128]
    assert back["u64"].to_list() == [2, 2**64 - 1, 0]
    assert back["i64"].to_list() == [2, 2**63 - 1, -(2**63)]
    assert back["d"].to_list() == [dt.date(1970, 1, 3), dt.date.max, dt.date.min]
    assert back["t"].dt.year().to_list() == [1970, 2262, 1677]
    assert back["h"].to_list() == [dt.time(0, 0, 1, 600000), dt.time.max, dt.time.min]
    assert back["p"].to_list() == [Decimal("1.60"), Decimal("99.99"), Decimal("-99.99")]


def test_shapes_of_decoded_numbers_are_checked():
    schema = Schema.infer(FITTED)
    with pytest.raises(ValueError, match=r"Expected values of shape \(N, 7\); got \(3, 2\)"):
        schema.decode(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"Expected seen of shape \(3, 7\); got \(2, 7\)"):
        schema.decode(np.zeros((3, 7)), np.ones((2, 7), dtype=bool))
    assert schema.decode(np.full((2, 7), np.nan)).isna().all(axis=None)


def test_decoding_leaves_its_arguments_alone():
    schema = Schema.infer(FITTED, missing="informative")
    values, seen = schema.encode(FITTED)
    values[0, 1] = np.nan
    before = values.copy(), seen.copy()
    schema.decode(values, seen)
    np.testing.assert_array_equal(values, before[0])
    np.testing.assert_array_equal(seen, before[1])


def test_categories_that_are_intervals_come_back_as_text():
    cut = pd.cut(pd.Series([1.0, 2.0, 3.0]), [0, 1.5, 3])
    schema = Schema.infer(pd.DataFrame({"x": cut}))
    assert schema.columns[0].levels == ("(0.0, 1.5]", "(1.5, 3.0]")
    assert schema.columns[0].ordered
    back = schema.decode(*schema.encode(pd.DataFrame({"x": cut})))["x"]
    assert back.tolist() == cut.astype(str).tolist()


@pytest.mark.parametrize(
    ("values", "kind", "wanted"),
    [
        (pd.Series([1, 2, 2]), "category", "int64"),
        (pd.Series([1, 0, 1]), "boolean", "int64"),
        (pd.Series([1.0, 0.0, 1.0]), "boolean", "float64"),
        (pd.Series([1.5, 0.5, 1.5]), "ordinal", "float64"),
        (pd.Series(PRICES), "category", "object"),
        (pd.Series([1, 2, 2], dtype="category"), "integer", "int64"),
        (pd.Series([1.5, 2, 2], dtype="category"), "real", "float64"),
        (pd.Series([1, 2, 2], dtype="category"), "real", "float64"),
        (pd.Series([1, 2, 2], dtype="Int64"), "real", "Float64"),
        (
            pd.Series([1, 2, 2], dtype=pd.ArrowDtype(pa.int8())),
            "real",
            pd.ArrowDtype(pa.float64()),
        ),
        (pd.Series([1, 2, 2], dtype=object), "real", "object"),
        (pd.Series(BOOLS), "integer", "int64"),
        (pd.Series(BOOLS, dtype="boolean"), "integer", "Int64"),
        (pd.Series([1.0, 2.0, 2.0]), "integer", "float64"),
    ],
)
def test_other_kinds_come_back_in_a_type_that_can_hold_them(values, kind, wanted):
    frame = pd.DataFrame({"x": values})
    schema = Schema.infer(frame, columns={"x": kind})
    back = schema.decode(*schema.encode(frame))["x"]
    assert back.dtype == wanted
    assert back.tolist() == values.tolist()


# Missing cells that say something

INCOME = {
    "income": [1.5, None, 2.5, None],
    "job": ["a", "b", None, "a"],
    "n": [1, 2, 3, 5],
    "sold": [None, 7, 7, None],
    "why": ["x", None, None, "x"],
}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_indicators_of_missing_cells(make):
    table = make(INCOME)
    assert Schema.infer(table).names == ("income", "job", "n")
    schema = Schema.infer(table, missing="informative")
    indicated = ["income", "job", "sold", "why"]
    assert schema.names == ("income", "job", "n", *(f"{name} is missing" for name in indicated))
    assert [c.indicates for c in schema.columns[3:]] == indicated
    assert all(c.levels == (False, True) for c in schema.columns[3:])
    values, seen = schema.encode(table)
    gone = pd.DataFrame(INCOME)[indicated].isna().to_numpy()
    np.testing.assert_array_equal(values[:, 3:], gone)
    assert seen[:, 3:].all()
    np.testing.assert_array_equal(seen[:, :2], ~gone[:, :2])
    assert_equal(schema.decode(values, seen), table)
    # What the indicators say goes, also where a model has drawn a value.
    assert_equal(schema.decode(values), table)
    again = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert_equal(again.decode(values), table)


def test_constants_with_indicators_come_back():
    schema = Schema.infer(pl.DataFrame(INCOME), missing="informative")
    back = schema.decode(np.zeros((2, len(schema.columns))))
    assert back.columns == list(INCOME)
    assert back["sold"].to_list() == [7, 7]
    assert back["why"].to_list() == ["x", "x"]
    assert ("sold", "constant", "7.0 where not missing") in schema.describe()


def test_indicators_have_names_of_their_own():
    frame = pd.DataFrame({"a": [1.5, None, 2.5], "a is missing": [1, 2, 4]})
    schema = Schema.infer(frame, missing="informative")
    assert schema.names == ("a", "a is missing", "a is missing'")


# Arrays and lists


@pytest.mark.parametrize(
    ("array", "kinds"),
    [
        (np.array([[1.5, 2.5], [np.nan, 4.25]]), ["constant", "real"]),
        (np.array([[1, 2], [3, 5]]), ["integer", "integer"]),
        (np.array([[True, False], [False, True]]), ["category", "category"]),
        (np.array([["a", 1.5], ["b", None]], dtype=object), ["category", "constant"]),
        (np.array([["a", "x"], ["b", "y"]]), ["category", "category"]),
        (np.ma.masked_equal([[1, 2], [3, 9], [7, 5]], 9), ["integer", "integer"]),
        (np.ma.masked_array(np.array([["a"], ["b"], ["?"]]), [[0], [0], [1]]), ["category"]),
        ([[1, "a"], [2.5, None], [3, "b"]], ["real", "category"]),
        ([[1, 2], [3, 5]], ["integer", "integer"]),
    ],
)
def test_arrays_are_read_by_position(array, kinds):
    schema = Schema.infer(array)
    assert schema.frame == "array"
    kept = [k for k in kinds if k != "constant"]
    assert [c.kind for c in schema.columns] == kept
    places = [d for d, k in enumerate(kinds) if k != "constant"]
    assert schema.names == tuple(f"x{d + 1}" for d in places)
    values, seen = schema.encode(array)
    back = schema.decode(values, seen)
    objects = np.array(array, dtype=object)[:, places]
    objects[np.ma.getmaskarray(array)[:, places]] = None
    if back.dtype == object:
        assert back.tolist() == objects.tolist()
    else:
        np.testing.assert_array_equal(back, objects.astype(float))
    again = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert again == schema


@pytest.mark.parametrize("dtype", [">f8", ">i4", np.longdouble, np.float16, np.uint8])
def test_arrays_of_any_type_of_numbers_are_read(dtype):
    array = np.array([[1, 2], [3, 5], [8, 4]], dtype=dtype)
    values, _ = Schema.infer(array).encode(array)
    np.testing.assert_array_equal(values, array.astype(float))


def test_arrays_are_not_changed():
    array = np.arange(6.0).reshape(3, 2) ** 2
    array.flags.writeable = False
    values, seen = Schema.infer(array).encode(array)
    assert values.flags.writeable
    assert seen.flags.writeable


@pytest.mark.parametrize(
    ("values", "held"),
    [
        (pd.period_range("2020", periods=3, freq="M"), r"period\[M\]"),
        (pd.Series([1j, 2, 3]), "complex128"),
        (pd.interval_range(0, 3), r"interval\[int64, right\]"),
    ],
)
def test_types_without_a_kind_are_left_out(values, held):
    schema = Schema.infer(pd.DataFrame({"x": values, "y": NUMBERS}))
    assert pd.Series(schema.left_out["x"]).str.fullmatch(f"holds values of type {held}").all()


def test_chunks_with_dictionaries_of_their_own_are_one_column():
    chunks = [pa.table({"c": pa.array(c).dictionary_encode()}) for c in (["a", "b"], ["z", "a"])]
    table = pa.concat_tables(chunks)
    schema = Schema.infer(table)
    values, seen = schema.encode(table)
    assert values.ravel().tolist() == [0, 1, 2, 0]
    assert schema.decode(values, seen)["c"].to_pylist() == ["a", "b", "z", "a"]


def test_masked_cells_are_missing():
    masked = np.ma.masked_equal([[1, 2], [3, 9], [7, 5]], 9)
    values, seen = Schema.infer(masked).encode(masked)
    np.testing.assert_array_equal(seen, ~np.ma.getmaskarray(masked))
    np.testing.assert_array_equal(values, masked.filled(0))


def test_array_columns_are_called_by_position():
    array = np.array([[1.0, 0.5], [2.0, 1.5], [4.0, 7.0]])
    schema = Schema.infer(array, columns={0: "integer", "x2": Real(low=0)})
    assert [c.kind for c in schema.columns] == ["integer", "real"]
    assert schema.columns[1].low == 0
    assert 'columns={0: "integer"}' in Schema.infer(array).notes[0]
    with pytest.raises(ValueError, match="^Column 0 .'x1'. should hold whole numbers but holds 1"):
        schema.encode(array + 0.5)
    with pytest.raises(ValueError, match=r"Expected X of shape \(N, 2\), as .*got \(3, 1\)"):
        schema.encode(array[:, :1])
    # A frame's names are not those of an array.
    np.testing.assert_array_equal(schema.encode(pd.DataFrame(array))[0], array)


def test_whole_numbers_as_names_come_back():
    frame = pd.DataFrame([[1, 2.5], [3, 4.5]])
    schema = Schema.infer(frame, columns={0: "real"})
    assert schema.names == ("0", "1")
    back = schema.decode(*schema.encode(frame))
    pd.testing.assert_frame_equal(back, frame.astype(float), check_column_type=False)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.zeros(3), ValueError, r"Expected X of shape \(N, D\), one row .*got shape \(3,\)"),
        ([[1, 2], [3]], ValueError, "every row needs the same number of cells"),
        (
            np.zeros((2, 2), complex),
            ValueError,
            "Expected X to hold .* got an array of complex128",
        ),
        ("table.csv", TypeError, "Expected X to be a table; got str"),
        ({"a": [1]}, TypeError, "Expected X to be a table; got dict"),
        (pl.LazyFrame({"a": [1]}), TypeError, r"X is a lazy frame .* call its collect\(\) first"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "Column names of X must differ"),
        (pd.DataFrame([[1, 2]], columns=["1", 1]), ValueError, "Column names of X must differ"),
        (pd.DataFrame({("a", "b"): [1]}), ValueError, "must be text or whole numbers; got"),
    ],
)
def test_what_is_no_table_is_refused(X, error, message):
    with pytest.raises(error, match=message):
        Schema.infer(X)


# In words


def test_a_schema_tells_what_it_holds():
    frame = pd.DataFrame(
        {
            "city": pd.Categorical(["a", None, "b", "a"], categories=list("abcdef"), ordered=True),
            "rain": [0.0, 0.5, 1.5, 2.5],
            "day": [*DATES, DATES[0]],
            "one": [1] * 4,
        }
    )
    schema = Schema.infer(
        frame, columns={"rain": Real(atoms=[0], low=0, high=9)}, missing="informative"
    )
    assert schema.describe() == [
        ("city", "ordered category", "6 levels: a, b, c, d, e, ...; 25.0% missing"),
        ("rain", "real", "single values 0; at least 0; at most 9"),
        ("day", "date", "in days"),
        ("city is missing", "indicator", "tells the missing cells of 'city'"),
        ("one", "left out", "constant (1 in every row)"),
    ]


@pytest.mark.parametrize(
    ("column", "plain"),
    [
        (Column("x", "real"), True),
        (Column("x", "real", atoms=(0.0,)), False),
        (Column("x", "real", low=0.0), False),
        (Column("x", "real", high=0.0), False),
        (Column("x", "real", missing=0.1), False),
        (Column("x", "integer"), False),
    ],
)
def test_plain_tables(column, plain):
    assert Schema((Column("y", "real"), column)).is_plain is plain


# Dates with a time: what they count

ZONES = [None, "UTC", "Europe/Berlin", "+05:30"]


@pytest.mark.parametrize("zone", ZONES)
def test_times_at_midnight_are_days(zone):
    """Whole days on the clock of their zone, summer time or not; draws have no time of day."""
    days = pa.array([dt.datetime(2024, 1, 5), dt.datetime(2024, 7, 5), None])
    times = pa.array(days, pa.timestamp("ms"))
    times = times if zone is None else pa.compute.assume_timezone(times, zone)
    table = pa.table({"t": times})
    schema = Schema.infer(table)
    assert schema.columns[0].unit == "day"
    assert schema.columns[0].describe()[2] == "in days; 33.3% missing"
    values, seen = schema.encode(table)
    epoch = dt.date(1970, 1, 1)
    expected = [(dt.date(2024, month, 5) - epoch).days for month in (1, 7)]
    np.testing.assert_array_equal(values[:2, 0], expected)
    assert schema.decode(values, seen).equals(table)
    drawn = schema.decode(values + 1.3)["t"]
    assert drawn.type == times.type
    clock = drawn if zone is None else pa.compute.local_timestamp(drawn)
    assert clock[0].as_py() == dt.datetime(2024, 1, 6)
    assert clock[1].as_py() == dt.datetime(2024, 7, 6)


def test_times_of_day_are_refused_where_there_were_none():
    schema = Schema.infer(pa.table({"t": [dt.datetime(2024, 1, 5), dt.datetime(2024, 1, 6)]}))
    with pytest.raises(ValueError, match="without a time of day but holds 2024-01-05 10:00:00 in"):
        schema.encode(pa.table({"t": [dt.datetime(2024, 1, 5, 10)]}))
    zoned = pa.array([dt.datetime(2024, 1, 5)], pa.timestamp("s", "UTC"))
    with pytest.raises(ValueError, match="has the time zone UTC, but had none"):
        schema.encode(pa.table({"t": zoned}))


@pytest.mark.parametrize(
    ("later", "step", "words"),
    [
        (dt.timedelta(hours=3), 3600, "in whole hours"),
        (dt.timedelta(minutes=3), 60, "in whole minutes"),
        (dt.timedelta(seconds=3), 1, "in whole seconds"),
        (dt.timedelta(milliseconds=3), None, "in seconds"),
    ],
)
def test_times_come_back_as_whole_as_they_were(later, step, words):
    noon = dt.datetime(2024, 1, 5, 12)
    table = pa.table({"t": [noon, noon + later, noon + 2 * later]})
    schema = Schema.infer(table)
    (column,) = schema.columns
    assert (column.unit, column.step, column.describe()[2]) == ("second", step, words)
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    values, _ = schema.encode(table)
    assert schema.decode(values).equals(table)
    drawn = schema.decode(values + 0.1234)["t"][0].as_py()
    assert drawn == (noon if step else noon + dt.timedelta(microseconds=123_400))
