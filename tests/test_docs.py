"""Documentation: every Python block runs and prints what its comments say; doctests hold."""

import contextlib
import doctest
import importlib
import io
import pkgutil
import re
import sys
from pathlib import Path

import pytest
import torch

import rnade

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")
# Heavy or guarded modules whose docstrings hold no examples.
WITHOUT_EXAMPLES = re.compile(r"rnade\.(__main__|backends\.(_|cpu\.|gpu\.)|cli)")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_code_blocks_run_and_print_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in BLOCK.findall(page.read_text()):
        printed = io.StringIO()
        # Distributions of torch draw from its global random state.
        with contextlib.redirect_stdout(printed), torch.random.fork_rng(devices=[]):
            exec(compile(block, str(page), "exec"), namespace)
        promised = re.findall(r"^print\(.*\)\s+# (.*)$", block, re.MULTILINE)
        lines = printed.getvalue().splitlines()
        assert len(lines) == block.count("print("), "print one line a call"
        for said, shown in zip(promised, lines, strict=True):
            assert_same(said, shown)


def assert_same(said: str, shown: str) -> None:
    """Equal text; numbers may differ by 3 %, as float32 training does between machines."""
    assert NUMBER.sub("#", said) == NUMBER.sub("#", shown), (said, shown)
    for a, b in zip(NUMBER.findall(said), NUMBER.findall(shown), strict=True):
        assert float(b) == pytest.approx(float(a), rel=0.03, abs=0.03), (said, shown)


def test_the_comparison_above_can_fail():
    assert_same("mean 0.97", "mean 0.971")
    with pytest.raises(AssertionError):
        assert_same("mean 0.97", "mean 0.81")
    with pytest.raises(AssertionError):
        assert_same("True", "False")


def modules() -> list[str]:
    found = pkgutil.walk_packages(rnade.__path__, "rnade.")
    return [m.name for m in found if not WITHOUT_EXAMPLES.match(m.name)]


@pytest.mark.parametrize("name", modules())
def test_docstring_examples(name):
    if name == "rnade.pyod":
        pytest.importorskip("pyod")
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def example(name):
    """A script of the folder of examples, as a module."""
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def test_the_readmes_table_is_that_of_its_record():
    """No figure is typed by hand: examples/demo_table.py writes the table from the record."""
    readme = (ROOT / "README.md").read_text()
    assert example("demo_table").with_table(readme) == readme


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_tables_on_pages_are_those_stored(page):
    """No figure is typed by hand: examples/result_pages.py puts stored tables into pages."""
    text = page.read_text()
    assert example("result_pages").with_tables(text) == text


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
