"""Banks, searches and scores on a local Ray cluster of two workers."""

import os
import warnings

import numpy as np
import pyarrow as pa
import pytest

from rnade import RNADE, RNADESearchCV
from rnade.training import Bank, engines
from rnade.training.engines import bank_engine, check_engine

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.changes_global_state,
    # Of Ray's own, which leaves sockets and processes to its end.
    pytest.mark.filterwarnings("ignore"),
]

GRID = {"learning_rate": [0.003, 0.01, 0.03], "n_components": [2, 3]}


@pytest.fixture(scope="module")
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    X[:, 1] += X[:, 0] ** 2
    return X


def make_search(**more):
    base = RNADE(epochs=9, n_hidden=8, questions=False)
    return RNADESearchCV(base, GRID, cv=2, refit=False, random_state=0, **more)


@pytest.mark.parametrize("halving", [False, True])
def test_a_search_on_ray_is_the_same(cluster, rows, halving):
    here = make_search(halving=halving).fit(rows)
    there = make_search(halving=halving, engine="ray").fit(rows)
    for name in ("mean_test_score", "mean_train_score"):
        np.testing.assert_allclose(there.cv_results_[name], here.cv_results_[name], atol=1e-4)
    assert there.best_params_ == here.best_params_


def dies_once(marker):
    """Train a part, but end the worker the first time that any comes here."""
    advanced = engines._advanced

    def task(*given):
        if not os.path.exists(marker):
            with open(marker, "w"):
                os._exit(1)
        return advanced(*given)

    return task


def test_a_worker_that_is_lost_has_its_part_done_again(cluster, rows, tmp_path, monkeypatch):
    straight = make_search(engine="ray").fit(rows)
    marker = str(tmp_path / "died")
    monkeypatch.setattr(engines, "_advanced", dies_once(marker))
    again = make_search(engine="ray").fit(rows)
    assert os.path.exists(marker)
    for name in ("mean_test_score", "mean_train_score", "mean_best_epoch"):
        np.testing.assert_array_equal(again.cv_results_[name], straight.cv_results_[name])


def test_banks_have_parts_for_all_workers_and_checkpoints(cluster, rows, tmp_path, monkeypatch):
    parts = []
    made = Bank.__init__

    def noted(self, *given, **more):
        made(self, *given, **more)
        parts.append(len(self.parts))

    monkeypatch.setattr(Bank, "__init__", noted)
    with bank_engine("ray"):
        first = make_search(checkpoint=tmp_path).fit(rows)
    assert parts == [2]
    assert len(list(tmp_path.iterdir())) == 2

    def fails(*given):
        raise AssertionError("all parts are done")

    monkeypatch.setattr(engines, "_advanced", fails)
    again = make_search(checkpoint=tmp_path, engine="ray").fit(rows)
    np.testing.assert_array_equal(
        again.cv_results_["mean_test_score"], first.cv_results_["mean_test_score"]
    )


def test_scores_of_a_ray_data_set(cluster, rows, tmp_path):
    import ray.data

    from rnade.ray import score

    table = pa.table({"id": np.arange(300), **{f"x{d}": rows[:, d] for d in range(3)}})
    model = RNADE(epochs=2, ensemble=None, columns={"id": "leave-out"}, random_state=0).fit(table)
    model.save(tmp_path / "m.rnade")
    wanted = model.score_table(table).sort_by("id")
    for given in (model, str(tmp_path / "m.rnade")):
        dataset = ray.data.from_arrow(table).repartition(3)
        scored = score(dataset, given, keep=["id"], concurrency=1)
        found = pa.concat_tables(ray.get(scored.to_arrow_refs())).sort_by("id")
        assert found["id"].equals(wanted["id"])
        np.testing.assert_allclose(found["log_density"], wanted["log_density"], rtol=1e-7)


def test_engines_have_names():
    with pytest.raises(ValueError, match="engine"):
        check_engine("spark")
    with pytest.raises(ValueError, match="engine"):
        RNADESearchCV(RNADE(epochs=1), GRID, cv=2, engine="dask").fit(np.random.rand(40, 2))


def test_without_ray_it_is_told_how_to_get_it(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'rnade\[ray\]'"):
        check_engine("ray")


def test_processes_of_rays_torch_trainer_train_one_model(cluster, rows, tmp_path):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    def fitted(config=None):
        from rnade.parallel import rank, ranks

        with ranks():
            model = RNADE(epochs=3, questions=False, random_state=0).fit(rows)
            (tmp_path / f"score{rank()}").write_text(repr(model.held_out_score().mean))

    fitted()
    alone = float((tmp_path / "score0").read_text())
    TorchTrainer(
        fitted,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path / "runs")),
    ).fit()
    scores = [float((tmp_path / f"score{rank}").read_text()) for rank in range(2)]
    assert scores[0] == scores[1] == pytest.approx(alone, abs=5e-3)
