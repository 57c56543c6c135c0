"""The command line: what it writes where, what it says, and how it ends."""

import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import warnings

import numpy as np
import pyarrow.parquet as pq
import pytest
import typer

import rnade as rnade_package
from rnade import RNADE, __version__, load
from rnade.cli import main
from rnade.cli.app import app
from rnade.cli.fit import ESTIMATORS, SETTINGS, default_output
from rnade.cli.options import split_names
from rnade.cli.settings import (
    DEFAULTS,
    documented_parameters,
    plain,
    settings_parameters,
    value_of,
)
from rnade.cli.terminal import print_json
from rnade.tables import read_table, write_table
from tests import commands
from tests.commands import succeeded, told, work_in

SEED = ["--random-state", "0"]
SHORT = ["--epochs", "2", "--batches-per-epoch", "2", *SEED]
QUICK = [*SHORT, "--n-hidden", "4", "--n-components", "3"]


# What rnade score tells of each row, before the columns of the file.
SCORED = ["row", "log_density", "p_value", "surprise", "value", "expected"]


def make_columns(n=120, seed=0):
    """Independent columns in very different units."""
    rng = np.random.default_rng(seed)
    return {
        "a": rng.normal(size=n),
        "b": 1e-3 * rng.normal(size=n),
        "c": 1e3 * rng.normal(size=n),
    }


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A folder with a table, a model fitted to it, and one fitted without column names."""
    folder = tmp_path_factory.mktemp("made")
    columns = make_columns()
    write_table(columns, folder / "data.csv")
    code = main(["fit", str(folder / "data.csv"), "-o", str(folder / "m.rnade"), "-q", *QUICK])
    assert code == 0
    bare = RNADE(epochs=2, batches_per_epoch=2, n_hidden=4, n_components=3, random_state=0)
    bare.fit(np.column_stack([*columns.values()])).save(folder / "bare.rnade")
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A fresh current folder with the table and the models in it."""
    return work_in(tmp_path, monkeypatch, made)


def error(result):
    """Give the one line on stderr, but for warnings, of a command that failed for bad input."""
    lines = [line for line in result[2].splitlines() if not line.startswith("rnade: warning:")]
    assert len(lines) == 1
    return commands.error(result)


def as_columns(text):
    header, *lines = text.splitlines()
    rows = [line.split(",") for line in lines]
    return dict(zip(header.split(","), zip(*rows, strict=True), strict=True))


# ------------------------------------------------------------------ settings


def test_settings_are_what_the_estimators_declare():
    """The source that is read for the help says what the classes themselves say."""
    for model, class_name in ESTIMATORS.items():
        kind = getattr(rnade_package, class_name)
        signature = inspect.signature(kind).parameters
        documented = documented_parameters(kind.__doc__)
        assert {name: (s.kind, s.text) for name, s in SETTINGS[model].items()} == documented
        assert set(documented) == set(signature)
        for name, setting in SETTINGS[model].items():
            assert setting.default == DEFAULTS.get(name, signature[name].default), name


def test_every_parameter_is_an_option_with_help(rnade):
    options = {p.name: p.annotation.__metadata__[0] for p in settings_parameters(SETTINGS)}
    declared = {name for own in SETTINGS.values() for name in own}
    ours = {"verbose", "ensemble", "search", "columns", "missing", "na"}
    assert set(options) == declared - ours
    text = succeeded(rnade("fit", "--help"))
    for name, option in options.items():
        assert option.help.strip()
        assert re.search(rf"--{name.replace('_', '-')}\b", text), name


def test_help_comes_from_the_docstring(rnade):
    text = re.sub(r"[\s│]+", " ", succeeded(rnade("fit", "--help")))
    assert "Share of the rows held out: they give held_out_score and calibrate p-values" in text
    assert "Hidden units. Default: 50. (Only with --model rnade or nade or fvbn.)" in text
    assert "--dequantize" in text
    assert "--no-dequantize" in text
    assert "--verbose" not in text


def test_help_shows_choices(rnade, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = succeeded(rnade("fit", "--help"))
    for option, choices in {
        "family": "[gaussian|laplace]",
        "activation": "[relu|sigmoid]",
        "sigma-floor": "[auto|FLOAT]",
        "device": "[auto|cpu|cuda]",
        "init": "[k-means++|random]",
    }.items():
        assert re.search(rf"--{option} +{re.escape(choices)} ", text), option
    assert "Choices: auto, raster, random, NUMBERS." in text
    assert "TEXT" not in text


@pytest.mark.parametrize(
    "command",
    [
        *((), ("fit",), ("score",), ("sample",), ("ask",), ("impute",)),
        *(("report",), ("explore",), ("info",), ("reproduce",)),
    ],
)
def test_help_ends_with_examples(rnade, command):
    examples = succeeded(rnade(*command, "--help")).partition("Examples:")[2]
    assert examples.count(f"rnade {' '.join(command)}") >= 2


def test_examples_name_only_options_there_are(rnade):
    commands = typer.main.get_command(app).commands
    for name, command in commands.items():
        known = {flag for p in command.params for flag in (*p.opts, *p.secondary_opts)}
        assert set(re.findall(r"(?<= )--?[a-z-]+", command.epilog)) <= known, name


def test_without_a_command_there_is_help(rnade):
    assert succeeded(rnade()) == succeeded(rnade("--help"))


def test_docstrings_are_parsed():
    found = documented_parameters(
        """One line.

        Parameters
        ----------
        a, b : int
            Two of
            them.
        c : {"x", "y"}

            After a blank line.

        Returns
        -------
        d : int
            Not a parameter.
        """
    )
    assert found == {
        "a": ("int", "Two of them."),
        "b": ("int", "Two of them."),
        "c": ('{"x", "y"}', "After a blank line."),
    }
    assert documented_parameters("") == {}


def test_marks_are_taken_out_of_help():
    assert plain("See `RNADE` and ``x`` in :math:`a_d`.") == "See RNADE and x in a_d."


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("50", 50),
        ("1e-3", 1e-3),
        ("None", None),
        ("true", True),
        ("2,0,1", [2, 0, 1]),
        ("relu", "relu"),
    ],
)
def test_words_become_values(text, value):
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


def test_names_with_commas_are_quoted():
    assert split_names('a, "b, or c",d') == ["a", "b, or c", "d"]
    assert split_names(None) is None


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ("x/wine.csv", "wine.rnade"),
        ("wine.v2.csv.gz", "wine.v2.rnade"),
        ("-", "model.rnade"),
        ("wine", "wine.rnade"),
    ],
)
def test_default_output(data, name):
    assert str(default_output(data)) == name


def test_settings_reach_the_estimator(rnade, folder):
    succeeded(
        rnade(
            *("fit", "data.csv", "-o", "n.rnade", "--family", "laplace", "--order", "2,0,1"),
            *("--validation-fraction", "0.25", "--dequantize", *QUICK),
        )
    )
    settings = load(folder / "n.rnade").get_params()
    assert settings["family"] == "laplace"
    assert list(settings["order"]) == [2, 0, 1]
    assert settings["n_components"] == 3
    assert settings["validation_fraction"] == 0.25
    assert settings["dequantize"] is True
    assert settings["epochs"] == 2


# ------------------------------------------------------------------ fit


def test_fit_says_what_it_did(rnade, folder):
    (folder / "t.csv").write_text(
        "name,day,k,a,b\n"
        + "".join(
            f"n{i},2020-01-{i % 28 + 1:02},7,{np.sin(i)},{np.cos(3 * i)}\n" for i in range(60)
        )
    )
    code, out, err = rnade("fit", "t.csv", "--kind", "real", *QUICK)
    assert code == 0
    assert "rnade: left out column 'name': text (such as 'n0')\n" in err
    assert "rnade: left out column 'day': dates\n" in err
    assert "rnade: left out column 'k': constant (7 in every row)\n" in err
    assert out.splitlines()[0] == "RNADE of 60 rows and 2 columns, saved as t.rnade"
    assert re.fullmatch(
        r"held-out log-likelihood: -?\d+\.\d{3} ± \d+\.\d{3} nats per row \(6 rows\)"
        r"; before it was trained again on all rows",
        out.splitlines()[1],
    )
    assert re.fullmatch(r"trained for \d+\.\d s", out.splitlines()[2])
    assert list(load("t.rnade").feature_names_in_) == ["a", "b"]


def test_fit_quietly(rnade, folder):
    assert rnade("fit", "data.csv", "-q", *QUICK) == (0, "", "")
    assert (folder / "data.rnade").exists()


def test_fit_as_json(rnade):
    result = told(rnade("fit", "data.csv", "--json", "--exclude", "b", *QUICK))
    estimator = load("data.rnade")
    held_out = estimator.held_out_score()
    assert result["model"] == "data.rnade"
    assert result["class"] == "RNADE"
    assert result["n_rows"] == 120
    assert result["columns"] == ["a", "c"]
    assert result["left_out"] == {"b": "not chosen"}
    assert result["held_out"] == {
        "mean": pytest.approx(held_out.mean),
        "standard_error": pytest.approx(held_out.standard_error),
        "n_rows": 12,
    }
    assert result["epochs"] == 2
    assert result["seconds"] > 0


def test_fit_with_a_search(rnade, folder):
    """Settings given by hand are not searched over; the best three are averaged."""
    settings = ("--n-components", "2", "--learning-rate", "0.01", *QUICK[2:])
    code, out, err = rnade("fit", "data.csv", "-o", "s.rnade", "--search", *settings)
    assert code == 0
    assert "best settings: {'weight_decay':" in err
    assert "held-out log-likelihood" in out
    model = load(folder / "s.rnade", device="cpu")
    assert {m["changes"]["weight_decay"] for m in model.members_} == {0.0, 0.1, 1.0}
    assert rnade("score", "s.rnade", "data.csv")[0] == 0


def test_fit_with_a_search_for_one_model(rnade, folder):
    settings = ("--n-components", "2", "--learning-rate", "0.01", *QUICK[2:])
    given = ("--search", "--no-ensemble", *settings)
    succeeded(rnade("fit", "data.csv", "-o", "s.rnade", *given))
    assert len(load(folder / "s.rnade", device="cpu").members_) == 1


def test_fit_of_one_plain_model(rnade, folder):
    succeeded(rnade("fit", "data.csv", "-o", "one.rnade", "--no-ensemble", *QUICK))
    assert len(load(folder / "one.rnade", device="cpu").members_) == 1
    succeeded(rnade("fit", "data.csv", "-o", "some.rnade", "--ensemble", *QUICK))
    assert len(load(folder / "some.rnade", device="cpu").members_) > 1
    for option in ("--search", "--ensemble", "--no-ensemble"):
        assert error(rnade("fit", "data.csv", "--model", "nade", option)) == (
            "--search and --ensemble are options for --model rnade, not nade."
        )


def test_fit_chosen_columns(rnade):
    succeeded(rnade("fit", "data.csv", "--columns", "c,a", "-q", *QUICK))
    assert list(load("data.rnade").feature_names_in_) == ["c", "a"]


def test_fit_from_standard_input(rnade, folder, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO((folder / "data.csv").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    succeeded(rnade("fit", "-", *QUICK))
    assert load("model.rnade").n_rows_ == 120


@pytest.mark.parametrize("model", ["nade", "fvsbn"])
def test_fit_binary_models_keep_constant_columns(rnade, folder, model):
    bits = np.random.default_rng(0).integers(0, 2, size=(40, 2))
    write_table({"p": bits[:, 0], "q": bits[:, 1], "k": np.ones(40)}, "bits.csv")
    succeeded(rnade("fit", "bits.csv", "--model", model, "-q", *SHORT))
    estimator = load("bits.rnade")
    assert type(estimator).__name__ == model.upper()
    assert list(estimator.feature_names_in_) == ["p", "q", "k"]


@pytest.mark.parametrize("model", ["nade", "fvsbn"])
def test_real_values_become_bits_only_on_request(rnade, folder, model):
    message = error(rnade("fit", "data.csv", "--model", model, *SHORT))
    value = read_table("data.csv").values[0, 0]
    assert message == (
        f"data.csv: --model {model} is for columns of 0 and 1, but column 'a' holds {value:g} in"
        " row 1. Pass --binarize 0 to make values above 0 a 1 and others a 0, or another"
        " threshold."
    )
    succeeded(rnade("fit", "data.csv", "--model", model, "--binarize", "0", *SHORT))
    assert load("data.rnade").binarize == 0


@pytest.mark.parametrize(
    ("model", "settings", "name"),
    [
        ("gaussian", ["--shrinkage", "0.1"], "Gaussian"),
        ("mog", ["--n-components", "1,2", "--n-init", "2"], "MixtureOfGaussians"),
        ("mfa", ["--n-components", "2", "--n-factors", "search"], "MixtureOfFactorAnalyzers"),
        ("fvbn", ["--n-hidden", "2,4", "--epochs", "2"], "FVBN"),
    ],
)
def test_baselines_work_as_rnade_does(rnade, folder, model, settings, name):
    """Fitted, described, scored and drawn from; the choice of size is one command."""
    out = succeeded(rnade("fit", "data.csv", "--model", model, "--random-state", "0", *settings))
    assert out.startswith(f"{name} of 120 rows and 3 columns")
    assert f"{name}, fitted to 120 rows\n" in succeeded(rnade("info", "data.rnade"))
    columns = as_columns(rnade("score", "data.rnade", "data.csv", "-q")[1])
    expected = load("data.rnade").judge(read_table("data.csv").to_arrow()).scores
    np.testing.assert_allclose(np.array(columns["log_density"], float), expected)
    assert set(columns["surprise"]) <= {"a", "b", "c"}
    drawn = as_columns(succeeded(rnade("sample", "data.rnade", "-n", "4")))
    assert [len(values) for values in drawn.values()] == [4, 4, 4]


def test_fit_leaves_out_ids(rnade, folder):
    """As pandas writes its index, and as tables of customers have one."""
    columns = make_columns()
    lines = [",customer_id,turnover,a,b"]
    rng = np.random.default_rng(1)
    ids, turnover = rng.permutation(10_000)[:120], rng.permutation(9_000)[:120]
    for i in range(120):
        row = (i, ids[i], turnover[i], columns["a"][i], columns["b"][i])
        lines.append(",".join(map(str, row)))
    (folder / "t.csv").write_text("\n".join(lines))
    code, _, err = rnade("fit", "t.csv", "--kind", "real", *QUICK)
    assert code == 0
    assert list(load("t.rnade").feature_names_in_) == ["turnover", "a", "b"]
    for name in ("x1", "customer_id"):
        reason = "row numbers or ids (120 different whole numbers)"
        assert f"rnade: left out column {name!r}: {reason}\n" in err
        assert f"rnade: column {name!r} is kept if --columns names it\n" in err
    assert "rnade: column 'turnover' looks like an id" in err
    kept = ("--columns", "customer_id,a", "--force", "--kind", "real")
    succeeded(rnade("fit", "t.csv", *kept, *QUICK))
    assert list(load("t.rnade").feature_names_in_) == ["customer_id", "a"]


def test_fit_with_row_weights(rnade, folder):
    """A row of weight 0 is as if it were not there, and the weights are no column."""
    columns = make_columns()
    weight = np.r_[np.ones(100), np.zeros(20)]
    write_table({**columns, "w": weight}, "t.csv")
    code, _, err = rnade("fit", "t.csv", "--weight", "w", *QUICK)
    assert code == 0
    assert "rnade: left out column 'w': row weights\n" in err
    estimator = load("t.rnade")
    assert list(estimator.feature_names_in_) == ["a", "b", "c"]
    assert estimator.n_rows_ == 100
    write_table({name: x[:100] for name, x in columns.items()}, "fewer.csv")
    succeeded(rnade("fit", "fewer.csv", *QUICK))
    x = read_table("data.csv").to_arrow()
    np.testing.assert_allclose(
        estimator.score_samples(x), load("fewer.rnade").score_samples(x), rtol=1e-6
    )
    weight[3] = -1
    write_table({**columns, "w": weight}, "t.csv", force=True)
    assert "line 5, column 'w': expected a row weight of 0 or more; got -1" in error(
        rnade("fit", "t.csv", "--weight", "w", "--force", *QUICK)
    )


def test_search_takes_row_weights(rnade, folder):
    write_table({**make_columns(), "w": np.arange(120.0) % 3}, "t.csv")
    given = ("--search", "--n-components", "2", "--learning-rate", "0.01", *QUICK[2:])
    succeeded(rnade("fit", "t.csv", "--weight", "w", *given))
    assert load("t.rnade").n_rows_ == 80


def test_fit_counts_one_thing_as_one(rnade, folder):
    write_table({"a": make_columns()["a"]}, "one.csv")
    assert succeeded(rnade("fit", "one.csv", *QUICK)).startswith("RNADE of 120 rows and 1 column,")
    succeeded(rnade("fit", "data.csv", *QUICK, "--no-ensemble", "--epochs", "1"))
    assert "training: 1 epoch, best" in succeeded(rnade("info", "data.rnade"))


def test_fit_drops_rows_only_when_asked(rnade, folder):
    with (folder / "data.csv").open("a") as file:
        file.write("1,,2\n")
    assert error(rnade("fit", "data.csv", "--kind", "real", *QUICK)) == (
        "data.csv has 1 missing cell, the first in line 122, column 'b'; fix them, or leave such "
        "rows out with --missing drop."
    )
    assert error(rnade("fit", "data.csv", "--missing", "error", *QUICK)) == (
        "data.csv has 1 missing cell, the first in line 122, column 'b'; fix them, leave such rows"
        " out with --missing drop, or let rows count by their other cells with --missing ignore."
    )
    assert "--missing ignore is for models fitted by --model rnade" in error(
        rnade("fit", "data.csv", "--model", "gaussian", "--missing", "ignore")
    )
    code, out, err = rnade("fit", "data.csv", "--missing", "drop", *QUICK)
    assert code == 0
    assert "rnade: left out 1 of 121 rows for a missing cell\n" in err
    assert out.startswith("RNADE of 120 rows and 3 columns")


def test_fit_names_only_the_first_of_many_left_out_columns(rnade, folder):
    write_table({**make_columns(), **{f"w{d}": ["x"] * 120 for d in range(25)}}, "wide.csv")
    _, _, err = rnade("fit", "wide.csv", *QUICK)
    assert err.count("left out column") == 20
    assert "rnade: left out 5 more columns\n" in err


def test_fit_shows_warnings_as_one_line(rnade, folder):
    rng = np.random.default_rng(0)
    write_table({"whole": rng.integers(0, 9, 90), "real": rng.normal(size=90)}, "t.csv")
    code, _, err = rnade("fit", "t.csv", "-q", "--kind", "real", *QUICK)
    assert code == 0
    (line,) = err.splitlines()
    assert line.startswith("rnade: warning: Whole-number or heavily repeated values in")
    assert "'whole'" in line


def test_warnings_are_left_as_they_were(rnade):
    before = warnings.showwarning
    rnade("info", "m.rnade")
    assert warnings.showwarning is before


def test_fit_refuses_to_overwrite_before_any_work(rnade, folder, monkeypatch):
    def never(*_, **__):
        raise AssertionError("trained before looking at the output")

    monkeypatch.setattr(RNADE, "fit", never)
    before = (folder / "m.rnade").read_bytes()
    assert error(rnade("fit", "data.csv", "-o", "m.rnade")) == (
        "m.rnade exists already; pass --force to overwrite it."
    )
    assert "the folder none does not exist" in error(
        rnade("fit", "data.csv", "-o", "none/m.rnade")
    )
    assert (folder / "m.rnade").read_bytes() == before


def test_fit_keeps_a_file_that_appears_meanwhile(rnade, folder, monkeypatch):
    fit = RNADE.fit

    def slow_fit(self, *args, **kwargs):
        (folder / "data.rnade").write_text("theirs")
        return fit(self, *args, **kwargs)

    monkeypatch.setattr(RNADE, "fit", slow_fit)
    assert "data.rnade exists already" in error(rnade("fit", "data.csv", *QUICK))
    assert (folder / "data.rnade").read_text() == "theirs"


@pytest.mark.parametrize(
    "command",
    [
        ["fit", "data.csv", "-o", "data.csv"],
        ["fit", "data.csv", "-o", "./data.csv"],
        ["score", "m.rnade", "data.csv", "-o", "data.csv"],
        ["score", "model.csv", "data.csv", "-o", "model.csv"],
        ["sample", "model.csv", "-o", "model.csv"],
        ["impute", "m.rnade", "data.csv", "-o", "data.csv"],
        ["report", "m.rnade", "data.csv", "-o", "m.rnade"],
        ["report", "m.rnade", "data.csv", "-o", "data.csv"],
        ["report", "m.rnade", "data.csv", "-o", "link.csv", "--json"],
    ],
)
def test_an_input_is_never_overwritten(rnade, folder, command):
    (folder / "model.csv").write_bytes((folder / "m.rnade").read_bytes())
    (folder / "link.csv").symlink_to("data.csv")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert "it is an input too" in error(rnade(*command, "--force"))
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    "command",
    [["score", "m.rnade", "data.csv"], ["sample", "m.rnade"], ["impute", "m.rnade", "data.csv"]],
)
def test_outputs_are_checked_before_the_model_is_loaded(rnade, folder, monkeypatch, command):
    def never(*_, **__):
        raise AssertionError("loaded before looking at the output")

    monkeypatch.setattr("rnade.estimators.load", never)
    (folder / "there.csv").touch()
    assert "there.csv exists already" in error(rnade(*command, "-o", "there.csv"))


def test_fit_overwrites_with_force(rnade, folder):
    before = (folder / "m.rnade").read_bytes()
    succeeded(rnade("fit", "data.csv", "-o", "m.rnade", "--force", *QUICK, "--epochs", "3"))
    assert (folder / "m.rnade").read_bytes() != before


FIT_ERRORS = {
    "no file": (["nowhere.csv"], "There is no file nowhere.csv."),
    "unknown column": (
        ["data.csv", "--columns", "a,B"],
        "data.csv has no column 'B'; did you mean 'b'?",
    ),
    "unknown family": (["data.csv", "--family", "gausian"], "Did you mean 'gaussian'?"),
    "unknown activation": (["data.csv", "--activation", "rellu"], "Did you mean 'relu'?"),
    "bad size": (
        ["data.csv", "--n-hidden", "-3"],
        "n_hidden must be a whole number >= 1; got -3.",
    ),
    "bad rate": (["data.csv", "--learning-rate", "-0.5"], "learning_rate must be a number > 0"),
    "setting of another model": (
        ["data.csv", "--model", "fvsbn", "--n-hidden", "5"],
        "--n-hidden is not an option for --model fvsbn.",
    ),
    "unknown option": (["data.csv", "--famly", "x"], "No such option: --famly"),
    "unknown model": (["data.csv", "--model", "rnad"], "Did you mean 'rnade'?"),
    "no data": ([], "Missing argument 'DATA'"),
    "separator": (["data.csv", "--separator", "::"], "Expected a separator of one character"),
}


@pytest.mark.parametrize("case", FIT_ERRORS)
def test_fit_errors(rnade, folder, case):
    arguments, expected = FIT_ERRORS[case]
    assert expected in error(rnade("fit", *arguments, *SEED))
    assert sorted(os.listdir(folder)) == ["bare.rnade", "data.csv", "m.rnade"]


REAL = ["--kind", "real"]
# What reading says of tables is tested with it.
TABLE_ERRORS = {
    "no columns": ([], b"a\nred\nred\n", "t.csv: no column is left that a model could learn from"),
    "ragged": ([], b"a,b\n1,2\n3\n", "t.csv: line 3 has 1 cell; expected 2"),
    "infinite": (
        [],
        b"a,b\n1,2\n3,inf\n",
        "t.csv: column 'b' holds an infinite value, first inf in line 3. Replace it by a number",
    ),
    "word": ([], b"a,b\n1,2\n3,4\n5,x\n", "t.csv: line 4, column 'b': 'x' is not a number"),
    "all constant": (
        [],
        b"a\n1\n1\n",
        "no column is left that a model could learn from ('a': constant",
    ),
    "too large": (
        [],
        b"a,b\n1,2\n3,4e31\n",
        "t.csv: column 'b' holds numbers beyond 1e+30, too large to compute with, first 4e+31 in"
        " line 3. Rescale the column.",
    ),
    "one row": ([], b"a,b\n1,2\n", "constant (1 in every row)"),
    "no numbers": (REAL, b"a\nred\nblue\n", "t.csv has no numeric column that can be used"),
    "one real row": (REAL, b"a,b\n1,2\n", "minimum of 2"),
}


@pytest.mark.parametrize("case", TABLE_ERRORS)
def test_fit_bad_tables(rnade, folder, case):
    options, content, expected = TABLE_ERRORS[case]
    (folder / "t.csv").write_bytes(content)
    assert expected in error(rnade("fit", "t.csv", *options, *SEED))
    assert not (folder / "t.rnade").exists()


def test_fit_on_a_full_disk(rnade, folder, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert error(rnade("fit", "data.csv", *QUICK)) == (
        "Cannot write data.rnade: No space left on device"
    )
    assert sorted(os.listdir(folder)) == ["bare.rnade", "data.csv", "m.rnade"]


# ------------------------------------------------------------------ score


def test_score(rnade):
    code, out, err = rnade("score", "m.rnade", "data.csv")
    assert code == 0
    columns = as_columns(out)
    estimator = load("m.rnade")
    assert list(columns) == [*SCORED, "a", "b", "c"]
    assert [int(row) for row in columns["row"]] == list(range(1, 121))
    expected = estimator.fit_scores_  # it is the fitted table
    np.testing.assert_allclose(np.array(columns["log_density"], float), expected, rtol=1e-12)
    np.testing.assert_allclose(np.array(columns["p_value"], float), estimator.fit_pvalues_)
    assert set(columns["surprise"]) == {"a", "b", "c"}
    for i, name in enumerate(columns["surprise"]):
        assert float(columns["value"][i]) == pytest.approx(float(columns[name][i]), rel=1e-5)
    assert err == (
        "rnade: this is the table that was fitted: each row is scored by models that left it out"
        " of training\n"
        f"rnade: mean log density {expected.mean():.3f} ± "
        f"{expected.std(ddof=1) / np.sqrt(120):.3f} nats per row (120 rows)\n"
    )


@pytest.mark.parametrize("odd", ["a", "b", "c"])
def test_surprise_names_the_odd_column_whatever_its_unit(rnade, odd):
    """In units as small as b's every log density is high, and in c's low."""
    row = {name: [5 * np.std(x) if name == odd else 0.0] for name, x in make_columns().items()}
    write_table(row, "row.csv")
    assert as_columns(succeeded(rnade("score", "m.rnade", "row.csv")))["surprise"] == (odd,)


def test_score_does_not_depend_on_the_other_rows(rnade, folder):
    write_table(make_columns(seed=1), "new.csv")
    whole = succeeded(rnade("score", "m.rnade", "new.csv")).splitlines()
    lines = (folder / "new.csv").read_text().splitlines()
    (folder / "one.csv").write_text(f"{lines[0]}\n{lines[7]}\n")
    (alone,) = succeeded(rnade("score", "m.rnade", "one.csv")).splitlines()[1:]
    row, density, *others = whole[7].split(",")
    assert row == "7"
    assert alone.split(",")[2:] == others
    assert float(alone.split(",")[1]) == pytest.approx(float(density), rel=1e-12)


def test_score_matches_columns_by_name(rnade, folder):
    columns = make_columns()
    expected = succeeded(rnade("score", "m.rnade", "data.csv"))
    write_table(
        {"c": columns["c"], "id": ["x"] * 120, "a": columns["a"], "b": columns["b"]}, "p.csv"
    )
    code, out, err = rnade("score", "m.rnade", "p.csv")
    found, expected = as_columns(out), as_columns(expected)
    assert code == 0
    assert list(found) == [*SCORED, "c", "id", "a", "b"]
    assert all(found[name] == cells for name, cells in expected.items())
    assert "rnade: columns not in the model are ignored: 'id'\n" in err
    assert rnade("score", "m.rnade", "p.csv", "-q") == (0, out, "")


def test_score_with_columns_missing(rnade):
    write_table({"a": [1.0], "zz": [2.0]}, "p.csv")
    assert error(rnade("score", "m.rnade", "p.csv")) == (
        "p.csv has no columns 'b', 'c'; it has 'a', 'zz'."
    )


def test_score_without_names_goes_by_position(rnade, folder):
    lines = (folder / "data.csv").read_text().splitlines()[1:]
    (folder / "bare.csv").write_text("\n".join(lines) + "\n")
    out = succeeded(rnade("score", "bare.rnade", "bare.csv"))
    assert set(as_columns(out)["surprise"]) == {"x1", "x2", "x3"}
    # The names of a file serve a model that has none.
    assert set(as_columns(succeeded(rnade("score", "bare.rnade", "data.csv")))["surprise"]) == {
        *("a", "b", "c")
    }
    write_table({**make_columns(), "d": np.zeros(120)}, "four.csv")
    assert error(rnade("score", "bare.rnade", "four.csv")) == (
        "four.csv has 4 numeric columns; the model, which has no column names, expects 3. Choose "
        "them with --columns."
    )
    assert succeeded(rnade("score", "bare.rnade", "four.csv", "--columns", "a,b,c"))
    assert "--columns is for models" in error(
        rnade("score", "m.rnade", "data.csv", "--columns", "a,b,c")
    )


def test_models_of_files_without_a_header_remember_positions(rnade, folder):
    rng = np.random.default_rng(0)
    lines = [f"{rng.normal()},g,{rng.normal()}" for _ in range(50)]
    (folder / "t.csv").write_text("\n".join(lines))
    succeeded(rnade("fit", "t.csv", "-q", *QUICK))
    code, out, err = rnade("score", "t.rnade", "t.csv")
    assert code == 0
    assert set(as_columns(out)["surprise"]) == {"x1", "x3"}
    assert "ignored: 'x2'" in err


def test_score_constant_columns_are_no_error(rnade):
    write_table({"a": [1.0, 1.0], "b": [0.0, 0.0], "c": [5.0, 6.0]}, "k.csv")
    assert len(succeeded(rnade("score", "m.rnade", "k.csv")).splitlines()) == 3


def test_score_keeps_row_numbers_when_rows_are_dropped(rnade, folder):
    (folder / "gaps.csv").write_text("a,b,c\n1,,5\n1,0,5\n,0,5\n0.5,0,6\n")
    assert "line 2, column 'b'" in error(rnade("score", "m.rnade", "gaps.csv"))
    code, out, err = rnade("score", "m.rnade", "gaps.csv", "--missing", "drop")
    assert code == 0
    assert as_columns(out)["row"] == ("2", "4")
    assert "left out 2 of 4 rows" in err


@pytest.mark.parametrize("name", ["s.csv", "s.parquet"])
def test_score_to_a_file(rnade, folder, name):
    expected = as_columns(succeeded(rnade("score", "m.rnade", "data.csv")))
    assert succeeded(rnade("score", "m.rnade", "data.csv", "-o", name)) == ""
    if name.endswith(".csv"):
        assert as_columns((folder / name).read_text()) == expected
    else:
        written = pq.read_table(folder / name).to_pydict()
        assert list(written) == list(expected)
        assert written["log_density"] == [float(x) for x in expected["log_density"]]
        assert tuple(written["surprise"]) == expected["surprise"]
    assert "exists already; pass --force" in error(
        rnade("score", "m.rnade", "data.csv", "-o", name)
    )
    succeeded(rnade("score", "m.rnade", "data.csv", "-o", name, "--force"))


def test_score_as_json(rnade):
    result = told(rnade("score", "m.rnade", "data.csv", "--json"))
    scores = [row["log_density"] for row in result["rows"]]
    assert list(result["rows"][0]) == [*SCORED, "a", "b", "c"]
    assert result["summary"] == {
        "n_rows": 120,
        "mean": pytest.approx(np.mean(scores)),
        "standard_error": pytest.approx(np.std(scores, ddof=1) / np.sqrt(120)),
        "dropped_rows": 0,
        "out_of_fold": 120,
        "learned": 0,
        "smallest_p_value": pytest.approx(1 / 121),
    }
    with_file = told(rnade("score", "m.rnade", "data.csv", "--json", "-o", "s.csv"))
    assert with_file == {"summary": result["summary"], "output": "s.csv"}


def test_score_of_one_row_has_no_standard_error(rnade):
    write_table({"a": [1.0], "b": [0.0], "c": [5.0]}, "one.csv")
    result = told(rnade("score", "m.rnade", "one.csv", "--json"))
    assert result["summary"]["standard_error"] is None
    _, _, err = rnade("score", "m.rnade", "one.csv")
    assert re.fullmatch(r"rnade: mean log density -?\d+\.\d+ nats per row \(1 row\)\n", err)


def test_numbers_that_json_has_not_become_null(capsys):
    print_json({"x": [float("nan"), float("inf"), -float("inf"), 1.5], "y": {"z": 2}})
    assert json.loads(capsys.readouterr().out) == {"x": [None, None, None, 1.5], "y": {"z": 2}}


def test_score_with_row_weights(rnade):
    weights = np.arange(120.0)
    write_table({**make_columns(), "w": weights}, "t.csv")
    result = told(rnade("score", "m.rnade", "t.csv", "--json", "--weight", "w"))
    scores = np.array([row["log_density"] for row in result["rows"]])
    assert result["summary"]["mean"] == pytest.approx(np.average(scores, weights=weights))
    code, _, err = rnade("score", "m.rnade", "t.csv", "--weight", "w")
    assert code == 0
    assert f"mean log density {result['summary']['mean']:.3f} ±" in err
    assert "ignored" not in err


def test_score_output_of_another_format(rnade):
    assert "ending in .csv, .parquet or .feather" in error(
        rnade("score", "m.rnade", "data.csv", "-o", "s.txt")
    )


# ------------------------------------------------------------------ sample and info


def test_sample(rnade, folder):
    out = succeeded(rnade("sample", "m.rnade", "-n", "5", "--random-state", "3"))
    columns = as_columns(out)
    expected = load("m.rnade").sample(5, random_state=3)
    assert list(columns) == ["a", "b", "c"]
    np.testing.assert_allclose(np.array([*columns.values()], float).T, expected, rtol=1e-12)
    assert succeeded(rnade("sample", "m.rnade", "-n", "5", "--random-state", "3")) == out
    assert succeeded(rnade("sample", "m.rnade", "-n", "5", "--random-state", "4")) != out
    assert len(succeeded(rnade("sample", "m.rnade", *SEED)).splitlines()) == 2


def test_sample_to_a_file(rnade, folder):
    assert succeeded(rnade("sample", "m.rnade", "-n", "4", "-o", "s.parquet", *SEED)) == ""
    assert read_table("s.parquet").values.shape == (4, 3)
    assert "exists already" in error(rnade("sample", "m.rnade", "-o", "s.parquet"))


def test_sample_of_a_model_without_names(rnade):
    assert succeeded(rnade("sample", "bare.rnade", *SEED)).startswith("x1,x2,x3\n")


@pytest.mark.parametrize("n", ["0", "-4"])
def test_sample_needs_a_number_of_rows(rnade, n):
    assert error(rnade("sample", "m.rnade", "-n", n)) == (
        f"n_samples must be a whole number >= 1; got {n}."
    )


def test_info(rnade):
    result = told(rnade("info", "m.rnade", "--json"))
    assert result["class"] == "RNADE"
    assert result["columns"] == ["a", "b", "c"]
    assert result["has_column_names"] is True
    assert result["n_rows"] == 120
    assert result["held_out"]["n_rows"] == 12
    assert result["training"]["epochs"] == 2
    assert result["training"]["models"] == len(load("m.rnade").members_) > 1
    assert result["training"]["best_epoch"] == load("m.rnade").best_epoch_
    assert result["settings"]["n_hidden"] == 4
    assert result["library_version"] == __version__
    assert result["format_version"] == 1
    text = succeeded(rnade("info", "m.rnade"))
    assert "RNADE, fitted to 120 rows\n" in text
    assert "columns (3): a, b, c\n" in text
    n_models = result["training"]["models"]
    assert f"training: average of {n_models} models, at most 2 epochs each," in text
    assert "n_hidden=4" in text
    assert f"written by rnade {__version__}, file format 1\n" in text
    bare = told(rnade("info", "bare.rnade", "--json"))
    assert bare["columns"] == ["x1", "x2", "x3"]
    assert bare["has_column_names"] is False


@pytest.mark.parametrize(
    "command",
    [
        *(["score", "{}", "data.csv"], ["sample", "{}"], ["ask", "{}", "a"], ["info", "{}"]),
        *(["impute", "{}", "data.csv"], ["report", "{}", "data.csv"]),
    ],
)
def test_bad_model_files(rnade, folder, command):
    def run(name):
        return error(rnade(*(word.format(name) for word in command)))

    assert run("nowhere.rnade") == "There is no file nowhere.rnade."
    assert "data.csv is not an rnade model file" in run("data.csv")
    (folder / "cut.rnade").write_bytes((folder / "m.rnade").read_bytes()[:-100])
    assert "cut.rnade is damaged or cut short" in run("cut.rnade")


# ------------------------------------------------------------------ report


def test_report(rnade, folder):
    code, out, err = rnade("report", "m.rnade", "data.csv", "-o", "page.html")
    assert code == 0
    assert "RNADE learned how 3 columns vary together from 120 rows of data.csv." in out
    assert err == "rnade: wrote page.html\n"
    page = (folder / "page.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "judged by 12 held-out rows" in page
    assert "exists already" in error(rnade("report", "m.rnade", "data.csv", "-o", "page.html"))
    assert rnade("report", "m.rnade", "data.csv", "-o", "page.html", "--force", "-q") == (
        0,
        "",
        "",
    )
    assert (folder / "page.html").read_text() == page  # the same seed, the same page


def test_report_is_called_report(rnade, folder):
    succeeded(rnade("report", "m.rnade", "data.csv"))
    assert (folder / "report.html").exists()


def test_report_as_json(rnade, folder):
    found = told(rnade("report", "m.rnade", "data.csv", "--json"))
    assert not (folder / "report.html").exists()
    assert found["table"]["role"] == "fitted"
    assert found["fitted"]["columns"] == ["a", "b", "c"]
    assert found["scores"][0]["score"]["mean"] == pytest.approx(
        load("m.rnade").held_out_score().mean
    )
    both = told(rnade("report", "m.rnade", "data.csv", "--json", "-o", "page.html"))
    assert both == found
    assert (folder / "page.html").exists()


def test_report_tells_what_fit_left_out(rnade, folder):
    rng = np.random.default_rng(0)
    lines = [f"{rng.normal()},{rng.normal() if i else ''},word,7" for i in range(60)]
    (folder / "t.csv").write_text("a,b,c,d\n" + "\n".join(lines))
    succeeded(rnade("fit", "t.csv", "-q", "--missing", "drop", "--kind", "real", *QUICK))
    succeeded(rnade("report", "t.rnade", "t.csv", "--missing", "drop"))
    page = (folder / "report.html").read_text()
    assert "c: text (such as &#x27;word&#x27;); d: constant (7 in every row)" in page
    assert "1 row with a missing cell" in page
    found = told(rnade("report", "t.rnade", "t.csv", "--missing", "drop", "--json"))
    assert found["fitted"]["source"] == "t.csv"
    assert found["fitted"]["dropped_rows"] == found["table"]["dropped_rows"] == 1
    # The first row of the file was dropped: rows are counted in the file.
    assert min(row["row"] for row in found["oddness"]["rows"]) >= 2


def test_report_of_another_table(rnade):
    write_table(make_columns(n=40, seed=5), "other.csv")
    found = told(rnade("report", "bare.rnade", "other.csv", "--json"))
    assert found["table"]["role"] == "other"
    assert found["table"]["n_judged"] == 40
    write_table({"a": [1.0]}, "p.csv")
    assert "no columns 'b', 'c'" in error(rnade("report", "m.rnade", "p.csv"))


# ------------------------------------------------------------------ how it ends


def test_version(rnade):
    assert succeeded(rnade("--version")) == f"rnade {__version__}\n"


def test_unknown_command(rnade):
    assert "No such command 'ftt'" in error(rnade("ftt"))


def test_faults_of_ours_are_told_from_bad_input(rnade, monkeypatch):
    def broken(*_, **__):
        raise KeyError("lost")

    monkeypatch.setattr(RNADE, "sample_values", broken)
    code, out, err = rnade("sample", "m.rnade")
    assert (code, out) == (1, "")
    assert err == ("rnade: error: KeyError: 'lost' (a bug in rnade; try rnade --debug ...)\n")


@pytest.mark.parametrize("how", ["option", "environment"])
def test_debugging_shows_the_traceback(rnade, monkeypatch, how):
    arguments = ["info", "nowhere.rnade"]
    if how == "option":
        arguments.insert(0, "--debug")
    else:
        monkeypatch.setenv("RNADE_DEBUG", "1")
    with pytest.raises(FileNotFoundError):
        rnade(*arguments)


def test_interrupted_fit(rnade, folder, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupted)  # in the middle of saving
    code, out, err = rnade("fit", "data.csv", *QUICK)
    assert (code, out, err) == (130, "", "rnade: interrupted\n")
    assert sorted(os.listdir(folder)) == ["bare.rnade", "data.csv", "m.rnade"]


COMMAND = [sys.executable, "-m", "rnade"]


def test_interrupt_signal(folder):
    """Ctrl-C in the middle of training, in a process of its own that reads standard input."""
    rows = "".join(f"{i % 7},{np.sin(i)}\n" for i in range(100))
    process = subprocess.Popen(
        [*COMMAND, "fit", "-", "--kind", "real", "--epochs", "1000000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stderr
    process.stdin.write("n,x\n" + rows)
    process.stdin.close()
    process.stdin = None  # communicate would flush it
    # Training begins right after the warning about the whole numbers in n.
    assert "rnade: warning:" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (out, err) == ("", "rnade: interrupted\n")
    assert sorted(os.listdir(folder)) == ["bare.rnade", "data.csv", "m.rnade"]


# A command that writes far more than a pipe holds, without the seconds that torch takes to load.
WRITER = """
import sys
import typer
from rnade.cli.terminal import run
from rnade.tables import write_table

app = typer.Typer()

@app.command()
def write():
    write_table({"a": list(range(300_000))})
    raise RuntimeError("went on after its reader had left")

sys.exit(run(app, []))
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_closed_pipe_is_no_error(unbuffered):
    """As in ``rnade sample ... | head -1``."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert process.stdout
    assert process.stdout.readline() == b"a\n"
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")


def test_reader_that_left_before_the_last_line():
    """What is printed waits in a buffer: the flush at the end must not complain either."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    program = WRITER.replace("write_table({", "print({").replace("raise", "return;")
    done = subprocess.run(
        [sys.executable, "-c", program.replace("300_000", "3")],
        stdout=write_end,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")


def test_errors_as_a_process(folder):
    done = subprocess.run(
        [*COMMAND, "sample", "m.rnade", "-o", "m.rnade"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "rnade: error: Expected a file name ending in .csv, .parquet or .feather; got 'm.rnade'.\n"
    )


# What each command may load. The last case shows that the others can fail.
@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [
        (["--help"], set()),
        (["fit", "--help"], set()),
        (["score", "--help"], set()),
        (["ask", "--help"], set()),
        (["impute", "--help"], set()),
        (["report", "--help"], set()),
        (["explore", "--help"], set()),
        (["reproduce", "--help"], set()),
        (["info", "m.rnade"], {"numpy", "pyarrow"}),
        (["outliers", "--help"], set()),
        (["compare", "--help"], set()),
        (["score", "m.rnade", "data.csv"], {"numpy", "torch", "sklearn", "pyarrow", "numba"}),
    ],
)
def test_commands_load_only_what_they_need(folder, arguments, loaded):
    program = (
        f"import sys; from rnade.cli import main; main({arguments!r});"
        " print('loaded', *{'torch', 'sklearn', 'numba', 'pyarrow', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()[-1].split()[1:]) == loaded
