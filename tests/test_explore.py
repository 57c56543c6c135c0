"""The page to explore a model, without a browser: what it holds, says and refuses."""

import base64
import html
import json
import re
import zlib

import numpy as np
import pytest

from rnade import FVBN, NADE, RNADE, Gaussian, MixtureOfColumns, RNADESearchCV, load
from rnade.cli import main
from rnade.explore import page as pages
from rnade.explore.contents import part_of
from rnade.explore.packing import WEIGHT_BITS, pack
from rnade.nn.ensemble import log_average
from rnade.nn.questions import log_densities
from tests.explored import QUICK, everything, informative, mixed, real


@pytest.fixture(scope="module")
def fitted() -> RNADE:
    return mixed()


def unpacked(block):
    """What `tensors.js` reads, written from the description of the format."""
    stream, at, found = zlib.decompress(base64.b64decode(block.text)), 0, {}
    for name, kind, n in block.directory:
        width = 3 if kind == "weights" else 8
        planes = np.frombuffer(stream, np.uint8, width * n, at).reshape(width, n)
        at += width * n
        if kind == "doubles":
            found[name] = np.ascontiguousarray(planes.T).view("<f8").ravel()
        else:
            whole = (planes.astype(np.int64) << np.array([[0], [8], [16]])).sum(0)
            whole -= (whole >= 2**23) * 2**24
            found[name] = whole.reshape(len(found[f"{name} scales"]), -1)
            found[name] = (found[name] * found[f"{name} scales"][:, None]).ravel()
    assert at == len(stream)
    return found


def test_packed_arrays_come_back():
    rng = np.random.default_rng(0)
    exact = {
        "a": rng.normal(size=5),
        "ends": np.array([-np.inf, np.inf, np.nan]),
        "none": np.empty(0),
    }
    weights = {"W": rng.normal(size=(3, 4, 7)) * 10.0 ** rng.integers(-6, 6, (3, 4, 1))}
    weights["W"][0, 0] = 0.0
    found = unpacked(pack(exact, weights))
    for name, array in exact.items():
        np.testing.assert_array_equal(found[name], array)
    rows, back = weights["W"].reshape(-1, 7), found["W"].reshape(-1, 7)
    largest = np.abs(rows).max(1, keepdims=True)
    assert (np.abs(back - rows) <= largest * 2.0**-WEIGHT_BITS * (1 + 1e-6)).all()
    assert np.abs(back - rows).max() > 0


def facts_on(exploration):
    found = re.search(r'id="facts">(.*?)</script>', exploration.html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_has_all_networks_while_there_is_room(fitted):
    page = fitted.explore()
    facts = facts_on(page)
    table = fitted.module_
    assert len(facts["predicts"]) == table.networks.n_models == 8
    assert facts["orders"] == table.orders.tolist()
    assert [c["name"] for c in facts["columns"]] == list(everything(2).columns)
    assert page.notes[-1] == "Densities are those of the model itself."
    assert "holds no row of any table" in page.notes[0]
    assert all(html.escape(words) in page.html for words in page.notes)
    assert "MB; save(path) writes it" in repr(page)


def test_the_page_of_real_columns_says_whose_densities_they_are():
    page = real().explore()
    assert "of the network that answers questions" in page.notes[-1]
    assert "score_samples scores complete rows by other networks" in page.notes[-1]


def test_a_page_that_would_be_too_large_has_fewer_networks(fitted, monkeypatch):
    whole = len(fitted.explore().html)
    monkeypatch.setattr(pages, "LARGEST_PAGE", whole)  # with room kept for names it is too small
    page = fitted.explore()
    n = len(facts_on(page)["predicts"])
    assert 1 <= n < 8
    assert len(page.html) < whole
    assert f"averages 8 networks, of which this page has {n}," in page.notes[-1]
    monkeypatch.setattr(pages, "LARGEST_PAGE", 1000)
    assert len(facts_on(fitted.explore())["predicts"]) == 1


def test_fewer_networks_are_an_average_of_their_own(fitted):
    """Each of them along its own orders, as the whole average has them."""
    table, rows = fitted.module_, everything(20, seed=1)
    values, seen = fitted.schema_.encode(rows)
    values = np.where(seen, values, np.nan)
    along = log_densities(table, values, np.zeros(values.shape[1], bool))
    own = along[[r for r in range(table.n_orders) if r % 8 < 3]]
    part = part_of(table, 3)
    assert part.n_orders == len(own)
    again = log_densities(part, values, np.zeros(values.shape[1], bool))
    np.testing.assert_allclose(log_average(again), log_average(own), atol=1e-9)
    assert part_of(table, 8) is table


def test_rows_are_in_the_page_only_if_asked_for(fitted, monkeypatch):
    table = everything()
    assert "rows" not in str(facts_on(fitted.explore())["directories"])
    page = fitted.explore(table)
    facts = facts_on(page)
    assert ["rows", "doubles", table.size] in facts["directories"][1]
    assert "whoever has the page can read them" in page.notes[0]
    # Those rows that were left out by some network have a score: its middle and its least.
    scores = fitted.fit_scores_
    assert facts["oddest"] == np.nanargmin(scores)
    assert scores[facts["typical"]] == pytest.approx(np.nanmedian(scores), abs=0.1)
    assert facts_on(fitted.explore(everything(50, seed=1)))["oddest"] is None
    monkeypatch.setattr(pages, "MOST_CELLS", 100 * table.shape[1])
    assert "the first 100 of 600 rows" in fitted.explore(table).notes[0]


def test_whatever_a_table_is_called_the_page_is_one_page(fitted):
    page = fitted.explore(title="</title></script><!--")
    assert page.html.count("</script>") == fitted.explore().html.count("</script>")
    assert "<title>&lt;/title&gt;" in page.html


def test_the_policy_names_the_script_and_the_style(fitted):
    page = fitted.explore().html
    policy = html.unescape(re.search(r'Policy" content="(.*?)">', page)[1])
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_a_notebook_shows_it_in_a_frame_of_its_own(fitted):
    shown = fitted.explore()._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts"')
    inside = html.unescape(re.search(r'srcdoc="([^"]*)"', shown)[1])
    assert inside == fitted.explore().html


def test_an_existing_file_is_kept(fitted, tmp_path):
    page = fitted.explore()
    page.save(tmp_path / "page.html")
    with pytest.raises(FileExistsError, match="exists already"):
        page.save(tmp_path / "page.html")
    page.save(tmp_path / "page.html", overwrite=True)
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html


def test_models_that_do_not_answer_questions_are_refused():
    X = np.random.default_rng(0).normal(size=(200, 2))
    quick = {"epochs": 3, "random_state": 0, "device": "cpu"}
    others = [
        NADE(**quick).fit((X > 0).astype(float)),
        Gaussian().fit(X),
        MixtureOfColumns(n_components=2, random_state=0).fit(X),
    ]
    for model in others:
        with pytest.raises(ValueError, match=f"{type(model).__name__} models do not answer"):
            model.explore()
    with pytest.raises(ValueError, match="FVBN of complete real-valued columns answers no"):
        FVBN(**quick, columns="real").fit(X).explore()
    with pytest.raises(ValueError, match=r"Fit it again with questions=True"):
        RNADE(**quick, ensemble=None, n_hidden=4).fit(X).explore()


def test_a_search_explores_its_best_model():
    search = RNADESearchCV(RNADE(**QUICK), {"weight_decay": [0.1]}, cv=2)
    search.fit(everything(80))
    assert facts_on(search.explore())["columns"][0]["name"] == "city"


# -------------------------------------------------------------------- the command line


@pytest.fixture
def folder(tmp_path, monkeypatch, fitted):
    monkeypatch.chdir(tmp_path)
    fitted.save("m.rnade")
    everything().to_parquet("t.parquet")
    return tmp_path


def test_the_command_writes_the_page(folder, capsys, fitted):
    assert main(["explore", "m.rnade"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "holds no row of any table" in said.err
    assert "wrote explore.html (" in said.err
    written = (folder / "explore.html").read_text(encoding="utf-8")
    assert written == load("m.rnade").explore().html
    assert main(["explore", "m.rnade"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["explore", "m.rnade", "--force", "-q", "--title", "Flats <3"]) == 0
    assert capsys.readouterr().err == ""
    assert "<h1>Flats &lt;3</h1>" in (folder / "explore.html").read_text(encoding="utf-8")


def test_the_command_takes_rows(folder, capsys):
    assert main(["explore", "m.rnade", "-o", "p.html", "--rows", "t.parquet"]) == 0
    assert "the 600 rows of a table" in capsys.readouterr().err
    assert 'max="600"' in (folder / "p.html").read_text(encoding="utf-8")
    assert main(["explore", "m.rnade", "-o", "t.parquet", "--rows", "t.parquet", "--force"]) == 2
    assert "it is an input too" in capsys.readouterr().err


def test_the_command_refuses_models_that_do_not_answer(folder, capsys):
    Gaussian().fit(np.random.default_rng(0).normal(size=(50, 2))).save("g.rnade")
    assert main(["explore", "g.rnade"]) == 2
    assert "Gaussian models do not answer questions" in capsys.readouterr().err
    assert not (folder / "explore.html").exists()


def test_a_report_links_to_the_page(folder, capsys):
    arguments = ["report", "m.rnade", "t.parquet", "-o", "r.html", "-q"]
    (folder / "a b").mkdir()
    assert main([*arguments, "--explore", "a b/x.html"]) == 0
    report = (folder / "r.html").read_text(encoding="utf-8")
    assert '<a class="explore" href="a%20b/x.html">Explore the model</a>' in report
    assert "rnade explore" in (folder / "a b" / "x.html").read_text(encoding="utf-8")
    assert main([*arguments, "--force", "--explore", "r.html"]) == 2
    assert "both name r.html" in capsys.readouterr().err
    assert main([*arguments[:3], "--json", "--explore", "x.html"]) == 2
    assert "name the report too" in capsys.readouterr().err
    assert main([*arguments, "--force"]) == 0
    assert "Explore the model" not in (folder / "r.html").read_text(encoding="utf-8")


def test_indicators_of_missing_cells_are_named():
    facts = facts_on(informative().explore())
    told = {c["name"]: c["indicates"] for c in facts["columns"] if c["indicates"]}
    assert told == {"city is missing": "city", "income is missing": "income"}
