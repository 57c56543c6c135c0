"""The page to explore a model, in a real browser: its densities, its controls, its looks.

Needs Debian's chromium. With RNADE_SCREENSHOTS naming a folder, the pictures are left there; the
README's is one of them.
"""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy import stats
from torch import Generator

from rnade import RNADE
from rnade.explore.contents import part_of
from rnade.nn.questions import column_given
from tests.browser import Browser, find_browser
from tests.explored import (
    MODELS,
    QUICK,
    everything,
    pages_answers,
    pythons_answers,
    random_settings,
)
from tests.test_browser import DESK, EMPTY_PICTURES, HOSTILE, PHONE, TOO_WIDE
from tests.weather import make_weather

pytestmark = pytest.mark.skipif(
    find_browser() is None, reason="no chromium (Debian: apt-get install chromium)"
)


def hostile() -> RNADE:
    rng = np.random.default_rng(0)
    levels = [*HOSTILE, "~=&#%", "</script>"]
    columns = {name: rng.choice(levels, 300) for name in HOSTILE[:3]}
    columns |= {name: rng.normal(size=300) for name in (*HOSTILE[3:], "a~b=c&d")}
    return RNADE(**QUICK, columns={name: "category" for name in HOSTILE[:3]}).fit(
        pd.DataFrame(columns)
    )


class Pages:
    """Models and their pages, each made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.models = folder, {}

    def model(self, name):
        if name not in self.models:
            self.models[name] = (MODELS | {"hostile": hostile})[name]()
        return self.models[name]

    def page(self, name, **options):
        path = self.folder / f"{name}{len(options)}.html"
        if not path.exists():
            self.model(name).explore(**options).save(path)
        return path


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    return Pages(tmp_path_factory.mktemp("explore"))


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


# Work may end in a change, which is drawn in the next frame and makes work of its own.
ASK = """rnade.then(async (p) => {
  const found = await (EXPRESSION);
  for (let i = 0; i < 2; i++) {
    await new Promise(requestAnimationFrame);
    await p.schedule.done();
  }
  return typeof found === "function" ? found() : found;
})"""


def ask(tab, expression):
    """The value of an expression of the page `p`, once all that follows from it is done.

    Of a function, what it gives then.
    """
    return tab.evaluate(ASK.replace("EXPRESSION", expression))


def settled(tab):
    ask(tab, "0")
    return tab


def texts(tab, selector):
    return tab.evaluate(f"[...document.querySelectorAll({selector!r})].map(e => e.textContent)")


def glance(tab, name):
    return texts(tab, f"[data-glance={name}] dd")


# -------------------------------------------------------------------- densities


def largest_difference(found, expected):
    return max(float(np.abs(found[key] - expected[key]).max()) for key in expected)


@pytest.mark.parametrize(
    ("name", "n"), [("mixed", 1000), ("informative", 200), ("apart", 200), ("real", 200)]
)
def test_densities_are_pythons(pages, browser, name, n):
    """Of every column given any others, and of what is given: nats, to 1e-5."""
    model = pages.model(name)
    known, asked = random_settings(model, n)
    tab = browser.open(pages.page(name))
    found = pages_answers(tab, known, asked)
    assert largest_difference(found, pythons_answers(model, known, asked)) < 1e-5
    assert tab.problems == []


def test_the_test_above_can_fail(pages, browser):
    """Another value of one cell that is known is seen in the answers."""
    model = pages.model("real")
    known, asked = random_settings(model, 20)
    other = np.where(np.isnan(known), np.nan, known + 1e-3)
    found = pages_answers(browser.open(pages.page("real")), other, asked)
    assert largest_difference(found, pythons_answers(model, known, asked)) > 1e-5


def drawn_by(tab, known, n):
    known = [None if np.isnan(x) else x for x in known]
    return np.array(
        tab.evaluate(
            "rnade.then((p) => p.ask.draw("
            f"Float64Array.from({json.dumps(known)}, (x) => x ?? NaN), {n}, 1)"
            ".map((row) => Array.from(row, (x) => (Number.isNaN(x) ? null : x))))"
        ),
        dtype=float,
    )


@pytest.mark.parametrize("name", ["mixed", "apart", "real"])
def test_a_value_drawn_given_all_others_follows_its_distribution(pages, browser, name):
    """By Python's distribution functions."""
    table, n = pages.model(name)._answering, 400
    row = table.sample(1, Generator().manual_seed(1))[0]
    tab = browser.open(pages.page(name))
    for d in range(table.n_dimensions):
        known = row.copy()
        known[d] = np.nan
        rows = drawn_by(tab, known, n)
        assert (np.delete(rows, d, 1) == np.delete(row, d)).all()
        density = column_given(table, d, np.tile(known, (n, 1)))
        place = density.transform(rows[:, d], Generator().manual_seed(d))
        assert stats.kstest(place, "uniform").pvalue > 1e-4, d


@pytest.mark.parametrize("name", ["mixed", "apart", "real"])
def test_rows_drawn_are_like_pythons(pages, browser, name):
    """Column by column, and their sums with the first one, so that dependence shows too."""
    table, n = pages.model(name)._answering, 500
    nothing = np.full(table.n_dimensions, np.nan)
    found = drawn_by(browser.open(pages.page(name)), nothing, n)
    own = table.sample(n, Generator().manual_seed(0))
    scale = own.std(0)
    for d in range(table.n_dimensions):
        for sign in (0, 1, -1):
            one, other = (
                rows[:, d] / scale[d] + sign * rows[:, 1] / scale[1] for rows in (found, own)
            )
            assert stats.ks_2samp(one, other).pvalue > 1e-4, (d, sign)


def test_draws_know_which_cells_are_missing(pages, browser):
    """A row in which a cell is missing has no value there, and others have one."""
    names = list(pages.model("informative").schema_.names)
    nothing = np.full(len(names), np.nan)
    rows = drawn_by(browser.open(pages.page("informative")), nothing, 200)
    for name in ("city", "income"):
        gone = rows[:, names.index(f"{name} is missing")] == 1
        assert (np.isnan(rows[:, names.index(name)]) == gone).all()
        assert 0.02 < gone.mean() < 0.3


def test_two_columns_together_are_pythons(pages, browser):
    """Joint probabilities of two columns of levels given a third; bins of numbers add up."""
    model, tab = pages.model("mixed"), browser.open(pages.page("mixed"))

    def joint(one, other, rain):
        return np.array(
            tab.evaluate(
                f"rnade.then((p) => {{ const known = Float64Array.from(p.cards, () => NaN);"
                f" known[3] = {rain};"
                f" const slots = [{one}, {other}].map((d) => p.cards[d].slots);"
                f" return p.ask.joint([{one}, {other}], slots, known).map((m) => [...m]); }})"
            )
        )

    found = joint(0, 5, 0.0)
    grades = list(model.schema_.columns[5].levels)
    for i, city in enumerate(model.schema_.columns[0].levels):
        rows = pd.DataFrame({"grade": pd.Categorical(grades, grades, ordered=True)})
        rows.insert(0, "city", city)
        expected = np.exp(model.log_density(rows, given={"rain": 0.0}))
        np.testing.assert_allclose(found[i], expected, rtol=1e-5)
    incomes = joint(2, 0, 0.0)
    assert 0.95 < incomes.sum() < 1  # without long tails
    np.testing.assert_allclose(incomes.sum(0), found.sum(1), atol=0.05)


def test_the_p_value_of_a_level_is_the_mass_of_those_as_rare(pages, browser):
    """By the network that the page goes by, whose probabilities Python gives."""
    model, tab, n = pages.model("mixed"), browser.open(pages.page("mixed")), 2000
    nothing = np.full((1, len(model.schema_.columns)), np.nan)
    shares = column_given(part_of(model.module_, 1), 0, nothing).probabilities()[0]
    for level in range(len(shares)):
        p = tab.evaluate(
            "rnade.then((p) => { const known = Float64Array.from(p.cards, () => NaN);"
            f" known[0] = {level}; return p.ask.pValue(known, {n}, 1); }})"
        )
        expected = shares[shares <= shares[level]].sum() / shares.sum()
        assert p == pytest.approx(expected, abs=5 * np.sqrt(0.25 / n))


# -------------------------------------------------------------------- what is shown


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("name", ["mixed", "informative", "real", "hostile"])
def test_pages_are_in_order(pages, browser, name, width, dark):
    page = pages.page(name)
    tab = settled(browser.open(page, width=width, dark=dark))
    ask(tab, "p.setRanked(null, 0.5)")
    ask(tab, "(p.state.pair = [0, 1], p.changed(true))")
    assert tab.problems == []
    # The page itself and nothing else, but for what the browser draws date fields with.
    assert [url for url in tab.requests if not url.startswith("data:")] == [page.as_uri()]
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.evaluate(TOO_WIDE.replace("WIDTH", str(width))) == []
    assert tab.evaluate(EMPTY_PICTURES) == 0
    background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 23, 27)" if dark else "rgb(250, 249, 246)")
    n = len(pages.model(name)._asked_schema.columns)
    assert texts(tab, "[data-glance=set] .big") == [f"{n} of {n}"]
    assert tab.evaluate("document.querySelectorAll('#pair .area path').length") > 10


def test_what_is_set_changes_what_is_shown(pages, browser):
    model, tab = pages.model("mixed"), settled(browser.open(pages.page("mixed")))
    assert glance(tab, "density") == ["0", "nothing is set"]
    before = texts(tab, ".column .said")
    ask(tab, "p.set(0, 1)")
    city = model.schema_.columns[0].levels[1]
    rooms = model.conditional("rooms", {"city": city})
    low, median, high = (int(rooms.quantile(q)[0]) for q in (0.05, 0.5, 0.95))
    said = texts(tab, ".column .said")
    assert said[1] == f"median {median}, 90 % from {low} to {high}"
    assert sum(a != b for a, b in zip(before, said, strict=True)) > 3
    shares = model.conditional("grade", {"city": city}).probabilities()[0]
    shown = texts(tab, "#column-5 ~ .levels .share")
    assert [float(s.rstrip("\u00a0 %")) for s in shown] == pytest.approx(100 * shares, abs=1)
    density = model.log_density(pd.DataFrame({"city": [city]}))[0]
    assert glance(tab, "density")[0] == f"{density:.2f}".replace("-", "\u2212")
    assert glance(tab, "set")[0] == "1 of 11"


def test_the_most_surprising_value_is_named(pages, browser):
    """Rooms and beds add up to places: another sum is what does not fit."""
    tab = settled(browser.open(pages.page("mixed"), fragment="#rooms=2&beds=3&places=16"))
    assert glance(tab, "surprise")[0] in ("places", "rooms", "beds")
    assert "nats less likely than is typical" in glance(tab, "surprise")[1]
    assert len([t for t in texts(tab, ".surprise") if t.endswith("the most surprising")]) == 1
    fits = settled(browser.open(pages.page("mixed"), fragment="#rooms=2&beds=3&places=5"))
    assert glance(fits, "surprise")[0] == "none"


def test_surprise_is_beside_the_mean_log_density(pages, browser):
    """Of values drawn from the column given the others that are set, by Python."""
    table = pages.model("real")._answering
    tab = settled(browser.open(pages.page("real"), fragment="#a=0.5&b=8"))
    known = np.full((4000, 4), np.nan)
    known[:, 0] = 0.5
    density = column_given(table, 1, known)
    typical = density.log_prob(density.sample(Generator().manual_seed(0))).mean()
    expected = typical - density.log_prob(np.full(4000, 8.0))[0]
    said = tab.evaluate("document.querySelectorAll('.surprise')[1].textContent")
    assert expected > 1
    assert float(said.split()[0]) == pytest.approx(expected, abs=0.15)


def test_rows_to_start_from(pages, browser):
    rows, names = everything(), list(everything(2).columns)
    tab = settled(browser.open(pages.page("mixed", rows=rows)))
    values, seen = pages.model("mixed").schema_.encode(rows)

    def set_now():
        return np.array(
            ask(tab, "() => [...p.state.values].map((x) => Number.isNaN(x) ? null : x)"), float
        )

    tab.evaluate(
        "(() => { const row = document.querySelector('#row'); row.value = '7';"
        " row.dispatchEvent(new Event('change')); })()"
    )
    np.testing.assert_array_equal(set_now(), np.where(seen[6], values[6], np.nan))
    tab.evaluate("document.querySelector('[data-do=oddest]').click()")
    odd = int(np.nanargmin(pages.model("mixed").fit_scores_))
    np.testing.assert_array_equal(set_now(), np.where(seen[odd], values[odd], np.nan))
    tab.evaluate("document.querySelector('[data-do=forget]').click()")
    assert np.isnan(set_now()).all()
    # Drawn given what is set, which stays.
    ask(tab, f"p.set({names.index('rooms')}, 3)")
    tab.evaluate("document.querySelector('[data-do=draw]').click()")
    drawn = set_now()
    assert drawn[names.index("rooms")] == 3
    assert not np.isnan(drawn).any()
    back = (
        "(done) => { addEventListener('hashchange', () => done(), {once: true}); history.back(); }"
    )
    tab.evaluate(f"new Promise({back})")
    assert np.isnan(set_now()).sum() == len(names) - 1
    tab.evaluate("document.querySelector('[data-do=draws]').click()")
    ask(tab, "0")
    points = tab.evaluate("document.querySelectorAll('.points-model')[1].getAttribute('d')")
    assert points.count("M") == 100
    assert tab.problems == []


def test_without_rows_the_oddest_is_drawn(pages, browser):
    tab = settled(browser.open(pages.page("mixed")))
    ranks = {}
    for name in ("typical", "oddest"):
        tab.evaluate(f"document.querySelector('[data-do={name}]').click()")
        ranks[name] = ask(tab, "() => p.logDensity")
    assert ranks["oddest"] < ranks["typical"]
    assert tab.evaluate("document.querySelector('#row')") is None


def test_a_cell_that_is_set_is_not_missing(pages, browser):
    model = pages.model("informative")
    names = list(model.schema_.names)
    tab = settled(browser.open(pages.page("informative"), fragment="#income=20"))
    at = names.index("income is missing")
    assert ask(tab, f"[p.state.known()[{at}], p.cards[{at}].entry.disabled]") == [0, True]
    density = model.log_density(pd.DataFrame({"income": [20.0]}))[0]
    assert ask(tab, "() => p.logDensity") == pytest.approx(density, abs=1e-5)
    # That it is missing takes its value back.
    ask(tab, f"p.set({at}, 1)")
    assert ask(tab, f"Number.isNaN(p.state.values[{names.index('income')}])") is True


# -------------------------------------------------------------------- addresses


def test_what_is_set_is_in_the_address(pages, browser):
    tab = settled(browser.open(pages.page("mixed")))
    values, _ = random_settings(pages.model("mixed"), 5, seed=3)
    row = json.dumps([None if np.isnan(x) else x for x in values[0]])
    ask(tab, f"(p.state.pair = [2, 0], p.setRow({row}))")
    address, said = tab.evaluate("location.hash"), texts(tab, ".said")
    read = "() => [[...p.state.values].map((x) => Number.isNaN(x) ? null : x), p.state.pair]"
    first = ask(tab, read)
    again = settled(browser.open(pages.page("mixed"), fragment=address))
    second = ask(again, read)
    assert first[1] == second[1] == [2, 0]
    for one, other in zip(first[0], second[0], strict=True):
        assert one == other or abs(one - other) < 1  # times are written to the second
    assert texts(again, ".said") == said


def test_an_address_of_another_model_is_told(pages, browser):
    tab = settled(
        browser.open(pages.page("mixed"), fragment="#city=Atlantis&nothing=1&rooms=3&%E0")
    )
    told = tab.evaluate("document.getElementById('notice').textContent")
    assert "city = Atlantis; nothing = 1; %E0" in told
    assert glance(tab, "set")[0] == "1 of 11"
    assert tab.problems == []
    for wrong in ("#rooms=2.5", "#share=1.5", "#since=yesterday", "#rooms=", "#income=Infinity"):
        tab = settled(browser.open(pages.page("mixed"), fragment=wrong))
        assert glance(tab, "set")[0] == "0 of 11", wrong


def test_dates_are_read_and_written_in_their_zone(pages, browser):
    """Also in summer, when Paris is two hours from Greenwich, and just before it begins."""
    for when in ("2024-02-01T08:30:00", "2024-06-01T08:30:00", "2024-03-31T01:30:00"):
        tab = settled(browser.open(pages.page("mixed"), fragment=f"#at={when}&since=2020-05-17"))
        at, since = ask(tab, "[p.state.values[10], p.state.values[6]]")
        assert at == pd.Timestamp(when, tz="Europe/Paris").timestamp()
        assert since == (pd.Timestamp("2020-05-17") - pd.Timestamp("1970-01-01")).days
        ask(tab, "p.set(0, 1)")  # writes the address anew
        assert f"at={when.replace(':', '%3A')}" in tab.evaluate("location.hash")


# -------------------------------------------------------------------- hostile tables


def test_what_a_table_holds_is_shown_and_does_nothing(pages, browser):
    model = pages.model("hostile")
    path = pages.folder / "named.html"
    model.explore(title=HOSTILE[0]).save(path)
    tab = settled(browser.open(path))
    ask(tab, "p.setRanked(null, 0)")
    ask(tab, "(p.state.pair = [0, p.cards.length - 1], p.changed(true))")
    assert tab.evaluate("document.querySelector('h1').textContent") == HOSTILE[0]
    assert tab.evaluate("document.title") == f"{HOSTILE[0]}: explore the model"
    assert tab.evaluate("document.images.length") == 0
    assert tab.evaluate("document.querySelectorAll('[onmouseover], [onerror]').length") == 0
    names = texts(tab, ".column h4")
    assert names == list(model.schema_.names)
    options = set(texts(tab, ".column option"))
    assert options >= {*HOSTILE, "</script>"}
    assert tab.problems == []
    address = tab.evaluate("location.hash")
    again = settled(browser.open(path, fragment=address))
    assert glance(again, "set")[0] == f"{len(names)} of {len(names)}"
    assert ask(again, "() => p.state.pair") == [0, len(names) - 1]


def test_the_policy_stops_other_scripts(pages, browser):
    tab = settled(browser.open(pages.page("real")))
    tab.evaluate(
        "(() => { const other = document.createElement('script');"
        " other.textContent = 'window.taken = true'; document.body.append(other); })()"
    )
    assert tab.evaluate("window.taken === undefined")
    assert any("Content Security Policy" in problem for problem in tab.problems)
    tab.evaluate("fetch('http://localhost:9/').catch(() => 0)")
    assert "http://localhost:9/" not in tab.requests


# -------------------------------------------------------------------- keyboard, screen reader


def focused(tab):
    return tab.evaluate(
        "(() => { const e = document.activeElement; const card = e.closest('.column');"
        " return [e.tagName, e.type ?? '', e.dataset?.do ?? e.name ?? '',"
        " card ? card.querySelector('h4').textContent : '']; })()"
    )


def test_the_keyboard_drives_every_control(pages, browser):
    """Tab reaches each control in turn, and keys alone set each column and forget it."""
    tab = settled(browser.open(pages.page("mixed", rows=everything())))
    reached = []
    for _ in range(200):
        tab.press("Tab")
        settled(tab)
        now = focused(tab)
        if reached and now == reached[-1]:
            continue  # parts of a date
        if now in reached or now[0] == "BODY":
            break
        reached.append(now)
        tag, kind, _, column = now
        if not column or kind == "button":
            continue
        n_before = int(glance(tab, "set")[0].split()[0])
        if kind == "range":
            tab.press("ArrowRight")
        elif tag == "SELECT":
            tab.press("ArrowDown")
        elif kind in ("date", "datetime-local"):
            # The slider has set it: another year changes it.
            before = ask(tab, "[...p.state.values]")
            tab.press("ArrowUp")
            settled(tab)
            assert ask(tab, "[...p.state.values]") != before, now
            continue
        else:
            tab.evaluate("document.activeElement.select()")
            tab.press("1")
        settled(tab)
        known = ask(tab, f"!Number.isNaN(p.state.values[{NAMES.index(column)}])")
        assert known, now
        assert int(glance(tab, "set")[0].split()[0]) >= n_before
    kinds = [(tag, kind) for tag, kind, *_ in reached]
    cards = [column for *_, column in reached if column]
    assert list(dict.fromkeys(cards)) == NAMES
    assert kinds.count(("INPUT", "range")) == 8
    assert [what for tag, kind, what, _ in reached if kind == "button" and what][:5] == [
        *("typical", "oddest", "draw", "draws", "forget"),
    ]
    assert [what for tag, _, what, column in reached if tag == "SELECT" and not column] == [
        *("first", "second"),
    ]
    assert glance(tab, "set")[0] == "11 of 11"
    assert tab.problems == []
    # Forget buttons, and Escape in a control.
    tab.evaluate("document.querySelector('.column .forget').focus()")
    tab.press("Enter")
    assert ask(tab, "Number.isNaN(p.state.values[0])")
    tab.evaluate("document.querySelectorAll('.column')[1].querySelector('input').focus()")
    tab.press("Escape")
    assert ask(tab, "Number.isNaN(p.state.values[1])")
    tab.evaluate("document.querySelector('[data-do=forget]').focus()")
    tab.press(" ")
    settled(tab)
    assert glance(tab, "set")[0] == "0 of 11"


NAMES = list(everything(2).columns)


def test_a_wrong_entry_is_told_and_changes_nothing(pages, browser):
    tab = settled(browser.open(pages.page("mixed"), fragment="#share=0.5"))
    tab.evaluate("document.querySelectorAll('.column')[9].querySelector('[type=number]').focus()")
    tab.evaluate("document.activeElement.select()")
    tab.press("7")
    settled(tab)
    assert tab.evaluate("document.activeElement.getAttribute('aria-invalid')") == "true"
    assert ask(tab, "p.state.values[9]") == 0.5


def test_every_control_has_a_name(pages, browser):
    """As those who do not see the page are told it."""
    tab = settled(browser.open(pages.page("mixed", rows=everything())))
    browser.call("Accessibility.enable", tab.session)
    nodes = browser.call("Accessibility.getFullAXTree", tab.session)["nodes"]
    controls = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node.get("ignored")
        and node["role"]["value"]
        in ("slider", "spinbutton", "combobox", "button", "image", "Date")
    ]
    assert len(controls) > 50
    assert [role for role, name in controls if not name] == []
    assert ("slider", "rooms, slider") in controls
    assert ("spinbutton", "rooms") in controls
    assert ("combobox", "city") in controls
    assert ("button", "Forget city") in controls
    ask(tab, "p.set(0, 1)")
    assert tab.evaluate("document.querySelector('[role=status]').textContent").startswith(
        "Log dens"
    )


def test_a_notebook_shows_it(pages, browser, tmp_path):
    """In a frame without an address of its own, sandboxed as in a notebook."""
    path = tmp_path / "notebook.html"
    shown = pages.model("real").explore()._repr_html_()
    path.write_text(f'<!doctype html><body style="background:black">{shown}')
    tab, picture, white = browser.open(path), tmp_path / "notebook.png", 0.0
    for _ in range(20):  # cards, which are white, are there once the frame has begun
        tab.evaluate("new Promise((done) => setTimeout(done, 300))")
        tab.screenshot(picture, whole=False)
        with Image.open(picture) as seen:
            pixels = np.asarray(seen.convert("RGB"))
        white = (pixels == 255).all(-1).mean()
        if white > 0.05:
            break
    assert white > 0.05
    assert tab.problems == []


# -------------------------------------------------------------------- pictures


def test_screenshots(browser, tmp_path):
    """Pictures of the page, of which the README shows one."""
    folder = Path(os.environ.get("RNADE_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    weather = pd.DataFrame(make_weather(2000)).drop(columns="sunshine")
    rng = np.random.default_rng(0)
    weather.insert(
        0, "date", pd.Timestamp("2025-01-01") + pd.to_timedelta(np.arange(2000) % 365, "D")
    )
    sky = np.array(["clear", "cloudy", "overcast"])
    cover = weather["humidity"].rank(pct=True) + rng.normal(0, 0.15, 2000)
    weather.insert(1, "sky", sky[np.digitize(cover, [0.33, 0.66])])
    weather["rain"] = weather["rain"].where(weather["rain"] > 0.2, 0.0)
    page = tmp_path / "weather.html"
    RNADE(n_hidden=48, epochs=20, ensemble=None, random_state=0, device="cpu").fit(
        weather
    ).explore(title="weather.csv").save(page)
    address = "#sky=overcast&wind=12&~=temperature~dew%20point"
    pictures = {}
    for name, width, dark in (
        ("explore", DESK, False),
        ("dark", DESK, True),
        ("phone", PHONE, False),
    ):
        tab = settled(browser.open(page, width=width, dark=dark, fragment=address))
        ask(tab, "p.drawRows()")
        pictures[name] = folder / f"{name}-explore-whole.png"
        tab.screenshot(pictures[name])
        if width == DESK:
            place = "document.querySelector('#pair').getBoundingClientRect().top + scrollY"
            second = int(tab.evaluate(place)) - 330
        with Image.open(pictures[name]) as picture:
            assert picture.size[0] == width
            assert len(picture.convert("RGB").getcolors(1 << 24)) > 50  # it is not blank
        assert tab.problems == []
    # The page in the light, and its second part in the dark beside it.
    width, height = 700, 800
    picture = Image.new("RGB", (2 * width + 16, height), "white")
    for at, name in enumerate(("explore", "dark")):
        with Image.open(pictures[name]) as whole:
            top = 0 if name == "explore" else second
            cut = whole.convert("RGB").crop((0, top, DESK, top + DESK * height // width))
        picture.paste(
            cut.resize((width, height), Image.Resampling.LANCZOS), (at * (width + 16), 0)
        )
    few = picture.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    few.save(folder / "explore.png", optimize=True)
    assert (folder / "explore.png").stat().st_size < 400_000
