"""Model cards: what they tell is what the model file says."""

import json

import numpy as np
import pandas as pd
import pytest

from rnade import RNADE


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table with missing cells, an id, and models of it."""
    folder = tmp_path_factory.mktemp("card")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "id": [f"person-{i}" for i in range(120)],
            "trade|craft": rng.choice(["baker", "smith"], 120),
            "height": np.where(rng.random(120) < 0.1, np.nan, rng.normal(170, 9, 120)),
            "rooms": rng.poisson(3, 120),
        }
    )
    table.to_csv(folder / "people.csv", index=False)
    return folder


@pytest.fixture(autouse=True)
def _there(folder, monkeypatch):
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def fitted(folder):
    from rnade.cli import main

    path = folder / "people.rnade"
    options = ["--epochs", "2", "--n-hidden", "8", "--random-state", "0", "-q"]
    assert main(["fit", str(folder / "people.csv"), "-o", str(path), *options]) == 0
    return path


def test_a_card_says_what_the_file_says(rnade, fitted):
    code, text, _ = rnade("info", "people.rnade", "--card")
    assert code == 0
    told = json.loads(rnade("info", "people.rnade", "--json")[1])
    assert text.startswith("# Model card: people.rnade\n")
    assert "fitted to 120 rows of `people.csv`" in text
    assert f"{told['held_out']['mean']:.3f} ± {told['held_out']['standard_error']:.3f}" in text
    assert f"compare with {told['p_values']['n_rows']} rows" in text
    for name, share in told["missing"].items():
        assert f"| {name} | real ({share:.1%} missing) |" in text
    assert "`id` (" in text
    assert r"| trade\|craft | category (2 levels: baker, smith) |" in text
    assert "random_state = 0" in text
    assert "fewer than 500 rows" in text


@pytest.mark.parametrize("warning", ["Anonymity", "Cause and effect", "single people", "Other"])
def test_a_card_says_what_the_model_is_not_for(rnade, fitted, warning):
    text = rnade("info", "people.rnade", "--card")[1]
    section = text.split("## What it must not be used for")[1].split("\n## ")[0]
    assert f"- **{warning}" in section or f"{warning}**" in section


def test_a_card_of_numbers_alone(rnade, folder):
    X = np.random.default_rng(0).normal(size=(600, 2))
    RNADE(ensemble=None, epochs=1, n_hidden=4, random_state=0).fit(X).save(folder / "n.rnade")
    text = rnade("info", "n.rnade", "--card")[1]
    assert "| x1 | real |" in text or "`x1`, `x2`" in text
    assert "fewer than" not in text.split("## What it is for")[0]
    assert "rows of `" not in text


def test_one_form_at_a_time(rnade, fitted):
    code, _, error = rnade("info", "people.rnade", "--card", "--json")
    assert code == 2
    assert "--card and --json are two forms of the same: choose one." in error
