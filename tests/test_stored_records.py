"""Stored records stay those of the present plans: a job that was done is never done again."""

import hashlib
import json

import pytest
from benchmarks import bench_explore, trial_table

from rnade.reproduce import EXPERIMENTS, get_experiment
from rnade.reproduce.core.experiment import Choice
from rnade.reproduce.core.runner import RecordFile
from tests.test_reproduce import RESULTS

# Of each experiment the jobs of its plan, how many of them have a stored record, and a digest of
# all identities; then the jobs of its quick plan and their digest. Records on users' disks are
# found by these: another digest makes a finished run start again.
PLANS = {
    "binary": (36, 36, "c57325af410c831e", 18, "3d3cbcd39125acc5"),
    "table1": (600, 580, "57a89e3b6e1a5070", 72, "38014d29b941a9c4"),
    "table2": (31, 30, "9656eb0b535bfe26", 31, "8880a875fffc48b3"),
    "table3": (100, 83, "34bf5084c80781ae", 12, "4020b9ca281beea0"),
    "table3-variants": (60, 25, "2f6d8a3b162b21de", 12, "eb7312e138437456"),
    "figure1": (1, 1, "9461190281b2d5f7", 1, "387a9ccd8af7319f"),
    "figure2": (3, 3, "f7c6d42b41dae9e9", 3, "9875e816891feb4d"),
    "figure3": (1, 1, "750e502d1df9daff", 1, "a5f58c969070e53a"),
    "table1-dequantised": (400, 400, "7ef6cd3cb5fe3f42", 48, "8dbd407247d74bc4"),
    "table1-variants": (1150, 73, "bdfd51b49b3b3802", 46, "76822254f75c2f56"),
}


def identities(name, *, quick):
    return sorted(
        job.identity for group in get_experiment(name).plan(Choice(quick)) for job in group
    )


def digest(identities):
    return hashlib.sha256("\n".join(identities).encode()).hexdigest()[:16]


def test_every_experiment_is_here():
    assert set(PLANS) == set(EXPERIMENTS)


@pytest.mark.parametrize("name", PLANS)
def test_jobs_are_those_of_the_stored_records(name):
    n_jobs, n_stored, expected, n_quick, expected_quick = PLANS[name]
    planned, quick = identities(name, quick=False), identities(name, quick=True)
    stored = RecordFile(RESULTS / name / "records.jsonl").read()
    assert set(stored) <= set(planned)  # no record is of a job that nobody plans any more
    assert len(stored) == n_stored
    assert (len(planned), digest(planned)) == (n_jobs, expected)
    assert (len(quick), digest(quick)) == (n_quick, expected_quick)


def test_the_short_runs_of_table2_are_laid_out_as_stored():
    lines = (RESULTS / "table2" / "trials.jsonl").read_text().splitlines()
    assert trial_table.table(lines) == (RESULTS / "table2" / "trials.md").read_text()


def test_figures_of_the_page_to_explore_are_laid_out_as_stored():
    record = json.loads((RESULTS / "explore" / "record.json").read_text())
    assert bench_explore.table_of(record) == (RESULTS / "explore" / "table.md").read_text()
