"""Data sets in files: row groups, held-out rows, shards and the survey."""

import datetime
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import wait
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.dataset as ds
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from rnade.exceptions import TableError
from rnade.streams import Shard, bytes_of, deal, is_data_set, open_files, survey_files
from rnade.streams.files import RUN_ROWS
from rnade.streams.spool import opened


def make_table(n, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "place": np.arange(n) + 1_000_000 * seed,
            "real": rng.normal(3, 2, n),
            "single": rng.normal(size=n).astype(np.float32),
            "text": pa.array(rng.choice(["a", "b", "c"], n), mask=rng.random(n) < 0.1),
            "yes": rng.random(n) < 0.5,
            "day": pa.array([datetime.date(2020, 1, 1 + i % 28) for i in range(n)]),
        }
    )


@pytest.fixture
def folder(tmp_path):
    for i, n in enumerate((20_000, 7_000, 13_000)):
        pq.write_table(make_table(n, i), tmp_path / f"part{i}.parquet", row_group_size=4096)
    return tmp_path


def read(folder):
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("*.parquet"))])


def test_amounts_of_memory():
    assert bytes_of("2GB") == bytes_of("2 gib") == bytes_of(2 * 1024**3) == 2**31
    assert bytes_of("1.5k") == 1536
    for wrong in ("much", "", "-1GB", 0, "1..5MB"):
        with pytest.raises(ValueError, match="amount of memory such as '2GB'"):
            bytes_of(wrong)


def test_what_is_a_data_set(tmp_path):
    pq.write_table(make_table(3), tmp_path / "a.parquet")
    assert is_data_set("a.parquet")
    assert is_data_set([tmp_path, "b"])
    assert is_data_set(ds.dataset(tmp_path))
    for other in ([[1.0, 2.0]], [], np.zeros((2, 2)), make_table(3), [1, "a"]):
        assert not is_data_set(other)


# ------------------------------------------------------------------ files


def test_files_are_found_and_read_whole(folder, monkeypatch):
    everything = read(folder)
    for source in (
        folder,
        str(folder / "*.parquet"),
        sorted(folder.glob("*.parquet")),
        ds.dataset(folder),
    ):
        files = open_files(source)
        assert files.n_rows == 40_000
        assert len(files.groups) == 5 + 2 + 4
        assert files.read().equals(everything)
    monkeypatch.chdir(folder)
    assert open_files("part1.parquet").read().equals(pq.read_table("part1.parquet"))


def test_a_row_group_can_be_entered_anywhere(folder):
    files = open_files(folder)
    group = files.groups[2]
    whole = pa.concat_tables(files.batches(group, ["real"]))
    for skip in (0, 1, 4095):
        assert pa.concat_tables(files.batches(group, ["real"], skip)).equals(whole.slice(skip))


def test_columns_come_in_one_order_whatever_their_order_in_the_files(tmp_path):
    table = pa.table({"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5.0, 6.0]})
    pq.write_table(table, tmp_path / "0.parquet")
    pq.write_table(table.select(["c", "a", "b"]), tmp_path / "1.parquet")
    files = open_files(tmp_path)
    assert files.read().equals(pa.concat_tables([table, table]))
    for group in files.groups:
        (found,) = files.batches(group, ["b", "a"])
        assert found.equals(table.select(["b", "a"]))


def test_columns_of_one_name_are_refused(tmp_path):
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    pq.write_table(table, tmp_path / "0.parquet")
    wrong = r"0\.parquet has more than one column called 'a': rename the duplicates\."
    with pytest.raises(TableError, match=wrong):
        open_files(tmp_path)


def test_partitions_are_columns(tmp_path):
    table = make_table(2000).append_column("year", pa.array([2000, 2001] * 1000, pa.int32()))
    ds.write_dataset(
        table,
        tmp_path,
        format="parquet",
        partitioning=ds.partitioning(pa.schema([("year", pa.int32())]), flavor="hive"),
    )
    dataset = ds.dataset(tmp_path, partitioning="hive")
    files = open_files(dataset)
    assert sorted(files.read()["year"].to_pylist()) == sorted(table["year"].to_pylist())
    group = files.groups[0]
    assert next(iter(files.batches(group, ["year"]))).column_names == ["year"]


@pytest.mark.parametrize("kind", ["filter", "csv", "csv.gz", "feather", "stream"])
def test_what_is_no_parquet_is_written_as_such(kind, tmp_path):
    table = make_table(3000)
    if kind == "filter":
        pq.write_table(table, tmp_path / "a.parquet")
        source = ds.dataset(tmp_path).filter(pc.field("place") >= 1000)
        table = table.slice(1000)
    elif kind.startswith("csv"):
        source = tmp_path / f"a.{kind}"
        with pa.output_stream(source, compression="detect") as file:
            pacsv.write_csv(table, file)
        table = table.set_column(2, "single", table["single"].cast(pa.float64()))
    elif kind == "feather":
        source = tmp_path / "a.feather"
        feather.write_feather(table, source)
    else:
        source = tmp_path / "a.arrow"
        with pa.ipc.new_stream(source, table.schema) as file:
            file.write_table(table)
    with opened(source) as files:
        found = files.read()
        assert found.schema.names == table.schema.names
        for name in table.column_names:
            mine, theirs = found[name].combine_chunks(), table[name].combine_chunks()
            if name == "single":
                np.testing.assert_allclose(mine, theirs, rtol=1e-6)
            else:
                assert mine.equals(theirs), name


def test_types_of_a_csv_file_that_change_late(tmp_path):
    path = tmp_path / "late.csv"
    lines = [f"{i},{i},{i}.5" for i in range(400_000)] + ["7,1.25,-", "8,2,word"]
    path.write_text("\n".join(["whole,mostly whole,mostly real", *lines]) + "\n")
    with opened(path) as files:
        kinds = {field.name: field.type for field in files.schema}
        assert kinds == {
            "whole": pa.int64(),
            "mostly whole": pa.float64(),
            "mostly real": pa.string(),
        }
        last = files.read().slice(400_000).to_pylist()
        assert last[0]["mostly whole"] == 1.25
        assert last[1]["mostly real"] == "word"


def test_errors_name_the_file(folder):
    good = folder / "part0.parquet"
    (folder / "empty.parquet").write_bytes(b"")
    with pytest.raises(TableError, match=r"empty\.parquet is empty: remove it"):
        open_files(folder)
    (folder / "empty.parquet").unlink()
    pq.write_table(make_table(0), folder / "none.parquet")
    with pytest.raises(TableError, match=r"none\.parquet has columns but no rows"):
        open_files(folder)
    (folder / "none.parquet").unlink()
    pq.write_table(make_table(5).drop_columns("real"), folder / "z.parquet")
    with pytest.raises(TableError, match=r"z\.parquet has no column 'real', which .*part0"):
        open_files(folder)
    table = make_table(5)
    pq.write_table(table.set_column(1, "real", table["place"]), folder / "z.parquet")
    with pytest.raises(
        TableError, match=r"'real' is of type int64 in .*z\.parquet and of type double"
    ):
        open_files(folder)
    pq.write_table(table.append_column("more", table["place"]), folder / "z.parquet")
    with pytest.raises(TableError, match=r"z\.parquet has a column 'more', which .*part0"):
        open_files(folder)
    (folder / "z.parquet").write_bytes(good.read_bytes()[:5000])
    with pytest.raises(TableError, match=r"z\.parquet is damaged or not a Parquet file"):
        open_files(folder)
    (folder / "z.parquet").unlink()
    with pytest.raises(TableError, match="No file matches"):
        open_files(str(folder / "*.pq"))
    with pytest.raises(TableError, match=r"There is no file .*gone\.parquet"):
        open_files(folder / "gone.parquet")
    files = open_files(folder)
    good.unlink()
    with pytest.raises(TableError, match=r"part0\.parquet, or it has vanished"):
        list(files.batches(files.groups[0]))
    pq.write_table(make_table(4096), good)
    with pytest.raises(TableError, match=r"part0\.parquet has changed since"):
        list(files.batches(files.groups[1]))


def test_a_bad_row_group_is_named(folder):
    files = open_files(folder)
    path = folder / "part1.parquet"
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(1)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset : chunk.data_page_offset + 200] = random.Random(0).randbytes(200)
    path.write_bytes(data)
    bad = next(g for g in files.groups if (g.file, g.index) == (1, 1))
    with pytest.raises(TableError, match=r"part1\.parquet, row group 1 cannot be read"):
        list(files.batches(bad))


# ------------------------------------------------------------------ held-out rows


def test_held_out_rows_are_fixed_runs_of_their_share(folder, tmp_path_factory):
    files = open_files(folder)
    found = np.concatenate([files.held_out(group, 0.3) for group in files.groups])
    runs = sum(-(-group.n_rows // RUN_ROWS) for group in files.groups)
    assert abs(found.mean() - 0.3) < 4 * np.sqrt(0.21 / runs)
    other = tmp_path_factory.mktemp("elsewhere")
    for name in ("part0", "part2"):
        (other / f"{name}.parquet").write_bytes((folder / f"{name}.parquet").read_bytes())
    fewer = open_files(other)
    np.testing.assert_array_equal(
        fewer.held_out(fewer.groups[-1], 0.3), files.held_out(files.groups[-1], 0.3)
    )


# ------------------------------------------------------------------ shards


def make_shards(files, *, n_shards=3, capacity=1000, seed=5, share=0.2):
    return [
        Shard(
            files,
            groups,
            held_out=share,
            convert=lambda table: table["place"].to_numpy()[:, None],
            columns=["place"],
            capacity=capacity,
            seed=[seed, s],
        )
        for s, groups in enumerate(deal(files.groups, n_shards))
    ]


def test_shards_have_all_training_rows_once_in_each_pass(folder):
    files = open_files(folder)
    held_out = np.concatenate([files.held_out(group, 0.2) for group in files.groups])
    places = files.read()["place"].to_numpy()
    shards = make_shards(files)
    passes = [np.concatenate([s.take(s.n_rows)[:, 0] for s in shards]) for _ in range(2)]
    for found in passes:
        np.testing.assert_array_equal(np.sort(found), np.sort(places[~held_out]))
    assert (passes[0] != passes[1]).mean() > 0.9
    sizes = [sum(group.n_rows for group in own) for own in deal(files.groups, 3)]
    assert max(sizes) - min(sizes) <= 4096


def test_shards_mix_row_groups_and_depend_on_the_seed(folder):
    files = open_files(folder)
    first = make_shards(files, n_shards=1, capacity=9000)[0].take(9000)[:, 0]
    assert len({place // 4096 for place in first[:200]}) > 1
    assert abs(np.corrcoef(np.arange(9000), first)[0, 1]) < 0.05
    other = make_shards(files, n_shards=1, capacity=9000, seed=6)[0].take(9000)[:, 0]
    assert (first != other).mean() > 0.9


@pytest.mark.parametrize("drawn", [1, 999, 1000, 12_345, 33_333, 70_001])
def test_shards_go_on_from_any_place(folder, drawn):
    files = open_files(folder)
    straight, other = (make_shards(files, n_shards=1)[0] for _ in range(2))
    straight.take(drawn)
    other.seek(drawn)
    np.testing.assert_array_equal(straight.take(2500), other.take(2500))
    assert straight.drawn == other.drawn == drawn + 2500


def test_a_shard_goes_elsewhere_while_its_next_buffer_is_being_filled(folder):
    files = open_files(folder)
    # Every buffer takes more than a row group.
    straight, other = (make_shards(files, n_shards=1, capacity=5000)[0] for _ in range(2))
    straight.take(12_345)
    plain, began = other._convert, threading.Event()

    def slowly(table):
        began.set()
        time.sleep(0.3)
        return plain(table)

    other.take(1)
    wait([other._ahead])
    other._convert = slowly
    other.take(5000)
    assert began.wait(10)
    other._convert = plain
    other.seek(12_345)
    first = other.take(1)
    time.sleep(0.4)  # what was being filled is done by now
    found = np.concatenate([first, other.take(12_499)])
    np.testing.assert_array_equal(straight.take(12_500), found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_reads_with_threads_of_its_own(folder):
    program = f"""
        import os, sys, time
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        from tests.test_streams import make_shards
        from rnade.streams import open_files

        shards = make_shards(open_files({str(folder)!r}), n_shards=6)
        for shard in shards:
            shard.take(10)
        time.sleep(0.5)  # all threads are there, and wait
        child = os.fork()
        if child == 0:
            os._exit(0 if len(shards[1].take(2500)) == 2500 else 1)
        for _ in range(300):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                sys.exit(os.waitstatus_to_exitcode(status))
            time.sleep(0.1)
        os.kill(child, 9)
        sys.exit("the child waits for ever")
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
    subprocess.run(command, check=True, capture_output=True)


def test_rows_that_cannot_be_read_ahead_are_told_when_they_are_wanted(folder):
    shard = make_shards(open_files(folder), n_shards=1)[0]
    plain, converted = shard._convert, []

    def convert(table):
        if len(converted) == 2:
            raise ValueError("Column 'real' holds inf")
        converted.append(table.num_rows)
        return plain(table)

    shard._convert = convert
    # Buffers of 1,000 rows, of which what was converted fills some.
    whole = shard.take(4000)
    assert len(whole) == 4000
    with pytest.raises(TableError, match="Column 'real' holds inf"):
        shard.take(5000)
    assert sum(converted) - 1000 < shard.drawn <= sum(converted)


def test_shards_say_which_row_group_cannot_be_taken(folder):
    files = open_files(folder)
    shard = make_shards(files)[0]

    def convert(table):
        raise ValueError("Column 'real' holds inf")

    shard._convert = convert
    with pytest.raises(
        TableError, match=r"part\d\.parquet, row group \d: Column 'real' holds inf"
    ):
        shard.take(5)


# ------------------------------------------------------------------ the survey


def test_the_survey_is_exact_where_it_says(folder):
    files, table = open_files(folder), read(folder)
    found = survey_files(files, (1500, 300), 0.2, seed=0)
    assert found.n_rows == 40_000
    for name in ("real", "single", "place"):
        x = table[name].to_numpy().astype(np.float64)
        own = found.moments[name]
        assert own.mean == pytest.approx(x.mean(), rel=1e-12, abs=1e-12)
        assert own.scale == pytest.approx(x.std(), rel=1e-12)
        assert (own.low, own.high) == (x.min(), x.max())
    assert found.missing["text"] == table["text"].null_count
    assert found.levels["text"] == {"a", "b", "c"}


def test_the_sample_is_uniform_and_has_witnesses(tmp_path):
    table = make_table(50_000)
    rare = ["usual"] * 50_000
    rare[31_234] = "rare"
    table = table.append_column("rare", pa.array(rare))
    real = table["real"].to_numpy().copy()
    real[[777, 40_001]] = [-1e6, 1e6]
    table = table.set_column(1, "real", pa.array(real))
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10_000)
    files = open_files(tmp_path)
    sample, n_held_out = survey_files(files, (2000, 500), 0.2, seed=3).sample()
    places = sample["place"].to_numpy()
    assert {777, 31_234, 40_001} <= set(places.tolist())
    assert len(set(places.tolist())) == len(places)
    assert 0 <= sample.num_rows - 2500 <= 25
    held_out = np.concatenate([files.held_out(group, 0.2) for group in files.groups])
    np.testing.assert_array_equal(
        held_out[places], np.arange(len(places)) >= len(places) - n_held_out
    )
    # Uniform over the training rows: by Kolmogorov and Smirnov, at a level of one in a million.
    training = np.sort(
        np.searchsorted(np.flatnonzero(~held_out), places[: len(places) - n_held_out])
    )
    ranks = training / (~held_out).sum()
    distance = np.abs(ranks - np.arange(len(ranks)) / len(ranks)).max()
    assert distance < 2.7 / np.sqrt(len(ranks)) + 25 / len(ranks)


def test_surveys_of_parts_merge_to_that_of_the_whole(folder):
    files = open_files(folder)
    whole = survey_files(files, (800, 200), 0.2, seed=1)
    parts = [
        survey_files(files, (800, 200), 0.2, seed=1, groups=files.groups[i::3]) for i in range(3)
    ]
    merged = parts[2]
    merged.merge(parts[0])
    merged.merge(parts[1])
    assert merged.digest == whole.digest
    assert merged.n_rows == whole.n_rows
    assert merged.missing == whole.missing
    assert merged.levels == whole.levels
    for name, own in whole.moments.items():
        assert merged.moments[name].mean == pytest.approx(own.mean, rel=1e-12)
        assert merged.moments[name].scale == pytest.approx(own.scale, rel=1e-12)
    assert merged.sample()[1] == whole.sample()[1]
    assert merged.sample()[0].equals(whole.sample()[0])


def test_the_digest_tells_data_apart(folder):
    files = open_files(folder)
    before = survey_files(files, (10, 10), 0.2, seed=0).digest
    assert survey_files(files, (20, 10), 0.5, seed=1).digest == before
    table = pq.read_table(folder / "part1.parquet")
    real = table["real"].to_numpy().copy()
    real[5000] += 1e-9
    pq.write_table(
        table.set_column(1, "real", pa.array(real)), folder / "part1.parquet", row_group_size=4096
    )
    assert survey_files(open_files(folder), (10, 10), 0.2, seed=0).digest != before


def test_columns_of_all_types_are_surveyed(tmp_path):
    n, rng = 5000, np.random.default_rng(0)
    cents = rng.integers(0, 10_000, n)
    words = rng.choice(["x", "y", "z"], n)
    table = pa.table(
        {
            "coded": pa.array(words).dictionary_encode(),
            "price": pa.array([Decimal(int(c)) / 100 for c in cents], pa.decimal128(10, 2)),
            "when": pa.array(cents, pa.timestamp("ms")),
            "time": pa.array(cents.astype(np.int32), pa.time32("ms")),
            "took": pa.array(cents, pa.duration("us")),
            "raw": pa.array([bytes([c % 256]) for c in cents]),
            "list": pa.array([[int(c)] for c in cents]),
            "none": pa.nulls(n),
        }
    )
    for i in range(2):
        pq.write_table(table.slice(2500 * i, 2500), tmp_path / f"{i}.parquet", row_group_size=900)
    files = open_files(tmp_path)
    found = survey_files(files, (500, 100), 0.2, seed=0)
    assert found.levels["coded"] == {"x", "y", "z"}
    assert found.moments["price"].mean == pytest.approx(cents.mean() / 100)
    for name in ("when", "time", "took"):
        assert found.moments[name].mean == pytest.approx(cents.mean())
    assert found.missing["none"] == n
    assert set(found.sample()[0]["coded"].to_pylist()) == {"x", "y", "z"}
    lists = table["list"].to_pylist()
    lists[1234] = [-1]
    other = table.set_column(6, "list", pa.array(lists))
    pq.write_table(other.slice(0, 2500), tmp_path / "0.parquet", row_group_size=900)
    changed = survey_files(open_files(tmp_path), (500, 100), 0.2, seed=0)
    assert changed.digest != found.digest
