"""The command line over data sets of several files."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rnade import RNADE, load
from rnade.cli.fit import default_output
from rnade.estimators import streaming

QUICK = ["--epochs", 2, "--batches-per-epoch", 5, "--random-state", 0, "--n-hidden", 4]


def make_table(n, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    return pa.table(
        {"key": [f"k{seed}-{i}" for i in range(n)], "a": a, "b": a + 0.1 * rng.normal(size=n)}
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for i in range(3):
        pq.write_table(
            make_table(4000 + i, i), tmp_path / "in" / f"p{i}.parquet", row_group_size=1500
        )
    return tmp_path


@pytest.fixture
def model(folder, rnade):
    assert rnade("fit", "in", "-o", "m.rnade", "-q", *QUICK)[0] == 0
    return folder / "m.rnade"


def test_fit_takes_patterns_and_folders(folder, rnade):
    code, out, err = rnade("fit", "in/*.parquet", "--json", *QUICK)
    assert (code, json.loads(out)["n_rows"]) == (0, 12_003), err
    assert json.loads(out)["columns"] == ["a", "b"]
    assert "looks like an id" in json.loads(out)["left_out"]["key"]
    assert (folder / "in.rnade").exists()
    assert default_output("in").name == default_output("in/p?.parquet").name == "in.rnade"
    whole = RNADE(epochs=2, batches_per_epoch=5, random_state=0, n_hidden=4).fit("in")
    assert load("in.rnade").held_out_score() == whole.held_out_score()


def test_fit_streams_what_does_not_fit(folder, rnade, monkeypatch):
    monkeypatch.setattr(streaming, "IN_MEMORY", 10**9)
    code, _, err = rnade("fit", "in/*.parquet", "--memory", "2GB", *QUICK, "--exclude", "b")
    assert code == 0, err
    assert "streamed 3 files; quantiles and atoms are those of a sample" in err
    model = load("in.rnade")
    assert model.n_rows_ == 12_003
    assert list(model.feature_names_in_) == ["a"]
    assert "streamed from 3 files with 9 row groups" in rnade("info", "in.rnade")[1]
    pq.write_table(make_table(20_000), "one.parquet")
    code, _, err = rnade("fit", "one.parquet", "--memory", "2GB", *QUICK, "--columns", "a")
    assert code == 0, err
    assert "streamed 1 file;" in err
    assert load("one.rnade").data_["files"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weight", "a"], "--weight is for one file that is read at once"),
        (["--missing", "drop"], "--missing drop is for one file that is read at once"),
        (["--search"], "Several files, and those larger than --memory, are for"),
        (
            ["--model", "mog"],
            "Several files, and those larger than --memory, are for --model rnade",
        ),
        (["--columns", "c"], "has no column 'c'"),
        (["--memory", "few"], "amount of memory such as '2GB'"),
    ],
)
def test_fit_refuses(folder, rnade, arguments, message):
    code, _, err = rnade("fit", "in/*.parquet", *arguments, *QUICK[:4])
    assert code == 2
    assert message in err
    assert not (folder / "in.rnade").exists()


def test_fit_names_a_bad_file(folder, rnade):
    pq.write_table(make_table(10).drop_columns("b"), "in/p9.parquet")
    code, _, err = rnade("fit", "in/*.parquet", *QUICK)
    assert code == 2
    assert "in/p9.parquet has no column 'b', which in/p0.parquet has" in err


# ------------------------------------------------------------------ scores


def test_score_table_is_judge_with_columns(model):
    estimator, table = load(model), make_table(300, 9)
    found = estimator.score_table(table)
    judged = estimator.judge(table)
    assert found.column_names == ["key", "a", "b", "log_density", "p_value"]
    np.testing.assert_array_equal(found["log_density"], judged.scores)
    np.testing.assert_array_equal(found["p_value"], judged.p_values)
    again = pickle.loads(pickle.dumps(estimator))
    one = again.score_table(table.to_batches()[0], keep=["key"])
    assert one.column_names == ["key", "log_density", "p_value"]
    assert one["p_value"].equals(found["p_value"])
    assert estimator.score_table(table.slice(0, 0)).schema == found.schema
    with pytest.raises(ValueError, match="has a column 'log_density' already"):
        estimator.score_table(found)
    with pytest.raises(TypeError, match="Expected a pyarrow Table or RecordBatch; got dict"):
        estimator.score_table({})


def test_score_writes_a_file_for_each(model, rnade):
    code, _, err = rnade("score", model, "in/*.parquet", "-o", "out/")
    assert code == 0, err
    assert "wrote 12003 rows to 3 files in out/" in err
    estimator = load(model)
    for i in range(3):
        table = pq.read_table(f"in/p{i}.parquet")
        found = pq.read_table(f"out/p{i}.parquet")
        assert found.select(table.column_names).equals(table)
        # Tables of other sizes are scored by the same numbers, but for the last bits.
        np.testing.assert_allclose(found["log_density"], estimator.judge(table).scores, rtol=1e-9)
    assert sorted(os.listdir("out")) == ["p0.parquet", "p1.parquet", "p2.parquet"]


def test_score_goes_on_where_it_was(model, rnade):
    data = bytearray(Path("in/p1.parquet").read_bytes())
    good = bytes(data)
    chunk = pq.ParquetFile("in/p1.parquet").metadata.row_group(1).column(1)
    data[chunk.data_page_offset : chunk.data_page_offset + 100] = bytes(100)
    Path("in/p1.parquet").write_bytes(data)
    code, _, err = rnade("score", model, "in/*.parquet", "-o", "out/", "--id", "key")
    assert code == 2
    assert "p1.parquet, row group 1 cannot be read" in err
    assert "what is complete in out/ is kept; run again to go on" in err
    assert os.listdir("out") == ["p0.parquet"]
    Path("in/p1.parquet").write_bytes(good)
    before = os.stat("out/p0.parquet").st_mtime_ns
    code, out, _ = rnade("score", model, "in/*.parquet", "-o", "out/", "--id", "key", "--json")
    summary = json.loads(out)["summary"]
    assert code == 0
    assert (summary["kept"], len(summary["written"])) == (["out/p0.parquet"], 2)
    assert os.stat("out/p0.parquet").st_mtime_ns == before
    code, _, err = rnade("score", model, "in/*.parquet", "-o", "out/")  # other columns
    assert code == 2
    assert "out/p0.parquet exists already, and was not made from in/p0.parquet as it is" in err
    assert rnade("score", model, "in/*.parquet", "-o", "out/", "--force")[0] == 0


def test_score_refuses(model, rnade):
    for arguments, message in (
        ([], "written to a folder: name it with -o FOLDER/"),
        (["-o", "m.rnade"], "is a file; several files are written to a folder"),
        (["-o", "out/", "--top", 3], "--top is for one file"),
        (["-o", "in"], "would be written over itself"),
    ):
        code, _, err = rnade("score", model, "in/*.parquet", *arguments)
        assert code == 2
        assert message in err


def test_impute_fills_each_file(model, rnade):
    table = pq.read_table("in/p0.parquet")
    b = table["b"].to_numpy().copy()
    b[::7] = np.nan
    holes = table.set_column(2, "b", pa.array(b, from_pandas=True))
    os.mkdir("holes")
    pq.write_table(holes, "holes/h.parquet", row_group_size=1000)
    code, _, err = rnade("impute", model, "holes", "-o", "full/")
    assert code == 0, err
    full = pq.read_table("full/h.parquet")
    assert full["b"].null_count == 0
    kept = np.arange(len(b)) % 7 > 0
    np.testing.assert_array_equal(full["b"].to_numpy()[kept], b[kept])
    wanted = load(model).impute(holes.select(["a", "b"]))["b"].to_numpy()
    np.testing.assert_allclose(full["b"], wanted, rtol=1e-6)


def test_sample_draws_into_files(model, rnade, monkeypatch):
    from rnade.cli import sample

    monkeypatch.setattr(sample, "FILE_ROWS", 1000)
    monkeypatch.setattr(sample, "GROUP_ROWS", 300)
    code, _, err = rnade("sample", model, "-n", 2500, "--seed", 3, "-o", "drawn/")
    assert code == 0, err
    assert "wrote 2500 rows to 3 files in drawn/" in err
    names = [f"drawn/part-0000{i}.parquet" for i in range(3)]
    tables = [pq.read_table(name) for name in names]
    assert [table.num_rows for table in tables] == [1000, 1000, 500]
    assert not tables[0].slice(0, 500).equals(tables[2])
    os.unlink(names[1])
    code, out, _ = rnade("sample", model, "-n", 2500, "--seed", 3, "-o", "drawn/", "--json")
    assert json.loads(out) == {"n_rows": 2500, "written": [names[1]], "kept": [names[0], names[2]]}
    assert pq.read_table(names[1]).equals(tables[1])
    a, b = (np.concatenate([table[name] for table in tables]) for name in "ab")
    assert np.corrcoef(a, b)[0, 1] > 0.2  # a model that has hardly trained
    for more in (["--seed", 4], []):
        code, _, err = rnade("sample", model, "-n", 2500, "-o", "drawn/", *more)
        assert code == 2
        assert "exists already, and is not of these draws" in err
    code, _, err = rnade("sample", model, "-n", 5, "-o", "drawn/", "--given", "a=1")
    assert "--given is for one file" in err
