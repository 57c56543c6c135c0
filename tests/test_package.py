"""What the package says of itself agrees, wherever it says it."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from benchmarks import elsewhere, neighbours, startup, versions

from rnade import __version__

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPE = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
# Packages that conda-forge has under another name.
CONDA_NAMES = {"torch": "pytorch"}


def requirements(lines):
    pairs = [re.match(r"([\w-]+)\s*>=\s*([\d.]+)$", line) for line in lines]
    assert all(pairs), lines
    return {pair[1]: pair[2] for pair in pairs}


def test_the_recipe_asks_for_what_the_package_asks():
    ours = requirements(PROJECT["dependencies"])
    ours = {CONDA_NAMES.get(name, name): version for name, version in ours.items()}
    theirs = requirements([r for r in RECIPE["requirements"]["run"] if "python_min" not in r])
    assert theirs == ours
    assert RECIPE["context"]["version"] == __version__
    assert PROJECT["requires-python"] == f">={RECIPE['context']['python_min']}"
    name, _, target = RECIPE["build"]["python"]["entry_points"][0].partition(" = ")
    assert PROJECT["scripts"] == {name: target}


def test_core_requirements_bring_no_cuda_of_their_own():
    asked = " ".join(PROJECT["dependencies"])
    assert not re.search(r"nvidia|cuda|triton", asked)


def test_every_pinned_requirement_is_within_its_bound():
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    pins = {name.lower().replace("_", "-"): version for name, version in pins.items()}

    def parts(version):
        return [int(part) for part in re.findall(r"\d+", version)]

    for name, least in requirements(PROJECT["dependencies"]).items():
        assert parts(pins[name]) >= parts(least), name


def test_classifiers_name_the_versions_that_were_tested():
    named = {c.split()[-1] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)}
    entries = json.loads((versions.RESULTS / "record.json").read_text())
    tested = {".".join(e["installed"]["python"].split(".")[:2]) for e in entries}
    assert named == tested


def test_lower_bounds_are_those_that_were_tested():
    entries = json.loads((versions.RESULTS / "record.json").read_text())
    oldest = next(e for e in entries if "oldest" in e["label"])
    for name, least in requirements(PROJECT["dependencies"]).items():
        assert re.match(rf"{re.escape(least)}(\.\d+)*(\+.*)?$", oldest["installed"][name]), name


def test_a_log_without_a_summary_is_refused(tmp_path):
    import sys

    (tmp_path / "log").write_text("nothing\n")
    with pytest.raises(ValueError, match="is no summary of pytest"):
        versions.entry("x", sys.executable, tmp_path / "log")


@pytest.mark.parametrize(
    ("module", "record", "text"),
    [
        (elsewhere, "record.json", "table.md"),
        (neighbours, "record.json", "table.md"),
        (startup, "startup.json", "startup.md"),
        (versions, "record.json", "table.md"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_stored_tables_are_those_of_their_records(module, record, text):
    stored = json.loads((module.RESULTS / record).read_text())
    assert module.table(stored) == (module.RESULTS / text).read_text()


def test_the_command_line_starts_within_its_limits_in_the_record():
    """As recorded; no test looks at the clock."""
    seconds = json.loads((startup.RESULTS / "startup.json").read_text())["seconds"]
    for command, limit in startup.LIMITS.items():
        assert seconds[command]["median"] < limit
