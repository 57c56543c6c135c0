"""One model trained by several processes, as torchrun starts them."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from rnade import load, parallel
from rnade.exceptions import RankLostError
from rnade.training.part import Part

NCCL = "cpu:gloo,cuda:nccl"
# In nats: float32's rounding, as each of some hundred updates carries it on.
TOLERANCE = 2e-3

PROGRAM = textwrap.dedent("""
    import json, os, signal, sys
    import numpy as np
    from rnade import RNADE
    from rnade.estimators import base, streaming
    from rnade.parallel import rank, ranks, size
    from rnade.training import Bank, run

    streaming.IN_MEMORY, streaming.MOST_SAMPLED = 10**9, 3000
    what, folder, more = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    lost = more.pop("lost", None)
    one = run.Run.one_epoch

    def one_epoch(self, *given):
        if lost == rank() and self.epoch == 4:
            if more.get("patience"):  # the launcher is told to end
                os.kill(os.getppid(), signal.SIGTERM)
                signal.pause()
            os._exit(1)
        return one(self, *given)

    run.Run.one_epoch = one_epoch
    settings = {"epochs": 6, "batches_per_epoch": 15, "questions": False, "random_state": 0}
    settings["effort"] = "fast"  # gradients of Laplace components jump: they make much of rounding
    with ranks():
        model = RNADE(**{**settings, **more})
        if what == "table":
            rng = np.random.default_rng(0)
            X = rng.normal(size=(1500, 3))
            X[:, 1] += X[:, 0] ** 2
            model.fit(X, sample_weight=rng.uniform(0.5, 2, 1500))
        else:
            model.fit(folder)
        # Adam moves alike by gradients of any scale; the loss of a minibatch tells the scale.
        history = [row[name] for row in model.history_ for name in ("validation", "train")]
        # To files: what several processes print at once can be lost.
        found = [size(), model.held_out_score().mean, history]
        with open(os.path.join(os.environ["FOUND"], str(rank())), "w") as file:
            json.dump(found, file)
""")


def run(n, *words, check=True):
    """Give what the processes found, in the order of their ranks."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n)]
    command = [sys.executable, *(launcher if n > 1 else []), *words]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "FOUND": folder}
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, check=False, timeout=300
        )
        if not check:
            return done
        assert done.returncode == 0, done.stderr
        return [json.loads(path.read_text()) for path in sorted(Path(folder).iterdir())]


@pytest.mark.parametrize(
    ("n_gpus", "here", "gpu", "backend"),
    [(0, 1, None, "gloo"), (1, 1, 0, "gloo"), (2, 1, 1, NCCL), (8, 1, 1, NCCL)],
)
def test_each_process_has_a_gpu_or_shares_one(n_gpus, here, gpu, backend, monkeypatch):
    found = {}

    def init_process_group(backend, **more):
        found["backend"] = backend
        raise InterruptedError

    for name, value in {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "LOCAL_RANK": here}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: found.update(gpu=device))
    monkeypatch.setattr(torch.distributed, "init_process_group", init_process_group)
    with pytest.raises(InterruptedError), parallel.ranks():
        pass
    assert (found.get("gpu"), found["backend"]) == (gpu, backend)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "fit.py"
    path.write_text(PROGRAM)
    return str(path)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Data sets of real columns and of columns of any kind, in files."""
    rng = np.random.default_rng(0)
    n, folder = 24_000, tmp_path_factory.mktemp("data")
    group = rng.integers(0, 3, n)
    real = pa.table({"a": rng.normal(size=n) + group, "b": rng.normal(size=n), "c": 1.0 * group})
    real = real.set_column(2, "c", pa.array(rng.normal(size=n) + 2 * group))
    mixed = real.append_column("city", pa.array(np.array(["Oslo", "Rome", "Lima"])[group]))
    for name, table in (("real", real), ("mixed", mixed)):
        (folder / name).mkdir()
        for i in range(3):
            own = table.slice(8000 * i, 8000)
            pq.write_table(own, folder / name / f"{i}.parquet", row_group_size=2048)
    return folder


@pytest.mark.parametrize(
    ("what", "n", "more"),
    [
        ("table", 2, {}),
        ("real", 3, {"batch_size": 100}),
        ("mixed", 2, {"n_hidden": 16, "n_layers": 1}),
    ],
)
def test_processes_train_as_one(program, data, what, n, more):
    words = [program, what, str(data / what), json.dumps(more)]
    (alone,) = run(1, *words)
    together = run(n, *words)
    assert len(together) == n
    for size, score, history in together:
        assert size == n
        assert score == pytest.approx(alone[1], abs=TOLERANCE)
        assert history == pytest.approx(alone[2], abs=TOLERANCE)
    assert len({score for _, score, _ in together}) == 1


def test_a_lost_process_ends_training_and_any_number_goes_on(program, data, tmp_path):
    words = [program, "real", str(data / "real")]
    (alone,) = run(1, *words, json.dumps({}))
    more = {"checkpoint": str(tmp_path / "checkpoints"), "lost": 1}
    done = run(2, *words, json.dumps(more), check=False)
    assert done.returncode != 0
    assert "was lost" in done.stderr
    (path,) = (tmp_path / "checkpoints" / "train").iterdir()
    kept = path.read_bytes()
    for n in (1, 3):
        path.write_bytes(kept)
        for _, score, history in run(n, *words, json.dumps({**more, "lost": None})):
            assert score == pytest.approx(alone[1], abs=TOLERANCE)
            assert history == pytest.approx(alone[2], abs=TOLERANCE)


def test_the_message_of_a_loss_says_how_to_go_on(tmp_path):
    """The launcher may end the other processes before they have said so."""
    part = object.__new__(Part)
    part.checkpoint = SimpleNamespace(path=tmp_path / "c", write_kept=lambda: None)
    message = "was lost. .*c holds the last epoch .* start again, with any number of processes"
    with pytest.raises(RankLostError, match=message), part._endings_told():
        raise RankLostError("A process was lost.")


def test_a_launcher_does_not_break_off_what_is_kept_after_a_loss():
    """It ends the other processes once one is lost, which they may have found out before."""
    with parallel._told_to_end():
        with pytest.raises(RankLostError, match="ended this process"):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)  # while the checkpoint is written
    with parallel._told_to_end():
        with pytest.raises(RankLostError, match=r"was lost \(closed\)"), parallel._losses_told():
            raise RuntimeError("closed")
        os.kill(os.getpid(), signal.SIGTERM)


def test_an_error_in_one_process_is_told_by_all(program, data, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for i in range(3):
        (folder / f"{i}.parquet").write_bytes((data / "real" / f"{i}.parquet").read_bytes())
    path = folder / "1.parquet"
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(1)
    bad = bytearray(path.read_bytes())
    bad[chunk.data_page_offset : chunk.data_page_offset + 100] = bytes(100)
    path.write_bytes(bad)
    done = run(2, program, "real", str(folder), "{}", check=False)
    assert done.returncode != 0
    assert done.stderr.count("TableError") >= 2
    assert "1.parquet, row group 1 cannot be read" in done.stderr


def test_more_processes_than_shards_or_rows(program, data, tmp_path):
    pq.write_table(pq.read_table(data / "real"), tmp_path / "one.parquet")
    done = run(2, program, "real", str(tmp_path), "{}", check=False)
    assert "2 processes cannot share 1 shards of the data: write files with more" in done.stderr
    done = run(3, program, "table", "", json.dumps({"batch_size": 2}), check=False)
    assert "Minibatches of 2 rows cannot be shared by 3 processes" in done.stderr


def test_the_command_line_under_torchrun(data, tmp_path):
    words = ["-m", "rnade", "fit", str(data / "real"), "--epochs", "2", "--batches-per-epoch", "5"]
    words += ["--no-questions", "-o", str(tmp_path / "m.rnade")]
    done = run(2, *words, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("saved as") == 1
    assert load(tmp_path / "m.rnade").n_rows_ == 24_000


def test_a_launcher_that_ends_processes(program, data, tmp_path):
    """Processes that are told to end, as torchrun does, leave a checkpoint and a message."""
    more = {"checkpoint": str(tmp_path / "checkpoints"), "patience": 9, "lost": 1}
    done = run(2, program, "real", str(data / "real"), json.dumps(more), check=False)
    assert "start again, with any number of processes" in done.stderr
    assert len(list((tmp_path / "checkpoints" / "train").iterdir())) == 1
