"""The site: its own extensions, and that its pages name everything."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


def extension(name):
    """A module of the site's extensions."""
    sys.path.insert(0, str(DOCS / "_extensions"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def write(site: Path, **pages: str) -> Path:
    site.mkdir(exist_ok=True)
    for name, body in pages.items():
        (site / f"{name}.html").write_text(f"<html><body>{body}</body></html>")
    return site


def test_a_site_whose_links_lead_somewhere_has_no_faults(tmp_path):
    first = (
        '<a href="b.html#here">b</a><a href="#top" id="top">up</a><a href="https://x.org">x</a>'
    )
    site = write(tmp_path, a=first, b='<h1 id="here">b</h1><img src="data:image/png;base64,AA">')
    assert list(extension("check_site").faults(site)) == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="gone.html">x</a>', "a.html links to gone.html, which does not exist."),
        ('<a href="b.html#gone">x</a>', "a.html links to b.html#gone: no such place"),
        ('<a href="#gone">x</a>', "a.html links to #gone: no such place"),
        ('<script src="https://cdn.org/x.js"></script>', "a.html loads https://cdn.org/x.js"),
        ('<link rel="stylesheet" href="//fonts.org/x.css">', "loads //fonts.org/x.css"),
        ('<img src="gone.png">', "a.html links to gone.png"),
    ],
)
def test_faults_of_a_site_are_named(body, fault, tmp_path):
    site = write(tmp_path, a=body, b="")
    (found,) = extension("check_site").faults(site)
    assert fault in found


def test_an_empty_site_is_a_fault(tmp_path):
    script = DOCS / "_extensions" / "check_site.py"
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True)
    assert done.returncode == 1
    assert "has no pages" in done.stdout


def test_every_command_and_option_is_in_the_reference():
    """Of the program itself, by its own help."""
    import typer
    from typer.testing import CliRunner

    from rnade.cli.app import app

    described = extension("command_reference")._described
    command = typer.main.get_command(app)
    text = "\n".join(described(command, typer.Context(command, info_name="rnade")))
    for name in command.commands:
        assert f"## rnade {name}\n" in text
        section = text.split(f"## rnade {name}\n")[1].split("\n## ")[0]
        shown = CliRunner().invoke(app, [name, "--help"], terminal_width=200).output
        flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", shown)) - {"--help"}
        assert flags
        assert flags <= set(re.findall(r"--[a-z][a-z-]+", section)), name


def test_formulas_are_mathml():
    from docutils import nodes

    mathml = extension("mathml")

    class Translator:
        def __init__(self):
            self.body = []

    page = Translator()
    with pytest.raises(nodes.SkipNode):
        mathml._display(page, nodes.math_block("", r"\sum_d \log p(x_d \mid x_{<d})"))
    assert "<math" in page.body[0]
    assert "<munder>" in page.body[0] or "<msub>" in page.body[0]


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[r](../../results/a/table.md)", "[r](path:../../results/a/table.md)"),
        ("[r](../how-to/data.md)", "[r](../how-to/data.md)"),
        ("![r](../../results/a/f.png)", "![r](../../results/a/f.png)"),
    ],
)
def test_links_to_records_give_the_file_and_links_to_pages_stay(link, expected):
    source = [link]
    extension("repository_links")._name_files(None, "page", source)
    assert source == [expected]


def test_every_public_name_is_in_the_reference():
    import rnade
    import rnade.nn
    import rnade.plot
    import rnade.report

    text = (DOCS / "reference" / "api.md").read_text()
    listed = set(re.findall(r"^   ([\w.]+)$", text, re.MULTILINE))
    assert {name for name in rnade.__all__ if name != "__version__"} <= listed
    for module in (rnade.nn, rnade.plot, rnade.report):
        short = module.__name__.removeprefix("rnade.")
        public = [n for n in module.__all__ if not n.startswith("Abstract")]
        public = [n for n in public if not n.endswith("Display")]
        assert {f"{short}.{name}" for name in public} <= listed
