"""NADE and FVSBN on frames: columns of two levels, as all tables have them."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from rnade import FVSBN, NADE, load
from rnade.backends import heads
from rnade.cli import main
from rnade.columns.partition import N_FEATURES, ColumnCells
from rnade.families import Bernoulli
from rnade.nn.table import encoded
from rnade.report import render, study
from rnade.tables import write_table

QUICK = {"epochs": 4, "random_state": 0, "device": "cpu"}
BITS = np.random.default_rng(0).integers(0, 2, (80, 5))


def frame() -> pd.DataFrame:
    """`BITS` as booleans, categories, text and numbers."""
    return pd.DataFrame(
        {
            "owner": BITS[:, 0].astype(bool),
            "grade": pd.Categorical.from_codes(BITS[:, 1], ["low", "high"], ordered=True),
            "city": np.array(["Oslo", "Rome"])[BITS[:, 2]],
            "child": BITS[:, 3],
            "share": BITS[:, 4].astype(float),
        },
        index=np.arange(80)[::-1],
    )


@pytest.fixture(scope="module")
def fitted() -> NADE:
    return NADE(**QUICK).fit(frame())


@pytest.mark.parametrize("binarize", [0.0, None])
@pytest.mark.parametrize("kind", [NADE, FVSBN])
def test_levels_of_a_frame_are_the_bits_of_an_array(kind, binarize):
    by_array = kind(**QUICK, binarize=binarize).fit(BITS)
    booleans = pd.DataFrame(BITS.astype(bool), columns=list("abcde"))
    for table in (frame(), booleans):
        model = kind(**QUICK, binarize=binarize).fit(table)
        found = model.score_samples(table)
        np.testing.assert_array_equal(found, by_array.score_samples(BITS))
        drawn = model.sample_values(9, random_state=1)
        np.testing.assert_array_equal(drawn, by_array.sample(9, random_state=1))


def test_a_bernoulli_is_a_softmax_of_two_levels():
    """Of the logits 0 and z, as heads of tables lay them out."""
    generator = torch.Generator().manual_seed(0)
    # Beyond 20 torch's softplus(z) is z, short by up to 2e-9.
    z = 8 * torch.randn(500, 1, dtype=torch.float64, generator=generator).clamp(-2.4, 2.4)
    x = (torch.rand(500, generator=generator) < 0.5).double()
    column = ColumnCells.of_levels(x.numpy(), 2, closed=True)
    logits = torch.cat([torch.zeros_like(z), z], 1)
    cells = encoded([column], x[:, None].numpy())[..., :N_FEATURES]
    found = heads.log_prob(logits, cells, heads.Layout([column], 1))[:, 0]
    # Of true and false 1e-9 is kept for anything else.
    expected = Bernoulli().log_prob(x, z) + column.log_inside
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-14)
    assert column.log_inside == pytest.approx(0, abs=2e-9)


@pytest.mark.parametrize("library", [lambda t: t, pl.from_pandas, pa.Table.from_pandas])
def test_draws_have_the_types_and_levels_of_the_frame(library, fitted):
    table = frame().astype({"grade": str}).reset_index(drop=True)
    table = library(table)
    model = NADE(**QUICK).fit(table)
    drawn = model.sample(200, random_state=0)
    assert type(drawn) is type(table)
    as_pandas = drawn if isinstance(drawn, pd.DataFrame) else drawn.to_pandas()
    given = table if isinstance(table, pd.DataFrame) else table.to_pandas()
    assert as_pandas.dtypes.equals(given.dtypes)
    for name in given:
        assert set(as_pandas[name]) == set(given[name])
    of_pandas = fitted.sample(20, random_state=0)
    assert of_pandas.dtypes.equals(frame().dtypes)
    assert of_pandas.grade.cat.ordered


def test_thresholds_are_of_numbers_alone():
    table = frame().assign(share=np.linspace(-1, 9, 80))
    model = NADE(**QUICK, binarize=4.0).fit(table)
    bits = np.column_stack([BITS[:, :3], np.zeros(80), table["share"] > 4])
    np.testing.assert_array_equal(
        model.score_samples(table), NADE(**QUICK).fit(bits).score_samples(bits)
    )
    assert set(model.sample(100, random_state=0)["share"]) == {0.0, 1.0}


def test_what_is_loaded_equals_what_was_saved(tmp_path, fitted):
    fitted.save(tmp_path / "m.rnade")
    again = load(tmp_path / "m.rnade")
    np.testing.assert_array_equal(again.score_samples(frame()), fitted.score_samples(frame()))
    pd.testing.assert_frame_equal(*(m.sample(9, random_state=1) for m in (again, fitted)))
    assert again.schema_ == fitted.schema_


def test_a_bit_that_never_changes_is_kept():
    table = frame().assign(owner=False)
    assert len(NADE(**QUICK).fit(table).schema_.columns) == 5


REFUSED = {
    "levels": ({"city": ["a", "b", "c", "d"] * 20}, r"column 'city' has 4 levels \(a, b, c, d\)"),
    "declared": (
        {"grade": pd.Categorical(["x", "y"] * 40, ["x", "y", "z"])},
        r"column 'grade' has 3 levels \(x, y, z\)",
    ),
    "one": ({"city": "Oslo"}, r"column 'city' has 1 level \(Oslo\)"),
    "dates": ({"city": datetime.date(2020, 1, 1)}, "column 'city' holds dates"),
    "missing": ({"city": [None, "Rome", "Oslo", "Rome"] * 20}, ".* row 0, column 'city'"),
    "missing numbers": ({"share": [np.nan, 0.0, 1.0, 1.0] * 20}, ".* row 0, column 'share'"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("kind", [NADE, FVSBN])
def test_what_has_not_two_levels_is_named(kind, case):
    changes, told = REFUSED[case]
    expected = (
        f"^{kind.__name__} takes complete columns of two levels; {told}.*"
        r" RNADE, FVBN and MixtureOfColumns take tables of any kind\.$"
    )
    with pytest.raises(ValueError, match=expected):
        kind().fit(frame().assign(**changes))


def test_numbers_other_than_0_and_1_need_a_threshold():
    table = frame().assign(share=np.linspace(0, 1, 80))
    expected = r"got .* in row 1, column 'share' \(78 such values\). Give binarize a threshold; RN"
    with pytest.raises(ValueError, match=expected):
        NADE(binarize=None).fit(table)


def test_levels_never_seen_are_an_error(fitted):
    expected = "column 'city' holds 'Bonn' in row 0 beside Oslo and Rome"
    with pytest.raises(ValueError, match=expected):
        fitted.score_samples(frame().assign(city="Bonn"))


def test_reports_and_the_command_line_read_levels(tmp_path, fitted, capsys):
    page = study(fitted, frame(), random_state=0)
    assert "city" in render(page)
    fitted.save(tmp_path / "m.rnade")
    write_table(pa.Table.from_pandas(frame(), preserve_index=False), tmp_path / "t.csv")
    model, data = str(tmp_path / "m.rnade"), str(tmp_path / "t.csv")
    assert main(["score", model, data, "-q"]) == 0
    rows = [line.split(",") for line in capsys.readouterr().out.splitlines()[1:]]
    np.testing.assert_allclose(
        [float(row[1]) for row in rows], fitted.score_samples(frame()), rtol=1e-6
    )
    assert main(["sample", model, "-n", "2", "--random-state", "0"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "owner,grade,city,child,share"
    assert main(["info", model]) == 0
    about = capsys.readouterr().out
    assert "  city: category (2 levels: Oslo, Rome)\n" in about
    assert "log densities: columns have two levels, each with a probability\n" in about
    assert main(["report", model, data, "-q", "-o", str(tmp_path / "r.html")]) == 0
