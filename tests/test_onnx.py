"""ONNX files against the models they were made of, run by onnxruntime."""

import json

import numpy as np
import onnx
import pandas as pd
import pytest

from rnade import (
    FVBN,
    FVSBN,
    NADE,
    RNADE,
    Gaussian,
    MixtureOfColumns,
    MixtureOfFactorAnalyzers,
    MixtureOfGaussians,
)
from rnade.onnx import export, export_conditional, export_scores

onnxruntime = pytest.importorskip("onnxruntime")

QUICK = {"epochs": 2, "batches_per_epoch": 3, "random_state": 0}
ONE = {"ensemble": None, "n_hidden": 9, **QUICK}
REAL = {
    "rnade": RNADE(**ONE),
    "rnade-laplace": RNADE(family="laplace", activation="sigmoid", order="random", **ONE),
    "rnade-deep": RNADE(n_layers=3, order="random", **ONE),
    "rnade-average": RNADE(n_hidden=9, questions=False, **QUICK),
    "gaussian": Gaussian(),
    "mog": MixtureOfGaussians(3, random_state=0),
    "mfa": MixtureOfFactorAnalyzers(2, n_factors=2, random_state=0),
}
BINARY = {"nade": NADE(**QUICK), "fvsbn": FVSBN(**QUICK)}


def run(path, x):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(["log_density"], {"x": np.asarray(x, np.float64)})
    return found


def real_rows(n, seed=0):
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(n, 5)) @ np.random.default_rng(9).normal(size=(5, 5))
    return mixed * [1, 1e3, 1e-3, 5, 2] + 3


@pytest.mark.parametrize("name", REAL)
def test_scores_of_real_columns(name, tmp_path):
    model = REAL[name].fit(real_rows(200))
    export_scores(model, tmp_path / "m.onnx")
    X = real_rows(37, seed=1)
    X[0] *= 1e6  # far outside, too
    np.testing.assert_allclose(run(tmp_path / "m.onnx", X), model.score_samples(X), rtol=1e-11)
    np.testing.assert_allclose(
        run(tmp_path / "m.onnx", X[:1]), model.score_samples(X[:1]), rtol=1e-11
    )


def test_a_floor_on_scales_is_kept(tmp_path):
    X = np.round(real_rows(200) / [1, 1e3, 1e-3, 5, 2], 1)
    with pytest.warns(UserWarning, match="repeated values"):
        model = RNADE(columns="real", **ONE).fit(X)
    assert model.module_._floor_or_none() is not None
    export_scores(model, tmp_path / "m.onnx")
    np.testing.assert_allclose(run(tmp_path / "m.onnx", X), model.score_samples(X), rtol=1e-10)


@pytest.mark.parametrize("name", BINARY)
def test_scores_of_bits(name, tmp_path):
    X = (real_rows(200) > 3).astype(float)
    model = BINARY[name].fit(X)
    export_scores(model, tmp_path / "m.onnx")
    np.testing.assert_allclose(run(tmp_path / "m.onnx", X), model.score_samples(X), rtol=1e-11)


# -------------------------------------------------------------------- tables of any kind


def people(n=240, seed=0):
    """Every kind of column, atoms, missing cells, and columns that follow from others."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 80, n)
    trade = rng.choice(["baker", "smith", "cook"], n)
    pay = np.where(rng.random(n) < 0.3, 0.0, rng.gamma(2, 1000, n) * age / 40)
    table = pd.DataFrame(
        {
            "age": age,
            "trade": trade,
            "pay": np.where(rng.random(n) < 0.1, np.nan, pay),
            "children": rng.poisson(2, n),
            "height": rng.normal(170, 9, n),
            "since": pd.Timestamp("2001-01-01") + pd.to_timedelta(rng.integers(0, 4000, n), "D"),
            "owner": rng.random(n) < 0.4,
        }
    )
    table["all"] = table["age"] + table["children"]
    table["guild"] = np.where(rng.random(n) < 0.9, trade, "none")
    return table


@pytest.fixture(scope="module", params=["ignore", "informative"])
def fitted(request):
    return RNADE(n_hidden=16, missing=request.param, **QUICK).fit(people())


def values_of(model, table):
    values, seen = model.schema_.encode(table)
    return np.where(seen, values, np.nan)


def strange():
    """New rows, with what the fitted table does not have."""
    table = people(60, seed=1)
    table.loc[0, "age"], table.loc[1, "age"] = 200, 2
    table.loc[2, "pay"], table.loc[3, "pay"] = -5.5, 1e7
    table.loc[4, "height"] = 400.0
    table.loc[5, "trade"] = "diver"
    table.loc[6:9, ["trade", "height"]] = np.nan
    table.loc[10, "pay"] = 0.0
    return table


def test_the_table_has_links(fitted):
    assert fitted.module_.networks.n_links > 0


def test_scores_of_a_table(fitted, tmp_path):
    export_scores(fitted, tmp_path / "m.onnx")
    found = run(tmp_path / "m.onnx", values_of(fitted, strange()))
    np.testing.assert_allclose(found, fitted.score_samples(strange()), rtol=1e-10)


@pytest.mark.parametrize("column", ["age", "trade", "pay", "height", "since", "owner", "all"])
def test_one_column_given_others(fitted, column, tmp_path):
    export_conditional(fitted, column, tmp_path / "m.onnx")
    table = strange().dropna(subset=[column])
    density = fitted.conditional(column, table)
    found = run(tmp_path / "m.onnx", values_of(fitted, table))
    np.testing.assert_allclose(found, density.log_pdf(table[column]), rtol=1e-10)


def test_one_column_of_real_columns_given_some(tmp_path):
    X = pd.DataFrame(real_rows(150), columns=list("abcde"))
    model = RNADE(n_hidden=9, **QUICK).fit(X)
    assert model.questions_.gaussians is not None
    export_conditional(model, "b", tmp_path / "m.onnx")
    some = X[:20].assign(a=np.nan, e=np.nan)
    expected = model.conditional("b", some[["c", "d"]]).log_pdf(some["b"])
    np.testing.assert_allclose(run(tmp_path / "m.onnx", some), expected, rtol=1e-10)


def test_probabilities_of_levels_add_up(fitted, tmp_path):
    """To all but what is kept for levels that are new."""
    export_conditional(fitted, "trade", tmp_path / "m.onnx")
    rows = np.repeat(values_of(fitted, people(1, seed=2)), 3, axis=0)
    rows[:, 1] = range(3)
    total = np.exp(run(tmp_path / "m.onnx", rows)).sum()
    assert total == pytest.approx(1, abs=0.02)
    assert total < 1


def test_a_file_says_what_it_is(fitted, tmp_path):
    export_scores(fitted, tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    told = {p.key: p.value for p in model.metadata_props}
    columns = {c["name"]: c for c in json.loads(told["columns"])}
    assert columns["trade"]["levels"] == list(fitted.schema_.columns[1].levels)
    assert columns["age"]["kind"] == "integer"
    assert told["model"] == "RNADE"
    assert "nats" in told["output"]


def test_files_are_not_overwritten_unasked(tmp_path):
    model = Gaussian().fit(real_rows(50))
    export_scores(model, tmp_path / "m.onnx")
    with pytest.raises(FileExistsError):
        export_scores(model, tmp_path / "m.onnx")
    export_scores(model, tmp_path / "m.onnx", overwrite=True)


@pytest.mark.parametrize("model", [FVBN(**QUICK), MixtureOfColumns(2, random_state=0)])
def test_models_without_an_onnx_form_say_so(model, tmp_path):
    model.fit(people()[["age", "trade"]])
    with pytest.raises(TypeError, match="Only tables modelled by RNADE have an ONNX form"):
        export_scores(model, tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()


def test_networks_of_each_column_have_no_onnx_form(tmp_path):
    model = FVBN(n_hidden=4, **QUICK).fit(real_rows(60))
    with pytest.raises(TypeError, match="FVBNModule has no ONNX form"):
        export_scores(model, tmp_path / "m.onnx")


def test_a_graph_that_is_wrong_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(export.tied, "U_BOUND", 0.5)
    model = RNADE(**ONE).fit(real_rows(100))
    with pytest.raises(RuntimeError, match="off by .* nats, and was not written"):
        export_scores(model, tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()
