"""RNADE fitted to files larger than the memory that it may take."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import torch

import rnade
from rnade import RNADE
from rnade.estimators import streaming
from rnade.estimators.inputs import floats, is_harmless
from rnade.exceptions import CheckpointError, TableError
from rnade.streams import Shard, deal, open_files
from rnade.training import streamed
from rnade.training.sources import ShuffledRows
from rnade.training.streamed import StreamedRows

SOME = {"batches_per_epoch": 40, "epochs": 5, "questions": False}


@pytest.fixture(autouse=True)
def little_memory(monkeypatch):
    """Nothing fits, and samples are small, so that small files are streamed."""
    monkeypatch.setattr(streaming, "IN_MEMORY", 10**9)
    monkeypatch.setattr(streaming, "MOST_SAMPLED", 3000)


def write(folder, table, n_files=3, rows=4096):
    for i in range(n_files):
        n = table.num_rows
        own = table.slice(i * n // n_files, (i + 1) * n // n_files - i * n // n_files)
        pq.write_table(own, folder / f"{i}.parquet", row_group_size=rows)
    return folder


def correlated(n, seed=0):
    """Gaussian rows, and their true mean log density."""
    rng = np.random.default_rng(seed)
    L = np.array([[1.0, 0, 0], [0.8, 0.6, 0], [-0.5, 0.5, 0.5]])
    X = rng.normal(size=(n, 3)) @ L.T * [1, 10, 0.1] + [0, 100, 5]
    entropy = 1.5 * np.log(2 * np.pi * np.e) + np.linalg.slogdet(L * [[1], [10], [0.1]])[1]
    return pa.table(dict(zip("abc", X.T, strict=True))), -entropy


def mixed(n, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, n)
    return pa.table(
        {
            "city": pa.array(np.array(["Oslo", "Rome", "Lima"])[group], mask=rng.random(n) < 0.1),
            "rain": np.where(rng.random(n) < 0.4, 0.0, rng.gamma(2.0, 1.0 + group)),
            "visits": rng.poisson(3.0 + 4 * group),
            "open": rng.random(n) < 0.3,
        }
    )


def test_real_columns_reach_the_true_density(tmp_path):
    table, truth = correlated(40_000)
    model = RNADE(batches_per_epoch=100, epochs=8, questions=False, random_state=0)
    model.fit(write(tmp_path, table))
    new, _ = correlated(20_000, seed=1)
    assert model.score(new) == pytest.approx(truth, abs=0.06)
    held_out = model.held_out_score()
    assert abs(held_out.mean - truth) < 0.06 + 4 * held_out.standard_error
    assert model.n_rows_ == model.data_["rows"] == 40_000
    assert 2900 < model.data_["sampled_rows"] < 3100
    assert model.standardiser_.mean == pytest.approx(
        [table[name].to_numpy().mean() for name in "abc"], rel=1e-12
    )
    p_values = model.pvalue(new)
    assert (p_values <= 0.05).mean() == pytest.approx(0.05, abs=0.03)


def test_streams_are_passed_over_once(tmp_path):
    """With any effort: what is held out judges, and is not trained on in the end."""
    table, _ = correlated(6000)
    settings = {"n_hidden": 8, "batches_per_epoch": 2, "epochs": 2, "questions": False}
    model = RNADE(effort="best", random_state=0, **settings).fit(write(tmp_path, table, rows=512))
    assert model.data_ is not None
    assert not hasattr(model, "retrain_history_")


def test_minibatches_come_from_all_rows_but_those_held_out(tmp_path, monkeypatch):
    table, _ = correlated(30_000)
    write(tmp_path, table)
    seen = []
    numbers = RNADE._numbers

    def noted(self, batch):
        values = numbers(self, batch)
        seen.append(values)
        return values

    monkeypatch.setattr(RNADE, "_numbers", noted)
    RNADE(epochs=1, ensemble=None, random_state=0).fit(tmp_path)
    found = np.unique(np.concatenate(seen), axis=0)
    files = rnade.streams.open_files(tmp_path)
    held_out = np.concatenate([files.held_out(group, 0.1) for group in files.groups])
    wanted = np.column_stack([table[name] for name in "abc"])[~held_out]
    np.testing.assert_array_equal(found, np.unique(wanted, axis=0))


def test_a_fit_ends_when_nothing_is_being_read(tmp_path, monkeypatch):
    write(tmp_path, correlated(20_000)[0], rows=1024)
    made, begin = [], Shard.__init__

    def noted(self, *given, **more):
        made.append(self)
        begin(self, *given, **more)

    monkeypatch.setattr(Shard, "__init__", noted)
    RNADE(batches_per_epoch=5, epochs=2, ensemble=None, random_state=0).fit(tmp_path)
    assert len(made) > 2
    assert all(shard._ahead is None and shard._buffer is None for shard in made)


@pytest.mark.parametrize("missing", [False, True])
def test_columns_of_float32_train_to_the_same_numbers_in_half_the_memory(
    missing, tmp_path, monkeypatch
):
    table, _ = correlated(20_000)
    kinds, numbers, found = set(), RNADE._numbers, []

    def noted(self, batch):
        values = numbers(self, batch)
        kinds.add((str(batch.schema.types[0]), values.dtype.name))
        return values

    monkeypatch.setattr(RNADE, "_numbers", noted)
    if missing:
        holes = pa.array(table["b"].to_numpy(), mask=np.arange(20_000) % 7 == 0)
        table = table.set_column(1, "b", holes)
    table = table.cast(pa.schema([(name, pa.float32()) for name in "abc"]))
    for kind in (pa.float32(), pa.float64()):
        folder = tmp_path / str(kind)
        folder.mkdir()
        write(folder, table.cast(pa.schema([(name, kind) for name in "abc"])))
        model = RNADE(batches_per_epoch=20, epochs=2, ensemble=None, random_state=0).fit(folder)
        found.append(model.score_samples(table.slice(0, 100)))
    assert kinds == {("float", "float32"), ("double", "float64")}
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def vanished(self, n):
    raise TableError("The file has vanished.")


def test_minibatches_do_not_depend_on_how_many_are_drawn_at_once(tmp_path, monkeypatch):
    """As long as they are no more than are drawn ahead; beyond, noise falls otherwise."""
    monkeypatch.setitem(streamed.DRAWN_AHEAD, "cpu", 1100)
    files = open_files(write(tmp_path, correlated(10_000)[0]))
    width = torch.tensor([0.0, 1.0, 0.1]).double()
    like = ShuffledRows(torch.zeros(5, 3).double(), 0, noise_width=width)

    def numbers(table):
        return np.column_stack([column.to_numpy() for column in table.columns])

    def source():
        settings = {"held_out": 0.1, "convert": numbers, "columns": None, "capacity": 700}
        dealt = enumerate(deal(files.groups, 3))
        shards = [Shard(files, groups, seed=[0, s], **settings) for s, groups in dealt]
        return StreamedRows(shards, "0", like, np.array([0.0, 100, 5]), np.array([1.0, 10, 0.1]))

    one, other = source(), source()
    singly = torch.cat([one.draw(1, 100).x for _ in range(60)])
    drawn = []
    for n in (4, 11, 1, 7, 11, 2, 9, 10, 5):
        drawn.append(other.draw(n, 100).x)
        again = source()
        again.restore(other.state())
        assert all(shard._ahead is None for shard in again._shards)  # nothing is read for it
        assert torch.equal(again.draw(3, 100).x, other.fork().draw(3, 100).x)
    assert torch.equal(torch.cat(drawn), singly)
    # A draw that fails leaves the place where it was.
    state = other.state()
    with monkeypatch.context() as patch:
        patch.setattr(Shard, "take", vanished)
        with pytest.raises(TableError):
            other.draw(12, 100)
    assert all(torch.equal(t, state[name]) for name, t in other.state().items())
    # Another size goes on behind the rows that were used, not behind those drawn ahead.
    rows = torch.cat([singly.reshape(-1, 3)[:, 0], one.draw(20, 101).x.reshape(-1, 3)[:, 0]])
    assert len(rows.unique()) == len(rows)


def test_tables_of_any_kind_are_as_good_as_in_memory(tmp_path):
    table, new = mixed(30_000), mixed(4000, seed=1)
    settings = {"n_hidden": 64, "n_layers": 2, "batches_per_epoch": 60, "random_state": 0}
    write(tmp_path, table)
    streamed = RNADE(epochs=10, **settings).fit(tmp_path)
    in_memory = RNADE(epochs=10, ensemble=None, **settings).fit(table)
    assert [c.kind for c in streamed.schema_.columns] == [
        "category",
        "real",
        "integer",
        "category",
    ]
    assert streamed.score(new) == pytest.approx(in_memory.score(new), abs=0.1)
    assert streamed.sample(10, 0).schema == table.schema
    assert streamed.conditional("visits", {"city": "Oslo"}).mean() == pytest.approx(3.0, abs=0.5)


def test_what_occurs_once_is_known(tmp_path):
    table = mixed(30_000)
    cities = table["city"].to_pylist()
    cities[17_321] = "Bergen"
    table = table.set_column(0, "city", pa.array(cities))
    flags = np.zeros(30_000, dtype=bool)
    flags[3] = True
    table = table.append_column("once", pa.array(flags))
    model = RNADE(n_hidden=16, n_layers=1, **SOME).fit(write(tmp_path, table))
    assert "Bergen" in model.schema_.columns[0].levels
    assert "once" in model.schema_.names
    visits = table["visits"].to_numpy()
    place = model.schema_.names.index("visits")
    assert model.fitted_rows_.high[place] == visits.max()


def test_all_ways_to_name_the_files_are_the_same(tmp_path):
    write(tmp_path, correlated(20_000)[0])
    sources = [
        tmp_path,
        str(tmp_path / "*.parquet"),
        sorted(tmp_path.glob("*.parquet")),
        ds.dataset(tmp_path),
    ]
    scores = [
        RNADE(ensemble=None, random_state=0, **SOME).fit(source).held_out_score().mean
        for source in sources
    ]
    assert len(set(scores)) == 1


def test_csv_files_are_streamed_too(tmp_path):
    table = mixed(30_000)
    for i in range(2):
        pacsv.write_csv(table.slice(15_000 * i, 15_000), tmp_path / f"{i}.csv")
    settings = {"n_hidden": 16, "n_layers": 1, "random_state": 0, **SOME}
    model, again = (RNADE(**settings).fit(tmp_path / "*.csv") for _ in range(2))
    assert model.data_["files"] == 2
    assert [c.kind for c in model.schema_.columns] == ["category", "real", "integer", "category"]
    assert model.schema_.columns[0].missing > 0
    # The same, though the Parquet files between were written to other folders.
    assert model.data_["digest"] == again.data_["digest"]
    assert model.held_out_score() == again.held_out_score()


def test_files_that_fit_are_read_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "IN_MEMORY", 400)
    table, _ = correlated(600)
    write(tmp_path, table)
    settings = {"ensemble": None, "random_state": 0, **SOME}
    from_files = RNADE(**settings).fit(tmp_path)
    assert from_files.data_ is None
    assert from_files.score(table) == RNADE(**settings).fit(table).score(table)


def test_models_of_streams_are_saved(tmp_path):
    table, _ = correlated(20_000)
    model = RNADE(random_state=0, **SOME).fit(write(tmp_path, table))
    model.save(tmp_path / "a.rnade")
    again = rnade.load(tmp_path / "a.rnade")
    assert again.data_ == model.data_
    some = table.slice(0, 100)
    np.testing.assert_array_equal(again.judge(some).p_values, model.judge(some).p_values)
    np.testing.assert_array_equal(again.score_samples(some), model.score_samples(some))


@pytest.mark.parametrize("make", [correlated, mixed])
def test_a_killed_fit_goes_on_to_the_same_numbers(make, tmp_path):
    table = make(20_000)
    write(tmp_path, table[0] if isinstance(table, tuple) else table)
    (tmp_path / "checkpoints").mkdir()
    program = textwrap.dedent("""
        import os, sys
        from rnade import RNADE
        from rnade.estimators import base, streaming
        from rnade.training import Bank, run
        streaming.IN_MEMORY, streaming.MOST_SAMPLED = 10**9, 3000
        folder, kill = sys.argv[1], sys.argv[2] == "kill"
        base.Bank = lambda *a, **k: Bank(*a, checkpoint_every=0, **k)
        one = run.Run.one_epoch
        def one_epoch(self, *a):
            if kill and self.epoch == 4:
                os._exit(9)
            return one(self, *a)
        run.Run.one_epoch = one_epoch
        model = RNADE(ensemble=None, n_hidden=16, n_layers=1, batches_per_epoch=30, epochs=6,
                      random_state=0, checkpoint=sys.argv[3] if len(sys.argv) > 3 else None)
        model.fit(folder + "/*.parquet")
        print(repr(model.held_out_score().mean))
    """)

    def run(*words):
        command = [sys.executable, "-c", program, str(tmp_path), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    straight = run("live")
    assert straight.returncode == 0, straight.stderr
    assert run("kill", str(tmp_path / "checkpoints")).returncode == 9
    resumed = run("live", str(tmp_path / "checkpoints"))
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout == straight.stdout


def test_checkpoints_are_of_one_data_set(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    table, _ = correlated(20_000)
    write(folder, table)
    settings = {
        "ensemble": None,
        "random_state": 0,
        "checkpoint": tmp_path / "checkpoints",
        **SOME,
    }
    RNADE(**settings).fit(folder)
    values = table["c"].to_numpy().copy()
    values[12_345] += 1e-6
    write(folder, table.set_column(2, "c", pa.array(values)))
    with pytest.raises(CheckpointError, match="is of another run: its rows"):
        RNADE(**settings).fit(folder)


def test_bad_input(tmp_path):
    table, _ = correlated(20_000)
    write(tmp_path, table)
    with pytest.raises(ValueError, match="Row weights are for tables in memory"):
        RNADE().fit(tmp_path, sample_weight=np.ones(20_000))
    with pytest.raises(
        ValueError, match=r"too little to stream 3 columns: expected at least \d+MB"
    ):
        RNADE(memory="100MB").fit(tmp_path)
    with pytest.raises(ValueError, match="amount of memory"):
        RNADE(memory="lots").fit(tmp_path)
    with pytest.raises(ValueError, match=r"score_fitted, fit_predict\) are for tables that fit"):
        RNADE().fit_predict(tmp_path)
    with pytest.raises(ValueError, match="retrain=True, which trains again on all rows"):
        RNADE(retrain=True).fit(tmp_path)
    few = tmp_path / "few"
    few.mkdir()
    write(few, table.slice(0, 600), n_files=1)
    with pytest.raises(ValueError, match="too few to be streamed"):
        RNADE().fit(few)
    texts = table.append_column("name", pa.array([f"n{i % 15_000}" for i in range(20_000)]))
    write(few, texts, n_files=1)
    with pytest.raises(TableError, match="Column 'name' has more levels than the 10000"):
        RNADE(columns={"name": "category"}).fit(few)


def test_a_value_that_cannot_be_trained_on_is_found_with_its_column(tmp_path):
    table, _ = correlated(20_000)
    values = table["c"].to_numpy().copy()
    values[15_000] = np.inf
    write(tmp_path, table.set_column(2, "c", pa.array(values)))
    with pytest.raises(ValueError, match="'c'"):
        RNADE(**SOME).fit(tmp_path)


def test_a_file_that_vanishes_while_training_is_named_and_training_goes_on(tmp_path, monkeypatch):
    from rnade.training import bank

    monkeypatch.setattr(
        bank.Bank.__init__,
        "__kwdefaults__",
        {**bank.Bank.__init__.__kwdefaults__, "checkpoint_every": 0},
    )
    folder = tmp_path / "data"
    folder.mkdir()
    table, _ = correlated(20_000)
    write(folder, table)
    settings = {"ensemble": None, "random_state": 0, "batches_per_epoch": 40, "epochs": 6}
    straight = RNADE(**settings).fit(folder).held_out_score().mean
    taken, one_epoch = [], rnade.training.run.Run.one_epoch

    def vanishes(self, *more):
        if self.epoch == 2 and not taken:
            taken.append((folder / "1.parquet").read_bytes())
            (folder / "1.parquet").unlink()
        return one_epoch(self, *more)

    monkeypatch.setattr(rnade.training.run.Run, "one_epoch", vanishes)
    settings["checkpoint"] = tmp_path / "checkpoints"
    with pytest.raises(TableError, match=r"1\.parquet, or it has vanished"):
        RNADE(**settings).fit(folder)
    (folder / "1.parquet").write_bytes(taken[0])
    assert RNADE(**settings).fit(folder).held_out_score().mean == straight


@pytest.mark.skipif(sys.platform != "linux", reason="limits address space as Linux counts it")
def test_memory_stays_under_the_bound(tmp_path):
    """Ten times the memory that is allowed, and the process may not have more."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2**20, 20))
    X[:, 1:] += X[:, :-1]
    table = pa.table({f"c{d}": X[:, d] for d in range(20)})
    pq.write_table(table, tmp_path / "0.parquet", use_dictionary=False, compression="none")
    n_files = 51
    for i in range(1, n_files):
        os.link(tmp_path / "0.parquet", tmp_path / f"{i}.parquet")
    assert n_files * table.nbytes >= 10 * 840e6
    program = textwrap.dedent("""
        import resource, sys
        import torch
        def taken():
            return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        allowed = taken() + 840_000_000
        resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
        from rnade import RNADE
        model = RNADE(memory="840MB", batches_per_epoch=50, epochs=3, random_state=0)
        model.fit(sys.argv[1])
        print(model.data_["rows"])
    """)
    # So that what is set aside or given back and not used is no address space.
    quiet = {
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": str(2**17),
        **dict.fromkeys(["OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"], "1"),
    }
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, **quiet},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == n_files * 2**20


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_columns_of_floats_become_a_matrix(kind):
    rng = np.random.default_rng(0)
    columns = [
        pa.chunked_array(
            [pa.array(rng.normal(size=n), kind, mask=rng.random(n) < 0.2) for n in (5, 1, 9)]
        )
        for _ in range(4)
    ]
    table = pa.table(dict(zip("abcd", columns, strict=True)))
    for own in (table, table.slice(3, 8), table.slice(4, 1), table.select(["c", "a"])):
        found = floats(own)
        assert found.dtype == kind.to_pandas_dtype()
        np.testing.assert_array_equal(found, np.column_stack([c.to_numpy() for c in own.columns]))


def test_large_values_are_told_from_too_large_ones_without_a_warning():
    for kind in (np.float32, np.float64):
        assert is_harmless(np.full((50, 2), 1e12, kind))
        for wrong in (1e31, np.inf, np.nan):
            assert not is_harmless(np.array([[1.0, wrong]], kind))
    # Its square is too large for float32: a slower look decides.
    assert not is_harmless(np.full((50, 2), 1e25, np.float32))


def test_only_columns_of_one_type_of_floats_do():
    one = pa.array([1.5])
    assert floats(pa.table({"a": one, "b": pa.array([1])})) is None
    assert floats(pa.table({"a": one, "b": one.cast(pa.float32())})) is None
    assert floats(pa.table({"a": one}).slice(1)) is None
    assert floats(pa.table({})) is None
