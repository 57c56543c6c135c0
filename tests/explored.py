"""Models to explore, with columns of all kinds, and what Python says of them."""

import json

import numpy as np
import pandas as pd
from torch import Generator

from rnade import FVBN, RNADE, Real
from rnade.nn.ensemble import log_average
from rnade.nn.questions import column_given, log_densities
from tests.test_mixed import frame

QUICK = {"n_hidden": 16, "epochs": 6, "random_state": 0, "device": "cpu"}


def everything(n: int = 600, seed: int = 0) -> pd.DataFrame:
    """Levels, integers, sums of others, atoms, bounds, days, times with a zone, missing cells."""
    rng = np.random.default_rng(seed)
    table = frame(n, seed)
    table["beds"] = rng.integers(0, 9, n)
    table["places"] = table.rooms + table.beds
    table["share"] = rng.beta(1, 3, n)
    start = pd.Timestamp("2024-01-01 06:30", tz="Europe/Paris")
    table["at"] = start + pd.to_timedelta(rng.random(n) * 200 * 86400, "s")
    return table


def mixed() -> RNADE:
    return RNADE(**QUICK, columns={"share": Real(low=0, high=1)}).fit(everything())


def informative() -> RNADE:
    return RNADE(**QUICK, missing="informative").fit(everything(400))


def apart() -> FVBN:
    return FVBN(**QUICK).fit(everything(400))


def real() -> RNADE:
    z = np.random.default_rng(0).normal(size=(600, 4))
    z[:, 1] += z[:, 0] ** 2
    return RNADE(epochs=2, random_state=0, device="cpu").fit(pd.DataFrame(z, columns=list("abcd")))


MODELS = {"mixed": mixed, "informative": informative, "apart": apart, "real": real}


def random_settings(model, n, seed=0):
    """Rows with some columns known (NaN elsewhere), and a value of each column to ask about.

    Most are drawn; others lie between and beyond what the table holds.
    """
    rng = np.random.default_rng(seed)
    table = model._answering
    drawn = table.sample(2 * n, Generator().manual_seed(seed))
    asked = np.where(rng.random((n, drawn.shape[1])) < 0.7, drawn[:n], drawn[n:])
    for d, column in enumerate(table.columns):
        empty = np.isnan(asked[:, d])
        if not len(column.edges):
            asked[empty, d] = 0.0 if not len(column.atoms) else column.atoms[0]
            continue
        first, last = column.reach
        anywhere = rng.uniform(first - 0.2 * (last - first), last + 0.2 * (last - first), n)
        anywhere = np.clip(anywhere, *column.bounds)
        if column.measure == 1:
            anywhere = np.rint(anywhere)
        asked[:, d] = np.where(empty | (rng.random(n) < 0.1), anywhere, asked[:, d])
    known = np.where(rng.random(asked.shape) < rng.random((n, 1)), asked, np.nan)
    for d, indicator in table.indicators.items():
        known[~np.isnan(known[:, d]), indicator] = 0.0
    return known, asked


def pythons_answers(model, known, asked):
    """Log densities and distribution functions of each column, and of what is known."""
    table = model._answering
    columns = [column_given(table, d, known) for d in range(known.shape[1])]
    given_nothing = np.zeros(known.shape[1], dtype=bool)
    return {
        "log_prob": np.stack([c.log_prob(asked[:, d]) for d, c in enumerate(columns)], 1),
        "cdf": np.stack([c.cdf(asked[:, d]) for d, c in enumerate(columns)], 1),
        "joint": log_average(log_densities(table, known, given_nothing)).numpy(),
    }


PAGES_ANSWERS = """
rnade.then((page) => ROWS.map(([known, asked]) => {
  const values = Float64Array.from(known, (x) => x ?? NaN);
  const conditionals = page.ask.conditionals(values);
  const densities = asked.map((_, d) => conditionals.of(d));
  // JSON has no infinity.
  const finite = (x) => (x === -Infinity ? -1e300 : x);
  return [
    asked.map((x, d) => finite(densities[d].logProb(x))),
    asked.map((x, d) => densities[d].cdf(x)),
    finite(page.ask.logDensity(values)),
  ];
}))
"""


def pages_answers(tab, known, asked, at_a_time=100):
    """The same by the page."""
    found = []
    for at in range(0, len(known), at_a_time):
        some = slice(at, at + at_a_time)
        rows = [
            ([None if np.isnan(x) else x for x in row], values)
            for row, values in zip(known[some].tolist(), asked[some].tolist(), strict=True)
        ]
        found += tab.evaluate(PAGES_ANSWERS.replace("ROWS", json.dumps(rows)))
    log_prob, cdf, joint = (np.array(part) for part in zip(*found, strict=True))
    return {"log_prob": log_prob, "cdf": cdf, "joint": joint}
