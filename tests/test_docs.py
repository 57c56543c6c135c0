"""Documentation: every Python block runs and prints what its comments say; doctests hold."""

import doctest
import importlib
import pkgutil
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
import typer

import rnade
from rnade.cli import main
from rnade.cli.app import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PLAIN = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
# Heavy or guarded modules whose docstrings hold no examples.
WITHOUT_EXAMPLES = re.compile(r"rnade\.(__main__|backends\.(_|cpu\.|gpu\.)|cli)")


def example(name):
    """A script of the folder of examples, as a module."""
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


blocks = example("page_blocks")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_code_blocks_run_and_print_what_they_say(page, tmp_path, monkeypatch, capsys):
    """Blocks of Python and of commands, one after the other in one folder."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for language, block in blocks.BLOCK.findall(page.read_text()):
        # Distributions of torch draw from its global random state.
        with torch.random.fork_rng(devices=[]):
            if language == "console":
                run_commands(block, capsys)
            else:
                blocks.run_python(block, str(page), namespace)


def run_commands(block: str, capsys) -> None:
    """Run the lines that begin with "$ rnade"; what is shown after one is what it writes.

    Numbers aside: a fit differs from machine to machine.
    """
    for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, *shown = command.rstrip().splitlines()
        program, *arguments = shlex.split(line)
        assert program == "rnade"
        capsys.readouterr()
        assert main(arguments) == 0, line
        written = capsys.readouterr()
        words = {in_words(own) for own in (written.out + written.err).splitlines()}
        for own in shown:
            assert in_words(own) in words, (line, own, written)


def in_words(line: str) -> str:
    """A line without its numbers, and with single blanks."""
    return " ".join(blocks.NUMBER.sub("#", line).split())


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_commands_on_pages_are_commands(page):
    """Every line that calls rnade has options that there are, also where it is not run."""
    program = typer.main.get_command(app)
    for block in PLAIN.findall(page.read_text()):
        for line in re.findall(r"^(?:\$ )?rnade (\w+ .*)$", block, re.MULTILINE):
            words = shlex.split(line, comments=True)
            ends = [at for at, word in enumerate(words) if word in (">", "|")]
            name, *arguments = words[: ends[0] if ends else None]
            command = program.commands[name]
            command.make_context(name, arguments, resilient_parsing=True)
            flags = {flag for p in command.params for flag in (*p.opts, *p.secondary_opts)}
            given = {a.split("=")[0] for a in arguments if a.startswith("-") and len(a) > 1}
            given = {flag for flag in given if not re.match(r"-[\d.]", flag)}
            assert given <= flags | {"--help"}, line


def test_the_comparison_above_can_fail():
    blocks.assert_same("mean 0.97", "mean 0.971")
    with pytest.raises(AssertionError):
        blocks.assert_same("mean 0.97", "mean 0.81")
    with pytest.raises(AssertionError):
        blocks.assert_same("True", "False")


def test_the_check_of_commands_can_fail(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_commands("$ rnade --version\nrnade 9.9.9\n", capsys)
    with pytest.raises(AssertionError):
        run_commands("$ rnade --version\nrnade version 1\n", capsys)
    with pytest.raises(AssertionError):
        run_commands("$ rnade info gone.rnade\n", capsys)


def modules() -> list[str]:
    found = pkgutil.walk_packages(rnade.__path__, "rnade.")
    return [m.name for m in found if not WITHOUT_EXAMPLES.match(m.name)]


@pytest.mark.parametrize("name", modules())
def test_docstring_examples(name):
    if name == "rnade.pyod":
        pytest.importorskip("pyod")
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


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
