"""Plans, records, statistics, layout and the command ``rnade reproduce``."""

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import rnade.reproduce
from rnade.cli import main
from rnade.exceptions import DataError
from rnade.reproduce import EXPERIMENTS, get_experiment
from rnade.reproduce.binary.table import make_bank, train_bank
from rnade.reproduce.core.experiment import Choice
from rnade.reproduce.core.layout import (
    Cell,
    ResultTable,
    to_csv,
    to_html,
    to_markdown,
    with_best_bold,
)
from rnade.reproduce.core.plans import targets
from rnade.reproduce.core.runner import Job, RecordFile, pending, run_plan
from rnade.reproduce.core.statistics import best_group, paired_p_value
from rnade.reproduce.table1.columns import COLUMNS
from rnade.training import MODERN

RESULTS = Path(__file__).parent.parent / "results"
PLAN = [[Job({"fold": k}, {"seed": 0}) for k in pair] for pair in ((0, 1), (2, 3))]


def square(jobs):
    for job in jobs:
        yield job, {"value": job.key["fold"] ** 2}


@pytest.fixture
def records(tmp_path):
    return RecordFile(tmp_path / "run" / "records.jsonl")


def run(plan, execute, records):
    return list(run_plan(plan, execute, records, command="rnade reproduce test"))


def test_every_job_is_recorded_once(records):
    made = run(PLAN, square, records)
    assert [r["result"]["value"] for r in made] == [0, 1, 4, 9]
    for record in records.read().values():
        for fact in ("job", "settings", "command", "time", "revision", "hardware", "versions"):
            assert fact in record
        assert record["seconds"] >= 0
    assert run(PLAN, square, records) == []
    other = [[Job({"fold": 0}, {"seed": 1})]]
    assert len(run(other, square, records)) == 1  # other settings are another job


def test_a_failed_job_loses_nothing_and_is_run_again(records):
    def fails_at_three(jobs):
        for job, result in square(jobs):
            if job.key["fold"] == 3:
                raise RuntimeError("power cut")
            yield job, result

    with pytest.raises(RuntimeError, match="power cut"):
        run(PLAN, fails_at_three, records)
    assert [job.key["fold"] for group in pending(PLAN, records) for job in group] == [3]
    assert [r["job"]["fold"] for r in run(PLAN, square, records)] == [3]


def test_half_a_line_is_cut_off_at_any_length(records):
    """Whatever part of the last line a killed run left, the rest is kept and the run goes on."""
    run(PLAN, square, records)
    whole = records.path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in (last, last + 1, last + 40, len(whole) - 2, len(whole) - 1):
        records.path.write_bytes(whole[:cut])
        assert len(records.read()) == 3
        made = run(PLAN, square, records)
        assert [r["job"]["fold"] for r in made] == [3]
        lines = records.path.read_bytes().decode().splitlines()
        assert [json.loads(line)["job"]["fold"] for line in lines] == [0, 1, 2, 3]


def test_a_damaged_line_inside_is_told(records):
    run(PLAN, square, records)
    lines = records.path.read_text().splitlines()
    lines[1] = lines[1][:30]
    records.path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match="Line 2 of .*records.jsonl is not a record"):
        records.read()


def test_figures_that_json_cannot_hold_are_refused(records):
    with pytest.raises(ValueError, match="not JSON compliant"):
        run(PLAN, lambda jobs: ((job, {"value": float("nan")}) for job in jobs), records)


def test_a_killed_process_goes_on_where_it_was(tmp_path):
    """A run killed without warning between and inside jobs ends with each record once."""
    program = """
import sys, time
from rnade.reproduce.core.runner import Job, RecordFile, run_plan
plan = [[Job({"fold": k}, {})] for k in range(8)]
def work(jobs):
    for job in jobs:
        time.sleep(0.05)
        yield job, {"value": job.key["fold"]}
for record in run_plan(plan, work, RecordFile(sys.argv[1]), command="test"):
    print(record["job"]["fold"], flush=True)
"""
    path = tmp_path / "records.jsonl"
    seen = []
    for killed in (True, False):
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
        )
        if killed:
            seen.append(process.stdout.readline().strip())
            time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
        seen += process.communicate()[0].split()
    lines = path.read_text().splitlines()
    assert sorted(json.loads(line)["job"]["fold"] for line in lines) == list(range(8))
    assert len(seen) <= 8


def test_the_paired_test_agrees_with_scipy(seed):
    rng = np.random.default_rng(seed)
    for shift in (0.0, 0.3, 1.0):
        a, b = rng.normal(size=(2, 10)) + np.array([[shift], [0]])
        assert paired_p_value(a, b) == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-9)
    assert paired_p_value(a, a) == 1
    assert paired_p_value(a + 1, a) < 1e-9
    assert paired_p_value(np.ones(4), np.zeros(4)) == 0
    assert paired_p_value(np.ones(1), np.zeros(1)) == 1  # one fold shows nothing


def test_means_over_folds():
    scores = np.array([1.0, 2.0, 4.0])
    cell = Cell.mean_of(scores, 2.0, bold=True)
    assert cell.value == pytest.approx(7 / 3)
    assert cell.standard_error == pytest.approx(stats.sem(scores))
    assert cell.difference == pytest.approx(1 / 3)
    assert cell.bold
    assert Cell.mean_of(scores[:1]) == Cell(1.0)  # one fold has no standard error


def test_the_best_group():
    rng = np.random.default_rng(0)
    fold = rng.normal(size=10)  # folds differ much: only pairing sees the models' differences
    noise = 0.01 * rng.normal(size=(4, 10))
    scores = {
        "best": 5 * fold + noise[0] + 0.002,
        "equal": 5 * fold + noise[1],
        "worse": 5 * fold + noise[2] - 0.1,
        "uneven": 5 * fold - 0.5 + 4 * rng.normal(size=10),  # not shown to be worse
    }
    assert best_group(scores) == {"best", "equal", "uneven"}
    assert best_group({"alone": fold}) == {"alone"}


TABLE = ResultTable(
    "A <title>",
    "What it is.",
    "data set",
    ["MoG", "MoL"],
    {
        "red": {"MoG": Cell(-9.314, 0.051, -9.36, bold=True), "MoL": Cell(-9.5, None, None)},
        "white": {"MoG": Cell(published=-10.23)},
    },
)


def test_markdown():
    lines = to_markdown(TABLE).splitlines()
    assert "| red | **-9.31** ± 0.05 (-9.36, +0.05) | -9.50 |" in lines
    assert "| white | n/a (-10.23) | n/a |" in lines


def test_the_highest_of_a_column_is_marked():
    cells = {"a": {"x": Cell(1.0)}, "b": {"x": Cell(2.0, 0.1)}, "c": {}, "d": {"x": Cell()}}
    marked = with_best_bold(cells, "x")
    assert marked == cells | {"b": {"x": Cell(2.0, 0.1, bold=True)}}
    assert with_best_bold({"c": {}}, "x") == {"c": {}}


def test_csv_keeps_all_digits():
    lines = to_csv([TABLE]).splitlines()
    assert lines[0].startswith("table,row,column,value,standard_error,published,difference,bold")
    assert lines[1].startswith("A <title>,red,MoG,-9.314,0.051,-9.36,0.04")
    assert lines[1].endswith(",1")
    assert lines[4] == "A <title>,white,MoL,,,,,0"


def test_html_is_well_formed_and_escaped():
    class Reader(HTMLParser):
        def __init__(self):
            super().__init__()
            self.cells, self.open = [], []

        def handle_starttag(self, tag, attrs):
            self.open.append(tag)

        def handle_data(self, data):
            if "td" in self.open[-2:]:
                self.cells.append(data.strip())

        def handle_endtag(self, tag):
            while self.open.pop() != tag:
                pass

    reader = Reader()
    page = to_html([TABLE], "A & B")
    reader.feed(page)
    assert "A &amp; B" in page
    assert "A &lt;title&gt;" in page
    assert "-9.31" in reader.cells


def test_targets_are_the_papers():
    """The paper's claims about its own figures hold of what was typed in."""
    table1 = targets("table1")
    for dataset, row in table1["figures"].items():
        assert len(row) == 5
        assert max(row, key=row.get) in table1["bold"][dataset]
        assert "RNADE-MoG" in table1["bold"][dataset]
        mixtures = max(row["Gaussian"], row["MFA"])
        assert max(row["FVBN"], row["RNADE-MoG"], row["RNADE-MoL"]) > mixtures
    table2 = {name: row["test"] for name, row in targets("table2")["figures"].items()}
    best = table2.pop("MoG K=200 (Z&W)")
    assert best - max(table2.values()) == pytest.approx(0.7)  # "0.7 nats per patch lower"
    for row in targets("table2")["figures"].values():
        assert row["train"] > row["test"]
    table3 = {name: row["test"] for name, row in targets("table3")["figures"].items()}
    rnade = max(v for name, v in table3.items() if name.startswith("RNADE"))
    assert rnade - max(v for n, v in table3.items() if n.startswith("MoG")) == pytest.approx(12)


REPRODUCE = Path(rnade.reproduce.__file__).parent
FOLDERS = ["core", "binary", "patches", "speech", "table1"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_experiments_share_the_core_and_know_nothing_of_each_other(folder):
    assert sorted(FOLDERS) == sorted(p.parent.name for p in REPRODUCE.glob("*/__init__.py"))
    for path in (REPRODUCE / folder).glob("*.py"):
        imported = set(re.findall(r"from rnade\.reproduce\.(\w+)", path.read_text()))
        assert imported <= {"core", folder}, path


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_plans_have_no_job_twice(name):
    experiment = get_experiment(name)
    for quick in (True, False):
        jobs = [job.identity for group in experiment.plan(Choice(quick)) for job in group]
        assert len(set(jobs)) == len(jobs)
    one = Choice(True, (experiment.datasets[0],), (experiment.models[0],))
    for group in experiment.plan(one):
        for job in group:
            assert job.key["dataset"] == experiment.datasets[0]
            assert job.key["model"] == experiment.models[0]
    tables = experiment.tables(Choice(), {})  # no records: every cell is empty
    assert all(
        cell.value is None for table in tables for _, cells in table.lines() for cell in cells
    )


def test_unknown_parts_are_told():
    with pytest.raises(ValueError, match="Unknown experiment 'tabel1'.*'table1'"):
        get_experiment("tabel1")
    table1 = get_experiment("table1")
    with pytest.raises(ValueError, match="Unknown data set 'redwine'"):
        table1.plan(Choice(datasets=("redwine",)))
    with pytest.raises(ValueError, match="Unknown model 'MoG'"):
        table1.plan(Choice(models=("MoG",)))
    with pytest.raises(ValueError, match="folds must be at most 10; got 11"):
        table1.plan(Choice(folds=11))
    with pytest.raises(ValueError, match="binary has a fixed split"):
        get_experiment("binary").plan(Choice(folds=2))


@pytest.mark.parametrize("model", ["nade", "nade-tied", "fvsbn"])
def test_a_bank_of_orders_is_a_mixture(model):
    """Of independent coins every order learns the same: their entropy, and so does the mixture."""
    generator = torch.Generator().manual_seed(0)
    p = torch.tensor([0.1, 0.5, 0.8])
    train, validation, test = (
        (torch.rand(n, 3, generator=generator) < p).float() for n in (2000, 500, 5000)
    )
    settings = {"n_hidden": 4, "epochs": 20, "n_orders": 3, "seed": 0, "learning_rate": 0.01}
    result = train_bank(Job({"model": model}, settings), train, validation, test)
    entropy = -float(stats.bernoulli(p.numpy()).entropy().sum())
    for scores in result["test"]["by_order"]:
        assert scores["mean"] == pytest.approx(entropy, abs=0.05)
    mixed = result["test"]["all_orders"]
    assert mixed["mean"] == pytest.approx(entropy, abs=0.05)
    # log of a mean is at least the mean of logs
    assert mixed["mean"] >= np.mean([s["mean"] for s in result["test"]["by_order"]]) - 1e-12
    error = np.std([float(x) for x in test.mean(1)]) / np.sqrt(5000)
    assert 0 < mixed["standard_error"] < 10 * error


def test_the_first_order_is_the_files_own():
    module = make_bank("nade", 6, 4, 3, MODERN, seed=0)
    assert module.order[0].tolist() == list(range(6))
    assert len({tuple(order.tolist()) for order in module.order}) == 3


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    """Run ``rnade reproduce`` in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        capsys.readouterr()
        code = main(["reproduce", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return command


STORED = [name for name in EXPERIMENTS if (RESULTS / name / "records.jsonl").exists()]


@pytest.mark.parametrize("name", STORED)
def test_stored_tables_are_those_of_their_records(name, command, tmp_path):
    """No figure is typed by hand: the report writes the stored tables and pictures again."""
    folder = tmp_path / name
    folder.mkdir()
    shutil.copy(RESULTS / name / "records.jsonl", folder)
    tables = sorted((RESULTS / name).glob("table.*"))
    pictures = sorted((RESULTS / name).glob(f"{name}.*"))
    assert (len(tables), len(pictures)) in [(3, 0), (3, 2), (0, 2)]
    code, _, _ = command(name, "--report-only", "--output", folder)
    assert code == 0
    for table in tables:
        assert (folder / table.name).read_text() == table.read_text()
    for picture in pictures:
        assert (folder / picture.name).stat().st_size > 10_000


def test_faults_of_the_command(command, tmp_path, monkeypatch):
    monkeypatch.delenv("RNADE_DATA", raising=False)
    code, _, err = command("table9")
    assert code == 2
    assert "Unknown experiment 'table9'" in err
    code, _, err = command("table1", "--data-dir", tmp_path / "none")
    assert code == 2
    assert "does not exist" in err
    code, _, err = command("table1", "--data-dir", tmp_path)
    assert code == 2
    assert "winequality-red.csv is missing" in err


def test_a_report_needs_no_data(command, tmp_path):
    code, out, err = command("table1", "--report-only")
    assert code == 0
    assert f"{50 * len(COLUMNS)} jobs have no record yet" in err  # ten folds of five sets
    assert "| Gaussian | n/a (-13.18) |" in out
    assert (tmp_path / "results" / "table1" / "table.html").exists()


@pytest.mark.data
def test_table1_of_gaussians(command, data_folder, tmp_path):
    """The Gaussian column is the paper's, within what its folds can differ."""
    code, out, _ = command("table1", "--data-dir", data_folder, "--models", "gaussian", "--json")
    assert code == 0
    cells = {cell["column"]: cell for cell in json.loads(out)["tables"][0]["cells"]}
    within = {"Red wine": 0.05, "White wine": 0.05, "Parkinsons": 0.1, "Boston housing": 0.1}
    for row, cell in cells.items():
        assert abs(cell["difference"]) < within.get(row, 0.6), row
        assert 0 < cell["standard_error"] < 2
    lines = (tmp_path / "results" / "table1" / "records.jsonl").read_text().splitlines()
    assert len(lines) == 50
    code, _, err = command("table1", "--data-dir", data_folder, "--models", "gaussian")
    assert "50 of 50 jobs are recorded already" in err


@pytest.mark.data
def test_the_quick_version_of_table1(command, data_folder, tmp_path):
    """All settings and folds as one bank, the rule of retraining, and our default beside."""
    models = "gaussian,mfa,fvbn,rnade-mog,rnade-mol,rnade-default"
    options = ("--quick", "--datasets", "boston", "--models", models, "--device", "cpu")
    code, out, _ = command("table1", "--data-dir", data_folder, *options)
    assert code == 0
    lines = (tmp_path / "results" / "table1-quick" / "records.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert len(found) == 12  # six models on two folds
    for record in found:
        result = record["result"]
        if record["job"]["model"] in ("rnade-mog", "rnade-mol"):
            assert result["n_settings"] == 2
            assert 0 < result["best_epoch"] <= 30
            # None where training again broke.
            assert result["retrained_epochs"] is None or 0 < result["retrained_epochs"] <= 30
            assert result["test"] > -11.5  # better than a Gaussian, even so
    assert "RNADE(), our default" in out


@pytest.mark.data
def test_the_quick_version_of_binary(command, data_folder, tmp_path):
    options = ("--quick", "--datasets", "dna,mushrooms", "--models", "fvsbn,nade")
    code, out, _ = command("binary", "--data-dir", data_folder, *options, "--device", "cpu")
    assert code == 0
    folder = tmp_path / "results" / "binary-quick"
    assert len((folder / "records.jsonl").read_text().splitlines()) == 8
    for file in ("table.md", "table.csv", "table.html"):
        assert (folder / file).stat().st_size > 0
    assert "| mushrooms | DNA |" in out
    # Even two short epochs leave each column's own frequencies, which score far above coins.
    for row in csv.DictReader((folder / "table.csv").read_text().splitlines()):
        coins = -np.log(2) * {"mushrooms": 112, "DNA": 180}[row["column"]]
        assert float(row["value"]) > coins + 20


def test_what_is_chosen_is_chosen_by_validation():
    """A setting with the better test score but the worse validation score is not shown."""
    experiment = get_experiment("binary")
    choice = Choice(False, ("dna",), ("nade",))
    jobs = [job for group in experiment.plan(choice) for job in group]
    records = {}
    for i, job in enumerate(jobs):
        scores = {
            part: {
                "by_order": [{"mean": mean, "standard_error": 0.1}],
                "all_orders": {"mean": mean + 1, "standard_error": 0.1},
            }
            for part, mean in (("validation", -80.0 - i % 2), ("test", -90.0 + i % 2))
        }
        records[job.identity] = {"job": job.key, "result": scores}
    table = experiment.tables(choice, records)[0]
    assert {cell.value for _, cells in table.lines() for cell in cells} == {-90.0, -89.0}
