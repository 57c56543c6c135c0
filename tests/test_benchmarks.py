"""The benchmark's own instruments: what they measure is known here by other means."""

import ctypes
import importlib.util
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy import stats

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import (  # noqa: E402
    common_values,
    measure,
    mixed,
    products,
    record,
    study,
    table1_page,
    tables,
)
from benchmarks.measure import Timing  # noqa: E402
from benchmarks.pages import put  # noqa: E402
from benchmarks.providers import Shape  # noqa: E402

from rnade.backends.cpu import products as kernels  # noqa: E402
from rnade.backends.cpu import threads as workers  # noqa: E402
from rnade.reproduce.table1.ensembles import CANDIDATES, WITH_KERNELS  # noqa: E402
from rnade.reproduce.table1.folds import FoldRows  # noqa: E402


def test_timing_summarises_repeated_runs():
    timing = Timing.of([5.0, 1.0, 2.0, 3.0, 4.0])
    assert timing == Timing(fastest=1.0, low=2.0, median=3.0, high=5.0)
    assert timing.times(10).median == 30.0


def test_providers_run_in_turn_and_a_slow_one_only_once():
    calls = []
    works = {
        "fast": lambda: calls.append("fast"),
        "slow": lambda: (calls.append("slow"), time.sleep(0.2)),
    }
    timings = measure.time_in_turn(works, 0.1)
    assert calls.count("slow") == 2  # to warm up, and once
    assert calls.count("fast") > 3
    assert timings["slow"].fastest >= 0.2
    assert timings["fast"].fastest < timings["slow"].fastest


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_peak_memory_counts_what_a_call_takes_for_a_while():
    program = (
        "from benchmarks.measure import peak_memory\n"
        "import numpy as np\n"
        "def work():\n"
        "    np.ones(40_000_000 // 8).sum()\n"
        "print(peak_memory(work, 'cpu'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) == pytest.approx(40e6, rel=0.1)


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs Linux")
def test_work_of_other_processes_is_seen_and_our_own_is_not(monkeypatch):
    # Seconds elapsed, of everybody, and of our own, before and after.
    readings = iter([(10.0, 100.0, 7.0), (14.0, 108.0, 9.0)])
    real = measure.OtherLoad._seconds()
    assert real[1] >= 0
    monkeypatch.setattr(measure.OtherLoad, "_seconds", staticmethod(lambda: next(readings)))
    assert measure.OtherLoad().cores() == pytest.approx((8 - 2) / 4)


def test_a_section_replaces_its_own_part_of_the_record(tmp_path):
    path = tmp_path / "new" / "cpu.json"
    row = record.timed_row("work", "cpu", Shape(2, 3, 4), 5, Timing(1.0, 2.0, 3.0, 4.0), more=6)
    record.store(path, {"first": {"rows": []}, "second": {"rows": [row]}})
    found = record.store(path, {"first": {"rows": [row, row]}})
    assert found == record.load(path)
    assert len(record.rows(found, "work")) == 3
    assert record.rows(found, "work")[0]["seconds"]["median"] == 3.0
    assert record.rows(found, "other") == []


def test_operations_and_traffic_are_those_of_the_tensors():
    shape = Shape(D=3, H=5, K=2)
    sizes = {"W": 15, "c": 5, "rho": 3, "V": 3 * 5 * 6, "b": 18}
    assert shape.traffic(7, 2) == 4 * (7 * 3 + 2 * sum(sizes.values()))
    assert shape.operations(7, 3) == 3 * 2 * 7 * sizes["V"]


@pytest.mark.parametrize("way", ["blas", "narrow"])
@pytest.mark.parametrize("rows", [1, 25, 200], ids=lambda n: f"{n} rows")
def test_products_alone_do_the_operations_of_a_step_and_no_others(rows, way, monkeypatch):
    done = []

    @ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 12)
    def narrow(*arguments):
        m, n, k = arguments[7:10]
        done.append(2 * m * n * k)

    @ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)
    def gemm(*arguments):
        m, n, k = (ctypes.c_int.from_address(at).value for at in arguments[2:5])
        done.append(2 * m * n * k)

    of_gemm, of_narrow = (ctypes.cast(f, ctypes.c_void_p).value for f in (gemm, narrow))
    monkeypatch.setattr(workers, "gemm_address", lambda kind: of_gemm)
    monkeypatch.setattr(kernels, "narrow_address", lambda kind: of_narrow)
    monkeypatch.setattr(kernels, "narrow_pays", lambda n_outputs: way == "narrow")
    monkeypatch.setattr(products, "kernel_threads", lambda: 1)
    shape = Shape(5, 512, 7)
    alone = products.products_alone(shape)
    alone.step(torch.zeros(rows, 5))
    assert sum(done) == shape.operations(rows, 3)
    done.clear()
    alone.density(torch.zeros(rows, 5))
    assert sum(done) == shape.operations(rows, 1) * 32 / 21  # V padded to whole vectors


def test_the_pages_tables_are_those_of_the_records():
    """No figure is typed by hand: python -m benchmarks.tables writes them."""
    page = tables.PAGE.read_text()
    assert tables.with_tables(page) == page
    assert "<!-- cpu table -->\n" in page


def test_gpu_records_have_the_form_that_the_tables_take():
    rows = [
        record.timed_row(
            "log density", "gpu exact", Shape(2, 3, 4), 5, Timing(0.001, 2.0, 3.0, 4.0),
            share_of_product_rate=0.5, share_of_copy_rate=0.25, error_nats=1e-5,
        )
    ]  # fmt: skip
    facts = {
        "hardware": {"gpu": "a GPU"},
        "versions": {"torch": "2"},
        "time": "2000-01-01T00:00",
        "limits": {"product_flops": 1e12, "copy_bytes_per_second": 1e9},
    }
    deep = record.timed_row(
        "training step with update, two layers", "gpu bf16", Shape(2, 3, 4), 5,
        Timing(0.001, 2.0, 3.0, 4.0), layers=2, flops=6e12, share_of_bf16_rate=0.5,
    )  # fmt: skip
    text = tables.gpu_table({"kernels": facts | {"rows": rows}, "deep": facts | {"rows": [deep]}})
    assert "| two layers | 2 | 5 | gpu bf16 | 3,000 | 6 | 50% |" in text
    assert "| log density, D=2 H=3 K=4, 5 rows | gpu exact | 1 | 3,000 |  | 50% | 25% |" in text
    assert "1.0e-05" in text


def test_the_gpu_benchmark_can_be_imported_without_a_gpu():
    if importlib.util.find_spec("triton") is None:
        pytest.skip("needs Triton")
    program = "import benchmarks.bench_gpu_kernels"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_scores_are_split_by_common_values():
    """Of two columns one has common values only and the other none: each has its own terms."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.integers(0, 3, 200), rng.normal(size=200)]).astype(float)
    fold = FoldRows(0, rows[:120], rows[120:160], rows[160:])
    splits = common_values.split_scores(fold, epochs=3)
    assert [split["of"] for split in splits] == [asdict(c) for c in CANDIDATES]
    for split in splits:
        assert 1 <= split["epochs"] <= 3
        # The second column is Gaussian noise: its terms come near its negative entropy, no more.
        entropy = stats.norm.entropy()
        assert -entropy - 0.5 < split["others"] < -entropy + 0.4


def test_gains_of_kernels_pair_records_of_one_fold(monkeypatch):
    """Whatever the order of the records; a fold that only one model has is left out."""

    def record(model, fold, n_twins, test, without_twins):
        job = {"dataset": "boston", "model": model, "fold": fold}
        own = {"n_test": 10, "n_twins": n_twins, "test": test, "without_twins": without_twins}
        return {"job": job, "result": own}

    records = [
        record("rnade-ensemble", 0, 5, 1.0, 1.0),
        record("rnade-ensemble", 1, 10, 2.0, None),  # every row has a twin
        record(WITH_KERNELS, 1, 10, 5.0, None),
        record(WITH_KERNELS, 0, 5, 2.0, 1.5),
        record(WITH_KERNELS, 2, 0, 9.0, 9.0),
    ]
    monkeypatch.setattr(table1_page, "records_of", lambda name: dict(enumerate(records)))
    # Of 15 twins those of fold 0 gain 10 - 2.5 nats together, those of fold 1 30.
    assert table1_page.twins().splitlines()[2:] == ["| Boston housing | 75% | 2.50 | 0.50 |"]


def test_the_page_of_table1_is_that_of_its_records():
    """No figure is typed by hand: python -m benchmarks.table1_page writes them."""
    page = table1_page.PAGE.read_text()
    assert table1_page.with_blocks(page) == page
    for name in table1_page.BLOCKS:
        assert f"<!-- {name} -->" in page


def test_figures_of_mixed_tables_come_from_their_records():
    """No figure is typed by hand: python -m benchmarks.mixed writes them."""
    records = study.stored(mixed.RESULTS / "records.jsonl")
    page, shown = (mixed.RESULTS / "table.md").read_text(), mixed.DOCS.read_text()
    assert put(shown, "mixed table", page) == shown != put(shown, "mixed table", "")
    for table in mixed.TABLES:
        line = next(row for row in page.splitlines() if row.startswith(f"| {table} |"))
        for device in {r["settings"]["device"] for r in records}:
            own = [r for r in records if r["table"] == table and r["settings"]["device"] == device]
            assert sorted(r["fold"] for r in own) == [0, 1]
            mean = sum(r["log_likelihood"] for r in own) / 2
            assert f"{mean:.2f} ({max(r['fit_seconds'] for r in own):.0f} s)" in line


def test_peers_of_mixed_tables_are_read_from_their_page(tmp_path):
    page = """# Mean of folds 0 and 1

### Log-likelihood of cells

| table | folds | margins | trees |
|---|---|---:|---:|
| pbc | 0,1 | -28.82 | **-27.91** |

### Other
"""
    (tmp_path / "README.md").write_text(page)
    found = mixed.peers(tmp_path, "Mean of folds 0 and 1", "Log-likelihood")
    assert found == {"pbc": {"margins": "-28.82", "trees": "**-27.91**"}}


def test_log_densities_of_real_columns_are_standardised():
    train = pa.table({"x": [1.0, 3.0, 5.0], "k": [1, 2, 3]})
    test = pa.table({"x": [2.0, None, 0.0], "k": [1, 2, 3]})
    real = {"name": "x", "kind": "zero-inflated", "atoms": [0]}
    columns = [real, {"name": "k", "kind": "integer"}]
    found = mixed.standardised(train, test, {"columns": columns})
    np.testing.assert_allclose(found, [np.log(np.std([1, 3, 5])), 0, 0])
