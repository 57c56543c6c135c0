"""The page in a real browser: nothing wrong, nothing fetched, nothing too wide, all of it there.

Needs Debian's chromium. With RNADE_SCREENSHOTS naming a folder, the pictures are left there; the
README's is one of them.
"""

import os
import re
import shutil
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from rnade import NADE, RNADE
from rnade.exceptions import SpikeWarning
from rnade.report import render, study
from tests.browser import Browser, find_browser
from tests.weather import make_weather

pytestmark = pytest.mark.skipif(
    find_browser() is None, reason="no chromium (Debian: apt-get install chromium)"
)

PHONE, DESK = 360, 1100
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</style><script>document.title='taken'</script>",
    "' onmouseover='alert(3)",
    "&lt;b&gt; &amp;",
    "x" * 300,
]
QUICK = {"n_hidden": 6, "n_components": 3, "epochs": 3, "random_state": 0, "device": "cpu"}
QUICK["ensemble"] = None  # one model, in one order
QUICK["columns"] = "real"


def fit(frame, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpikeWarning)
        return RNADE(**(QUICK | settings)).fit(frame)


def weather_page():
    columns = make_weather(4000)
    model = fit(pd.DataFrame(columns), n_hidden=50, n_components=10, epochs=30)
    model.origin_ = {
        "source": "weather.csv",
        "left_out": {"station": "text", "date": "dates"},
        "dropped_rows": 12,
    }
    fresh = pd.DataFrame(make_weather(2000, seed=1))
    fresh.loc[211, "dew point"] += 9
    fresh.loc[1432, "wind"] = 41.0
    fresh.loc[87, ["rain", "sunshine"]] = [21.0, 11.0]
    return study(model, fresh, source="weather-2026.csv")


def fitted_page():
    frame = pd.DataFrame(make_weather(1000))
    return study(fit(frame), frame, source="weather.csv")


def hostile_page():
    X = np.random.default_rng(0).normal(size=(200, len(HOSTILE)))
    frame = pd.DataFrame(X, columns=HOSTILE)
    model = fit(frame)
    model.origin_ = {
        "source": HOSTILE[0],
        "left_out": {HOSTILE[1]: HOSTILE[2], "y" * 400: "text"},
        "dropped_rows": 1,
    }
    return study(model, frame, source=HOSTILE[0])


def wide_page():
    """More columns than are drawn, in awkward units."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 64)) * 10.0 ** rng.integers(-12, 13, 64)
    frame = pd.DataFrame(X, columns=[f"a rather long name of column {d}" for d in range(64)])
    return study(fit(frame), frame, source="wide.csv")


def matrix_page():
    """Nearly as many columns as the matrix of correlations takes."""
    X = np.random.default_rng(0).normal(size=(200, 38))
    return study(fit(X), X, source="matrix.csv")


def binary_page():
    X = (np.random.default_rng(0).uniform(size=(300, 9)) < 0.4).astype(float)
    return study(NADE(epochs=2, random_state=0, device="cpu").fit(X), X, source="bits.csv")


def tiny_page():
    X = np.random.default_rng(0).normal(size=(20, 1))
    return study(fit(X), X[:1], source="one.csv")


PAGES = {
    "weather": weather_page,
    "fitted": fitted_page,
    "hostile": hostile_page,
    "wide": wide_page,
    "matrix": matrix_page,
    "binary": binary_page,
    "tiny": tiny_page,
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Each page, written when it is first asked for."""
    folder = tmp_path_factory.mktemp("pages")

    def page(name):
        path = folder / f"{name}.html"
        if not path.exists():
            path.write_text(render(PAGES[name]()), encoding="utf-8")
        return path

    return page


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


# Elements that reach beyond the window, but for those inside something that cuts them off.
TOO_WIDE = """
[...document.querySelectorAll('body *')].filter(e => {
  const r = e.getBoundingClientRect();
  const inside = r.right <= WIDTH + 1 && r.left >= -1;
  if (inside || r.width === 0 || e.closest("svg")) return false;
  for (let p = e.parentElement; p; p = p.parentElement)
    if (getComputedStyle(p).overflowX !== 'visible') return false;
  return true;
}).map(e => e.outerHTML.slice(0, 80))
"""
EMPTY_PICTURES = """
[...document.querySelectorAll('svg')].filter(e => {
  const r = e.getBoundingClientRect();
  const shown = e.closest('.picture') === null || r.width > 0;
  return shown && (r.width < 20 || r.height < 8 || e.querySelector('path') === null);
}).length
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("name", PAGES)
def test_pages_are_in_order(pages, browser, name, width, dark):
    tab = browser.open(pages(name), width=width, dark=dark)
    assert tab.problems == []
    assert tab.requests == [pages(name).as_uri()]  # the page itself and nothing else
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.evaluate(TOO_WIDE.replace("WIDTH", str(width))) == []
    assert tab.evaluate(EMPTY_PICTURES) == 0
    assert tab.evaluate("document.scripts.length") == 0
    background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
    assert brightness < 60 if dark else brightness > 200


def test_the_checks_above_can_fail(browser, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        '<meta name="viewport" content="width=device-width"><body><p style="width:900px">wide</p>'
        '<svg style="width:100px;height:100px"></svg><img src="http://localhost:9/x.png">'
        "<script>console.error('wrong'); lost()</script>"
    )
    tab = browser.open(page, width=PHONE)
    assert any("lost is not defined" in problem for problem in tab.problems)
    assert any("wrong" in problem for problem in tab.problems)
    assert "http://localhost:9/x.png" in tab.requests
    assert tab.evaluate("document.documentElement.scrollWidth") >= 900
    assert len(tab.evaluate(TOO_WIDE.replace("WIDTH", str(PHONE)))) == 1
    assert tab.evaluate(EMPTY_PICTURES) == 1


@pytest.mark.parametrize("name", ["weather", "fitted"])
def test_everything_is_on_the_page(pages, browser, name):
    tab = browser.open(pages(name))
    for section in ("cautions", "fitted", "right", "odd", "depends"):
        assert tab.evaluate(f"document.querySelector('#{section} h2') !== null"), section
        assert tab.evaluate(f"document.querySelector('nav a[href=\"#{section}\"]') !== null")

    def count(selector):
        return tab.evaluate(f"document.querySelectorAll({selector!r}).length")

    assert count(".glance dd.big") == 4
    assert count("#fitted .models tbody tr") == 3
    assert count("#fitted .chart svg") == 1  # the learning curve
    assert count("#right .column svg") == 2 * 7
    assert count("#right .pairs svg") == 5 * 4
    assert count("#right .matrix svg") == count("#right .chart svg") == 1
    assert count("#odd .chart svg") == 1
    assert count("#odd tbody tr") == 3
    assert count(".odd-rows > li") == 10
    assert count("#depends tbody tr") == 7
    assert count("svg:not([aria-label])") == 0
    # A sentence comes before each picture.
    assert count("#right .finding") == 4


def test_what_a_table_holds_is_shown_and_does_nothing(pages, browser):
    tab = browser.open(pages("hostile"))
    assert tab.evaluate("document.title") == f"{HOSTILE[0]}: what RNADE found"
    assert tab.evaluate("document.querySelector('h1').textContent") == HOSTILE[0]
    assert tab.evaluate("document.images.length + document.scripts.length") == 0
    assert tab.evaluate("document.querySelectorAll('[onmouseover], [onerror]').length") == 0
    cards = tab.evaluate("[...document.querySelectorAll('.column h4')].map(e => e.textContent)")
    assert set(cards) == set(HOSTILE)


def test_print(pages, browser, tmp_path):
    """In ink on white, whatever the screen; and no page of the print is cut off."""
    tab = browser.open(pages("weather"), dark=True)
    browser.call("Emulation.setEmulatedMedia", tab.session, media="print")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    path = tmp_path / "page.pdf"
    tab.pdf(path)
    pdf = path.read_bytes()
    assert pdf.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 14


def test_screenshots(pages, browser, tmp_path):
    """Pictures of the page, of which the README shows one."""
    folder = Path(os.environ.get("RNADE_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    for name, width, dark in (
        ("report", DESK, False),
        ("dark", DESK, True),
        ("phone", 360, False),
    ):
        tab = browser.open(pages("weather"), width=width, dark=dark)
        tab.screenshot(folder / f"{name}-whole.png")
        with Image.open(folder / f"{name}-whole.png") as picture:
            assert picture.size[0] == width
            assert picture.size[1] > 3000
            assert len(picture.convert("RGB").getcolors(1 << 24)) > 50  # it is not blank
    # Three parts of it side by side, small enough to be kept beside the README.
    starts = [
        int(
            tab.evaluate(f"document.querySelector('{part}').getBoundingClientRect().top + scrollY")
        )
        for tab in [browser.open(pages("weather"), width=DESK)]
        for part in ("header", "#right", "#odd")
    ]
    width, height = 560, 760
    picture = Image.new("RGB", (3 * width + 2 * 16, height), "white")
    for at, (start, name) in enumerate(zip(starts, ("report", "report", "dark"), strict=True)):
        with Image.open(folder / f"{name}-whole.png") as whole:
            cut = whole.convert("RGB").crop((0, start, DESK, start + DESK * height // width))
        picture.paste(
            cut.resize((width, height), Image.Resampling.LANCZOS), (at * (width + 16), 0)
        )
    # Rare colours are kept, and the common ones exactly.
    few = picture.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    few.save(folder / "report.png", optimize=True)
    assert (folder / "report.png").stat().st_size < 400_000


def test_the_printed_page_is_read_by_others(pages, browser, tmp_path):
    if shutil.which("pdftotext") is None:
        pytest.skip("no pdftotext (Debian: apt-get install poppler-utils)")
    browser.open(pages("fitted")).pdf(tmp_path / "page.pdf")
    done = subprocess.run(
        ["pdftotext", str(tmp_path / "page.pdf"), "-"], capture_output=True, text=True, check=True
    )
    for words in ("What was fitted", "Is it right?", "What is odd?", "What depends on what?"):
        assert words in done.stdout
