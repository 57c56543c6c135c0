"""How the results on image patches are laid out: the paper's table, ours, and the two remarks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnade.reproduce.core.layout import Cell, ResultTable
from rnade.reproduce.core.plans import read_plan, targets
from rnade.reproduce.patches.rows import OUR_ROWS, PAPER_ROWS, REMARK_ROWS, ROWS

Results = Mapping[str, Mapping[str, Any]]
Lines = dict[str, list[Cell]]
WORDS = read_plan("patches")["tables"]


def patch_tables(models: Sequence[str], results: Results) -> list[ResultTable]:
    """Lay out the chosen rows."""
    source = targets("table2-later")["source"]
    tables = []
    for words, names, lines in (
        ("paper", PAPER_ROWS, _scores),
        ("ours", OUR_ROWS, _scores_and_others),
        ("orders", ["orders"], _orders),
        ("range", [name for name in REMARK_ROWS if name != "orders"], _ranges),
    ):
        chosen = {name: results.get(name, {}) for name in names if name in models}
        if chosen:
            tables.append(ResultTable.of(WORDS[words], lines(chosen), source=source))
    return tables


def _scores_and_others(results: Results) -> Lines:
    """Our scores, and below them what others have published."""
    published = targets("table2-later")["figures"]
    return _scores(results) | {
        label: [Cell(), Cell(published=v)] for label, v in published.items()
    }


def _scores(results: Results) -> Lines:
    lines = {}
    for name, result in results.items():
        label = ROWS[name].label
        published = targets("table2")["figures"].get(label, {})
        test, train = result.get("test", {}), result.get("train", {})
        size = result.get("n_parameters")
        lines[label] = [
            Cell(train.get("mean"), train.get("standard_error"), published.get("train")),
            Cell(test.get("mean"), test.get("standard_error"), published.get("test")),
            Cell(test.get("by_image")),
            Cell(None if size is None else size / 1e6),
            Cell(result.get("fit_seconds")),
        ]
    return lines


def _orders(results: Results) -> Lines:
    """Means and spread over runs of raster order and of random orders, and their difference."""
    lines: Lines = {"raster order, other seeds": [], "random orders": []}
    gap: list[Cell] = []
    if result := results["orders"]:
        tests = [np.array([run["mean"] for run in result[kind]]) for kind in ("raster", "random")]
        for row, test in zip(lines, tests, strict=True):
            spread = (test.std(ddof=1), test.min(), test.max())
            lines[row] = [Cell.mean_of(test), *(Cell(float(value)) for value in spread)]
        error = sum(test.var(ddof=1) / len(test) for test in tests) ** 0.5
        gap = [Cell(float(tests[1].mean() - tests[0].mean()), float(error))]
    return lines | {"random less raster": gap}


def _ranges(results: Results) -> Lines:
    """What limiting the range does to likelihoods and samples."""
    lines: Lines = {ROWS[name].label: [] for name in results}
    for line, result in zip(lines.values(), results.values(), strict=True):
        if result:
            gains = [result[part] for part in ("fixed", "running")]
            shares = [result["out_of_range"][part] for part in ("free", "limited", "data")]
            line += [Cell(gain["mean"], gain["by_image"]) for gain in gains]
            line += [Cell(100 * share) for share in shares]
    return lines
